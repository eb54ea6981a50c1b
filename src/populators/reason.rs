//! Why a claim waits, has failed or is filled: one word each, which has its page in
//! `docs/src/reference/events/`.

use std::fmt;

/// What is told of a claim that is to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PopulatorReason {
    /// The source cannot be read while a pod writes to it.
    CannotCopyAhead,
    /// The node of the claim is not one on which the source can be read.
    ClaimElsewhere,
    /// What was written or read is not what it should be.
    ContentDiffers,
    /// The content cannot be put into this volume.
    ContentRefused,
    /// The pod that fills the volume does not run.
    FillPodWaits,
    /// The API server does not let the second claim or the pod be made.
    FillRefused,
    /// The second claim lost its node, so another one is looked for.
    FillRescheduled,
    /// A try has failed and there will be another one.
    FillRetried,
    /// The claim has its volume with the content.
    Filled,
    /// An object of the name that the operator uses is another client's.
    NameConflict,
    /// The source is in another namespace.
    OtherNamespace,
    /// The size that the claim asks for cannot be read.
    SizeUnreadable,
    /// A pod may write to the source.
    SourceInUse,
    /// What the claim is filled from is not there.
    SourceMissing,
    /// What the claim is filled from is paused.
    SourcePaused,
    /// The last try has failed.
    TooManyFailures,
    /// Nobody has registered the kind that the claim names.
    UnrecognizedDataSourceKind,
    /// The node of the volume has not written on it what it is.
    VolumeNotFenced,
    /// The claim waits for a pod that uses it.
    WaitsForConsumer,
    /// The claim has not the volume mode that the source needs.
    WrongVolumeMode,
}

impl PopulatorReason {
    /// All of them.
    pub const ALL: [PopulatorReason; 20] = [
        PopulatorReason::CannotCopyAhead,
        PopulatorReason::ClaimElsewhere,
        PopulatorReason::ContentDiffers,
        PopulatorReason::ContentRefused,
        PopulatorReason::FillPodWaits,
        PopulatorReason::FillRefused,
        PopulatorReason::FillRescheduled,
        PopulatorReason::FillRetried,
        PopulatorReason::Filled,
        PopulatorReason::NameConflict,
        PopulatorReason::OtherNamespace,
        PopulatorReason::SizeUnreadable,
        PopulatorReason::SourceInUse,
        PopulatorReason::SourceMissing,
        PopulatorReason::SourcePaused,
        PopulatorReason::TooManyFailures,
        PopulatorReason::UnrecognizedDataSourceKind,
        PopulatorReason::VolumeNotFenced,
        PopulatorReason::WaitsForConsumer,
        PopulatorReason::WrongVolumeMode,
    ];

    /// Whether somebody has to do something, as `Normal` and `Warning` say it.
    pub fn is_warning(self) -> bool {
        self.is_told() && self != PopulatorReason::Filled
    }

    /// Whether it is told as an event; what is usual, or over in a moment, is only told in the status.
    pub fn is_told(self) -> bool {
        !matches!(
            self,
            PopulatorReason::CannotCopyAhead
                | PopulatorReason::SourcePaused
                | PopulatorReason::VolumeNotFenced
                | PopulatorReason::WaitsForConsumer
        )
    }
}

impl fmt::Display for PopulatorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
