//! Reports the storage of this node from the last readings, so that no disk is accessed.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::lvm::{Group, PhysicalVolume, VolumeGroup};
use crate::node::pools::{self, ObservedPool, PlannedDisk, Pool, roomiest, served};
use crate::node::standby::{room_of, would_take};
use crate::node::storage::{
    DISK_REJECTED, DiskReport, DiskUse, GroupReport, HEALTHY, LargestVolume, NO_VOLUME_GROUP,
    OperationKind, OperationReport, PoolHealth, PoolReport, Storage,
};
use crate::node::thin_figures::{thin_ailment, thin_report};
use crate::node::{Node, lv_tags};
use crate::volume::{Layout, Severity, VolumeId};

impl Node {
    /// Returns the storage of the node and the planned actions of its pools, from the last
    /// readings: no disk is accessed.
    ///
    /// [`Node::set_pools`] and [`NodeVolumes::storage_health`](crate::volume::NodeVolumes::storage_health) read all volume groups; the state of disks
    /// that are in none is as old as the last plans.
    pub fn storage(&self) -> Storage {
        let mut pools = self.pools().to_vec();
        let default = pools::default_pool(&pools).map(|pool| pool.name.clone());
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        let status =
            |pool: &Arc<Pool>| pool_status(self, pool, default.as_ref() == Some(&pool.name));
        let statuses: Vec<PoolReport> = pools.iter().map(status).collect();
        let mut operations: Vec<OperationReport> = self
            .wipes
            .under_way()
            .into_iter()
            .map(|(key, progress)| {
                let volume = VolumeId::new(self.settings.key.clone(), key);
                OperationReport { volume, r#type: OperationKind::Wipe, progress }
            })
            .collect();
        operations.extend(self.copies.under_way().into_iter().map(|(volume, progress)| {
            OperationReport { volume, r#type: OperationKind::Copy, progress }
        }));
        operations.sort_by(|a, b| a.volume.cmp(&b.volume));
        Storage {
            size: statuses.iter().map(|pool| pool.size).sum(),
            free: statuses.iter().map(|pool| pool.free).sum(),
            volumes: statuses.iter().map(|pool| pool.volumes).sum(),
            health: of_all(&statuses),
            pools: statuses,
            groups: served(&pools).map(|(pool, group)| group_status(pool, group)).collect(),
            disks: pools.iter().flat_map(|pool| disk_statuses(pool)).collect(),
            operations,
        }
    }
}

fn pool_status(node: &Node, pool: &Pool, default: bool) -> PoolReport {
    let seen = pool.recall();
    let standby = known_standby_room(node, &seen);
    let all: Vec<_> = pool.all_groups().filter_map(|group| group.remembered()).collect();
    let open = seen.groups.iter().filter(|(_, group)| group.changeable());
    let room = |layout| LargestVolume { layout, size: seen.largest(layout, standby) };
    let (health, reason, message) = how(&seen);
    PoolReport {
        name: pool.name.clone(),
        configured: pool.configured,
        default,
        size: all.iter().map(|group| group.size_of(group.extents())).sum(),
        free: open.map(|(_, group)| group.size_of(group.free_extents())).sum(),
        largest: Layout::ALL.into_iter().map(room).collect(),
        extent: all.iter().map(|group| group.extent_size).min().unwrap_or_default(),
        volumes: all.iter().map(|group| lv_tags::volumes(group).count()).sum(),
        health,
        reason,
        message,
        plan: pool.plan.clone(),
        refused: pool.refused.clone(),
    }
}

/// What the standby disks would bring that wait to join, as far as that is known without a look at them.
fn known_standby_room(node: &Node, seen: &ObservedPool<'_>) -> Bytes {
    let Some((handle, group)) = roomiest(seen) else { return Bytes::ZERO };
    let pool = seen.pool;
    let blank = |disk: &&PlannedDisk| disk.state == DiskUse::Standby && disk.message.is_none();
    let is_standby =
        |disk: &&PlannedDisk| pool.standby_disks.iter().any(|standby| standby.path == disk.path);
    let waiting = pool.disks.iter().filter(|disk| group_with(pool, disk).is_none());
    let disks = waiting.filter(blank).filter(is_standby).filter_map(|disk| disk.disk.as_ref());
    room_of(disks.filter(|disk| would_take(node, disk, handle, group)), group)
}

/// How a node is by its pools: what is wrong with one of them does not make the others unusable, and one
/// that only plans makes them no worse.
fn of_all(pools: &[PoolReport]) -> PoolHealth {
    let only_plans = |pool: &&PoolReport| {
        !pool.plan.is_empty() && pool.refused.is_empty() && pool.size == Bytes::ZERO
    };
    let (plan, others): (Vec<&PoolReport>, Vec<&PoolReport>) = pools.iter().partition(only_plans);
    let counted = if others.is_empty() { plan } else { others };
    let worst = counted.iter().map(|pool| pool.health).max().unwrap_or_default();
    let is_one_usable = counted.iter().any(|pool| pool.health != PoolHealth::Unavailable);
    if is_one_usable { worst.min(PoolHealth::Degraded) } else { worst }
}

/// How a pool is, and why: the reason of the worst, and a sentence with all.
fn how(seen: &ObservedPool<'_>) -> (PoolHealth, &'static str, Option<String>) {
    let pool = seen.pool;
    let ailments: Vec<_> = seen.ailments().collect();
    let worst = ailments.iter().map(|ailment| match ailment.severity {
        Severity::Degraded => PoolHealth::Degraded,
        Severity::Inaccessible | Severity::DataLoss => PoolHealth::Unavailable,
    });
    // What keeps a group away is among the conditions already.
    let refused = pool.refused.iter().filter(|words| !pool.trouble.contains(words)).cloned();
    let refused: Vec<String> = refused.collect();
    let waits = !pool.plan.is_empty() && pool.groups.is_empty();
    let why = waits.then(|| "it has no volume group yet: see the planned actions".to_owned());
    let health = worst
        .chain((!refused.is_empty()).then_some(PoolHealth::Degraded))
        .chain((pool.configured && seen.groups.is_empty()).then_some(PoolHealth::Unavailable))
        .max();
    let worst = ailments.iter().rev().max_by_key(|ailment| ailment.severity);
    let reason = match worst {
        Some(ailment) => ailment.reason,
        None if !refused.is_empty() => DISK_REJECTED,
        None if health.is_some() => NO_VOLUME_GROUP,
        None => HEALTHY,
    };
    let told = ailments.into_iter().map(|ailment| ailment.message);
    let message = pools::listed(why.into_iter().chain(told).chain(refused));
    (health.unwrap_or_default(), reason, message)
}

fn group_status(pool: &Pool, handle: &Arc<VolumeGroup>) -> GroupReport {
    let read = handle.remembered();
    let unread = || read.is_none().then(|| "it was never read".to_owned());
    let away = trouble(handle).or_else(unread);
    let frozen = read.as_ref().and_then(|group| group.frozen());
    let leaves = pool.leaving.iter().any(|ours| Arc::ptr_eq(ours, handle));
    let left = read.as_ref().filter(|_| leaves).and_then(|group| pools::not_configured(group));
    let thin = read.as_ref().and_then(|group| thin_ailment(&pool.terms, handle, group));
    let health = match (&away, frozen.is_some() || left.is_some() || thin.is_some()) {
        (Some(_), _) => PoolHealth::Unavailable,
        (None, true) => PoolHealth::Degraded,
        (None, false) => PoolHealth::Ok,
    };
    let reason = match (&away, &frozen, &left) {
        (Some(_), ..) => "VolumeGroupUnavailable",
        (None, Some(_), _) => "VolumeGroupNotChangeable",
        (None, None, Some(_)) => "PoolNotConfigured",
        (None, None, None) => thin.as_ref().map_or(HEALTHY, |ailment| ailment.reason),
    };
    let thin_pool = read.as_ref().and_then(|group| thin_report(&pool.terms, handle, group));
    let sum = |extents: fn(&Group) -> u64| {
        read.as_ref().map(|group| group.size_of(extents(group))).unwrap_or_default()
    };
    GroupReport {
        name: handle.name().to_owned(),
        pool: pool.name.clone(),
        size: sum(Group::extents),
        free: sum(Group::free_extents),
        thin_pool,
        health,
        reason,
        message: pools::listed(
            away.into_iter().chain(frozen).chain(left).chain(thin.map(|ailment| ailment.message)),
        ),
    }
}

/// The disks of a pool's groups, then those that its plan names and no group has.
fn disk_statuses(pool: &Pool) -> Vec<DiskReport> {
    let mut disks = Vec::new();
    for handle in pool.all_groups() {
        let Some(group) = handle.remembered() else { continue };
        let away = trouble(handle);
        let is_named = pool.disks.iter().any(|disk| disk.group.as_ref() == Some(&group.name));
        if away.is_none() || !is_named {
            let disk = |pv| disk_of_group(pool, &group, pv, away.as_ref());
            disks.extend(group.pvs.values().map(disk));
        }
    }
    let others = pool.disks.iter().filter(|disk| group_with(pool, disk).is_none());
    disks.extend(others.map(|disk| DiskReport {
        device: disk.path.display().to_string(),
        size: disk.disk.as_ref().map(|disk| disk.size),
        group: disk.group.clone(),
        state: disk.state,
        message: disk.message.clone(),
    }));
    disks
}

fn disk_of_group(
    pool: &Pool,
    group: &Group,
    pv: &PhysicalVolume,
    trouble: Option<&String>,
) -> DiskReport {
    let is_it = |disk: &&PlannedDisk| disk.device.is_some() && disk.device == pv.device;
    let named = pool.disks.iter().find(is_it).map(|disk| &disk.path);
    let path = named.or(pv.device.as_ref()).map(|path| path.display().to_string());
    let away = path.is_none().then(|| {
        format!("the disk of this physical volume of {} is missing; see `pvs`", group.name)
    });
    let message = trouble.cloned().or(away);
    DiskReport {
        device: path.unwrap_or_else(|| pv.uuid.clone()),
        size: pv.device.as_ref().map(|_| pv.size),
        group: Some(group.name.clone()),
        state: if message.is_some() { DiskUse::Missing } else { DiskUse::Used },
        message,
    }
}

/// Why a group cannot be read, as far as that was tried.
fn trouble(handle: &Arc<VolumeGroup>) -> Option<String> {
    handle.hung().or_else(|| handle.trouble())
}

/// The readable group of the pool that a disk is in.
fn group_with(pool: &Pool, disk: &PlannedDisk) -> Option<Arc<Group>> {
    let device = disk.device.as_ref()?;
    let readable = pool.all_groups().filter(|handle| trouble(handle).is_none());
    let has_it =
        |group: &Arc<Group>| group.pvs.values().any(|pv| pv.device.as_ref() == Some(device));
    readable.filter_map(|handle| handle.remembered()).find(has_it)
}
