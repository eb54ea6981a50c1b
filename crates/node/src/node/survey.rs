//! A look at the host for plans: which disks are here, and who gets which group and which disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::host::{DeviceNumber, Disk, HostError};
use crate::lvm::{Group, NamedDisks, Scan, SearchedGroups, scan_disks, tags, undo_torn_commits};
use crate::node::disks::{Located, NewDisk, SetupError};
use crate::node::pool_plan::{GroupSource, PoolPlan};
use crate::node::pools::{Pool, served};
use crate::node::{Node, NodeSettings};
use crate::volume::{PoolName, error_chain, few};

/// What is read once for all plans.
pub(super) struct Survey {
    pub scan: Scan,
    disks: Vec<Disk>,
    /// The kernel's names of the disks that the plans name.
    links: BTreeMap<PathBuf, PathBuf>,
    /// Who names a disk, by the kernel's name, each time.
    namers: BTreeMap<PathBuf, Vec<PoolName>>,
    /// Which pool gets which group.
    owners: BTreeMap<String, PoolName>,
}

impl Survey {
    /// Reads the host for these plans.
    pub async fn of(node: &Node, plans: &[PoolPlan]) -> Result<Survey, HostError> {
        let mut survey = Survey {
            scan: Scan::default(),
            disks: node.host.disks().await?,
            links: BTreeMap::new(),
            namers: BTreeMap::new(),
            owners: BTreeMap::new(),
        };
        for plan in plans {
            for disk in plan.disks() {
                if let Ok(Some(device)) = node.host.real_path(&disk.path).await {
                    survey.namers.entry(device.clone()).or_default().push(plan.name.clone());
                    survey.links.insert(disk.path.clone(), device);
                }
            }
        }
        survey.scan = survey.scan_whole(node, plans).await?;
        survey.choose_owners(node, plans);
        Ok(survey)
    }

    /// Scans, and undo commits that a power cut tore. Those of a group that is in use are not torn but
    /// under way.
    async fn scan_whole(&self, node: &Node, plans: &[PoolPlan]) -> Result<Scan, HostError> {
        let pools = node.pools();
        let in_use = |group: &str| served(&pools).any(|(_, ours)| ours.name() == group);
        let named = |group: &Group, disk: &Path| {
            plans.iter().any(|plan| plan.groups.iter().any(|s| self.is(plan, s, group, disk)))
        };
        let ours = |group: &Group, disk: &Path| !in_use(&group.name) && named(group, disk);
        let sources = || plans.iter().flat_map(|plan| &plan.groups);
        let wanted = |disk: &Path| {
            if sources().any(|source| self.is_made_on(source, disk)) {
                return SearchedGroups::Any;
            }
            let existing = sources().filter_map(|source| match source {
                GroupSource::Existing(name) => Some(name.clone()),
                GroupSource::Create(_) => None,
            });
            SearchedGroups::Named(existing.filter(|name| !in_use(name)).collect())
        };
        let named: NamedDisks = Arc::new(self.links.values().cloned().collect());
        let scan = scan_disks(&node.host, self.disks.clone(), &named).await;
        let dir = &node.settings.state_dir;
        let scan = undo_torn_commits(&node.host, scan, dir, wanted, ours).await?;
        for (disk, error) in &scan.unreadable {
            let error = error_chain::in_full(error);
            tracing::warn!(disk = %disk.display(), error, "failed to read a disk");
        }
        Ok(scan)
    }

    /// Returns whether this is the group that the plan speaks of.
    fn is(&self, plan: &PoolPlan, source: &GroupSource, group: &Group, disk: &Path) -> bool {
        match source {
            GroupSource::Existing(name) => *name == group.name,
            GroupSource::Create(_) => {
                self.is_made_on(source, disk) && was_made_for(&plan.name, group)
            }
        }
    }

    /// Returns whether this source makes its group on the disk.
    fn is_made_on(&self, source: &GroupSource, disk: &Path) -> bool {
        matches!(source, GroupSource::Create(ours) if self.device(ours) == Some(disk))
    }

    /// A group that two pools name stays where it is.
    fn choose_owners(&mut self, node: &Node, plans: &[PoolPlan]) {
        let pools = node.pools();
        let sources = plans.iter().flat_map(|plan| plan.groups.iter().map(move |s| (plan, s)));
        for (plan, source) in sources {
            let Some(group) = self.group_of(node, plan, source) else { continue };
            let has_it = |pool: &Arc<Pool>| pool.name == plan.name && pool.has(&group);
            if pools.iter().any(has_it) {
                self.owners.insert(group, plan.name.clone());
            } else {
                self.owners.entry(group).or_insert_with(|| plan.name.clone());
            }
        }
    }

    /// Returns the volume group that a plan names; `None` if it is still to be created. One that
    /// this node has created keeps its place while its disk is missing.
    pub fn group_of(&self, node: &Node, plan: &PoolPlan, source: &GroupSource) -> Option<String> {
        let disk = match source {
            GroupSource::Existing(name) => return Some(name.clone()),
            GroupSource::Create(disk) => disk,
        };
        let member = self.device(disk).and_then(|device| self.scan.on(device));
        let group = member.and_then(|member| member.group.as_ref());
        if let Some(group) = group.filter(|group| was_made_for(&plan.name, group)) {
            return Some(group.name.clone());
        }
        let name = group_name(&node.settings, &plan.name, &disk.path);
        served(&node.pools()).any(|(_, group)| group.name() == name).then_some(name)
    }

    /// The pool that gets a group; `None` if no plan names it.
    pub fn owner(&self, group: &str) -> Option<&PoolName> {
        self.owners.get(group)
    }

    /// The kernel's name of a disk that is here.
    pub fn device(&self, disk: &NewDisk) -> Option<&Path> {
        self.links.get(&disk.path).map(PathBuf::as_path)
    }

    /// Returns the disks of the host.
    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }

    /// Returns a disk as the kernel describes it.
    pub fn disk(&self, device: &Path) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.path == device)
    }

    /// Returns whether all these disks are present and unchanged.
    pub fn has_all(&self, disks: &[(PathBuf, DeviceNumber)]) -> bool {
        let is_here = |path: &Path, number| {
            self.disks.iter().any(|disk| disk.path == path && disk.number == number)
        };
        disks.iter().all(|(path, number)| is_here(path, *number))
    }

    /// # Errors
    /// [`SetupError::NamedTwice`]: one pool would take what another has just made.
    pub fn refuse_if_named_twice(&self, disk: &Located<'_>) -> Result<(), SetupError> {
        let mut pools = self.namers.get(&disk.device).cloned().unwrap_or_default();
        if pools.len() < 2 {
            return Ok(());
        }
        pools.dedup();
        Err(SetupError::NamedTwice { disk: disk.disk.path.clone(), pools: few(pools) })
    }
}

/// Returns whether this driver has made the group for the pool.
fn was_made_for(pool: &PoolName, group: &Group) -> bool {
    tags::value(&group.tags, "pool").as_deref() == Some(pool.as_str())
}

/// `pliant-<pool>-<6 letters of a digest>`: the same for the same node, pool and disk.
pub(super) fn group_name(settings: &NodeSettings, pool: &PoolName, disk: &Path) -> String {
    let seed = format!("{}|{pool}|{}", settings.name, disk.display());
    let hash = Sha256::digest(seed.as_bytes());
    format!("pliant-{pool}-{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2])
}
