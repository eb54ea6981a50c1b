//! Whether pods of a workload get their claims from us.

/// Whether pods of a workload get their claims from us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// Every new pod is shown to us.
    Covered,
    /// Not now: the webhook does not name the workload yet, or is switched off.
    NotNamed,
    /// Not as long as the webhook names so many others; why, and what to do, for people.
    ShareIsFull(String),
}

impl Coverage {
    /// Why new pods are not shown to us, and what to do; `None` if they are.
    pub(super) fn lacks(&self) -> Option<String> {
        match self {
            Coverage::Covered => None,
            Coverage::NotNamed => Some(
                "the webhook does not name it; see `kubectl get mutatingwebhookconfiguration pliant-webhook` and \
                 the log of the operator"
                    .to_owned(),
            ),
            Coverage::ShareIsFull(why) => Some(format!("the webhook does not name it, as {why}")),
        }
    }
}
