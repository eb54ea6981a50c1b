//! Words of other versions.

use serde::Serialize;
use serde_json::Value;

/// As each `Unknown` is written: no schema takes it, so nothing that is not understood can be written back.
const UNKNOWN: &str = "(unknown)";

/// True if this version knows all words of a record: whoever acts on one that it does not understand, or writes its
/// status, would undo what another version has begun.
pub fn is_understood(record: &impl Serialize) -> bool {
    fn has_none(value: &Value) -> bool {
        match value {
            Value::String(text) => text != UNKNOWN,
            Value::Array(items) => items.iter().all(has_none),
            Value::Object(fields) => fields.values().all(has_none),
            _ => true,
        }
    }
    serde_json::to_value(record).is_ok_and(|value| has_none(&value))
}
