//! Make a volume, and finish one whose making was interrupted.

use crate::bytes::Bytes;
use crate::node::Node;
use crate::node::allocate::make_somewhere;
use crate::node::find::search;
use crate::node::found::FoundVolume;
use crate::node::lv_tags::StoredState;
use crate::node::pools::Pool;
use crate::node::remove::remove_for_retry;
use crate::node::restore::{complete, make_received, make_restored};
use crate::node::transfers::RemoteSource;
use crate::node::wipe_tasks::start_first_wipe;
use crate::volume::{Mode, NewVolume, Source, VolumeError};

/// Creates the volume, durably. It is new: its extents are wiped after this call, and before it is published. Or it has the
/// content of its source, which `remote` has if that is on another node.
pub(super) async fn ensure_volume(
    node: &Node,
    want: &NewVolume,
    remote: Option<&RemoteSource>,
) -> Result<FoundVolume, VolumeError> {
    // An earlier call for it asked for the same pool: the trouble of another stops nothing here.
    // Nor does a group that was never read. Should it hide a volume of this name that was never
    // acknowledged, both are refused when it comes back.
    let pool = node.pool_of(&want.class).ok();
    let may_hold_it = |other: &Pool| pool.as_ref().is_none_or(|pool| pool.name == other.name);
    let found = match search(node, &want.key(), may_hold_it).await? {
        (Some(found), _) => complete(node, found.reachable()?, want, remote).await?,
        (None, _) => make_volume(node, want, remote).await?,
    };
    if found.record.life == StoredState::Deleting {
        // Nobody else may ask for its end: a volume that gets no content is deleted by who asked for it.
        remove_for_retry(node, &found.record.id).await?;
        return Err(VolumeError::InProgress {
            what: format!("deleting the earlier volume {:?}", want.name),
            progress: "it is deleted now".to_owned(),
        });
    }
    same_as_wanted(&found, want, &node.settings.name)?;
    found.group.flush().await?;
    if found.record.is_new() {
        start_first_wipe(node, &found);
    }
    Ok(found)
}

/// Takes the extents, tagged as new.
async fn make_volume(
    node: &Node,
    want: &NewVolume,
    remote: Option<&RemoteSource>,
) -> Result<FoundVolume, VolumeError> {
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
    match (&want.source, remote) {
        (Some(_), Some(remote)) => make_received(node, want, remote, &pool, size).await,
        (Some(source), None) => make_restored(node, want, source, &pool, size).await,
        (None, _) => make_somewhere(node, &pool, want, size, StoredState::New).await,
    }
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
    let text =
        |source: &Option<Source>| source.as_ref().map_or("none".to_owned(), Source::to_string);
    let pool = class.pool.as_ref().unwrap_or(&found.pool.name);
    (record.name != want.name)
        .then(|| format!("its name is {:?}", record.name))
        .or_else(|| differs("volume mode", &record.mode.to_string(), &want.mode.to_string()))
        .or_else(|| differs("pool", found.pool.name.as_str(), pool.as_str()))
        .or_else(|| differs("layout", found.lv.layout().as_str(), class.layout.as_str()))
        .or_else(|| differs("source", &text(&record.source), &text(&want.source)))
        .or_else(|| differs("wipe", record.wipe.as_str(), class.wipe.as_str()))
        .or_else(|| differs("resizeSnapshot", record.safety.as_str(), class.safety.as_str()))
}

fn size_difference(found: &FoundVolume, want: &NewVolume) -> Option<String> {
    let (has, asked) = (found.size(), want.size);
    (!asked.admits(has)).then(|| format!("it has {} bytes, {asked} were requested", has.get()))
}
