//! Turns requests into words of the field that cannot be wrong. Pure; the secrets of a request are
//! never looked at.
//!
//! Each refusal names the field as `csi.proto` spells it, what is wrong, and what would be right.

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};

use crate::bytes::Bytes;
use crate::pb;
use crate::volume::{ClassError, FsKind, TOPOLOGY, VolumeId};

mod capability;
mod node;
mod page;
mod size;
mod snapshot;
mod volume;

pub use capability::{Capability, RequestedAccess};
pub use node::{Expansion, StatsArgs, Unpublish, Unstage, publish, stage};
pub use page::{page_of_health, page_of_volumes};
pub use snapshot::{
    WantedSnapshots, held_snapshot, new_snapshot, removed_snapshot, wanted_snapshots,
};
pub use volume::{Enlargement, Validation, capacity_query, held, new_volume, removed};

/// Longest name of a volume in characters, whatever their width in bytes.
const LONGEST_NAME: usize = 128;
/// Longest map in bytes, keys and values together (CSI, Size Limits).
const LARGEST_MAP: usize = 4096;
/// Longest path in bytes, without the closing zero (`PATH_MAX`).
const LONGEST_PATH: usize = 4095;

/// Defaults for fields that a request does not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// The file system, where neither the request nor its class names one.
    pub fs: FsKind,
    /// The size of a volume without a capacity range.
    pub size: Bytes,
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults { fs: FsKind::Ext4, size: Bytes::gib(1) }
    }
}

/// Reason why a request is invalid. Each variant has its own code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A field is missing, or can never be served as it is.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field, as csi.proto spells it.
        field: String,
        /// What is wrong, and what is valid.
        reason: String,
    },
    /// Nothing can be published at the path.
    #[error("nothing is published there: {reason}")]
    Nowhere {
        /// Why the path is invalid.
        reason: String,
    },
    /// The kubelet has its directory elsewhere, so mounts there would not be visible.
    #[error("{field}: {} is not below {}, the expected directory of the kubelet{todo}", path.display(), dir.display())]
    NotOfKubelet {
        /// Name of the field in the protocol.
        field: String,
        /// Value of the field.
        path: PathBuf,
        /// Expected directory of the kubelet.
        dir: PathBuf,
        /// The setting to change, if it is known.
        todo: String,
    },
    /// No volume of this driver can have the id.
    #[error("volume {id:?} does not exist: this is not a volume id of this driver")]
    Foreign {
        /// Beginning of the id, as the caller wrote it.
        id: String,
    },
    /// No snapshot of this driver can have the id.
    #[error("snapshot {id:?} does not exist: this is not a snapshot id of this driver")]
    ForeignSnapshot {
        /// Beginning of the id, as the caller wrote it.
        id: String,
    },
    /// The sizes contradict each other.
    #[error("capacity_range: {reason}")]
    Range {
        /// The sizes and the rule.
        reason: String,
    },
    /// A volume is published that was not staged.
    #[error("staging_target_path: missing; call NodeStageVolume first and name its path")]
    Unstaged,
    /// A list is continued from nowhere.
    #[error("starting_token: not a token of this driver; list again from the start")]
    Token,
}

impl ParseError {
    fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        ParseError::Invalid { field: field.into(), reason: reason.into() }
    }

    fn missing(field: impl Into<String>) -> Self {
        ParseError::invalid(field, "missing; it is required")
    }
}

impl From<ClassError> for ParseError {
    fn from(error: ClassError) -> Self {
        ParseError::invalid(format!("parameters[{:?}]", error.key), error.reason)
    }
}

/// Parses a volume id: a missing one is invalid, one of another shape names no volume.
fn id(text: &str) -> Result<VolumeId, ParseError> {
    if text.is_empty() {
        return Err(ParseError::missing("volume_id"));
    }
    text.parse().map_err(|_| ParseError::Foreign { id: text.chars().take(64).collect() })
}

/// Parses the name of a volume to be made: 1 to 128 characters, and none of those that CSI forbids.
fn name(text: &str) -> Result<String, ParseError> {
    let forbidden = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    if text.is_empty() {
        return Err(ParseError::missing("name"));
    }
    if text.chars().count() > LONGEST_NAME {
        let reason = format!("longer than {LONGEST_NAME} characters");
        return Err(ParseError::invalid("name", reason));
    }
    if text.contains(forbidden) {
        return Err(ParseError::invalid("name", "contains a control character"));
    }
    Ok(text.to_owned())
}

/// Parses a path that is made, mounted at or removed: absolute, one file below the root, plain.
fn path(field: &str, text: &str) -> Result<PathBuf, ParseError> {
    let plain = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    let path = PathBuf::from(text);
    if text.is_empty() {
        return Err(ParseError::missing(field));
    }
    if !path.is_absolute() || path.parent().is_none() || !path.components().all(plain) {
        let reason = "not an absolute path without `..` to something below the root";
        return Err(ParseError::invalid(field, reason));
    }
    if text.len() > LONGEST_PATH || text.contains(char::is_control) {
        let reason = format!("longer than {LONGEST_PATH} bytes, or contains a control character");
        return Err(ParseError::invalid(field, reason));
    }
    Ok(path)
}

/// Refuses a map beyond the size that CSI allows.
fn bounded<'a>(
    field: &str,
    map: &'a BTreeMap<String, String>,
) -> Result<&'a BTreeMap<String, String>, ParseError> {
    let size: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > LARGEST_MAP {
        let reason = format!("larger than {LARGEST_MAP} bytes");
        return Err(ParseError::invalid(field, reason));
    }
    Ok(map)
}

/// Parses the topology of one node; `None` where it says nothing.
fn node_of(field: &str, topology: &pb::Topology) -> Result<Option<String>, ParseError> {
    if let Some(key) = topology.segments.keys().find(|key| *key != TOPOLOGY) {
        let reason = format!("key {key:?} is unknown; only {TOPOLOGY} is known");
        return Err(ParseError::invalid(field, reason));
    }
    Ok(topology.segments.get(TOPOLOGY).cloned())
}

#[cfg(test)]
mod tests;
