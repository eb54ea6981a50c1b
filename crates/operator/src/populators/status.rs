//! Status of a claim's population: in the status of its source, on the claim, and as events. Pure.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use crate::api::{Filling, FillingPhase, LONGEST_SENTENCE};
use crate::bytes::Bytes;
use crate::cluster::KEPT_BY;
use crate::populators::observed::{ObservedPopulation, is_ending, uid};
use crate::populators::steps::PopulationStep;
use crate::populators::{PodProgress, PopulatorReason, SHOWN, prime};

/// Interval of progress updates at first, and the maximum. Between these it is half of the time so far: each is two
/// writes, to the source, and to the claim or the PvcAutoscaler.
const TELL_AT_FIRST: SignedDuration = SignedDuration::from_secs(10);
const TELL_AT_LAST: SignedDuration = SignedDuration::from_secs(30);

/// Time without progress before that is reported: a disk flushes its cache in less.
const STALLED: SignedDuration = SignedDuration::from_mins(10);

/// Maximum number of attempts.
pub(super) const MOST_FAILURES: i32 = 5;

/// Delay after the first failure; it triples with each further one.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// Maximum delay while no node has enough free space.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(2);

/// Returns the status in this phase: the previous one, without what no longer holds.
pub fn filling(seen: &ObservedPopulation, phase: FillingPhase) -> Filling {
    let generation = seen.source.as_ref().map_or(0, |source| source.generation);
    let before = seen.status_entry().cloned().unwrap_or_default();
    let again = before.observed_generation != generation && before.observed_generation != 0;
    let base = Filling {
        name: seen.claim.name_any(),
        uid: seen.uid().to_owned(),
        phase,
        observed_generation: generation,
        prime_claim_uid: before.prime_claim_uid,
        pre_copy: before.pre_copy,
        fence: before.fence,
        ..Filling::default()
    };
    if again {
        return base; // Another specification: failures of the previous one do not count.
    }
    Filling {
        failures: before.failures,
        next_retry_time: before.next_retry_time,
        pod_uid: before.pod_uid,
        checksum: before.checksum,
        start_time: before.start_time,
        probe_time: before.probe_time,
        ..base
    }
}

/// The time until the next try, if that has not come.
pub fn backs_off(seen: &ObservedPopulation) -> Option<SignedDuration> {
    let told = seen.status_entry()?;
    let same =
        seen.source.as_ref().is_some_and(|source| source.generation == told.observed_generation);
    let left = told.next_retry_time.as_ref().filter(|_| same)?.0.duration_since(seen.now);
    left.is_positive().then_some(left)
}

/// Writes the status, if it has changed.
pub fn say(seen: &ObservedPopulation, filling: Filling) -> Vec<PopulationStep> {
    let mut steps = Vec::new();
    let reason = filling.reason.clone();
    let is_new = seen.status_entry().is_none_or(|told| told.reason != reason);
    let known = PopulatorReason::ALL.into_iter().find(|one| Some(one.to_string()) == reason);
    if let Some(known) = known.filter(|one| one.is_told() && is_new) {
        steps.push(PopulationStep::Tell(known, filling.message.clone().unwrap_or_default()));
    }
    let shown = in_words(&filling);
    if seen.status_entry() != Some(&filling) {
        steps.push(PopulationStep::Note(Box::new(filling)));
    }
    steps.extend(show(seen, shown));
    steps
}

/// Writes the progress on the claim, if it has changed. For a swap it is in the status of the PvcAutoscaler.
pub fn show(seen: &ObservedPopulation, text: String) -> Option<PopulationStep> {
    if seen.claim.labels().contains_key(KEPT_BY) {
        return None;
    }
    let shown = seen.claim.annotations().get(SHOWN);
    (shown != Some(&text)).then_some(PopulationStep::Show(text))
}

/// Reports that it waits.
pub fn wait(
    seen: &ObservedPopulation,
    reason: PopulatorReason,
    message: &str,
) -> Vec<PopulationStep> {
    // While it waits for the next try, why the last one failed is what is to be known.
    if backs_off(seen).is_some() {
        return Vec::new();
    }
    say(seen, with_reason(filling(seen, FillingPhase::Waiting), reason, message))
}

/// Reports a missing source: there is no object with a status for it.
pub fn wait_for_source(seen: &ObservedPopulation, message: &str) -> Vec<PopulationStep> {
    let reason = PopulatorReason::PopulatorDataSourceNotFound;
    let shown = show(seen, format!("Waiting: {reason}: {message}"));
    shown
        .into_iter()
        .flat_map(|show| [PopulationStep::Tell(reason, message.to_owned()), show])
        .collect()
}

/// Reports that it has failed for good.
pub fn fail(
    seen: &ObservedPopulation,
    reason: PopulatorReason,
    message: &str,
) -> Vec<PopulationStep> {
    let mut filling = with_reason(filling(seen, FillingPhase::Failed), reason, message);
    filling.completion_time = Some(Time(seen.now));
    filling.next_retry_time = None;
    let count = PopulationStep::Count("error", seconds(seen));
    [say(seen, filling), vec![count]].concat()
}

/// Reports a failed attempt, and the time of the next one, if there is one.
pub fn retry(
    seen: &ObservedPopulation,
    pod: Option<&str>,
    reason: PopulatorReason,
    message: &str,
) -> Vec<PopulationStep> {
    let filling = filling(seen, FillingPhase::Waiting);
    let failures = filling.failures + 1;
    if failures >= MOST_FAILURES {
        let message = format!(
            "the last of {failures} attempts failed: {message}; to retry, change the source, or delete the \
                 claim and create it again"
        );
        return fail(seen, PopulatorReason::BackoffLimitExceeded, &message);
    }
    let pause = FIRST_PAUSE * 3_i32.pow(failures.unsigned_abs() - 1);
    let message = format!(
        "attempt {failures} of {MOST_FAILURES} failed: {message}; the next one is in {} s",
        pause.as_secs()
    );
    let filling = Filling {
        failures,
        next_retry_time: seen.now.checked_add(pause).ok().map(Time),
        pod_uid: pod.map(str::to_owned),
        ..with_reason(filling, reason, &message)
    };
    let told = seen.status_entry().is_some_and(|told| told.reason == filling.reason);
    // Each attempt is reported, not only the first.
    let tell = told.then_some(PopulationStep::Tell(reason, message));
    let count = PopulationStep::Count("retry", seconds(seen));
    tell.into_iter().chain(say(seen, filling)).chain([count]).collect()
}

/// Reports that another node is chosen. That is no failed attempt, but must not run without
/// delay.
pub fn reschedule(seen: &ObservedPopulation, message: &str) -> Vec<PopulationStep> {
    let filling = filling(seen, FillingPhase::Waiting);
    // What is waited for may take days: the longer it has taken, the seldomer it is tried.
    let pause = time_since(seen, filling.start_time.as_ref()) / 4;
    let pause = pause.clamp(FIRST_PAUSE, LONGEST_PAUSE);
    let next_retry_time = seen.now.checked_add(pause).ok().map(Time);
    let filling = Filling { next_retry_time, pod_uid: None, ..filling };
    say(seen, with_reason(filling, PopulatorReason::PopulatorRescheduled, message))
}

/// Returns the time for which a progress report is recent enough.
pub fn pause_of_progress(seen: &ObservedPopulation) -> SignedDuration {
    let begun = seen.status_entry().and_then(|told| told.start_time.as_ref());
    (time_since(seen, begun) / 2).clamp(TELL_AT_FIRST, TELL_AT_LAST)
}

fn time_since(seen: &ObservedPopulation, begun: Option<&Time>) -> SignedDuration {
    begun.map_or(SignedDuration::ZERO, |Time(at)| seen.now.duration_since(*at))
}

/// Reports the progress of the pod, if that is due.
pub fn progress(
    seen: &ObservedPopulation,
    pod: &str,
    progress: Option<&PodProgress>,
) -> Vec<PopulationStep> {
    let mut filling = filling(seen, FillingPhase::Populating);
    (filling.pod_uid, filling.next_retry_time) = (Some(pod.to_owned()), None);
    let told = seen.status_entry().filter(|told| told.phase == FillingPhase::Populating);
    let told = told.filter(|told| told.pod_uid == filling.pod_uid && told.reason.is_none());
    let last = told.and_then(|told| told.last_progress_time.as_ref());
    let pause = pause_of_progress(seen);
    let is_due = last.is_none_or(|last| seen.now.duration_since(last.0) >= pause);
    // Repeating an unchanged progress would hide since when it has not changed.
    let is_news =
        |new: &&PodProgress| told.is_none_or(|told| told.written_bytes != Some(counted(new.bytes)));
    match progress.filter(is_news).filter(|_| is_due) {
        Some(progress) => {
            filling.progress = Some(in_round(seen, progress));
            filling.percent = progress.percent();
            filling.written_bytes = Some(counted(progress.bytes));
            filling.total_bytes = progress.of.map(counted);
            filling.bytes_per_second = progress.rate.map(counted);
            filling.remaining_seconds = progress.left.map(counted);
            filling.last_progress_time = Some(Time(seen.now));
            say(seen, filling)
        }
        None if told.is_some() => Vec::new(),
        None => say(seen, filling),
    }
}

/// Returns why a running pod counts as stalled: its log shows the same number of bytes for long. A pod
/// without a readable log does not count.
pub fn copies_nothing(seen: &ObservedPopulation, pod: &Pod) -> Option<String> {
    let told = told_of(seen, pod).filter(|told| told.phase == FillingPhase::Populating)?;
    let progress = seen.progress.as_ref()?;
    let Time(since) = told.last_progress_time.as_ref()?;
    let stalls = seen.now.duration_since(*since) >= STALLED;
    (stalls && told.written_bytes == Some(counted(progress.bytes))).then(|| {
            let name = pod.name_any();
            format!(
                "pod {name}, which populates the volume, runs but has copied nothing since {since}, after {}: \
                 see `kubectl logs {name}` and the node of the pod",
                Bytes::new(progress.bytes)
            )
        })
}

/// Reports what holds up a pod, besides its progress. The reason of an earlier failure, or of another wait,
/// stays.
pub fn report_stall(seen: &ObservedPopulation, pod: &Pod, why: &str) -> Vec<PopulationStep> {
    let stalled = PopulatorReason::PopulatorPodPending;
    let known = seen.status_entry().and_then(|told| told.reason.as_ref());
    let is_other = known.is_some_and(|known| *known != stalled.to_string());
    if is_other && is_ending(&pod.metadata) {
        return Vec::new();
    }
    let id = uid(&pod.metadata).to_owned();
    let begun = || Filling { pod_uid: Some(id), ..filling(seen, FillingPhase::Populating) };
    let filling = told_of(seen, pod).cloned().unwrap_or_else(begun);
    say(seen, with_reason(Filling { next_retry_time: None, ..filling }, stalled, why))
}

/// Returns the status of this very pod, for the present source.
fn told_of<'a>(seen: &'a ObservedPopulation, pod: &Pod) -> Option<&'a Filling> {
    let generation = seen.source.as_ref().map(|source| source.generation);
    seen.status_entry().filter(|told| {
        told.pod_uid.as_deref() == Some(uid(&pod.metadata))
            && Some(told.observed_generation) == generation
    })
}

/// Returns the duration of the attempt so far, in seconds.
pub fn seconds(seen: &ObservedPopulation) -> i64 {
    let started = seen.status_entry().and_then(|told| told.start_time.as_ref());
    started.map_or(0, |started| seen.now.duration_since(started.0).as_secs().max(0))
}

/// Returns a count as the status has it.
pub(super) fn counted(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// With why it is so.
pub(super) fn with_reason(filling: Filling, reason: PopulatorReason, message: &str) -> Filling {
    let message = message.chars().take(LONGEST_SENTENCE).collect();
    Filling { reason: Some(reason.to_string()), message: Some(message), ..filling }
}

/// Formats the status for the claim.
pub(super) fn in_words(filling: &Filling) -> String {
    let phase = filling.phase;
    match (&filling.reason, &filling.message, &filling.progress) {
        (Some(reason), Some(message), _) => format!("{phase:?}: {reason}: {message}"),
        (_, _, Some(progress)) => format!("{phase:?}: {progress}"),
        _ => format!("{phase:?}"),
    }
}

/// Formats the progress of a pod, with the pass of a pre-copy.
fn in_round(seen: &ObservedPopulation, progress: &PodProgress) -> String {
    let passes =
        seen.status_entry().and_then(|told| told.pre_copy.as_ref()).map_or(0, |told| told.passes);
    match seen.pod.as_ref().filter(|pod| prime::is_ahead(pod)) {
        Some(_) => format!("pass {}: {progress}", passes + 1),
        None => progress.to_string(),
    }
}
