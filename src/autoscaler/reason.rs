//! Why claims are not as they are wanted, and what was done about them: one word each, which has its
//! page in `docs/src/reference/events/`.

use std::fmt;

/// What is told of the claims of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AutoscalerReason {
    /// Several claims could be the active one of a pod.
    ClaimAmbiguous,
    /// A claim of the name is another workload's.
    ClaimTaken,
    /// The API server does not let a claim be made or grown.
    ClaimRefused,
    /// A claim grows by itself.
    ClaimGrows,
    /// A claim shrinks by itself.
    ClaimShrinks,
    /// The claims keep their names, which the workload gives them: they can grow, and shrink where
    /// their volumes lie.
    ClaimsFixed,
    /// The pods of the workload have no volume or name no claim that could be kept.
    ClaimsMissing,
    /// The class of the template makes no volumes where a claim can be read.
    ClassElsewhere,
    /// The StorageClass of the template is not there.
    ClassMissing,
    /// The clock of an operator differs from that of the API server, so it deletes nothing by time.
    ClockSkew,
    /// The pod that fills a new claim does not run.
    FillPodWaits,
    /// The API server does not let a new claim be filled.
    FillRefused,
    /// There is no free space for a new claim on its node, and another one is looked for.
    FillRescheduled,
    /// A try to fill a new claim has failed, and there will be another one.
    FillRetried,
    /// There is no room for what a claim asks for.
    GrowthRefused,
    /// A pod is not ready, so that no other one is stopped.
    PodNotReady,
    /// The node of a claim has no room for the volume that it is to get.
    NoRoom,
    /// The node of a claim is not there, takes no pods, or its agent does not answer.
    NodeUnavailable,
    /// A pod may not be stopped now.
    PodProtected,
    /// A quota leaves less than a swap takes.
    QuotaTooSmall,
    /// Somebody else has a claim that is to be copied.
    ClaimInUse,
    /// Another client made a claim larger than the template.
    ClaimLarger,
    /// A pod has another claim now.
    Swapped,
    /// The size of a claim, or what a quota counts, cannot be read.
    SizeUnreadable,
    /// A claim is smaller, where its volume lies.
    Shrunk,
    /// A volume could not shrink where it lies.
    ShrinkFailed,
    /// A volume does not shrink yet, or does not grow again yet.
    ShrinkWaits,
    /// A pod is stopped, and its claim is not bound to its new volume yet.
    RebindPending,
    /// A pod that is to have again what it had before does not get it.
    RollBackWaits,
    /// A pod keeps what it has got again, although the template has another thing.
    RolledBack,
    /// A swap was given up although its copy has not failed.
    SwapAborted,
    /// The pods of a swap are stopped.
    SwapBegun,
    /// A copy has failed, and the pod has its old claim.
    SwapFailed,
    /// The API server refuses the status that an operator writes.
    StatusInvalid,
    /// A pod has as many retained claims as status lists, so it gets no other one.
    TooManyRetainedClaims,
    /// The StatefulSet has more pods than a status can list.
    TooManyReplicas,
    /// A node does not answer that has told how full a claim is.
    UsageStale,
    /// The node of a volume has not told it who may use it.
    VolumeNotFenced,
    /// A claim was deleted while a swap held it, and its volume has the only copy of its content.
    VolumeRetained,
    /// The volume of a pod is superseded, and no status tells by what.
    VolumeSuperseded,
    /// The volume mode of the template is not that of the claims.
    WrongMode,
    /// The claims of the workload cannot be called as it is written.
    WrongNaming,
    /// The pods of the workload do not get their claims yet.
    WebhookMissing,
    /// There is no workload of the name.
    WorkloadMissing,
}

impl AutoscalerReason {
    /// All of them.
    pub const ALL: [AutoscalerReason; 44] = [
        AutoscalerReason::ClaimAmbiguous,
        AutoscalerReason::ClaimTaken,
        AutoscalerReason::ClaimRefused,
        AutoscalerReason::ClaimGrows,
        AutoscalerReason::ClaimShrinks,
        AutoscalerReason::ClaimsFixed,
        AutoscalerReason::ClaimsMissing,
        AutoscalerReason::ClassElsewhere,
        AutoscalerReason::ClassMissing,
        AutoscalerReason::ClockSkew,
        AutoscalerReason::FillPodWaits,
        AutoscalerReason::FillRefused,
        AutoscalerReason::FillRescheduled,
        AutoscalerReason::FillRetried,
        AutoscalerReason::GrowthRefused,
        AutoscalerReason::NoRoom,
        AutoscalerReason::NodeUnavailable,
        AutoscalerReason::PodNotReady,
        AutoscalerReason::PodProtected,
        AutoscalerReason::QuotaTooSmall,
        AutoscalerReason::ClaimInUse,
        AutoscalerReason::ClaimLarger,
        AutoscalerReason::SizeUnreadable,
        AutoscalerReason::Shrunk,
        AutoscalerReason::ShrinkFailed,
        AutoscalerReason::ShrinkWaits,
        AutoscalerReason::RebindPending,
        AutoscalerReason::RollBackWaits,
        AutoscalerReason::RolledBack,
        AutoscalerReason::Swapped,
        AutoscalerReason::SwapAborted,
        AutoscalerReason::SwapBegun,
        AutoscalerReason::SwapFailed,
        AutoscalerReason::StatusInvalid,
        AutoscalerReason::TooManyRetainedClaims,
        AutoscalerReason::TooManyReplicas,
        AutoscalerReason::UsageStale,
        AutoscalerReason::VolumeNotFenced,
        AutoscalerReason::VolumeRetained,
        AutoscalerReason::VolumeSuperseded,
        AutoscalerReason::WrongMode,
        AutoscalerReason::WrongNaming,
        AutoscalerReason::WebhookMissing,
        AutoscalerReason::WorkloadMissing,
    ];

    /// Whether somebody has to do something, as `Normal` and `Warning` say it.
    pub fn is_warning(self) -> bool {
        !matches!(
            self,
            AutoscalerReason::Swapped
                | AutoscalerReason::SwapAborted
                | AutoscalerReason::SwapBegun
                | AutoscalerReason::ClaimGrows
                | AutoscalerReason::ClaimShrinks
                | AutoscalerReason::Shrunk
        )
    }
}

impl fmt::Display for AutoscalerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
