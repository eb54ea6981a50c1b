//! Expected downtime of a pod for a swap, from earlier swaps of the same workload. Pure.

use crate::api::LastSwap;
use crate::bytes::Bytes;
use crate::claims::pod_plan::PodPlan;
use crate::populators::not_readable_live;

/// Maximum ratio of the sizes from which the downtime is extrapolated: a downtime of seconds for some
/// files is the start of the pod, and shows nothing about a hundred times as much.
const COMPARABLE: u64 = 10;

/// Describes a known downtime, and the expected one for the size to copy.
fn sentence(pod: &str, last: &LastSwap, pause: u64, to_copy: Option<Bytes>) -> String {
    if last.pre_copy_passes > 0 {
        // How much changes until the stop is not known.
        return format!("pod {pod}, also with a pre-copy, was down for {pause} s");
    }
    let copied = last.copied_bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes::new);
    let copied = copied.filter(|bytes| *bytes > Bytes::ZERO);
    let Some(copied) = copied else { return format!("pod {pod} was down for {pause} s") };
    let known = format!("pod {pod} was down for {pause} s while {copied} were copied");
    match to_copy.and_then(|to_copy| at_most(pause, copied, to_copy)) {
        Some(seconds) => format!("downtime of up to about {}, as {known}", in_words(seconds)),
        None => known,
    }
}

/// Returns the maximum downtime in seconds, at the rate of the known one. A part of that was not for the
/// copy, so it is an upper bound: less to copy takes no longer.
fn at_most(pause: u64, copied: Bytes, to_copy: Bytes) -> Option<u64> {
    if to_copy <= copied {
        return Some(pause);
    }
    let is_comparable = to_copy.get() / COMPARABLE <= copied.get();
    let scaled = u128::from(pause) * u128::from(to_copy.get());
    let scaled = scaled.div_ceil(u128::from(copied.get()));
    u64::try_from(scaled).ok().filter(|_| is_comparable)
}

/// Formats seconds in a suitable unit, rounded up.
fn in_words(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5400 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// Returns the expected downtime, by the last swap of the workload of the same kind. `None` without one.
pub(super) fn would_pause(plan: &PodPlan<'_>) -> Option<String> {
    let ordinals = plan.seen.autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let all = ordinals.filter_map(|one| Some((one.ordinal, one.last_swap.as_ref()?)));
    let alike = all.filter(|(_, last)| (last.pre_copy_passes > 0) == is_copied_ahead(plan));
    let told = alike.filter_map(|(ordinal, last)| Some((ordinal, last, last.downtime_seconds?)));
    let (ordinal, last, pause) =
        told.max_by_key(|(_, last, _)| last.completion_time.as_ref().map(|at| at.0))?;
    let usage = plan.seen.usage.get(&plan.entry.active_claim);
    let pause = pause.unsigned_abs();
    Some(sentence(&plan.seen.pod_name(ordinal), last, pause, usage.map(|usage| usage.used)))
}

/// Returns why there is no pre-copy although it is requested.
pub(super) fn would_copy_cold(plan: &PodPlan<'_>) -> Option<String> {
    let claim = plan.seen.claim(&plan.entry.active_claim)?;
    let is_asked_for = plan.seen.autoscaler.spec.pre_copy;
    let why = not_readable_live(claim).filter(|_| is_asked_for)?;
    Some(format!("there is no pre-copy: {why}"))
}

fn is_copied_ahead(plan: &PodPlan<'_>) -> bool {
    plan.seen.autoscaler.spec.pre_copy && would_copy_cold(plan).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_concluded_from_one_that_is_comparable() {
        let mib = |mib: i64| mib << 20;
        let cold = |copied_bytes| LastSwap { copied_bytes, ..LastSwap::default() };
        let gib = Some(Bytes::gib(1));
        let of = |last: &LastSwap, to_copy| sentence("db-1", last, 42, to_copy);
        let (half, tiny) = (cold(Some(mib(512))), cold(Some(mib(1))));
        let known = "pod db-1 was down for 42 s while 512 MiB were copied";
        assert_eq!(of(&half, None), known);
        assert_eq!(of(&half, gib), format!("downtime of up to about 84 s, as {known}"));
        assert_eq!(
            of(&half, Some(Bytes::mib(1))),
            format!("downtime of up to about 42 s, as {known}")
        );
        assert_eq!(of(&tiny, gib), "pod db-1 was down for 42 s while 1 MiB were copied");
        assert_eq!(of(&cold(None), gib), "pod db-1 was down for 42 s");
        assert_eq!(of(&cold(Some(mib(0))), gib), "pod db-1 was down for 42 s");
        let hot = LastSwap { pre_copy_passes: 2, ..half };
        assert_eq!(of(&hot, gib), "pod db-1, also with a pre-copy, was down for 42 s");
    }

    #[test]
    fn a_length_of_time_is_rounded_up() {
        let words = [42, 90, 91, 420, 421, 5401, 10_000].map(in_words);
        assert_eq!(words, ["42 s", "90 s", "2 min", "7 min", "8 min", "2 h", "3 h"]);
        assert_eq!(at_most(10, Bytes::new(3), Bytes::new(4)), Some(14));
        assert_eq!(at_most(10, Bytes::new(1), Bytes::new(u64::MAX)), None);
    }
}
