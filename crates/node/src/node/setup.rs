//! Sets the node up, at its start and when its plans change: recovers from a crash, resumes wipes.

use std::sync::{Arc, Mutex, RwLock};

use crate::host::{Host, HostError};
use crate::lvm::{Group, LvmError, VgGuard, VolumeGroup};
use crate::mount::MountTable;
use crate::node::found::FoundVolume;
use crate::node::lv_tags::{self, StoredState};
use crate::node::outcomes::Outcomes;
use crate::node::pool_plan::PoolPlan;
use crate::node::pools::{Pool, served};
use crate::node::refused_disks::RefusedDisks;
use crate::node::survey::Survey;
use crate::node::{Node, NodeSettings, wipe};
use crate::panics::caught;
use crate::volume::error_chain;

impl Node {
    /// Sets up the pools and recovers what an earlier run left.
    ///
    /// A pool whose volume group is missing or whose disk is not blank exists and is unavailable:
    /// one bad disk must not prevent the driver from serving the others.
    ///
    /// # Errors
    /// [`HostError`] if the disks of the host cannot be listed at all.
    pub async fn start(
        host: Arc<dyn Host>,
        settings: NodeSettings,
        plans: Vec<PoolPlan>,
    ) -> Result<Arc<Node>, HostError> {
        let wipes = wipe::Wipes::new(host.clone(), settings.wipe_rate, settings.wipe_patience);
        let (pools, setting) = (RwLock::new(Vec::new().into()), tokio::sync::Mutex::default());
        let (growths, outcomes) = (Mutex::default(), Outcomes::default());
        let node = Arc::new(Node {
            settings,
            host,
            pools,
            setting,
            wipes,
            formats: super::formats::Formats::default(),
            growths,
            outcomes,
            usages: Mutex::default(),
            refused_disks: RefusedDisks::default(),
        });
        node.unmount_private_mounts().await;
        node.set_pools(plans).await?;
        Ok(node)
    }

    /// Brings the pools in line with these plans.
    ///
    /// A volume group that a plan still names continues as it is, with the operations on it. One
    /// that no plan names is released, which changes nothing on its disks; while it has volumes
    /// they are served all the same, and no new ones are created in it. The same plans again read
    /// the disks again, and change nothing if nothing has changed: this way a disk is used that was
    /// missing, and a volume group is released that has become empty. Concurrent calls run one
    /// after the other.
    ///
    /// # Errors
    /// [`HostError`] if the disks of the host cannot be listed at all; nothing has changed then.
    pub async fn set_pools(&self, plans: Vec<PoolPlan>) -> Result<(), HostError> {
        let _alone = self.setting.lock().await;
        let survey = Survey::of(self, &plans).await?;
        self.refused_disks.forget_changed(self.host.as_ref(), survey.disks()).await;
        // First, so that a pool may take a disk that another has let go.
        self.decommission(&plans, &survey).await;
        let before = self.pools();
        let mut pools = Vec::new();
        for plan in &plans {
            pools.push(self.set_up(plan, &survey).await);
        }
        self.keep_what_holds_volumes(&mut pools, &survey);
        let pools: Arc<[Arc<Pool>]> = pools.into_iter().map(Arc::new).collect();
        let known =
            |group: &VolumeGroup| served(&before).any(|(_, ours)| ours.name() == group.name());
        for (pool, group) in served(&pools).filter(|(_, group)| !known(group)) {
            let error = match caught("groups", self.recover(pool, group)).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error_chain::in_full(&error),
                Err(panicked) => panicked.to_string(),
            };
            tracing::error!(group = group.name(), error, "failed to recover the volume group");
        }
        for pool in pools.iter() {
            let seen = pool.see().await; // What is reported from memory is as new as the plans.
            for (group, seen) in seen.groups.iter().chain(&seen.leaving) {
                let looked = group.look_at_devices(seen, lv_tags::healable(seen));
                let error = match caught("groups", looked).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error_chain::in_full(&error),
                    Err(panicked) => panicked.to_string(),
                };
                tracing::warn!(
                    group = group.name(),
                    error,
                    "failed to check the devices of the \
                                                             volume group"
                );
            }
        }
        self.replace_pools(pools);
        Ok(())
    }

    /// Returns why this node has nothing to serve: no disk of the host carries any of the volume
    /// groups that its pools name. `None` if one is present, or may be: damaged, on a disk that
    /// hangs, or still to be created.
    pub async fn lacks_every_group(&self) -> Option<String> {
        let mut reasons = Vec::new();
        for pool in self.pools().iter() {
            if pool.groups.is_empty() {
                return None;
            }
            for group in &pool.groups {
                match group.read().await {
                    Err(absent @ LvmError::Absent { .. }) => {
                        reasons.push(error_chain::in_full(&absent));
                    }
                    _ => return None,
                }
            }
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// What a growth that was interrupted left mounted for itself.
    async fn unmount_private_mounts(&self) {
        let private = self.settings.private_mounts();
        let Ok(table) = MountTable::read(self.host.as_ref()).await else {
            return;
        };
        for target in table.below(&private) {
            if let Err(error) = self.host.unmount(&target).await {
                tracing::warn!(
                    error = error_chain::in_full(&error),
                    "failed to unmount a private mount of an earlier run"
                );
            }
        }
    }

    /// Removes the directories at which a growth that was interrupted had mounted volumes of a
    /// group.
    async fn remove_private_mount_points(&self, seen: &Group) {
        let private = self.settings.private_mounts();
        if let Ok(None) = self.host.path_kind(&private).await {
            return;
        }
        for (_, record) in lv_tags::volumes(seen) {
            let left = private.join(record.id.key().as_str());
            if let Err(error) = self.host.remove_path(&left).await {
                tracing::warn!(%error, "failed to remove a directory of an earlier run");
            }
        }
    }

    /// Repairs the volume groups on which an LVM command has died: a volume that it left suspended
    /// would block its workload, and the answer that nothing is left to do would be no help.
    pub(super) async fn heal_what_died(&self) {
        for (_, group) in served(&self.pools()) {
            if group.note_cut(false) {
                // To its end, also if the caller leaves: half-way something could stay suspended.
                let _ = tokio::spawn(heal_after_death(group.clone())).await;
            }
        }
    }

    /// Brings the kernel in line with the metadata, and go on with the wipes of new and of deleted volumes.
    async fn recover(&self, pool: &Arc<Pool>, group: &Arc<VolumeGroup>) -> Result<(), LvmError> {
        let turn = group.turn().await?;
        let seen = heal(&turn).await?;
        let ours = |record: &lv_tags::VolumeTags| lv_tags::is_here(&seen, record, &self.settings);
        for (_, record) in lv_tags::volumes(&seen).filter(|(_, record)| ours(record)) {
            // A growth that was interrupted starts again when it is asked for again.
            let more = lv_tags::more_name(record.id.key());
            if seen.lvs.contains_key(&more) {
                turn.remove(&more).await?;
            }
        }
        drop(turn);
        self.remove_private_mount_points(&seen).await;
        for (lv, record) in lv_tags::volumes(&seen).filter(|(_, record)| ours(record)) {
            let (pool, group, seen) = (pool.clone(), group.clone(), seen.clone());
            let found = FoundVolume { pool, group, seen, lv: lv.clone(), record };
            match found.record.life {
                StoredState::New => self.start_first_wipe(&found),
                StoredState::Shown => {}
                StoredState::Deleting => match self.last_wipe(&found).await {
                    Ok(task) => self.wipes.start(task),
                    Err(error) => {
                        let error = error_chain::in_full(&error);
                        tracing::warn!(lv = found.lv.name, error, "wipe deferred");
                    }
                },
            }
        }
        Ok(())
    }
}

async fn heal_after_death(group: Arc<VolumeGroup>) {
    let healed = async { heal(&group.turn().await?).await };
    if let Err(error) = healed.await {
        group.note_cut(true);
        let error = error_chain::in_full(&error);
        tracing::error!(group = group.name(), error, "failed to recover the volume group");
    }
}

/// Brings all disks of a group to the same state, and the kernel in line with it.
async fn heal(turn: &VgGuard) -> Result<Arc<Group>, LvmError> {
    turn.level().await?;
    let seen = turn.read().await?;
    turn.heal_all(lv_tags::healable(&seen)).await?;
    Ok(seen)
}
