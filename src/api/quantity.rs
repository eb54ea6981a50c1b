//! Sizes as Kubernetes writes them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bytes::Bytes;

/// A size in Kubernetes notation, `10Gi`; written exactly, in the largest unit that divides it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(pub Bytes);

const UNITS: [(&str, u32); 6] =
    [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.0.get();
        match UNITS.iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
            Some((unit, shift)) => write!(f, "{}{unit}", bytes >> shift),
            None => write!(f, "{bytes}"),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        // What the schema takes is read, however large: one size that no volume has must not hide its object.
        Bytes::parse_capped(&text).map(Quantity).map_err(D::Error::custom)
    }
}

/// A plain text with a pattern: the schema of Kubernetes' own type fills a screen of `kubectl explain`.
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
            "maxLength": 32,
            // All that Kubernetes writes of a size that is not negative, within the exponents that `Bytes` parses.
            "pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-3]?[0-9]|40))?$",
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

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes in 0..=Bytes::MAX.get()) {
            let size = Quantity(Bytes::new(bytes));
            let text = serde_json::to_string(&size).unwrap();
            prop_assert_eq!(serde_json::from_str::<Quantity>(&text).unwrap(), size);
        }
    }
}
