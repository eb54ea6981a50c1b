//! How full a file system is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Quantity;

/// Usage of a mounted file system.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageStatus {
    /// Total bytes of the file system that files can occupy.
    pub capacity: Quantity,
    /// Bytes of the file system that files occupy.
    pub used: Quantity,
    /// Bytes that an ordinary user can still write.
    pub available: Quantity,
    /// Total number of inodes. Absent where the file system does not count them, as btrfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<i64>,
    /// Number of inodes in use. Absent where the file system does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<i64>,
}
