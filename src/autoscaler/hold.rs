//! Keeps the old claim of a swap from going while no pod has it: whoever deletes it then would take the
//! only copy along. It carries our finalizer from before its pod is stopped until the new claim has all of
//! it, or the swap is given up. Whoever has the claim can write that, too, so its PersistentVolume says that a
//! swap holds the claim: only of such a claim the volume stays. Before the pod is stopped, that PersistentVolume is
//! retained too: whoever takes the finalizer off a claim that hangs in its deletion takes no data along.
//!
//! Kubernetes starts no pod with a claim that was deleted. So a copy that runs is waited for; else the swap
//! is given up, and the volume stays when the claim goes.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::api::{ListParams, Patch};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::api::{FillingPhase, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, SwapPhase};
use crate::autoscaler::exchange::owner;
use crate::autoscaler::keeper::Keeper;
use crate::autoscaler::seen::{is_ending, uid};
use crate::autoscaler::steps::Step;
use crate::autoscaler::turn::Turn;
use crate::autoscaler::{AutoscalerReason, SUPERSEDED_BY, WRITER};
use crate::causes;
use crate::cluster::{
    ClaimSummary, HELD_BY_SWAP as SWAP, OnceEvent, PodSummary, caught_in_time, list,
    report_unfinished, writes,
};
use crate::populators;

/// On the PersistentVolume of a claim that a swap holds: the uid of that claim. A tenant can write our
/// finalizer onto a claim, and not this.
pub(super) const HELD_FOR: &str = "pliant.io/swap-protection";

/// On the same: the reclaim policy that it gets again, if that is not the one by which it is retained meanwhile.
pub(super) const POLICY_BEFORE: &str = "pliant.io/swap-reclaim-policy";

/// By which policy no volume goes with its claim.
const RETAIN: &str = "Retain";

/// Whether a claim stays until a swap lets go of it.
pub(super) fn is_held(claim: &impl ResourceExt) -> bool {
    claim.finalizers().iter().any(|one| one == SWAP)
}

impl Turn<'_> {
    /// Whether the old claim stays, whoever deletes it. If not, that is seen to first.
    pub(super) fn holds(&mut self, from: &str) -> bool {
        let Some(claim) = self.seen.claim(from) else { return false };
        let is_held = is_held(claim) && !self.seen.unmarked.contains(from);
        if !is_held && !is_ending(&claim.metadata) {
            self.steps.push(Step::Hold { claim: from.to_owned() });
        }
        is_held
    }

    /// Why the old claim can be copied no more: somebody has deleted it, and no copy of it runs.
    pub(super) fn is_deleted(&self, from: &str, phase: FillingPhase) -> Option<String> {
        let claim = self.seen.claim(from);
        if claim.is_some_and(|claim| !is_ending(&claim.metadata)) {
            return None;
        }
        let goes_on = self.seen.pods_with(from).any(|pod| populators::fills(pod) && has_begun(pod));
        if goes_on || phase == FillingPhase::Binding {
            return None;
        }
        let volume = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref());
        let volume = volume.unwrap_or("NAME");
        Some(format!(
            "claim {from} was deleted while it was to be copied. Its volume {volume} stays: to have it back, \
             type `kubectl patch pv {volume} --type=merge -p '{{\"spec\":{{\"claimRef\":null}}}}'` when the \
             claim is gone, and make claim {from} again with spec.volumeName {volume}. An edit of the template \
             makes an empty one"
        ))
    }

    /// Let go of claims that are not about to be copied any more.
    pub(super) fn let_go(&mut self) {
        let phase = self.entry.swap.as_ref().map(|swap| swap.phase);
        let active = match phase {
            None | Some(SwapPhase::Failed | SwapPhase::Soaking) => Some(&self.entry.active_claim),
            Some(_) => None,
        };
        let all = active.into_iter().chain(self.entry.retained.iter().map(|old| &old.claim));
        let held = all.filter(|name| self.seen.claim(name).is_some_and(is_held));
        let steps = held.map(|name| {
            let keeps_volume = *name == self.entry.active_claim;
            Step::LetGo { claim: name.clone(), keeps_volume, superseded_by: None }
        });
        self.steps.extend(steps.collect::<Vec<_>>());
    }
}

/// Whether a pod has its claims, so that it comes to its end.
fn has_begun(pod: &PodSummary) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Running" | "Succeeded"))
}

/// The claims that a status tells of, so that they are let go when that is right.
pub(super) fn told_claims(status: Option<&PvcAutoscalerStatus>) -> impl Iterator<Item = &String> {
    let ordinals = status.into_iter().flat_map(|status| &status.ordinals);
    ordinals.flat_map(|one: &OrdinalStatus| {
        [&one.active_claim].into_iter().chain(one.retained.iter().map(|old| &old.claim))
    })
}

/// Whether a claim is one of them.
pub(super) fn is_told(status: Option<&PvcAutoscalerStatus>, claim: &str) -> bool {
    told_claims(status).any(|told| told == claim)
}

/// The policy that a PersistentVolume gets again when no swap holds its claim any more, if it has another one now.
pub(super) fn policy_before(pv: &PersistentVolume) -> Option<&String> {
    let holder = pv.annotations().get(HELD_FOR).map(String::as_str);
    pv.annotations().get(POLICY_BEFORE).filter(|_| holder.is_some() && holder == owner(pv))
}

/// Whether a PersistentVolume says that a swap holds its claim.
pub(super) fn is_marked_for(pv: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    pv.annotations().get(HELD_FOR) == claim.metadata.uid.as_ref()
}

impl Keeper {
    /// Keep a claim that is there from going, for as long as it is as it was seen; its volume says so then, and stays
    /// from then on.
    ///
    /// # Errors
    /// A conflict if the claim is no longer as it was seen: nothing is written on its volume then. What another replica
    /// has let go of meanwhile would have no one who gives its volume the policy of before.
    pub(super) async fn hold(&self, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        // One that its tenant wrote is written once more, which asks whether the claim has changed.
        let others = claim.finalizers().iter().map(String::as_str).filter(|one| *one != SWAP);
        let finalizers: Vec<&str> = others.chain([SWAP]).collect();
        self.write_metadata(claim, json!({ "finalizers": finalizers })).await?;
        if let Some(pv) = self.pv_of(claim).await?.filter(|pv| !is_marked_for(pv, claim)) {
            let spec = pv.spec.as_ref();
            let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_ref());
            let policy = policy.filter(|policy| *policy != RETAIN);
            let notes = json!({ HELD_FOR: claim.metadata.uid, POLICY_BEFORE: policy });
            let retains = policy.map(|_| RETAIN);
            self.mark(&pv, &json!({ "annotations": notes }), retains).await?;
        }
        Ok(())
    }

    /// Let a claim go, and keep its volume if a swap held the claim, that was deleted, and no status says that another
    /// one has taken its place. What the claim itself says of that its tenant can write. Any other volume has its own
    /// policy again. Where another claim has taken its place, the claim says so from now on.
    pub(super) async fn release(
        &self,
        claim: &PersistentVolumeClaim,
        keeps_volume: bool,
        superseded_by: Option<&str>,
    ) -> Result<(), kube::Error> {
        self.unmark(claim, keeps_volume).await?;
        if !is_held(claim) {
            return Ok(()); // Its tenant took it off.
        }
        let finalizers = claim.finalizers().iter().map(String::as_str).filter(|one| *one != SWAP);
        let mut metadata = json!({ "finalizers": finalizers.collect::<Vec<_>>() });
        if let Some(by) = superseded_by {
            metadata["annotations"] = json!({ SUPERSEDED_BY: by });
        }
        self.write_metadata(claim, metadata).await
    }

    /// Write on the PersistentVolume of a claim that no swap holds the claim any more.
    pub(super) async fn unmark(
        &self,
        claim: &PersistentVolumeClaim,
        keeps_volume: bool,
    ) -> Result<(), kube::Error> {
        if let Some(pv) = self.pv_of(claim).await?.filter(|pv| is_marked_for(pv, claim)) {
            let keeps = keeps_volume
                && is_ending(&claim.metadata)
                && !self.is_namespace_ending(&claim.namespace().unwrap_or_default()).await?;
            if keeps {
                self.report_retained(claim, &pv).await?;
            }
            let policy = if keeps { Some(RETAIN) } else { policy_before(&pv).map(String::as_str) };
            let notes = json!({"annotations": { HELD_FOR: null, POLICY_BEFORE: null }});
            self.mark(&pv, &notes, policy).await?;
        }
        Ok(())
    }

    /// Say on a claim that goes which volume stays of it: before that is written, so that nothing stays without a word.
    async fn report_retained(
        &self,
        claim: &PersistentVolumeClaim,
        pv: &PersistentVolume,
    ) -> Result<(), kube::Error> {
        let (name, volume) = (claim.name_any(), pv.name_any());
        let text = format!(
            "claim {name} was deleted while a swap held it, and PersistentVolume {volume} has the only copy of its \
             content: its policy is Retain from now on, and it is Released when the claim is gone. To use it again, \
             type `kubectl patch pv {volume} --type=merge -p '{{\"spec\":{{\"claimRef\":null}}}}'` then, and create \
             claim {name} with spec.volumeName {volume}; to delete it, type `kubectl patch pv {volume} --type=merge \
             -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Delete\"}}}}'`"
        );
        let reason = AutoscalerReason::VolumeRetained;
        tracing::warn!(claim = name, volume, "a volume stays of which no claim is left");
        let event = OnceEvent::of(claim, (reason, reason.is_warning()), &volume, &text);
        event.write(&self.client, WRITER).await.map(drop)
    }

    /// Whether a namespace goes with all that is in it: no one is left who would want a volume of it.
    pub(super) async fn is_namespace_ending(&self, name: &str) -> Result<bool, kube::Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let there = api.get_metadata_opt(name).await?;
        Ok(there.is_none_or(|there| is_ending(&there.metadata)))
    }

    /// The PersistentVolume of a claim, if that says so itself: whoever makes a claim writes into it which one
    /// it has.
    pub(super) async fn pv_of(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<Option<PersistentVolume>, kube::Error> {
        let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let Some(named) = named else { return Ok(None) };
        let pv = self.pvs().get_opt(named).await?;
        Ok(pv.filter(|pv| owner(pv) == Some(uid(&claim.metadata))))
    }

    /// Write metadata, and a policy, onto a PersistentVolume that is as it was seen.
    async fn mark(
        &self,
        pv: &PersistentVolume,
        metadata: &Value,
        policy: Option<&str>,
    ) -> Result<(), kube::Error> {
        let mut patch = json!({ "metadata": metadata });
        patch["metadata"]["uid"] = json!(pv.metadata.uid);
        patch["metadata"]["resourceVersion"] = json!(pv.metadata.resource_version);
        if let Some(policy) = policy {
            patch["spec"] = json!({ "persistentVolumeReclaimPolicy": policy });
        }
        writes::patch(&self.pvs(), &pv.name_any(), &Patch::Merge(patch), WRITER).await
    }

    /// Write metadata onto a claim that is as it was seen.
    async fn write_metadata(
        &self,
        claim: &PersistentVolumeClaim,
        mut metadata: Value,
    ) -> Result<(), kube::Error> {
        metadata["uid"] = json!(claim.metadata.uid);
        metadata["resourceVersion"] = json!(claim.metadata.resource_version);
        let patch = json!({ "metadata": metadata });
        let api = self.of::<PersistentVolumeClaim>(&claim.namespace().unwrap_or_default());
        writes::patch(&api, &claim.name_any(), &Patch::Merge(patch), WRITER).await
    }

    /// Let go of a claim of which no PvcAutoscaler tells: its own was deleted midway. Whether it may still be held.
    pub(super) async fn let_go_if_forgotten(&self, (namespace, name): (&str, &str)) -> bool {
        let Some(claim) = self.watches.claims().get_in(namespace, name) else { return false };
        let released = caught_in_time("held claims", self.release_if_forgotten_by_all(&claim));
        match Box::pin(released).await {
            Ok(Ok(is_any)) => is_any,
            Ok(Err(error)) => {
                let error = causes::in_full(&error);
                tracing::warn!(error, "it is not known whether a claim is still to be held");
                true
            }
            Err(why) => {
                report_unfinished(&self.client, WRITER, &*claim, &why).await;
                true
            }
        }
    }

    async fn release_if_forgotten_by_all(&self, claim: &ClaimSummary) -> Result<bool, kube::Error> {
        let (namespace, name) = claim.names.place();
        if self.autoscalers_in(namespace).iter().any(|one| one.tells_of(name)) {
            return Ok(false);
        }
        // What is watched may be older than what was done; the status that says so was written before it.
        let all = list(&self.of::<PvcAutoscaler>(namespace), &ListParams::default()).await?;
        if !all.unreadable.is_empty() {
            return Ok(true); // One of them may tell of it.
        }
        let is_its = |one: &PvcAutoscaler| is_told(one.status.as_ref(), name);
        let there = self.of::<PersistentVolumeClaim>(namespace).get_opt(name).await?;
        let Some(there) = there.filter(|there| is_held(there) && !all.items.iter().any(is_its))
        else {
            return Ok(false);
        };
        tracing::info!("no swap knows of a claim that is held");
        self.release(&there, true, None).await?;
        Ok(true)
    }
}
