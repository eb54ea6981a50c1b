//! The progress of the population of claims: the status that all kinds of populators share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::FenceStatus;
use crate::api::longest::LONGEST_SENTENCE;

/// The most claims that are listed: with more of them the oldest that are populated are left out.
const MOST_CLAIMS: usize = 256;

/// Status of the claims that name a populator.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PopulatorStatus {
    /// Generation of the spec that this status describes. Default: 0, before the operator has seen the object.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Number of claims in `claims`. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub claim_count: i32,
    /// Conditions `Ready` (true unless a claim in `claims` is in progress or has failed) and `Stalled` (true if one has
    /// failed and is not retried until the spec changes).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// Claims that are populated from it, the latest first; at most 256.
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
            let old = self.claims.iter().rposition(|one| one.phase == FillingPhase::Succeeded);
            self.claims.remove(old.unwrap_or(0));
        }
        self
    }
}

/// State of the population of one claim.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Filling {
    /// Name of the claim, which is in the namespace of the populator.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Uid of the claim. Another claim of the same name has its own entry.
    #[schemars(length(max = 63))]
    pub uid: String,
    /// Phase: `Waiting` (nothing is created yet), `Provisioning` (the volume is created), `Populating`, `PreCopied` (the
    /// pre-copy is complete), `Binding` (the claim gets the volume), `Succeeded` or `Failed`. Default: `Waiting`.
    #[serde(default)]
    pub phase: FillingPhase,
    /// Reason in CamelCase why it waits or has failed, for programs. "Events and condition reasons" in the documentation
    /// lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Why it waits or has failed: what, where, how much is missing, and the commands to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = LONGEST_SENTENCE))]
    pub message: Option<String>,
    /// Progress of the copy, such as `62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub progress: Option<String>,
    /// Share of the copy that is complete, in percent, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<i32>,
    /// Number of bytes that are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub written_bytes: Option<i64>,
    /// Number of bytes to write in total. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total_bytes: Option<i64>,
    /// Number of bytes that are written per second. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bytes_per_second: Option<i64>,
    /// Estimated number of seconds until the copy is complete. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub remaining_seconds: Option<i64>,
    /// Number of attempts that have failed. Default: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: i32,
    /// Time of the next attempt. Absent if none is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_retry_time: Option<Time>,
    /// Uid of the prime claim (PVC′), the temporary claim through which the volume is created. Another claim of its
    /// name is not used.
    #[serde(rename = "primeClaimUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prime_claim_uid: Option<String>,
    /// Uid of the populator pod that runs, or that ran last.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod_uid: Option<String>,
    /// Checksum of the written content, as the populator pod reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub checksum: Option<String>,
    /// Results of the pre-copy, which runs while pods can use the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_copy: Option<PreCopy>,
    /// Time when the test pod of `spec.probe` had run with the volume, without the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_time: Option<Time>,
    /// Fence that was last set on the volume. Absent for a volume of another driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceStatus>,
    /// Generation of the populator in the last attempt. A newer generation retries a claim that has failed. Default: 0.
    #[serde(default)]
    pub observed_generation: i64,
    /// Time when the prime claim was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Time when the populator pod last reported progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_progress_time: Option<Time>,
    /// Time when the claim was populated, or has finally failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
pub(super) fn is_zero(count: &i32) -> bool {
    *count == 0
}

/// Results of a pre-copy.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreCopy {
    /// Number of pre-copy passes that are complete.
    #[schemars(range(min = 0))]
    pub passes: i32,
    /// Number of bytes that the last pass wrote.
    #[schemars(range(min = 0))]
    pub written_bytes: i64,
    /// Number of files that changed while the last pass read them. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub changed_files: i64,
    /// Duration of the last pass in seconds. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub duration_seconds: i64,
    /// Uid of the populator pod of the last pass.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 63))]
    pub pod_uid: String,
}

/// Phase of the population of a claim.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
pub enum FillingPhase {
    /// Nothing is created yet; the reason has the cause.
    #[default]
    Waiting,
    /// The prime claim, without the data source, gets its volume.
    Provisioning,
    /// A pod populates the volume.
    Populating,
    /// The pre-copy is complete; the reason has what the rest waits for.
    PreCopied,
    /// The volume is populated and becomes that of the claim.
    Binding,
    /// The claim has its volume.
    Succeeded,
    /// It has failed, and nothing of it is left; the reason has the cause.
    Failed,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl FillingPhase {
    /// Whether nothing more will happen by itself.
    pub fn is_final(self) -> bool {
        matches!(self, FillingPhase::Succeeded | FillingPhase::Failed)
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
            .with(filling(1, FillingPhase::Succeeded));
        let told: Vec<_> = status.claims.iter().map(|one| (&*one.uid, one.phase)).collect();
        assert_eq!(told, [("2", FillingPhase::Waiting), ("1", FillingPhase::Succeeded)]);
        assert_eq!(status.of("1").map(|one| one.phase), Some(FillingPhase::Succeeded));
        assert_eq!(status.of("3"), None);
    }

    #[test]
    fn the_list_has_an_end_and_what_goes_on_stays_in_it() {
        let mut status = PopulatorStatus::default().with(filling(0, FillingPhase::Populating));
        for uid in 1..=MOST_CLAIMS + 5 {
            status = status.with(filling(uid, FillingPhase::Succeeded));
        }
        assert_eq!(status.claims.len(), MOST_CLAIMS);
        assert!(status.of("0").is_some(), "what is being filled is still told");
        assert_eq!(status.claims[0].uid, (MOST_CLAIMS + 5).to_string());
    }
}
