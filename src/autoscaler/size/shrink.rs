//! When a claim becomes smaller by itself, and how small. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Decision, Resize, Sized, after, fullest, hours, step};
use crate::api::{Autoscale, Grown, Peak, Quantity, Shrink};
use crate::autoscaler::seen::Usage;
use crate::bytes::Bytes;

/// How much fuller than it has told a node may have seen a claim, in percent: an agent tells when a tenth
/// of a file system has come, of which what is kept for root is not among the bytes that count here; and
/// percent are rounded down.
const UNTOLD: u64 = 12;

/// How full a claim has been at most since it was less full than the policy says: what is known of that,
/// and what its node says now.
///
/// After a window that was of no use the next one begins, if the claim is less full by now.
pub(super) fn peak(
    policy: &Autoscale,
    shrink: &Shrink,
    claim: &Sized<'_>,
    usage: Usage,
    now: Timestamp,
) -> Option<Peak> {
    let (percent, _) = fullest(usage);
    let percent = i32::try_from(percent).ok().filter(|percent| *percent < shrink.below)?;
    let is_over = |known: &&Peak| {
        after(known.since.0, shrink.window) <= now
            && known.percent > percent
            && target(policy, shrink, claim).is_none()
    };
    let since = claim.peak.filter(|known| !is_over(known));
    Some(Peak {
        percent: since.map_or(percent, |known| known.percent.max(percent)),
        since: since.map_or(Time(now), |known| known.since.clone()),
    })
}

/// Decide whether a claim that is not full shrinks; `says` is how full it is.
pub(super) fn decide(
    policy: &Autoscale,
    shrink: &Shrink,
    claim: &Sized<'_>,
    says: &str,
    now: Timestamp,
) -> Decision {
    let below = shrink.below;
    let Some(peak) = claim.peak else {
        return Decision::stay(format!("{says}, and shrinks below {below} %"));
    };
    let most = format!("{says}; it was {} % at most since {}", peak.percent, peak.since.0);
    let due = after(peak.since.0, shrink.window);
    if due > now {
        return Decision::stay(format!(
            "{most}, and shrinks if that stays below {below} % until {due}"
        ));
    }
    let Some(to) = target(policy, shrink, claim) else {
        return Decision::stay(format!(
            "{most}, so there is less than {} to give back",
            policy.min_step
        ));
    };
    let how = format!("from {} to {to}", claim.requested);
    if let Some(until) = resting(shrink, claim, now) {
        return Decision::stay(format!("{most}; it shrinks {how} when it has rested, at {until}"));
    }
    if !hours::is_open(shrink, now) {
        return Decision::stay(format!("{most}; it shrinks {how} when it may: {}", shrink.times()));
    }
    Decision { resize: Some(Resize::Shrink(to)), why: format!("{most}: it shrinks {how}") }
}

/// The size that a claim shrinks to; `None` if that is not worth it.
fn target(policy: &Autoscale, shrink: &Shrink, claim: &Sized<'_>) -> Option<Quantity> {
    let most = at_most(claim.peak?.percent.unsigned_abs().into(), claim.requested);
    let with_headroom = most.get().saturating_add(shrink.headroom.of(most).get());
    // Else it would grow again.
    let below_growth = share(most, 100, policy.grow_at.unsigned_abs().into());
    let to = step::rounded_up(Bytes::new(with_headroom).max(below_growth)).max(claim.least);
    let saves = claim.requested.0.saturating_sub(to.0);
    (saves >= policy.min_step.0.max(step::UNIT)).then_some(to)
}

/// How much may be used of a claim of which its node has told so many percent.
fn at_most(percent: u64, size: Quantity) -> Bytes {
    share(size.0, percent + UNTOLD, 100)
}

fn share(of: Bytes, part: u64, whole: u64) -> Bytes {
    let share = (u128::from(of.get()) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
    Bytes::new(u64::try_from(share).unwrap_or(u64::MAX)).min(Bytes::MAX)
}

fn resting(shrink: &Shrink, claim: &Sized<'_>, now: Timestamp) -> Option<Timestamp> {
    let until = after(last_time(claim.grown?)?, shrink.cool_down);
    Some(until).filter(|until| *until > now)
}

/// When a claim has last come to another size by itself, or could not.
fn last_time(grown: &Grown) -> Option<Timestamp> {
    [&grown.at, &grown.failure_time].into_iter().flatten().map(|Time(at)| *at).max()
}

/// Why a shrink that was begun is given up, while the pod still runs.
pub(super) fn objection(
    shrink: &Shrink,
    requested: Quantity,
    to: Quantity,
    usage: Option<Usage>,
    now: Timestamp,
) -> Option<String> {
    if !hours::is_open(shrink, now) {
        return Some(format!(
            "its pod may only be stopped {}, and it was not ready for that in time",
            shrink.times()
        ));
    }
    let (percent, of) = fullest(usage.filter(|usage| usage.size > Bytes::ZERO)?);
    (at_most(percent, requested) > to.0).then(|| {
        format!("{percent} % of the {of} of its {requested} are used by now, too much for {to}")
    })
}

/// When there may be something to decide without a change: after the window, the rest, and when the hours
/// begin.
pub(super) fn looks(
    shrink: &Shrink,
    peak: Option<&Peak>,
    grown: Option<&Grown>,
    now: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let window = peak.map(|peak| after(peak.since.0, shrink.window));
    let rest = grown.and_then(last_time).map(|at| after(at, shrink.cool_down));
    let opens = peak.and_then(|_| hours::next_opening(shrink, now));
    window.into_iter().chain(rest).chain(opens)
}

#[cfg(test)]
mod tests;
