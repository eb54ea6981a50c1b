//! Volume groups that no plan names any more: released if they are empty, retained while they have
//! volumes. Otherwise a volume would be taken for deleted.

use std::sync::Arc;

use crate::lvm::{VgGuard, VolumeGroup, tags};
use crate::node::pool_plan::PoolPlan;
use crate::node::pools::{Pool, served};
use crate::node::survey::Survey;
use crate::node::{Node, lv_tags};
use crate::volume::PoolName;

/// Releases the groups that no plan names and that hold no volume; takes no new volumes into the
/// others.
pub(super) async fn decommission(node: &Node, plans: &[PoolPlan], survey: &Survey) {
    let before = node.pools();
    // Kept until the pools are replaced: meanwhile no one makes a volume in them.
    let mut turns = Vec::new();
    for (_, group) in served(&before).filter(|(_, g)| survey.owner(g.name()).is_none()) {
        turns.extend(turn_of_empty(group, survey).await);
    }
    let gone =
        |group: &VolumeGroup| turns.iter().any(|t: &VgGuard| t.group().name() == group.name());
    let mut pools = Vec::new();
    for pool in before.iter() {
        let mut pool = Pool::clone(pool);
        let (named, unnamed) =
            pool.groups.into_iter().partition(|group| survey.owner(group.name()).is_some());
        pool.groups = named;
        pool.leaving.extend::<Vec<_>>(unnamed);
        pool.leaving.retain(|group| !gone(group));
        if !plans.iter().any(|plan| plan.name == pool.name) {
            pool = Pool { groups: pool.groups, leaving: pool.leaving, ..Pool::new(pool.name) };
        }
        pools.push(Arc::new(pool));
    }
    for turn in &turns {
        tracing::info!(
            group = turn.group().name(),
            "released an empty volume group that no \
                                                         pool names"
        );
    }
    node.replace_pools(pools.into());
}

/// The turn of a group that holds no volume, durably; `None` if it holds one or may.
async fn turn_of_empty(group: &Arc<VolumeGroup>, survey: &Survey) -> Option<VgGuard> {
    if may_hold_volumes(group, survey).await {
        return None; // Without waiting for the work on it.
    }
    let turn = group.turn().await.ok()?;
    if may_hold_volumes(group, survey).await {
        return None;
    }
    if turn.read().await.is_ok() {
        group.flush().await.ok()?;
    }
    Some(turn)
}

/// Retains every previous volume group that is in none of the new pools, and each on the host's
/// disks with volumes of this node: the one that a plan had named before this start.
pub(super) fn keep_what_holds_volumes(node: &Node, pools: &mut Vec<Pool>, survey: &Survey) {
    for (pool, group) in served(&node.pools()) {
        if !pools.iter().any(|pool| pool.has(group.name())) {
            keep(pools, &pool.name, group.clone());
        }
    }
    for (name, group) in strays(node, pools, survey) {
        tracing::warn!(group = group.name(), pool = %name, "no pool names a volume group with \
                                                                volumes");
        keep(pools, &name, group);
    }
}

/// The groups with volumes of this node that are in no pool, each with the name of its pool. One
/// with a volume that a pool has is a copy, and not ours to use.
fn strays(node: &Node, pools: &[Pool], survey: &Survey) -> Vec<(PoolName, Arc<VolumeGroup>)> {
    let known: Vec<_> = pools.iter().flat_map(Pool::all_groups).cloned().collect();
    let is_copy = |lv: &str| {
        let has =
            |group: &Arc<VolumeGroup>| group.remembered()?.lvs.get(lv).map(lv_tags::is_marked);
        known.iter().any(|group| has(group) == Some(true))
    };
    let mut strays = Vec::<(PoolName, Arc<VolumeGroup>)>::new();
    // On any other disk a workload may have written it.
    let trusted = survey.scan.members.iter().filter(|member| survey.scan.is_trusted(member));
    for group in trusted.filter_map(|member| member.group.as_ref()) {
        let ours: Vec<_> = lv_tags::volumes(group)
            .filter(|(_, record)| *record.id.node() == node.settings.key)
            .collect();
        let in_a_pool = known.iter().any(|ours| ours.name() == group.name);
        let seen = strays.iter().any(|(_, other)| other.name() == group.name);
        let is_given_away = matches!(
            lv_tags::other_node(group, &node.settings),
            Some(lv_tags::OtherNode::Named(_))
        );
        let is_a_copy = ours.iter().any(|(lv, _)| is_copy(&lv.name));
        if ours.is_empty() || in_a_pool || seen || is_a_copy || is_given_away {
            continue;
        }
        let handle = VolumeGroup::new(node.host.clone(), &group.name);
        let name = tags::value(&group.tags, "pool").unwrap_or_else(|| group.name.clone());
        let name = name.parse().or_else(|_| "unnamed".parse());
        if let (Ok(_), Ok(name)) = (handle.accept(&survey.scan), name) {
            strays.push((name, handle));
        }
    }
    strays
}

/// Returns whether a group holds volumes as it is now, or held some when it was read last, or cannot be told.
async fn may_hold_volumes(group: &Arc<VolumeGroup>, survey: &Survey) -> bool {
    match group.read().await.ok().or_else(|| group.remembered()) {
        Some(seen) => lv_tags::holds_volumes(&seen),
        None => !survey.scan.unreadable.is_empty(),
    }
}

fn keep(pools: &mut Vec<Pool>, name: &PoolName, group: Arc<VolumeGroup>) {
    match pools.iter_mut().find(|pool| pool.name == *name) {
        Some(pool) => pool.leaving.push(group),
        None => pools.push(Pool { leaving: vec![group], ..Pool::new(name.clone()) }),
    }
}
