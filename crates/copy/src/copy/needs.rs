//! What a tree needs of a file system.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bytes::Bytes;

use super::outcome::{CopyError, shown};
use super::progress::Totals;

/// Space that a tree needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Bytes that its files hold, each in whole blocks of the file system that they are for.
    #[serde(deserialize_with = "bytes")]
    pub bytes: Bytes,
    /// Files, directories and all else.
    pub inodes: u64,
    /// Totals of what has to be copied.
    pub totals: Totals,
    /// The first entry with an attribute that only an administrator may set on a copy.
    pub reserved: Option<Reserved>,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    u64::deserialize(deserializer).map(Bytes::new)
}

/// An extended attribute that only `CAP_SYS_ADMIN` may set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Path of the entry that has it.
    pub path: Vec<u8>,
    /// Name of the attribute.
    pub name: Vec<u8>,
}

impl Reserved {
    /// Returns the error that a copy may not set the attribute.
    pub fn refusal(&self) -> CopyError {
        let (path, name) = (shown(&self.path), shown(&self.name));
        CopyError::Refused(format!(
            "{path} has the attribute {name}, which only a process with CAP_SYS_ADMIN may set: \
             remove it at the source (setfattr --remove {name} FILE) if it is not needed, or copy \
             as root on a node"
        ))
    }
}
