//! Outcome of a populator pod. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use serde::Deserialize;

use crate::populators::{PopulatorReason, prime};

/// Message for a pod that succeeded without a checksum.
const UNSAID: &str = "its pod succeeded but did not report what it wrote; check that the image of the chart is \
                      one of Pliant";

/// Termination message of a populator pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct TerminationMessage {
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    changing: u64,
    #[serde(default)]
    seconds: f64,
}

/// Outcome of an attempt to populate a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PopulationOutcome {
    /// The content is complete, as its checksum proves.
    Done {
        /// Digest of what was written.
        digest: Option<String>,
        /// Number of bytes that it wrote.
        bytes: u64,
    },
    /// A pass of a pre-copy is complete; its result is not verified.
    Ahead(PassReport),
    /// The probe succeeded; nothing was written.
    Probed,
    /// Another try would end the same way.
    Never(PopulatorReason, String),
    /// Another try may succeed.
    Failed(String),
}

/// Report of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassReport {
    /// Number of bytes that it wrote.
    pub bytes: u64,
    /// Number of files that changed while it read them.
    pub changing: u64,
    /// Duration in seconds.
    pub seconds: u64,
}

/// The longest digest that a status takes, in bytes.
const LONGEST_DIGEST: usize = 128;

impl PopulationOutcome {
    /// Returns how a pod has ended; `None` while it has not.
    pub fn of(pod: &Pod) -> Option<PopulationOutcome> {
        let status = pod.status.as_ref()?;
        let ended = terminated(pod).cloned().unwrap_or_default();
        let told = termination_message(&ended);
        match status.phase.as_deref() {
            Some("Succeeded") if prime::is_probe(pod) => Some(probed(told)),
            Some("Succeeded") if prime::is_ahead(pod) => Some(pre_copied(told)),
            Some("Succeeded") => Some(done(told)),
            Some("Failed") => Some(failed(pod, &ended, told)),
            // The end of a pod is reported when all of it is stopped, a second or two later; and its next
            // one has the same volume.
            Some("Running") if ended.exit_code == 0 && prime::fills_volume(pod) => {
                Some(done(told)).filter(|outcome| matches!(outcome, PopulationOutcome::Done { .. }))
            }
            _ => None,
        }
    }
}

fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let mut containers = pod.status.as_ref()?.container_statuses.as_ref()?.iter();
    // Others may have put theirs beside it.
    containers.find(|one| one.name == prime::CONTAINER)?.state.as_ref()?.terminated.as_ref()
}

fn termination_message(ended: &ContainerStateTerminated) -> Option<TerminationMessage> {
    // The last line: an older one may be of a run before, which the kubelet does not clear.
    let last = ended.message.as_deref()?.lines().rfind(|line| !line.trim().is_empty())?;
    serde_json::from_str(last).ok()
}

/// Converts the success of a pod: if it does not report what it wrote, its image may not be
/// Pliant's.
fn done(told: Option<TerminationMessage>) -> PopulationOutcome {
    match told {
        Some(TerminationMessage { outcome, digest: Some(digest), bytes, .. })
            if outcome == "done" && digest.len() <= LONGEST_DIGEST =>
        {
            PopulationOutcome::Done { digest: Some(digest), bytes }
        }
        _ => PopulationOutcome::Failed(UNSAID.to_owned()),
    }
}

/// Converts the success of a probe: its volume is not populated, whatever else it reports.
fn probed(told: Option<TerminationMessage>) -> PopulationOutcome {
    match told {
        Some(TerminationMessage { outcome, .. }) if outcome == "done" => PopulationOutcome::Probed,
        _ => PopulationOutcome::Failed(UNSAID.to_owned()),
    }
}

/// Converts the success of a pre-copy: its volume is not populated, whatever it reports.
fn pre_copied(told: Option<TerminationMessage>) -> PopulationOutcome {
    match told {
        Some(TerminationMessage { outcome, bytes, changing, seconds, .. }) if outcome == "done" => {
            let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
            PopulationOutcome::Ahead(PassReport { bytes, changing, seconds })
        }
        _ => PopulationOutcome::Failed(UNSAID.to_owned()),
    }
}

fn failed(
    pod: &Pod,
    ended: &ContainerStateTerminated,
    told: Option<TerminationMessage>,
) -> PopulationOutcome {
    let said = told.as_ref().map(|told| match told.message.as_str() {
        "" => told.reason.clone(),
        message => message.to_owned(),
    });
    let Some(said) = said.filter(|said| !said.is_empty()) else {
        return PopulationOutcome::Failed(unsaid(pod, ended));
    };
    let words = told.map(|told| [told.outcome, told.reason]).unwrap_or_default();
    let says = |word: &str| words.iter().any(|one| one == word);
    if says("refused") {
        return PopulationOutcome::Never(PopulatorReason::ContentRejected, said);
    }
    if says("mismatch") {
        return PopulationOutcome::Never(PopulatorReason::ChecksumMismatch, said);
    }
    PopulationOutcome::Failed(said)
}

/// Describes a pod that was killed or evicted, or died without a message.
fn unsaid(pod: &Pod, ended: &ContainerStateTerminated) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let why = [ended.reason.clone(), status.reason, ended.message.clone(), status.message];
    let why: Vec<String> = why.into_iter().flatten().filter(|why| !why.is_empty()).collect();
    let why = if why.is_empty() { "no reason given".to_owned() } else { why.join(": ") };
    format!("its pod ended with status {}: {why}", ended.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(phase: &str, ended: &Value) -> Pod {
        let state = json!({"terminated": ended});
        let container = json!({"name": "populator", "image": "", "imageID": "", "ready": false,
                               "restartCount": 0, "state": state});
        serde_json::from_value(json!({"metadata": {"name": "p"},
            "status": {"phase": phase, "containerStatuses": [container]}}))
        .unwrap()
    }

    #[test]
    fn a_round_that_was_copied_ahead_is_never_a_filled_volume() {
        let of = |phase: &str, message: &str| {
            let mut pod = pod(phase, &json!({"exitCode": 0, "message": message}));
            prime::mark_ahead(&mut pod);
            PopulationOutcome::of(&pod)
        };
        let said = r#"{"outcome":"done","bytes":7,"changing":2,"seconds":61.9}"#;
        let round = PassReport { bytes: 7, changing: 2, seconds: 61 };
        assert_eq!(of("Succeeded", said), Some(PopulationOutcome::Ahead(round)));
        let lies = r#"{"outcome":"done","digest":"d"}"#;
        assert_eq!(of("Succeeded", lies), Some(PopulationOutcome::Ahead(PassReport::default())));
        assert_eq!(of("Succeeded", ""), Some(PopulationOutcome::Failed(UNSAID.to_owned())));
        assert_eq!(of("Running", said), None);
    }

    #[test]
    fn the_end_of_a_pod_says_whether_another_try_helps() {
        let failed = |said: &str| PopulationOutcome::Failed(said.to_owned());
        let never = |reason, said: &str| PopulationOutcome::Never(reason, said.to_owned());
        let unsaid = "its pod ended with status 137: OOMKilled";
        let done = r#"{"outcome":"done","digest":"d","bytes":7}"#;
        let filled = PopulationOutcome::Done { digest: Some("d".to_owned()), bytes: 7 };
        for (phase, ended, expected) in [
            ("Running", json!({"exitCode": 0}), None),
            ("Running", json!({"exitCode": 5, "message": done}), None),
            ("Running", json!({"exitCode": 0, "message": done}), Some(filled.clone())),
            ("Succeeded", json!({"exitCode": 0, "message": done}), Some(filled.clone())),
            ("Succeeded", json!({"exitCode": 0}), Some(failed(UNSAID))),
            (
                "Succeeded",
                json!({"exitCode": 0, "message": r#"{"outcome":"done","bytes":7}"#}),
                Some(failed(UNSAID)),
            ),
            (
                "Failed",
                json!({"exitCode": 3, "message": r#"{"outcome":"failed","reason":"refused","message":"too small"}"#}),
                Some(never(PopulatorReason::ContentRejected, "too small")),
            ),
            (
                "Failed",
                json!({"exitCode": 4, "message": "x\n{\"outcome\":\"mismatch\",\"reason\":\"sum\"}\n"}),
                Some(never(PopulatorReason::ChecksumMismatch, "sum")),
            ),
            (
                "Failed",
                json!({"exitCode": 5, "message": r#"{"outcome":"failed","reason":"failed","message":"EIO"}"#}),
                Some(failed("EIO")),
            ),
            ("Failed", json!({"exitCode": 137, "reason": "OOMKilled"}), Some(failed(unsaid))),
        ] {
            assert_eq!(PopulationOutcome::of(&pod(phase, &ended)), expected, "{phase} {ended}");
        }
    }
}
