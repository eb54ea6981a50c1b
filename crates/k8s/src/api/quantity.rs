//! Sizes as Kubernetes writes them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bytes::Bytes;

/// A size in Kubernetes notation, `10Gi`; written exactly, in the largest unit that divides it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(pub Bytes);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.exact())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct TextOrBytes;

impl Visitor<'_> for TextOrBytes {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as 10Gi, or a number of bytes")
    }

    // What the schema takes is read, however large: one size that no volume has must not hide its object.
    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        Bytes::parse_capped(text).map(Quantity).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<Quantity, E> {
        Ok(Quantity(Bytes::new(bytes).min(Bytes::MAX)))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<Quantity, E> {
        self.visit_str(&bytes.to_string())
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrBytes)
    }
}

/// All that Kubernetes writes of a size that is not negative, within the exponents that `Bytes` parses.
const PATTERN: &str =
    r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-3]?[0-9]|40))?$";
const LONGEST: u32 = 32;

/// The schema of a size that a person writes: Kubernetes takes a bare number of bytes too, so `storage: 1073741824`
/// needs no quotation marks. What is no size is refused by a rule of the API server, whose sentence a pattern has not.
pub(super) fn as_written(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "nullable": false, // So that a `null` becomes the default.
        "maxLength": LONGEST,
        "x-kubernetes-validations": [{
            "rule": format!("type(self) == int ? self >= 0 && self <= 8000000000000000000 : self.matches('{PATTERN}') && quantity(self).compareTo(quantity('8E')) <= 0"),
            "message": "write a size of at most 8E, such as 500M, 10Gi or 1.5Ti",
        }],
    })
}

/// A plain text with a pattern, for sizes that Pliant writes: the schema of Kubernetes' own type fills a screen of `kubectl explain`.
impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": LONGEST,
            "pattern": PATTERN,
            "x-kubernetes-validations": [{
                "rule": "quantity(self).compareTo(quantity('8E')) <= 0",
                "message": "a size is at most 8E",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_size_is_written_in_the_largest_unit_that_divides_it() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1536, "1536"),
            (2048, "2Ki"),
            (3 << 29, "1536Mi"),
            (10 << 30, "10Gi"),
            (1 << 60, "1Ei"),
        ] {
            assert_eq!(Quantity(Bytes::new(bytes)).to_string(), text);
        }
    }

    #[test]
    fn a_size_that_no_volume_has_is_read_as_the_largest() {
        for (text, bytes) in [
            ("8Ei", Bytes::MAX),
            ("99999999999999999999999999999999E", Bytes::MAX),
            ("9223372036854775808", Bytes::MAX),
            ("9223372036854775807", Bytes::MAX),
            ("1.00000000000000000000000000001Ki", Bytes::new(1025)),
            ("0.0000000000000000000000000001E", Bytes::new(1)),
            ("7Ei", Bytes::new(7 << 60)),
            ("1e40", Bytes::MAX),
            ("1181116006400m", Bytes::new(1_181_116_007)),
        ] {
            assert_eq!(serde_json::from_value::<Quantity>(text.into()).unwrap().0, bytes, "{text}");
        }
        assert!(serde_json::from_value::<Quantity>("1e41".into()).is_err(), "no schema takes it");
    }

    #[test]
    fn a_size_may_be_a_bare_number_of_bytes() {
        for (number, bytes) in [
            (json!(0), Bytes::ZERO),
            (json!(1_073_741_824), Bytes::gib(1)),
            (json!(u64::MAX), Bytes::MAX),
        ] {
            assert_eq!(
                serde_json::from_value::<Quantity>(number.clone()).unwrap().0,
                bytes,
                "{number}"
            );
        }
        for wrong in [json!(-1), json!(1.5), json!(true), json!(null)] {
            assert!(serde_json::from_value::<Quantity>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes in 0..=Bytes::MAX.get()) {
            let size = Quantity(Bytes::new(bytes));
            let text = serde_json::to_string(&size).unwrap();
            prop_assert_eq!(serde_json::from_str::<Quantity>(&text).unwrap(), size);
        }
    }
}
