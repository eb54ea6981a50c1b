//! Selects the swaps to abort. Pure.

use crate::api::{Abort, OrdinalStatus, PvcAutoscaler, Rollback, Swap, SwapPhase};
use crate::claims::{can_be_aborted, is_wanted_aborted};
use crate::commands::AskError;
use crate::volume::few;

/// Fields of a specification that abort swaps.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aborts {
    /// Swaps to abort.
    pub abort: Vec<Abort>,
    /// Pods that still have to be rolled back, without those whose swap is aborted.
    pub roll_back: Vec<Rollback>,
}

/// Selects the swaps to abort: that of one pod, or all in progress.
///
/// # Errors
/// [`AskError::Refused`] if there is none, or if it is too late.
pub(super) fn aborts(
    autoscaler: &PvcAutoscaler,
    ordinal: Option<i32>,
    program: &str,
) -> Result<Aborts, AskError> {
    let ordinals = autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let asked: Vec<&OrdinalStatus> =
        ordinals.clone().filter(|one| ordinal.is_none_or(|asked| one.ordinal == asked)).collect();
    let swaps = |one: &&&OrdinalStatus| one.swap.is_some();
    let can_be =
        |one: &&OrdinalStatus| one.swap.as_ref().is_some_and(|swap| can_be_aborted(swap.phase));
    let going: Vec<&OrdinalStatus> = asked.iter().copied().filter(can_be).collect();
    if going.is_empty() {
        let pods = few(asked.iter().map(|one| autoscaler.pod_called(one.ordinal)));
        let late: Vec<&&OrdinalStatus> = asked.iter().filter(swaps).collect();
        let reason = if late.is_empty() {
            format!("no PVC swap of pod {pods} is in progress: there is nothing to abort")
        } else {
            let pods = few(late.iter().map(|one| autoscaler.pod_called(one.ordinal)));
            format!(
                "the PVC swap of pod {pods} has copied everything, and can no longer be aborted: \
                 `{program} rollback` reverts it when it has ended"
            )
        };
        return Err(AskError::Refused { reason });
    }
    let is_asked = |ordinal: i32| going.iter().any(|one| one.ordinal == ordinal);
    let mut abort: Vec<Abort> =
        going.iter().filter_map(|one| Some(abort_of(one.ordinal, one.swap.as_ref()?))).collect();
    // Others that have not had their turn yet.
    let waits = ordinals
        .filter(|one| is_wanted_aborted(&autoscaler.spec, one) && !is_asked(one.ordinal))
        .filter_map(|one| Some(abort_of(one.ordinal, one.swap.as_ref()?)));
    abort.extend(waits);
    abort.sort_by_key(|one| one.ordinal);
    let roll_back = autoscaler.spec.rollback.iter().filter(|one| !is_asked(one.ordinal));
    Ok(Aborts { abort, roll_back: roll_back.cloned().collect() })
}

fn abort_of(ordinal: i32, swap: &Swap) -> Abort {
    Abort { ordinal, spec_generation: swap.spec_generation }
}

/// Swaps in progress that prevent a rollback: it would undo two swaps at once.
pub(super) fn in_the_way(autoscaler: &PvcAutoscaler, back: &[Rollback]) -> Option<String> {
    let told = back.iter().filter_map(|one| autoscaler.status.as_ref()?.of(one.ordinal));
    let goes_on = |swap: &&Swap| {
        !swap.is_rollback && !matches!(swap.phase, SwapPhase::Failed | SwapPhase::Soaking)
    };
    let going: Vec<String> = told
        .filter_map(|one| {
            let swap = one.swap.as_ref().filter(goes_on)?;
            Some(format!("{} ({:?})", autoscaler.pod_called(one.ordinal), swap.phase))
        })
        .collect();
    (!going.is_empty()).then(|| few(going))
}

/// Notes to read before the abort.
pub(super) fn notes(autoscaler: &PvcAutoscaler, aborts: &Aborts) -> Vec<String> {
    let told = aborts.abort.iter().filter_map(|one| autoscaler.status.as_ref()?.of(one.ordinal));
    let mut notes: Vec<String> = told.map(|one| note(autoscaler, one)).collect();
    notes.push(
        "Nothing else is done: claims retained from earlier swaps stay. The template is unchanged. These pods \
         are not changed until you edit it: write the size and class that they have, or the ones that \
         you want. Until then no other pod is swapped."
            .to_owned(),
    );
    notes
}

fn note(autoscaler: &PvcAutoscaler, one: &OrdinalStatus) -> String {
    let (pod, claim) = (autoscaler.pod_called(one.ordinal), &one.active_claim);
    let is_stopped = one
        .swap
        .as_ref()
        .is_some_and(|swap| swap.pod_stop_time.is_some() && swap.phase != SwapPhase::Failed);
    if is_stopped {
        format!(
            "Pod {pod} starts again with claim {claim} and all its data, unless the copy ends before the operator \
             sees the request: the swap is then completed."
        )
    } else {
        format!("Pod {pod} continues with claim {claim}.")
    }
}
