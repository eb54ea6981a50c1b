//! Hours and days in which a claim may shrink automatically. Pure.

use k8s_openapi::jiff::Timestamp;

use crate::api::{MaintenanceWindow, Shrink, Weekday};

/// Minutes of a day.
const DAY: i64 = 24 * 60;

/// Returns true if a shrink may start now.
pub(super) fn is_open(shrink: &Shrink, now: Timestamp) -> bool {
    let Some(window) = &shrink.maintenance_window else { return true };
    let (day, minute) = day_and_minute(window, now);
    let Some((start, end)) = window.minutes() else { return has(window, day) };
    let (start, end) = (i64::from(start), i64::from(end));
    if start < end {
        return has(window, day) && (start..end).contains(&minute);
    }
    has(window, day) && minute >= start || has(window, day - 1) && minute < end
}

/// Returns the start of the next window; `None` where it never ends.
pub(super) fn next_opening(shrink: &Shrink, now: Timestamp) -> Option<Timestamp> {
    let window = shrink.maintenance_window.as_ref().filter(|window| !window.is_always_open())?;
    let (day, _) = day_and_minute(window, now);
    let start = window.minutes().map_or(0, |(start, _)| i64::from(start));
    let ahead = window.time_zone.minutes();
    let days = (day..=day + 7).filter(|day| has(window, *day));
    let starts =
        days.filter_map(|day| Timestamp::from_second((day * DAY + start - ahead) * 60).ok());
    starts.filter(|at| *at > now).min()
}

/// The day since 1970, and the minute of that, by the clocks of the window.
fn day_and_minute(window: &MaintenanceWindow, now: Timestamp) -> (i64, i64) {
    let minutes = now.as_second().div_euclid(60) + window.time_zone.minutes();
    (minutes.div_euclid(DAY), minutes.rem_euclid(DAY))
}

/// Returns true if the window includes a day.
fn has(window: &MaintenanceWindow, day: i64) -> bool {
    // The first of January 1970 was a Thursday.
    let weekday = usize::try_from((day + 3).rem_euclid(7)).ok();
    let weekday = weekday.and_then(|day| Weekday::ALL.get(day));
    window.days.is_empty() || weekday.is_some_and(|day| window.days.contains(day))
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
        let nights = json!({"maintenanceWindow": {"start": "01:00", "end": "05:00"}});
        let sunday =
            json!({"maintenanceWindow": {"start": "01:00", "end": "05:00", "days": ["Sun"]}});
        let over_midnight =
            json!({"maintenanceWindow": {"start": "22:00", "end": "02:00", "days": ["Sat"]}});
        let berlin = json!({"maintenanceWindow": {"start": "01:00", "end": "05:00", "days": ["Sun"], "timeZone": "+02:00"}});
        let weekends = json!({"maintenanceWindow": {"days": ["Sat", "Sun"]}});
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
            (&berlin, "2026-12-05T22:59:59Z", false, Some("2026-12-05T23:00:00Z")),
            (&berlin, "2026-12-05T23:00:00Z", true, Some("2026-12-12T23:00:00Z")),
            (&berlin, "2026-12-06T02:59:59Z", true, Some("2026-12-12T23:00:00Z")),
            (&berlin, "2026-12-06T03:00:00Z", false, Some("2026-12-12T23:00:00Z")),
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
