//! What is to be said of a claim because a PvcAutoscaler keeps it. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use super::gather::Facts;
use super::{Explanation, State, Todo};
use crate::api::{OrdinalStatus, Retained, Swap};
use crate::ask::kept::{Kept, Part, until};

/// A claim that is not yet, or no longer, the one of its pod.
pub(super) fn on_its_way(facts: &Facts, claim: &PersistentVolumeClaim) -> Option<Explanation> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let kept = Kept::find(&facts.autoscalers, claim).filter(|_| phase != Some("Lost"))?;
    match kept.part {
        Part::Next(swap) => Some(next(facts, &kept, swap)),
        Part::Before(old, entry) => Some(before(facts, &kept, old, entry)),
        Part::Active | Part::Untold => None,
    }
}

fn next(facts: &Facts, kept: &Kept<'_>, swap: &Swap) -> Explanation {
    let says = swap.progress.as_ref().or(swap.message.as_ref());
    let says = says.map(|text| format!(": {text}")).unwrap_or_default();
    let why = format!(
        "is being filled, to become the claim of pod {} ({}; {:?}{says}). PvcAutoscaler {} does it; \
         until then the content is in the claim that the pod had.",
        kept.pod(),
        swap.change,
        swap.phase,
        kept.by.name_any()
    );
    facts.explain(State::BeingFilled, why, vec![watch(facts, kept)])
}

fn before(facts: &Facts, kept: &Kept<'_>, old: &Retained, entry: &OrdinalStatus) -> Explanation {
    let until = until(kept.by, old);
    let why = format!(
        "is kept {until}, and then deleted with its data: claim {} has taken its place as that of pod \
         {}, with a verified copy of all that was in it. PvcAutoscaler {} did it.",
        entry.active_claim,
        kept.pod(),
        kept.by.name_any()
    );
    facts.explain(State::Superseded, why, Vec::new())
}

/// Add to what is told of a claim who keeps it.
pub(super) fn by_whom(
    facts: &Facts,
    claim: &PersistentVolumeClaim,
    mut told: Explanation,
) -> Explanation {
    let Some(kept) = Kept::find(&facts.autoscalers, claim) else { return told };
    let what = match kept.part {
        Part::Active => "the active claim",
        _ => "a claim",
    };
    let mut by_whom = format!(
        " It is {what} of pod {}, kept by PvcAutoscaler {}: who wants another size or class edits its \
         template.",
        kept.pod(),
        kept.by.name_any()
    );
    let entry = kept.by.status.as_ref().and_then(|status| status.of(kept.ordinal));
    let decision = entry.and_then(|entry| entry.decision.as_ref());
    if let (Part::Active, Some(decision)) = (kept.part, decision) {
        by_whom = format!("{by_whom} Last decided about its size: {decision}.");
    }
    told.why += &by_whom;
    told
}

fn watch(facts: &Facts, kept: &Kept<'_>) -> Todo {
    let namespace = kept.by.namespace().unwrap_or_default();
    let command = format!("{} plan {} --namespace {namespace}", facts.program, kept.by.name_any());
    Todo::command("see what it does next", command)
}
