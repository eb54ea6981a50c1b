//! Probes, before the source is taken from its pods, that a populator pod can be created and runs: that pod is
//! created in a dry run, and a similar one runs with the volume and without the source.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::{again, drop_pods, waiting};
use crate::api::{Filling, FillingPhase};
use crate::populators::observed::{ObservedPopulation, SourceSeen, uid};
use crate::populators::status::{filling, say, with_reason};
use crate::populators::steps::PopulationStep;
use crate::populators::{PopulationOutcome, PopulatorReason};

/// Delay before a rejected probe is retried.
const REFUSED: SignedDuration = SignedDuration::from_secs(30);

/// Returns true if a probe is still needed for the present source.
pub(super) fn is_wanted(seen: &ObservedPopulation) -> bool {
    let is_asked_for = seen.fill().is_some_and(|fill| fill.rehearsal.is_some());
    let generation = seen.source.as_ref().map(|source| source.generation);
    let is_known = seen.status_entry().is_some_and(|told| {
        told.probe_time.is_some() && Some(told.observed_generation) == generation
    });
    is_asked_for && !is_known
}

/// Starts the probe. Both pods count towards quotas at the same time, so the sender is tried when the populator
/// pod exists.
pub(super) fn begin(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    let sender = seen.is_far().then_some(PopulationStep::RehearseSender);
    [PopulationStep::RehearsePod, PopulationStep::MakePod].into_iter().chain(sender).collect()
}

/// Plans while there is a probe pod.
pub(super) fn watch(
    seen: &ObservedPopulation,
    source: &SourceSeen,
    pod: &Pod,
) -> Vec<PopulationStep> {
    if !is_wanted(seen) {
        return drop_pods(seen);
    }
    let id = uid(&pod.metadata);
    match PopulationOutcome::of(pod) {
        // It is tried again with another pod, which counts beside the one that sends.
        Some(PopulationOutcome::Probed) if is_refused(seen) => {
            let before = seen.status_entry().cloned().unwrap_or_default();
            let next_retry_time = before.next_retry_time.filter(|Time(at)| *at > seen.now);
            let next_retry_time =
                next_retry_time.or_else(|| seen.now.checked_add(REFUSED).ok().map(Time));
            let filling = filling(seen, FillingPhase::Waiting);
            let (reason, message) = (before.reason, before.message);
            let filling = Filling { reason, message, next_retry_time, ..filling };
            [say(seen, filling), drop_pods(seen)].concat()
        }
        Some(PopulationOutcome::Probed) => {
            let mut filling = filling(seen, FillingPhase::Provisioning);
            (filling.probe_time, filling.next_retry_time) = (Some(Time(seen.now)), None);
            [say(seen, filling), drop_pods(seen)].concat()
        }
        Some(PopulationOutcome::Failed(message) | PopulationOutcome::Never(_, message)) => {
            again(seen, source, Some(id), &message)
        }
        Some(PopulationOutcome::Done { .. } | PopulationOutcome::Ahead(_)) => {
            again(seen, source, Some(id), "its pod did not run the probe")
        }
        None => {
            let sender =
                (seen.is_far() && is_refused(seen)).then_some(PopulationStep::RehearseSender);
            let mut filling = filling(seen, FillingPhase::Provisioning);
            (filling.pod_uid, filling.next_retry_time) = (Some(id.to_owned()), None);
            let does = "checks whether the volume can be populated";
            let why = waiting::held_up(seen.now, pod, does)
                .or_else(|| waiting::why_silent(seen.now, pod, does));
            let filling = match why {
                Some(why) => with_reason(filling, PopulatorReason::PopulatorPodPending, &why),
                None => filling,
            };
            sender.into_iter().chain(say(seen, filling)).collect()
        }
    }
}

fn is_refused(seen: &ObservedPopulation) -> bool {
    let reason = seen.status_entry().and_then(|told| told.reason.as_deref());
    reason == Some(&*PopulatorReason::PopulatorCreationError.to_string())
}
