//! The operations of this node on volumes: create, grow, shrink, publish to a workload, delete.
//!
//! The state of a volume is in the tags of its logical volume ([`lv_tags`]); nothing is stored
//! elsewhere. So each call reads, acts and reads again, and an interrupted call is finished by the
//! next.

mod allocate;
mod copies;
mod create;
mod cuts;
mod decommission;
mod disks;
mod error;
mod fence;
mod find;
mod formats;
mod found;
mod free_space;
mod grow;
mod held;
mod inspect;
pub mod lv_tags;
mod outcomes;
mod pool_plan;
mod pool_setup;
mod pools;
mod publish;
mod rate;
mod recover;
mod refused_disks;
mod remove;
mod report;
mod resize_offline;
mod restore;
mod sending;
mod sends;
mod settings;
mod setup;
mod shrink;
pub mod snapshot_tags;
mod snapshots;
mod stage;
mod standby;
mod stats;
pub mod storage;
mod survey;
mod thin_figures;
mod thin_growth;
mod thin_pool;
mod this_node;
mod transfers;
mod trimming;
mod trims;
mod usages;
mod volumes;
mod wipe;
mod wipe_tasks;

pub use disks::{NewDisk, SetupError};
pub use pool_plan::{GroupSource, PoolPlan};
pub use sending::{may_read, open_send, prepare_send, set_sends};
pub use sends::{SendPermit, Sendable, SentDevice};
pub use settings::NodeSettings;
pub use snapshots::{copied, remembered_snapshots};
pub use stats::read_thin_usages;
pub use this_node::Node;
pub use transfers::{PeerAddress, Peers, ReceivingDevice, RemoteContent, RemoteSource};
pub use trims::keep_trimmed;
pub use volumes::{join_peers, peers, receive};
