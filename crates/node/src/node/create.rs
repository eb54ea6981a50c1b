//! Make a volume, and finish one whose making was interrupted.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::lvm::{NewLv, layout};
use crate::node::Node;
use crate::node::find::search;
use crate::node::found::FoundVolume;
use crate::node::free_space::place;
use crate::node::lv_tags::{StoredState, VolumeTags};
use crate::node::pools::{self, Pool, by_room};
use crate::node::standby::add_standby_disks;
use crate::node::thin_pool::ensure_thin_pool;
use crate::node::wipe_tasks::start_first_wipe;
use crate::volume::{Layout, Mode, NewVolume, RequestedSize, VolumeError};

/// Creates the volume, durably. It is new: its extents are wiped after this call, and before it is published.
pub(super) async fn ensure_volume(
    node: &Node,
    want: &NewVolume,
) -> Result<FoundVolume, VolumeError> {
    // An earlier call for it asked for the same pool: the trouble of another stops nothing here.
    // Nor does a group that was never read. Should it hide a volume of this name that was never
    // acknowledged, both are refused when it comes back.
    let pool = node.pool_of(&want.class).ok();
    let may_hold_it = |other: &Pool| pool.as_ref().is_none_or(|pool| pool.name == other.name);
    let found = match search(node, &want.key(), may_hold_it).await? {
        (Some(found), _) => found.reachable()?,
        (None, _) => make_volume(node, want).await?,
    };
    same_as_wanted(&found, want, &node.settings.name)?;
    if found.record.life == StoredState::Deleting {
        return Err(VolumeError::InProgress {
            what: format!("deleting the earlier volume {:?}", want.name),
            progress: "it is being wiped".to_owned(),
        });
    }
    found.group.flush().await?;
    if found.record.is_new() {
        start_first_wipe(node, &found);
    }
    Ok(found)
}

/// Takes the extents, tagged as new.
async fn make_volume(node: &Node, want: &NewVolume) -> Result<FoundVolume, VolumeError> {
    if !want.nodes.is_empty() && !want.nodes.contains(&node.settings.name) {
        let (asked, here) = (want.nodes.clone(), node.settings.name.clone());
        return Err(VolumeError::TopologyMismatch { asked, here });
    }
    let pool = node.pool_of(&want.class)?;
    let size = wanted_size(want)?;
    if let Mode::Filesystem(kind) = want.mode {
        let options = &want.class.mkfs_options;
        node.formats.refuse_bad(node.host.as_ref(), kind, options, size).await?;
    }
    if let Some(made) = make_where_it_fits(node, &pool, want, size).await? {
        return Ok(made);
    }
    let seen = pool.see().await;
    let mut not_taken = Vec::new();
    for (group, read) in by_room(&seen) {
        let turn = group.turn().await?;
        let reserve = pool.terms.reserve.div_ceil(read.extent_size);
        let extents = size.div_ceil(read.extent_size) + reserve;
        let left = add_standby_disks(node, &pool, &turn, want.class.layout, extents).await?;
        drop(turn);
        if let Some(made) = make_where_it_fits(node, &pool, want, size).await? {
            return Ok(made);
        }
        not_taken.extend(left.reasons);
        if !left.elsewhere {
            break;
        }
    }
    let seen = pool.see().await;
    // Not enough space is said only by a group that could tell: its caller then takes the pod
    // to another node. Where none can, asking again is what helps.
    if !seen.changeable() {
        let trouble = seen.trouble().or_else(|| pools::listed(pool.refused.iter().cloned()));
        let trouble = trouble.unwrap_or_else(|| "it has no volume group yet".to_owned());
        return Err(VolumeError::Unavailable { reason: format!("pool {}: {trouble}", pool.name) });
    }
    let no_thin = (want.class.layout == Layout::Thin && pool.terms.thin.is_none())
        .then(|| "it makes no thin volumes: set `thin` of the pool".to_owned());
    Err(VolumeError::InsufficientCapacity {
        pool: pool.name.clone(),
        asked: size,
        free: seen.free(Bytes::ZERO),
        largest: seen.largest(want.class.layout, Bytes::ZERO),
        hindrance: pools::listed(no_thin.into_iter().chain(seen.hindrance()).chain(not_taken)),
    })
}

async fn make_where_it_fits(
    node: &Node,
    pool: &Arc<Pool>,
    want: &NewVolume,
    size: Bytes,
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
    if layout::largest_new(&read, want.class.layout, &pool.terms) < extents {
        return Ok(None); // Another volume took the room while we waited for our turn.
    }
    keeps_limit(read.size_of(extents), want.size)?;
    let record = VolumeTags::new(&node.settings.key, want);
    let new =
        NewLv { name: record.lv_name(), layout: want.class.layout, extents, tags: record.tags() };
    if let (Layout::Thin, Some(thin)) = (new.layout, &pool.terms.thin) {
        ensure_thin_pool(node, &turn, pool, thin).await?;
    }
    let lv = turn.create(&new).await?;
    let seen = turn.seen().await?;
    Ok(Some(FoundVolume { pool: pool.clone(), group: group.clone(), seen, lv, record }))
}

/// The size to make: what was asked for, or what its file system needs if that is more and allowed.
fn wanted_size(want: &NewVolume) -> Result<Bytes, VolumeError> {
    let smallest = match want.mode {
        Mode::Block => Bytes::new(1),
        Mode::Filesystem(kind) => kind.smallest(),
    };
    match want.size.at_most {
        Some(limit) if limit < smallest => Err(VolumeError::SizeOutOfRange {
            reason: format!(
                "{} needs at least {} bytes ({smallest}), above the limit of {} bytes",
                want.mode,
                smallest.get(),
                limit.get()
            ),
        }),
        _ => Ok(want.size.at_least.max(smallest)),
    }
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

/// # Errors
/// [`VolumeError::AlreadyExists`] if the volume of that name is not what is asked for now.
fn same_as_wanted(found: &FoundVolume, want: &NewVolume, node: &str) -> Result<(), VolumeError> {
    let elsewhere = !want.nodes.is_empty() && !want.nodes.iter().any(|may| may == node);
    let place = || {
        let words = format!("it is on node {node}, which is not in the requested topology");
        elsewhere.then_some(words)
    };
    let size = || size_difference(found, want);
    match class_difference(found, want).or_else(place).or_else(size) {
        Some(difference) => Err(VolumeError::AlreadyExists { name: want.name.clone(), difference }),
        None => Ok(()),
    }
}

fn class_difference(found: &FoundVolume, want: &NewVolume) -> Option<String> {
    let (record, class) = (&found.record, &want.class);
    let differs = |what: &str, has: &str, asked: &str| {
        (has != asked).then(|| format!("its {what} is {has}, {asked} was requested"))
    };
    let pool = class.pool.as_ref().unwrap_or(&found.pool.name);
    (record.name != want.name)
        .then(|| format!("its name is {:?}", record.name))
        .or_else(|| differs("volume mode", &record.mode.to_string(), &want.mode.to_string()))
        .or_else(|| differs("pool", found.pool.name.as_str(), pool.as_str()))
        .or_else(|| differs("layout", found.lv.layout().as_str(), class.layout.as_str()))
        .or_else(|| differs("wipe", record.wipe.as_str(), class.wipe.as_str()))
        .or_else(|| differs("resizeSnapshot", record.safety.as_str(), class.safety.as_str()))
}

fn size_difference(found: &FoundVolume, want: &NewVolume) -> Option<String> {
    let (has, asked) = (found.size(), want.size);
    (!asked.admits(has)).then(|| format!("it has {} bytes, {asked} were requested", has.get()))
}
