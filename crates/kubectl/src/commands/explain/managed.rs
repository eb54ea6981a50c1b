//! Explains claims that a PvcAutoscaler manages. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use super::explanation::{ClaimState, Explanation, Remediation};
use super::gather::ClaimFacts;
use crate::api::{OrdinalStatus, Retained, Swap, SwapPhase};
use crate::claims::can_be_aborted;
use crate::commands::managed::{ClaimRole, ManagedClaim, until};

/// Explains a claim that is not yet, or no longer, the active one of its pod.
pub(super) fn on_its_way(facts: &ClaimFacts, claim: &PersistentVolumeClaim) -> Option<Explanation> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let kept = ManagedClaim::find(&facts.autoscalers, claim).filter(|_| phase != Some("Lost"))?;
    match kept.part {
        ClaimRole::Next(swap) => Some(next(facts, &kept, swap)),
        ClaimRole::Before(old, entry) => Some(before(facts, &kept, old, entry)),
        ClaimRole::Active => taken(facts, &kept),
        ClaimRole::Untold => None,
    }
}

/// Explains the claim of a pod that is stopped for a swap; that no pod can use it is expected.
fn taken(facts: &ClaimFacts, kept: &ManagedClaim<'_>) -> Option<Explanation> {
    let status = kept.by.status.as_ref()?;
    let swap = status.of(kept.ordinal)?.swap.as_ref()?;
    let is_over = matches!(swap.phase, SwapPhase::Soaking | SwapPhase::Failed);
    if is_over || swap.pod_stop_time.is_none() {
        return None;
    }
    let says = swap.progress.as_ref().or(swap.message.as_ref());
    let says = says.map(|text| format!(": {text}")).unwrap_or_default();
    let becomes = match (swap.phase, swap.is_rollback, swap.preserves_name) {
        (SwapPhase::RollingBack, ..) => "returns its volume to the pod".to_owned(),
        (_, true, _) => format!("returns claim {} to the pod", swap.claim),
        (_, false, true) => {
            format!("copies it to claim {}, and binds it to that volume", swap.claim)
        }
        (_, false, false) => format!("copies it to claim {}, which the pod gets", swap.claim),
    };
    let waits = status.message.as_ref().filter(|_| status.reason.is_some());
    let waits = waits.map(|message| format!(" It waits: {message}.")).unwrap_or_default();
    let why = format!(
        "is in a PVC swap ({}; {:?}{says}), for which pod {} is stopped; so no pod can be started with it. \
         PvcAutoscaler {} {becomes}, and then the pod starts.{waits}",
        swap.summary,
        swap.phase,
        kept.pod(),
        kept.by.name_any()
    );
    let namespace = kept.by.namespace().unwrap_or_default();
    let name = facts.claim.as_ref().map(ResourceExt::name_any).unwrap_or_default();
    let command = format!("{} abort pvc/{name} --namespace {namespace}", facts.program);
    let give_up = can_be_aborted(swap.phase).then(|| {
        Remediation::command("abort the PVC swap; the pod continues with its claim", command)
    });
    let todo = [watch(facts, kept)].into_iter().chain(give_up).collect();
    Some(facts.explain(ClaimState::Swapping, why, todo))
}

fn next(facts: &ClaimFacts, kept: &ManagedClaim<'_>, swap: &Swap) -> Explanation {
    let says = swap.progress.as_ref().or(swap.message.as_ref());
    let says = says.map(|text| format!(": {text}")).unwrap_or_default();
    let why = format!(
        "is being populated, to become the claim of pod {} ({}; {:?}{says}). PvcAutoscaler {} does it; \
         until then the data is in the present claim of the pod.",
        kept.pod(),
        swap.summary,
        swap.phase,
        kept.by.name_any()
    );
    facts.explain(ClaimState::Populating, why, vec![watch(facts, kept)])
}

fn before(
    facts: &ClaimFacts,
    kept: &ManagedClaim<'_>,
    old: &Retained,
    entry: &OrdinalStatus,
) -> Explanation {
    let until = until(kept.by, old);
    let (active, pod) = (&entry.active_claim, kept.pod());
    let instead = match LeftBy::of(old, entry) {
        LeftBy::Swap => format!(
            "claim {active} has replaced it as the claim of pod {pod}, with a verified copy of its data"
        ),
        LeftBy::Rollback => format!(
            "pod {pod} was rolled back to claim {active}, which does not have what was written since the \
             swap. Only this claim has that data: copy what you need"
        ),
        LeftBy::Either => format!(
            "pod {pod} has claim {active} now, which may lack what was written to this one: compare them \
             before you rely on it"
        ),
    };
    let why = format!(
        "is retained {until}, and then deleted with its data: {instead}. PvcAutoscaler {} did it.",
        kept.by.name_any()
    );
    facts.explain(ClaimState::Superseded, why, Vec::new())
}

/// Why a pod does not have a retained claim any more.
enum LeftBy {
    /// The claim of the pod has a copy of all that it had.
    Swap,
    /// The pod has an older claim again.
    Rollback,
    /// The status does not say: there was a rollback, and other changes since.
    Either,
}

impl LeftBy {
    fn of(old: &Retained, entry: &OrdinalStatus) -> LeftBy {
        // A rollback leaves revision 1 or a later one.
        let rolled_back_from = entry.last_rollback_revision.filter(|revision| *revision > 0);
        let is_last = entry.retained_claims.last().is_some_and(|last| last.uid == old.uid);
        match (rolled_back_from, is_last) {
            (Some(left), true) if left == entry.claim_revision - 1 => LeftBy::Rollback,
            (None, _) | (Some(_), true) => LeftBy::Swap,
            (Some(_), false) => LeftBy::Either,
        }
    }
}

/// Adds the PvcAutoscaler that manages the claim to the explanation.
pub(super) fn by_whom(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    mut told: Explanation,
) -> Explanation {
    let Some(kept) = ManagedClaim::find(&facts.autoscalers, claim) else { return told };
    let what = match kept.part {
        ClaimRole::Active => "the active claim",
        _ => "a claim",
    };
    let mut by_whom = format!(
        " It is {what} of pod {}, managed by PvcAutoscaler {}: to change its size or class, edit its template.",
        kept.pod(),
        kept.by.name_any()
    );
    let entry = kept.by.status.as_ref().and_then(|status| status.of(kept.ordinal));
    let decision = entry.and_then(|entry| entry.last_decision.as_ref());
    if let (ClaimRole::Active, Some(decision)) = (kept.part, decision) {
        by_whom = format!("{by_whom} Last sizing decision: {decision}.");
    }
    told.why += &by_whom;
    told
}

/// Command that shows what the PvcAutoscaler of the claim waits for.
pub(super) fn watch_keeper(facts: &ClaimFacts) -> Option<Remediation> {
    Some(watch(facts, &managed(facts)?))
}

/// The claim as its PvcAutoscaler manages it, if one does.
pub(super) fn managed(facts: &ClaimFacts) -> Option<ManagedClaim<'_>> {
    ManagedClaim::find(&facts.autoscalers, facts.claim.as_ref()?)
}

fn watch(facts: &ClaimFacts, kept: &ManagedClaim<'_>) -> Remediation {
    let namespace = kept.by.namespace().unwrap_or_default();
    let command = format!("{} plan {} --namespace {namespace}", facts.program, kept.by.name_any());
    Remediation::command("see what it does next", command)
}
