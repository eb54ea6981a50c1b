//! What a server keeps of a write, and what it refuses.

use serde_json::{Value, json};

use crate::apply::OF_THE_SERVER;
use crate::call::Call;
use crate::refusal::Refusal;
use crate::resources::Resource;

/// What is kept of a write: each part changes only through its own path, and the server's own fields
/// through none.
pub(crate) fn settle(call: &Call, old: &Value, new: Value) -> Value {
    if call.status {
        let mut result = old.clone();
        copy(&mut result, &new, "status");
        return result;
    }
    let mut new = new;
    if call.resource.status {
        copy(&mut new, old, "status");
    }
    for field in ["apiVersion", "kind"] {
        copy(&mut new, old, field);
    }
    for field in OF_THE_SERVER {
        copy(&mut new["metadata"], &old["metadata"], field);
    }
    drop_empty(&mut new["metadata"]);
    if wish(&call.resource, &new) != wish(&call.resource, old) {
        new["metadata"]["generation"] = next_generation(old);
    }
    new
}

pub(crate) fn next_generation(object: &Value) -> Value {
    json!(object["metadata"]["generation"].as_u64().unwrap_or(0) + 1)
}

/// What `metadata.generation` counts the changes of.
pub(crate) fn wish(resource: &Resource, object: &Value) -> Value {
    let mut wish = object.clone();
    copy(&mut wish, &Value::Null, "metadata");
    if resource.status {
        copy(&mut wish, &Value::Null, "status");
    }
    wish
}

/// Refuse a body that is of another kind or place than the path says.
pub(crate) fn check_type(call: &Call, object: &Value) -> Result<(), Refusal> {
    let (kind, version) = (text(object, "/kind"), text(object, "/apiVersion"));
    if (kind, version) != (&call.resource.kind, &call.resource.api_version()) {
        let why = format!("{version:?} {kind:?} is sent as {:?}", call.resource.full_name());
        return Err(Refusal::bad_request(why));
    }
    if !object["metadata"].is_object() && !object["metadata"].is_null() {
        return Err(Refusal::bad_request("metadata is no object"));
    }
    let differs = |at: &str, of_path: &str| {
        let given = text(object, at);
        !given.is_empty() && !of_path.is_empty() && given != of_path
    };
    if differs("/metadata/name", &call.name) || differs("/metadata/namespace", &call.namespace) {
        return Err(Refusal::bad_request("the object's name or namespace is not that of the path"));
    }
    Ok(())
}

/// Refuse what was made of another version, or of another object of this name.
pub(crate) fn check_unchanged(call: &Call, old: &Value, new: &Value) -> Result<(), Refusal> {
    let differs = |at: &str| ![text(old, at), ""].contains(&text(new, at));
    if differs("/metadata/uid") {
        let why = "Precondition failed: UID in precondition is not that of the object";
        return Err(Refusal::conflict(&call.resource, &call.name, why));
    }
    if differs("/metadata/resourceVersion") {
        return Err(Refusal::stale(&call.resource, &call.name));
    }
    Ok(())
}

/// Refuse changes of fields that never change, and finalizers on what is being deleted.
pub(crate) fn check_fixed(
    resource: &Resource,
    name: &str,
    old: &Value,
    new: &Value,
) -> Result<(), Refusal> {
    for (path, message) in &resource.fixed {
        let at = format!("/{}", path.join("/"));
        if old.pointer(&at) != new.pointer(&at) {
            let why = format!("{}: Invalid value: {message}", path.join("."));
            return Err(Refusal::invalid(resource, name, &why));
        }
    }
    let had = |one: &Value| finalizers(old).contains(one);
    if is_marked(old) && !finalizers(new).iter().all(had) {
        let why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
                   being deleted";
        return Err(Refusal::invalid(resource, name, why));
    }
    Ok(())
}

/// Refuse lists and texts that are longer than the schema lets them be.
pub(crate) fn check_longest(resource: &Resource, name: &str, new: &Value) -> Result<(), Refusal> {
    for (path, most) in &resource.longest {
        if let Some(what) = too_long(new, path, *most) {
            let why = format!("{}: {what}", path.join("."));
            return Err(Refusal::invalid(resource, name, &why));
        }
    }
    Ok(())
}

/// What is said of a list or a text at a path that is longer than that; `[]` stands for each of a list.
fn too_long(value: &Value, path: &[String], most: usize) -> Option<String> {
    match (path.split_first(), value) {
        (None, Value::Array(items)) => {
            (items.len() > most).then(|| format!("Too many: must have at most {most} items"))
        }
        (None, Value::String(text)) => (text.len() > most && text.chars().count() > most)
            .then(|| format!("Too long: may not be more than {most} characters")),
        (None, _) => None,
        (Some((first, rest)), Value::Array(items)) if first == "[]" => {
            items.iter().find_map(|one| too_long(one, rest, most))
        }
        (Some((first, rest)), _) => too_long(value.get(first)?, rest, most),
    }
}

pub(crate) fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn has_finalizers(object: &Value) -> bool {
    !finalizers(object).is_empty()
}

pub(crate) fn is_marked(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Make a field what it is elsewhere, also if it is not there.
pub(crate) fn copy(to: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => drop(to.as_object_mut().and_then(|fields| fields.remove(field))),
    }
}

/// Metadata has no empty fields: for the server `labels: {}` is no labels.
pub(crate) fn drop_empty(metadata: &mut Value) {
    if let Some(fields) = metadata.as_object_mut() {
        let empty = |value: &Value| [Value::Null, json!({}), json!([])].contains(value);
        fields.retain(|_, value| !empty(value));
    }
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn is_subdomain(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |part: &str| {
        part.bytes().all(|c| plain(c) || c == b'-')
            && part.bytes().next().is_some_and(plain)
            && part.bytes().last().is_some_and(plain)
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Whether a strategic merge patch is a merge patch: without lists and without directives.
pub(crate) fn is_plain(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => false,
        Value::Object(fields) => {
            fields.iter().all(|(name, field)| !name.starts_with('$') && is_plain(field))
        }
        _ => true,
    }
}
