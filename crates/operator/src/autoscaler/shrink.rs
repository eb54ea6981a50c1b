//! Decides when and how far a claim shrinks automatically. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Decision, SizeDecision, Sized, after, fullest, maintenance_window, step};
use crate::api::{Autoscale, AutoscaledSize, PeakUsage, Quantity, Shrink};
use crate::autoscaler::usage::SampledUsage;
use crate::bytes::Bytes;

/// Possible usage above the last report, in percent: a node plugin reports after a change by a tenth of a
/// file system; the blocks reserved for root are not counted here; and percent are rounded down.
const UNTOLD: u64 = 12;

/// Returns the maximum usage of a claim since it fell below the threshold, including the present report.
///
/// After a window without a shrink the next one starts, if the usage is lower by now.
pub(super) fn peak(
    policy: &Autoscale,
    shrink: &Shrink,
    claim: &Sized<'_>,
    usage: SampledUsage,
    now: Timestamp,
) -> Option<PeakUsage> {
    let (percent, _) = fullest(usage);
    let percent = i32::try_from(percent).ok().filter(|percent| *percent < shrink.below_percent)?;
    let is_over = |known: &&PeakUsage| {
        after(known.since_time.0, shrink.stabilization_window) <= now
            && known.percent > percent
            && target(policy, shrink, claim).is_none()
    };
    let since = claim.peak.filter(|known| !is_over(known));
    Some(PeakUsage {
        percent: since.map_or(percent, |known| known.percent.max(percent)),
        since_time: since.map_or(Time(now), |known| known.since_time.clone()),
    })
}

/// Decides whether a claim shrinks; `says` describes its usage.
pub(super) fn decide(
    policy: &Autoscale,
    shrink: &Shrink,
    claim: &Sized<'_>,
    says: &str,
    now: Timestamp,
) -> Decision {
    let below = shrink.below_percent;
    let Some(peak) = claim.peak else {
        return Decision::stay(format!("{says}, and shrinks below {below} %"));
    };
    let most = format!("{says}; it was {} % at most since {}", peak.percent, peak.since_time.0);
    let due = after(peak.since_time.0, shrink.stabilization_window);
    if due > now {
        return Decision::stay(format!(
            "{most}, and shrinks if that stays below {below} % until {due}"
        ));
    }
    let Some(to) = target(policy, shrink, claim) else {
        return Decision::stay(format!("{most}, so less than {} would be freed", policy.min_step));
    };
    let how = format!("from {} to {to}", claim.requested);
    if let Some(until) = resting(shrink, claim, now) {
        return Decision::stay(format!(
            "{most}; it shrinks {how} when its cool-down ends, at {until}"
        ));
    }
    if !maintenance_window::is_open(shrink, now) {
        return Decision::stay(format!(
            "{most}; it shrinks {how} when that is allowed: {}",
            shrink.times()
        ));
    }
    Decision { resize: Some(SizeDecision::Shrink(to)), why: format!("{most}: it shrinks {how}") }
}

/// The size that a claim shrinks to; `None` if that is not worth it.
fn target(policy: &Autoscale, shrink: &Shrink, claim: &Sized<'_>) -> Option<Quantity> {
    let most = at_most(claim.peak?.percent.unsigned_abs().into(), claim.requested);
    let with_headroom = most.get().saturating_add(shrink.headroom.of(most).get());
    // Else it would grow again.
    let below_growth = share(most, 100, policy.grow_at_percent.unsigned_abs().into());
    let to = step::rounded_up(Bytes::new(with_headroom).max(below_growth)).max(claim.least);
    let saves = claim.requested.0.saturating_sub(to.0);
    (saves >= policy.min_step.0.max(step::UNIT)).then_some(to)
}

/// Returns the maximum usage of a claim at a reported percentage.
fn at_most(percent: u64, size: Quantity) -> Bytes {
    share(size.0, percent + UNTOLD, 100)
}

fn share(of: Bytes, part: u64, whole: u64) -> Bytes {
    let share = (u128::from(of.get()) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
    Bytes::new(u64::try_from(share).unwrap_or(u64::MAX)).min(Bytes::MAX)
}

fn resting(shrink: &Shrink, claim: &Sized<'_>, now: Timestamp) -> Option<Timestamp> {
    let until = after(last_time(claim.grown?)?, shrink.cooldown);
    Some(until).filter(|until| *until > now)
}

/// Returns the time of the last automatic resize of a claim, or of its failure.
fn last_time(grown: &AutoscaledSize) -> Option<Timestamp> {
    [&grown.decision_time, &grown.failure_time].into_iter().flatten().map(|Time(at)| *at).max()
}

/// Returns why a shrink is aborted while the pod still runs.
pub(super) fn objection(
    shrink: &Shrink,
    requested: Quantity,
    to: Quantity,
    usage: Option<SampledUsage>,
    now: Timestamp,
) -> Option<String> {
    if !maintenance_window::is_open(shrink, now) {
        return Some(format!(
            "its pod may only be stopped {}, and the swap was not ready in time",
            shrink.times()
        ));
    }
    let (percent, of) = fullest(usage.filter(|usage| usage.size > Bytes::ZERO)?);
    (at_most(percent, requested) > to.0).then(|| {
        format!("{percent} % of the {of} of its {requested} are used now, too much for {to}")
    })
}

/// Returns when the decision may change without an event: after the window, the cool-down, and at the
/// start of the hours.
pub(super) fn looks(
    shrink: &Shrink,
    peak: Option<&PeakUsage>,
    grown: Option<&AutoscaledSize>,
    now: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let window = peak.map(|peak| after(peak.since_time.0, shrink.stabilization_window));
    let rest = grown.and_then(last_time).map(|at| after(at, shrink.cooldown));
    let opens = peak.and_then(|_| maintenance_window::next_opening(shrink, now));
    window.into_iter().chain(rest).chain(opens)
}

#[cfg(test)]
mod tests;
