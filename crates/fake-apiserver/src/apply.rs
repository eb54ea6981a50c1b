//! Who owns which field, as far as server-side apply needs it.
//!
//! A list is one leaf, so two managers cannot each own an item of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// What of the metadata is the server's.
pub(crate) const OF_THE_SERVER: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The keys from the root to a leaf.
type Path = Vec<String>;

/// Who writes, and how: the server keeps apart what one name applies, what it writes otherwise, and
/// what it writes to `status`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub name: String,
    pub applies: bool,
    pub status: bool,
}

/// What each manager wrote last.
pub(crate) type Owners = BTreeMap<Manager, BTreeSet<Path>>;

/// The leaves of an object that can be owned: not what names it, and not what the server writes.
fn leaves(object: &Value) -> BTreeMap<Path, Value> {
    fn walk(value: &Value, path: &Path, found: &mut BTreeMap<Path, Value>) {
        match value.as_object() {
            Some(fields) if !fields.is_empty() => {
                for (name, field) in fields {
                    walk(field, &[path.as_slice(), std::slice::from_ref(name)].concat(), found);
                }
            }
            _ => drop(found.insert(path.clone(), value.clone())),
        }
    }
    let mut found = BTreeMap::new();
    walk(object, &Vec::new(), &mut found);
    found.retain(|path, _| match path.as_slice() {
        [] => false,
        [field] => !["apiVersion", "kind", "metadata"].contains(&field.as_str()),
        [first, field, ..] => first != "metadata" || !OF_THE_SERVER.contains(&field.as_str()),
    });
    found
}

/// Lay what a manager applies over an object: set what it sends, and remove what it sent before and
/// nobody else owns. Without `force` it is refused what others own and want otherwise: the owner and
/// the field.
pub(crate) fn apply(
    object: &Value,
    sent: &Value,
    owners: &mut Owners,
    manager: &Manager,
    force: bool,
) -> Result<Value, (String, String)> {
    let sent = leaves(sent);
    let mut result = object.clone();
    for (path, value) in &sent {
        let changes = !is_met(at(object, path), value);
        for (other, owned) in owners.iter_mut().filter(|(other, _)| changes && *other != manager) {
            if owned.contains(path) && !force {
                return Err((other.name.clone(), path.join(".")));
            }
            owned.remove(path);
        }
    }
    let paths: BTreeSet<Path> = sent.keys().cloned().collect();
    let had = owners.insert(manager.clone(), paths).unwrap_or_default();
    for path in had.iter().filter(|path| !owners.values().any(|owned| owned.contains(*path))) {
        remove(&mut result, path);
    }
    for (path, value) in sent {
        if !is_met(at(&result, &path), &value) {
            set(&mut result, &path, value);
        }
    }
    Ok(result)
}

/// Whether a leaf is as it is wanted; an empty object says that there is one, not what is in it.
fn is_met(found: Option<&Value>, wanted: &Value) -> bool {
    let is_empty = |object: &Map<String, Value>| object.is_empty();
    found == Some(wanted)
        || wanted.as_object().is_some_and(is_empty) && found.is_some_and(Value::is_object)
}

/// Note a write that is no apply: what it changes is its manager's, and nobody else's.
pub(crate) fn own_changed(owners: &mut Owners, manager: Manager, before: &Value, after: &Value) {
    for owned in owners.values_mut() {
        owned.retain(|path| at(before, path) == at(after, path));
    }
    let changed = leaves(after).into_iter().filter(|(path, value)| at(before, path) != Some(value));
    owners.entry(manager).or_default().extend(changed.map(|(path, _)| path));
}

fn at<'a>(object: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, name| value.get(name))
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let Some((name, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    set(&mut object[name.as_str()], rest, value);
}

/// Remove a leaf, and the objects that are empty without it; what others have in an object stays.
fn remove(object: &mut Value, path: &[String]) {
    let (Some((name, rest)), Some(fields)) = (path.split_first(), object.as_object_mut()) else {
        return;
    };
    let Some(field) = fields.get_mut(name) else { return };
    remove(field, rest);
    if field.as_object().map_or(rest.is_empty(), Map::is_empty) {
        fields.remove(name);
    }
}
