//! Protects workloads from copies of a volume that must not be used.

use crate::node::find::usable;
use crate::node::found::FoundVolume;
use crate::node::{Node, lv_tags};
use crate::volume::{Fence, Standing, Use, VolumeError, VolumeId};

/// Records on the volume itself, durably, which use is allowed. A repeated call changes
/// nothing.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if the recorded fence is newer.
pub(super) async fn fence_volume(
    node: &Node,
    id: &VolumeId,
    fence: Fence,
) -> Result<(), VolumeError> {
    let found = usable(node, id).await?;
    let now = found.record.fence;
    if !fence.replaces(&now) {
        return Err(outdated(id, fence, now));
    }
    if fence != now {
        let gone: Vec<&str> = lv_tags::find_fence_tag(&found.lv).into_iter().collect();
        let turn = found.group.turn().await?;
        turn.retag(&found.lv.name, &gone, &[lv_tags::fence_tag(fence)]).await?;
    }
    // Also of what an earlier call has said that died before its flush.
    found.group.flush().await.map_err(VolumeError::from)
}

/// Returns the allowed use of a volume.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if no use is allowed.
pub(super) fn admit(found: &FoundVolume) -> Result<Use, VolumeError> {
    match found.record.fence.lets() {
        Use::None => Err(VolumeError::PreconditionFailed { reason: fenced_off(found) }),
        admitted @ (Use::Any | Use::Read) => Ok(admitted),
    }
}

fn fenced_off(found: &FoundVolume) -> String {
    let (id, fence) = (&found.record.id, found.record.fence);
    let why = match fence.standing {
        Standing::HalfCopied => "is incomplete: the copy to it has not finished",
        Standing::Active | Standing::Superseded => {
            "is superseded: another volume has replaced it, and data written here would be lost"
        }
    };
    let tag = lv_tags::find_fence_tag(&found.lv).unwrap_or_default();
    format!(
        "volume {id} {why} (generation {}); use the volume that its claim has now, see `kubectl \
         get persistentvolumes`, and only if that volume is not to be used, run `lvchange --deltag \
         {tag} {}/{}` on its node",
        fence.generation,
        found.group.name(),
        found.lv.name
    )
}

fn outdated(id: &VolumeId, asked: Fence, now: Fence) -> VolumeError {
    VolumeError::PreconditionFailed {
        reason: format!(
            "volume {id} is {} since generation {}; the request to make it {} is outdated, as it \
             has generation {}: read the state of the swap again",
            now.standing, now.generation, asked.standing, asked.generation
        ),
    }
}
