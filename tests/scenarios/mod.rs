//! What a driver does on a machine, told once for the machine in memory and for real LVM: the fake
//! is held to the truth by it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use pliant::host::Host;
use pliant::volume::Mode;

mod edges;
mod growing;
mod lives;
mod shrinking;
pub mod site;
mod snapshots;
mod thin;

pub use edges::*;
pub use growing::*;
pub use lives::*;
pub use shrinking::*;
pub use snapshots::*;
pub use thin::*;

/// A machine that scenarios are played on.
#[async_trait]
pub trait Place: Send {
    /// A blank disk of so many MiB.
    fn disk(&mut self, mib: u64) -> PathBuf;

    /// Make a group on these disks, as an administrator does.
    async fn group(&mut self, name: &str, disks: &[PathBuf]);

    /// Type a command on a group, as an administrator does.
    async fn type_in(&mut self, group: &str, line: &str);

    /// Kill the driver that had the door, and give the next one its own.
    fn door(&mut self) -> Arc<dyn Host>;

    /// A directory for paths of volumes and for the driver's state.
    fn dir(&self) -> PathBuf;

    /// Pull a disk that nobody has open, and put it back with what was on it.
    fn pull(&mut self, disk: &Path);
    fn put_back(&mut self, disk: &Path);

    /// Sizes in MiB of all logical volumes of a group.
    async fn sizes(&self, group: &str) -> BTreeMap<String, u64>;

    /// Write to a volume as its workload does, synced.
    async fn write(&self, shown: &Shown);

    /// Write so many MiB to a raw volume, each synced, as fast as it goes.
    async fn fill(&self, shown: &Shown, mib: u64);

    /// Whether what was written is there.
    async fn holds(&self, shown: &Shown) -> bool;
}

/// Where a volume can be written.
#[derive(Debug, Clone)]
#[allow(dead_code)] // The machine in memory needs no more than the device.
pub struct Shown {
    pub mode: Mode,
    pub device: PathBuf,
    /// The mounted file system, if it is one.
    pub dir: PathBuf,
}

/// Make a test of each scenario, on this place.
macro_rules! play_on {
    ($place:expr, $($attribute:tt)*) => {
        play_on! { @ $place, [$($attribute)*]
            block_lives ext4_lives xfs_lives btrfs_lives
            block_grows ext4_grows xfs_grows btrfs_grows
            ext4_shrinks btrfs_shrinks xfs_never_shrinks
            a_file_system_grows_in_two_steps a_full_group_says_its_numbers
            a_limit_is_kept a_standby_disk_joins
            everything_may_be_repeated a_staged_volume_is_not_deleted
            a_published_volume_stays_staged
            another_file_system_is_not_mounted foreign_volumes_are_left_alone
            reading_changes_nothing what_a_copy_read_is_written_again what_an_administrator_did_is_seen
            a_restart_finds_everything a_pulled_disk_is_unavailable
            thin_block_lives thin_ext4_lives thin_xfs_lives thin_btrfs_lives
            thin_and_linear_share_a_group a_thin_volume_shows_nothing_of_another
            a_thin_pool_grows_under_its_writers
            block_is_restored ext4_is_restored xfs_is_restored btrfs_is_restored
            thin_block_is_restored thin_ext4_is_restored thin_xfs_is_restored thin_btrfs_is_restored
            a_volume_is_cloned_to_another_layout a_snapshot_without_room_is_refused
        }
    };
    (@ $place:expr, $attributes:tt $($scenario:ident)*) => {
        $(play_on! { % $place, $attributes $scenario })*
    };
    (% $place:expr, [$($attribute:tt)*] $scenario:ident) => {
        #[test]
        $($attribute)*
        fn $scenario() {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            runtime.expect("a runtime").block_on(shared::$scenario($place));
        }
    };
}
pub(crate) use play_on;
