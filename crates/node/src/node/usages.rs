//! Usage of the mounted file systems: sampled periodically, and remembered.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bytes::Bytes;
use crate::node::pools::served;
use crate::node::stats::{look, usage_unless_suspended};
use crate::node::{Node, lv_tags};
use crate::volume::{FsUsage, Mode, TrimInterval, VolumeError, VolumeId};

/// How many file systems are asked at once.
const AT_ONCE: usize = 64;

/// How long one of them may take: it answers from memory, and one that hangs keeps the others waiting.
const ANSWER: Duration = Duration::from_secs(5);

/// A mounted file system of ours.
pub(super) struct Mounted {
    pub id: VolumeId,
    pub dm_uuid: String,
    pub at: PathBuf,
    pub mode: Mode,
    /// Size of its device.
    pub size: Bytes,
    pub trim: Option<TrimInterval>,
}

impl Node {
    /// Samples the usage of each mounted file system, without a process or a disk, and remembers
    /// the results. One that does not respond in time is left out, and so is one that is suspended.
    ///
    /// # Errors
    /// [`VolumeError::Failed`] if the kernel does not report its mounts or devices.
    pub async fn sample_usages(
        self: &Arc<Self>,
    ) -> Result<BTreeMap<VolumeId, FsUsage>, VolumeError> {
        let (turns, mut asked) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
        for mounted in mounted(self).await? {
            let (node, turns) = (self.clone(), turns.clone());
            asked.spawn(async move {
                let _turn = turns.acquire().await;
                timeout(ANSWER, usage_of(&node, mounted)).await.ok().flatten()
            });
        }
        let mut usages = BTreeMap::new();
        while let Some(answered) = asked.join_next().await {
            // What one of them stumbles over is its own silence; the log says where.
            usages.extend(answered.ok().flatten());
        }
        self.usages.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&usages);
        Ok(usages)
    }

    /// Returns the usage of the file systems that responded to the last sampling.
    pub fn remembered_usages(&self) -> BTreeMap<VolumeId, FsUsage> {
        self.usages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All of them.
pub(super) async fn mounted(node: &Node) -> Result<Vec<Mounted>, VolumeError> {
    let look = look(node).await?;
    let mut all = Vec::new();
    for (_, group) in served(&node.pools()) {
        let Some(seen) = group.remembered() else { continue };
        for (lv, record) in lv_tags::volumes(&seen).filter(|(_, one)| one.mode != Mode::Block) {
            let dm_uuid = seen.dm_uuid(lv);
            let Some(number) = look.live.get(&dm_uuid) else { continue };
            let Some(mount) = node.shown(&look.table, *number).first().copied() else {
                continue;
            };
            let (at, size) = (mount.target.clone(), seen.size_of(lv.extents()));
            let (id, mode, trim) = (record.id, record.mode, record.trim);
            all.push(Mounted { id, dm_uuid, at, mode, size, trim });
        }
    }
    Ok(all)
}

async fn usage_of(node: &Node, mounted: Mounted) -> Option<(VolumeId, FsUsage)> {
    let Mounted { id, dm_uuid, at, .. } = mounted;
    let info = node.host.dm_info(&dm_uuid).await.ok()??;
    let usage = usage_unless_suspended(node, &at, &info, &mut Vec::new()).await;
    match usage {
        Ok(usage) => Some((id, usage?)),
        Err(error) => {
            tracing::debug!(volume = %id, %error, "failed to read volume usage");
            None
        }
    }
}
