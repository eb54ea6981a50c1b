//! Probes, before the source is taken from its pods, that a populator pod can be created and runs: that pod is
//! created in a dry run, and a similar one runs with the volume and without the source.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::{again, drop_pods, waiting};
use crate::api::{Filling, FillingPhase};
use crate::populators::notes::with_reason;
use crate::populators::seen::{Seen, SourceSeen, uid};
use crate::populators::steps::Step;
use crate::populators::{Outcome, PopulatorReason};

/// Delay before a rejected probe is retried.
const REFUSED: SignedDuration = SignedDuration::from_secs(30);

/// Returns true if a probe is still needed for the present source.
pub(super) fn is_wanted(seen: &Seen) -> bool {
    let is_asked_for = seen.fill().is_some_and(|fill| fill.rehearsal.is_some());
    let generation = seen.source.as_ref().map(|source| source.generation);
    let is_known = seen.told().is_some_and(|told| {
        told.probe_time.is_some() && Some(told.observed_generation) == generation
    });
    is_asked_for && !is_known
}

/// Starts the probe. Both pods count towards quotas at the same time, so the sender is tried when the populator
/// pod exists.
pub(super) fn begin(seen: &Seen) -> Vec<Step> {
    let sender = seen.is_far().then_some(Step::RehearseSender);
    [Step::RehearsePod, Step::MakePod].into_iter().chain(sender).collect()
}

/// Plans while there is a probe pod.
pub(super) fn watch(seen: &Seen, source: &SourceSeen, pod: &Pod) -> Vec<Step> {
    if !is_wanted(seen) {
        return drop_pods(seen);
    }
    let id = uid(&pod.metadata);
    match Outcome::of(pod) {
        // It is tried again with another pod, which counts beside the one that sends.
        Some(Outcome::Probed) if is_refused(seen) => {
            let before = seen.told().cloned().unwrap_or_default();
            let next_retry_time = before.next_retry_time.filter(|Time(at)| *at > seen.now);
            let next_retry_time =
                next_retry_time.or_else(|| seen.now.checked_add(REFUSED).ok().map(Time));
            let filling = seen.filling(FillingPhase::Waiting);
            let (reason, message) = (before.reason, before.message);
            let filling = Filling { reason, message, next_retry_time, ..filling };
            [seen.say(filling), drop_pods(seen)].concat()
        }
        Some(Outcome::Probed) => {
            let mut filling = seen.filling(FillingPhase::Provisioning);
            (filling.probe_time, filling.next_retry_time) = (Some(Time(seen.now)), None);
            [seen.say(filling), drop_pods(seen)].concat()
        }
        Some(Outcome::Failed(message) | Outcome::Never(_, message)) => {
            again(seen, source, Some(id), &message)
        }
        Some(Outcome::Done { .. } | Outcome::Ahead(_)) => {
            again(seen, source, Some(id), "its pod did not run the probe")
        }
        None => {
            let sender = (seen.is_far() && is_refused(seen)).then_some(Step::RehearseSender);
            let mut filling = seen.filling(FillingPhase::Provisioning);
            (filling.pod_uid, filling.next_retry_time) = (Some(id.to_owned()), None);
            let does = "checks whether the volume can be populated";
            let why = waiting::held_up(seen.now, pod, does)
                .or_else(|| waiting::why_silent(seen.now, pod, does));
            let filling = match why {
                Some(why) => with_reason(filling, PopulatorReason::PopulatorPodPending, &why),
                None => filling,
            };
            sender.into_iter().chain(seen.say(filling)).collect()
        }
    }
}

fn is_refused(seen: &Seen) -> bool {
    let reason = seen.told().and_then(|told| told.reason.as_deref());
    reason == Some(&*PopulatorReason::PopulatorCreationError.to_string())
}
