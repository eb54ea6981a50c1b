//! Which of what has the names of the second claim and of the fill pod is ours. In the namespace of a claim its
//! tenant can make objects of any name, so each is known by its uid, which the status has since it was made. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::api::{Filling, FillingPhase};
use crate::cluster::{Binding, requested};
use crate::populators::apply::pod_now;
use crate::populators::fit::Fit;
use crate::populators::seen::{Seen, is_ending, uid};
use crate::populators::steps::Step;
use crate::populators::{LABEL, Outcome, PopulatorReason, Settings, make};

/// How long a pod may be there before its uid is in the status: another replica may have made it just now.
const UNRECORDED: SignedDuration = SignedDuration::from_secs(10);

/// What has the name of a second claim.
#[derive(Debug, Clone, Default)]
pub(super) enum Prime {
    /// Nothing.
    #[default]
    None,
    /// What we made.
    Ours(PersistentVolumeClaim),
    /// What is as we make it, and may have been made just before a replica died: nothing is lost if it is used.
    Unrecorded(PersistentVolumeClaim),
    /// What another client made.
    Strange(PersistentVolumeClaim),
}

impl Prime {
    /// Tell whose a claim of this name is. `pv` is the volume that it names, `has_pod` whether a volume is being
    /// filled: only the one that it was made for is.
    pub fn of(
        claim: &PersistentVolumeClaim,
        told: Option<&Filling>,
        found: Option<PersistentVolumeClaim>,
        pv: Option<&PersistentVolume>,
        has_pod: bool,
    ) -> Prime {
        let Some(found) = found else { return Prime::None };
        let recorded = told.and_then(|told| told.second_claim.as_deref());
        if recorded == Some(uid(&found.metadata)) {
            return Prime::Ours(found);
        }
        let is_labelled =
            found.labels().get(LABEL).map(String::as_str) == Some(uid(&claim.metadata));
        let named = found.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
        // Of one that has a volume the policy would be lost: it is to go with the second claim.
        let policy =
            pv.and_then(|pv| pv.spec.as_ref()?.persistent_volume_reclaim_policy.as_deref());
        let is_free = named.is_none() || policy == Some("Delete");
        if is_labelled && is_free && !has_pod && is_as_asked(claim, &found) {
            return Prime::Unrecorded(found);
        }
        Prime::Strange(found)
    }
}

/// Whether a second claim asks for what the claim asks for, and for no more: its volume becomes the claim's, and a
/// quota counts only what that asks for.
fn is_as_asked(claim: &PersistentVolumeClaim, prime: &PersistentVolumeClaim) -> bool {
    let class = |claim: &PersistentVolumeClaim| claim.spec.as_ref()?.storage_class_name.clone();
    let sizes = requested(claim).ok().zip(requested(prime).ok());
    sizes.is_some_and(|(asked, has)| asked == has)
        && class(claim) == class(prime)
        && make::is_block(claim) == make::is_block(prime)
}

impl Seen {
    /// Why the second claim must not become the claim's, if it is not as that asks for: its tenant can edit it.
    pub fn is_changed(&self) -> Option<String> {
        let prime = self.prime.as_ref().filter(|prime| !is_as_asked(&self.claim, prime))?;
        let (asked, has) = match (requested(&self.claim), requested(prime)) {
            (Ok(asked), Ok(has)) => (asked, has),
            (Err(why), _) | (_, Err(why)) => return Some(why.to_string()),
        };
        Some(format!(
            "claim {} was changed meanwhile: it asks for {has}, and claim {} for {asked}",
            prime.name_any(),
            self.claim.name_any(),
        ))
    }

    /// What is done about a claim of another client that has the name of the second one. One without a volume has
    /// nothing to lose.
    pub fn meet_stranger(&self, stranger: &PersistentVolumeClaim) -> Vec<Step> {
        if is_ending(&stranger.metadata) {
            return Vec::new(); // Until it is gone.
        }
        let (name, namespace) = (stranger.name_any(), stranger.namespace().unwrap_or_default());
        let is_empty = Binding::of(stranger) == Binding::Pending
            && stranger.spec.as_ref().is_none_or(|spec| spec.volume_name.is_none());
        if is_empty {
            let text = format!(
                "claim {name} in namespace {namespace} is not the one that the operator made, and has no \
                 volume: it is deleted"
            );
            return vec![Step::Tell(PopulatorReason::NameConflict, text), Step::DropStranger];
        }
        let message = format!(
            "claim {name} in namespace {namespace}, through which this one would get its volume, is not the one \
             that the operator made, and has a volume: save what is in it, then type `kubectl delete pvc {name} \
             --namespace {namespace}`"
        );
        self.wait(PopulatorReason::NameConflict, &message)
    }

    /// What is done about a pod that has the name of the fill pod, and whose uid is not in the status. One that is
    /// as we make it may have been made just before a replica died, so it is ours from now on; what another one says
    /// is never believed.
    pub fn meet_strange_pod(&self, pod: &Pod) -> Vec<Step> {
        if is_ending(&pod.metadata) {
            return Vec::new(); // Until it is gone.
        }
        if self.made_pod(pod).is_some_and(|wanted| runs_as(pod, &wanted)) {
            let tries = make::is_probe(pod);
            let phase = if tries { FillingPhase::Provisioning } else { FillingPhase::Filling };
            let mut filling = self.filling(phase);
            (filling.pod, filling.next_retry_time) = (Some(uid(&pod.metadata).to_owned()), None);
            return self.say(filling);
        }
        if Outcome::of(pod).is_none() && is_young(pod, self.now) {
            return Vec::new();
        }
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        tracing::warn!(pod = name, namespace, "deleting a fill pod that no status tells of");
        let text = format!(
            "pod {name} in namespace {namespace} is not the one that the operator made: it is deleted"
        );
        // One of ours, made just before a replica died, is nothing that people have to know of.
        let tell =
            (!self.is_labelled(pod)).then_some(Step::Tell(PopulatorReason::NameConflict, text));
        tell.into_iter().chain([Step::DropStrangePod]).collect()
    }

    /// The pod that would be made now in the place of this one.
    fn made_pod(&self, pod: &Pod) -> Option<Pod> {
        let namespace = pod.namespace().unwrap_or_default();
        let settings = Settings { image: self.image.clone(), ..Settings::default() };
        let fit = Fit::default(); // What it asks of a node is not compared.
        let frame = make::Frame { settings: &settings, namespace: &namespace, fit: &fit };
        pod_now(self, frame)
    }

    /// Whether a pod says that it fills this claim.
    fn is_labelled(&self, pod: &Pod) -> bool {
        pod.labels().get(LABEL).map(String::as_str) == Some(self.uid())
    }

    /// A pod of which the status does not tell, and that goes with what else was made for the claim.
    pub fn unrecorded_pod(&self) -> Option<&Pod> {
        self.strange_pod.as_ref().filter(|pod| self.is_labelled(pod))
    }
}

/// Whether a pod does what this one would do, with the same volumes, and nothing else.
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
    let marks = |pod: &Pod| (make::generation_of(pod), make::is_ahead(pod), make::is_probe(pod));
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
        let container = json!({"name": "fill", "image": "image", "args": ["copy"]});
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
            let told = Filling { second_claim: recorded.map(str::to_owned), ..Filling::default() };
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
