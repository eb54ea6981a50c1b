//! What tests use in place of a cluster and of a machine: [`FakeApi`] is an API server in memory, [`FakeHost`] a machine.

use std::sync::LazyLock;

use pliant_fake_apiserver::Kinds;

use crate::api;

mod log;

pub use log::Lines;
pub use pliant_fake_apiserver::{FakeApi, Lost};
pub use pliant_fake_host::{
    DeviceState, Failing, FakeHost, GroupState, MachineState, Side, VolumeState,
};

/// Make an API server in memory that serves our kinds too.
pub fn fake_api() -> FakeApi {
    static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
        let mut definitions = api::definitions();
        definitions.push(api::VolumePopulator::definition());
        Kinds::with(&definitions)
    });
    FakeApi::new(&KINDS)
}
