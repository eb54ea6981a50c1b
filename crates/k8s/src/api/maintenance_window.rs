//! The times in which pods may be stopped, as people write them in API objects.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::tz;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Days and hours in which something may be done. Hours that end before they start end on the next day.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "has(self.start) == has(self.end) && (!has(self.start) || self.start != self.end)"
).message("write start and end, two different times such as 01:00 and 05:00; leave both out for all of the day"))]
pub struct MaintenanceWindow {
    /// Time of day at which the window starts, such as `01:00`. Default: none, which means all day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeOfDay")]
    pub start: Option<TimeOfDay>,
    /// Time of day at which the window ends, such as `05:00`. An end before the start is on the next day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeOfDay")]
    pub end: Option<TimeOfDay>,
    /// Days on which the window starts: `Mon`, `Tue`, `Wed`, `Thu`, `Fri`, `Sat`, `Sun`. Default: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7), extend("x-kubernetes-list-type" = "set"))]
    pub days: Vec<Weekday>,
    /// Time zone of the hours and days: `UTC`, a name such as `Europe/Berlin`, or a fixed offset such as `+02:00`.
    /// Default: `UTC`. With a name that the operator does not know, the window stays closed.
    #[serde(default)]
    pub time_zone: TimeZone,
}

impl MaintenanceWindow {
    /// Returns the minutes of the day at which it starts and ends; `None`: all day.
    pub fn minutes(&self) -> Option<(u16, u16)> {
        self.start.zip(self.end).map(|(start, end)| (start.0, end.0))
    }

    /// True if it is never closed.
    pub fn is_always_open(&self) -> bool {
        self.minutes().is_none() && self.days.is_empty()
    }
}

/// It in words: `Sat, Sun 01:00-05:00 UTC`.
impl fmt::Display for MaintenanceWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days: Vec<String> = self.days.iter().map(|day| format!("{day:?}")).collect();
        let days = if days.is_empty() { "every day".to_owned() } else { days.join(", ") };
        match self.start.zip(self.end) {
            Some((start, end)) => write!(f, "{days} {start}-{end} {}", self.time_zone),
            None => write!(f, "{days}, by {}", self.time_zone),
        }
    }
}

/// The longest name of a time zone that is taken, in characters: that of the database has 32.
const LONGEST_ZONE: usize = 64;

/// A day of the week.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum Weekday {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
    /// A value of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl Weekday {
    /// All of them, in the order in which they come.
    pub const ALL: [Weekday; 7] = [
        Weekday::Mon,
        Weekday::Tue,
        Weekday::Wed,
        Weekday::Thu,
        Weekday::Fri,
        Weekday::Sat,
        Weekday::Sun,
    ];
}

/// A time of day, `01:30`: the minute of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOfDay(u16);

/// The time zone of a window: UTC, a fixed offset from it, or a name of the IANA database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZone(Cow<'static, str>);

impl TimeZone {
    /// Returns its clocks; `None` if this version does not know its name. A name that is written is no reason to
    /// refuse the whole object: a later version may know it.
    pub fn clocks(&self) -> Option<tz::TimeZone> {
        offset(&self.0).map(tz::TimeZone::fixed).or_else(|| tz::TimeZone::get(&self.0).ok())
    }
}

impl Default for TimeZone {
    fn default() -> TimeZone {
        TimeZone("UTC".into())
    }
}

/// A text is no time of day, or no time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// It is no time of day.
    #[error("`{0}` is no time of day: write hours and minutes, such as 01:00")]
    Time(String),
    /// It is no time zone.
    #[error(
        "`{0}` is no time zone: write UTC, a name such as Europe/Berlin, or an offset such as +02:00"
    )]
    Zone(String),
}

impl FromStr for TimeOfDay {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<TimeOfDay, WindowError> {
        minute(text, 24).map(TimeOfDay).ok_or_else(|| WindowError::Time(text.to_owned()))
    }
}

impl FromStr for TimeZone {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<TimeZone, WindowError> {
        let of_name = |one: u8| one.is_ascii_alphanumeric() || b"_/+-".contains(&one);
        let is_name = text.len() <= LONGEST_ZONE
            && text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.bytes().all(of_name);
        let is_known = is_name || offset(text).is_some();
        is_known
            .then(|| TimeZone(text.to_owned().into()))
            .ok_or_else(|| WindowError::Zone(text.to_owned()))
    }
}

/// The offset that `+02:00` is.
fn offset(text: &str) -> Option<tz::Offset> {
    let (sign, rest) = text.split_at_checked(1)?;
    let minutes = minute(rest, 15).map(i32::from).filter(|minutes| *minutes <= 14 * 60)?;
    let seconds = match sign {
        "+" => minutes * 60,
        "-" => -minutes * 60,
        _ => return None,
    };
    tz::Offset::from_seconds(seconds).ok()
}

/// The minutes that `01:30` has, with less hours than this.
fn minute(text: &str, hours: u16) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, below: u16| {
        let is_plain = text.len() == 2 && text.bytes().all(|one| one.is_ascii_digit());
        let number = text.parse::<u16>().ok().filter(|_| is_plain);
        number.filter(|number| *number < below)
    };
    Some(number(hour, hours)? * 60 + number(minute, 60)?)
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Its name, and that it is not known where that is so.
impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)?;
        if self.clocks().is_none() {
            f.write_str(", a time zone that the operator does not know")?;
        }
        Ok(())
    }
}

impl Serialize for TimeOfDay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeOfDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TimeOfDay, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for TimeZone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TimeZone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TimeZone, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What is no time is refused by a rule of the API server, whose sentence a pattern has not.
impl JsonSchema for TimeOfDay {
    fn schema_name() -> Cow<'static, str> {
        "TimeOfDay".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 5,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",
                "message": "write hours and minutes, such as 01:00",
            }],
        })
    }
}

/// As [`TimeOfDay`].
impl JsonSchema for TimeZone {
    fn schema_name() -> Cow<'static, str> {
        "TimeZone".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": LONGEST_ZONE,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([A-Za-z][A-Za-z0-9_/+-]*|[+-](0[0-9]|1[0-3]):[0-5][0-9]|[+-]14:00)$')",
                "message": "write UTC, a name such as Europe/Berlin, or an offset such as +02:00",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_starts_and_ends_with_a_minute() {
        for (text, minute) in [("01:00", 60), ("05:00", 300), ("23:30", 1410), ("00:00", 0)] {
            let time: TimeOfDay = text.parse().unwrap();
            assert_eq!((time, time.to_string()), (TimeOfDay(minute), text.to_owned()));
        }
        for text in ["", "01", "1:00", "24:00", "01:60", "+1:00", "01:00-05:00"] {
            assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_zone_is_a_name_or_an_offset_from_utc() {
        let seconds = |zone: &TimeZone, at: &str| {
            zone.clocks().map(|clocks| clocks.to_offset(at.parse().unwrap()).seconds())
        };
        for (text, winter, summer) in [
            ("UTC", 0, 0),
            ("+00:00", 0, 0),
            ("+02:00", 7200, 7200),
            ("-03:30", -12_600, -12_600),
            ("+14:00", 50_400, 50_400),
            ("Europe/Berlin", 3600, 7200),
            ("America/New_York", -18_000, -14_400),
            ("Etc/GMT+5", -18_000, -18_000),
        ] {
            let zone: TimeZone = text.parse().unwrap();
            let both =
                ["2026-01-15T00:00:00Z", "2026-07-15T00:00:00Z"].map(|at| seconds(&zone, at));
            assert_eq!((both, zone.to_string()), ([Some(winter), Some(summer)], text.to_owned()));
        }
        let unknown: TimeZone = "Europe/Berlim".parse().unwrap();
        assert_eq!(unknown.clocks(), None);
        assert!(unknown.to_string().contains("does not know"), "{unknown}");
        for text in [
            "",
            "02:00",
            "+2:00",
            "+14:30",
            "+15:00",
            "Europe/../Berlin",
            "\u{e4}01:00",
            "/etc/localtime",
        ] {
            assert!(text.parse::<TimeZone>().is_err(), "{text}");
        }
    }
}
