//! The changes to the volumes of a thin pool, which LVM and the kernel both count.
//!
//! LVM first notes in its metadata what it is to change, then tells the kernel, then has the kernel count it. A command that
//! was killed between the last two leaves a volume that the kernel has and did not count. Each further command then tells
//! the kernel the same again, which refuses it: no volume of the pool can be created or removed.

use crate::lvm::volume_group::{VgGuard, failed};
use crate::lvm::{LvmError, thin_usage};

/// What LVM says when the kernel has the volume that it is to make.
const IS_THERE: &str = "File exists";

/// Has the kernel count a change that a killed command has made, if a refusal says that there is one; returns whether there
/// was. LVM itself has tried to make it anew and found it there, so nothing is counted that was not done.
pub(super) async fn count_what_is_done(turn: &VgGuard, refusal: &str) -> Result<bool, LvmError> {
    if !refusal.contains(IS_THERE) {
        return Ok(false);
    }
    let group = turn.seen().await?;
    let Some(pool) = group.thin_pool() else { return Ok(false) };
    let (host, device) = (&turn.group.host, pool.device());
    let status = host.dm_status(&device).await.map_err(|error| failed(&turn.group, error))?;
    let counted = status.and_then(|(_, targets)| thin_usage::transaction(&targets.first()?.params));
    // Further apart is more than one command can leave: a person decides.
    let Some(counted) = counted.filter(|counted| counted + 1 == pool.segment.transaction) else {
        return Ok(false);
    };
    tracing::warn!(
        group = group.name,
        counted,
        "counting a change that an LVM command left half-made in the thin pool"
    );
    let message = format!("set_transaction_id {counted} {}", pool.segment.transaction);
    host.dm_message(&device, &message).await.map_err(|error| failed(&turn.group, error))?;
    Ok(true)
}
