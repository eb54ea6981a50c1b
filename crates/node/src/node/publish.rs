//! Publishes a staged volume to a workload, and unpublishes it.

use std::path::Path;

use nix::libc::EBUSY;

use crate::bytes::Bytes;
use crate::host::{DeviceNumber, DmInfo};
use crate::mount::{self, MountError, MountTable};
use crate::node::error::{failed, mount_failed};
use crate::node::find::{live_device, must_find, usable};
use crate::node::found::{FoundVolume, device_node};
use crate::node::grow::{grow_device, grow_mounted, note_refused_growth};
use crate::node::pools::served;
use crate::node::resize_offline::hold_for_programs;
use crate::node::shrink::conclude_cut_shrink;
use crate::node::{Node, fence, lv_tags};
use crate::volume::{Access, Growth, Mode, Publish, Use, VolumeError, VolumeId, few};

/// Publishes a staged volume at the target. A repeated call changes nothing.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if it is not staged or is fenced off, [`VolumeError::InUse`] if it is to be shown
/// alone and is shown elsewhere already.
pub(super) async fn publish_volume(node: &Node, publish: &Publish) -> Result<(), VolumeError> {
    let found = usable(node, &publish.id).await?;
    // It may be staged since before it was fenced off, and a second workload uses the same staging.
    let use_of_it = fence::admit(&found)?;
    let not_staged = || VolumeError::PreconditionFailed {
        reason: format!("volume {} is not staged; stage it first", publish.id),
    };
    let (device, info) = live_device(node, &found).await?.ok_or_else(not_staged)?;
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    if publish.alone {
        refuse_second_target(node, &table, publish, &info)?;
    }
    match (&publish.access, found.record.mode) {
        // One that is not wiped may be active, too.
        (Access::Block, Mode::Block) if found.record.is_new() => Err(not_staged()),
        (Access::Block, Mode::Block) => {
            // Until it is shown its number could become that of another volume.
            let held = hold_for_programs(node, &found, &device).await?;
            let shown = show_device(node, &table, publish, &device, &info).await;
            drop(held);
            shown
        }
        (Access::Mount { .. }, Mode::Filesystem(_)) => {
            let staged = table.at(&publish.staging).filter(|m| m.device == info.number);
            staged.ok_or_else(not_staged)?;
            let read_only = publish.read_only || use_of_it == Use::Read;
            if !read_only {
                make_staging_writable(node, &table, publish).await?;
            }
            show_directory(node, &table, publish, read_only).await
        }
        (_, mode) => Err(VolumeError::InvalidArgument {
            field: "volume_capability".to_owned(),
            reason: format!("the volume is {mode}"),
        }),
    }
}

/// It may be staged since a time at which its fence let it only be read: a caller does not stage again
/// what it knows to be staged.
async fn make_staging_writable(
    node: &Node,
    table: &MountTable,
    publish: &Publish,
) -> Result<(), VolumeError> {
    let staging = &publish.staging;
    let made = mount::ensure_writable(node.host.as_ref(), table, staging).await;
    let what = || format!("failed to make {} writable", staging.display());
    made.map(|_| ()).map_err(|error| mount_failed(what())(error))
}

async fn show_directory(
    node: &Node,
    table: &MountTable,
    publish: &Publish,
    read_only: bool,
) -> Result<(), VolumeError> {
    node.host
        .make_dir(&publish.target)
        .await
        .map_err(failed("failed to create the target path"))?;
    let flags: Vec<String> = if read_only { vec!["ro".to_owned()] } else { Vec::new() };
    let (source, target) = (&publish.staging, &publish.target);
    let bound = mount::ensure_bound(node.host.as_ref(), table, source, target, &flags).await;
    bound.map(|_| ()).map_err(|source| not_shown(target, source))
}

async fn show_device(
    node: &Node,
    table: &MountTable,
    publish: &Publish,
    device: &Path,
    info: &DmInfo,
) -> Result<(), VolumeError> {
    if publish.read_only && !node.settings.guarded_devices {
        return Err(VolumeError::InvalidArgument {
            field: "readonly".to_owned(),
            reason: "a raw block volume cannot be published read-only: a bind mount does not \
                     prevent writes to a device; use a file system volume"
                .to_owned(),
        });
    }
    if let Some(parent) = publish.target.parent() {
        node.host
            .make_dir(parent)
            .await
            .map_err(failed("failed to create the target's directory"))?;
    }
    node.host
        .make_file(&publish.target)
        .await
        .map_err(failed("failed to create the target file"))?;
    let target = &publish.target;
    let host = node.host.as_ref();
    let bound = mount::ensure_node_bound(host, table, device, info.number, target).await;
    bound.map(|_| ()).map_err(|source| not_shown(target, source))
}

fn refuse_second_target(
    node: &Node,
    table: &MountTable,
    publish: &Publish,
    info: &DmInfo,
) -> Result<(), VolumeError> {
    let kernel_name = format!("dm-{}", info.number.minor);
    let shown = node.shown(table, info.number).into_iter().chain(table.of_node(&kernel_name));
    let mut others = shown
        .map(|mount| &mount.target)
        .filter(|target| **target != publish.target && **target != publish.staging)
        .map(|target| target.display())
        .peekable();
    if others.peek().is_none() {
        return Ok(());
    }
    Err(VolumeError::InUse {
        id: publish.id.to_string(),
        holder: format!(
            "its access mode allows one workload, and it is published at {} already",
            few(others)
        ),
    })
}

/// Undoes [`Node::publish`] and remove the target; not published is success.
pub(super) async fn unpublish_volume(
    node: &Node,
    id: &VolumeId,
    target: &Path,
) -> Result<(), VolumeError> {
    let number = match must_find(node, id).await {
        Ok(found) => live_device(node, &found).await?.map(|(_, info)| info.number),
        Err(VolumeError::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    unmount(node, id, number, target).await
}

/// Unmounts a path that shows the device `number`, or where the volume itself is gone a device of ours
/// that no volume has any more, and remove it.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if something else is mounted there, [`VolumeError::InUse`] if a process
/// or another mount uses it.
pub(super) async fn unmount(
    node: &Node,
    id: &VolumeId,
    number: Option<DeviceNumber>,
    target: &Path,
) -> Result<(), VolumeError> {
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    if let Some(mount) = table.at(target) {
        let shows = |number: DeviceNumber| {
            let kernel_name = format!("dm-{}", number.minor);
            mount.device == number || table.of_node(&kernel_name).any(|m| m.target == target)
        };
        let ours = match number {
            Some(number) => shows(number),
            None => ownerless_devices(node).await?.into_iter().any(shows),
        };
        if !ours {
            return Err(VolumeError::PreconditionFailed {
                reason: format!(
                    "{target} shows {}, which is not this volume; nothing was unmounted: if it \
                         is not needed, run `umount {target}`",
                    mount.source,
                    target = target.display()
                ),
            });
        }
        let unmounted = mount::ensure_unmounted(node.host.as_ref(), &table, target).await;
        unmounted.map_err(|error| not_unmounted(id, target, error))?;
    }
    node.host.remove_path(target).await.map_err(failed("failed to remove the path"))
}

/// The live devices of this driver's groups that none of its volumes has: what went behind its back.
async fn ownerless_devices(node: &Node) -> Result<Vec<DeviceNumber>, VolumeError> {
    let groups: Vec<_> =
        served(&node.pools()).filter_map(|(_, group)| group.remembered()).collect();
    let devices = node.host.dm_list().await.map_err(failed("device-mapper"))?;
    let ownerless = |uuid: &str| {
        let group = groups.iter().find(|group| uuid.starts_with(&group.dm_prefix()));
        group.is_some_and(|group| {
            !lv_tags::healable(group).any(|lv| uuid.starts_with(&group.dm_uuid(lv)))
        })
    };
    let devices = devices.into_iter().filter(|device| ownerless(&device.uuid));
    Ok(devices.map(|device| device.number).collect())
}

/// Grows the file system at `path` to its device, and the device if it is still too small;
/// returns the device's size.
///
/// # Errors
/// [`VolumeError::NotFound`] if there is no such volume or it is not at `path`.
pub(super) async fn expand_volume(
    node: &Node,
    id: &VolumeId,
    path: &Path,
    growth: Option<Growth>,
) -> Result<Bytes, VolumeError> {
    let found = usable(node, id).await?;
    let found = conclude_cut_shrink(node, found).await?;
    let mount = mount_at(node, &found, path).await?;
    let found = match growth {
        Some(growth) => grow_device(node, found, growth).await?,
        None => found,
    };
    if let (Mode::Filesystem(kind), Some((info, read_only))) = (found.record.mode, mount) {
        if read_only {
            return Err(VolumeError::PreconditionFailed {
                reason: format!("{} is mounted read-only, so it cannot grow", path.display()),
            });
        }
        let grown = grow_mounted(node, &found, kind, &device_node(info.number), path).await;
        grown.inspect_err(|error| note_refused_growth(node, &found, error))?;
    }
    found.group.flush().await?;
    Ok(found.size())
}

/// The device behind a mounted path and whether its file system refuses writes; `None` for a
/// block volume.
async fn mount_at(
    node: &Node,
    found: &FoundVolume,
    path: &Path,
) -> Result<Option<(DmInfo, bool)>, VolumeError> {
    let not_there =
        || VolumeError::NotFound { id: format!("{} at {}", found.record.id, path.display()) };
    let kind = node.host.path_kind(path).await.map_err(failed("the volume path"))?;
    let (_, info) = live_device(node, found).await?.ok_or_else(not_there)?;
    kind.ok_or_else(not_there)?;
    if found.record.mode == Mode::Block {
        return Ok(None);
    }
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    let mount = table.at(path).filter(|mount| mount.device == info.number);
    let mount = mount.ok_or_else(not_there)?;
    // A read-only bind of a writable file system grows as well as the file system itself.
    let read_only = mount.super_options.iter().any(|option| option == "ro");
    Ok(Some((info, read_only)))
}

fn not_shown(target: &Path, source: MountError) -> VolumeError {
    mount_failed(format!("failed to mount the volume at {}", target.display()))(source)
}

/// What a process or another mount uses stays mounted; its caller asks again.
fn not_unmounted(id: &VolumeId, target: &Path, source: MountError) -> VolumeError {
    let target = target.display();
    match source {
        MountError::Host(error) if error.errno() == Some(EBUSY) => VolumeError::InUse {
            id: id.to_string(),
            holder: format!(
                "{target} is in use, so it stays mounted; see `fuser -vm {target}` for processes \
                 and `findmnt -R {target}` for mounts inside"
            ),
        },
        source => mount_failed(format!("failed to unmount {target}"))(source),
    }
}
