//! Addresses of objects on the command line: `TYPE/NAME`, as kubectl writes them.

use std::str::FromStr;

use super::AskError;

/// A type of object that an address can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressKind {
    Claim,
    Volume,
    StatefulSet,
    Deployment,
    Autoscaler,
    Node,
    Pool,
    Pod,
}

/// Each type with the names by which kubectl knows it, the short one first.
const NAMES: [(AddressKind, &[&str]); 8] = [
    (AddressKind::Claim, &["pvc", "persistentvolumeclaim", "persistentvolumeclaims"]),
    (AddressKind::Volume, &["pv", "persistentvolume", "persistentvolumes"]),
    (
        AddressKind::StatefulSet,
        &["sts", "statefulset", "statefulsets", "statefulset.apps", "statefulsets.apps"],
    ),
    (
        AddressKind::Deployment,
        &["deploy", "deployment", "deployments", "deployment.apps", "deployments.apps"],
    ),
    (
        AddressKind::Autoscaler,
        &[
            "pvcas",
            "pvcautoscaler",
            "pvcautoscalers",
            "pvcautoscaler.pliant.io",
            "pvcautoscalers.pliant.io",
        ],
    ),
    (AddressKind::Pod, &["pod", "pods", "po"]),
    (AddressKind::Node, &["node", "nodes", "no"]),
    (
        AddressKind::Pool,
        &[
            "pool",
            "pools",
            "spool",
            "storagepool",
            "storagepools",
            "storagepool.pliant.io",
            "storagepools.pliant.io",
        ],
    ),
];

impl AddressKind {
    fn short(self) -> &'static str {
        NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, names)| names[0])
    }

    fn named(word: &str) -> Option<AddressKind> {
        let word = word.to_lowercase();
        NAMES.iter().find(|(_, names)| names.contains(&word.as_str())).map(|(kind, _)| *kind)
    }
}

/// Reads `TYPE/NAME` of one of these types, or `NAME` for the first of them.
pub(super) fn address(text: &str, kinds: &[AddressKind]) -> Result<(AddressKind, String), String> {
    let choices: Vec<String> = kinds.iter().map(|kind| format!("{}/NAME", kind.short())).collect();
    let write = match choices.as_slice() {
        [only] => format!("write {only}"),
        [others @ .., last] => format!("write {} or {last}", others.join(", ")),
        [] => String::new(),
    };
    let (kind, name) = match text.split_once('/') {
        Some((word, name)) => (AddressKind::named(word), name),
        None => (kinds.first().copied(), text),
    };
    if name.is_empty() || name.contains('/') {
        return Err(write);
    }
    let kind = kind.filter(|kind| kinds.contains(kind));
    kind.map(|kind| (kind, name.to_owned())).ok_or_else(|| {
        let word = text.split('/').next().unwrap_or_default();
        format!("`{word}` is not a type that this command takes: {write}")
    })
}

/// The claims that an address selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// The claims of the PvcAutoscaler that manages this claim.
    Claim(String),
    /// The claims of the PvcAutoscaler of this StatefulSet.
    StatefulSet(String),
    /// The claims of the PvcAutoscaler of this Deployment.
    Deployment(String),
    /// The claims of this PvcAutoscaler.
    Autoscaler(String),
}

/// Reads `pvc/NAME` or `NAME` for a claim, `sts/NAME`, `deploy/NAME` or `pvcas/NAME`.
impl FromStr for Whose {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = [
            AddressKind::Claim,
            AddressKind::StatefulSet,
            AddressKind::Deployment,
            AddressKind::Autoscaler,
        ];
        let (kind, name) = address(text, &kinds)?;
        Ok(match kind {
            AddressKind::StatefulSet => Whose::StatefulSet(name),
            AddressKind::Deployment => Whose::Deployment(name),
            AddressKind::Autoscaler => Whose::Autoscaler(name),
            _ => Whose::Claim(name),
        })
    }
}

/// Reads the name of a node, as `node/NAME` or `NAME`.
///
/// # Errors
/// What to write instead.
pub fn node(text: &str) -> Result<String, String> {
    address(text, &[AddressKind::Node]).map(|(_, name)| name)
}

/// The error for an object that does not exist, with the command that lists those that do.
pub(super) fn not_found(kind: &str, name: &str, namespace: &str, plural: &str) -> AskError {
    AskError::Refused {
        reason: format!(
            "there is no {kind} {name} in namespace {namespace}; `kubectl get {plural} \
             --all-namespaces` lists them"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_type_and_a_name_or_a_name_alone() {
        let read = |text: &str| {
            address(text, &[AddressKind::Claim, AddressKind::StatefulSet, AddressKind::Pool])
        };
        let is = |kind, name: &str| Ok((kind, name.to_owned()));
        assert_eq!(read("db"), is(AddressKind::Claim, "db"));
        for text in ["pvc/db", "persistentvolumeclaims/db", "PersistentVolumeClaim/db"] {
            assert_eq!(read(text), is(AddressKind::Claim, "db"), "{text}");
        }
        for text in ["sts/db", "statefulset/db", "StatefulSet/db", "statefulset.apps/db"] {
            assert_eq!(read(text), is(AddressKind::StatefulSet, "db"), "{text}");
        }
        assert_eq!(read("spool/fast"), is(AddressKind::Pool, "fast"));
        let write = "write pvc/NAME, sts/NAME or pool/NAME";
        for text in ["", "pvc/", "sts/a/b", "a/"] {
            assert_eq!(read(text).unwrap_err(), write, "{text:?}");
        }
        for (text, word) in [("node/n1", "node"), ("pod/x", "pod"), ("/x", "")] {
            let said = format!("`{word}` is not a type that this command takes: {write}");
            assert_eq!(read(text).unwrap_err(), said, "{text}");
        }
    }

    #[test]
    fn a_node_is_named_with_or_without_its_type() {
        assert_eq!(node("n1").as_deref(), Ok("n1"));
        assert_eq!(node("node/n1").as_deref(), Ok("n1"));
        assert_eq!(node("no/n1").as_deref(), Ok("n1"));
        assert_eq!(
            node("pvc/n1").unwrap_err(),
            "`pvc` is not a type that this command takes: write node/NAME"
        );
    }
}
