//! Stages a volume on this node: active, formatted once, mounted, with its file system grown to its
//! device.

use std::path::Path;

use crate::fs::{self, Superblock};
use crate::host::{DmInfo, NewMount};
use crate::lvm::tags;
use crate::mount::{self, MountTable};
use crate::node::error::{failed, fs_failed, mount_failed};
use crate::node::lv_tags::StoredState;
use crate::node::wipe::Task;
use crate::node::{FoundVolume, LastGrowth, Node, fence, lv_tags};
use crate::volume::error_chain;
use crate::volume::{Access, FsKind, Mode, Stage, Use, VolumeError, VolumeId, parse_mount_options};

impl Node {
    /// Makes the volume usable at its staging path. A repeated call changes nothing.
    ///
    /// # Errors
    /// [`VolumeError::PreconditionFailed`] if the content of the device does not match the record: nothing is
    /// formatted then. The same if it is fenced.
    pub(super) async fn stage_volume(&self, stage: &Stage) -> Result<(), VolumeError> {
        let found = self.usable(&stage.id).await?;
        let read_only = stage.read_only || fence::admit(&found)? == Use::Read;
        let stage = &Stage { read_only, ..stage.clone() };
        match (&stage.access, found.record.mode) {
            (Access::Block, Mode::Block) => {
                if found.record.is_new() {
                    self.wipes.wipe(Task::before_first_use(&found)).await?;
                    self.note_shown(&found).await?;
                }
                self.activate(&found).await.map(|_| ())
            }
            (Access::Mount { fs, options }, Mode::Filesystem(kind))
                if fs.is_none_or(|wanted| wanted == kind) =>
            {
                let options = mount_options(kind, options, stage.read_only)?;
                self.stage_file_system(found, kind, stage, options).await
            }
            (Access::Block, mode) => Err(differs("a block device", mode)),
            (Access::Mount { fs: Some(wanted), .. }, mode) => Err(differs(wanted.as_str(), mode)),
            (Access::Mount { fs: None, .. }, mode) => Err(differs("a file system", mode)),
        }
    }

    async fn stage_file_system(
        &self,
        found: FoundVolume,
        kind: FsKind,
        stage: &Stage,
        options: Vec<String>,
    ) -> Result<(), VolumeError> {
        let (device, info) = self.activate(&found).await?;
        let table = MountTable::read(self.host.as_ref()).await;
        let table = table.map_err(failed("failed to read the mount table"))?;
        if self.shown(&table, info.number).is_empty() {
            self.conclude_cut_resize(&found, kind).await?;
            self.prepare(&found, kind, &device, stage.read_only).await?;
        }
        // Until it is mounted its number could become that of another volume, which is mounted then.
        let held = self.hold_for_programs(&found, &device).await?;
        self.host
            .make_dir(&stage.staging)
            .await
            .map_err(failed("failed to create the staging path"))?;
        let target = stage.staging.clone();
        let new = NewMount { device: device.clone(), target, kind: fs::driver(kind), options };
        self.mount_verified(&table, &new, &info).await?;
        drop(held);
        if stage.read_only || found.is_shrinking() {
            return Ok(());
        }
        self.grow_staged(&found, kind, &device, &stage.staging).await;
        Ok(())
    }

    /// Grows what was restored larger than its source, or whose growth was interrupted: no one else
    /// will ask. What could not grow is used as it is: its data is good, and the volume's condition
    /// and the node's step of the growth say why.
    async fn grow_staged(&self, found: &FoundVolume, kind: FsKind, device: &Path, staging: &Path) {
        if let Err(error) = self.try_to_grow_staged(found, kind, device, staging).await {
            self.note_refused_growth(found, &error);
        }
    }

    async fn try_to_grow_staged(
        &self,
        found: &FoundVolume,
        kind: FsKind,
        device: &Path,
        staging: &Path,
    ) -> Result<(), VolumeError> {
        let superblock = self.superblock(found, kind, device).await?;
        if superblock.fills(found.size()) || fs::grows_online(&superblock) {
            return self.grow_mounted(found, kind, device, staging).await;
        }
        let key = found.record.id.key();
        let missed = self.misses_snapshot(found).await?;
        let reason = missed.or_else(|| self.waits_to_grow(key)).unwrap_or_else(|| {
            "it can only grow while it is not mounted; stop the workload, and it grows before the \
             next use"
                .to_owned()
        });
        self.note_growth(key, LastGrowth::Waits(reason));
        Ok(())
    }

    async fn mount_verified(
        &self,
        table: &MountTable,
        new: &NewMount,
        info: &DmInfo,
    ) -> Result<(), VolumeError> {
        let mounted = mount::ensure_mounted(self.host.as_ref(), table, new, info.number).await;
        let what = || format!("failed to mount {} at {}", new.kind, new.target.display());
        mounted.map(|_| ()).map_err(|error| mount_failed(what())(error))
    }

    /// Ensures that the device carries its file system: format it if that was never completed,
    /// look at it if it was.
    async fn prepare(
        &self,
        found: &FoundVolume,
        kind: FsKind,
        device: &Path,
        read_only: bool,
    ) -> Result<(), VolumeError> {
        if found.record.is_new() {
            return self.format(found, kind, device, read_only).await;
        }
        let superblock = fs::superblock_of(self.host.as_ref(), device)
            .await
            .map_err(fs_failed("failed to read the device"))?;
        let Some(superblock) = superblock.filter(|superblock| superblock.kind == kind) else {
            return Err(VolumeError::PreconditionFailed {
                reason: format!(
                    "volume {} is tagged as {kind}, but its device {device} does not contain that \
                     file system; nothing was formatted: inspect it with `blkid -p {device}`",
                    found.record.id,
                    device = device.display()
                ),
            });
        };
        if read_only {
            return Ok(());
        }
        let superblock = if superblock.has_errors() {
            self.repair(found, kind, device).await?;
            self.superblock(found, kind, device).await?
        } else {
            superblock
        };
        let smaller = !superblock.fills(found.size()) && !found.is_shrinking();
        // What the kernel refused while it was mounted may grow now, after a check.
        let refused = self.waits_to_grow(found.record.id.key()).is_some();
        let now = smaller && (refused || !fs::grows_online(&superblock));
        if now && !superblock.has_errors() && self.misses_snapshot(found).await?.is_none() {
            self.grow_before_use(found, kind).await?;
        }
        Ok(())
    }

    /// Grows an unmounted file system. One that could not grow is still good for use, and one that cannot
    /// be staged for nothing.
    ///
    /// # Errors
    /// As [`Node::grow_unmounted`], if the file system is not surely as good as it was.
    async fn grow_before_use(&self, found: &FoundVolume, kind: FsKind) -> Result<(), VolumeError> {
        let Err(error) = self.grow_unmounted(found, kind).await else { return Ok(()) };
        match self.is_as_before(found, kind).await {
            Ok(true) => {
                self.note_refused_growth(found, &error);
                Ok(())
            }
            Ok(false) | Err(_) => Err(error),
        }
    }

    /// Returns whether a growth that failed has left nothing half done: no way back that is still to be taken,
    /// and no note of a resize that has begun, which is that of an error.
    async fn is_as_before(&self, found: &FoundVolume, kind: FsKind) -> Result<bool, VolumeError> {
        let safety = lv_tags::safety_name(found.record.id.key());
        if found.group.read().await?.lvs.contains_key(&safety) {
            return Ok(false);
        }
        let (device, _) = self.activate(found).await?;
        Ok(!self.superblock(found, kind, &device).await?.has_errors())
    }

    /// Notes why the file system is smaller than its device.
    pub(super) fn note_refused_growth(&self, found: &FoundVolume, error: &VolumeError) {
        let (volume, reason) = (&found.record.id, error_chain::in_full(error));
        tracing::warn!(%volume, error = reason, "failed to grow the file system");
        self.note_growth(volume.key(), LastGrowth::Waits(reason));
    }

    /// Repairs what can be repaired without a question, where the kernel has found errors. What is
    /// left keeps no one from the data: the volume's condition tells of it.
    ///
    /// # Errors
    /// [`VolumeError::InUse`] while a check is under way, this one or one that no one waits for any
    /// more.
    async fn repair(
        &self,
        found: &FoundVolume,
        kind: FsKind,
        device: &Path,
    ) -> Result<(), VolumeError> {
        let held = self.hold_for_programs(found, device).await?;
        let checked = fs::check(self.host.as_ref(), device, kind, fs::Check::Repair).await;
        drop(held);
        let (volume, repaired) = (&found.record.id, checked.is_ok());
        tracing::warn!(%volume, repaired, "checked a file system with errors");
        self.refuse_if_held(found, None).await
    }

    /// Wipes and format a volume that was never shown, whatever its extents hold, and note that, durably, before any
    /// mount.
    async fn format(
        &self,
        found: &FoundVolume,
        kind: FsKind,
        device: &Path,
        read_only: bool,
    ) -> Result<(), VolumeError> {
        if read_only {
            return Err(VolumeError::PreconditionFailed {
                reason: format!(
                    "volume {} has no file system yet, and a read-only mount does not format it; \
                     mount it once with write access",
                    found.record.id
                ),
            });
        }
        self.refuse_if_held(found, None).await?; // By a format that no one waits for any more.
        if !self.was_in_use(found, device).await? {
            let uuid = found.file_system_uuid();
            self.wipes.wipe(Task::before_first_use(found)).await?;
            let held = self.hold_for_programs(found, device).await?;
            let host = self.host.as_ref();
            let switches = self.formats.switches(host, kind).await;
            fs::make(host, device, kind, &found.record.mkfs, switches, &uuid)
                .await
                .map_err(fs_failed(format!("failed to create {kind}")))?;
            drop(held);
        }
        self.note_shown(found).await
    }

    /// Returns whether a volume that is marked as new has its own file system, which was in use.
    pub(super) async fn was_in_use(
        &self,
        found: &FoundVolume,
        device: &Path,
    ) -> Result<bool, VolumeError> {
        let carried = fs::superblock_of(self.host.as_ref(), device)
            .await
            .map_err(fs_failed("failed to read the device"))?;
        // Only this volume's own file system has this uuid. Where it was in use the record is older than it is:
        // an administrator has restored the group's metadata.
        let uuid = found.file_system_uuid();
        let is_used = |superblock: &Superblock| {
            superblock.uuid == uuid && superblock.mounted_before() && !superblock.half_made()
        };
        Ok(carried.as_ref().is_some_and(is_used))
    }

    /// Notes, durably, that a volume may hold data from now on.
    async fn note_shown(&self, found: &FoundVolume) -> Result<(), VolumeError> {
        let new = StoredState::New.tag();
        let turn = found.group.turn().await?;
        let seen = turn.read().await?;
        // Else its last wipe would pass over what was wiped now.
        let now = seen.lvs.get(&found.lv.name).into_iter();
        let wiped = now.flat_map(|lv| tags::find_all(&lv.tags, lv_tags::WIPED));
        let gone: Vec<&str> = std::iter::once(new.as_str()).chain(wiped).collect();
        turn.retag(&found.lv.name, &gone, &[StoredState::Shown.tag()]).await?;
        drop(turn);
        found.group.flush().await.map_err(VolumeError::from)
    }

    /// Undoes [`Node::stage`]; not staged, or no such volume, is success.
    ///
    /// # Errors
    /// [`VolumeError::InUse`] if something still holds the volume; it stays staged then.
    pub(super) async fn unstage_volume(
        &self,
        id: &VolumeId,
        staging: &Path,
    ) -> Result<(), VolumeError> {
        let found = match self.must_find(id).await {
            Ok(found) => found,
            Err(VolumeError::NotFound { .. }) => return self.unmount(id, None, staging).await,
            Err(error) => return Err(error),
        };
        let Some((_, info)) = self.live_device(&found).await? else {
            return self.unmount(id, None, staging).await;
        };
        let is_shown = found.record.life == lv_tags::StoredState::Shown;
        if !is_shown && self.wipes.runs(id.key()) {
            // The driver's own wipe needs the device.
            return self.unmount(id, Some(info.number), staging).await;
        }
        self.wipes.settle(id.key()).await?; // That of a shrink holds it open.
        self.leave_private_mount(&found).await?;
        self.refuse_if_held(&found, Some(staging)).await?;
        self.unmount(id, Some(info.number), staging).await?;
        self.refuse_if_held(&found, None).await?; // A mount that is not seen from here holds it too.
        let turn = found.group.turn().await?;
        turn.heal(&found.lv).await?;
        turn.deactivate(&found.lv.name).await.map_err(VolumeError::from)
    }
}

/// What is always mounted with, what was asked for, and `ro` for a read-only use.
fn mount_options(
    kind: FsKind,
    asked: &[String],
    read_only: bool,
) -> Result<Vec<String>, VolumeError> {
    let asked =
        parse_mount_options(Some(kind), asked).map_err(|reason| VolumeError::InvalidArgument {
            field: "volume_capability.mount.mount_flags".to_owned(),
            reason,
        })?;
    let mut options: Vec<String> =
        fs::always_mounted_with(kind).iter().map(|option| (*option).to_owned()).collect();
    options.extend(asked);
    if read_only {
        options.push("ro".to_owned());
    }
    options.dedup();
    Ok(options)
}

fn differs(wanted: &str, mode: Mode) -> VolumeError {
    VolumeError::InvalidArgument {
        field: "volume_capability".to_owned(),
        reason: format!("{wanted} was requested, but the volume is {mode}"),
    }
}
