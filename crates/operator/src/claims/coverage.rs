//! Coverage of the pods of a workload by the webhook.

/// Coverage of the pods of a workload by the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadCoverage {
    /// Every new pod is shown to us.
    Covered,
    /// Not now: the webhook does not name the workload yet, or is switched off.
    NotNamed,
    /// Not as long as the webhook names so many others; why, and what to do, for people.
    ShareIsFull(String),
}

impl WorkloadCoverage {
    /// Returns why the webhook does not see new pods, and the remediation; `None` if it does.
    pub(super) fn lacks(&self) -> Option<String> {
        match self {
            WorkloadCoverage::Covered => None,
            WorkloadCoverage::NotNamed => Some(
                "the webhook does not cover it; see `kubectl get mutatingwebhookconfiguration pliant-webhook` \
                 and the log of the operator"
                    .to_owned(),
            ),
            WorkloadCoverage::ShareIsFull(why) => Some(format!("the webhook does not cover it: {why}")),
        }
    }
}
