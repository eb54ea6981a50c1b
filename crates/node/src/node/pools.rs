//! Pools: named sets of volume groups, with what is wrong with them and disks to add.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::host::Disk;
use crate::lvm::{Group, Scan, VolumeGroup, read_thin_usage};
use crate::node::disks::NewDisk;
use crate::node::lv_tags;
use crate::node::storage::DiskUse;
use crate::node::thin_figures::thin_ailment;
use crate::volume::Terms;
use crate::volume::{PoolName, Severity, VolumeCondition, error_chain};

/// A named set of volume groups, as its plan was when it was set up; a new plan makes a new one.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Name of the pool.
    pub name: PoolName,
    /// True if a plan names it.
    pub configured: bool,
    /// Volume groups of the pool. One for each disk is recommended, so that a lost disk affects
    /// nothing else.
    pub groups: Vec<Arc<VolumeGroup>>,
    /// Groups that no plan names any more. Their volumes are served, and no new ones are made.
    pub leaving: Vec<Arc<VolumeGroup>>,
    /// Blank disks that join a group when one is needed.
    pub standby_disks: Vec<NewDisk>,
    /// What new volumes leave free in each volume group, and how it holds thin volumes.
    pub terms: Terms,
    /// Why volume groups of it could not be set up; they may hide volumes.
    pub trouble: Vec<String>,
    /// Actions that would be done if disks could be initialised, in order.
    pub plan: Vec<String>,
    /// What was rejected, and the commands to run.
    pub refused: Vec<String>,
    /// The disks that its plan names.
    pub disks: Vec<PlannedDisk>,
}

/// A disk that a plan names, as it was when the plan was looked at last.
#[derive(Debug, Clone)]
pub(super) struct PlannedDisk {
    /// Path as the administrator named it.
    pub path: PathBuf,
    /// The kernel's name, where the disk is here.
    pub device: Option<PathBuf>,
    /// The disk as the kernel describes it, if it is present.
    pub disk: Option<Disk>,
    /// The pool's group that it is in.
    pub group: Option<String>,
    /// State of the disk in the pool.
    pub state: DiskUse,
    /// Why it is rejected or missing, and what is wiped when it is used.
    pub message: Option<String>,
}

/// A pool as its disks have it now.
pub(super) struct ObservedPool<'a> {
    pub pool: &'a Pool,
    /// The groups for new volumes that can be read.
    pub groups: Vec<(Arc<VolumeGroup>, Arc<Group>)>,
    /// Those that no plan names any more.
    pub leaving: Vec<(Arc<VolumeGroup>, Arc<Group>)>,
    /// Why others cannot be read.
    pub failures: Vec<String>,
}

impl Pool {
    /// A pool that no plan names and that has nothing.
    pub(super) fn new(name: PoolName) -> Pool {
        Pool {
            name,
            configured: false,
            groups: Vec::new(),
            leaving: Vec::new(),
            standby_disks: Vec::new(),
            terms: Terms::default(),
            trouble: Vec::new(),
            plan: Vec::new(),
            refused: Vec::new(),
            disks: Vec::new(),
        }
    }

    pub(super) async fn see(&self) -> ObservedPool<'_> {
        let mut seen = ObservedPool::nothing(self);
        for group in self.all_groups() {
            let read = group.read().await.map_err(|error| error_chain::in_full(&error));
            // How full a thin pool is, is no part of the metadata.
            let _ = read_thin_usage(group).await;
            seen.add(group, read);
        }
        seen
    }

    /// Like [`Pool::see`], from the last readings.
    pub(super) fn recall(&self) -> ObservedPool<'_> {
        let mut seen = ObservedPool::nothing(self);
        for group in self.all_groups() {
            let unread = || format!("volume group {} was never read", group.name());
            let read = match group.hung().or_else(|| group.trouble()) {
                Some(trouble) => Err(trouble),
                None => group.remembered().ok_or_else(unread),
            };
            seen.add(group, read);
        }
        seen
    }

    pub(super) fn all_groups(&self) -> impl Iterator<Item = &Arc<VolumeGroup>> {
        self.groups.iter().chain(&self.leaving)
    }

    /// Returns whether it has the volume group of this name.
    pub(super) fn has(&self, group: &str) -> bool {
        self.all_groups().any(|ours| ours.name() == group)
    }

    /// Returns whether a group for new volumes was ever read.
    fn has_volume_group(&self) -> bool {
        self.groups.iter().any(|group| group.remembered().is_some())
    }

    /// Returns whether new volumes are created in this volume group, and standby disks join it.
    pub(super) fn takes_into(&self, group: &Arc<VolumeGroup>) -> bool {
        self.configured && self.groups.iter().any(|ours| Arc::ptr_eq(ours, group))
    }

    /// The group of it that a disk is in.
    pub(super) fn group_on(&self, scan: &Scan, disk: &Path) -> Option<&Arc<VolumeGroup>> {
        let group = scan.on(disk).and_then(|member| scan.group_of(member))?;
        self.all_groups().find(|ours| ours.name() == group.name)
    }
}

impl<'a> ObservedPool<'a> {
    fn nothing(pool: &'a Pool) -> Self {
        ObservedPool { pool, groups: Vec::new(), leaving: Vec::new(), failures: Vec::new() }
    }

    fn add(&mut self, group: &Arc<VolumeGroup>, read: Result<Arc<Group>, String>) {
        let leaves = self.pool.leaving.iter().any(|ours| Arc::ptr_eq(ours, group));
        match read {
            Ok(read) if leaves => self.leaving.push((group.clone(), read)),
            Ok(read) => self.groups.push((group.clone(), read)),
            Err(error) => self.failures.push(error),
        }
    }
}

impl ObservedPool<'_> {
    /// Returns whether a volume could be created in one of its volume groups, given enough space.
    pub fn changeable(&self) -> bool {
        self.groups.iter().any(|(_, group)| group.changeable())
    }

    /// Returns why the pool is not complete, for people; `None` if it is.
    pub fn trouble(&self) -> Option<String> {
        let own = self.pool.trouble.iter().cloned();
        listed(own.chain(self.failures.iter().cloned()).chain(self.frozen()))
    }

    /// Why volume groups cannot be changed.
    fn frozen(&self) -> impl Iterator<Item = String> {
        let all = self.groups.iter().chain(&self.leaving);
        all.filter_map(|(handle, group)| {
            Some(format!("volume group {}: {}", handle.name(), group.frozen()?))
        })
    }

    /// Returns what prevents a new volume besides a lack of free extents; `None` if nothing does.
    pub fn hindrance(&self) -> Option<String> {
        let full = self.groups.iter().filter_map(|(_, group)| group.hindrance());
        let reserve = self.pool.terms.reserve;
        let reserved = (reserve > Bytes::ZERO && !self.groups.is_empty()).then(|| {
            format!(
                "{reserve} of each volume group are reserved for expansions and \
                              snapshots"
            )
        });
        listed(self.trouble().into_iter().chain(full).chain(reserved))
    }

    /// Returns whether nothing of the pool can be reached.
    pub fn unreachable(&self) -> bool {
        self.groups.is_empty() && self.leaving.is_empty()
    }

    /// Returns the unhealthy conditions of the pool, including those of a volume that no list can
    /// name.
    pub fn ailments(&self) -> impl Iterator<Item = VolumeCondition> {
        let severity = if self.unreachable() { Severity::Inaccessible } else { Severity::Degraded };
        let not_whole = listed(self.pool.trouble.iter().cloned());
        let not_whole = not_whole.map(|message| (severity, "PoolIncomplete", message));
        let failed = listed(self.failures.iter().cloned());
        let failed = failed.map(|message| (severity, "VolumeGroupUnavailable", message));
        let frozen = listed(self.frozen());
        let frozen = frozen.map(|message| (severity, "VolumeGroupNotChangeable", message));
        let troubles = [not_whole, failed, frozen].into_iter().flatten();
        let troubles = troubles.map(|(severity, reason, message)| VolumeCondition {
            severity,
            reason,
            message,
        });
        let not_configured = self.leaving.iter().filter_map(|(_, group)| {
            let (severity, reason) = (Severity::Degraded, "PoolNotConfigured");
            Some(VolumeCondition { severity, reason, message: not_configured(group)? })
        });
        let all = self.groups.iter().chain(&self.leaving);
        let unreadable = all.flat_map(|(handle, group)| {
            lv_tags::unreadable(group).map(|lv| VolumeCondition {
                severity: Severity::Degraded,
                reason: "VolumeUnreadable",
                message: lv_tags::says_nothing(handle.name(), lv),
            })
        });
        let all = self.groups.iter().chain(&self.leaving);
        let strangers = all.filter_map(|(handle, _)| {
            let (severity, reason) = (Severity::Degraded, "DiskNotTrusted");
            let message = format!("volume group {}: {}", handle.name(), handle.strangers()?);
            Some(VolumeCondition { severity, reason, message })
        });
        let all = self.groups.iter().chain(&self.leaving);
        let thin = all.filter_map(|(handle, group)| thin_ailment(&self.pool.terms, handle, group));
        troubles.chain(not_configured).chain(unreadable).chain(strangers).chain(thin)
    }
}

/// All groups of these pools, each with its pool.
pub(super) fn served(pools: &[Arc<Pool>]) -> impl Iterator<Item = (&Arc<Pool>, &Arc<VolumeGroup>)> {
    pools.iter().flat_map(|pool| pool.all_groups().map(move |group| (pool, group)))
}

/// The pool of classes that name none: of those that have a volume group the one named `default`, else the
/// first, which is the oldest. So no pool that only plans, whose disks are refused or that is new takes the
/// place of another.
pub(super) fn default_pool(pools: &[Arc<Pool>]) -> Option<&Arc<Pool>> {
    let configured = pools.iter().filter(|pool| pool.configured);
    configured.min_by_key(|pool| (!pool.has_volume_group(), pool.name.as_str() != "default"))
}

/// The message for a volume group that no plan names; `None` if it has become empty.
pub(super) fn not_configured(group: &Group) -> Option<String> {
    let volumes = match lv_tags::volumes(group).count() {
        1 => "a volume".to_owned(),
        count => format!("{count} volumes"),
    };
    lv_tags::holds_volumes(group).then(|| {
        format!(
            "no pool of this node names volume group {}, and it holds {volumes}: existing volumes \
             stay in service, and no new ones are created in it; delete the volumes, or name the \
             volume group in a pool again",
            group.name
        )
    })
}

/// Reasons in one line; `None` if there are none.
pub(super) fn listed(reasons: impl IntoIterator<Item = String>) -> Option<String> {
    let all: Vec<String> = reasons.into_iter().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The group that a new disk helps most.
pub(super) fn roomiest<'a>(
    seen: &'a ObservedPool<'_>,
) -> Option<&'a (Arc<VolumeGroup>, Arc<Group>)> {
    by_room(seen).into_iter().next()
}

/// The groups that a new disk helps, the one with the most free space first: it helps that most.
pub(super) fn by_room<'a>(seen: &'a ObservedPool<'_>) -> Vec<&'a (Arc<VolumeGroup>, Arc<Group>)> {
    let open = seen.groups.iter().filter(|(_, g)| g.changeable() && g.hindrance().is_none());
    let mut open: Vec<_> = open.collect();
    let room = |group: &Group| group.free_extents() * group.extent_size.get();
    open.sort_by_key(|(_, group)| std::cmp::Reverse(room(group)));
    open
}
