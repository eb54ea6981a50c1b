//! Explains claims that are being deleted, and PersistentVolumes without a claim. Pure.

use super::explanation::{ClaimState, Explanation, Remediation};
use super::gather::ClaimFacts;
use crate::api::{Operation, Phase, VolumeRequest};
use crate::volume::few;

/// A claim that is being deleted.
pub(super) fn being_deleted(facts: &ClaimFacts) -> Explanation {
    if !facts.pods.is_empty() {
        let names = few(facts.pods.iter().filter_map(|pod| pod.metadata.name.as_ref()));
        let why = format!("is being deleted, and waits until these pods are gone: {names}.");
        let todo = Remediation::hint("delete these pods, or the workload that creates them");
        return facts.explain(ClaimState::Deleting, why, vec![todo]);
    }
    let finalizers =
        facts.claim.iter().flat_map(|claim| claim.metadata.finalizers.iter().flatten());
    let why = format!("is being deleted, and waits for {}.", few(finalizers.into_iter()));
    facts.explain(ClaimState::Deleting, why, Vec::new())
}

/// A PersistentVolume without its claim.
pub(super) fn released(facts: &ClaimFacts) -> Explanation {
    let Some(volume) = &facts.volume else {
        return facts.explain(ClaimState::Lost, "does not exist.", Vec::new());
    };
    let Some(id) = facts.handle() else {
        let why = "belongs to another driver, which Pliant cannot explain.";
        return facts.explain(ClaimState::OtherDriver, why, Vec::new());
    };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let policy =
        volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    match (phase, policy) {
        (Some("Available"), _) => {
            let why = "is Available: no claim is bound to it yet.";
            facts.explain(ClaimState::Available, why, Vec::new())
        }
        (_, Some("Delete")) => going(facts, id),
        _ => kept(facts),
    }
}

fn kept(facts: &ClaimFacts) -> Explanation {
    let name = facts.volume_name();
    let spec = facts.volume.as_ref().and_then(|volume| volume.spec.as_ref());
    let reference = spec.and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
    let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
    let class = class.filter(|class| !class.is_empty());
    let class = class.map(|class| format!(" --storage-class {class}")).unwrap_or_default();
    let adopt = format!(
        "{} recover {} --namespace {} --claim {}{class}",
        facts.program,
        facts.handle().unwrap_or_default(),
        reference.namespace.unwrap_or_default(),
        reference.name.unwrap_or_default()
    );
    let why = "is retained with its data (reclaim policy Retain): its claim was deleted.";
    let delete = r#"'{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'"#;
    let todo = vec![
        Remediation::command(
            "use it again: delete the PersistentVolume, which leaves the volume, and recover it",
            format!("kubectl delete pv {name} && {adopt}"),
        ),
        Remediation::command(
            "delete it, with its data",
            format!("kubectl patch pv {name} --patch {delete}"),
        ),
    ];
    facts.explain(ClaimState::Retained, why, todo)
}

fn going(facts: &ClaimFacts, id: &str) -> Explanation {
    let is_it = |one: &&VolumeRequest| {
        one.spec.volume_handle == id && matches!(one.spec.operation, Operation::Delete(_))
    };
    let request = facts.requests.iter().find(is_it);
    let status = request.map(VolumeRequest::status_or_default).unwrap_or_default();
    let failure = status.error.filter(|_| status.phase == Phase::Failed);
    let words = failure.map(|failure| failure.message).or_else(|| {
        // An older event is less useful than the operation in progress.
        let told = request.is_none().then(|| facts.event_message("VolumeFailedDelete"));
        told.flatten()
    });
    if let Some(words) = words {
        let why = format!("cannot be deleted yet: {words}");
        return facts.explain(ClaimState::DeletionFailed, why, Vec::new());
    }
    let progress = status.progress.map(|progress| format!(": {progress}")).unwrap_or_default();
    let why = format!("is being deleted with its data{progress}.");
    facts.explain(ClaimState::Deleting, why, Vec::new())
}
