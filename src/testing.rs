//! What tests use in place of a cluster and of a machine: [`FakeApi`] is an API server in memory, [`FakeHost`] a machine.

mod api;
mod log;

pub use api::FakeApi;
pub use log::Lines;
pub use pliant_fake_host::{
    DeviceState, Failing, FakeHost, GroupState, MachineState, Side, VolumeState,
};
