//! Free space: how much a pool still has for new volumes, and which of its volume groups the next
//! one uses.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::lvm::{Group, VolumeGroup, layout, thin};
use crate::node::Node;
use crate::node::pools::{ObservedPool, roomiest};
use crate::node::standby::standby_room;
use crate::node::thin_figures::{steady_usage, thin_hindrance};
use crate::volume::{Capacity, CapacityQuery, Layout, Mode, VolumeError};

/// The facts about a volume group that placement needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCandidate {
    /// Size of an extent.
    pub extent_size: Bytes,
    /// The most extents that one volume could have.
    pub largest: u64,
}

/// Selects the volume group for a volume of this size: the one with the most free space, the first
/// of equals.
///
/// The most free space, because volumes here grow, and a volume cannot leave its volume group.
pub fn place(candidates: &[GroupCandidate], size: Bytes) -> Option<usize> {
    let fits =
        |candidate: &GroupCandidate| size.div_ceil(candidate.extent_size) <= candidate.largest;
    let room =
        |candidate: &GroupCandidate| candidate.largest.saturating_mul(candidate.extent_size.get());
    let fitting = candidates.iter().enumerate().filter(|(_, candidate)| fits(candidate));
    // The last of equals wins `max_by_key`, so look from the end.
    fitting.rev().max_by_key(|(_, candidate)| room(candidate)).map(|(index, _)| index)
}

impl ObservedPool<'_> {
    pub fn candidates(&self, layout: Layout) -> Vec<GroupCandidate> {
        let candidate = |(handle, group): &(Arc<VolumeGroup>, Arc<Group>)| {
            let usage = steady_usage(handle);
            GroupCandidate {
                extent_size: group.extent_size,
                largest: layout::largest_new(group, layout, &self.pool.terms, usage.as_ref()),
            }
        };
        self.groups.iter().map(candidate).collect()
    }

    /// Returns the space for new volumes in the volume groups that can be changed, and on standby
    /// disks that would join the one with the most free space.
    pub fn free(&self, standby: Bytes) -> Bytes {
        let changeable = self.groups.iter().filter(|(_, group)| group.changeable());
        let free = |(_, group): &(_, Arc<Group>)| {
            let owed = thin::owed(group, self.pool.terms.thin.as_ref());
            (group.size_of(group.free_extents()) + self.joining(group, standby))
                .saturating_sub(group.size_of(owed) + whole(self.pool.terms.reserve, group))
        };
        changeable.map(free).sum()
    }

    /// The largest volume that could be made, if these standby disks joined the largest group.
    pub fn largest(&self, layout: Layout, standby: Bytes) -> Bytes {
        let terms = &self.pool.terms;
        let largest = |(handle, group): &(Arc<VolumeGroup>, Arc<Group>)| match layout {
            Layout::Linear => {
                let most = layout::largest_new(group, layout, &terms.of_growth(), None);
                (group.size_of(most) + self.joining(group, standby))
                    .saturating_sub(whole(terms.reserve, group))
            }
            // What a thin pool may use of a disk is known when it has joined.
            Layout::Thin => {
                // A thin pool may use a part of what joins, and its metadata may need some.
                let (usage, joins) = (steady_usage(handle), self.joining(group, standby));
                let larger = (joins > Bytes::ZERO).then(|| group.with_disk(joins));
                let group = larger.as_ref().unwrap_or(group);
                group.size_of(layout::largest_new(group, layout, terms, usage.as_ref()))
            }
        };
        self.groups.iter().map(largest).max().unwrap_or_default()
    }

    /// Why the thin pools take no larger volume, in figures: a sentence for each group.
    pub fn thin_hindrance(&self) -> impl Iterator<Item = String> {
        let terms = &self.pool.terms;
        self.groups.iter().filter_map(|(handle, group)| thin_hindrance(terms, handle, group))
    }

    /// What standby disks add to a group.
    fn joining(&self, group: &Arc<Group>, standby: Bytes) -> Bytes {
        let joins = roomiest(self).is_some_and(|(_, roomiest)| Arc::ptr_eq(roomiest, group));
        if joins { standby } else { Bytes::ZERO }
    }
}

/// Returns the available capacity; standby disks count with what they would add.
pub(super) async fn capacity_of(
    node: &Node,
    query: &CapacityQuery,
) -> Result<Capacity, VolumeError> {
    if query.node.as_ref().is_some_and(|asked| *asked != node.settings.name) {
        return Ok(Capacity::default());
    }
    // A pool that this node does not have is no error of the asker: it has not enough space.
    let Ok(pool) = node.pool_of(&query.class) else {
        return Ok(Capacity::default());
    };
    let seen = pool.see().await;
    let standby = standby_room(node, &seen).await;
    let needed = match query.mode {
        Some(Mode::Filesystem(kind)) => kind.smallest(),
        Some(Mode::Block) | None => Bytes::new(1),
    };
    let extent = seen.groups.iter().map(|(_, group)| group.extent_size).min();
    let whole = |extent: Bytes| Bytes::new(needed.div_ceil(extent) * extent.get());
    let smallest = extent.map_or(Bytes::ZERO, whole);
    let largest = seen.largest(query.class.layout, standby);
    Ok(Capacity {
        free: seen.free(standby),
        largest: if largest < smallest { Bytes::ZERO } else { largest },
        smallest,
    })
}

/// A reserve in whole extents of a group.
fn whole(reserve: Bytes, group: &Group) -> Bytes {
    group.size_of(reserve.div_ceil(group.extent_size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(extent_mib: u64, largest: u64) -> GroupCandidate {
        GroupCandidate { extent_size: Bytes::mib(extent_mib), largest }
    }

    #[test]
    fn the_roomiest_group_that_fits_is_chosen() {
        let table = [
            (vec![], 1, None),
            (vec![candidate(4, 10)], 40, Some(0)),
            (vec![candidate(4, 10)], 41, None),
            (vec![candidate(4, 10), candidate(4, 20), candidate(4, 20)], 8, Some(1)),
            (vec![candidate(4, 10), candidate(64, 1)], 60, Some(1)),
            (vec![candidate(4, 0), candidate(4, 1)], 4, Some(1)),
        ];
        for (candidates, mib, chosen) in table {
            assert_eq!(place(&candidates, Bytes::mib(mib)), chosen, "{candidates:?} {mib}");
        }
    }
}
