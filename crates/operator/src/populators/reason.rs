//! Event reasons of populated claims. Each has a page in `docs/src/reference/events/`.

use std::fmt;

/// Reason of an event or status about a claim that is to be populated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PopulatorReason {
    /// The source cannot be read while a pod writes to it.
    PreCopySkipped,
    /// The node of the claim is not one on which the source can be read.
    SourceNodeNotFound,
    /// The checksum of the content differs.
    ChecksumMismatch,
    /// The content cannot be put into this volume.
    ContentRejected,
    /// The pod that populates the volume does not run.
    PopulatorPodPending,
    /// The API server does not let the prime claim or the pod be made.
    PopulatorCreationError,
    /// The prime claim lost its node, so another one is looked for.
    PopulatorRescheduled,
    /// An attempt has failed and will be retried.
    PopulatorRetrying,
    /// The claim has its volume with the content.
    PopulatorFinished,
    /// An object of the name that the operator uses is another client's.
    NameConflict,
    /// The source is in another namespace.
    NamespaceMismatch,
    /// The size that the claim asks for cannot be read.
    InvalidSize,
    /// A pod may write to the source.
    SourceInUse,
    /// The source of the claim does not exist.
    PopulatorDataSourceNotFound,
    /// The source of the claim is paused.
    SourcePaused,
    /// The last try has failed.
    BackoffLimitExceeded,
    /// No populator has registered the kind that the claim names.
    UnrecognizedDataSourceKind,
    /// The node of the volume has not written on it what it is.
    VolumeNotFenced,
    /// The claim waits for a pod that uses it.
    WaitForFirstConsumer,
    /// The claim has not the volume mode that the source needs.
    VolumeModeMismatch,
}

impl PopulatorReason {
    /// All of them.
    pub const ALL: [PopulatorReason; 20] = [
        PopulatorReason::PreCopySkipped,
        PopulatorReason::SourceNodeNotFound,
        PopulatorReason::ChecksumMismatch,
        PopulatorReason::ContentRejected,
        PopulatorReason::PopulatorPodPending,
        PopulatorReason::PopulatorCreationError,
        PopulatorReason::PopulatorRescheduled,
        PopulatorReason::PopulatorRetrying,
        PopulatorReason::PopulatorFinished,
        PopulatorReason::NameConflict,
        PopulatorReason::NamespaceMismatch,
        PopulatorReason::InvalidSize,
        PopulatorReason::SourceInUse,
        PopulatorReason::PopulatorDataSourceNotFound,
        PopulatorReason::SourcePaused,
        PopulatorReason::BackoffLimitExceeded,
        PopulatorReason::UnrecognizedDataSourceKind,
        PopulatorReason::VolumeNotFenced,
        PopulatorReason::WaitForFirstConsumer,
        PopulatorReason::VolumeModeMismatch,
    ];

    /// Returns true if a person has to act: the event type is `Warning`.
    pub fn is_warning(self) -> bool {
        self.is_told() && self != PopulatorReason::PopulatorFinished
    }

    /// Returns true if it is an event; usual or short conditions are only in the status.
    pub fn is_told(self) -> bool {
        !matches!(
            self,
            PopulatorReason::PreCopySkipped
                | PopulatorReason::SourcePaused
                | PopulatorReason::VolumeNotFenced
                | PopulatorReason::WaitForFirstConsumer
        )
    }
}

impl fmt::Display for PopulatorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
