//! Reports the progress of the claims that follow an edit.

use std::pin::pin;
use std::time::Duration;

use kube::runtime::watcher::watch_object;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;
use tokio_stream::StreamExt;

use crate::api::{
    Abort, AutoscalerPhase, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, STALLED,
};
use crate::claims::{AutoscalerReason, can_be_aborted, is_wanted_aborted, is_wanted_back};
use crate::commands::{AskError, within};
use crate::error_chain::in_full;
use crate::volume::few;

/// Progress of an edit, as its PvcAutoscaler reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EditProgress {
    /// The operator has not seen it yet.
    None,
    /// A line about its progress.
    Line(String),
    /// All claims follow the template.
    Done(String),
    /// It has stopped, and needs a change.
    Stopped(String),
}

/// Waits until all claims follow an edited PvcAutoscaler, at most for `limit` if given; calls `tell` with
/// each line for people, who run this program as `program`.
///
/// # Errors
/// [`AskError::Refused`] with the operator's message if it has stopped, or with the command to run if it
/// takes longer.
pub async fn follow(
    client: &Client,
    program: &str,
    edited: &PvcAutoscaler,
    limit: Option<Duration>,
    mut tell: impl FnMut(&str),
) -> Result<(), AskError> {
    let (namespace, name) = (edited.namespace().unwrap_or_default(), edited.name_any());
    let generation = edited.metadata.generation.unwrap_or_default();
    let api: Api<PvcAutoscaler> = Api::namespaced(client.clone(), &namespace);
    let begun = Instant::now();
    let mut last = String::new();
    let told = async {
        let mut seen = pin!(watch_object(api, &name));
        while let Some(next) = seen.next().await {
            let next = next.map_err(|error| AskError::Refused { reason: in_full(&error) })?;
            if let Some(reason) = next.as_ref().and_then(|one| too_late(edited, one, program)) {
                return Err(AskError::Refused { reason });
            }
            match next.map_or_else(gone, |one| news(&one, generation)) {
                EditProgress::Line(line) if line != last => {
                    tell(&line);
                    last = line;
                }
                EditProgress::None | EditProgress::Line(_) => {}
                EditProgress::Done(line) => {
                    tell(&format!("{line}, after {:.2} s", begun.elapsed().as_secs_f64()));
                    return Ok(());
                }
                EditProgress::Stopped(reason) => return Err(AskError::Refused { reason }),
            }
        }
        Ok(())
    };
    within(limit, told).await.unwrap_or_else(|limit| {
        let reason = format!(
            "the claims of {namespace}/{name} are not up to date after {} s, and the change continues; see \
             `{program} plan {name} --namespace {namespace}`",
            limit.as_secs()
        );
        Err(AskError::Refused { reason })
    })
}

fn gone() -> EditProgress {
    EditProgress::Stopped("the PvcAutoscaler was deleted; its claims stay unchanged".to_owned())
}

/// True if a rollback or an abort is complete.
fn is_back(status: &PvcAutoscalerStatus) -> bool {
    let ends = [AutoscalerReason::RolledBack, AutoscalerReason::SwapAborted];
    let is_told = ends.iter().any(|end| status.reason == Some(end.to_string()));
    is_told && status.ordinals.iter().all(|one| one.swap.is_none())
}

/// True if nothing is in progress, and a person has to act.
fn is_stalled(status: &PvcAutoscalerStatus) -> bool {
    let is_stalled =
        status.conditions.iter().any(|one| one.type_ == STALLED && one.status == "True");
    let is_in_progress = |one: &OrdinalStatus| one.swap.is_some() || one.is_shrinking();
    is_stalled && !status.ordinals.iter().any(is_in_progress)
}

/// True if a rollback or an abort is still requested after a swap that failed.
fn goes_on(autoscaler: &PvcAutoscaler) -> bool {
    let spec = &autoscaler.spec;
    let mut ordinals = autoscaler.status.iter().flat_map(|status| &status.ordinals);
    ordinals.any(|one| is_wanted_back(spec, one) || is_wanted_aborted(spec, one))
}

/// Why an abort has no effect: a pod has the new claim already. `edited` is what asked for it.
pub(super) fn too_late(
    edited: &PvcAutoscaler,
    now: &PvcAutoscaler,
    program: &str,
) -> Option<String> {
    let of = |one: &PvcAutoscaler, ordinal| one.status.as_ref()?.of(ordinal).cloned();
    let has_new_claim = |abort: &Abort| {
        let then = of(edited, abort.ordinal).filter(|one| is_wanted_aborted(&edited.spec, one));
        let is_swapped = |then: OrdinalStatus| {
            let was_late = then.swap.is_some_and(|swap| !can_be_aborted(swap.phase));
            let revision = of(now, abort.ordinal).map_or(0, |one| one.claim_revision);
            was_late || revision > then.claim_revision
        };
        then.is_some_and(is_swapped)
    };
    let late: Vec<i32> = edited
        .spec
        .abort
        .iter()
        .filter(|abort| has_new_claim(abort))
        .map(|one| one.ordinal)
        .collect();
    let pods = few(late.iter().map(|ordinal| edited.pod_called(*ordinal)));
    let (name, namespace) = (edited.name_any(), edited.namespace().unwrap_or_default());
    (!late.is_empty()).then(|| {
        format!(
            "the abort came too late: pod {pods} has the new claim with all its data, and the swaps of other pods \
             continue. To hold them: `kubectl patch pvcautoscaler {name} --namespace {namespace} --type merge \
             --patch '{{\"spec\":{{\"rollout\":{{\"paused\":true}}}}}}'`; to revert this one: `{program} rollback`"
        )
    })
}

/// Progress of the edit that created this generation of the specification.
pub(super) fn news(autoscaler: &PvcAutoscaler, generation: i64) -> EditProgress {
    let status = match &autoscaler.status {
        Some(status) if status.observed_generation >= generation => status.clone(),
        _ => return EditProgress::None,
    };
    let says = status.progress.clone().or(status.message.clone()).or(status.planned_action.clone());
    let says = says.unwrap_or_default();
    match status.phase {
        AutoscalerPhase::Waiting if is_back(&status) => EditProgress::Done(format!(
            "claims      as before; {} match the template",
            status.ready_claims()
        )),
        AutoscalerPhase::InSync => {
            EditProgress::Done(format!("claims      {} up to date", status.ready_claims()))
        }
        AutoscalerPhase::Failed if !goes_on(autoscaler) => {
            EditProgress::Stopped(status.message.unwrap_or(says))
        }
        AutoscalerPhase::DryRun => EditProgress::Stopped(format!(
            "mode is DryRun, so nothing is done: {}",
            status.planned_action.unwrap_or(says)
        )),
        AutoscalerPhase::Waiting if is_stalled(&status) && !goes_on(autoscaler) => {
            EditProgress::Stopped(status.message.unwrap_or(says))
        }
        // The phase alone says nothing that the last line did not.
        _ if says.is_empty() => EditProgress::None,
        phase => {
            let phase = format!("{phase:?}").to_lowercase();
            EditProgress::Line(format!("{phase:<10}  {says}").trim_end().to_owned())
        }
    }
}
