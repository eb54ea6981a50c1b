//! Hours of the day as people write them in records.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Hours of the day in UTC, `01:00-05:00`. Those that end before they begin end on the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    /// The minute of the day with which they begin.
    pub from: u16,
    /// The first minute of the day that is no part of them.
    pub to: u16,
}

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
    /// A word of another version, which this one does not know. It is never written.
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

/// A text is no hours of the day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no hours of the day: write when they begin and end in UTC, such as 01:00-05:00")]
pub struct HoursError(String);

impl FromStr for Hours {
    type Err = HoursError;

    fn from_str(text: &str) -> Result<Hours, HoursError> {
        let parse = || {
            let (from, to) = text.split_once('-')?;
            let (from, to) = (minute(from)?, minute(to)?);
            (from != to).then_some(Hours { from, to })
        };
        parse().ok_or_else(|| HoursError(text.to_owned()))
    }
}

/// The minute of the day that `01:30` is.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, below: u16| {
        let is_plain = text.len() == 2 && text.bytes().all(|one| one.is_ascii_digit());
        let number = text.parse::<u16>().ok().filter(|_| is_plain);
        number.filter(|number| *number < below)
    };
    Some(number(hour, 24)? * 60 + number(minute, 60)?)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hours { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

impl Serialize for Hours {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hours {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hours, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What is no hours is refused by a rule of the API server, whose sentence a pattern has not.
impl JsonSchema for Hours {
    fn schema_name() -> Cow<'static, str> {
        "Hours".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 11,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$') && self.split('-')[0] != self.split('-')[1]",
                "message": "write the hours of the day in UTC, such as 01:00-05:00; leave them out for all of the day",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_begin_and_end_with_a_minute() {
        for (text, from, to) in
            [("01:00-05:00", 60, 300), ("23:30-04:15", 1410, 255), ("00:00-23:59", 0, 1439)]
        {
            let hours: Hours = text.parse().unwrap();
            assert_eq!((hours, hours.to_string()), (Hours { from, to }, text.to_owned()));
        }
        for text in
            ["", "01:00", "1:00-5:00", "01:00-24:00", "01:60-02:00", "01:00-01:00", "+1:00-02:00"]
        {
            assert!(text.parse::<Hours>().is_err(), "{text}");
        }
    }
}
