//! Pools: named sets of volume groups, with room to count, a place to choose and disks to add.

use std::path::Path;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::causes;
use crate::lvm::{BEFORE_EXTENTS, Group, LvmError, Scan, Turn, VolumeGroup, layout, scan};
use crate::node::Node;
use crate::node::disks::NewDisk;
use crate::node::error::failed;
use crate::node::{find, record};
use crate::volume::{
    Ailment, Capacity, CapacityQuery, Class, Layout, Mode, PoolName, Severity, VolumeError,
};

/// A named set of volume groups.
#[derive(Debug)]
pub struct Pool {
    /// Its name.
    pub name: PoolName,
    /// Its groups; one a disk is recommended, so that a lost disk freezes nothing else.
    pub groups: Vec<Arc<VolumeGroup>>,
    /// Blank disks that join a group when one is needed.
    pub spares: Vec<NewDisk>,
    /// Why a group of it could not be set up; it may hide volumes.
    pub trouble: Option<String>,
}

/// A pool as its disks have it now.
pub(super) struct Seen<'a> {
    pub pool: &'a Pool,
    /// The groups that can be read.
    pub groups: Vec<(Arc<VolumeGroup>, Arc<Group>)>,
    /// Why others cannot.
    pub failures: Vec<LvmError>,
}

impl Pool {
    pub(super) async fn see(&self) -> Seen<'_> {
        let mut seen = Seen { pool: self, groups: Vec::new(), failures: Vec::new() };
        for group in &self.groups {
            match group.read().await {
                Ok(read) => seen.groups.push((group.clone(), read)),
                Err(error) => seen.failures.push(error),
            }
        }
        seen
    }

    /// Whether a disk is in one of its groups.
    fn has_disk(&self, scan: &Scan, disk: &Path) -> bool {
        let group = scan.on(disk).and_then(|member| scan.group_of(member));
        group.is_some_and(|group| self.groups.iter().any(|ours| ours.name() == group.name))
    }
}

/// What placement needs to know of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Size of an extent.
    pub extent_size: Bytes,
    /// The most extents that one volume could have.
    pub largest: u64,
}

/// Choose the group for a volume of this size: the one with the most room, the first of equals.
///
/// The most room, because volumes here grow, and a volume cannot leave its group.
pub fn place(candidates: &[Candidate], size: Bytes) -> Option<usize> {
    let fits = |candidate: &Candidate| size.div_ceil(candidate.extent_size) <= candidate.largest;
    let room =
        |candidate: &Candidate| candidate.largest.saturating_mul(candidate.extent_size.get());
    let fitting = candidates.iter().enumerate().filter(|(_, candidate)| fits(candidate));
    // The last of equals wins `max_by_key`, so look from the end.
    fitting.rev().max_by_key(|(_, candidate)| room(candidate)).map(|(index, _)| index)
}

impl Seen<'_> {
    pub fn candidates(&self, layout: Layout) -> Vec<Candidate> {
        self.groups
            .iter()
            .map(|(_, group)| Candidate {
                extent_size: group.extent_size,
                largest: layout::largest_new(group, layout),
            })
            .collect()
    }

    /// Whether a volume could be made in one of its groups, if there is room.
    pub fn changeable(&self) -> bool {
        self.groups.iter().any(|(_, group)| group.changeable())
    }

    /// Free extents of the groups that can be changed.
    pub fn free(&self) -> Bytes {
        let changeable = self.groups.iter().filter(|(_, group)| group.changeable());
        changeable.map(|(_, group)| group.size_of(group.free_extents())).sum()
    }

    pub fn largest(&self, layout: Layout) -> Bytes {
        let sizes = self.groups.iter().map(|(_, g)| g.size_of(layout::largest_new(g, layout)));
        sizes.max().unwrap_or(Bytes::ZERO)
    }

    /// Why the pool is not whole, for people; `None` if it is.
    pub fn trouble(&self) -> Option<String> {
        let frozen = self.groups.iter().filter_map(|(handle, group)| {
            Some(format!("volume group {}: {}", handle.name(), group.frozen()?))
        });
        let failures = self.failures.iter().map(|error| causes::in_full(error));
        let own = self.pool.trouble.iter().cloned();
        listed(own.chain(failures).chain(frozen))
    }

    /// What besides free extents keeps a new volume from being made; `None` if nothing does.
    pub fn hindrance(&self) -> Option<String> {
        let full =
            self.groups.iter().filter(|(_, group)| group.metadata_full).map(|(handle, _)| {
                format!(
                    "the metadata area of volume group {} is full and can not be enlarged: delete \
                 volumes, or add a group that is made with a larger --metadatasize",
                    handle.name()
                )
            });
        listed(self.trouble().into_iter().chain(full))
    }

    /// Whether nothing of the pool can be reached.
    pub fn unreachable(&self) -> bool {
        self.groups.is_empty()
    }

    /// What is wrong with the pool, a volume that no list can name among it.
    pub fn ailments(&self) -> impl Iterator<Item = Ailment> {
        let severity = if self.unreachable() { Severity::Inaccessible } else { Severity::Degraded };
        let not_whole =
            self.trouble().map(|message| Ailment { severity, reason: "PoolNotWhole", message });
        let unreadable = self.groups.iter().flat_map(|(handle, group)| {
            record::unreadable(group).map(|lv| Ailment {
                severity: Severity::Degraded,
                reason: "VolumeUnreadable",
                message: find::says_nothing(handle.name(), lv),
            })
        });
        not_whole.into_iter().chain(unreadable)
    }
}

impl Node {
    /// The pool that a class asks for: the one it names, the only one, or the one named `default`.
    pub(super) fn pool_of(&self, class: &Class) -> Result<&Arc<Pool>, VolumeError> {
        let known = || self.pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = match (&class.pool, &self.pools[..]) {
            (Some(name), pools) => pools.iter().find(|pool| pool.name == *name),
            (None, [only]) => Some(only),
            (None, pools) => pools.iter().find(|pool| pool.name.as_str() == "default"),
        };
        found.ok_or_else(|| VolumeError::Invalid {
            field: "class parameter pool".to_owned(),
            reason: match &class.pool {
                Some(name) => format!("this node has no pool {name}; it has: {}", known()),
                None => format!("name one of this node's pools: {}", known()),
            },
        })
    }

    /// What could be made; spare disks count with what they would bring.
    pub(super) async fn capacity_of(&self, query: &CapacityQuery) -> Result<Capacity, VolumeError> {
        if query.node.as_ref().is_some_and(|node| *node != self.settings.name) {
            return Ok(Capacity::default());
        }
        // A pool that this node does not have is no error of the asker: it has no room.
        let Ok(pool) = self.pool_of(&query.class) else {
            return Ok(Capacity::default());
        };
        let seen = pool.see().await;
        let spares = self.spare_room(&seen).await;
        let needed = match query.mode {
            Some(Mode::Filesystem(kind)) => kind.smallest(),
            Some(Mode::Block) | None => Bytes::new(1),
        };
        let extent = seen.groups.iter().map(|(_, group)| group.extent_size).min();
        let whole = |extent: Bytes| Bytes::new(needed.div_ceil(extent) * extent.get());
        let smallest = extent.map_or(Bytes::ZERO, whole);
        let largest = seen.largest(query.class.layout) + spares;
        Ok(Capacity {
            free: seen.free() + spares,
            largest: if largest < smallest { Bytes::ZERO } else { largest },
            smallest,
        })
    }

    /// What the spare disks that could join the pool's roomiest group would add to it.
    async fn spare_room(&self, seen: &Seen<'_>) -> Bytes {
        let mut room = Bytes::ZERO;
        let Some((_, group)) = roomiest(seen) else {
            return room;
        };
        if seen.pool.spares.is_empty() {
            return room;
        }
        let Ok(scan) = scan(&self.host).await else { return room };
        for spare in &seen.pool.spares {
            if let Ok(None) = spare.obstacle(self.host.as_ref(), &scan).await
                && let Ok(size) = self.host.device_size(&spare.path).await
            {
                let usable = size.saturating_sub(BEFORE_EXTENTS).get() / group.extent_size.get();
                room = room + group.size_of(usable);
            }
        }
        room
    }

    /// Let spare disks join `turn`'s group until `extents` are free in it or no spare is left; says
    /// why some could not.
    ///
    /// A crash in between leaves a blank disk, a label without a group, or the larger group; each is
    /// taken up again by the next call.
    pub(super) async fn add_spares(
        &self,
        pool: &Pool,
        turn: &Turn,
        layout: Layout,
        extents: u64,
    ) -> Result<Vec<String>, VolumeError> {
        let mut not_taken = Vec::new();
        for spare in &pool.spares {
            let group = turn.read().await?;
            if layout::largest(&group, layout) >= extents || !group.changeable() {
                break;
            }
            let scan = scan(&self.host).await.map_err(failed("the disks can not be listed"))?;
            if pool.has_disk(&scan, &spare.path) {
                continue; // It has joined before.
            }
            if let Err(error) = spare.make_free(self.host.as_ref(), &scan).await {
                let (disk, why) = (spare.path.display(), causes::in_full(&error));
                not_taken.push(format!("the spare disk {disk} was not taken: {why}"));
                continue;
            }
            turn.extend_group(&spare.path).await?;
            turn.group().flush().await?;
            tracing::info!(
                pool = %pool.name,
                group = turn.group().name(),
                disk = %spare.path.display(),
                "a spare disk joined the group, because it was needed"
            );
        }
        Ok(not_taken)
    }
}

/// Reasons in one line; `None` if there are none.
pub(super) fn listed(reasons: impl IntoIterator<Item = String>) -> Option<String> {
    let all: Vec<String> = reasons.into_iter().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The group that a new disk helps most: the one with the most room already.
pub(super) fn roomiest<'a>(seen: &'a Seen<'_>) -> Option<&'a (Arc<VolumeGroup>, Arc<Group>)> {
    let open = seen.groups.iter().filter(|(_, g)| g.changeable() && !g.metadata_full);
    open.rev().max_by_key(|(_, group)| group.free_extents() * group.extent_size.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(extent_mib: u64, largest: u64) -> Candidate {
        Candidate { extent_size: Bytes::mib(extent_mib), largest }
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
