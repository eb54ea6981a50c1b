//! Lengths of time as people write them in records.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// A length of time, `7d` or `168h`: a number and one of d, h, m and s; written in the largest unit that
/// divides it.
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
#[error("`{0}` is no length of time: write a number and one of s, m, h and d, such as 168h")]
pub struct SpanError(String);

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (unit, seconds) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
            let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
            count.checked_mul(*seconds).map(|all| Span(Duration::from_secs(all)))
        };
        parse().ok_or_else(|| SpanError(text.to_owned()))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.as_secs();
        let fits = |seconds: u64| all > 0 && all.is_multiple_of(seconds);
        let (unit, seconds) = UNITS.into_iter().find(|(_, s)| fits(*s)).unwrap_or(("s", 1));
        write!(f, "{}{unit}", all / seconds)
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

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 12, "pattern": "^[0-9]{1,9}[smhd]$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        for (text, seconds, written) in
            [("7d", 604_800, "7d"), ("168h", 604_800, "7d"), ("90s", 90, "90s"), ("0s", 0, "0s")]
        {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0.as_secs(), &*span.to_string()), (seconds, written));
        }
        for text in
            ["", "7", "d", "1.5h", "-1h", "7 d", "99999999999999999999d", "18446744073709551615d"]
        {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
