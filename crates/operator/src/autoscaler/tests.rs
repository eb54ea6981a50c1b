//! What is decided about the size of claims: growth, rest, refusals, and claims that grow together.

use crate::autoscaler::usage::UsedBefore;
use serde_json::{Value, json};

use super::*;

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(super) fn size(text: &str) -> Quantity {
    Quantity(text.parse().unwrap())
}

pub(super) fn policy(more: &Value) -> Autoscale {
    let mut all = json!({"maxSize": "100Gi", "maxStep": "20Gi"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

/// So much is used, in percent.
pub(super) fn usage(used: u64, inodes_used: u64) -> SampledUsage {
    let (size, used) = (Bytes::new(100), Bytes::new(used));
    let inodes_used = inodes_used * 10;
    SampledUsage { at: Timestamp::MAX, size, used, inodes: 1000, inodes_used, before: None }
}

pub(super) fn sized(has: &str, usage: Option<SampledUsage>) -> Sized<'static> {
    Sized {
        requested: size(has),
        capacity: size(has),
        grown: None,
        usage,
        silent: None,
        refusal: None,
        others: Quantity::default(),
        peak: None,
        least: size("1Gi"),
    }
}

#[test]
fn it_grows_by_steps_when_it_is_full_and_never_without_a_sample() {
    let now = at("2026-01-01T00:00:00Z");
    let blind = SampledUsage { inodes: 0, inodes_used: 0, ..usage(10, 0) };
    for (has, usage, to, says) in [
        ("4Gi", None, None, "has not reported"),
        ("4Gi", Some(SampledUsage::default()), None, "has not reported"),
        ("4Gi", Some(usage(79, 0)), None, "79 % of its bytes are used; it grows at 80 %"),
        ("4Gi", Some(usage(80, 0)), Some("5Gi"), "from 4Gi to 5Gi"),
        ("40Gi", Some(usage(95, 0)), Some("50Gi"), "from 40Gi to 50Gi"),
        ("90Gi", Some(usage(95, 0)), Some("100Gi"), "to 100Gi"),
        (
            "100Gi",
            Some(usage(99, 0)),
            None,
            "100Gi is the largest size that spec.autoscale.maxSize",
        ),
        ("4Gi", Some(usage(10, 90)), Some("5Gi"), "90 % of its inodes"),
        ("4Gi", Some(blind), None, "10 % of its bytes"),
    ] {
        let decided = decide(&policy(&json!({})), &sized(has, usage), now);
        assert_eq!(decided.resize, to.map(size).map(SizeDecision::Grow), "{decided:?}");
        assert!(decided.why.contains(says), "{decided:?}");
    }
}

#[test]
fn it_rests_after_it_has_grown_and_waits_while_it_grows() {
    let then = at("2026-01-01T00:00:00Z");
    let grown = AutoscaledSize {
        size: size("5Gi"),
        template_size: size("4Gi"),
        decision_time: Some(Time(then)),
        failure_time: None,
    };
    let claim = Sized { grown: Some(&grown), ..sized("5Gi", Some(usage(90, 0))) };
    let later = |seconds| then.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    let policy = policy(&json!({}));
    let rests = decide(&policy, &claim, later(299));
    assert_eq!(rests.resize, None);
    assert!(rests.why.ends_with("its cool-down lasts until 2026-01-01T00:05:00Z"), "{rests:?}");
    let after = decide(&policy, &claim, later(300));
    assert_eq!(after.resize, Some(SizeDecision::Grow(size("6400Mi"))));
    let growing = Sized { capacity: size("4Gi"), ..claim };
    assert_eq!(decide(&policy, &growing, later(300)).resize, None);
    let old = SampledUsage { at: later(-1), ..usage(90, 0) };
    let decided = decide(&policy, &Sized { usage: Some(old), ..claim }, later(300));
    assert_eq!(decided.resize, None);
    assert!(decided.why.contains("since it grew"), "{decided:?}");
    let silent = Sized { silent: Some("alpha"), ..claim };
    let decided = decide(&policy, &silent, later(300));
    assert_eq!(decided.resize, None);
    assert!(decided.why.contains("the node plugin of node alpha is not responding"), "{decided:?}");
}

#[test]
fn who_fills_fast_is_grown_before() {
    let now = at("2026-01-01T12:00:00Z");
    // From so many percent at noon less so many hours.
    let filled = |from: u64, hours: i64, to: u64| {
        let before = UsedBefore {
            at: now - SignedDuration::from_hours(hours),
            used: Bytes::new(from),
            inodes_used: 0,
        };
        SampledUsage { at: now, before: Some(before), ..usage(to, 0) }
    };
    let within = policy(&json!({"growBeforeFull": "6h"}));
    for (policy, usage, grows, says) in [
        (
            &within,
            filled(50, 1, 60),
            true,
            "at the present rate it would be full within 6h: it grows",
        ),
        (&within, filled(50, 2, 60), false, "it grows at 80 % or 6h before it is full"),
        (&within, filled(60, 1, 50), false, "it grows at 80 %"),
        (&within, usage(60, 0), false, "it grows at 80 %"),
        (&within, usage(80, 0), true, "80 % of its bytes are used: it grows"),
        (&policy(&json!({})), filled(50, 1, 60), false, "it grows at 80 %"),
        (&policy(&json!({"growBeforeFull": "0s"})), filled(10, 1, 79), false, "it grows at 80 %"),
    ] {
        let decided = decide(policy, &sized("4Gi", Some(usage)), now);
        let to = grows.then(|| SizeDecision::Grow(size("5Gi")));
        assert_eq!(decided.resize, to, "{decided:?}");
        assert!(decided.why.contains(says), "{decided:?}");
    }
    let fast = sized("4Gi", Some(filled(50, 1, 60)));
    let quiet = now + SignedDuration::from_hours(1);
    assert_eq!(decide(&within, &fast, quiet).resize, None, "it has stopped to write");
}

#[test]
fn what_there_is_no_room_for_is_halved_if_it_was_decided_here() {
    let now = at("2026-01-01T12:00:00Z");
    let own = |to: &str| AutoscaledSize {
        size: size(to),
        template_size: size("4Gi"),
        decision_time: None,
        failure_time: None,
    };
    let asked = |has: &str, wants: &str| Sized {
        requested: size(wants),
        refusal: Some("no room"),
        ..sized(has, Some(usage(90, 0)))
    };
    let (large, small, other) = (own("20Gi"), own("4608Mi"), own("9Gi"));
    let (policy, together) = (policy(&json!({})), policy(&json!({"uniformSize": true})));
    for (policy, claim, to) in [
        (&policy, Sized { grown: Some(&large), ..asked("4Gi", "20Gi") }, Some("12Gi")),
        (&policy, Sized { grown: Some(&small), ..asked("4Gi", "4608Mi") }, None),
        (&policy, Sized { grown: Some(&other), ..asked("4Gi", "20Gi") }, None),
        (&policy, asked("4Gi", "20Gi"), None),
        (&together, Sized { grown: Some(&large), ..asked("4Gi", "20Gi") }, None),
    ] {
        let decided = decide(policy, &claim, now);
        assert_eq!(decided.resize, to.map(size).map(SizeDecision::Lower), "{claim:?}");
        assert!(decided.why.contains("no room"), "{decided:?}");
    }
}

#[test]
fn those_that_grow_together_follow_the_largest() {
    let now = at("2026-01-01T12:00:00Z");
    let (alone, together) = (policy(&json!({})), policy(&json!({"uniformSize": true})));
    for (policy, others, to) in [
        (&together, "8Gi", Some("8Gi")),
        (&together, "200Gi", Some("100Gi")),
        (&together, "4Gi", None),
        (&together, "2Gi", None),
        (&alone, "8Gi", None),
    ] {
        let claim = Sized { others: size(others), ..sized("4Gi", None) };
        let decided = decide(policy, &claim, now);
        assert_eq!(decided.resize, to.map(size).map(SizeDecision::Grow), "{decided:?}");
    }
}

#[test]
fn the_template_is_the_least_unless_the_policy_says_so() {
    let spec = |template: &str, shrink: Value| -> PvcAutoscalerSpec {
        let spec = json!({
            "statefulSetName": "db", "autoscale": {"maxSize": "100Gi", "shrink": shrink},
            "volumeClaimTemplate": {"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": template}}}},
        });
        serde_json::from_value(spec).unwrap()
    };
    for (template, shrink, grown, size_wanted) in [
        ("4Gi", Value::Null, None, "4Gi"),
        ("4Gi", Value::Null, Some("8Gi"), "8Gi"),
        ("3Gi", Value::Null, Some("8Gi"), "3Gi"),
        ("4Gi", json!({}), Some("2Gi"), "4Gi"),
        ("4Gi", json!({"minSize": "1Gi"}), Some("2Gi"), "2Gi"),
        ("4Gi", json!({"minSize": "3Gi"}), Some("2Gi"), "3Gi"),
        ("4Gi", json!({"minSize": "1Gi"}), None, "4Gi"),
        ("4Gi", json!({"minSize": "6Gi"}), Some("5Gi"), "5Gi"),
    ] {
        let grown = grown.map(|to| AutoscaledSize {
            size: size(to),
            template_size: size("4Gi"),
            decision_time: None,
            failure_time: None,
        });
        let found = wanted(&spec(template, shrink.clone()), grown.as_ref());
        assert_eq!(found, size(size_wanted), "{template} {shrink} {grown:?}");
    }
}

#[test]
fn it_is_looked_again_when_a_rest_or_a_window_is_over() {
    let now = at("2026-12-05T12:00:00Z");
    let entry = |grown: Option<&str>, peak: Option<&str>| {
        let (to, from) = (size("8Gi"), size("4Gi"));
        let grown = grown.map(|then| AutoscaledSize {
            size: to,
            template_size: from,
            decision_time: Some(Time(at(then))),
            failure_time: None,
        });
        let peak = peak.map(|then| PeakUsage { percent: 10, since_time: Time(at(then)) });
        OrdinalStatus { autoscaled_size: grown, peak_usage: peak, ..OrdinalStatus::default() }
    };
    let plain = policy(&json!({}));
    let shrinks =
        policy(&json!({"shrink": {"maintenanceWindow": {"start": "01:00", "end": "05:00"}}}));
    let recent = Some("2026-12-05T11:58:00Z");
    for (policy, entry, due) in [
        (&plain, entry(None, None), None),
        (&plain, entry(recent, recent), Some("2026-12-05T12:03:00Z")),
        (&plain, entry(Some("2026-12-05T11:00:00Z"), None), None),
        (&shrinks, entry(None, None), None),
        (&shrinks, entry(None, recent), Some("2026-12-06T01:00:00Z")),
        (&shrinks, entry(None, Some("2026-12-04T13:00:00Z")), Some("2026-12-05T13:00:00Z")),
        (&shrinks, entry(Some("2026-11-28T12:30:00Z"), None), Some("2026-12-05T12:30:00Z")),
    ] {
        assert_eq!(next_look(policy, &entry, now), due.map(at), "{entry:?}");
    }
}
