//! Refuses what needs an unused volume while anything holds it.

use std::path::Path;

use crate::host::{DeviceNumber, Holder};
use crate::mount::MountTable;
use crate::node::Node;
use crate::node::error::failed;
use crate::node::find::live_device;
use crate::node::found::{FoundVolume, device_node};
use crate::volume::{VolumeError, few};

/// # Errors
/// [`VolumeError::InUse`] with the holders if the volume is open, or mounted elsewhere than at its
/// staging path.
pub(super) async fn refuse_if_held(
    node: &Node,
    found: &FoundVolume,
    staging: Option<&Path>,
) -> Result<(), VolumeError> {
    let Some((device, info)) = live_device(node, found).await? else {
        return Ok(());
    };
    let table = MountTable::read(node.host.as_ref()).await;
    let table = table.map_err(failed("failed to read the mount table"))?;
    // All mounts of a file system are one holder of its device.
    let staged = node.shown(&table, info.number).iter().any(|m| Some(&*m.target) == staging);
    let holder = if let Some(elsewhere) = mounted_elsewhere(node, &table, info.number, staging) {
        format!("it is mounted at {elsewhere}; unmount it there")
    } else if info.open_count > u32::from(staged) {
        let device = device.display();
        stacked_on(node, info.number)
            .await?
            .unwrap_or_else(|| format!("a process has {device} open; see `fuser -v {device}`"))
    } else {
        return Ok(());
    };
    Err(VolumeError::InUse { id: found.record.id.to_string(), holder })
}

/// Where a device, or its node, is mounted beside its staging path.
fn mounted_elsewhere(
    node: &Node,
    table: &MountTable,
    device: DeviceNumber,
    staging: Option<&Path>,
) -> Option<String> {
    let kernel_name = format!("dm-{}", device.minor);
    let mut elsewhere = node
        .shown(table, device)
        .into_iter()
        .chain(table.of_node(&kernel_name))
        .filter(|mount| Some(mount.target.as_path()) != staging)
        .map(|mount| mount.target.display())
        .peekable();
    elsewhere.peek().is_some().then(|| few(elsewhere))
}

/// Name what the kernel has stacked on a device, with the commands that stop it; `None` for nothing.
///
/// No process has such a device open: the host's udev may have made it from what a tenant wrote.
pub(super) async fn stacked_on(
    node: &Node,
    device: DeviceNumber,
) -> Result<Option<String>, VolumeError> {
    let above = node.host.holders(device).await;
    let above = above.map_err(failed("failed to read what holds the device"))?;
    let commands: Vec<String> = above.iter().map(Holder::command_to_stop).collect();
    Ok((!above.is_empty()).then(|| {
        format!(
            "{} on the node holds {}; if nothing uses it, run on the node: `{}`",
            few(&above),
            device_node(device).display(),
            commands.join(" && ")
        )
    }))
}

/// # Errors
/// [`VolumeError::InUse`] if the kernel has stacked other devices on the volume.
pub(super) async fn refuse_if_stacked_on(
    node: &Node,
    found: &FoundVolume,
) -> Result<(), VolumeError> {
    let Some((_, info)) = live_device(node, found).await? else { return Ok(()) };
    match stacked_on(node, info.number).await? {
        Some(holder) => Err(VolumeError::InUse { id: found.record.id.to_string(), holder }),
        None => Ok(()),
    }
}

/// Deactivates a volume that was activated for a moment. One that is published keeps its
/// device, even while it is not open.
pub(super) async fn deactivate_unless_held(
    node: &Node,
    found: &FoundVolume,
) -> Result<(), VolumeError> {
    if live_device(node, found).await?.is_none() {
        return Ok(());
    }
    match refuse_if_held(node, found, None).await {
        Err(VolumeError::InUse { .. }) => return Ok(()),
        unheld => unheld?,
    }
    let turn = found.group.turn().await?;
    turn.deactivate(&found.lv.name).await.map_err(VolumeError::from)
}
