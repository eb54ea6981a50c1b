//! The commands that make, complete and expand the thin pool of a volume group.

use crate::bytes::Bytes;
use crate::host::Cmd;
use crate::lvm::commands::{heal_before, read_after_change};
use crate::lvm::group::Lv;
use crate::lvm::volume_group::{VgGuard, failed};
use crate::lvm::{LvmError, THIN_POOL, ThinGrowth};
use crate::volume::Discards;

/// A thin pool to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewThinPool {
    /// Size of its data in extents.
    pub extents: u64,
    /// Size of its metadata.
    pub metadata: Bytes,
    /// Size of a chunk.
    pub chunk: Bytes,
    /// What it does with discards.
    pub discards: Discards,
}

/// Makes the thin pool. No volume in it shows what its chunks held before. What a killed command left of one, which is no
/// thin pool yet, goes first.
pub async fn create_thin_pool(turn: &VgGuard, new: &NewThinPool) -> Result<(), LvmError> {
    if turn.seen().await?.lvs.get(THIN_POOL).is_some_and(is_half_made) {
        turn.remove(THIN_POOL).await?;
    }
    let bytes = |size: Bytes| format!("{}b", size.get());
    let cmd = Cmd::new("lvcreate")
        .args(["-y", "-Zy", "--type", "thin-pool", "-l", &new.extents.to_string()])
        .args(["--poolmetadatasize", &bytes(new.metadata), "-c", &bytes(new.chunk)])
        .args(["--discards", new.discards.lvm_word(), "-n", THIN_POOL])
        .arg(turn.group.name());
    let said = turn.command(cmd).await?;
    turn.expect(THIN_POOL, said, Lv::is_thin_pool).await.map(drop)
}

/// Returns whether it is what LVM first makes of a thin pool: its data, which nobody has written to.
fn is_half_made(lv: &Lv) -> bool {
    lv.tags.is_empty() && lv.segments.iter().all(|segment| segment.kind == "striped")
}

/// Lets no host activate the thin pool by itself, and has it active here: else LVM would check all of the pool for
/// each new volume. What a killed command left of its devices is repaired. A group without one, and a repeated call, change
/// nothing.
pub async fn complete_thin_pool(turn: &VgGuard) -> Result<(), LvmError> {
    heal_before(turn, THIN_POOL).await?;
    let group = turn.seen().await?;
    let Some(pool) = group.thin_pool() else { return Ok(()) };
    if !pool.lv.flags.contains("NOAUTOACTIVATE") {
        let cmd = Cmd::new("lvchange").args(["-y", "--setautoactivation", "n"]);
        turn.must(cmd.arg(turn.path(THIN_POOL))).await?;
        read_after_change(turn).await?;
    }
    let live = turn.group.host.dm_info(&pool.top()).await;
    if live.map_err(|error| failed(&turn.group, error))?.is_none() {
        turn.activate(THIN_POOL).await?;
    }
    Ok(())
}

/// Expands the data or the metadata of the thin pool, or both, to so many extents.
pub async fn grow_thin_pool(turn: &VgGuard, growth: &ThinGrowth) -> Result<(), LvmError> {
    heal_before(turn, THIN_POOL).await?;
    if let Some(extents) = growth.data {
        let cmd = Cmd::new("lvextend").args(["-y", "-l", &extents.to_string()]);
        let said = turn.command(cmd.arg(turn.path(THIN_POOL))).await?;
        turn.expect(THIN_POOL, said, |lv| lv.extents() >= extents).await?;
    }
    if let Some(extents) = growth.metadata {
        let size = turn.seen().await?.size_of(extents).get();
        let cmd = Cmd::new("lvextend").args(["-y", "--poolmetadatasize", &format!("{size}b")]);
        turn.must(cmd.arg(turn.path(THIN_POOL))).await?;
        read_after_change(turn).await?;
    }
    Ok(())
}

/// Lets writes that the thin pool has no space for fail at once, or wait. A repeated call changes nothing.
pub async fn set_error_when_full(turn: &VgGuard, fails: bool) -> Result<(), LvmError> {
    let group = turn.seen().await?;
    let pool = group.thin_pool();
    if pool.is_none_or(|pool| pool.lv.flags.contains("ERROR_WHEN_FULL") == fails) {
        return Ok(());
    }
    let word = if fails { "y" } else { "n" };
    let cmd = Cmd::new("lvchange").args(["-y", "--errorwhenfull", word]);
    turn.must(cmd.arg(turn.path(THIN_POOL))).await?;
    read_after_change(turn).await.map(drop)
}
