//! Keep workloads from the copies of a volume that are not to be used.

use crate::node::{Found, Node, record};
use crate::volume::{Fence, Standing, Use, VolumeError, VolumeId};

impl Node {
    /// Say on the volume itself, durably, who may use it; again changes nothing.
    ///
    /// # Errors
    /// [`VolumeError::PreconditionFailed`] if what it says already does not give way.
    pub(super) async fn fence_volume(
        &self,
        id: &VolumeId,
        fence: Fence,
    ) -> Result<(), VolumeError> {
        let found = self.usable(id).await?;
        let now = found.record.fence;
        if !fence.replaces(&now) {
            return Err(outdated(id, fence, now));
        }
        if fence != now {
            let gone: Vec<&str> = record::find_fence_tag(&found.lv).into_iter().collect();
            let turn = found.group.turn().await?;
            turn.retag(&found.lv.name, &gone, &[record::fence_tag(fence)]).await?;
        }
        // Also of what an earlier call has said that died before its flush.
        found.group.flush().await.map_err(VolumeError::from)
    }
}

/// What may be done with a volume that is to be used.
///
/// # Errors
/// [`VolumeError::PreconditionFailed`] if that is nothing.
pub(super) fn admit(found: &Found) -> Result<Use, VolumeError> {
    match found.record.fence.lets() {
        Use::None => Err(VolumeError::PreconditionFailed { reason: fenced_off(found) }),
        admitted @ (Use::Any | Use::Read) => Ok(admitted),
    }
}

fn fenced_off(found: &Found) -> String {
    let (id, fence) = (&found.record.id, found.record.fence);
    let why = match fence.standing {
        Standing::HalfCopied => "is half copied, so what it holds is no whole",
        Standing::Active | Standing::Superseded => {
            "is superseded: another volume has taken its place, and what is written here would be lost"
        }
    };
    let tag = record::find_fence_tag(&found.lv).unwrap_or_default();
    format!(
        "volume {id} {why} (generation {}); use the volume that its claim has now, see `kubectl get \
         persistentvolumes`, and only if that one is not to be used type `lvchange --deltag {tag} \
         {}/{}` on its node",
        fence.generation,
        found.group.name(),
        found.lv.name
    )
}

fn outdated(id: &VolumeId, asked: Fence, now: Fence) -> VolumeError {
    VolumeError::PreconditionFailed {
        reason: format!(
            "volume {id} is {} since generation {}, and was to be {} by generation {}, which came \
             before; whoever asks has been replaced, and has to read the state of its swap again",
            now.standing, now.generation, asked.standing, asked.generation
        ),
    }
}
