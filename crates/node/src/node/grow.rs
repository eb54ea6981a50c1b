//! Grow a volume, and its file system with it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::fs;
use crate::host::Mount;
use crate::lvm::{ExtentRun, NewLv, layout};
use crate::mount::MountTable;
use crate::node::create::keeps_limit;
use crate::node::error::{failed, fs_failed};
use crate::node::lv_tags::{self, StoredState};
use crate::node::pools;
use crate::node::shrink::keeps_below_limit;
use crate::node::wipe::Task;
use crate::node::{FoundVolume, LastGrowth, Node};
use crate::volume::error_chain;
use crate::volume::{FsKind, Grown, Growth, Layout, Mode, VolumeError, VolumeId};

/// What takes the extents of a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// The logical volume that grows.
    Itself,
    /// Another one, which is to join it.
    OneMore,
}

impl Node {
    /// Returns the number of growths since the start, by result: `full` with their file system,
    /// `volume_only` if NodeExpandVolume expands the file system, `error`.
    pub fn growth_outcomes(&self) -> BTreeMap<&'static str, u64> {
        self.outcomes.counts()
    }

    /// Grows the volume to the wanted size or beyond, and its file system where that is ours to do.
    pub(super) async fn grow_volume(
        &self,
        id: &VolumeId,
        growth: Growth,
    ) -> Result<Grown, VolumeError> {
        let found = self.usable(id).await?;
        let found = self.conclude_cut_shrink(found).await?;
        let block = found.record.mode == Mode::Block;
        if growth.block.is_some_and(|wanted| wanted != block) {
            return Err(VolumeError::InvalidArgument {
                field: "volume_capability".to_owned(),
                reason: format!("the volume is {}", found.record.mode),
            });
        }
        let found = self.grow_device(found, growth).await?;
        let size = found.size();
        let node_expansion_required = match found.record.mode {
            Mode::Block => false,
            // It is made as large as its device when it is first used.
            Mode::Filesystem(_) if found.record.is_new() => false,
            // Of a volume that shrank the kubelet remembers that it was larger, and makes no second step.
            Mode::Filesystem(_) if self.settings.two_step && found.record.limit.is_none() => true,
            Mode::Filesystem(kind) => !self.grow_file_system_here(&found, kind).await,
        };
        found.group.flush().await?;
        Ok(Grown { size, node_expansion_required })
    }

    /// Grows the logical volume; at or beyond the wanted size already changes nothing.
    pub(super) async fn grow_device(
        &self,
        found: FoundVolume,
        growth: Growth,
    ) -> Result<FoundVolume, VolumeError> {
        let wanted = growth.size.at_least.div_ceil(found.seen.extent_size);
        let now = found.lv.extents();
        keeps_below_limit(&found, growth.size.at_least)?;
        keeps_limit(found.seen.size_of(wanted.max(now)), growth.size)?;
        if wanted <= now {
            // A growth that was asked for before and aborted may have left its helper.
            if !self.wipes.runs(found.record.id.key()) && !found.has_snapshot() {
                self.give_up_more(&found).await?;
            }
            return Ok(found);
        }
        match found.record.mode {
            _ if found.record.is_new() => self.extend(found, wanted).await,
            Mode::Filesystem(kind) => {
                // LVM grows no origin of a snapshot.
                self.conclude_cut_resize(&found, kind).await?;
                // Its file system guards its bytes: no one sees the new extents before it takes
                // them over, and where signatures stand it wipes them then.
                self.extend(found, wanted).await
            }
            Mode::Block => self.grow_raw(found, wanted).await,
        }
    }

    /// Lets standby disks join if the growth needs them.
    ///
    /// # Errors
    /// [`VolumeError::ExpansionOutOfRange`] with what is possible, [`VolumeError::Unavailable`] while the
    /// group cannot be changed.
    async fn make_room(
        &self,
        found: &FoundVolume,
        more: u64,
        takes: Takes,
    ) -> Result<(), VolumeError> {
        let turn = found.group.turn().await?;
        let not_taken = self.add_standby_disks(&found.pool, &turn, Layout::Linear, more).await?;
        let group = turn.read().await?;
        if let Some(reason) = group.frozen() {
            return Err(VolumeError::Unavailable {
                reason: format!("pool {}: volume group {}: {reason}", found.pool.name, group.name),
            });
        }
        let refused = takes == Takes::OneMore && group.has_most_volumes();
        let largest = if refused { 0 } else { layout::largest(&group, Layout::Linear) };
        let why = group.hindrance().filter(|_| refused || group.allocates_narrowly());
        if largest >= more {
            return Ok(());
        }
        Err(VolumeError::ExpansionOutOfRange {
            pool: found.pool.name.clone(),
            asked: group.size_of(found.lv.extents() + more),
            free: group.size_of(group.free_extents()),
            largest: group.size_of(found.lv.extents() + largest),
            hindrance: pools::listed(why.into_iter().chain(not_taken.reasons)),
        })
    }

    /// Lets the logical volume take more extents, whatever they hold.
    async fn extend(&self, found: FoundVolume, wanted: u64) -> Result<FoundVolume, VolumeError> {
        self.make_room(&found, wanted - found.lv.extents(), Takes::Itself).await?;
        let turn = found.group.turn().await?;
        let lv = turn.extend(&found.lv.name, wanted, &[]).await?;
        let seen = turn.seen().await?;
        Ok(FoundVolume { seen, lv, ..found })
    }

    /// Grows a raw volume, which shows its bytes to its tenant as soon as they join. So they are wiped
    /// before, in a logical volume of their own, and then joined exactly as they are placed on the disks.
    async fn grow_raw(&self, found: FoundVolume, wanted: u64) -> Result<FoundVolume, VolumeError> {
        let more = self.take_more(&found, wanted - found.lv.extents()).await?;
        let all = Task { is_written_down: false, ..Task::before_first_use(&more) };
        self.wipes.wipe(all).await?;
        let pieces: Vec<ExtentRun> =
            more.lv.segments.iter().flat_map(|s| s.pieces.clone()).collect();
        let turn = found.group.turn().await?;
        turn.remove(&more.lv.name).await?;
        let lv = turn.extend(&found.lv.name, wanted, &pieces).await?;
        let seen = turn.seen().await?;
        Ok(FoundVolume { seen, lv, ..found })
    }

    /// Takes the extents that are to join, or find them taken by an earlier call.
    async fn take_more(
        &self,
        found: &FoundVolume,
        extents: u64,
    ) -> Result<FoundVolume, VolumeError> {
        let name = lv_tags::more_name(found.record.id.key());
        let taken = found.seen.lvs.get(&name);
        if let Some(lv) = taken.filter(|lv| lv.extents() == extents) {
            return Ok(FoundVolume { lv: lv.clone(), ..found.clone() });
        }
        self.wipes.settle(found.record.id.key()).await?;
        self.remove_helpers(found).await?;
        self.make_room(found, extents, Takes::OneMore).await?;
        let tags = vec![StoredState::New.tag()];
        let turn = found.group.turn().await?;
        let lv = turn.create(&NewLv { name, layout: Layout::Linear, extents, tags }).await;
        let lv = lv?;
        let seen = turn.seen().await?;
        Ok(FoundVolume { seen, lv, ..found.clone() })
    }

    /// Grows the file system if this host can do it now, without a workload noticing; says whether
    /// it fills the device. A failure is no failure of the growth: the node step will say it.
    async fn grow_file_system_here(&self, found: &FoundVolume, kind: FsKind) -> bool {
        match self.try_to_grow_file_system(found, kind).await {
            Ok(filled) => filled,
            Err(error) => {
                let error = error_chain::in_full(&error);
                tracing::warn!(volume = %found.record.id, error, "failed to grow the file system");
                false
            }
        }
    }

    async fn try_to_grow_file_system(
        &self,
        found: &FoundVolume,
        kind: FsKind,
    ) -> Result<bool, VolumeError> {
        let table = MountTable::read(self.host.as_ref())
            .await
            .map_err(failed("failed to read the mount table"))?;
        let live = self.live_device(found).await?;
        let mounts: Vec<&Mount> = match &live {
            Some((_, info)) => self.shown(&table, info.number),
            None => Vec::new(),
        };
        if mounts.is_empty() {
            self.grow_unmounted(found, kind).await?;
            // Whether it was active before says nothing: an attempt that was cut off leaves it so.
            self.deactivate_unless_held(found).await?;
            return Ok(true);
        }
        let Some(mount) = mounts.iter().find(|mount| !mount.read_only()) else {
            return Ok(false);
        };
        let Some((device, _)) = live else {
            return Ok(false);
        };
        self.grow_mounted(found, kind, &device, &mount.target.clone()).await.map(|()| true)
    }

    /// Deactivates a volume that was activated for a moment. One that is published keeps its
    /// device, even while it is not open.
    pub(super) async fn deactivate_unless_held(
        &self,
        found: &FoundVolume,
    ) -> Result<(), VolumeError> {
        if self.live_device(found).await?.is_none() {
            return Ok(());
        }
        match self.refuse_if_held(found, None).await {
            Err(VolumeError::InUse { .. }) => return Ok(()),
            unheld => unheld?,
        }
        let turn = found.group.turn().await?;
        turn.deactivate(&found.lv.name).await.map_err(VolumeError::from)
    }

    /// Grows a mounted file system to its device.
    ///
    /// Its extents are durably its own before it counts on them: a power cut would leave a file system
    /// that is larger than its device.
    pub(super) async fn grow_mounted(
        &self,
        found: &FoundVolume,
        kind: FsKind,
        device: &std::path::Path,
        mounted: &std::path::Path,
    ) -> Result<(), VolumeError> {
        if !self.fills(found, kind, device).await? {
            found.group.flush().await?;
        }
        let grew = fs::grow_mounted(self.host.as_ref(), mounted, device, kind)
            .await
            .map_err(fs_failed(format!("failed to grow the {kind} file system")))?;
        let (key, grown) = (found.record.id.key(), grew.from != grew.to);
        if grown {
            // The kernel flushes its journal, but not the copies of the superblock.
            self.host.flush(device).await.map_err(failed("flushing the grown file system"))?;
        }
        if grown || self.waits_to_grow(key).is_some() {
            self.note_growth(key, LastGrowth::Done);
        }
        Ok(())
    }

    /// Returns the private mount point of an unmounted file system.
    pub(super) fn private_mount_point(&self, found: &FoundVolume) -> PathBuf {
        self.settings.private_mounts().join(found.record.id.key().as_str())
    }
}
