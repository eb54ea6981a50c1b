//! Shares as people write them in records: in percent of something, or in bytes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::Quantity;
use crate::bytes::Bytes;

/// The most percent.
const MOST: u32 = 999;

/// A share of something, `25%` or `10Gi`, never nothing and never without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// In percent.
    Percent(u32),
    /// So much, whatever it is a share of: whole MiB, as the sizes of claims are.
    Bytes(Quantity),
}

impl Share {
    /// Returns how much of `whole` it is, in bytes, rounded up; at most [`Bytes::MAX`].
    pub fn of(self, whole: Bytes) -> Bytes {
        match self {
            Share::Bytes(size) => size.0,
            Share::Percent(percent) => {
                let part = (u128::from(whole.get()) * u128::from(percent)).div_ceil(100);
                Bytes::new(u64::try_from(part).unwrap_or(u64::MAX)).min(Bytes::MAX)
            }
        }
    }
}

impl Default for Share {
    fn default() -> Share {
        Share::Percent(0)
    }
}

/// A text is no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no share: write 1% to {MOST}%, or bytes with their unit, such as 10Gi")]
pub struct ShareError(String);

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Share, ShareError> {
        let share = match text.strip_suffix('%') {
            Some(number) => number.parse().ok().and_then(percent),
            // Without a unit it would be a handful of bytes, where percent were meant.
            None if text.ends_with(|last: char| last.is_ascii_digit()) => None,
            None => text.parse().ok().and_then(bytes),
        };
        share.ok_or_else(|| ShareError(text.to_owned()))
    }
}

fn percent(number: u32) -> Option<Share> {
    (1..=MOST).contains(&number).then_some(Share::Percent(number))
}

/// Rounded up, so that it is always printed with a unit.
fn bytes(size: Bytes) -> Option<Share> {
    let whole = Bytes::mib(1).checked_mul(size.div_ceil(Bytes::mib(1)))?;
    (whole > Bytes::ZERO).then_some(Share::Bytes(Quantity(whole)))
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Percent(percent) => write!(f, "{percent}%"),
            Share::Bytes(size) => size.fmt(f),
        }
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What is no share is refused by a rule of the API server, whose sentence a pattern has not.
impl JsonSchema for Share {
    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 12,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([1-9][0-9]{0,2}%|[0-9]{1,6}([.][0-9]{1,3})?([KMGT]i|[kMGT]))$') && !self.matches('^[0.]*[A-Za-z]')",
                "message": "write percent, 1% to 999%, or bytes with their unit, such as 10Gi",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_share_is_percent_or_bytes() {
        for (written, of_100_gib, printed) in [
            (json!("25%"), Bytes::gib(25), "25%"),
            (json!("999%"), Bytes::gib(999), "999%"),
            (json!("10Gi"), Bytes::gib(10), "10Gi"),
            (json!("0.5Gi"), Bytes::mib(512), "512Mi"),
            (json!("500M"), Bytes::mib(477), "477Mi"),
            (json!("1k"), Bytes::mib(1), "1Mi"),
        ] {
            let share: Share = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(share.of(Bytes::gib(100)), of_100_gib, "{written}");
            let again: Share = serde_json::from_value(json!(share)).unwrap();
            assert_eq!(again, share, "{written}");
            assert_eq!(json!(share), json!(printed));
        }
        for wrong in [
            json!(25), // In an API object a number is always absolute.
            json!(""),
            json!("25"),
            json!("0%"),
            json!("1000%"),
            json!("-5%"),
            json!("2.5%"),
            json!("Gi"),
            json!("0Gi"),
            json!(1.5),
            Value::Null,
        ] {
            assert!(serde_json::from_value::<Share>(wrong.clone()).is_err(), "{wrong}");
        }
        assert_eq!(Share::Percent(1).of(Bytes::new(1)), Bytes::new(1), "rounded up");
        assert_eq!(Share::Percent(999).of(Bytes::MAX), Bytes::MAX);
    }
}
