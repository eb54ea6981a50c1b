//! Standby disks: what they would bring, and how they join a group when one is needed.

use crate::bytes::Bytes;
use crate::host::{Disk, HostError};
use crate::lvm::{Group, LvmError, VgGuard, VolumeGroup, before_extents, layout, scan_disks};
use crate::node::Node;
use crate::node::disks::{NewDisk, SetupError};
use crate::node::pools::{ObservedPool, Pool, roomiest};
use crate::node::thin_figures::steady_usage;
use crate::panics::caught;
use crate::volume::{Layout, Terms, VolumeError, error_chain};

/// The standby disks that did not join a group.
#[derive(Debug, Default)]
pub(super) struct NotTaken {
    /// The disks, with the reasons.
    pub reasons: Vec<String>,
    /// True if another volume group might use one of them.
    pub elsewhere: bool,
}

/// What came of a standby disk.
enum Standby {
    /// It is in a group of the pool.
    Used,
    Joined,
}

/// Why a standby disk does not join a group.
enum StandbyObstacle {
    /// It is not to be taken.
    OfDisk(SetupError),
    /// It does not fit this group, or LVM has refused it.
    OfGroup(SetupError),
    /// Something that concerns the group, whatever joins it.
    Trouble(LvmError),
}

impl From<SetupError> for StandbyObstacle {
    fn from(error: SetupError) -> StandbyObstacle {
        StandbyObstacle::OfDisk(error)
    }
}

/// Adds standby disks to `turn`'s volume group until a volume of the layout can take `extents` by these terms, or none is
/// left; returns which could not join, and why.
///
/// A crash in between leaves a blank disk, a label without a volume group, or the larger volume
/// group; the next call handles each.
pub(super) async fn add_standby_disks(
    node: &Node,
    pool: &Pool,
    turn: &VgGuard,
    layout: Layout,
    (extents, terms): (u64, Terms),
) -> Result<NotTaken, VolumeError> {
    let mut not_taken = NotTaken::default();
    if !pool.takes_into(turn.group()) {
        return Ok(not_taken);
    }
    for standby in &pool.standby_disks {
        let group = turn.read().await?;
        let usage = steady_usage(turn.group());
        let largest = layout::largest(&group, layout, &terms, usage.as_ref());
        if largest >= extents || !group.changeable() {
            break;
        }
        let added = caught("disks", add_standby_disk(node, pool, turn, &group, standby)).await;
        let added = added.unwrap_or_else(|panicked| {
            let what = standby.path.display().to_string();
            Err(StandbyObstacle::OfDisk(SetupError::Fault { what, panicked }))
        });
        let error = match added {
            Ok(Standby::Used) => continue,
            Ok(Standby::Joined) => {
                tracing::info!(
                    pool = %pool.name,
                    group = turn.group().name(),
                    disk = %standby.path.display(),
                    "a standby disk joined the volume group"
                );
                continue;
            }
            Err(StandbyObstacle::Trouble(error)) => return Err(error.into()),
            Err(StandbyObstacle::OfDisk(error)) => error,
            Err(StandbyObstacle::OfGroup(error)) => {
                not_taken.elsewhere = true;
                error
            }
        };
        let (disk, why) = (standby.path.display(), error_chain::in_full(&error));
        not_taken.reasons.push(format!("standby disk {disk} was not used: {why}"));
    }
    Ok(not_taken)
}

async fn add_standby_disk(
    node: &Node,
    pool: &Pool,
    turn: &VgGuard,
    group: &Group,
    standby: &NewDisk,
) -> Result<Standby, StandbyObstacle> {
    let host = node.host.as_ref();
    let disks = host.disks().await.map_err(SetupError::from)?;
    let scan = scan_disks(&node.host, disks.clone(), &node.named(&pool.standby_disks).await).await;
    let located = standby.locate(host, &scan).await?;
    if pool.group_on(&scan, &located.device).is_some() {
        return Ok(Standby::Used);
    }
    located.refuse_if_taken(&scan, |group| node.holder(group))?;
    let disk = disks.iter().find(|disk| disk.path == located.device);
    if let Some(reason) = misfit(disk, turn.group(), group) {
        let (disk, group) = (standby.path.clone(), group.name.clone());
        return Err(StandbyObstacle::OfGroup(SetupError::Misfit { disk, group, reason }));
    }
    located.make_free(host, &scan).await?;
    let joined = match turn.extend_group(&located.device).await {
        Ok(()) => turn.group().flush().await,
        refused => refused,
    };
    match joined {
        Ok(()) => {
            node.refused_disks.forget(&located.device);
            Ok(Standby::Joined)
        }
        Err(error) if is_of_disk(&error) => {
            if let Some(disk) = disk {
                node.refused_disks.note(host, disk, error_chain::in_full(&error)).await;
            }
            Err(StandbyObstacle::OfGroup(error.into()))
        }
        Err(error) => Err(StandbyObstacle::Trouble(error)),
    }
}

/// Returns the space that the standby disks would add to the pool's volume group with the most
/// free space.
pub(super) async fn standby_room(node: &Node, seen: &ObservedPool<'_>) -> Bytes {
    let Some((handle, group)) = roomiest(seen) else { return Bytes::ZERO };
    if seen.pool.standby_disks.is_empty() {
        return Bytes::ZERO;
    }
    let host = node.host.as_ref();
    let Ok(disks) = host.disks().await else { return Bytes::ZERO };
    node.refused_disks.forget_changed(host, &disks).await;
    let named = node.named(&seen.pool.standby_disks).await;
    let scan = scan_disks(&node.host, disks.clone(), &named).await;
    let mut joining = Vec::new();
    for standby in &seen.pool.standby_disks {
        let looked = async {
            let located = standby.locate(host, &scan).await?;
            let disk = disks.iter().find(|disk| disk.path == located.device);
            let disk = disk.filter(|disk| would_take(node, disk, handle, group));
            let is_free = disk.is_some() && located.obstacle(host, &scan).await?.is_none();
            Ok(disk.filter(|_| is_free))
        };
        joining.extend(standby.alone(looked).await.ok().flatten());
    }
    room_of(joining, group)
}

/// Returns whether nothing that is known without reading the disk prevents it from joining the
/// volume group.
pub(super) fn would_take(node: &Node, disk: &Disk, handle: &VolumeGroup, group: &Group) -> bool {
    node.refused_disks.why(&disk.path).is_none() && misfit(Some(disk), handle, group).is_none()
}

/// Returns the space that these disks add to a volume group, as many of them as it may have.
pub(super) fn room_of<'a>(disks: impl IntoIterator<Item = &'a Disk>, group: &Group) -> Bytes {
    let extents = |disk: &Disk| {
        let data = disk.size.saturating_sub(before_extents(disk.optimal_io));
        group.size_of(data.get() / group.extent_size.get())
    };
    disks.into_iter().take(group.more_disks()).map(extents).sum()
}

/// Why LVM would not let a free disk join a group; `None` if nothing is known.
fn misfit(disk: Option<&Disk>, handle: &VolumeGroup, group: &Group) -> Option<String> {
    if group.more_disks() == 0 {
        return Some(format!(
            "the volume group has reached its maximum number of physical volumes; run `vgchange \
             --maxphysicalvolumes 0 {}`",
            group.name
        ));
    }
    let block = disk?.logical_block;
    let other = handle.disks().into_iter().find(|other| other.logical_block != block)?;
    Some(format!(
        "it has logical blocks of {block} and {} has those of {}, which LVM does not mix; use it \
         in a volume group of its own",
        other.path.display(),
        other.logical_block
    ))
}

/// Returns whether it is the disk that LVM refused, or that failed: the next one may do.
fn is_of_disk(error: &LvmError) -> bool {
    match error {
        LvmError::Refused { .. } | LvmError::Host { source: HostError::System { .. }, .. } => true,
        LvmError::Host { .. }
        | LvmError::Absent { .. }
        | LvmError::Unusable { .. }
        | LvmError::Elsewhere { .. }
        | LvmError::Hung { .. }
        | LvmError::Occupied { .. }
        | LvmError::Damaged { .. } => false,
    }
}
