//! Event reasons of PvcAutoscalers. Each has a page in `docs/src/reference/events/`.

use std::fmt;

/// Reason of an event or status about the claims of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AutoscalerReason {
    /// Several claims could be the active one of a pod.
    AmbiguousClaimName,
    /// A claim of the name is another workload's.
    ClaimConflict,
    /// The API server does not let a claim be made or grown.
    ClaimForbidden,
    /// A claim is expanded automatically.
    AutoscaleExpand,
    /// A claim is shrunk automatically.
    AutoscaleShrink,
    /// The workload names the claims, so they retain their names: they can grow, and shrink in
    /// place.
    SwapUnsupported,
    /// The pods of the workload have no volume, or name no claim that can be managed.
    ClaimsNotFound,
    /// The class of the template makes no volumes where a claim can be read.
    StorageClassTopologyMismatch,
    /// The StorageClass of the template does not exist.
    StorageClassNotFound,
    /// The clock of an operator differs from that of the API server, so it deletes nothing by time.
    ClockSkew,
    /// The pod that populates a new claim does not run.
    PopulatorPodPending,
    /// The API server rejects the objects that populate a new claim.
    PopulatorCreationError,
    /// There is no free space for a new claim on its node, and another one is looked for.
    PopulatorRescheduled,
    /// An attempt to populate a new claim has failed, and will be retried.
    PopulatorRetrying,
    /// There is not enough free space for an expansion.
    ExpansionFailed,
    /// A pod is not ready, so that no other one is stopped.
    PodNotReady,
    /// The node of a claim does not have enough free space for its new volume.
    InsufficientCapacity,
    /// The node of a claim does not exist or is unschedulable, or its node plugin does not respond.
    NodeUnavailable,
    /// A pod may not be stopped now.
    EvictionBlocked,
    /// A quota leaves less than a swap takes.
    ExceedsQuota,
    /// Another pod uses a claim that is to be copied.
    ClaimInUse,
    /// Another client made a claim larger than the template.
    ClaimLarger,
    /// A claim that has no volume yet differs from the template.
    ClaimOutdated,
    /// A pod has another claim now.
    SwapSucceeded,
    /// The size of a claim, or what a quota counts, cannot be read.
    InvalidSize,
    /// A claim was shrunk in place.
    ShrinkSucceeded,
    /// A volume could not be shrunk in place.
    ShrinkFailed,
    /// A volume does not shrink yet, or does not grow again yet.
    ShrinkPending,
    /// A pod is stopped, and its claim is not bound to its new volume yet.
    RebindPending,
    /// A pod that is to have again what it had before does not get it.
    RollbackPending,
    /// A pod was rolled back, and stays so although the template differs.
    RolledBack,
    /// A swap was aborted although its copy has not failed.
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
    /// A node that has reported the usage of a claim does not respond.
    StaleUsageMetrics,
    /// The node of a volume has not set its fence.
    VolumeNotFenced,
    /// A claim was deleted while a swap held it, and its volume has the only copy of its content.
    VolumeRetained,
    /// The volume of a pod is superseded, and no status refers to its replacement.
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
    pub const ALL: [AutoscalerReason; 45] = [
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
        AutoscalerReason::ClaimOutdated,
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

    /// Returns true if no change is made until a person acts: the condition `Stalled` is true. What ends without that,
    /// such as a pod that is not ready or an object that the next command creates, is only waited for.
    pub fn needs_action(self) -> bool {
        match self {
            AutoscalerReason::AmbiguousClaimName
            | AutoscalerReason::ClaimConflict
            | AutoscalerReason::ClaimForbidden
            | AutoscalerReason::SwapUnsupported
            | AutoscalerReason::ClaimsNotFound
            | AutoscalerReason::StorageClassTopologyMismatch
            | AutoscalerReason::ClockSkew
            | AutoscalerReason::PopulatorCreationError
            | AutoscalerReason::ExpansionFailed
            | AutoscalerReason::InsufficientCapacity
            | AutoscalerReason::ExceedsQuota
            | AutoscalerReason::ClaimLarger
            | AutoscalerReason::ClaimOutdated
            | AutoscalerReason::InvalidSize
            | AutoscalerReason::ShrinkFailed
            | AutoscalerReason::RolledBack
            | AutoscalerReason::SwapAborted
            | AutoscalerReason::SwapFailed
            | AutoscalerReason::InvalidStatus
            | AutoscalerReason::TooManyRetainedClaims
            | AutoscalerReason::TooManyReplicas
            | AutoscalerReason::VolumeRetained
            | AutoscalerReason::VolumeSuperseded
            | AutoscalerReason::VolumeModeMismatch
            | AutoscalerReason::ClaimNamePolicyMismatch => true,
            AutoscalerReason::AutoscaleExpand
            | AutoscalerReason::AutoscaleShrink
            | AutoscalerReason::StorageClassNotFound
            | AutoscalerReason::PopulatorPodPending
            | AutoscalerReason::PopulatorRescheduled
            | AutoscalerReason::PopulatorRetrying
            | AutoscalerReason::PodNotReady
            | AutoscalerReason::NodeUnavailable
            | AutoscalerReason::EvictionBlocked
            | AutoscalerReason::ClaimInUse
            | AutoscalerReason::SwapSucceeded
            | AutoscalerReason::ShrinkSucceeded
            | AutoscalerReason::ShrinkPending
            | AutoscalerReason::RebindPending
            | AutoscalerReason::RollbackPending
            | AutoscalerReason::SwapStarted
            | AutoscalerReason::StaleUsageMetrics
            | AutoscalerReason::VolumeNotFenced
            | AutoscalerReason::WebhookNotReady
            | AutoscalerReason::WorkloadNotFound => false,
        }
    }

    /// Returns true if a person should know: the event type is `Warning`.
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
