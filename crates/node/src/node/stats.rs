//! The state of volumes and pools: from system calls and the last reading, never by a process.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::host::{DeviceNumber, DmInfo, PathKind};
use crate::lvm::{Spent, layout};
use crate::mount::MountTable;
use crate::node::error::failed;
use crate::node::find::{hidden, live_device, must_find, recall};
use crate::node::found::FoundVolume;
use crate::node::pools::{Pool, served};
use crate::node::thin_figures::{thin_usage, thin_volume_ailment};
use crate::node::{Node, lv_tags};
use crate::volume::{
    FsUsage, Layout, PoolAilment, PoolSummary, Severity, Stats, Volume, VolumeCondition,
    VolumeError, VolumeId, VolumeStatus,
};

/// What is read once for many volumes.
pub(super) struct StatsSnapshot {
    pub table: MountTable,
    /// Numbers of the live devices by dm uuid.
    pub live: HashMap<String, DeviceNumber>,
    /// Errors of file systems by device, where there are some.
    errors: BTreeMap<DeviceNumber, u64>,
}

impl Node {
    /// Lists the volumes of the last readings, without accessing a disk.
    ///
    /// # Errors
    /// [`VolumeError::Failed`] if the kernel does not report its mounts or devices.
    pub async fn remembered_volumes(&self) -> Result<Vec<VolumeStatus>, VolumeError> {
        let look = look(self).await?;
        let mut volumes = Vec::new();
        for (pool, group) in served(&self.pools()) {
            let Some(seen) = group.remembered() else {
                continue;
            };
            for (lv, record) in lv_tags::volumes(&seen) {
                let (pool, group) = (pool.clone(), group.clone());
                let found = FoundVolume { pool, group, seen: seen.clone(), lv: lv.clone(), record };
                volumes.push(describe(self, &found, &look));
            }
        }
        volumes.sort_by(|a, b| a.volume.id.cmp(&b.volume.id));
        Ok(volumes)
    }

    /// Returns the number of bytes wiped since the start.
    pub fn wiped(&self) -> Bytes {
        self.wipes.wiped()
    }

    /// Returns the durations and failures of each LVM command since the start.
    pub fn lvm_spent(&self) -> BTreeMap<&'static str, Spent> {
        let mut sums = BTreeMap::<_, Spent>::new();
        let pools = self.pools();
        for (command, spent) in served(&pools).flat_map(|(_, group)| group.spent()) {
            sums.entry(command).or_default().add(&spent);
        }
        sums
    }

    /// Returns the pools at their last readings, without accessing a disk.
    pub fn remembered_pools(&self) -> Vec<PoolSummary> {
        self.pools().iter().map(summary).collect()
    }

    fn misses_a_disk(found: &FoundVolume) -> bool {
        found
            .lv
            .segments
            .iter()
            .flat_map(|segment| &segment.pieces)
            .any(|piece| found.seen.pvs.get(&piece.pv).is_none_or(|pv| pv.device.is_none()))
    }
}

/// Asks the kernel how full the thin pools of a node are, for what [`Node::storage`] reports next; reads no disk and starts no
/// process.
pub async fn read_thin_usages(node: &Node) {
    for (_, group) in served(&node.pools()) {
        thin_usage(group).await;
    }
}

pub(super) async fn look(node: &Node) -> Result<StatsSnapshot, VolumeError> {
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    let devices = node.host.dm_list().await.map_err(failed("device-mapper"))?;
    // Of most volumes there is nothing to ask: they are not mounted.
    let numbers = devices.iter().map(|device| device.number);
    let numbers: Vec<_> = numbers.filter(|one| !node.shown(&table, *one).is_empty()).collect();
    Ok(StatsSnapshot {
        table,
        errors: ext_errors(node, &numbers).await?,
        live: devices.into_iter().map(|device| (device.uuid, device.number)).collect(),
    })
}

async fn ext_errors(
    node: &Node,
    devices: &[DeviceNumber],
) -> Result<BTreeMap<DeviceNumber, u64>, VolumeError> {
    let errors = node.host.ext_errors(devices).await;
    errors.map_err(failed("failed to read the error counts of file systems"))
}

/// Describes a volume.
pub(super) fn volume(node: &Node, found: &FoundVolume) -> Volume {
    Volume {
        id: found.record.id.clone(),
        name: found.record.name.clone(),
        pool: found.pool.name.clone(),
        node: node.settings.name.clone(),
        size: found.size(),
        // Its size is the most that it can have been.
        requested: found.record.requested.unwrap_or_else(|| found.size()),
        mode: found.record.mode,
    }
}

/// Describes a volume and how it is now.
pub(super) fn describe(node: &Node, found: &FoundVolume, look: &StatsSnapshot) -> VolumeStatus {
    let number = look.live.get(&found.dm_uuid());
    let published = number.is_some_and(|number| {
        let kernel_name = format!("dm-{}", number.minor);
        !node.shown(&look.table, *number).is_empty()
            || look.table.of_node(&kernel_name).next().is_some()
    });
    VolumeStatus {
        volume: volume(node, found),
        state: node.state(found),
        published,
        fence: found.record.fence,
        limit: found.record.limit,
        ailments: ailments(node, found, number.copied(), look),
    }
}

/// Lists all volumes in the order of their ids: one reading a volume group, one mount table,
/// one device list.
///
/// # Errors
/// [`VolumeError::Unavailable`] if a volume group was never read or set up: in a list without
/// its volumes they would seem to be deleted. A volume group that was read before is listed as
/// it was then.
pub(super) async fn list_volumes(node: &Node) -> Result<Vec<VolumeStatus>, VolumeError> {
    if let Some(hidden) = hidden(node, &|_: &Pool| true) {
        return Err(hidden);
    }
    for (_, group) in served(&node.pools()) {
        if let Err(error) = group.read().await
            && group.remembered().is_none()
        {
            return Err(error.into());
        }
        thin_usage(group).await;
    }
    node.remembered_volumes().await
}

fn ailments(
    node: &Node,
    found: &FoundVolume,
    number: Option<DeviceNumber>,
    look: &StatsSnapshot,
) -> Vec<VolumeCondition> {
    let mut ailments = Vec::new();
    let mut add = |severity, reason, message| {
        ailments.push(VolumeCondition { severity, reason, message });
    };
    if let Some(trouble) = found.group.trouble() {
        add(Severity::Inaccessible, "VolumeGroupUnavailable", trouble);
    }
    if Node::misses_a_disk(found) {
        let group = found.group.name();
        add(
            Severity::Inaccessible,
            "DiskMissing",
            format!("a disk that holds a part of it is missing; see `pvs` and `vgs {group}`"),
        );
    } else if let Some(elsewhere) = found.group.elsewhere(&found.lv.name) {
        add(Severity::Inaccessible, "DiskMissing", elsewhere);
    } else if found.seen.missing().next().is_some() {
        add(
            Severity::Degraded,
            "VolumeGroupNotChangeable",
            "another disk of its volume group is missing, so it cannot be changed".to_owned(),
        );
    }
    if let Some(reason) = node.waits_to_grow(found.record.id.key()) {
        add(
            Severity::Degraded,
            "FilesystemResizePending",
            format!("its file system is smaller than its device: {reason}"),
        );
    }
    if found.lv.layout() == Layout::Thin {
        ailments.extend(thin_volume_ailment(&found.pool.terms, &found.group, &found.seen));
    }
    ailments.extend(number.and_then(|number| file_system_ailment(node, number, look)));
    ailments
}

/// What is wrong with the mounted file system on a device.
fn file_system_ailment(
    node: &Node,
    number: DeviceNumber,
    look: &StatsSnapshot,
) -> Option<VolumeCondition> {
    let mounts = node.shown(&look.table, number);
    let place = mounts.first()?.target.display();
    let turned = mounts.iter().any(|mount| {
        let has = |options: &[String]| options.iter().any(|option| option == "ro");
        has(&mount.super_options) && !has(&mount.mount_options)
    });
    let (reason, what) = match (turned, look.errors.get(&number)) {
        (true, _) => ("FilesystemReadOnly", "is read-only after an error".to_owned()),
        (false, Some(count)) => {
            let words =
                format!("has had {count} errors and is read-only if its journal was aborted");
            ("FilesystemErrors", words)
        }
        (false, None) => return None,
    };
    let message = format!(
        "the file system at {place} {what}; see the kernel log, stop the workload and check it"
    );
    Some(VolumeCondition { severity: Severity::Degraded, reason, message })
}

/// Returns the usage of the volume at `path`; starts no process and reads no disk.
///
/// # Errors
/// [`VolumeError::NotFound`] if there is no such volume or it is not at `path`.
pub(super) async fn stats_of(
    node: &Node,
    id: &VolumeId,
    path: &Path,
) -> Result<Stats, VolumeError> {
    let found = recall(node, id).await?;
    let not_there = || VolumeError::NotFound { id: format!("{id} at {}", path.display()) };
    let (_, info) = live_device(node, &found).await?.ok_or_else(not_there)?;
    let kind = node.host.path_kind(path).await.map_err(failed("the volume path"))?;
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    let errors = ext_errors(node, &[info.number]).await?;
    let look = StatsSnapshot { table, live: HashMap::new(), errors };
    let mut ailments = ailments(node, &found, Some(info.number), &look);
    let usage = match kind {
        Some(PathKind::Block(number)) if number == info.number => None,
        Some(PathKind::Directory)
            if look.table.at(path).is_some_and(|mount| mount.device == info.number) =>
        {
            usage_unless_suspended(node, path, &info, &mut ailments).await?
        }
        _ => return Err(not_there()),
    };
    Ok(Stats { size: found.size(), usage, ailments })
}

/// Asking a file system on a suspended device could wait for ever.
pub(super) async fn usage_unless_suspended(
    node: &Node,
    path: &Path,
    info: &DmInfo,
    ailments: &mut Vec<VolumeCondition>,
) -> Result<Option<FsUsage>, VolumeError> {
    if info.suspended {
        ailments.push(VolumeCondition {
            severity: Severity::Inaccessible,
            reason: "VolumeSuspended",
            message: "its device is suspended, because a change was interrupted; the next \
                          operation on it resumes it"
                .to_owned(),
        });
        return Ok(None);
    }
    let usage = node.host.usage(path).await;
    usage.map(Some).map_err(failed("failed to read the usage of the file system"))
}

/// Returns the unhealthy conditions of a volume as seen from this node.
pub(super) async fn health_of(
    node: &Node,
    id: &VolumeId,
) -> Result<Vec<VolumeCondition>, VolumeError> {
    let found = must_find(node, id).await?;
    let look = look(node).await?;
    Ok(describe(node, &found, &look).ailments)
}

/// Returns the unhealthy conditions of the pools; empty if there are none.
pub(super) async fn health_of_pools(node: &Node) -> Vec<PoolAilment> {
    let mut ailing = Vec::new();
    for pool in node.pools().iter() {
        let seen = pool.see().await;
        let (name, unreachable) = (&pool.name, seen.unreachable());
        let told = |ailment| PoolAilment { pool: name.clone(), ailment, unreachable };
        ailing.extend(seen.ailments().map(told));
    }
    ailing
}

fn summary(pool: &Arc<Pool>) -> PoolSummary {
    let read: Vec<_> = pool.all_groups().filter_map(|group| group.remembered()).collect();
    let own: Vec<_> = pool.groups.iter().filter_map(|group| group.remembered()).collect();
    let changeable = own.iter().filter(|group| group.changeable());
    let ages = pool.all_groups().map(|group| group.last_reading().map(|at| at.elapsed()));
    PoolSummary {
        name: pool.name.clone(),
        size: read.iter().map(|group| group.size_of(group.extents())).sum(),
        free: changeable.map(|group| group.size_of(group.free_extents())).sum(),
        largest: own
            .iter()
            .map(|group| {
                group.size_of(layout::largest_new(group, Layout::Linear, &pool.terms, None))
            })
            .max()
            .unwrap_or_default(),
        available: pool.trouble.is_empty()
            && read.len() == pool.all_groups().count()
            && read.iter().all(|group| group.changeable())
            && pool.all_groups().all(|group| group.hung().is_none()),
        last_reading: ages.collect::<Option<Vec<_>>>().and_then(|ages| ages.into_iter().max()),
    }
}
