//! Lengths of time as people write them in API objects.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// The units that are read, in nanoseconds; longer names before those that they begin with.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("ms", 1_000_000),
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
];

/// A length of time in Go's form, `168h` or `1h30m`; `7d` is read, too. Written in hours, minutes and seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// Returns a span of so many days.
    pub const fn days(days: u64) -> Span {
        Span(Duration::from_secs(days * 86_400))
    }

    /// Returns a span of so many minutes.
    pub const fn minutes(minutes: u64) -> Span {
        Span(Duration::from_secs(minutes * 60))
    }
}

/// A text is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no length of time: write numbers with their units, such as 168h, 90m, 1h30m or 7d"
)]
pub struct SpanError(String);

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (mut rest, mut all) = (text, 0_u128);
            while !rest.is_empty() {
                let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
                let (number, behind) = rest.split_at(unit_at);
                let (unit, of_unit) = UNITS.iter().find(|(unit, _)| behind.starts_with(unit))?;
                all = all.checked_add(nanoseconds(number, *of_unit)?)?;
                rest = behind.strip_prefix(unit)?;
            }
            let seconds = u64::try_from(all / SECOND).ok()?;
            let nanoseconds = u32::try_from(all % SECOND).ok()?;
            (!text.is_empty()).then(|| Span(Duration::new(seconds, nanoseconds)))
        };
        parse().ok_or_else(|| SpanError(text.to_owned()))
    }
}

/// So many of a unit, such as `1.5`; what is less than a nanosecond is left out.
fn nanoseconds(number: &str, of_unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut all = u128::from(whole.parse::<u64>().ok()?).checked_mul(of_unit)?;
    let mut place = of_unit;
    for digit in fraction.chars() {
        place /= 10;
        all += u128::from(digit.to_digit(10)?) * place;
    }
    Some(all)
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.as_secs();
        let (hours, minutes, seconds) = (all / 3_600, all / 60 % 60, all % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match self.0.subsec_nanos() {
            0 if seconds > 0 || all == 0 => write!(f, "{seconds}s"),
            0 => Ok(()),
            nanoseconds => {
                let fraction = format!("{nanoseconds:09}");
                write!(f, "{seconds}.{}s", fraction.trim_end_matches('0'))
            }
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What is no duration is refused by a rule of the API server, whose sentence a pattern has not.
impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 40,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(ns|us|\u{b5}s|ms|s|m|h|d))+$')",
                "message": "write a duration in days, hours, minutes or seconds, such as 7d, 36h, 1h30m or 90s",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_as_go_writes_it() {
        for (text, seconds, written) in [
            ("7d", 604_800, "168h"),
            ("168h", 604_800, "168h"),
            ("90m", 5_400, "1h30m"),
            ("1h30m", 5_400, "1h30m"),
            ("1.5h", 5_400, "1h30m"),
            ("90s", 90, "1m30s"),
            ("1h5s", 3_605, "1h5s"),
            ("0s", 0, "0s"),
            ("1500ms", 1, "1.5s"),
            ("250\u{b5}s", 0, "0.00025s"),
            ("1d12h", 129_600, "36h"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0.as_secs(), &*span.to_string()), (seconds, written));
            assert_eq!(written.parse::<Span>().unwrap(), span, "{written}");
        }
        for text in [
            "",
            "7",
            "d",
            ".5h",
            "1..5h",
            "-1h",
            "7 d",
            "1h30",
            "1w",
            "99999999999999999999d",
            "18446744073709551615d",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
