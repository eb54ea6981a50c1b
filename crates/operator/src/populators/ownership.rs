//! Ownership of objects with the names of the prime claim and the populator pod. In the namespace of a claim
//! its tenant can create objects of any name, so each is identified by its uid, which is in the status since its
//! creation. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::api::{Filling, FillingPhase};
use crate::cluster::{Binding, requested};
use crate::populators::apply::pod_now;
use crate::populators::fit::Fit;
use crate::populators::observed::{ObservedPopulation, is_ending, uid};
use crate::populators::status::{filling, say, wait};
use crate::populators::steps::PopulationStep;
use crate::populators::{LABEL, PopulationOutcome, PopulationSettings, PopulatorReason, prime};

/// Time that a pod may exist before its uid is in the status: another replica may have created it just
/// now.
const UNRECORDED: SignedDuration = SignedDuration::from_secs(10);

/// Object with the name of a prime claim.
#[derive(Debug, Clone, Default)]
pub(super) enum Prime {
    /// No object.
    #[default]
    None,
    /// Created by Pliant.
    Ours(PersistentVolumeClaim),
    /// Identical to what Pliant creates, and perhaps created just before a replica died: it can safely be used.
    Unrecorded(PersistentVolumeClaim),
    /// Created by another client.
    Strange(PersistentVolumeClaim),
}

impl Prime {
    /// Determines the owner of a claim with this name. `pv` is the volume that it names, `has_pod` is true while
    /// a volume is being populated: only the prime claim of that is Pliant's.
    pub fn of(
        claim: &PersistentVolumeClaim,
        told: Option<&Filling>,
        found: Option<PersistentVolumeClaim>,
        pv: Option<&PersistentVolume>,
        has_pod: bool,
    ) -> Prime {
        let Some(found) = found else { return Prime::None };
        let recorded = told.and_then(|told| told.prime_claim_uid.as_deref());
        if recorded == Some(uid(&found.metadata)) {
            return Prime::Ours(found);
        }
        let is_labelled =
            found.labels().get(LABEL).map(String::as_str) == Some(uid(&claim.metadata));
        let named = found.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
        // Of one that has a volume the policy would be lost: it is to go with the prime claim.
        let policy =
            pv.and_then(|pv| pv.spec.as_ref()?.persistent_volume_reclaim_policy.as_deref());
        let is_free = named.is_none() || policy == Some("Delete");
        if is_labelled && is_free && !has_pod && is_as_asked(claim, &found) {
            return Prime::Unrecorded(found);
        }
        Prime::Strange(found)
    }
}

/// Returns true if a prime claim requests what the claim requests, and no more: its volume becomes the
/// claim's, and a quota counts only the claim's request.
fn is_as_asked(claim: &PersistentVolumeClaim, prime: &PersistentVolumeClaim) -> bool {
    let class = |claim: &PersistentVolumeClaim| claim.spec.as_ref()?.storage_class_name.clone();
    let sizes = requested(claim).ok().zip(requested(prime).ok());
    sizes.is_some_and(|(asked, has)| asked == has)
        && class(claim) == class(prime)
        && prime::is_block(claim) == prime::is_block(prime)
}

/// Returns why the prime claim must not be rebound, if its request differs: its tenant can edit it.
pub fn is_changed(seen: &ObservedPopulation) -> Option<String> {
    let prime = seen.prime.as_ref().filter(|prime| !is_as_asked(&seen.claim, prime))?;
    let (asked, has) = match (requested(&seen.claim), requested(prime)) {
        (Ok(asked), Ok(has)) => (asked, has),
        (Err(why), _) | (_, Err(why)) => return Some(why.to_string()),
    };
    Some(format!(
        "claim {} was changed meanwhile: it requests {has}, but claim {} requests {asked}",
        prime.name_any(),
        seen.claim.name_any(),
    ))
}

/// Handles another client's claim with the name of the temporary one. One without a volume has no data to
/// lose.
pub fn meet_stranger(
    seen: &ObservedPopulation,
    stranger: &PersistentVolumeClaim,
) -> Vec<PopulationStep> {
    if is_ending(&stranger.metadata) {
        return Vec::new(); // Until it is gone.
    }
    let (name, namespace) = (stranger.name_any(), stranger.namespace().unwrap_or_default());
    let is_empty = Binding::of(stranger) == Binding::Pending
        && stranger.spec.as_ref().is_none_or(|spec| spec.volume_name.is_none());
    if is_empty {
        let text = format!(
            "claim {name} in namespace {namespace} was not created by the operator, and has no volume: it \
                 is deleted"
        );
        return vec![
            PopulationStep::Tell(PopulatorReason::NameConflict, text),
            PopulationStep::DropStranger,
        ];
    }
    let message = format!(
        "claim {name} in namespace {namespace}, through which this one would get its volume, was not \
             created by the operator, and has a volume: save its content, then run `kubectl delete pvc {name} \
             --namespace {namespace}`"
    );
    wait(seen, PopulatorReason::NameConflict, &message)
}

/// Handles a pod with the name of the populator pod whose uid is not in the status. If it is identical to
/// Pliant's, it may have been created just before a replica died, and is adopted; another one is never trusted.
pub fn meet_strange_pod(seen: &ObservedPopulation, pod: &Pod) -> Vec<PopulationStep> {
    if is_ending(&pod.metadata) {
        return Vec::new(); // Until it is gone.
    }
    if made_pod(seen, pod).is_some_and(|wanted| runs_as(pod, &wanted)) {
        let tries = prime::is_probe(pod);
        let phase = if tries { FillingPhase::Provisioning } else { FillingPhase::Populating };
        let mut filling = filling(seen, phase);
        (filling.pod_uid, filling.next_retry_time) = (Some(uid(&pod.metadata).to_owned()), None);
        return say(seen, filling);
    }
    if PopulationOutcome::of(pod).is_none() && is_young(pod, seen.now) {
        return Vec::new();
    }
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    tracing::warn!(pod = name, namespace, "deleting an unknown populator pod");
    let text = format!(
        "pod {name} in namespace {namespace} was not created by the operator: it is deleted"
    );
    // One of ours, made just before a replica died, is nothing that people have to know of.
    let tell = (!is_labelled(seen, pod))
        .then_some(PopulationStep::Tell(PopulatorReason::NameConflict, text));
    tell.into_iter().chain([PopulationStep::DropStrangePod]).collect()
}

/// The pod that would be made now in the place of this one.
fn made_pod(seen: &ObservedPopulation, pod: &Pod) -> Option<Pod> {
    let namespace = pod.namespace().unwrap_or_default();
    let settings =
        PopulationSettings { image: seen.image.clone(), ..PopulationSettings::default() };
    let fit = Fit::default(); // What it asks of a node is not compared.
    let frame = prime::PodFrame { settings: &settings, namespace: &namespace, fit: &fit };
    pod_now(seen, frame)
}

/// Returns true if the label of a pod names this claim.
fn is_labelled(seen: &ObservedPopulation, pod: &Pod) -> bool {
    pod.labels().get(LABEL).map(String::as_str) == Some(seen.uid())
}

/// Returns a pod that is missing in the status, to be deleted with the other objects of the
/// claim.
pub fn unrecorded_pod(seen: &ObservedPopulation) -> Option<&Pod> {
    seen.strange_pod.as_ref().filter(|pod| is_labelled(seen, pod))
}

/// Returns true if a pod runs what this one would run, with the same volumes, and nothing else.
fn runs_as(pod: &Pod, wanted: &Pod) -> bool {
    let of = |pod: &Pod| {
        let spec = pod.spec.clone().unwrap_or_default();
        let [container] = <[_; 1]>::try_from(spec.containers).ok()?;
        let is_alone = spec.init_containers.unwrap_or_default().is_empty()
            && spec.ephemeral_containers.unwrap_or_default().is_empty()
            && container.command.unwrap_or_default().is_empty()
            && container.env_from.unwrap_or_default().is_empty();
        let mounts = container.volume_mounts.unwrap_or_default().into_iter();
        let mounts: Vec<_> = mounts
            .map(|one| (one.name, one.mount_path, one.sub_path, one.read_only.unwrap_or_default()))
            .collect();
        let volumes = spec.volumes.unwrap_or_default().into_iter();
        let volumes: Vec<_> = volumes
            .map(|one| (one.name, one.persistent_volume_claim.map(|of| of.claim_name)))
            .collect();
        let devices = container.volume_devices.unwrap_or_default();
        let env = container.env.unwrap_or_default();
        let does = (container.image, container.args.unwrap_or_default());
        is_alone.then_some((does, env, mounts, devices, volumes))
    };
    let marks = |pod: &Pod| (prime::generation_of(pod), prime::is_ahead(pod), prime::is_probe(pod));
    of(pod).is_some() && of(pod) == of(wanted) && marks(pod) == marks(wanted)
}

fn is_young(pod: &Pod, now: Timestamp) -> bool {
    let made = pod.metadata.creation_timestamp.as_ref();
    made.is_some_and(|made| now.duration_since(made.0) < UNRECORDED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(name: &str, more: &Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {LABEL: "web"}},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
        });
        json_patch::merge(&mut claim, more);
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn a_pod_is_ours_only_if_it_does_what_ours_would_do_and_nothing_else() {
        let container = json!({"name": "populator", "image": "image", "args": ["copy"]});
        let pod = |change: &Value| -> Pod {
            let mut pod = json!({
                "metadata": {"name": "prime-u", "annotations": {"pliant.io/generation": "1"}},
                "spec": {"containers": [container], "volumes": [
                    {"name": "target", "persistentVolumeClaim": {"claimName": "prime-u"}}]},
            });
            json_patch::merge(&mut pod, change);
            serde_json::from_value(pod).unwrap()
        };
        let ours = pod(&json!({}));
        let with = |more: Value| {
            let mut changed = container.clone();
            json_patch::merge(&mut changed, &more);
            json!({"spec": {"containers": [changed]}})
        };
        assert!(runs_as(&pod(&json!({"spec": {"nodeName": "alpha", "priority": 0}})), &ours));
        for change in [
            with(json!({"image": "other"})),
            with(json!({"args": ["copy", "--dry-run"]})),
            with(json!({"command": ["sh"]})),
            with(json!({"env": [{"name": "LD_PRELOAD", "value": "x"}]})),
            with(json!({"volumeMounts": [{"name": "x", "mountPath": "/target"}]})),
            json!({"spec": {"containers": [container, container]}}),
            json!({"spec": {"initContainers": [container]}}),
            json!({"spec": {"volumes": []}}),
            json!({"metadata": {"annotations": {"pliant.io/generation": "2"}}}),
        ] {
            assert!(!runs_as(&pod(&change), &ours), "{change}");
        }
    }

    #[test]
    fn a_second_claim_is_known_by_its_uid_and_else_by_what_it_asks_for() {
        let web = claim("web", &json!({}));
        let pv = |policy: &str| -> PersistentVolume {
            let spec = json!({"persistentVolumeReclaimPolicy": policy});
            serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
        };
        let of = |more: &Value, recorded: Option<&str>, policy: Option<&str>, has_pod: bool| {
            let told =
                Filling { prime_claim_uid: recorded.map(str::to_owned), ..Filling::default() };
            let pv = policy.map(pv);
            match Prime::of(&web, Some(&told), Some(claim("p", more)), pv.as_ref(), has_pod) {
                Prime::None => "none",
                Prime::Ours(_) => "ours",
                Prime::Unrecorded(_) => "unrecorded",
                Prime::Strange(_) => "strange",
            }
        };
        let bound = json!({"spec": {"volumeName": "pv"}});
        let large = json!({"spec": {"resources": {"requests": {"storage": "100Gi"}}}});
        let other = json!({"spec": {"storageClassName": "slow"}});
        let raw = json!({"spec": {"volumeMode": "Block"}});
        let unlabelled = json!({"metadata": {"labels": null}});
        let none = json!({});
        assert_eq!(of(&large, Some("p"), None, true), "ours", "who has the uid is looked at later");
        for (more, policy, has_pod, whose) in [
            (&none, None, false, "unrecorded"),
            (&bound, Some("Delete"), false, "unrecorded"),
            (&bound, Some("Retain"), false, "strange"),
            (&bound, None, false, "strange"),
            (&none, None, true, "strange"),
            (&large, None, false, "strange"),
            (&other, None, false, "strange"),
            (&raw, None, false, "strange"),
            (&unlabelled, None, false, "strange"),
        ] {
            for recorded in [None, Some("q")] {
                assert_eq!(of(more, recorded, policy, has_pod), whose, "{more} {policy:?}");
            }
        }
    }
}
