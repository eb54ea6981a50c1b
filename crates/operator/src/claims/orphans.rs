//! Cleans up the claim with the copy and its populator after a PvcAutoscaler was deleted during a swap. A pod that
//! waits for the copy gets it; otherwise it is deleted.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ListParams, Patch};
use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::api::{FillingPhase, PvcAutoscaler, PvcSourcePopulator, ordinal_of};
use crate::claims::SUPERSEDED_BY;
use crate::claims::context::ClaimsController;
use crate::claims::detached::{is_filled, is_proved_complete, is_superseded, note_complete};
use crate::claims::finalizer::pv_of;
use crate::claims::objects::{has_ended, is_bound, is_copy, is_ending, is_fillable, uid, uses};
use crate::claims::pv_exchange::record;
use crate::cluster::writes::OPERATOR;
use crate::cluster::{
    ClaimSummary, KEPT_BY, NamespacedName, PodSummary, caught_in_time, list, pods, writes,
};
use crate::{error_chain, populators};

/// Notes of PersistentVolumes about the claim with the copy.
#[derive(Debug, Clone, Copy, Default)]
struct Proof {
    /// A populator has populated it.
    is_filled: bool,
    /// Its source was proved unused before.
    is_complete: bool,
    /// It has replaced the old one.
    has_superseded: bool,
}

/// Objects of a swap without a PvcAutoscaler, as observed.
#[derive(Debug, Default)]
struct Orphan {
    /// The claim with the copy.
    copy: Option<PersistentVolumeClaim>,
    /// Populator of the claim with the copy.
    source: Option<PvcSourcePopulator>,
    /// The claim whose content it gets.
    from: Option<PersistentVolumeClaim>,
    /// Proof of the progress.
    proof: Proof,
    /// The pods of the namespace.
    pods: Vec<PodSummary>,
    /// True if the workload creates the old claim, so that its pod never has another one.
    keeps_name: bool,
}

/// Next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Nothing is left to do.
    Nothing,
    /// Check it again later.
    Wait,
    /// The claim with the copy goes.
    DropCopy,
    /// Annotate the old claim with its replacement.
    Supersede,
    /// Delete the populator.
    DropSource,
}

impl Orphan {
    fn care(&self) -> Care {
        let without_claim = if self.source.is_some() { Care::DropSource } else { Care::Nothing };
        let Some(copy) = &self.copy else { return without_claim };
        if is_ending(&copy.metadata) {
            return Care::Wait;
        }
        if !is_bound(copy) {
            let is_wanted = self.proof.is_complete && self.is_named(copy);
            let goes_on = !self.keeps_name && is_wanted && self.is_being_copied(copy);
            if !is_fillable(copy) {
                return without_claim;
            }
            return if goes_on { Care::Wait } else { Care::DropCopy };
        }
        // Else it has the previous volume, or another client's: it is retained like any old claim.
        let Some(from) = self.from.as_ref().filter(|from| is_bound(from) && self.proof.is_filled)
        else {
            return without_claim;
        };
        // A user has started its copy too early. Whoever creates the PvcAutoscaler again learns that from its
        // source.
        if !self.keeps_name && !self.proof.is_complete {
            return Care::Nothing;
        }
        if self.population_phase(copy) != Some(FillingPhase::Succeeded) {
            return if self.source.is_some() { Care::Wait } else { Care::Nothing };
        }
        if self.keeps_name || self.is_named(from) {
            return if self.is_named(copy) { without_claim } else { Care::DropCopy };
        }
        let is_said = from.annotations().contains_key(SUPERSEDED_BY);
        if self.proof.has_superseded && is_said { without_claim } else { Care::Supersede }
    }

    fn population_phase(&self, copy: &PersistentVolumeClaim) -> Option<FillingPhase> {
        let status = self.source.as_ref()?.status.as_ref()?;
        Some(status.of(uid(&copy.metadata))?.phase)
    }

    /// Returns true if the copy has started, and may still succeed.
    fn is_being_copied(&self, copy: &PersistentVolumeClaim) -> bool {
        let is_open = self.source.as_ref().is_some_and(|source| !source.spec.paused);
        let is_there = self.from.as_ref().is_some_and(is_bound);
        is_open && is_there && self.population_phase(copy) != Some(FillingPhase::Failed)
    }

    /// Returns true if a pod of another owner uses a claim.
    fn is_named(&self, claim: &PersistentVolumeClaim) -> bool {
        let name = claim.name_any();
        let mut pods = self.pods.iter().filter(|pod| !populators::fills(pod) && !has_ended(pod));
        pods.any(|pod| uses(pod, &name))
    }
}

/// Returns the PvcAutoscalers of copies, and of their populators.
pub(super) fn with_copies(ctx: &ClaimsController) -> BTreeSet<NamespacedName> {
    let claims = ctx.watches.claims().all();
    let copies = claims.iter().filter(|claim| may_be_copy(claim));
    let copies = copies.filter_map(|one| {
        Some((one.names.namespace.to_string(), one.kept_by.as_deref()?.to_owned()))
    });
    let sources = ctx.sources.all();
    let sources =
        sources.iter().filter_map(|one| Some((one.namespace()?, keeper_of(&**one)?.to_owned())));
    copies.chain(sources).collect()
}

/// Returns those of these PvcAutoscalers, `namespace/name`, that do not exist, and have copies, or sources
/// of them.
pub(super) fn orphaned(
    ctx: &ClaimsController,
    keepers: &BTreeSet<NamespacedName>,
) -> BTreeSet<String> {
    let is_orphaned = |(namespace, keeper): &&NamespacedName| {
        let has_any = ctx.watches.has_copies_of(namespace, keeper)
            || ctx.sources.has_key(&format!("{namespace}/{keeper}"));
        has_any && ctx.autoscalers.get_in(namespace, keeper).is_none()
    };
    let found = keepers.iter().filter(is_orphaned);
    found.map(|(namespace, keeper)| format!("{namespace}/{keeper}")).collect()
}

/// Cleans up after swaps of a deleted PvcAutoscaler, `namespace/name`; returns true if something is left.
pub(super) async fn clean_up_orphans(ctx: &ClaimsController, of: &str) -> bool {
    let (namespace, keeper) = of.split_once('/').unwrap_or_default();
    if ctx.autoscalers.get_in(namespace, keeper).is_some() {
        return false;
    }
    let copies = ctx.watches.copies_of(namespace, keeper);
    let copies =
        copies.iter().filter(|claim| may_be_copy(claim)).map(|one| one.names.name.to_string());
    let sources = ctx.sources.with_key(of);
    let names: BTreeSet<String> = copies.chain(sources.iter().map(|one| one.name_any())).collect();
    let mut is_any = false;
    for name in names {
        let care = clean_up_orphan(ctx, namespace, keeper, &name);
        let cared = Box::pin(caught_in_time("orphans", care)).await;
        let cared = cared.unwrap_or_else(|why| Err(kube::Error::Service(why.to_string().into())));
        is_any |= cared.unwrap_or_else(|error| {
            let error = error_chain::in_full(&error);
            tracing::warn!(claim = name, namespace, error, "failed to clean up after a swap");
            true
        });
    }
    is_any
}

async fn clean_up_orphan(
    ctx: &ClaimsController,
    namespace: &str,
    keeper: &str,
    name: &str,
) -> Result<bool, kube::Error> {
    let claims = ctx.of::<PersistentVolumeClaim>(namespace);
    let sources = ctx.of::<PvcSourcePopulator>(namespace);
    // What is watched may be older than one that was made since.
    if ctx.of::<PvcAutoscaler>(namespace).get_opt(keeper).await?.is_some() {
        return Ok(false);
    }
    let copy = claims.get_opt(name).await?;
    if copy.as_ref().is_some_and(|copy| keeper_of(copy) != Some(keeper) || !is_copy(copy)) {
        return Ok(false);
    }
    let source = sources.get_opt(name).await?.filter(|source| keeper_of(source) == Some(keeper));
    let from = source.as_ref().map(|source| source.spec.source_pvc_ref.name.clone());
    let from = match from {
        Some(from) => claims.get_opt(&from).await?,
        None => None,
    };
    let keeps_name = match &from {
        Some(from) => is_made_by_workload(ctx, from).await?,
        None => false,
    };
    let mut proof = Proof::default();
    if let Some(copy) = &copy {
        proof.is_filled = is_filled(ctx, copy).await?;
        proof.is_complete = is_proved_complete(ctx, copy).await?;
    }
    if let Some(from) = &from {
        proof.has_superseded = is_superseded(ctx, from).await?;
    }
    let pods = pods(&ctx.client, namespace).await?;
    let orphan = Orphan { copy, source, from, proof, pods, keeps_name };
    let care = orphan.care();
    if !matches!(care, Care::Nothing | Care::Wait) {
        tracing::info!(claim = name, namespace, ?care, "cleaning up after a swap");
    }
    match (care, &orphan.copy, &orphan.source, &orphan.from) {
        (Care::Nothing, ..) => return Ok(false),
        (Care::DropCopy, Some(copy), ..) if !is_in_exchange(ctx, copy).await? => {
            writes::remove(&claims, &copy.metadata).await?;
        }
        (Care::DropSource, _, Some(source), _) => {
            writes::remove(&sources, &source.metadata).await?;
        }
        (Care::Supersede, Some(copy), _, Some(from)) => {
            note_complete(ctx, copy).await?;
            let patch = json!({"metadata": {
                "uid": from.metadata.uid, "resourceVersion": from.metadata.resource_version,
                "annotations": { SUPERSEDED_BY: name },
            }});
            writes::patch(&claims, &from.name_any(), &Patch::Merge(patch), OPERATOR).await?;
        }
        _ => {}
    }
    Ok(true)
}

async fn is_in_exchange(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    Ok(pv_of(ctx, claim).await?.is_some_and(|pv| record(&pv).is_some()))
}

/// Returns true if a StatefulSet creates a claim by its own template.
async fn is_made_by_workload(
    ctx: &ClaimsController,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
    let all = list(&ctx.of::<StatefulSet>(&namespace), &ListParams::default()).await?.whole()?;
    Ok(all.iter().any(|set| {
        let spec = set.spec.as_ref();
        let mut own =
            spec.into_iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
        own.any(|one| {
            ordinal_of(&name, &format!("{}-{}", one.name_any(), set.name_any())).is_some()
        })
    }))
}

/// Returns the PvcAutoscaler in the label of an object.
pub(super) fn keeper_of(object: &impl ResourceExt) -> Option<&str> {
    object.labels().get(KEPT_BY).map(String::as_str)
}

/// As [`is_copy`], of what is watched.
fn may_be_copy(claim: &ClaimSummary) -> bool {
    claim.source.as_ref().is_some_and(|source| {
        *source.group == *PvcSourcePopulator::group(&())
            && *source.kind == *PvcSourcePopulator::kind(&())
            && source.name == claim.names.name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn claim(name: &str, phase: &str, notes: &Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "annotations": notes}, "spec": {},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn source(paused: bool, told: FillingPhase) -> PvcSourcePopulator {
        serde_json::from_value(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcSourcePopulator",
            "metadata": {"name": "new"},
            "spec": {"sourcePvcRef": {"name": "old"}, "paused": paused},
            "status": {"claims": [{"name": "new", "uid": "new", "phase": told}]},
        }))
        .unwrap()
    }

    fn pod_with(claim: &str) -> PodSummary {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
        serde_json::from_value(json!({"metadata": {"name": "db-0"},
                                      "spec": {"containers": [], "volumes": [volume]}}))
        .unwrap()
    }

    #[test]
    fn a_pod_that_waits_for_the_copy_gets_it_and_else_that_goes() {
        use FillingPhase::{Failed, Populating, Succeeded, Waiting};
        let none = json!({});
        let of = |phase: &str, source: Option<PvcSourcePopulator>, pod: &str, keeps_name: bool| {
            let from = source.is_some().then(|| claim("old", "Bound", &none));
            let copy = Some(claim("new", phase, &none));
            let is_filled = phase == "Bound";
            let proof = Proof { is_filled, is_complete: true, has_superseded: false };
            Orphan { copy, source, from, proof, pods: vec![pod_with(pod)], keeps_name }.care()
        };
        for (phase, source, pod, keeps_name, care) in [
            ("Pending", Some(source(true, Waiting)), "new", false, Care::DropCopy),
            ("Pending", Some(source(false, Populating)), "new", false, Care::Wait),
            ("Pending", Some(source(false, Populating)), "old", false, Care::DropCopy),
            ("Pending", Some(source(false, Failed)), "new", false, Care::DropCopy),
            ("Pending", Some(source(false, Populating)), "old", true, Care::DropCopy),
            ("Pending", None, "new", false, Care::DropCopy),
            ("Bound", Some(source(false, Populating)), "new", false, Care::Wait),
            ("Bound", Some(source(false, Succeeded)), "new", false, Care::Supersede),
            ("Bound", Some(source(false, Succeeded)), "old", false, Care::DropCopy),
            ("Bound", Some(source(false, Succeeded)), "old", true, Care::DropCopy),
            ("Bound", None, "new", false, Care::Nothing),
            ("Lost", None, "new", false, Care::Nothing),
        ] {
            let word = format!("{phase} {source:?} {pod} {keeps_name}");
            assert_eq!(of(phase, source, pod, keeps_name), care, "{word}");
        }
        for (phase, is_filled, told, care) in [
            ("Pending", false, Populating, Care::DropCopy),
            ("Bound", true, Succeeded, Care::Nothing),
            ("Bound", false, Populating, Care::DropSource),
        ] {
            let (source, from) = (Some(source(false, told)), Some(claim("old", "Bound", &none)));
            let (copy, pods) = (Some(claim("new", phase, &none)), vec![pod_with("new")]);
            let proof = Proof { is_filled, ..Proof::default() };
            let early = Orphan { copy, source, from, proof, pods, ..Orphan::default() };
            assert_eq!(early.care(), care, "{phase}: nothing proves it complete");
        }
        let copy = Some(claim("new", "Bound", &none));
        let (source, from) = (Some(source(false, Succeeded)), Some(claim("old", "Bound", &none)));
        let exchanged = Orphan { copy, source, from, keeps_name: true, ..Orphan::default() };
        assert_eq!(exchanged.care(), Care::DropSource, "it has the volume from before");
        let alone = Orphan { copy: None, ..exchanged };
        assert_eq!((alone.care(), Orphan::default().care()), (Care::DropSource, Care::Nothing));
    }
}
