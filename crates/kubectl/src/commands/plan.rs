//! Plans of PvcAutoscalers: what they do with claims, and do next.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use crate::api::{
    AutoscalerMode, AutoscalerPhase, ClaimNamePolicy, NodeStorage, OrdinalStatus, PvcAutoscaler,
    Quantity, Retained, Span, Swap, VolumeOnNode, Workload,
};
use crate::autoscaler::wanted;
use crate::claims::{
    Drift, Shrinking, can_be_aborted, is_aborted, is_rolled_back, is_wanted_aborted, is_wanted_back,
};
use crate::cluster::{ClaimSizes, PvSummary, Unreadable, class_of, volume_name};
use crate::commands::address::{AddressKind, Whose, address, not_found};
use crate::commands::managed::ManagedClaim;
use crate::commands::read::ListReader;
use crate::commands::{AskError, CLAIMS, CLASSES, PVC_AUTOSCALERS, in_namespace, may_not_list};
use crate::volume::{FsKind, Shrinks};

mod print;
#[cfg(test)]
pub(super) mod tests;

pub(super) use print::table;
pub use print::{claims_of, print, resource_names};

/// State of a PvcAutoscaler, and its next actions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Namespace of the PvcAutoscaler.
    pub namespace: String,
    /// Name of the PvcAutoscaler.
    pub name: String,
    /// Workload whose claims it manages, for people.
    pub workload: String,
    /// Mode: change claims, or only recommend changes.
    pub mode: AutoscalerMode,
    /// True if the rollout is paused.
    pub paused: bool,
    /// Policy of automatic expansion and shrinking, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// True if the operator has seen the current specification; otherwise the fields below are older.
    #[serde(rename = "observed")]
    pub is_observed: bool,
    /// Phase of the PvcAutoscaler.
    pub phase: AutoscalerPhase,
    /// Number of claims.
    pub claim_count: i32,
    /// Number of claims that are up to date.
    pub ready_claim_count: i32,
    /// Progress of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Next action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_action: Option<String>,
    /// Reason why it waits or has failed, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Reason why it waits or has failed, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Plan of each pod.
    pub pods: Vec<PodRow>,
    /// Kinds that the caller may not read, so the plan may be incomplete.
    #[serde(rename = "forbidden")]
    pub unseen: Vec<String>,
    /// Objects that this version cannot decode, so the plan may be incomplete.
    #[serde(rename = "undecodable")]
    pub unreadable: Vec<String>,
}

/// Plan of the claim of one pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Name of the pod.
    pub pod: String,
    /// Active claim of the pod.
    pub claim: String,
    /// Current size; `None` without a volume.
    #[serde(rename = "currentSize", skip_serializing_if = "Option::is_none")]
    pub has: Option<Quantity>,
    /// Current StorageClass.
    #[serde(rename = "currentStorageClass", skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Desired size.
    #[serde(rename = "desiredSize")]
    pub wanted: Quantity,
    /// Desired StorageClass; `None` if any is right.
    #[serde(rename = "desiredStorageClass", skip_serializing_if = "Option::is_none")]
    pub wanted_class: Option<String>,
    /// Action that changes the claim to what is desired.
    #[serde(rename = "action")]
    pub by: Procedure,
    /// Description of what a swap changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Reason why the action is not started yet.
    #[serde(rename = "pendingReason", skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Swap that is in progress or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// Last sizing decision.
    #[serde(rename = "lastDecision", skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Claims that are retained from earlier swaps.
    pub retained: Vec<Retained>,
    /// Retention of each of them, from its `replacementReadyTime` on.
    pub retention: Span,
}

/// Action on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Procedure {
    /// Nothing to do.
    #[serde(rename = "None")]
    Nothing,
    /// The claim is created.
    #[serde(rename = "Create")]
    Make,
    /// The claim has no volume yet, and is created again as soon as a person deletes it.
    Recreate,
    /// The claim is expanded under its pod.
    #[serde(rename = "Expand")]
    Grow,
    /// The claim is shrunk in place, under its pod.
    Shrink,
    /// Another claim with a verified copy replaces it while its pod is stopped.
    Swap,
    /// The pod gets its earlier claim again.
    #[serde(rename = "Rollback")]
    RollBack,
    /// The swap in progress is aborted.
    Abort,
    /// The desired change is not possible.
    #[serde(rename = "Unsupported")]
    Impossible,
    /// A size of the claim is invalid, so nothing is done.
    #[serde(rename = "InvalidSize")]
    Unreadable,
    /// The caller may not read the claim.
    #[serde(rename = "Forbidden")]
    Unseen,
}

/// Objects that belong to the claims of a namespace.
#[derive(Debug, Default)]
pub(super) struct Around {
    pub namespace: String,
    pub autoscalers: Vec<PvcAutoscaler>,
    pub claims: Vec<PersistentVolumeClaim>,
    pub classes: Vec<StorageClass>,
    pub storages: Vec<NodeStorage>,
    /// Volume IDs by the active claim of a pod, as far as PersistentVolumes may be read.
    pub ids: BTreeMap<String, String>,
    /// Kinds that the caller may not read.
    pub unseen: Vec<&'static str>,
    /// Objects that this version cannot decode.
    pub unreadable: Vec<Unreadable>,
    /// Kinds with objects that this version cannot decode.
    pub partial: Vec<&'static str>,
}

impl Around {
    pub async fn observe(client: &Client, namespace: Option<&str>) -> Result<Around, AskError> {
        let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
        let mut ask = ListReader::new(client);
        let all = ListParams::default;
        let ours = Api::namespaced(client.clone(), &namespace);
        let mut autoscalers: Vec<PvcAutoscaler> = ask.list(ours, all(), PVC_AUTOSCALERS).await?;
        autoscalers.sort_by_key(ResourceExt::name_any);
        let claims = ask.list(Api::namespaced(client.clone(), &namespace), all(), CLAIMS).await?;
        let classes = ask.list(ask.all(), all(), CLASSES).await?;
        let storages = ask.storages().await?;
        let ids = volumes_of(client, &autoscalers, &claims).await;
        let ListReader { unseen, unreadable, partial, .. } = ask;
        Ok(Around {
            namespace,
            autoscalers,
            claims,
            classes,
            storages,
            ids,
            unseen,
            unreadable,
            partial,
        })
    }

    /// # Errors
    /// [`AskError::Forbidden`] if the caller may not know which objects of this kind there are, and
    /// [`AskError::Refused`] if this version cannot decode one of them.
    pub fn sees(&self, kind: &str) -> Result<(), AskError> {
        self.may_see(kind)?;
        if self.partial.contains(&kind) {
            let all: Vec<String> = self.unreadable.iter().map(ToString::to_string).collect();
            let reason = format!("it is not known which {kind} exist: {}", all.join("; "));
            return Err(AskError::Refused { reason });
        }
        Ok(())
    }

    fn may_see(&self, kind: &str) -> Result<(), AskError> {
        if self.unseen.contains(&kind) {
            return Err(may_not_list(kind, &in_namespace(&self.namespace)));
        }
        Ok(())
    }

    pub fn claim(&self, name: &str) -> Option<&PersistentVolumeClaim> {
        self.claims.iter().find(|claim| claim.name_any() == name)
    }

    /// When the volume of a claim can shrink in place, as its node reports.
    pub fn shrinks(&self, claim: &PersistentVolumeClaim) -> Shrinks {
        let volume = self.storages.iter().find_map(|node| self.volume_on(node, claim));
        let kind = volume.and_then(|volume| volume.format().parse().ok());
        kind.map_or(Shrinks::Never, FsKind::shrinks)
    }

    /// The volume of a claim in the report of a node.
    ///
    /// Names of volumes are not unique, IDs are. A caller that may not read PersistentVolumes compares names.
    pub fn volume_on<'a>(
        &self,
        node: &'a NodeStorage,
        claim: &PersistentVolumeClaim,
    ) -> Option<&'a VolumeOnNode> {
        let (id, name) = (self.ids.get(&claim.name_any()), volume_name(claim));
        let is_it = |volume: &&VolumeOnNode| {
            id.map_or(Some(&*volume.name) == name, |id| volume.volume_handle == *id)
        };
        node.status.as_ref()?.volumes.iter().find(is_it)
    }

    /// True if claims of a class can expand, also if the caller may not read classes.
    fn can_grow(&self, class: Option<&str>) -> bool {
        let class = self.classes.iter().find(|one| Some(one.name_any().as_str()) == class);
        class
            .map_or(self.sees(CLASSES).is_err(), |class| class.allow_volume_expansion == Some(true))
    }
}

/// The ids of the volumes of the claims that pods have, by the claim.
async fn volumes_of(
    client: &Client,
    autoscalers: &[PvcAutoscaler],
    claims: &[PersistentVolumeClaim],
) -> BTreeMap<String, String> {
    let api: Api<PvSummary> = Api::all(client.clone());
    let entries = autoscalers.iter().filter_map(|one| one.status.as_ref());
    let active = entries.flat_map(|status| &status.ordinals).map(|one| &one.active_claim);
    let mut ids = BTreeMap::new();
    for name in active.collect::<BTreeSet<_>>() {
        let claim = claims.iter().find(|claim| claim.name_any() == *name);
        let volume = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref());
        let Some((claim, volume)) = claim.zip(volume) else { continue };
        // A caller that may not read one may read none; the name in the claim is used then.
        let Ok(pv) = api.get_opt(volume).await else { break };
        let pv = pv.filter(|pv| pv.owner() == claim.metadata.uid.as_deref());
        ids.extend(pv.and_then(|pv| Some((name.clone(), pv.handle()?.to_owned()))));
    }
    ids
}

/// Address whose plan is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanSubject(Whose);

/// Reads `pvcas/NAME` or `NAME` for a PvcAutoscaler, `sts/NAME`, `deploy/NAME` or `pvc/NAME`.
impl FromStr for PlanSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = [
            AddressKind::Autoscaler,
            AddressKind::StatefulSet,
            AddressKind::Deployment,
            AddressKind::Claim,
        ];
        let (kind, name) = address(text, &kinds)?;
        Ok(PlanSubject(match kind {
            AddressKind::StatefulSet => Whose::StatefulSet(name),
            AddressKind::Deployment => Whose::Deployment(name),
            AddressKind::Claim => Whose::Claim(name),
            _ => Whose::Autoscaler(name),
        }))
    }
}

impl PlanSubject {
    fn is_of(&self, around: &Around, autoscaler: &PvcAutoscaler) -> bool {
        let workload = autoscaler.spec.workload();
        match &self.0 {
            Whose::Autoscaler(name) => autoscaler.name_any() == *name,
            Whose::StatefulSet(name) => workload == Workload::StatefulSet(name),
            Whose::Deployment(name) => workload == Workload::Deployment(name),
            Whose::Claim(name) => {
                let claim = around.claim(name);
                let kept = claim.and_then(|claim| ManagedClaim::find(&around.autoscalers, claim));
                kept.is_some_and(|kept| kept.by.name_any() == autoscaler.name_any())
            }
        }
    }

    /// The error for a subject without a PvcAutoscaler.
    fn none(&self, namespace: &str) -> AskError {
        let whose = match &self.0 {
            Whose::Autoscaler(name) => {
                return not_found("PvcAutoscaler", name, namespace, "pvcautoscalers");
            }
            Whose::StatefulSet(name) => Workload::StatefulSet(name).in_words(),
            Whose::Deployment(name) => Workload::Deployment(name).in_words(),
            Whose::Claim(name) => format!("claim {name}"),
        };
        let reason = format!(
            "no PvcAutoscaler in namespace {namespace} manages {whose}; `kubectl get pvcautoscalers \
             --all-namespaces` lists them"
        );
        AskError::Refused { reason }
    }
}

/// Plans of the PvcAutoscalers of a namespace, or of a subject.
///
/// # Errors
/// [`AskError::Refused`] if there is none, [`AskError::Forbidden`] if that may not be seen.
pub async fn plan(
    client: &Client,
    namespace: Option<&str>,
    subject: Option<&PlanSubject>,
) -> Result<Vec<Plan>, AskError> {
    let around = Around::observe(client, namespace).await?;
    around.may_see(PVC_AUTOSCALERS)?;
    let is_asked = |one: &&PvcAutoscaler| subject.is_none_or(|subject| subject.is_of(&around, one));
    let asked = around.autoscalers.iter().filter(is_asked);
    let plans: Vec<Plan> = asked.map(|one| plan_of(&around, one)).collect();
    if plans.is_empty() {
        around.sees(PVC_AUTOSCALERS)?;
    }
    match subject {
        Some(subject) if plans.is_empty() => Err(subject.none(&around.namespace)),
        _ => Ok(plans),
    }
}

/// Plans of the PvcAutoscalers of all namespaces.
///
/// # Errors
/// [`AskError::Forbidden`] if that may not be seen.
pub async fn plan_of_all(client: &Client) -> Result<Vec<Plan>, AskError> {
    let mut ask = ListReader::new(client);
    let mut autoscalers: Vec<PvcAutoscaler> =
        ask.list(ask.all(), ListParams::default(), PVC_AUTOSCALERS).await?;
    autoscalers.sort_by_key(|one| (one.namespace(), one.name_any()));
    let claims: Vec<PersistentVolumeClaim> =
        ask.list(ask.all(), ListParams::default(), CLAIMS).await?;
    let classes = ask.list(ask.all(), ListParams::default(), CLASSES).await?;
    let storages = ask.storages().await?;
    let ListReader { unseen, unreadable, partial, .. } = ask;
    if unseen.contains(&PVC_AUTOSCALERS) {
        return Err(may_not_list(PVC_AUTOSCALERS, "in all namespaces"));
    }
    let mut around = Around { classes, storages, unseen, unreadable, partial, ..Around::default() };
    let mut plans = Vec::new();
    // A claim is found by its name, of which each namespace may have one.
    for ours in autoscalers.chunk_by(|one, next| one.namespace() == next.namespace()) {
        around.namespace = ours[0].namespace().unwrap_or_default();
        let is_here = |claim: &&PersistentVolumeClaim| {
            claim.metadata.namespace.as_deref() == Some(&*around.namespace)
        };
        around.claims = claims.iter().filter(is_here).cloned().collect();
        around.ids = volumes_of(client, ours, &around.claims).await;
        plans.extend(ours.iter().map(|one| plan_of(&around, one)));
    }
    if plans.is_empty() {
        around.sees(PVC_AUTOSCALERS)?;
    }
    Ok(plans)
}

/// Plan of a PvcAutoscaler with each of its claims: pure.
pub(super) fn plan_of(around: &Around, autoscaler: &PvcAutoscaler) -> Plan {
    let (spec, status) = (&autoscaler.spec, autoscaler.status.clone().unwrap_or_default());
    let rollout = spec.rollout.as_ref();
    Plan {
        namespace: around.namespace.clone(),
        name: autoscaler.name_any(),
        workload: spec.workload().in_words(),
        mode: spec.mode,
        paused: rollout.is_some_and(|rollout| rollout.paused),
        policy: spec.autoscale.as_ref().map(ToString::to_string),
        is_observed: autoscaler.metadata.generation.unwrap_or_default()
            == status.observed_generation,
        phase: status.phase,
        claim_count: status.claim_count,
        ready_claim_count: status.ready_claim_count,
        progress: status.progress,
        planned_action: status.planned_action,
        reason: status.reason,
        message: status.message,
        pods: status.ordinals.iter().map(|one| pod_plan(around, autoscaler, one)).collect(),
        unseen: around.unseen.iter().map(|what| (*what).to_owned()).collect(),
        unreadable: around.unreadable.iter().map(ToString::to_string).collect(),
    }
}

fn pod_plan(around: &Around, autoscaler: &PvcAutoscaler, entry: &OrdinalStatus) -> PodRow {
    let spec = &autoscaler.spec;
    let template = &spec.volume_claim_template.spec;
    let size = wanted(spec, entry.autoscaled_size.as_ref());
    let claim = around.claim(&entry.active_claim);
    let class = claim.and_then(|claim| claim.spec.as_ref()?.storage_class_name.clone());
    let sizes = claim.and_then(|claim| ClaimSizes::of(claim).ok());
    let has = sizes.map(|sizes| sizes.capacity).filter(|has| *has > Quantity::default());
    let drift = claim.map(|claim| {
        let drift = Drift::of_pod(spec, entry, claim, around.can_grow(class.as_deref()));
        (drift, sizes.is_some_and(ClaimSizes::wants_more))
    });
    // Whether its pod runs is not looked at: who asks wants to know what becomes of it.
    let shrinking = claim
        .map(|claim| Shrinking::of(around.shrinks(claim), true, spec.stateful_set().is_none()));
    let is_back = is_rolled_back(spec, entry);
    // Others are created by the StatefulSet or by a person, as they were before.
    let makes_claims =
        spec.stateful_set().is_some() && spec.claim_name_policy != Some(ClaimNamePolicy::Preserve);
    let (by, change) = match drift {
        Some((Drift::Unreadable(why), _)) => (Procedure::Unreadable, Some(why.to_string())),
        _ if is_wanted_aborted(spec, entry) && can_be_given_up(entry) => (Procedure::Abort, None),
        _ if is_wanted_back(spec, entry) => (Procedure::RollBack, None),
        None if around.sees(CLAIMS).is_err() => (Procedure::Unseen, None),
        None | Some((Drift::None, _)) if has.is_none() => (Procedure::Make, None),
        Some((drift, _)) if has.is_none() && makes_claims && drift.is_of_size_or_class() => {
            (Procedure::Recreate, None)
        }
        None | Some((Drift::None, false) | (Drift::Larger(_) | Drift::Unreduced, _)) => {
            (Procedure::Nothing, None)
        }
        Some((Drift::None, true) | (Drift::Grow | Drift::Lower, _)) => (Procedure::Grow, None),
        Some((Drift::Shrink(change), _)) if shrinking != Some(Shrinking::BySwap) => {
            (Procedure::Shrink, Some(change))
        }
        Some((Drift::Shrink(change) | Drift::Swap(change), _)) => (Procedure::Swap, Some(change)),
        Some((Drift::VolumeModeMismatch, _)) => (Procedure::Impossible, None),
    };
    let for_pod = (by == Procedure::Shrink && shrinking == Some(Shrinking::InPlaceWithoutPod))
        .then(|| "while no pod has it".to_owned());
    let is_change = matches!(by, Procedure::Swap | Procedure::Shrink);
    let back =
        is_back.then(|| "it was rolled back, and the template was not edited since".to_owned());
    let given_up = is_aborted(spec, entry)
        .then(|| "its PVC swap was aborted, and the template was not edited since".to_owned());
    let waits = is_change && entry.swap.is_none() && !entry.is_shrinking();
    // A rollback leads to what the pod had before, and not to the template.
    let before = entry.before().filter(|_| by == Procedure::RollBack);
    let before = before.and_then(|old| around.claim(&old.name));
    let old_size = before.and_then(|claim| ClaimSizes::of(claim).ok()).map(|sizes| sizes.requested);
    let old_class = before.and_then(class_of).cloned();
    PodRow {
        pod: autoscaler.pod_called(entry.ordinal),
        claim: entry.active_claim.clone(),
        has,
        class: claim.and_then(class_of).cloned(),
        wanted: old_size.unwrap_or(size),
        wanted_class: old_class.or_else(|| template.storage_class_name.clone()),
        by,
        change,
        held: back.or(given_up).or(held(autoscaler, entry.ordinal)).or(for_pod).filter(|_| waits),
        swap: entry.swap.clone(),
        decision: entry.last_decision.clone(),
        retained: entry.retained_claims.clone(),
        retention: autoscaler.spec.retention,
    }
}

fn can_be_given_up(entry: &OrdinalStatus) -> bool {
    entry.swap.as_ref().is_some_and(|swap| can_be_aborted(swap.phase))
}

/// Field of the specification that blocks a swap of this pod.
fn held(autoscaler: &PvcAutoscaler, ordinal: i32) -> Option<String> {
    let (spec, rollout) = (&autoscaler.spec, autoscaler.spec.rollout.as_ref());
    if spec.mode == AutoscalerMode::DryRun {
        return Some("mode is DryRun".to_owned());
    }
    if rollout.is_some_and(|rollout| rollout.paused) {
        return Some("rollout.paused is true".to_owned());
    }
    let from = rollout.map(|rollout| rollout.partition).filter(|from| ordinal < *from)?;
    Some(format!("rollout.partition is {from}"))
}
