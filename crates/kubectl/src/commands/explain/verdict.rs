//! What a node says of a claim that has no volume yet.

use serde::Serialize;

use super::fit::Bar;
use crate::api::Quantity;

/// Verdict of a node about a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSays {
    /// The node.
    pub node: String,
    /// Pool that the class would use there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Size of the largest volume that fits into the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<Quantity>,
    /// Verdict of the node, for programs.
    pub verdict: NodeVerdict,
    /// Sentence for people, without the node.
    #[serde(rename = "message")]
    pub why: String,
    /// Parts that have to change before the node fits.
    #[serde(skip)]
    pub(super) bars: Vec<Bar>,
}

/// Verdict of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum NodeVerdict {
    /// It has enough free space, and the pod may run there.
    Fits,
    /// The pool does not have enough free space.
    InsufficientCapacity,
    /// The pool cannot be used.
    PoolUnavailable,
    /// It has no such pool.
    PoolNotFound,
    /// The node plugin is not ready there.
    NodePluginUnavailable,
    /// The volume may not be there: the pod may not run there, or the class excludes the node.
    Excluded,
}
