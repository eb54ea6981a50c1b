//! Event reasons of nodes and volumes. Each has a page in `docs/src/reference/events/`.

use std::fmt;

/// Reason of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventReason {
    /// A disk of a node is missing; also for a volume with a part on one.
    DiskMissing,
    /// The kernel has found errors in a mounted file system.
    FilesystemErrors,
    /// A mounted file system refuses writes after an error.
    FilesystemReadOnly,
    /// A file system is still smaller than its device.
    FilesystemResizePending,
    /// A volume group has become larger.
    VolumeGroupExtended,
    /// A volume can be used but not changed: another disk of its volume group is missing.
    VolumeGroupNotChangeable,
    /// The volume group of a volume cannot be read.
    VolumeGroupUnavailable,
    /// The node plugin of a node does not process requests.
    NodePluginNotResponding,
    /// A pool is usable, not as it should be.
    PoolDegraded,
    /// A pool cannot be used.
    PoolUnavailable,
    /// A node lacks a program, a module or a permission that its node plugin needs.
    PrerequisitesNotMet,
    /// The condition of an earlier event is over.
    Recovered,
    /// A thin pool refuses writes until it is repaired.
    ThinPoolDamaged,
    /// The metadata of a thin pool are nearly full and cannot be expanded.
    ThinPoolMetadataNearlyFull,
    /// A thin pool is nearly full and cannot be expanded.
    ThinPoolNearlyFull,
    /// A growth takes longer than usual.
    VolumeExpanding,
    /// A node has a volume without a PersistentVolume.
    OrphanedVolume,
    /// A PersistentVolume whose volume its node does not have.
    VolumeMissing,
    /// A node does not list a volume, and cannot read all of its pools.
    VolumeStatusUnknown,
}

impl EventReason {
    /// All of them.
    pub const ALL: [EventReason; 19] = [
        EventReason::DiskMissing,
        EventReason::FilesystemErrors,
        EventReason::FilesystemReadOnly,
        EventReason::FilesystemResizePending,
        EventReason::VolumeGroupExtended,
        EventReason::VolumeGroupNotChangeable,
        EventReason::VolumeGroupUnavailable,
        EventReason::NodePluginNotResponding,
        EventReason::PoolDegraded,
        EventReason::PoolUnavailable,
        EventReason::PrerequisitesNotMet,
        EventReason::Recovered,
        EventReason::ThinPoolDamaged,
        EventReason::ThinPoolMetadataNearlyFull,
        EventReason::ThinPoolNearlyFull,
        EventReason::VolumeExpanding,
        EventReason::OrphanedVolume,
        EventReason::VolumeMissing,
        EventReason::VolumeStatusUnknown,
    ];

    /// Returns the event reason for a condition of a volume; `None` for one that resolves on its own,
    /// such as a volume that is not wiped yet.
    pub fn of_ailment(reason: &str) -> Option<EventReason> {
        [
            EventReason::DiskMissing,
            EventReason::FilesystemErrors,
            EventReason::FilesystemReadOnly,
            EventReason::FilesystemResizePending,
            EventReason::ThinPoolDamaged,
            EventReason::ThinPoolMetadataNearlyFull,
            EventReason::ThinPoolNearlyFull,
            EventReason::VolumeGroupNotChangeable,
            EventReason::VolumeGroupUnavailable,
        ]
        .into_iter()
        .find(|one| one.to_string() == reason)
    }

    /// The reason that is written so.
    pub(super) fn parse(text: &str) -> Option<EventReason> {
        EventReason::ALL.into_iter().find(|one| one.to_string() == text)
    }

    /// Returns true if a person has to act: the event type is `Warning`.
    pub fn is_warning(self) -> bool {
        !matches!(
            self,
            EventReason::VolumeGroupExtended
                | EventReason::Recovered
                | EventReason::VolumeExpanding
        )
    }

    /// Returns true if its end is observable. A node plugin without requests may still be down.
    pub fn recovers(self) -> bool {
        self.is_warning() && self != EventReason::NodePluginNotResponding
    }
}

impl fmt::Display for EventReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::VolumeCondition;

    #[test]
    fn what_ails_a_volume_has_the_same_name_as_an_event() {
        for reason in VolumeCondition::REASONS {
            // Of pools, or of what passes by itself.
            let silent = [
                "DiskNotTrusted",
                "PoolNotConfigured",
                "PoolIncomplete",
                "VolumeSuspended",
                "VolumeUnreadable",
            ];
            let told = EventReason::of_ailment(reason);
            assert_eq!(told.is_none(), silent.contains(&reason), "{reason}");
            assert!(told.is_none_or(|told| told.to_string() == reason), "{reason}");
        }
    }
}
