//! The thin pool of a volume group: made when the first thin volume needs it.

use crate::lvm::{Group, LvmError, NewThinPool, THIN_POOL, VgGuard, thin, thin_commands};
use crate::node::Node;
use crate::node::pools::Pool;
use crate::volume::{ThinSettings, VolumeError};

/// Makes the thin pool of the volume group unless it has one, and has it active.
///
/// # Errors
/// [`VolumeError::Unavailable`] if its thin pool does not zero what it gives: a volume would show what others wrote.
pub(super) async fn ensure_thin_pool(
    node: &Node,
    turn: &VgGuard,
    pool: &Pool,
    settings: &ThinSettings,
) -> Result<(), VolumeError> {
    let group = turn.seen().await?;
    if let Some(made) = group.thin_pool() {
        if !made.segment.zeroes {
            return Err(shows_former_data(pool, &group));
        }
        return complete_thin_pool(turn, settings).await.map_err(VolumeError::from);
    }
    let new = NewThinPool {
        extents: thin::first_data(&group, settings, pool.terms.reserve),
        metadata: group.size_of(thin::first_metadata(&group, settings)),
        chunk: thin::chunk(&group, settings),
        discards: settings.discards,
    };
    node.host.set_thin_mark(&group.name, settings.grow_at);
    thin_commands::create_thin_pool(turn, &new).await?;
    complete_thin_pool(turn, settings).await?;
    node.thin_news.send_replace(());
    Ok(())
}

/// Makes the thin pool of the volume group, if it has one, what a new one is. A repeated call changes nothing.
pub(super) async fn complete_thin_pool(
    turn: &VgGuard,
    settings: &ThinSettings,
) -> Result<(), LvmError> {
    thin_commands::complete_thin_pool(turn).await?;
    let group = turn.seen().await?;
    let Some(pool) = group.thin_pool() else { return Ok(()) };
    thin_commands::set_error_when_full(turn, pool.fails_when_full(settings)).await
}

fn shows_former_data(pool: &Pool, group: &Group) -> VolumeError {
    let thin_pool = format!("{}/{THIN_POOL}", group.name);
    VolumeError::Unavailable {
        reason: format!(
            "pool {}: thin pool {thin_pool} does not zero new chunks, so that a new volume would show the data of \
             deleted ones; run `lvchange -Zy {thin_pool}`",
            pool.name
        ),
    }
}
