//! How far the filling of claims from a populator is: the status that all kinds of populators share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{FenceStatus, Quantity};

/// The most claims that are listed: with more of them the oldest that are filled are left out.
const MOST_CLAIMS: usize = 256;
/// The longest sentence, in characters.
const LONGEST_SENTENCE: usize = 1024;

/// What the operator has done with the claims that name a populator.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PopulatorStatus {
    /// The claims that are filled from it, the one begun last first.
    #[serde(default)]
    #[schemars(
        length(max = MOST_CLAIMS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"])
    )]
    pub claims: Vec<Filling>,
}

impl PopulatorStatus {
    /// What is told of the claim with this uid.
    pub fn of(&self, uid: &str) -> Option<&Filling> {
        self.claims.iter().find(|filling| filling.uid == uid)
    }

    /// The same with this told of its claim. A claim that is new stands first; beyond 256 those filled
    /// long ago are left out, or the new one if there is none: of the others it must not be forgotten how
    /// often they have failed.
    pub fn with(mut self, mut filling: Filling) -> Self {
        filling.bound();
        match self.claims.iter_mut().find(|one| one.uid == filling.uid) {
            Some(there) => *there = filling,
            None => self.claims.insert(0, filling),
        }
        while self.claims.len() > MOST_CLAIMS {
            let old = self.claims.iter().rposition(|one| one.phase == FillingPhase::Filled);
            self.claims.remove(old.unwrap_or(0));
        }
        self
    }
}

/// How far the filling of one claim is.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Filling {
    /// Name of the claim; it is in the namespace of the populator.
    #[schemars(length(max = 253))]
    pub claim: String,
    /// Uid of the claim: another claim of the same name is filled anew.
    #[schemars(length(max = 63))]
    pub uid: String,
    /// How far it is.
    #[serde(default)]
    pub phase: FillingPhase,
    /// Why it waits or has failed, in one word for machines: docs/src/reference/events.md lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Why it waits or has failed, in a sentence: what, where, how much, what to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
    /// How much is done, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub progress: Option<String>,
    /// How much is done, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<i32>,
    /// How many bytes are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Quantity>,
    /// How many bytes there are to write, as soon as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<Quantity>,
    /// How many bytes are written in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Quantity>,
    /// How many seconds it will still take at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<i64>,
    /// How many tries have failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: i32,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry_time: Option<Time>,
    /// Uid of the second claim, through which it gets its volume: another one of its name is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub second_claim: Option<String>,
    /// Uid of the pod that fills it, or of the one that did last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod: Option<String>,
    /// Digest of what was written, as the pod told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub digest: Option<String>,
    /// What was copied ahead, while pods could use the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Ahead>,
    /// When a pod like the one that fills its volume had run with it, and without the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_time: Option<Time>,
    /// What its volume was told last of who may use it; a volume of another driver is told nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// The generation of the populator that was last tried: a newer one lets a failed claim be tried
    /// again.
    #[serde(default)]
    pub generation: i64,
    /// When the second claim was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the progress was told last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_progress_time: Option<Time>,
    /// When it was filled, or has failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
pub(super) fn is_zero(count: &i32) -> bool {
    *count == 0
}

/// The rounds in which a source was copied ahead.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ahead {
    /// How many rounds have ended.
    pub rounds: i32,
    /// How many bytes the last one wrote.
    pub bytes: Quantity,
    /// How many files changed while the last one read them.
    #[serde(default)]
    pub changing: i64,
    /// How many seconds the last one took.
    #[serde(default)]
    pub seconds: i64,
    /// Uid of the pod of the last one.
    #[schemars(length(max = 63))]
    pub pod: String,
}

/// How far the filling of a claim is.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum FillingPhase {
    /// Nothing is made yet; the reason says what it waits for.
    #[default]
    Waiting,
    /// A second claim without the data source gets its volume.
    Provisioning,
    /// A pod fills the volume.
    Filling,
    /// What can be copied ahead is; the reason says what the rest waits for.
    Ahead,
    /// The volume is filled and becomes that of the claim.
    Binding,
    /// The claim has its volume.
    Filled,
    /// It has failed, and nothing of it is left; the reason stands beside it.
    Failed,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl FillingPhase {
    /// Whether nothing more will happen by itself.
    pub fn is_final(self) -> bool {
        matches!(self, FillingPhase::Filled | FillingPhase::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filling(uid: usize, phase: FillingPhase) -> Filling {
        Filling { uid: uid.to_string(), phase, ..Filling::default() }
    }

    #[test]
    fn a_claim_stands_once_and_the_newest_first() {
        let status = PopulatorStatus::default()
            .with(filling(1, FillingPhase::Waiting))
            .with(filling(2, FillingPhase::Waiting))
            .with(filling(1, FillingPhase::Filled));
        let told: Vec<_> = status.claims.iter().map(|one| (&*one.uid, one.phase)).collect();
        assert_eq!(told, [("2", FillingPhase::Waiting), ("1", FillingPhase::Filled)]);
        assert_eq!(status.of("1").map(|one| one.phase), Some(FillingPhase::Filled));
        assert_eq!(status.of("3"), None);
    }

    #[test]
    fn the_list_has_an_end_and_what_goes_on_stays_in_it() {
        let mut status = PopulatorStatus::default().with(filling(0, FillingPhase::Filling));
        for uid in 1..=MOST_CLAIMS + 5 {
            status = status.with(filling(uid, FillingPhase::Filled));
        }
        assert_eq!(status.claims.len(), MOST_CLAIMS);
        assert!(status.of("0").is_some(), "what is being filled is still told");
        assert_eq!(status.claims[0].uid, (MOST_CLAIMS + 5).to_string());
    }
}
