//! Selects the pods that are rolled back. Pure.

use crate::api::{OrdinalStatus, PvcAutoscaler, Rollback};
use crate::claims::is_wanted_back;
use crate::commands::AskError;
use crate::volume::few;

/// Selects the pods to roll back: that of a claim, or all that were swapped.
///
/// # Errors
/// [`AskError::Refused`] if no earlier claim is retained.
pub(super) fn back(
    autoscaler: &PvcAutoscaler,
    claim: Option<&str>,
) -> Result<Vec<Rollback>, AskError> {
    let of_claim = |one: &&OrdinalStatus| claim.is_none_or(|claim| one.active_claim == claim);
    let ordinals = autoscaler.status.iter().flat_map(|status| &status.ordinals).filter(of_claim);
    let (kept, gone): (Vec<_>, Vec<_>) = ordinals.partition(|one| one.before().is_some());
    if kept.is_empty() {
        let pods = gone.iter().map(|one| autoscaler.pod_called(one.ordinal));
        return Err(AskError::Refused {
            reason: format!(
                "no claim from before a PVC swap of pod {} is retained: there is nothing to roll back to",
                few(pods)
            ),
        });
    }
    let asked = kept
        .iter()
        .map(|one| Rollback { ordinal: one.ordinal, claim_revision: one.claim_revision });
    let mut back: Vec<Rollback> = asked.collect();
    // Others that have not had their turn yet.
    let told = |ordinal| autoscaler.status.as_ref().and_then(|status| status.of(ordinal));
    let waits = autoscaler.spec.rollback.iter().filter(|one| {
        told(one.ordinal).is_some_and(|told| is_wanted_back(&autoscaler.spec, told))
            && !kept.iter().any(|kept| kept.ordinal == one.ordinal)
    });
    back.extend(waits.cloned());
    Ok(back)
}

/// Notes on what the pods no longer see after the rollback.
pub(super) fn notes(autoscaler: &PvcAutoscaler, back: &[Rollback]) -> Vec<String> {
    let told = back.iter().filter_map(|one| autoscaler.status.as_ref()?.of(one.ordinal));
    let mut notes: Vec<String> = told.map(|one| note(autoscaler, one)).collect();
    notes.push(
        "The template is unchanged. These pods are not changed until you edit it: write the size and class that \
         they have then, or the ones that you want. Until then no other pod is swapped."
            .to_owned(),
    );
    notes
}

fn note(autoscaler: &PvcAutoscaler, one: &OrdinalStatus) -> String {
    let since = one.last_swap.as_ref().and_then(|last| last.completion_time.as_ref());
    let since = since.map_or_else(|| "its last swap".to_owned(), |at| at.0.to_string());
    format!(
        "Pod {} is stopped, and restarts without what it has written since {since}, which is retained for {}.",
        autoscaler.pod_called(one.ordinal),
        autoscaler.spec.retention
    )
}
