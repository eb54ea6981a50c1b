//! Objects of others that swaps depend on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::bytes::Bytes;
use crate::claims::topology::{AlternativeNode, ReadableNode};

/// Objects of others that swaps depend on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SwapContext {
    /// The quotas of the namespace.
    pub quotas: Vec<ResourceQuota>,
    /// PodDisruptionBudgets of the namespace.
    pub budgets: Vec<PodDisruptionBudget>,
    /// Free space on the node of a claim's volume in the class of the template, by claim.
    pub room: BTreeMap<String, NodeFreeSpace>,
    /// Nodes on which the volume of a claim can be read, by claim; none if that is everywhere or
    /// unknown.
    pub places: BTreeMap<String, Vec<ReadableNode>>,
    /// Place for the new volume, by claim, if it cannot be on the node of the old one.
    pub elsewhere: BTreeMap<String, AlternativeNode>,
}

/// Free space on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeFreeSpace {
    pub node: String,
    /// The largest volume that could be made there; `None` if it has no pool for it.
    pub largest: Option<Bytes>,
    /// Claims of the workload that earlier swaps retain there.
    pub retained: Vec<String>,
}
