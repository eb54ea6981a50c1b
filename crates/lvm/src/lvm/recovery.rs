//! Repairs what a killed LVM command left in the kernel.
//!
//! A killed `lvextend` leaves the volume suspended: a writer on it is unkillable and waits for
//! ever. A new table may wait there, and the kernel does not know whether it was committed. So it
//! is dropped first, and LVM then loads what the metadata describes.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::host::{DeviceNumber, DmDevice, DmInfo, DmTarget, GroupLock, HostError, PathKind};
use crate::lvm::group::{Group, Lv};
use crate::lvm::stack::{Disks, LiveDevice, Stack};
use crate::lvm::volume_group::look::read_all_disks;
use crate::lvm::volume_group::{VgGuard, VolumeGroup, failed};
use crate::lvm::{LvmError, THIN_POOL};

const SECTOR: u64 = 512;

impl VgGuard {
    /// Brings the live devices of these logical volumes in line with the metadata, and removes
    /// devices of this driver that belong to no logical volume.
    ///
    /// # Errors
    /// As [`heal`](VgGuard::heal).
    pub async fn heal_all(&self, lvs: impl Iterator<Item = &Lv> + Send) -> Result<(), LvmError> {
        let group = self.seen().await?;
        let devices = ask(self, self.group.host.dm_list().await)?;
        let live: HashSet<&str> = devices.iter().map(|device| volume_of(&device.uuid)).collect();
        for lv in lvs.filter(|lv| live.contains(group.dm_uuid(lv).as_str())) {
            match self.heal(lv).await {
                // One that is held on another disk keeps the others from nothing.
                Err(LvmError::Elsewhere { .. }) => {}
                other => drop(other?),
            }
        }
        remove_orphans(self, devices).await // After repair: a layer is held until then.
    }

    /// Brings the live device of a logical volume in line with the metadata; an inactive one stays
    /// inactive.
    ///
    /// Returns whether anything had to be done. Costs two system calls, and two a disk, if not.
    ///
    /// A device on another disk than the volume group has is removed, so that the next activation
    /// creates it as described. While it is open it is not changed: what is mounted is never put on
    /// another disk.
    ///
    /// # Errors
    /// [`LvmError::Unusable`] if another LVM command holds the group while the volume is suspended,
    /// [`LvmError::Elsewhere`] if the device is held on another disk.
    pub async fn heal(&self, lv: &Lv) -> Result<bool, LvmError> {
        let mut group = self.seen().await?;
        if disks_have_moved(&self.group).await? {
            group = read_all_disks(&self.group).await?; // LVM is to see them under their new numbers.
        }
        let mut waits = false;
        if lv.is_thin_pool() || lv.thin_pool().is_some() {
            waits |= heal_thin_pool(self, &group).await?;
        }
        let uuid = group.dm_uuid(lv);
        let Some((info, mut live)) = ask(self, self.group.host.dm_table(&uuid).await)? else {
            // A hidden device of it may be in use through another volume.
            return Ok(remove_from_other_disks(self, &group, lv).await? || waits);
        };
        if !info.live_table {
            remove_empty(self, &uuid).await?;
            return Ok(true);
        }
        waits |= waits_for_us(&info);
        if waits_for_us(&info) || group.has_snapshot(lv) || group.is_snapshot(lv) {
            waits |= wake_layers(self, &group, lv).await?; // What is sent to the top ends there.
        }
        if waits_for_us(&info) {
            clear_and_resume(self, &uuid, &info).await?;
            let after = ask(self, self.group.host.dm_table(&uuid).await)?;
            live = after.map_or_else(Vec::new, |(_, table)| table);
        }
        if remove_from_other_disks(self, &group, lv).await? {
            return Ok(true);
        }
        if maps(&live, &group, lv) {
            return Ok(waits);
        }
        tracing::warn!(
            group = self.group.name(),
            lv = lv.name,
            "reloading a partially changed volume"
        );
        let refreshed = self.refresh(&lv.name).await;
        believe_the_kernel(self, refreshed, &uuid, &group, lv).await
    }
}

/// Removes the devices of a logical volume, including hidden ones, if one is on another disk
/// than the volume group has; returns whether one was. While one is open none is changed, since
/// LVM would put them all on the disks that the volume group has.
///
/// # Errors
/// [`LvmError::Elsewhere`] if one is held.
pub(super) async fn remove_from_other_disks(
    turn: &VgGuard,
    group: &Group,
    lv: &Lv,
) -> Result<bool, LvmError> {
    let disks = places_of(&turn.group, group).await?;
    let stack = stack_of(&turn.group, group, lv, &disks).await?;
    let elsewhere = stack.find_elsewhere(group, &disks);
    turn.group.note_elsewhere(&lv.name, elsewhere.clone());
    let Some(reason) = elsewhere else { return Ok(false) };
    let held = || {
        let (group, lv) = (turn.group.name().to_owned(), lv.name.clone());
        LvmError::Elsewhere { group, lv, reason }
    };
    for top in stack.tops() {
        let info = ask(turn, turn.group.host.dm_info(top).await)?;
        if let Some(info) = info
            && is_held(turn, &info).await?
        {
            return Err(held());
        }
    }
    for uuid in stack.into_order_of_removal() {
        remove_unheld(turn, &uuid).await?;
        if ask(turn, turn.group.host.dm_info(&uuid).await)?.is_some() {
            return Err(held()); // It was opened meanwhile.
        }
    }
    turn.group.note_elsewhere(&lv.name, None);
    Ok(true)
}

/// Brings the hidden layers of an origin or a snapshot, and an origin's snapshots, back to work; says
/// whether any waited.
async fn wake_layers(turn: &VgGuard, group: &Group, lv: &Lv) -> Result<bool, LvmError> {
    let own = group.dm_uuid(lv);
    let stores = group.snapshots_of(lv).filter_map(|name| group.lvs.get(name));
    let stores = stores.map(|store| group.dm_uuid(store));
    let stores = stores.flat_map(|uuid| [format!("{uuid}-cow"), uuid]);
    let layers = [format!("{own}-real"), format!("{own}-cow")].into_iter().chain(stores);
    let mut waited = false;
    for uuid in layers {
        let info = ask(turn, turn.group.host.dm_info(&uuid).await)?;
        if let Some(info) = info.filter(|info| info.live_table && waits_for_us(info)) {
            clear_and_resume(turn, &uuid, &info).await?;
            waited = true;
        }
    }
    Ok(waited)
}

/// Brings the devices of the thin pool back to work, the lowest first, and in line with the metadata; says whether
/// anything had to be done.
async fn heal_thin_pool(turn: &VgGuard, group: &Group) -> Result<bool, LvmError> {
    let Some(pool) = group.thin_pool() else { return Ok(false) };
    let mut done = false;
    let devices: Vec<String> = pool.hidden_devices().into_iter().chain([pool.top()]).collect();
    for uuid in devices.iter().rev() {
        let info = ask(turn, turn.group.host.dm_info(uuid).await)?;
        if info.is_some_and(|info| !info.live_table) {
            remove_empty(turn, uuid).await?;
            done = true;
        }
    }
    let is_down = ask(turn, turn.group.host.dm_info(&pool.device()).await)?.is_none();
    for uuid in pool.parts_alone(is_down) {
        let info = ask(turn, turn.group.host.dm_info(&uuid).await)?;
        // LVM wipes new metadata so, or was killed before the pool came; it refuses to activate the pool meanwhile.
        if info.is_some_and(|info| info.open_count == 0) {
            let _lock = while_no_command_runs(turn).await?;
            tracing::warn!(
                group = group.name,
                uuid,
                "removing a part of a thin pool that is active without it"
            );
            ask(turn, turn.group.host.dm_remove(&uuid).await)?;
            done = true;
        }
    }
    for uuid in devices {
        let info = ask(turn, turn.group.host.dm_info(&uuid).await)?;
        if let Some(info) = info.filter(|info| info.live_table && waits_for_us(info)) {
            clear_and_resume(turn, &uuid, &info).await?;
            done = true;
        }
    }
    let sectors = group.extent_size.get() / SECTOR;
    for (uuid, extents) in pool.sizes() {
        let Some((_, live)) = ask(turn, turn.group.host.dm_table(&uuid).await)? else { continue };
        if live.iter().map(|target| target.length).sum::<u64>() != extents * sectors {
            tracing::warn!(group = group.name, "reloading a partially changed thin pool");
            turn.refresh(THIN_POOL).await?;
            return Ok(true);
        }
    }
    Ok(done)
}

/// LVM calls a refresh failed that brought the volume in line and could only not clear away a layer
/// that a snapshot of it still uses; so what counts is what is live now.
async fn believe_the_kernel(
    turn: &VgGuard,
    refreshed: Result<(), LvmError>,
    uuid: &str,
    group: &Arc<Group>,
    lv: &Lv,
) -> Result<bool, LvmError> {
    let Err(error) = refreshed else { return Ok(true) };
    match ask(turn, turn.group.host.dm_table(uuid).await)? {
        Some((info, live)) if !info.suspended && maps(&live, group, lv) => Ok(true),
        _ => Err(error),
    }
}

/// Removes devices of this group that no logical volume of its metadata has, if no one holds
/// them: what a killed `lvremove` or snapshot left. Only devices with our names are touched.
async fn remove_orphans(turn: &VgGuard, mut devices: Vec<DmDevice>) -> Result<(), LvmError> {
    let group = turn.read().await?;
    let ours = group.dm_prefix();
    let lvs = group.lvs.values().map(|lv| (group.dm_uuid(lv), lv)).collect();
    // A hidden layer is held by what stands on it; its uuid is that volume's with a suffix.
    devices.sort_by_key(|device| device.uuid.len());
    for device in devices {
        let listed = is_part(&device.uuid, &group, &lvs);
        if !device.uuid.starts_with(&ours) || listed || !device.name.contains("-pliant--") {
            continue;
        }
        remove_unheld(turn, &device.uuid).await?;
    }
    Ok(())
}

/// Removes the devices of a logical volume that is gone: of a snapshot that was cut off while it
/// was made or removed, LVM leaves the layer that it had not put into use.
pub(super) async fn remove_layers(turn: &VgGuard, uuid: &str) -> Result<(), LvmError> {
    for layer in ["", "-cow", "-real"] {
        remove_unheld(turn, &format!("{uuid}{layer}")).await?;
    }
    Ok(())
}

/// Returns whether a device is open, or its node is shown to a workload: that leads to the number, whatever
/// device has it next, and need not be open.
async fn is_held(turn: &VgGuard, info: &DmInfo) -> Result<bool, LvmError> {
    if info.open_count > 0 {
        return Ok(true);
    }
    let name = format!("dm-{}", info.number.minor);
    let mounts = ask(turn, turn.group.host.mounts().await)?;
    Ok(mounts.iter().any(|mount| mount.shown_node() == Some(&name)))
}

/// Removes a device that no logical volume has, unless it is held.
async fn remove_unheld(turn: &VgGuard, uuid: &str) -> Result<(), LvmError> {
    let Some(info) = ask(turn, turn.group.host.dm_info(uuid).await)? else {
        return Ok(());
    };
    if is_held(turn, &info).await? {
        return Ok(());
    }
    if info.suspended && info.live_table {
        clear_and_resume(turn, uuid, &info).await?;
    }
    tracing::warn!(group = turn.group.name(), uuid, "removing a device that matches no volume");
    ask(turn, turn.group.host.dm_remove(uuid).await)
}

/// Removes a device that never had a live table: an activation was cut off before its end. It
/// cannot be resumed, no one can have used it, and the next activation makes it again.
async fn remove_empty(turn: &VgGuard, uuid: &str) -> Result<(), LvmError> {
    let _lock = while_no_command_runs(turn).await?;
    tracing::warn!(group = turn.group.name(), uuid, "removing a device without a table");
    ask(turn, turn.group.host.dm_remove(uuid).await)
}

/// Clears, then resume: resuming alone would make an uncommitted table live.
async fn clear_and_resume(turn: &VgGuard, uuid: &str, info: &DmInfo) -> Result<(), LvmError> {
    let _lock = while_no_command_runs(turn).await?;
    tracing::warn!(group = turn.group.name(), uuid, "resuming a suspended volume");
    ask(turn, turn.group.host.dm_clear(uuid).await)?;
    if info.suspended {
        ask(turn, turn.group.host.dm_resume(uuid).await)?;
    }
    Ok(())
}

/// Holds the group's lock, which shows that no LVM command, ours or the administrator's, is at
/// work right now.
async fn while_no_command_runs(turn: &VgGuard) -> Result<Box<dyn GroupLock>, LvmError> {
    let lock = ask(turn, turn.group.host.try_lock_group(turn.group.name()).await)?;
    lock.ok_or_else(|| LvmError::Unusable {
        group: turn.group.name().to_owned(),
        reason: "a volume is suspended by an LVM command that is still running; see `ps -C \
                     lvm`"
            .to_owned(),
    })
}

fn ask<T>(turn: &VgGuard, answer: Result<T, HostError>) -> Result<T, LvmError> {
    answer.map_err(|error| failed(&turn.group, error))
}

impl VolumeGroup {
    /// Checks whether the live devices of these logical volumes are on the disks that the volume
    /// group has, and notes which are not. Changes no device.
    ///
    /// # Errors
    /// [`LvmError::Host`] if the kernel does not answer.
    pub async fn look_at_devices(
        self: &Arc<Self>,
        group: &Group,
        lvs: impl Iterator<Item = &Lv> + Send,
    ) -> Result<(), LvmError> {
        let devices = self.host.dm_list().await.map_err(|error| failed(self, error))?;
        let live: HashSet<&str> = devices.iter().map(|device| volume_of(&device.uuid)).collect();
        let disks = places_of(self, group).await?;
        for lv in lvs {
            let mut elsewhere = None;
            if live.contains(group.dm_uuid(lv).as_str()) {
                elsewhere = stack_of(self, group, lv, &disks).await?.find_elsewhere(group, &disks);
            }
            self.note_elsewhere(&lv.name, elsewhere);
        }
        Ok(())
    }
}

/// Returns whether a disk of the group has another number than it had when it was read.
async fn disks_have_moved(vg: &Arc<VolumeGroup>) -> Result<bool, LvmError> {
    for (path, number) in vg.numbers_when_read() {
        if number_of(vg, &path).await?.is_some_and(|now| now != number) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The live devices of a logical volume, with all that share one with it.
async fn stack_of(
    vg: &Arc<VolumeGroup>,
    group: &Group,
    lv: &Lv,
    disks: &Disks,
) -> Result<Stack, LvmError> {
    let (uuid, failed) = (group.dm_uuid(lv), |error| failed(vg, error));
    let live = |uuid: String, (info, table): (DmInfo, Vec<DmTarget>)| LiveDevice {
        uuid,
        number: info.number,
        table,
    };
    let own = vg.host.dm_table(&uuid).await.map_err(failed)?;
    let own = own.map(|device| live(uuid.clone(), device));
    let is_plain = own.iter().all(|device| device.is_on(disks));
    if is_plain && !group.has_layers(lv) {
        return Ok(Stack::around(&uuid, own.into_iter().collect()));
    }
    if let Some(pool) = lv.thin_pool().and_then(|_| group.thin_pool()) {
        // Without a look at all other volumes of the pool, which share its disks.
        let mut devices: Vec<LiveDevice> = own.into_iter().collect();
        for uuid in pool.hidden_devices() {
            let table = vg.host.dm_table(&uuid).await.map_err(failed)?;
            devices.extend(table.map(|table| live(uuid, table)));
        }
        let stack = Stack::around(&uuid, devices);
        if stack.find_elsewhere(group, disks).is_none() {
            return Ok(stack);
        }
    }
    let mut devices = Vec::new();
    for device in vg.host.dm_list().await.map_err(failed)? {
        if !device.uuid.starts_with(&group.dm_prefix()) {
            continue;
        }
        let table = vg.host.dm_table(&device.uuid).await.map_err(failed)?;
        devices.extend(table.map(|table| live(device.uuid, table)));
    }
    Ok(Stack::around(&uuid, devices))
}

/// Where the disks of the group are now; those that are not here are left out.
async fn places_of(vg: &Arc<VolumeGroup>, group: &Group) -> Result<Disks, LvmError> {
    let mut disks = Disks::new();
    for (name, pv) in &group.pvs {
        let Some(path) = &pv.device else { continue };
        if let Some(number) = number_of(vg, path).await? {
            disks.insert(name.clone(), (number, path.clone()));
        }
    }
    Ok(disks)
}

/// The number of a disk's node; `None` if it is not here.
async fn number_of(vg: &Arc<VolumeGroup>, path: &Path) -> Result<Option<DeviceNumber>, LvmError> {
    match vg.host.path_kind(path).await.map_err(|error| failed(vg, error))? {
        Some(PathKind::Block(number)) => Ok(Some(number)),
        _ => Ok(None),
    }
}

/// Returns whether a device was left suspended, or with a table that no one put into use.
fn waits_for_us(info: &DmInfo) -> bool {
    info.suspended || info.inactive_table
}

/// The uuid of the device of the volume that a device is of, itself or as a hidden layer.
fn volume_of(uuid: &str) -> &str {
    match uuid.rsplit_once('-') {
        Some((volume, _)) if volume != "LVM" => volume,
        _ => uuid,
    }
}

/// Returns whether a device is that of a logical volume, or a layer below it that is needed.
fn is_part(uuid: &str, group: &Group, lvs: &HashMap<String, &Lv>) -> bool {
    let volume = volume_of(uuid);
    lvs.get(volume).is_some_and(|lv| match &uuid[volume.len()..] {
        "-real" => group.has_snapshot(lv),
        "-cow" => group.is_snapshot(lv),
        // Its own, or one of a kind that this driver does not make.
        _ => true,
    })
}

/// Returns whether a live table is what the metadata describes: same length, and for linear segments the
/// same place on the disk. The top of a snapshot's origin maps to a hidden layer: length only.
fn maps(live: &[DmTarget], group: &Arc<Group>, lv: &Lv) -> bool {
    // Without this layer what is written to the origin is not kept for the snapshot.
    if live.iter().any(|target| target.kind == "snapshot-origin") != group.has_snapshot(lv) {
        return false;
    }
    let sectors = group.extent_size.get() / SECTOR;
    let length: u64 = live.iter().map(|target| target.length).sum();
    if length != lv.extents() * sectors {
        return false;
    }
    if lv.is_thin_pool() {
        return true; // It maps to the device of the pool itself.
    }
    let mut linear = live.iter().filter(|target| target.kind == "linear");
    linear.all(|target| {
        let offset = target.params.split(' ').nth(1).and_then(|offset| offset.parse::<u64>().ok());
        lv.segments.iter().any(|segment| {
            segment.pieces.iter().any(|piece| {
                let Some(pv) = group.pvs.get(&piece.pv) else {
                    return false;
                };
                let start = pv.pe_start + piece.range.start * sectors;
                let into = target.start.checked_sub(segment.start * sectors);
                into.is_some_and(|into| Some(start + into) == offset)
            })
        })
    })
}
