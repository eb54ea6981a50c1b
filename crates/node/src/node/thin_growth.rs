//! Keeps thin pools large enough: expands each when the kernel says that it is at its mark.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::lvm::{THIN_POOL, ThinUsage, VolumeGroup, read_thin_usage, thin_commands, thin_usage};
use crate::node::Node;
use crate::node::error::failed;
use crate::node::pools::served;
use crate::node::thin_pool::complete_thin_pool;
use crate::panics::caught;
use crate::volume::{ThinSettings, VolumeError, error_chain};

/// After an expansion that failed, the next is tried so much later.
const AFTER_A_FAILURE: Duration = Duration::from_secs(10);

/// Keeps the thin pools of all groups of a node large enough, until the node is dropped: `news` tells of groups and of
/// thin pools that have come.
pub(super) async fn keep_thin_pools(node: Weak<Node>, mut news: watch::Receiver<()>) {
    let mut kept = BTreeSet::new();
    let mut tasks = JoinSet::new();
    loop {
        news.mark_unchanged();
        {
            let Some(node) = node.upgrade() else { return };
            for (_, group) in served(&node.pools()) {
                if kept.insert(group.name().to_owned()) {
                    tasks.spawn(keep_thin_pool(Arc::downgrade(&node), group.clone(), news.clone()));
                }
            }
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return },
            Some(ended) = tasks.join_next() => if let Ok(group) = ended {
                kept.remove(&group);
            },
        }
    }
}

/// Keeps the thin pool of a group large enough, until the group is no more served; returns its name.
async fn keep_thin_pool(
    node: Weak<Node>,
    group: Arc<VolumeGroup>,
    mut news: watch::Receiver<()>,
) -> String {
    loop {
        news.mark_unchanged();
        let (looked, host) = {
            let Some(node) = node.upgrade() else { break };
            let pools = node.pools();
            let Some((pool, _)) = served(&pools).find(|(_, one)| Arc::ptr_eq(one, &group)) else {
                break;
            };
            let thin = pool.terms.thin.unwrap_or_default();
            (caught("thin pools", grow_if_needed(&node, &group, &thin)).await, node.host.clone())
        };
        let looked = looked.map_err(|panicked| panicked.to_string());
        match looked.and_then(|done| done.map_err(|error| error_chain::in_full(&error))) {
            Ok(Some((device, events))) => tokio::select! {
                _ = host.dm_event(&device, events) => {}
                changed = news.changed() => if changed.is_err() { break },
            },
            Ok(None) => {
                if news.changed().await.is_err() {
                    break;
                }
            }
            Err(error) => {
                tracing::error!(group = group.name(), error, "failed to expand the thin pool");
                let _ = tokio::time::timeout(AFTER_A_FAILURE, news.changed()).await;
            }
        }
    }
    group.name().to_owned()
}

/// Expands the thin pool while it is at its mark; returns its device and the events that it had sent by then, or `None`
/// if there is no pool.
async fn grow_if_needed(
    node: &Node,
    group: &Arc<VolumeGroup>,
    thin: &ThinSettings,
) -> Result<Option<(String, u32)>, VolumeError> {
    // The trouble of a group without one is reported by who serves it.
    if group.remembered().is_none_or(|known| known.thin_pool().is_none()) {
        return Ok(None);
    }
    let mut is_renewed = false;
    loop {
        let read = group.read().await?;
        let Some(pool) = read.thin_pool() else { return Ok(None) };
        let device = pool.device();
        let mut found = read_thin_usage(group).await?;
        if found.is_none() {
            // LVM has an unused pool inactive for a moment while it makes the first volume.
            complete_thin_pool(&group.turn().await?, thin).await?;
            found = read_thin_usage(group).await?;
        }
        let (usage, events) = found.ok_or_else(|| VolumeError::Unavailable {
            reason: format!(
                "device-mapper does not report how full thin pool {}/{THIN_POOL} is; see `dmsetup status`",
                group.name()
            ),
        })?;
        let fails = pool.fails_when_full(thin);
        let growth = pool.growth(&usage, thin);
        let is_as_it_should_be = pool.lv.flags.contains("ERROR_WHEN_FULL") == fails;
        // Once at most: an LVM that sets another mark than it is told to is not asked for ever.
        let is_armed = is_renewed || is_armed_at(node, &device, &usage, thin.grow_at).await?;
        if growth == <_>::default() && is_as_it_should_be && is_armed {
            return Ok(Some((device, events)));
        }
        let turn = group.turn().await?;
        node.host.set_thin_mark(group.name(), thin.grow_at);
        let seen = turn.read().await?;
        if seen.seqno != read.seqno {
            continue; // Something else was done meanwhile.
        }
        if growth != <_>::default() {
            tracing::info!(group = group.name(), ?usage, ?growth, "expanding the thin pool");
            thin_commands::grow_thin_pool(&turn, &growth).await?;
        } else if !is_armed {
            tracing::info!(
                group = group.name(),
                percent = thin.grow_at,
                "renewing the mark of the thin pool"
            );
            is_renewed = true;
            turn.refresh(THIN_POOL).await?;
        }
        thin_commands::set_error_when_full(&turn, fails).await?;
        drop(turn);
        group.flush().await?;
    }
}

/// Returns whether the live thin pool sends its event when so many percent of its data are in use.
async fn is_armed_at(
    node: &Node,
    device: &str,
    usage: &ThinUsage,
    percent: u32,
) -> Result<bool, VolumeError> {
    let found = node.host.dm_table(device).await.map_err(failed("device-mapper"))?;
    let table = found.and_then(|(_, targets)| Some(targets.first()?.params.clone()));
    Ok(table.is_some_and(|table| thin_usage::is_armed_at(&table, usage.data.1, percent)))
}
