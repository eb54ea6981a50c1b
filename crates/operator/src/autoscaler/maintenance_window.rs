//! Hours and days in which a claim may shrink automatically. Pure.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::api::{MaintenanceWindow, Shrink, Weekday};

/// Returns true if a shrink may start now.
pub(super) fn is_open(shrink: &Shrink, now: Timestamp) -> bool {
    let Some(window) = &shrink.maintenance_window else { return true };
    let Some(clocks) = window.time_zone.clocks() else { return false };
    let now = clocks.to_datetime(now);
    let Some((start, end)) = hours(window) else { return has(window, now.date()) };
    if start < end {
        return has(window, now.date()) && (start..end).contains(&now.time());
    }
    has(window, now.date()) && now.time() >= start
        || now.date().yesterday().is_ok_and(|day| has(window, day)) && now.time() < end
}

/// Returns the start of the next window; `None` where it never ends, and in a time zone that is not known.
pub(super) fn next_opening(shrink: &Shrink, now: Timestamp) -> Option<Timestamp> {
    let window = shrink.maintenance_window.as_ref().filter(|window| !window.is_always_open())?;
    let clocks = window.time_zone.clocks()?;
    let start = hours(window).map_or(Time::midnight(), |(start, _)| start);
    let today = clocks.to_datetime(now).date();
    let days = (0..=7).filter_map(|days| today.checked_add(days.days()).ok());
    let starts = days.filter(|day| has(window, *day)).filter_map(|day| at(&clocks, day, start));
    starts.filter(|at| *at > now).min()
}

/// When the clocks show a time on a day. What they skip when they go forward is as much later, as people expect.
fn at(clocks: &TimeZone, day: Date, time: Time) -> Option<Timestamp> {
    clocks.to_ambiguous_timestamp(day.to_datetime(time)).compatible().ok()
}

/// Start and end of a window, by its clocks; `None`: all day.
fn hours(window: &MaintenanceWindow) -> Option<(Time, Time)> {
    let time = |minute: u16| {
        let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
        Time::new(hour, minute, 0, 0).ok()
    };
    let (start, end) = window.minutes()?;
    time(start).zip(time(end))
}

/// Returns true if the window includes a day.
fn has(window: &MaintenanceWindow, day: Date) -> bool {
    let weekday = usize::try_from(day.weekday().to_monday_zero_offset()).ok();
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
        let by_name = json!({"maintenanceWindow": {"start": "02:30", "end": "04:00", "timeZone": "Europe/Berlin"}});
        let unknown = json!({"maintenanceWindow": {"start": "00:00", "end": "23:59", "timeZone": "Europe/Berlim"}});
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
            (&by_name, "2026-12-05T01:30:00Z", true, Some("2026-12-06T01:30:00Z")),
            (&by_name, "2026-07-05T01:30:00Z", true, Some("2026-07-06T00:30:00Z")),
            // On this day the clocks go from 02:00 to 03:00.
            (&by_name, "2026-03-29T00:59:59Z", false, Some("2026-03-29T01:30:00Z")),
            (&by_name, "2026-03-29T01:30:00Z", true, Some("2026-03-30T00:30:00Z")),
            (&unknown, "2026-12-05T12:00:00Z", false, None),
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
