//! Turns outcomes into messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::UNIX_EPOCH;

use crate::bytes::Bytes;
use crate::parse::{RequestedAccess, Validation};
use crate::pb;
use crate::pb::controller_service_capability as controller;
use crate::pb::node_service_capability as node;
use crate::pb::plugin_capability::{self as plugin, service, volume_expansion};
use crate::volume::{
    Capacity, DRIVER, Grown, Listing, Mode, NodeInfo, PoolAilment, Severity, Snapshot,
    SnapshotListing, Source, Stats, TOPOLOGY, Volume, VolumeCondition, VolumeStatus,
};

/// Name and version of the driver.
pub(super) fn plugin_info() -> pb::GetPluginInfoResponse {
    pb::GetPluginInfoResponse {
        name: DRIVER.to_owned(),
        vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
        manifest: BTreeMap::new(),
    }
}

/// Capabilities of the driver.
pub(super) fn plugin_capabilities() -> pb::GetPluginCapabilitiesResponse {
    use service::Type::{ControllerService, VolumeAccessibilityConstraints};
    use volume_expansion::Type::{Offline, Online};
    let services = [ControllerService, VolumeAccessibilityConstraints]
        .map(|kind| plugin::Type::Service(plugin::Service { r#type: kind.into() }));
    let expansions = [Online, Offline]
        .map(|kind| plugin::Type::VolumeExpansion(plugin::VolumeExpansion { r#type: kind.into() }));
    let all = services.into_iter().chain(expansions);
    pb::GetPluginCapabilitiesResponse {
        capabilities: all.map(|kind| pb::PluginCapability { r#type: Some(kind) }).collect(),
    }
}

/// Capabilities of the Controller service.
///
/// `LIST_VOLUMES_PUBLISHED_NODES` is not among them, although the nodes are returned: the standard
/// binds it to `PUBLISH_UNPUBLISH_VOLUME`, and a local volume is not attached.
///
/// # Source
/// CSI 1.13, `ControllerServiceCapability`.
pub(super) fn controller_capabilities() -> pb::ControllerGetCapabilitiesResponse {
    use controller::rpc::Type;
    let all = [
        Type::CreateDeleteVolume,
        Type::ListVolumes,
        Type::CreateDeleteSnapshot,
        Type::ListSnapshots,
        Type::GetSnapshot,
        Type::CloneVolume,
        Type::GetCapacity,
        Type::ExpandVolume,
        Type::GetVolume,
        Type::VolumeCondition,
        Type::SingleNodeMultiWriter,
        Type::GetVolumeHealth,
        Type::ListVolumeHealth,
    ];
    let capability = |kind: Type| pb::ControllerServiceCapability {
        r#type: Some(controller::Type::Rpc(controller::Rpc { r#type: kind.into() })),
    };
    pb::ControllerGetCapabilitiesResponse { capabilities: all.map(capability).to_vec() }
}

/// Capabilities of the Node service.
pub(super) fn node_capabilities() -> pb::NodeGetCapabilitiesResponse {
    use node::rpc::Type;
    let all = [
        Type::StageUnstageVolume,
        Type::ExpandVolume,
        Type::GetVolumeStats,
        Type::VolumeCondition,
        Type::GetVolumeHealth,
        Type::GetStorageHealth,
        Type::SingleNodeMultiWriter,
    ];
    let capability = |kind: Type| pb::NodeServiceCapability {
        r#type: Some(node::Type::Rpc(node::Rpc { r#type: kind.into() })),
    };
    pb::NodeGetCapabilitiesResponse { capabilities: all.map(capability).to_vec() }
}

/// A volume that was made, from this source. A caller takes a volume without its source for another one.
pub(super) fn created(volume: &Volume, source: Option<&Source>) -> pb::CreateVolumeResponse {
    use pb::volume_content_source::{SnapshotSource, Type, VolumeSource};
    let kind = source.map(|source| match source {
        Source::Snapshot(id) => Type::Snapshot(SnapshotSource { snapshot_id: id.to_string() }),
        Source::Volume(id) => Type::Volume(VolumeSource { volume_id: id.to_string() }),
    });
    let content_source = kind.map(|kind| pb::VolumeContentSource { r#type: Some(kind) });
    pb::CreateVolumeResponse { volume: Some(pb::Volume { content_source, ..described(volume) }) }
}

/// A snapshot that was taken.
pub(super) fn snapshot(snapshot: &Snapshot) -> pb::Snapshot {
    let taken = snapshot.taken.duration_since(UNIX_EPOCH).unwrap_or_default();
    pb::Snapshot {
        size_bytes: snapshot.restore_size.to_i64(),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.id.source().to_string(),
        creation_time: Some(prost_types::Timestamp {
            seconds: i64::try_from(taken.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(taken.subsec_nanos()).unwrap_or_default(),
        }),
        ready_to_use: snapshot.ready,
        group_snapshot_id: String::new(),
        ..pb::Snapshot::default()
    }
}

/// Returns one page of snapshots, and the token of the next.
pub(super) fn listed_snapshots(listing: &SnapshotListing) -> pb::ListSnapshotsResponse {
    use pb::list_snapshots_response::Entry;
    let entry = |one: &Snapshot| Entry { snapshot: Some(snapshot(one)) };
    pb::ListSnapshotsResponse {
        entries: listing.snapshots.iter().map(entry).collect(),
        next_token: listing.next.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// A volume that was looked at.
pub(super) fn found(found: &VolumeStatus) -> pb::ControllerGetVolumeResponse {
    pb::ControllerGetVolumeResponse {
        volume: Some(described(&found.volume)),
        status: Some(pb::controller_get_volume_response::VolumeStatus {
            published_node_ids: published(found),
            volume_condition: Some(condition(&found.ailments)),
        }),
    }
}

/// Returns one page of volumes, and the token of the next.
pub(super) fn listed(listing: &Listing) -> pb::ListVolumesResponse {
    use pb::list_volumes_response::Entry;
    let entry = |one: &VolumeStatus| Entry {
        volume: Some(described(&one.volume)),
        status: Some(pb::list_volumes_response::VolumeStatus {
            published_node_ids: published(one),
            volume_condition: Some(condition(&one.ailments)),
        }),
    };
    pb::ListVolumesResponse {
        entries: listing.volumes.iter().map(entry).collect(),
        next_token: token(listing),
    }
}

/// Returns one page of the health of volumes, and the token of the next.
pub(super) fn listed_health(listing: &Listing) -> pb::ControllerListVolumeHealthResponse {
    let health = |one: &VolumeStatus| health(&one.volume.id.to_string(), &one.ailments);
    pb::ControllerListVolumeHealthResponse {
        entries: listing.volumes.iter().map(health).collect(),
        next_token: token(listing),
    }
}

/// Empty after the last page.
fn token(listing: &Listing) -> String {
    listing.next.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Health of a volume, as the controller sees it.
pub(super) fn controller_health(found: &VolumeStatus) -> pb::ControllerGetVolumeHealthResponse {
    pb::ControllerGetVolumeHealthResponse {
        volume_health: Some(health(&found.volume.id.to_string(), &found.ailments)),
    }
}

/// Returns whether a volume supports the requested access, and if not, why.
pub(super) fn validated(
    validation: Validation,
    volume: &Volume,
) -> pb::ValidateVolumeCapabilitiesResponse {
    let objection = match validation.asked {
        Err(error) => Some(error.to_string()),
        Ok(workload) if serves(volume.mode, workload) => None,
        Ok(_) => Some(format!("the volume was created as {}", volume.mode)),
    };
    let elsewhere = validation.pools.iter().find(|pool| **pool != volume.pool.as_str());
    let objection = objection.or_else(|| {
        elsewhere.map(|pool| format!("the volume is in pool {}, not {pool}", volume.pool))
    });
    pb::ValidateVolumeCapabilitiesResponse {
        confirmed: objection.is_none().then_some(validation.echo),
        message: objection.unwrap_or_default(),
    }
}

fn serves(mode: Mode, workload: RequestedAccess) -> bool {
    match (mode, workload) {
        (Mode::Block, RequestedAccess::Block) => true,
        (Mode::Filesystem(has), RequestedAccess::Mount(asked)) => asked.is_none_or(|fs| fs == has),
        (Mode::Block, RequestedAccess::Mount(_))
        | (Mode::Filesystem(_), RequestedAccess::Block) => false,
    }
}

/// Returns the available capacity.
pub(super) fn capacity(capacity: Capacity) -> pb::GetCapacityResponse {
    pb::GetCapacityResponse {
        available_capacity: capacity.free.to_i64(),
        maximum_volume_size: Some(capacity.largest.to_i64()),
        minimum_volume_size: Some(capacity.smallest.to_i64()),
    }
}

/// A volume that grew.
pub(super) fn grown(grown: Grown) -> pb::ControllerExpandVolumeResponse {
    pb::ControllerExpandVolumeResponse {
        capacity_bytes: grown.size.to_i64(),
        node_expansion_required: grown.node_expansion_required,
    }
}

/// Returns the size of a volume whose file system covers it.
pub(super) fn expanded(size: Bytes) -> pb::NodeExpandVolumeResponse {
    pb::NodeExpandVolumeResponse { capacity_bytes: size.to_i64() }
}

/// Returns the usage of a volume: bytes, and inodes where its file system counts them; a raw block
/// volume has its size.
pub(super) fn stats(stats: &Stats) -> pb::NodeGetVolumeStatsResponse {
    use pb::volume_usage::Unit;
    let size = pb::VolumeUsage {
        total: stats.size.to_i64(),
        unit: Unit::Bytes.into(),
        ..Default::default()
    };
    let usage = stats.usage.as_ref().map_or(vec![size], |usage| {
        let bytes = pb::VolumeUsage {
            available: usage.available.to_i64(),
            total: usage.total.to_i64(),
            used: usage.used.to_i64(),
            unit: Unit::Bytes.into(),
        };
        let inodes = pb::VolumeUsage {
            available: count(usage.inodes_free),
            total: count(usage.inodes),
            used: count(usage.inodes.saturating_sub(usage.inodes_free)),
            unit: Unit::Inodes.into(),
        };
        let counted = usage.inodes > 0;
        [Some(bytes), counted.then_some(inodes)].into_iter().flatten().collect()
    });
    pb::NodeGetVolumeStatsResponse { usage, volume_condition: Some(condition(&stats.ailments)) }
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Health of a volume, as the node sees it.
pub(super) fn node_health(
    id: &str,
    ailments: &[VolumeCondition],
) -> pb::NodeGetVolumeHealthResponse {
    pb::NodeGetVolumeHealthResponse { volume_health: Some(health(id, ailments)) }
}

/// Health of the pools, each pair of status and reason once.
pub(super) fn storage_health(ailments: &[PoolAilment]) -> pb::NodeGetStorageHealthResponse {
    let mut told: BTreeMap<(bool, &str), Vec<String>> = BTreeMap::new();
    for PoolAilment { pool, ailment, unreachable } in ailments {
        let messages = told.entry((*unreachable, ailment.reason)).or_default();
        messages.push(format!("pool {pool}: {}", ailment.message));
    }
    let entry = |((unreachable, reason), messages): ((bool, &str), Vec<String>)| {
        let status = if unreachable {
            pb::StorageHealthErrorType::StorageUnreachable
        } else {
            pb::StorageHealthErrorType::StorageDegraded
        };
        pb::node_get_storage_health_response::StorageBackendHealth {
            status: status.into(),
            reason: reason.to_owned(),
            message: messages.join("; "),
            volume_capability: None,
        }
    };
    pb::NodeGetStorageHealthResponse { backend_health: told.into_iter().map(entry).collect() }
}

/// Returns the information about the node.
pub(super) fn node_info(info: NodeInfo) -> pb::NodeGetInfoResponse {
    pb::NodeGetInfoResponse {
        accessible_topology: Some(topology(&info.name)),
        max_volumes_per_node: info.max_volumes_per_node.into(),
        node_id: info.name,
    }
}

fn described(volume: &Volume) -> pb::Volume {
    pb::Volume {
        capacity_bytes: volume.size.to_i64(),
        volume_id: volume.id.to_string(),
        volume_context: BTreeMap::from([("pool".to_owned(), volume.pool.to_string())]),
        content_source: None,
        accessible_topology: vec![topology(&volume.node)],
    }
}

fn topology(node: &str) -> pb::Topology {
    pb::Topology { segments: BTreeMap::from([(TOPOLOGY.to_owned(), node.to_owned())]) }
}

fn published(found: &VolumeStatus) -> Vec<String> {
    found.published.then(|| found.volume.node.clone()).into_iter().collect()
}

fn condition(ailments: &[VolumeCondition]) -> pb::VolumeCondition {
    let sentences: Vec<&str> = ailments.iter().map(|a| a.message.as_str()).collect();
    pb::VolumeCondition {
        abnormal: !ailments.is_empty(),
        message: if ailments.is_empty() { "healthy".to_owned() } else { sentences.join("; ") },
    }
}

fn health(id: &str, ailments: &[VolumeCondition]) -> pb::VolumeHealth {
    let mut seen = BTreeSet::new();
    let first = |ailment: &&VolumeCondition| seen.insert((ailment.severity, ailment.reason));
    let entry = |ailment: &VolumeCondition| pb::volume_health::VolumeHealthEntry {
        status: severity(ailment.severity).into(),
        reason: ailment.reason.to_owned(),
        message: ailment.message.clone(),
    };
    pb::VolumeHealth {
        volume_id: id.to_owned(),
        health_statuses: ailments.iter().filter(first).map(entry).collect(),
    }
}

fn severity(severity: Severity) -> pb::VolumeHealthErrorType {
    match severity {
        Severity::Degraded => pb::VolumeHealthErrorType::Degraded,
        Severity::Inaccessible => pb::VolumeHealthErrorType::Inaccessible,
        Severity::DataLoss => pb::VolumeHealthErrorType::DataLoss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{FsKind, FsUsage};

    fn usage(inodes: u64) -> Stats {
        let usage = FsUsage {
            total: Bytes::new(100),
            used: Bytes::new(70),
            available: Bytes::new(25),
            inodes,
            inodes_free: inodes / 4,
        };
        Stats { size: Bytes::new(120), usage: Some(usage), ailments: Vec::new() }
    }

    fn told(stats: &Stats) -> Vec<(i64, i64, i64, i32)> {
        let usage = super::stats(stats).usage.into_iter();
        usage.map(|usage| (usage.total, usage.used, usage.available, usage.unit)).collect()
    }

    #[test]
    fn usage_is_told_in_bytes_and_inodes_where_they_are_counted() {
        assert_eq!(told(&usage(40)), [(100, 70, 25, 1), (40, 30, 10, 2)]);
        assert_eq!(told(&usage(0)), [(100, 70, 25, 1)]);
        assert_eq!(told(&Stats { usage: None, ..usage(0) }), [(120, 0, 0, 1)]);
    }

    #[test]
    fn a_growth_says_whether_the_node_is_to_follow() {
        for node_expansion_required in [false, true] {
            let told = grown(Grown { size: Bytes::new(7), node_expansion_required });
            assert_eq!(told.node_expansion_required, node_expansion_required);
        }
    }

    #[test]
    fn a_node_says_how_many_volumes_it_takes() {
        let told = node_info(NodeInfo { name: "alpha".to_owned(), max_volumes_per_node: 16 });
        assert_eq!((told.node_id.as_str(), told.max_volumes_per_node), ("alpha", 16));
        assert_eq!(told.accessible_topology, Some(topology("alpha")));
    }

    #[test]
    fn a_volume_serves_what_it_was_made_for() {
        let ext4 = Mode::Filesystem(FsKind::Ext4);
        for (mode, workload, can) in [
            (Mode::Block, RequestedAccess::Block, true),
            (Mode::Block, RequestedAccess::Mount(None), false),
            (ext4, RequestedAccess::Block, false),
            (ext4, RequestedAccess::Mount(None), true),
            (ext4, RequestedAccess::Mount(Some(FsKind::Ext4)), true),
            (ext4, RequestedAccess::Mount(Some(FsKind::Xfs)), false),
        ] {
            assert_eq!(serves(mode, workload), can, "{mode} {workload:?}");
        }
    }

    fn ailment(severity: Severity, message: &str) -> VolumeCondition {
        VolumeCondition { severity, reason: "PoolIncomplete", message: message.to_owned() }
    }

    #[test]
    fn pools_that_ail_alike_are_told_once() {
        use pb::StorageHealthErrorType::{StorageDegraded, StorageUnreachable};
        let ailing = |pool: &str, unreachable| PoolAilment {
            pool: pool.parse().unwrap(),
            ailment: ailment(Severity::Degraded, "a disk is away"),
            unreachable,
        };
        let told = storage_health(&[ailing("a", false), ailing("b", true), ailing("c", false)]);
        let told: Vec<_> =
            told.backend_health.into_iter().map(|one| (one.status, one.message)).collect();
        let both = "pool a: a disk is away; pool c: a disk is away".to_owned();
        let one = "pool b: a disk is away".to_owned();
        assert_eq!(told, [(StorageDegraded.into(), both), (StorageUnreachable.into(), one)]);
    }

    #[test]
    fn severities_are_told_and_each_pair_of_severity_and_reason_once() {
        use pb::VolumeHealthErrorType::{DataLoss, Degraded, Inaccessible};
        let all = [Severity::Degraded, Severity::Inaccessible, Severity::DataLoss];
        let mut ailments: Vec<_> = all.map(|severity| ailment(severity, "first")).into();
        ailments.push(ailment(Severity::Degraded, "second"));
        let told = health("v", &ailments).health_statuses.into_iter();
        let told: Vec<_> = told.map(|entry| (entry.status, entry.message)).collect();
        let expected = [Degraded, Inaccessible, DataLoss];
        assert_eq!(told, expected.map(|status| (status.into(), "first".to_owned())));
    }
}
