//! Retries a claim, with its volume or with an empty one.

use k8s_openapi::api::core::v1::Pod;

use crate::api::FillingPhase;
use crate::cluster::Binding;
use crate::populators::PopulatorReason;
use crate::populators::observed::{ObservedPopulation, SourceSeen, is_ending};
use crate::populators::ownership::unrecorded_pod;
use crate::populators::status::retry;
use crate::populators::steps::PopulationStep;

/// Reports a failed attempt once, and deletes what is useless for the next one.
pub(super) fn again(
    seen: &ObservedPopulation,
    source: &SourceSeen,
    pod: Option<&str>,
    message: &str,
) -> Vec<PopulationStep> {
    let is_lost = seen.prime.as_ref().is_some_and(|prime| Binding::of(prime) == Binding::Lost);
    if source.anew || is_lost {
        return anew(seen, pod, message);
    }
    [retry_once(seen, pod, message), drop_pods(seen)].concat()
}

/// Retries with an empty volume.
pub(super) fn anew(
    seen: &ObservedPopulation,
    pod: Option<&str>,
    message: &str,
) -> Vec<PopulationStep> {
    // The claim first: without its pod it would not be known that it was written to.
    [retry_once(seen, pod, message), drop_prime(seen), drop_pods(seen)].concat()
}

pub(super) fn retry_once(
    seen: &ObservedPopulation,
    pod: Option<&str>,
    message: &str,
) -> Vec<PopulationStep> {
    let is_counted = seen.status_entry().is_some_and(|told| {
        told.next_retry_time.is_some()
            && told.phase == FillingPhase::Waiting
            && told.pod_uid.as_deref() == pod
    });
    if is_counted {
        Vec::new()
    } else {
        retry(seen, pod, PopulatorReason::PopulatorRetrying, message)
    }
}

/// Deletes the populator pod, and its sender.
pub(super) fn drop_pods(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    let goes = |pod: &Option<Pod>| pod.as_ref().is_some_and(|pod| !is_ending(&pod.metadata));
    let filler = goes(&seen.pod).then_some(PopulationStep::DropPod);
    let strange = unrecorded_pod(seen).filter(|pod| !is_ending(&pod.metadata));
    let strange = strange.map(|_| PopulationStep::DropStrangePod);
    let sender = goes(&seen.sender).then_some(PopulationStep::DropSender);
    filler.into_iter().chain(strange).chain(sender).collect()
}

pub(super) fn drop_prime(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    // First: a volume that is retained would stay for ever.
    let restored = seen.outlives_prime().then_some(PopulationStep::Restore);
    let prime = seen.prime.as_ref().filter(|prime| !is_ending(&prime.metadata));
    restored.into_iter().chain(prime.map(|_| PopulationStep::DropPrime)).collect()
}
