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
        text.parse().map(Quantity).map_err(D::Error::custom)
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
            "pattern": r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$",
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

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes in 0..=Bytes::MAX.get()) {
            let size = Quantity(Bytes::new(bytes));
            let text = serde_json::to_string(&size).unwrap();
            prop_assert_eq!(serde_json::from_str::<Quantity>(&text).unwrap(), size);
        }
    }
}
