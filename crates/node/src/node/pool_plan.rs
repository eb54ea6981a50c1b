//! Plans: what pools are to be made of.

use crate::node::disks::NewDisk;
use crate::volume::PoolName;
use crate::volume::Terms;

/// The desired state of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlan {
    /// Name of the pool.
    pub name: PoolName,
    /// Sources of its volume groups.
    pub groups: Vec<GroupSource>,
    /// Disks that join a group when one is needed.
    pub standby_disks: Vec<NewDisk>,
    /// True if disks may be initialised. If not, they are only inspected, and no standby disk
    /// joins.
    pub create: bool,
    /// What new volumes leave free in each volume group, and how it holds thin volumes.
    pub terms: Terms,
}

/// Source of a volume group of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupSource {
    /// An existing volume group.
    Existing(String),
    /// A volume group that is created on this disk, once.
    Create(NewDisk),
}

impl PoolPlan {
    /// Plans a pool of these groups, with no standby disks, nothing reserved and no thin volumes; disks may be
    /// initialised.
    pub fn new(name: PoolName, groups: Vec<GroupSource>) -> Self {
        PoolPlan { name, groups, standby_disks: Vec::new(), create: true, terms: Terms::default() }
    }

    pub(super) fn disks(&self) -> impl Iterator<Item = &NewDisk> {
        let created = self.groups.iter().filter_map(|source| match source {
            GroupSource::Create(disk) => Some(disk),
            GroupSource::Existing(_) => None,
        });
        created.chain(&self.standby_disks)
    }
}
