//! How large a claim is to be. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::{Autoscale, Grown, Quantity};
use crate::autoscaler::seen::Usage;
use crate::bytes::Bytes;

/// What is decided about the size of a claim, and why, in a sentence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decision {
    /// The size that it grows to; `None` if it stays as it is.
    pub to: Option<Quantity>,
    pub why: String,
}

/// A claim whose size is decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sized<'a> {
    /// What it asks for.
    pub requested: Quantity,
    /// What it has.
    pub capacity: Quantity,
    /// What it was last let grow to.
    pub grown: Option<&'a Grown>,
    /// What its node said of it.
    pub usage: Option<Usage>,
}

/// The size that is wanted: that of the template, or the larger one that it has grown to since that was
/// written.
pub(crate) fn wanted(template: Quantity, grown: Option<&Grown>) -> Quantity {
    let since = grown.filter(|grown| grown.from == template);
    since.map_or(template, |grown| grown.to.max(template))
}

/// Decide whether a claim grows. Without a sample of it as it is now nothing is decided.
pub(super) fn decide(policy: &Autoscale, claim: Sized<'_>, now: Timestamp) -> Decision {
    let stay = |why: String| Decision { to: None, why };
    if claim.requested > claim.capacity {
        return stay(format!("its volume is growing to {}", claim.requested));
    }
    let Some(usage) = claim.usage.filter(|usage| usage.size > Bytes::ZERO) else {
        return stay("nothing is decided: its node has not told how full it is".to_owned());
    };
    // Of before it grew: a node tells anew as soon as the file system has its new size.
    let grown_at = claim.grown.and_then(|grown| grown.at.as_ref());
    if grown_at.is_some_and(|Time(at)| *at > usage.at) {
        return stay(
            "nothing is decided: its node has not told how full it is since it grew".to_owned(),
        );
    }
    let (percent, of) = fullest(usage);
    let limit = policy.grow_at.unsigned_abs().into();
    if percent < limit {
        return stay(format!("{percent} % of its {of} are used; it grows at {limit} %"));
    }
    if claim.requested >= policy.max_size {
        return stay(format!(
            "{percent} % of its {of} are used, and {} is the largest that spec.autoscale.maxSize lets \
             it be",
            policy.max_size
        ));
    }
    if let Some(until) = resting(policy, claim.grown, now) {
        return stay(format!(
            "{percent} % of its {of} are used; it has grown, and rests until {until}"
        ));
    }
    let to = next_size(policy, claim.requested);
    let why =
        format!("{percent} % of its {of} are used: it grows from {} to {to}", claim.requested);
    Decision { to: Some(to), why }
}

/// What is used most, in percent: bytes or inodes. A file system that does not count its inodes has none.
fn fullest(usage: Usage) -> (u64, &'static str) {
    let percent = |used: u64, of: u64| {
        let percent = u128::from(used) * 100 / u128::from(of.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    };
    let bytes = percent(usage.used.get(), usage.size.get());
    match usage.inodes {
        0 => (bytes, "bytes"),
        inodes => {
            let inodes = percent(usage.inodes_used, inodes);
            if inodes > bytes { (inodes, "inodes") } else { (bytes, "bytes") }
        }
    }
}

fn resting(policy: &Autoscale, grown: Option<&Grown>, now: Timestamp) -> Option<Timestamp> {
    let Time(at) = grown?.at.as_ref()?;
    let pause = SignedDuration::try_from(policy.cool_down.0).ok()?;
    at.checked_add(pause).ok().filter(|until| *until > now)
}

fn next_size(policy: &Autoscale, requested: Quantity) -> Quantity {
    let by = u128::from(requested.0.get()) * u128::from(policy.grow_by.unsigned_abs()) / 100;
    let by = Bytes::new(u64::try_from(by).unwrap_or(u64::MAX)).max(policy.min_step.0);
    let by = policy.max_step.map_or(by, |most| by.min(most.0));
    let to = requested.0.get().saturating_add(by.get()).next_multiple_of(Bytes::mib(1).get());
    Quantity(Bytes::new(to)).min(policy.max_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GIB: u64 = 1 << 30;

    fn policy() -> Autoscale {
        serde_json::from_value(json!({"maxSize": "100Gi", "maxStep": "20Gi"})).unwrap()
    }

    fn usage(used: u64, inodes_used: u64) -> Usage {
        let (size, used) = (Bytes::new(100), Bytes::new(used));
        Usage { at: Timestamp::MAX, size, used, inodes: 1000, inodes_used }
    }

    fn sized(gib: u64, usage: Option<Usage>) -> Sized<'static> {
        let size = Quantity(Bytes::new(gib * GIB));
        Sized { requested: size, capacity: size, grown: None, usage }
    }

    #[test]
    fn it_grows_by_steps_when_it_is_full_and_never_without_a_sample() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let blind = Usage { inodes: 0, inodes_used: 0, ..usage(10, 0) };
        for (gib, usage, to, says) in [
            (4, None, None, "has not told"),
            (4, Some(Usage::default()), None, "has not told"),
            (4, Some(usage(79, 0)), None, "79 % of its bytes"),
            (4, Some(usage(80, 0)), Some(5), "from 4Gi to 5Gi"),
            (40, Some(usage(95, 0)), Some(50), "from 40Gi to 50Gi"),
            (90, Some(usage(95, 0)), Some(100), "to 100Gi"),
            (100, Some(usage(99, 0)), None, "the largest"),
            (4, Some(usage(10, 900)), Some(5), "90 % of its inodes"),
            (4, Some(blind), None, "10 % of its bytes"),
        ] {
            let decided = decide(&policy(), sized(gib, usage), now);
            assert_eq!(
                decided.to,
                to.map(|gib: u64| Quantity(Bytes::new(gib * GIB))),
                "{decided:?}"
            );
            assert!(decided.why.contains(says), "{decided:?}");
        }
        let big = decide(
            &Autoscale { max_size: Quantity(Bytes::gib(999)), ..policy() },
            sized(200, Some(usage(90, 0))),
            now,
        );
        assert_eq!(big.to, Some(Quantity(Bytes::gib(220))), "no step is larger than 20 GiB");
    }

    #[test]
    fn it_rests_after_it_has_grown_and_waits_while_it_grows() {
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let size = |gib| Quantity(Bytes::gib(gib));
        let grown = Grown { to: size(5), from: size(4), at: Some(Time(at)) };
        let claim = Sized { grown: Some(&grown), ..sized(5, Some(usage(90, 0))) };
        let after = |seconds| at.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        assert_eq!(decide(&policy(), claim, after(299)).to, None);
        assert_eq!(
            decide(&policy(), claim, after(300)).to,
            Some(size(7).min(Quantity(Bytes::mib(6400))))
        );
        let growing = Sized { capacity: size(4), ..claim };
        assert_eq!(decide(&policy(), growing, after(300)).to, None);
        let old = Usage { at: after(-1), ..usage(90, 0) };
        assert_eq!(decide(&policy(), Sized { usage: Some(old), ..claim }, after(300)).to, None);
        assert_eq!(wanted(size(4), Some(&grown)), size(5));
        assert_eq!(wanted(size(3), Some(&grown)), size(3), "the template was edited since");
        assert_eq!(wanted(size(3), None), size(3));
    }
}
