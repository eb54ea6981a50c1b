//! Volume groups and logical volumes: read without LVM, changed only by LVM.
//!
//! [`scan()`] finds the volume groups on the host's disks. [`VolumeGroup`] reads one of them,
//! orders the commands that change it, and repairs what a killed command left.

mod command_stats;
mod commands;
pub mod group;
pub mod layout;
pub mod metadata;
pub mod read;
mod recovery;
pub mod report;
mod scan;
mod stack;
mod tag_set;
pub mod tags;
pub mod thin;
pub mod thin_commands;
mod thin_transactions;
pub mod thin_usage;
pub mod torn_commit;
mod volume_group;

use std::sync::Arc;

use crate::host::HostError;
use crate::lvm::metadata::MetadataError;
use crate::volume::{VolumeError, error_chain};

pub use command_stats::{STEPS, Spent};
pub use commands::{EXTENT, NewLv, before_extents};
pub use group::{ExtentRun, Group, Lv, PhysicalVolume, Segment, ThinPoolSegment};
pub use scan::{Member, NamedDisks, Scan, scan, scan_disks, without_label};
pub use tag_set::Words;
pub use thin::{THIN_POOL, ThinPool};
pub use thin_commands::NewThinPool;
pub use thin_usage::{ThinGrowth, ThinShortage, ThinState, ThinUsage};
pub use torn_commit::{SearchedGroups, undo_torn_commits};
pub use volume_group::{ThinReading, VgGuard, VolumeGroup, read_thin_usage, thin_reading};

/// Reason why a volume group could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum LvmError {
    /// No disk of the host carries a volume group of this name; its disks may be missing.
    #[error(
        "no disk of this node carries volume group {group}; {others}: see `pvs` and the kernel log"
    )]
    Absent {
        /// The group.
        group: String,
        /// The volume groups of the host, for people.
        others: String,
    },
    /// A volume group that is ambiguous, or that must not be changed.
    #[error("volume group {group}: {reason}")]
    Unusable {
        /// The group.
        group: String,
        /// What was found, with the devices, and what to do.
        reason: String,
    },
    /// The device of a volume is in use on another disk than the group has; nothing was done to it.
    #[error("logical volume {group}/{lv}: {reason}")]
    Elsewhere {
        /// The group.
        group: String,
        /// The logical volume.
        lv: String,
        /// Both disks, and what to do.
        reason: String,
    },
    /// An earlier call on the group has not come back; nothing was sent.
    #[error("volume group {group} is not responding: {what}")]
    Hung {
        /// The group.
        group: String,
        /// The call that hangs.
        what: String,
    },
    /// Another change of the group, such as the merge of a snapshot, has not ended; nothing was sent.
    #[error("volume group {group} is being changed by another long-running operation")]
    Occupied {
        /// The group.
        group: String,
    },
    /// The metadata on the disks cannot be read as LVM's.
    #[error("the metadata of volume group {group} is damaged")]
    Damaged {
        /// The group.
        group: String,
        /// What is wrong with it.
        source: Arc<MetadataError>,
    },
    /// LVM refused a command; a look at the group shows what became of it.
    #[error("LVM rejected `{command}`: {words}{}", repair(.words))]
    Refused {
        /// The command as one would type it.
        command: String,
        /// LVM's own words.
        words: String,
    },
    /// A call to the host failed.
    #[error("volume group {group}")]
    Host {
        /// The group.
        group: String,
        /// The call and the kernel's answer.
        source: HostError,
    },
}

/// What a person does about a thin pool that LVM does not activate: a sentence behind LVM's, or nothing for all else.
///
/// # Source
/// `_pool_callback` in LVM2's `lib/activate/dev_manager.c`, `_node_send_messages` in its `device_mapper/libdm-deptree.c`.
fn repair(words: &str) -> &'static str {
    if words.contains("Manual repair required") {
        " Stop the workloads of the thin pool, then repair it with `lvconvert --repair`: see \"Use thin volumes\" in the documentation."
    } else if words.contains("transaction_id is") {
        " Stop the workloads of the thin pool, then restore its metadata with `vgcfgrestore`: see \"Use thin volumes\" in the documentation."
    } else {
        ""
    }
}

/// A group's trouble: away, hanging or damaged is *unavailable*, a refused command is a failure.
impl From<LvmError> for VolumeError {
    fn from(error: LvmError) -> VolumeError {
        let words = error_chain::in_full(&error);
        match error {
            LvmError::Absent { .. }
            | LvmError::Unusable { .. }
            | LvmError::Elsewhere { .. }
            | LvmError::Hung { .. }
            | LvmError::Damaged { .. }
            | LvmError::Host { .. } => VolumeError::Unavailable { reason: words },
            LvmError::Occupied { group } => VolumeError::InProgress {
                what: format!("another operation on volume group {group}"),
                progress: "it must finish first".to_owned(),
            },
            LvmError::Refused { .. } => VolumeError::Failed { what: words },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_must_repair_is_named_behind_the_words_of_lvm() {
        let refused = |words: &str| {
            LvmError::Refused { command: "lvchange".to_owned(), words: words.to_owned() }
                .to_string()
        };
        let damaged =
            refused("Check of pool vg0/pliant-thinpool failed (status:1). Manual repair required!");
        assert!(
            damaged.contains("required! Stop the workloads")
                && damaged.contains("`lvconvert --repair`"),
            "{damaged}"
        );
        let apart =
            refused("Thin pool vg0-pool-tpool (254:2) transaction_id is 3, while expected 1.");
        assert!(
            apart.contains("expected 1. Stop the workloads") && apart.contains("`vgcfgrestore`"),
            "{apart}"
        );
        assert_eq!(refused("no"), "LVM rejected `lvchange`: no");
    }
}
