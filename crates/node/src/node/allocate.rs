//! Takes the extents of a new volume: in the volume group with the most room, to which standby disks are added where that
//! helps.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::lvm::{NewLv, layout};
use crate::node::Node;
use crate::node::found::FoundVolume;
use crate::node::free_space::place;
use crate::node::lv_tags::{StoredState, VolumeTags};
use crate::node::pools::{self, Pool, by_room};
use crate::node::standby::add_standby_disks;
use crate::node::thin_figures::steady_usage;
use crate::node::thin_pool::ensure_thin_pool;
use crate::volume::{Layout, NewVolume, RequestedSize, VolumeError};

/// Takes the extents in a volume group of the pool, to which standby disks may be added for that.
pub(super) async fn make_somewhere(
    node: &Node,
    pool: &Arc<Pool>,
    want: &NewVolume,
    size: Bytes,
    life: StoredState,
) -> Result<FoundVolume, VolumeError> {
    if let Some(made) = make_where_it_fits(node, pool, want, size, life).await? {
        return Ok(made);
    }
    let seen = pool.see().await;
    let mut not_taken = Vec::new();
    for (group, read) in by_room(&seen) {
        let turn = group.turn().await?;
        let needed = (size.div_ceil(read.extent_size), pool.terms);
        let left = add_standby_disks(node, pool, &turn, want.class.layout, needed).await?;
        drop(turn);
        if let Some(made) = make_where_it_fits(node, pool, want, size, life).await? {
            return Ok(made);
        }
        not_taken.extend(left.reasons);
        if !left.elsewhere {
            break;
        }
    }
    Err(no_room(pool, want.class.layout, size, not_taken).await)
}

/// Why a pool has no room for a new volume of this size; `not_taken` says why standby disks do not help.
pub(super) async fn no_room(
    pool: &Arc<Pool>,
    layout: Layout,
    asked: Bytes,
    not_taken: Vec<String>,
) -> VolumeError {
    let seen = pool.see().await;
    // Not enough space is said only by a group that could tell: its caller then takes the pod
    // to another node. Where none can, asking again is what helps.
    if !seen.changeable() {
        let trouble = seen.trouble().or_else(|| pools::listed(pool.refused.iter().cloned()));
        let trouble = trouble.unwrap_or_else(|| "it has no volume group yet".to_owned());
        return VolumeError::Unavailable { reason: format!("pool {}: {trouble}", pool.name) };
    }
    let no_thin = (layout == Layout::Thin && pool.terms.thin.is_none())
        .then(|| "it makes no thin volumes: set `thin` of the pool".to_owned());
    let of_thin = seen.thin_hindrance().filter(|_| layout == Layout::Thin);
    VolumeError::InsufficientCapacity {
        pool: pool.name.clone(),
        asked,
        free: seen.free(Bytes::ZERO),
        largest: seen.largest(layout, Bytes::ZERO),
        hindrance: pools::listed(
            no_thin.into_iter().chain(of_thin).chain(seen.hindrance()).chain(not_taken),
        ),
    }
}

async fn make_where_it_fits(
    node: &Node,
    pool: &Arc<Pool>,
    want: &NewVolume,
    size: Bytes,
    life: StoredState,
) -> Result<Option<FoundVolume>, VolumeError> {
    let seen = pool.see().await;
    let Some(index) = place(&seen.candidates(want.class.layout), size) else {
        return Ok(None);
    };
    let (group, _) = &seen.groups[index];
    let turn = group.turn().await?;
    if !node.pools().iter().any(|pool| pool.takes_into(group)) {
        // No one would look for the volume there.
        return Err(VolumeError::Unavailable {
            reason: format!("pool {} has just changed; retry", pool.name),
        });
    }
    let read = turn.read().await?;
    let extents = size.div_ceil(read.extent_size);
    let usage = steady_usage(group);
    if layout::largest_new(&read, want.class.layout, &pool.terms, usage.as_ref()) < extents {
        return Ok(None); // Another volume took the room while we waited for our turn.
    }
    keeps_limit(read.size_of(extents), want.size)?;
    let record = VolumeTags { life, ..VolumeTags::new(&node.settings.key, want) };
    let new =
        NewLv { name: record.lv_name(), layout: want.class.layout, extents, tags: record.tags() };
    if let (Layout::Thin, Some(thin)) = (new.layout, &pool.terms.thin) {
        ensure_thin_pool(node, &turn, pool, thin).await?;
    }
    let lv = turn.create(&new).await?;
    let seen = turn.seen().await?;
    Ok(Some(FoundVolume { pool: pool.clone(), group: group.clone(), seen, lv, record }))
}

/// # Errors
/// [`VolumeError::SizeOutOfRange`] if a real size is above the limit of the request.
pub(super) fn keeps_limit(size: Bytes, wanted: RequestedSize) -> Result<(), VolumeError> {
    match wanted.at_most {
        Some(limit) if size > limit => Err(VolumeError::SizeOutOfRange {
            reason: format!(
                "in whole extents the volume would have {} bytes, above the limit of {} bytes",
                size.get(),
                limit.get()
            ),
        }),
        _ => Ok(()),
    }
}
