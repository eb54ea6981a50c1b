//! Volumes that a swap took from their pods, or that do not grow because they were shrunk, and of which
//! nobody knows any more: their PvcAutoscaler was deleted midway, and perhaps made again. They are given
//! back.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::{
    OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, Quantity, SwapPhase, VolumeOnNode,
};
use crate::autoscaler::SUPERSEDED_BY;
use crate::autoscaler::keeper::{AGAIN, Keeper, PAUSE, until};
use crate::autoscaler::seen::{uid, uses};
use crate::autoscaler::tell::lower;
use crate::causes;
use crate::cluster::{
    PodSummary, VolumeSeen, Wish, begun_again, capacity, caught_in_time, is_being_copied,
    is_restricted, pods,
};
use crate::populators;
use crate::volume::{Fence, Standing, Use};

/// What a PvcAutoscaler that is deleted midway may leave.
#[derive(Debug, Clone, Copy)]
enum What {
    /// Volumes that only a copy may read, or that do not grow.
    Volumes,
    /// Claims that are held.
    Claims,
    /// Exchanges that were begun.
    Exchanges,
    /// Pods behind our gate.
    Gates,
    /// Claims with copies, and what those are filled from.
    Copies,
}

/// A claim whose volume nobody knows of any more, as it is now.
struct Forgotten {
    namespace: String,
    claim: PersistentVolumeClaim,
    /// That of its PvcAutoscaler, if there is one again.
    status: Option<PvcAutoscalerStatus>,
    seen: VolumeSeen,
}

impl Keeper {
    /// Give back what was forgotten, for ever. Each kind of it is looked for apart from the others: whoever writes
    /// our finalizer onto ten thousand claims holds up no gate.
    pub(super) async fn give_back_forgotten(&self) {
        self.watches.known().await;
        tokio::join!(self.autoscalers.known(), self.cluster.known());
        tokio::join!(self.gated.known(), self.sources.known());
        tokio::join!(
            begun_again("volumes", || self.give_back(What::Volumes)),
            begun_again("held claims", || self.give_back(What::Claims)),
            begun_again("exchanges", || self.give_back(What::Exchanges)),
            begun_again("gated pods", || self.give_back(What::Gates)),
            begun_again("orphans", || self.give_back(What::Copies))
        );
    }

    async fn give_back(&self, what: What) {
        let mut changes = [
            self.cluster.nodes().watched().changes(),
            self.asks.changes(),
            self.autoscalers.changes(),
            self.watches.claims().changes(),
            self.gated.changes(),
            self.watches.pvs().changes(),
            self.sources.changes(),
        ];
        loop {
            changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let is_any = match what {
                What::Volumes => Box::pin(self.look_for_forgotten()).await,
                What::Claims => Box::pin(self.let_go_of_forgotten()).await,
                What::Exchanges => Box::pin(self.end_forgotten_exchanges()).await,
                What::Gates => self.open_gates().await,
                What::Copies => Box::pin(self.clean_up_orphans()).await,
            };
            tokio::time::sleep(PAUSE).await;
            let [nodes, answers, autoscalers, claims, gated, volumes, sources] = &mut changes;
            tokio::select! {
                _ = nodes.changed() => {}
                _ = autoscalers.changed() => {}
                _ = answers.changed() => {}
                _ = claims.changed() => {}
                _ = gated.changed() => {}
                _ = volumes.changed() => {}
                _ = sources.changed() => {}
                () = until(is_any.then(|| Instant::now() + AGAIN)) => {}
            }
        }
    }

    /// Ask the nodes of those that there are now; whether there are any.
    async fn look_for_forgotten(&self) -> bool {
        let mut is_any = false;
        for node in self.cluster.nodes().with_restricted() {
            let volumes = node.status.iter().flat_map(|status| &status.volumes);
            for volume in volumes.filter(|volume| is_restricted(volume)) {
                let given = caught_in_time("volumes", self.give_back_volume(volume));
                is_any |= match Box::pin(given).await {
                    Ok(Ok(is_any)) => is_any,
                    Ok(Err(error)) => {
                        let error = causes::in_full(&error);
                        tracing::warn!(
                            volume = volume.id,
                            error,
                            "it is not known whose a volume is"
                        );
                        true
                    }
                    Err(why) => {
                        tracing::error!(volume = volume.id, %why, "a volume is not given back");
                        true
                    }
                };
            }
        }
        is_any
    }

    async fn give_back_volume(&self, volume: &VolumeOnNode) -> Result<bool, kube::Error> {
        match volume.limit {
            _ if is_being_copied(volume) => self.give_back_if_forgotten(volume).await,
            Some(limit) => self.release_if_forgotten(volume, limit).await,
            None => Ok(false),
        }
    }

    async fn give_back_if_forgotten(&self, volume: &VolumeOnNode) -> Result<bool, kube::Error> {
        let Some(forgotten) = self.unless_known(volume, names).await? else { return Ok(false) };
        let Forgotten { namespace, claim, status, seen } = forgotten;
        let pods = pods(&self.client, &namespace).await?;
        let fence = fence_without_swap(&seen, &claim, status.as_ref(), &pods);
        let Some(fence) = fence else { return Ok(false) };
        let wish = Wish::Fence(fence);
        if seen.is_to_be_asked(&wish) {
            let name = claim.name_any();
            tracing::info!(claim = name, namespace, %fence, "no swap knows of the volume of a claim");
            self.asks.ask(uid(&claim.metadata), seen.id, wish);
        }
        Ok(true)
    }

    /// Let a volume grow again that was shrunk for nobody. Its claim is told first what it has, so that it
    /// gets back what it asks for.
    async fn release_if_forgotten(
        &self,
        volume: &VolumeOnNode,
        limit: Quantity,
    ) -> Result<bool, kube::Error> {
        let Some(forgotten) = self.unless_known(volume, shrinks).await? else { return Ok(false) };
        let Forgotten { namespace, claim, seen, .. } = forgotten;
        if seen.is_to_be_asked(&Wish::Release) {
            let name = claim.name_any();
            tracing::info!(claim = name, namespace, %limit, "nobody knows of the shrink of a volume");
            let has = match capacity(&claim) {
                Ok(has) => has,
                Err(error) => {
                    tracing::warn!(claim = name, namespace, %error, "a forgotten shrink is not ended");
                    return Ok(true);
                }
            };
            if volume.size <= limit && has > limit {
                lower(&self.client, &claim, limit).await?;
            }
            self.asks.ask(uid(&claim.metadata), seen.id, Wish::Release);
        }
        Ok(true)
    }

    /// The claim of a volume, unless its PvcAutoscaler knows what was done to that.
    async fn unless_known(
        &self,
        volume: &VolumeOnNode,
        is_its: fn(Option<&PvcAutoscalerStatus>, &str) -> bool,
    ) -> Result<Option<Forgotten>, kube::Error> {
        let Some((namespace, claim, keeper)) = self.claim_of(&volume.id) else {
            return Ok(None);
        };
        let known = self.autoscalers.get_in(&namespace, &keeper);
        if known.is_some_and(|known| is_its(known.status.as_ref(), &claim)) {
            return Ok(None);
        }
        // What is watched may be older than what was done; the status that says so was written before it.
        let keeper = self.of::<PvcAutoscaler>(&namespace).get_opt(&keeper).await?;
        let status = keeper.and_then(|keeper| keeper.status);
        let there = self.of::<PersistentVolumeClaim>(&namespace).get_opt(&claim).await?;
        let (Some(there), Ok(id)) = (there, volume.id.parse()) else { return Ok(None) };
        if is_its(status.as_ref(), &claim) {
            return Ok(None);
        }
        // After the status: whoever exchanges it looks for that after it has written so on the volume.
        if !self.holds(&there, &volume.id).await? {
            return Ok(None);
        }
        let seen = self.asks.see(uid(&there.metadata), id);
        Ok(Some(Forgotten { namespace, claim: there, status, seen }))
    }

    /// Namespace and name of the claim of a volume, and the PvcAutoscaler that keeps it. Its PersistentVolume
    /// says whose it is: what a claim tells of itself its tenant can write.
    fn claim_of(&self, volume: &str) -> Option<(String, String, String)> {
        let pv = self.watches.pv_of_volume(volume)?;
        let its = pv.spec.claim_ref.as_ref()?;
        let claim = self.watches.claims().get_in(&its.namespace, &its.name)?;
        if its.uid != claim.metadata.uid {
            return None;
        }
        let keeper = claim.kept_by.as_deref()?.to_owned();
        Some((claim.namespace()?, claim.name_any(), keeper))
    }
}

/// What the volume of a claim is to be told that a swap took from its pod, if no swap of its PvcAutoscaler
/// knows of it: it is the pod's again, after the copy has let it go; if another claim has taken its place
/// already, it is nobody's.
pub(super) fn fence_without_swap(
    volume: &VolumeSeen,
    claim: &PersistentVolumeClaim,
    status: Option<&PvcAutoscalerStatus>,
    pods: &[PodSummary],
) -> Option<Fence> {
    let now = volume.fence.filter(|now| now.lets() == Use::Read)?;
    if names(status, &claim.name_any()) {
        return None;
    }
    let generation = now.generation + 1;
    if claim.annotations().contains_key(SUPERSEDED_BY) {
        return Some(Fence { generation, standing: Standing::Superseded, copying: false });
    }
    // A pod that has it has it from before: what was asked for a swap may be done long after.
    let has_pod = !populators::writers(pods, &claim.name_any()).is_empty();
    let is_copied = pods.iter().any(|pod| populators::fills(pod) && uses(pod, &claim.name_any()));
    let is_fresh = volume.asked.as_ref().is_some_and(|asked| !asked.is_old);
    let is_unused = is_fresh && volume.look_after(&now).is_some_and(|look| look.open_count == 0);
    let is_free = !is_copied && (is_unused || has_pod);
    Some(if is_free { Fence { generation, ..Fence::default() } } else { now })
}

/// Whether a claim is known to shrink.
fn shrinks(status: Option<&PvcAutoscalerStatus>, claim: &str) -> bool {
    let is_its = |one: &OrdinalStatus| {
        one.active_claim == claim && one.is_shrinking() || is_exchanged(one, claim)
    };
    status.is_some_and(|status| status.ordinals.iter().any(is_its))
}

/// Whether a swap exchanges the volume of a claim.
fn is_exchanged(one: &OrdinalStatus, claim: &str) -> bool {
    let swap = one.swap.as_ref().filter(|swap| swap.keeps_name && swap.phase != SwapPhase::Failed);
    swap.is_some_and(|swap| [&one.active_claim, &swap.claim].iter().any(|name| *name == claim))
}

/// Whether a swap knows that it took the volume of a claim.
fn names(status: Option<&PvcAutoscalerStatus>, claim: &str) -> bool {
    let is_its = |one: &OrdinalStatus| {
        let has_taken = one.swap.as_ref().is_some_and(|swap| swap.fence.is_some());
        has_taken && (one.active_claim == claim || is_exchanged(one, claim))
            || one.retained.iter().any(|old| old.claim == claim && old.fence.is_some())
    };
    status.is_some_and(|status| status.ordinals.iter().any(is_its))
}
