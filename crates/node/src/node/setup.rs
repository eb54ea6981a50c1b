//! Sets the node up, at its start and when its plans change: recovers from a crash, resumes wipes.

use std::sync::{Arc, Mutex, OnceLock, RwLock};

use tokio::sync::watch;

use crate::host::{Host, HostError};
use crate::lvm::{LvmError, VolumeGroup};
use crate::mount::MountTable;
use crate::node::copies::Copies;
use crate::node::decommission::{decommission, keep_what_holds_volumes};
use crate::node::lv_tags::{self};
use crate::node::outcomes::Outcomes;
use crate::node::pool_plan::PoolPlan;
use crate::node::pool_setup::set_up;
use crate::node::pools::{Pool, served};
use crate::node::recover::recover;
use crate::node::refused_disks::RefusedDisks;
use crate::node::restore::resume_copies;
use crate::node::sends::Sends;
use crate::node::survey::Survey;
use crate::node::thin_growth::keep_thin_pools;
use crate::node::trimming::Trimming;
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
        let copies = Copies::new(host.clone(), settings.copy_rate, settings.wipe_patience);
        let (pools, setting) = (RwLock::new(Vec::new().into()), tokio::sync::Mutex::default());
        let (growths, outcomes) = (Mutex::default(), Outcomes::default());
        let node = Arc::new(Node {
            settings,
            host,
            pools,
            setting,
            wipes,
            copies,
            sends: Sends::default(),
            peers: OnceLock::new(),
            formats: super::formats::Formats::default(),
            growths,
            outcomes,
            usages: Mutex::default(),
            trimming: Trimming::default(),
            refused_disks: RefusedDisks::default(),
            thin_news: watch::Sender::new(()),
        });
        unmount_private_mounts(&node).await;
        node.set_pools(plans).await?;
        tokio::spawn(keep_thin_pools(Arc::downgrade(&node), node.thin_news.subscribe()));
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
        decommission(self, &plans, &survey).await;
        let before = self.pools();
        let mut pools = Vec::new();
        for plan in &plans {
            pools.push(set_up(self, plan, &survey).await);
        }
        keep_what_holds_volumes(self, &mut pools, &survey);
        let pools: Arc<[Arc<Pool>]> = pools.into_iter().map(Arc::new).collect();
        let known =
            |group: &VolumeGroup| served(&before).any(|(_, ours)| ours.name() == group.name());
        for (pool, group) in served(&pools).filter(|(_, group)| !known(group)) {
            let error = match caught("groups", recover(self, pool, group)).await {
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
        resume_copies(self).await;
        self.thin_news.send_replace(());
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
}

/// What a growth that was interrupted left mounted for itself.
async fn unmount_private_mounts(node: &Node) {
    let private = node.settings.private_mounts();
    let Ok(table) = MountTable::read(node.host.as_ref()).await else {
        return;
    };
    for target in table.below(&private) {
        if let Err(error) = node.host.unmount(&target).await {
            tracing::warn!(
                error = error_chain::in_full(&error),
                "failed to unmount a private mount of an earlier run"
            );
        }
    }
}
