//! Snapshots on the nodes, from the NodeStorages of their node plugins.

use crate::api::{MOST_SNAPSHOTS, NodeStorageStatus};
use crate::cluster::convert;
use crate::cluster::nodes::{Nodes, name};
use crate::volume::{Snapshot, SnapshotId, VolumeError, VolumeId};

/// Finds a snapshot in the NodeStorage of its node.
///
/// # Errors
/// [`VolumeError::Unavailable`] if it is not listed and the NodeStorage may lack some.
pub(super) fn find_snapshot(
    nodes: &Nodes,
    id: &SnapshotId,
) -> Result<Option<Snapshot>, VolumeError> {
    let node = nodes.of(id.source())?;
    let Some(record) = nodes.record_of(id.source()) else { return Ok(None) };
    let status = record.status.clone().unwrap_or_default();
    let text = id.to_string();
    let told = status.snapshots.iter().find(|one| one.snapshot_handle == text);
    match told {
        Some(told) => convert::snapshot_told(&node, told).map(Some),
        None => match why_short_of_snapshots(&node, &status) {
            Some(reason) => Err(VolumeError::Unavailable { reason }),
            None => Ok(None),
        },
    }
}

/// Returns all reported snapshots.
///
/// # Errors
/// [`VolumeError::Unavailable`] if a NodeStorage may lack some: a reader could take a missing one for deleted.
pub(super) fn snapshots(nodes: &Nodes) -> Result<Vec<Snapshot>, VolumeError> {
    let mut all = Vec::new();
    for record in nodes.all() {
        let (node, Some(status)) = (name(&record), &record.status) else { continue };
        if let Some(reason) = why_short_of_snapshots(node, status) {
            return Err(VolumeError::Unavailable { reason });
        }
        let told = status.snapshots.iter();
        all.extend(told.filter_map(|one| convert::snapshot_told(node, one).ok()));
    }
    Ok(all)
}

/// # Errors
/// [`VolumeError::PreconditionFailed`] if the node of a volume has as many snapshots as its NodeStorage lists: of one more
/// nobody would know.
pub(super) fn refuse_beyond_list(nodes: &Nodes, source: &VolumeId) -> Result<(), VolumeError> {
    let (node, record) = (nodes.of(source)?, nodes.record_of(source));
    let count = record.and_then(|record| Some(record.status.as_ref()?.snapshot_count));
    if usize::try_from(count.unwrap_or_default()).unwrap_or_default() < MOST_SNAPSHOTS {
        return Ok(());
    }
    Err(VolumeError::PreconditionFailed {
        reason: format!(
            "node {node} has {MOST_SNAPSHOTS} snapshots, the most that one node can have; delete some, see \
             `kubectl get volumesnapshots --all-namespaces`"
        ),
    })
}

/// Waits until the node of a snapshot reports it.
pub(super) async fn until_snapshot_told(
    nodes: &Nodes,
    id: &SnapshotId,
) -> Result<Snapshot, VolumeError> {
    let told = || find_snapshot(nodes, id).transpose();
    nodes.until(told).await
}

/// Waits until the node of a snapshot no longer reports it.
pub(super) async fn until_snapshot_gone(nodes: &Nodes, id: &SnapshotId) {
    let is_told = || matches!(find_snapshot(nodes, id), Ok(Some(_)));
    nodes.until(|| (!is_told()).then_some(())).await;
}

/// Returns why a NodeStorage may lack snapshots; `None` if it does not.
fn why_short_of_snapshots(node: &str, status: &NodeStorageStatus) -> Option<String> {
    if status.leaves_out_snapshots() {
        return Some(format!(
            "node {node} has {} snapshots, but lists only {}; see `kubectl get nodestorage {node} --output yaml`",
            status.snapshot_count,
            status.snapshots.len()
        ));
    }
    status.inventory_gap().map(str::to_owned)
}
