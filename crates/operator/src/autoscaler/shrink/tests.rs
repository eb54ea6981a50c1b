//! When claims become smaller by themselves, and how small.

use serde_json::{Value, json};

use super::*;
use crate::autoscaler::tests::{at, policy, size, sized, usage};
use crate::autoscaler::{decide, objection, peak};

/// Shrinks after a day, and a week after the last time.
fn shrinks(more: &Value) -> Autoscale {
    policy(&json!({ "shrink": more }))
}

fn peak_of(percent: i32, since: &str) -> PeakUsage {
    PeakUsage { percent, since_time: Time(at(since)) }
}

#[test]
fn the_most_that_was_used_counts_until_a_window_begins_anew() {
    let now = at("2026-12-05T12:00:00Z");
    let (recent, long_ago) = ("2026-12-05T00:00:00Z", "2026-12-01T00:00:00Z");
    let always = shrinks(&json!({}));
    let known = Some(peak_of(20, recent));
    for (has, known, usage, expected) in [
        ("20Gi", None, Some(usage(10, 0)), Some((10, now))),
        ("20Gi", None, Some(usage(39, 0)), Some((39, now))),
        ("20Gi", None, Some(usage(40, 0)), None),
        ("20Gi", None, Some(usage(10, 40)), None),
        ("20Gi", known.clone(), Some(usage(10, 0)), Some((20, at(recent)))),
        ("20Gi", known.clone(), Some(usage(10, 30)), Some((30, at(recent)))),
        ("20Gi", known.clone(), Some(usage(40, 0)), None),
        ("20Gi", known.clone(), None, None),
        // There was nothing to give back in a whole window: the next one may have more.
        ("2Gi", Some(peak_of(30, long_ago)), Some(usage(10, 0)), Some((10, now))),
        ("2Gi", Some(peak_of(30, long_ago)), Some(usage(30, 0)), Some((30, at(long_ago)))),
        ("20Gi", Some(peak_of(30, long_ago)), Some(usage(10, 0)), Some((30, at(long_ago)))),
    ] {
        let claim = Sized { peak: known.as_ref(), ..sized(has, usage) };
        let expected = expected.map(|(percent, at)| PeakUsage { percent, since_time: Time(at) });
        assert_eq!(peak(&always, &claim, now), expected, "{claim:?}");
    }
    let claim = sized("20Gi", Some(usage(10, 0)));
    assert_eq!(peak(&policy(&json!({})), &claim, now), None, "none shrinks");
    let growing = Sized { capacity: size("10Gi"), ..claim };
    assert_eq!(peak(&always, &growing, now), None);
    let both = policy(&json!({"uniformSize": true, "shrink": {}}));
    assert_eq!(peak(&both, &claim, now), None, "those that grow together do not shrink");
}

#[test]
fn a_claim_shrinks_to_what_was_used_and_its_headroom() {
    let now = at("2026-12-05T12:00:00Z");
    let long_ago = "2026-12-01T00:00:00Z";
    for (more, has, percent, to) in [
        // 22 % of 100 GiB may be used, and half of that besides.
        (json!({}), "100Gi", 10, Some("33Gi")),
        (json!({}), "100Gi", 0, Some("18Gi")),
        (json!({"headroom": "100%"}), "100Gi", 10, Some("44Gi")),
        (json!({"headroom": "10Gi"}), "100Gi", 10, Some("32Gi")),
        // Never so small that it would grow again.
        (json!({"headroom": "1%"}), "100Gi", 10, Some("28160Mi")),
        (json!({"minSize": "50Gi"}), "100Gi", 10, Some("50Gi")),
        (json!({"minSize": "100Gi"}), "100Gi", 10, None),
        (json!({"belowPercent": 90}), "100Gi", 60, None),
        (json!({"belowPercent": 90, "headroom": "1Gi"}), "100Gi", 66, Some("99840Mi")),
        // Less than the smallest step is not worth a restart.
        (json!({}), "1500Mi", 10, None),
        (json!({}), "2Gi", 10, None),
        (json!({"minSize": "100Mi"}), "2Gi", 10, Some("676Mi")),
    ] {
        let policy = shrinks(&more);
        let peak = peak_of(percent, long_ago);
        let shrink = policy.shrink.as_ref().unwrap();
        let least = shrink.min_size.unwrap_or(size("1200Mi"));
        let claim = Sized { peak: Some(&peak), least, ..sized(has, Some(usage(5, 0))) };
        let decided = decide(&policy, &claim, now);
        assert_eq!(decided.resize, to.map(size).map(SizeDecision::Shrink), "{more} {decided:?}");
    }
}

#[test]
fn a_claim_shrinks_after_its_window_and_its_rest_in_its_hours() {
    let now = at("2026-12-05T12:00:00Z");
    let (recent, long_ago) = ("2026-12-05T00:00:00Z", "2026-12-01T00:00:00Z");
    let grown = |then: &str| AutoscaledSize {
        size: size("100Gi"),
        template_size: size("4Gi"),
        decision_time: Some(Time(at(then))),
        failure_time: None,
    };
    let failed = AutoscaledSize {
        failure_time: Some(Time(at("2026-12-01T00:00:00Z"))),
        decision_time: None,
        ..grown(long_ago)
    };
    let (late, early) = (grown("2026-11-30T00:00:00Z"), grown("2026-11-01T00:00:00Z"));
    let nights = json!({"maintenanceWindow": {"start": "01:00", "end": "05:00"}});
    for (more, percent, since, grown, acts, says) in [
        (json!({}), 10, recent, None, false, "stays below 40 % until 2026-12-06T00:00:00Z"),
        (
            json!({}),
            10,
            long_ago,
            None,
            true,
            "10 % at most since 2026-12-01T00:00:00Z: it shrinks",
        ),
        (
            json!({}),
            10,
            long_ago,
            Some(&late),
            false,
            "its cool-down ends, at 2026-12-07T00:00:00Z",
        ),
        (json!({}), 10, long_ago, Some(&early), true, "it shrinks from 100Gi to 33Gi"),
        (
            json!({}),
            10,
            long_ago,
            Some(&failed),
            false,
            "its cool-down ends, at 2026-12-08T00:00:00Z",
        ),
        (nights, 10, long_ago, None, false, "when that is allowed: every day 01:00-05:00 UTC"),
        (
            json!({"maintenanceWindow": {"start": "11:00", "end": "13:00"}}),
            10,
            long_ago,
            None,
            true,
            "it shrinks",
        ),
        (
            json!({"maintenanceWindow": {"days": ["Mon"]}}),
            10,
            long_ago,
            None,
            false,
            "when that is allowed: Mon, by UTC",
        ),
        (json!({"minSize": "100Gi"}), 10, long_ago, None, false, "less than 1Gi would be freed"),
    ] {
        let policy = shrinks(&more);
        let peak = peak_of(percent, since);
        let least = policy.shrink.as_ref().unwrap().min_size.unwrap_or(size("1Gi"));
        let claim = Sized { peak: Some(&peak), grown, least, ..sized("100Gi", Some(usage(5, 0))) };
        let decided = decide(&policy, &claim, now);
        assert_eq!(decided.resize.is_some(), acts, "{more} {decided:?}");
        assert!(decided.why.contains(says), "{more} {decided:?}");
    }
    let full = Sized { peak: None, ..sized("100Gi", Some(usage(50, 0))) };
    let decided = decide(&shrinks(&json!({})), &full, now);
    assert_eq!(decided.why, "50 % of its bytes are used; it grows at 80 %, and shrinks below 40 %");
    let unseen = Sized { usage: None, ..full };
    assert_eq!(decide(&shrinks(&json!({})), &unseen, now).resize, None);
}

#[test]
fn a_shrink_that_was_begun_is_given_up_if_it_is_late_or_the_claim_too_full() {
    let now = at("2026-12-05T12:00:00Z");
    let sizes = (size("100Gi"), size("33Gi"));
    for (more, usage, says) in [
        (json!({}), Some(usage(21, 0)), None),
        (json!({}), Some(usage(22, 0)), Some("22 % of the bytes of its 100Gi are used now")),
        (json!({}), Some(usage(5, 30)), Some("30 % of the inodes")),
        (json!({}), None, None),
        (
            json!({"maintenanceWindow": {"start": "01:00", "end": "05:00"}}),
            Some(usage(5, 0)),
            Some("may only be stopped every day"),
        ),
        (json!({"maintenanceWindow": {"start": "11:00", "end": "13:00"}}), Some(usage(5, 0)), None),
    ] {
        let said = objection(&shrinks(&more), sizes, usage, now);
        match says {
            Some(says) => assert!(said.as_ref().is_some_and(|why| why.contains(says)), "{said:?}"),
            None => assert_eq!(said, None, "{more}"),
        }
    }
}
