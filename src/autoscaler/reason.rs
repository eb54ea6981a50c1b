//! Why claims are not as they are wanted, and what was done about them: one word each, which has its
//! page in `docs/src/reference/events/`.

use std::fmt;

/// What is told of the claims of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AutoscalerReason {
    /// Several claims could be the active one of a pod.
    AmbiguousClaimName,
    /// A claim of the name is another workload's.
    ClaimConflict,
    /// The API server does not let a claim be made or grown.
    ClaimForbidden,
    /// A claim grows by itself.
    AutoscaleExpand,
    /// A claim shrinks by itself.
    AutoscaleShrink,
    /// The claims keep their names, which the workload gives them: they can grow, and shrink where
    /// their volumes lie.
    SwapUnsupported,
    /// The pods of the workload have no volume or name no claim that could be kept.
    ClaimsNotFound,
    /// The class of the template makes no volumes where a claim can be read.
    StorageClassTopologyMismatch,
    /// The StorageClass of the template is not there.
    StorageClassNotFound,
    /// The clock of an operator differs from that of the API server, so it deletes nothing by time.
    ClockSkew,
    /// The pod that fills a new claim does not run.
    PopulatorPodPending,
    /// The API server does not let a new claim be filled.
    PopulatorCreationError,
    /// There is no free space for a new claim on its node, and another one is looked for.
    PopulatorRescheduled,
    /// A try to fill a new claim has failed, and there will be another one.
    PopulatorRetrying,
    /// There is no room for what a claim asks for.
    ExpansionFailed,
    /// A pod is not ready, so that no other one is stopped.
    PodNotReady,
    /// The node of a claim has no room for the volume that it is to get.
    InsufficientCapacity,
    /// The node of a claim is not there, takes no pods, or its agent does not answer.
    NodeUnavailable,
    /// A pod may not be stopped now.
    EvictionBlocked,
    /// A quota leaves less than a swap takes.
    ExceedsQuota,
    /// Somebody else has a claim that is to be copied.
    ClaimInUse,
    /// Another client made a claim larger than the template.
    ClaimLarger,
    /// A pod has another claim now.
    SwapSucceeded,
    /// The size of a claim, or what a quota counts, cannot be read.
    InvalidSize,
    /// A claim is smaller, where its volume lies.
    ShrinkSucceeded,
    /// A volume could not shrink where it lies.
    ShrinkFailed,
    /// A volume does not shrink yet, or does not grow again yet.
    ShrinkPending,
    /// A pod is stopped, and its claim is not bound to its new volume yet.
    RebindPending,
    /// A pod that is to have again what it had before does not get it.
    RollbackPending,
    /// A pod keeps what it has got again, although the template has another thing.
    RolledBack,
    /// A swap was given up although its copy has not failed.
    SwapAborted,
    /// The pods of a swap are stopped.
    SwapStarted,
    /// A copy has failed, and the pod has its old claim.
    SwapFailed,
    /// The API server refuses the status that an operator writes.
    InvalidStatus,
    /// A pod has as many retained claims as status lists, so it gets no other one.
    TooManyRetainedClaims,
    /// The StatefulSet has more pods than a status can list.
    TooManyReplicas,
    /// A node does not answer that has told how full a claim is.
    StaleUsageMetrics,
    /// The node of a volume has not told it who may use it.
    VolumeNotFenced,
    /// A claim was deleted while a swap held it, and its volume has the only copy of its content.
    VolumeRetained,
    /// The volume of a pod is superseded, and no status tells by what.
    VolumeSuperseded,
    /// The volume mode of the template is not that of the claims.
    VolumeModeMismatch,
    /// The claims of the workload cannot be called as it is written.
    ClaimNamePolicyMismatch,
    /// The pods of the workload do not get their claims yet.
    WebhookNotReady,
    /// There is no workload of the name.
    WorkloadNotFound,
}

impl AutoscalerReason {
    /// All of them.
    pub const ALL: [AutoscalerReason; 44] = [
        AutoscalerReason::AmbiguousClaimName,
        AutoscalerReason::ClaimConflict,
        AutoscalerReason::ClaimForbidden,
        AutoscalerReason::AutoscaleExpand,
        AutoscalerReason::AutoscaleShrink,
        AutoscalerReason::SwapUnsupported,
        AutoscalerReason::ClaimsNotFound,
        AutoscalerReason::StorageClassTopologyMismatch,
        AutoscalerReason::StorageClassNotFound,
        AutoscalerReason::ClockSkew,
        AutoscalerReason::PopulatorPodPending,
        AutoscalerReason::PopulatorCreationError,
        AutoscalerReason::PopulatorRescheduled,
        AutoscalerReason::PopulatorRetrying,
        AutoscalerReason::ExpansionFailed,
        AutoscalerReason::InsufficientCapacity,
        AutoscalerReason::NodeUnavailable,
        AutoscalerReason::PodNotReady,
        AutoscalerReason::EvictionBlocked,
        AutoscalerReason::ExceedsQuota,
        AutoscalerReason::ClaimInUse,
        AutoscalerReason::ClaimLarger,
        AutoscalerReason::InvalidSize,
        AutoscalerReason::ShrinkSucceeded,
        AutoscalerReason::ShrinkFailed,
        AutoscalerReason::ShrinkPending,
        AutoscalerReason::RebindPending,
        AutoscalerReason::RollbackPending,
        AutoscalerReason::RolledBack,
        AutoscalerReason::SwapSucceeded,
        AutoscalerReason::SwapAborted,
        AutoscalerReason::SwapStarted,
        AutoscalerReason::SwapFailed,
        AutoscalerReason::InvalidStatus,
        AutoscalerReason::TooManyRetainedClaims,
        AutoscalerReason::TooManyReplicas,
        AutoscalerReason::StaleUsageMetrics,
        AutoscalerReason::VolumeNotFenced,
        AutoscalerReason::VolumeRetained,
        AutoscalerReason::VolumeSuperseded,
        AutoscalerReason::VolumeModeMismatch,
        AutoscalerReason::ClaimNamePolicyMismatch,
        AutoscalerReason::WebhookNotReady,
        AutoscalerReason::WorkloadNotFound,
    ];

    /// Whether somebody has to do something, as `Normal` and `Warning` say it.
    pub fn is_warning(self) -> bool {
        !matches!(
            self,
            AutoscalerReason::SwapSucceeded
                | AutoscalerReason::SwapAborted
                | AutoscalerReason::SwapStarted
                | AutoscalerReason::AutoscaleExpand
                | AutoscalerReason::AutoscaleShrink
                | AutoscalerReason::ShrinkSucceeded
        )
    }
}

impl fmt::Display for AutoscalerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
