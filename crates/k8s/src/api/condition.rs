//! Whether something is so, as Kubernetes writes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// All that it stands for is as it is wanted: what `kubectl wait --for=condition=Ready` waits for.
pub const READY: &str = "Ready";

/// Nothing is done any more until a person acts. Tools that wait for a rollout by kstatus give up on it.
pub const STALLED: &str = "Stalled";

/// How long a message is at most, in characters.
const LONGEST_MESSAGE: usize = 1024;

/// Whether something is so, in one word for machines and a sentence for people.
pub struct Judged {
    /// True if the condition holds.
    pub is_so: bool,
    /// Reason in one CamelCase word, for programs.
    pub reason: String,
    /// Reason in a sentence, for people.
    pub message: String,
}

impl Judged {
    /// Returns it as a condition of this kind. One that is as it was before keeps its time.
    pub fn condition(self, kind: &str, before: &[Condition], now: &Time) -> Condition {
        let status = if self.is_so { "True" } else { "False" };
        let same = before.iter().find(|one| one.type_ == kind && one.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: self.reason,
            message: self.message.chars().take(LONGEST_MESSAGE).collect(),
            last_transition_time: same.map_or(now, |one| &one.last_transition_time).clone(),
            observed_generation: None,
        }
    }
}
