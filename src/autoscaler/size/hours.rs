//! Hours and days in which a claim may shrink automatically. Pure; all in UTC.

use k8s_openapi::jiff::Timestamp;

use crate::api::{Hours, Shrink, Weekday};

/// Minutes of a day.
const DAY: i64 = 24 * 60;

/// Returns true if a shrink may start now.
pub(super) fn is_open(shrink: &Shrink, now: Timestamp) -> bool {
    let (day, minute) = day_and_minute(now);
    let Some(Hours { from, to }) = shrink.between else { return has(shrink, day) };
    let (from, to) = (i64::from(from), i64::from(to));
    if from < to {
        return has(shrink, day) && (from..to).contains(&minute);
    }
    has(shrink, day) && minute >= from || has(shrink, day - 1) && minute < to
}

/// Returns the start of the next window; `None` where it never ends.
pub(super) fn next_opening(shrink: &Shrink, now: Timestamp) -> Option<Timestamp> {
    if shrink.between.is_none() && shrink.days.is_empty() {
        return None;
    }
    let (day, _) = day_and_minute(now);
    let from = shrink.between.map_or(0, |hours| i64::from(hours.from));
    let days = (day..=day + 7).filter(|day| has(shrink, *day));
    let begins = days.filter_map(|day| Timestamp::from_second((day * DAY + from) * 60).ok());
    begins.filter(|at| *at > now).min()
}

/// The day since 1970, and the minute of that.
fn day_and_minute(now: Timestamp) -> (i64, i64) {
    let minutes = now.as_second().div_euclid(60);
    (minutes.div_euclid(DAY), minutes.rem_euclid(DAY))
}

/// Returns true if the policy includes a day.
fn has(shrink: &Shrink, day: i64) -> bool {
    // The first of January 1970 was a Thursday.
    let weekday = usize::try_from((day + 3).rem_euclid(7)).ok();
    let weekday = weekday.and_then(|day| Weekday::ALL.get(day));
    shrink.days.is_empty() || weekday.is_some_and(|day| shrink.days.contains(day))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shrink(policy: Value) -> Shrink {
        serde_json::from_value(policy).unwrap()
    }

    #[test]
    fn hours_are_those_of_their_days() {
        let always = json!({});
        let nights = json!({"between": "01:00-05:00"});
        let sunday = json!({"between": "01:00-05:00", "days": ["Sun"]});
        let over_midnight = json!({"between": "22:00-02:00", "days": ["Sat"]});
        let weekends = json!({"days": ["Sat", "Sun"]});
        // The fifth of December 2026 is a Saturday.
        for (policy, now, open, next) in [
            (&always, "2026-12-05T12:00:00Z", true, None),
            (&nights, "2026-12-05T00:59:59Z", false, Some("2026-12-05T01:00:00Z")),
            (&nights, "2026-12-05T01:00:00Z", true, Some("2026-12-06T01:00:00Z")),
            (&nights, "2026-12-05T04:59:59Z", true, Some("2026-12-06T01:00:00Z")),
            (&nights, "2026-12-05T05:00:00Z", false, Some("2026-12-06T01:00:00Z")),
            (&sunday, "2026-12-05T02:00:00Z", false, Some("2026-12-06T01:00:00Z")),
            (&sunday, "2026-12-06T02:00:00Z", true, Some("2026-12-13T01:00:00Z")),
            (&over_midnight, "2026-12-05T21:59:00Z", false, Some("2026-12-05T22:00:00Z")),
            (&over_midnight, "2026-12-05T23:00:00Z", true, Some("2026-12-12T22:00:00Z")),
            (&over_midnight, "2026-12-06T01:59:00Z", true, Some("2026-12-12T22:00:00Z")),
            (&over_midnight, "2026-12-06T02:00:00Z", false, Some("2026-12-12T22:00:00Z")),
            (&over_midnight, "2026-12-06T23:00:00Z", false, Some("2026-12-12T22:00:00Z")),
            (&weekends, "2026-12-04T23:59:59Z", false, Some("2026-12-05T00:00:00Z")),
            (&weekends, "2026-12-06T23:59:59Z", true, Some("2026-12-12T00:00:00Z")),
            (&weekends, "2026-12-07T00:00:00Z", false, Some("2026-12-12T00:00:00Z")),
        ] {
            let (shrink, now) = (shrink(policy.clone()), now.parse().unwrap());
            let next = next.map(|next| next.parse().unwrap());
            assert_eq!(
                (is_open(&shrink, now), next_opening(&shrink, now)),
                (open, next),
                "{policy} {now}"
            );
        }
    }
}
