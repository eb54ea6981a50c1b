//! Desired size of a claim by its usage: when it grows, when it shrinks, and to how much. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::{
    Autoscale, AutoscaledSize, OrdinalStatus, PeakUsage, PvcAutoscalerSpec, Quantity, Shrink,
};
use crate::autoscaler::usage::SampledUsage;
use crate::bytes::Bytes;

mod decision;
mod forecast;
mod maintenance_window;
mod shrink;
mod step;
pub(crate) mod usage;

pub(crate) use decision::{Decision, SizeDecision, Sized};
use decision::{after, fullest};

/// Returns the desired size: that of the template, or the later automatic size. Only a policy that says so
/// allows less than the template.
pub fn wanted(spec: &PvcAutoscalerSpec, grown: Option<&AutoscaledSize>) -> Quantity {
    let template = spec.volume_claim_template.spec.resources.requests.storage;
    let least = spec.autoscale.as_ref().and_then(|policy| policy.shrink.as_ref()?.min_size);
    let since = grown.filter(|grown| grown.template_size == template);
    since.map_or(template, |grown| grown.size.max(template.min(least.unwrap_or(template))))
}

/// Decides whether to resize a claim. Without a current usage sample there is no decision.
pub(crate) fn decide(policy: &Autoscale, claim: &Sized<'_>, now: Timestamp) -> Decision {
    if let Some(words) = claim.refusal {
        return after_refusal(policy, claim, words);
    }
    if claim.requested > claim.capacity {
        return Decision::stay(format!("its volume is growing to {}", claim.requested));
    }
    let with_others = claim.others.min(policy.max_size);
    if policy.uniform_size && with_others > claim.requested {
        let why = format!(
            "another claim of the workload has {}, and all grow together: it grows from {} to {with_others}",
            claim.others, claim.requested
        );
        return Decision { resize: Some(SizeDecision::Grow(with_others)), why };
    }
    match sample(claim) {
        Ok(usage) => by_use(policy, claim, usage, now),
        Err(missing) => Decision::stay(format!("no decision: {missing}")),
    }
}

/// Returns the current usage of a claim, or why it is unknown.
fn sample(claim: &Sized<'_>) -> Result<SampledUsage, String> {
    if let Some(node) = claim.silent {
        return Err(format!(
            "the node plugin of node {node} is not responding, so the usage of the volume is \
                            unknown"
        ));
    }
    let usage = claim.usage.filter(|usage| usage.size > Bytes::ZERO);
    let usage = usage.ok_or_else(|| "its node has not reported its usage".to_owned())?;
    // From before it grew: a node reports again as soon as the file system has its new size. Times in
    // objects are in whole seconds.
    let grown_at = claim.grown.and_then(|grown| grown.decision_time.as_ref());
    if grown_at.is_some_and(|Time(at)| *at >= usage.at) {
        return Err("its node has not reported its usage since it grew".to_owned());
    }
    Ok(usage)
}

fn by_use(policy: &Autoscale, claim: &Sized<'_>, usage: SampledUsage, now: Timestamp) -> Decision {
    let (percent, of) = fullest(usage);
    let limit = policy.grow_at_percent.unsigned_abs().into();
    let says = format!("{percent} % of its {of} are used");
    let fills = policy.grow_before_full.filter(|within| {
        let left = forecast::until_full(usage, now);
        left.is_some_and(|left| left < SignedDuration::try_from(within.0).unwrap_or_default())
    });
    let says = match (fills, policy.grow_before_full) {
        (Some(within), _) => {
            format!("{says}, and at the present rate it would be full within {within}")
        }
        (None, _) if percent >= limit => says,
        (None, Some(within)) => {
            format!("{says}; it grows at {limit} % or {within} before it is full")
        }
        (None, None) => format!("{says}; it grows at {limit} %"),
    };
    if fills.is_none() && percent < limit {
        return match shrink_of(policy) {
            Some(shrink) => shrink::decide(policy, shrink, claim, &says, now),
            None => Decision::stay(says),
        };
    }
    if claim.requested >= policy.max_size {
        return Decision::stay(format!(
            "{says}, and {} is the largest size that spec.autoscale.maxSize allows",
            policy.max_size
        ));
    }
    if let Some(until) = resting(policy, claim.grown, now) {
        return Decision::stay(format!(
            "{says}; it has grown, and its cool-down lasts until {until}"
        ));
    }
    let to = step::next(policy, claim.requested);
    let because = step::because(policy, claim.requested);
    let why = format!("{says}: it grows from {} to {to}{because}", claim.requested);
    Decision { resize: Some(SizeDecision::Grow(to)), why }
}

/// Decides after an expansion failed for lack of free space.
fn after_refusal(policy: &Autoscale, claim: &Sized<'_>, words: &str) -> Decision {
    let (has, wants) = (claim.capacity, claim.requested);
    let is_own = claim.grown.is_some_and(|grown| grown.size == wants);
    // Of those that are to be of one size none makes do with less: the others could not follow.
    let less = step::halved(policy, has, wants).filter(|_| is_own && !policy.uniform_size);
    match less {
        Some(to) => Decision {
            resize: Some(SizeDecision::Lower(to)),
            why: format!("it cannot grow to {wants}: {words}; half of the step is tried, {to}"),
        },
        None => Decision::stay(format!(
            "it has {has} and cannot grow to {wants}, and this is retried: {words}"
        )),
    }
}

/// Returns the recent maximum usage of a claim that may shrink; `None` where none may, or where the
/// window starts again.
pub(crate) fn peak(policy: &Autoscale, claim: &Sized<'_>, now: Timestamp) -> Option<PeakUsage> {
    let shrink = shrink_of(policy)?;
    let usage = sample(claim).ok().filter(|_| claim.requested <= claim.capacity)?;
    shrink::peak(policy, shrink, claim, usage, now)
}

/// Returns why an automatic shrink is aborted while the pod still runs.
pub(crate) fn objection(
    policy: &Autoscale,
    (from, to): (Quantity, Quantity),
    usage: Option<SampledUsage>,
    now: Timestamp,
) -> Option<String> {
    shrink::objection(shrink_of(policy)?, from, to, usage, now)
}

/// Returns when a decision about a claim may change without an event.
pub(crate) fn next_look(
    policy: &Autoscale,
    entry: &OrdinalStatus,
    now: Timestamp,
) -> Option<Timestamp> {
    let grown = entry.autoscaled_size.as_ref();
    let rest =
        grown.and_then(|grown| Some(after(grown.decision_time.as_ref()?.0, policy.cooldown)));
    let shrinks = shrink_of(policy)
        .into_iter()
        .flat_map(|shrink| shrink::looks(shrink, entry.peak_usage.as_ref(), grown, now));
    rest.into_iter().chain(shrinks).filter(|at| *at > now).min()
}

/// Returns the shrink policy. Claims of uniform size do not shrink automatically: none could alone.
fn shrink_of(policy: &Autoscale) -> Option<&Shrink> {
    policy.shrink.as_ref().filter(|_| !policy.uniform_size)
}

fn resting(
    policy: &Autoscale,
    grown: Option<&AutoscaledSize>,
    now: Timestamp,
) -> Option<Timestamp> {
    let Time(at) = grown?.decision_time.as_ref()?;
    Some(after(*at, policy.cooldown)).filter(|until| *until > now)
}

#[cfg(test)]
mod tests;
