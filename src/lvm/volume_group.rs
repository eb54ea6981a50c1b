//! One volume group: read it, take turns in changing it, make its changes durable.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use crate::host::{Cmd, Host, HostError};
use crate::lvm::LvmError;
use crate::lvm::group::Group;
use crate::lvm::read::{self, ReadError};
use crate::lvm::scan::{Member, Scan, scan, scan_disks};
use crate::volume::few;

/// A volume group of this machine.
///
/// Reads cost one sector a disk while nothing changed, also when an administrator changed the group
/// behind our back: the sector tells. Changes take turns; groups do not wait for each other.
#[derive(Debug)]
pub struct VolumeGroup {
    name: String,
    pub(super) host: Arc<dyn Host>,
    order: Arc<tokio::sync::Mutex<()>>,
    known: Mutex<Known>,
    /// Commands sent so far, and how many of them are durable. One more than none at the start: an
    /// earlier run may have died between a commit and its flush.
    sent: AtomicU64,
    durable: AtomicU64,
    /// By the first word of the command.
    spent: Mutex<BTreeMap<&'static str, Spent>>,
}

/// What the runs of one LVM command took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// How many runs.
    pub runs: u64,
    /// How long all of them took.
    pub time: Duration,
}

#[derive(Debug, Default)]
struct Known {
    /// The disks that carry the group, with the change checks of the last reading.
    carriers: Vec<Member>,
    /// The last reading.
    seen: Option<Arc<Group>>,
    /// Whether a disk told an older state than that: a commit was cut off between two disks.
    uneven: bool,
    /// The disks that LVM commands on the group see.
    pinned: Vec<PathBuf>,
    /// Why the last reading failed; `None` if it did not.
    trouble: Option<String>,
    /// When the disks last agreed with it.
    read_at: Option<Instant>,
    /// A call that has not come back.
    hangs: Option<String>,
    /// An LVM command died on it, and what that left is not healed yet.
    cut: bool,
}

/// How long a change waits for those before it: longer than any but the merge of a snapshot takes.
const TURN: Duration = Duration::from_secs(60);

/// The right to change a group; the next one in line gets it when this is dropped.
#[derive(Debug)]
pub struct Turn {
    pub(super) group: Arc<VolumeGroup>,
    /// Whether the group was read since the turn began.
    looked: AtomicBool,
    _order: OwnedMutexGuard<()>,
}

impl VolumeGroup {
    /// A handle on the group of this name; the disks are looked at when it is first read.
    pub fn new(host: Arc<dyn Host>, name: &str) -> Arc<Self> {
        Arc::new(VolumeGroup {
            name: name.to_owned(),
            host,
            order: Arc::default(),
            known: Mutex::default(),
            sent: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            spent: Mutex::default(),
        })
    }

    /// The group's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What each LVM command on the group took since the start.
    pub fn spent(&self) -> BTreeMap<&'static str, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn count_spent(&self, command: &'static str, time: Duration) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = spent.entry(command).or_default();
        spent.runs += 1;
        spent.time += time;
    }

    /// The disks that carried it at the last scan.
    pub fn devices(&self) -> Vec<PathBuf> {
        self.known().carriers.iter().map(|carrier| carrier.disk.path.clone()).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last reading, without looking at a disk; `None` before the first one.
    pub fn remembered(&self) -> Option<Arc<Group>> {
        self.known().seen.clone()
    }

    /// When the group was last read without an error.
    pub fn last_reading(&self) -> Option<Instant> {
        self.known().read_at
    }

    /// Read the group as its disks have it now.
    ///
    /// A physical volume whose disk is away or cannot be read has no `device`.
    ///
    /// # Errors
    /// [`LvmError::Absent`], [`LvmError::Unusable`], [`LvmError::Hung`], [`LvmError::Damaged`].
    pub async fn read(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        let read = self.look().await;
        self.known().trouble = read.as_ref().err().map(ToString::to_string);
        read
    }

    /// Why the last reading failed; `None` if it did not.
    pub fn trouble(&self) -> Option<String> {
        self.known().trouble.clone()
    }

    async fn look(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        self.refuse_if_hung()?;
        let (carriers, seen) = {
            let known = self.known();
            (known.carriers.clone(), known.seen.clone())
        };
        // A disk that was away shows in no change check of the others, so look for it each time.
        if let Some(group) = seen.filter(|group| group.missing().next().is_none()) {
            if self.is_unchanged(&carriers).await? {
                self.known().read_at = Some(Instant::now());
                return Ok(group);
            }
            if let Some(group) = self.read_carriers().await? {
                return Ok(group);
            }
        }
        self.read_all_disks().await
    }

    /// Read the group after a command on it, without looking first whether it has changed.
    ///
    /// # Errors
    /// As [`VolumeGroup::read`].
    pub(super) async fn read_changed(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        self.refuse_if_hung()?;
        match self.read_carriers().await? {
            Some(group) => Ok(group),
            None => self.read_all_disks().await,
        }
    }

    /// Read the disks that carried the group; `None` if they do not make a whole one any more.
    async fn read_carriers(self: &Arc<Self>) -> Result<Option<Arc<Group>>, LvmError> {
        let carriers = self.known().carriers.clone();
        let disks = carriers.into_iter().map(|carrier| carrier.disk).collect();
        let scan = scan_disks(&self.host, disks).await;
        if let Some(what) = scan.hanging() {
            return Err(self.hangs(what.to_owned()));
        }
        let group = self.accept(&scan).ok();
        Ok(group.filter(|group| group.missing().next().is_none()))
    }

    async fn read_all_disks(self: &Arc<Self>) -> Result<Arc<Group>, LvmError> {
        let scan = scan(&self.host).await.map_err(|source| self.failed(source))?;
        self.accept(&scan)
    }

    /// Take over what a scan of the disks says of this group.
    ///
    /// # Errors
    /// As [`VolumeGroup::read`].
    pub fn accept(self: &Arc<Self>, scan: &Scan) -> Result<Arc<Group>, LvmError> {
        let group = Arc::new(self.choose(scan)?);
        let devices: BTreeSet<&PathBuf> =
            group.pvs.values().filter_map(|pv| pv.device.as_ref()).collect();
        let carriers =
            scan.members.iter().filter(|member| devices.contains(&member.disk.path)).cloned();
        // One that has just joined may keep metadata and tell of no group yet.
        let old = |member: &Member| {
            let tells = member.mark.is_some() && devices.contains(&member.disk.path);
            tells && member.group.as_ref().is_none_or(|own| own.seqno < group.seqno)
        };
        let mut known = self.known();
        known.uneven = scan.members.iter().any(old);
        known.carriers = carriers.map(|member| Member { group: None, ..member }).collect();
        known.seen = Some(group.clone());
        known.read_at = Some(Instant::now());
        Ok(group)
    }

    /// The newest description of the group that its disks hold, with the devices filled in.
    fn choose(self: &Arc<Self>, scan: &Scan) -> Result<Group, LvmError> {
        let members: Vec<&Member> = scan.of(&self.name).collect();
        let newest = members
            .iter()
            .filter_map(|member| member.group.as_ref())
            .max_by_key(|group| group.seqno)
            .ok_or_else(|| self.absent(scan))?;
        if let Some(other) =
            members.iter().find(|m| m.group.as_ref().is_some_and(|g| g.uuid != newest.uuid))
        {
            let first =
                members.iter().find(|m| m.group.as_ref().is_some_and(|g| g.uuid == newest.uuid));
            return Err(self.unusable(format!(
                "two groups have this name, one on {} and one on {}; rename one with `vgrename UUID NEW`",
                first.map_or_else(String::new, |m| m.disk.path.display().to_string()),
                other.disk.path.display()
            )));
        }
        let mut group = newest.clone();
        let full = |member: &&Member| member.group.as_ref().is_some_and(|g| g.metadata_full);
        group.metadata_full = members.iter().any(full);
        for pv in group.pvs.values_mut() {
            let carriers: Vec<&Member> =
                scan.members.iter().filter(|m| m.label.pv_uuid == pv.uuid).collect();
            match carriers[..] {
                [] => {}
                [member] => pv.device = Some(member.disk.path.clone()),
                [one, two, ..] => {
                    return Err(self.unusable(format!(
                        "{} and {} carry the same physical volume {}; detach one, or give the copy new ids with `vgimportclone`",
                        one.disk.path.display(),
                        two.disk.path.display(),
                        pv.uuid
                    )));
                }
            }
        }
        Ok(group)
    }

    /// Why no disk describes the group: damage or a hanging disk explain it, else it is absent.
    fn absent(self: &Arc<Self>, scan: &Scan) -> LvmError {
        let carriers = self.known().carriers.clone();
        let was_ours = |path: &Path| carriers.iter().any(|carrier| carrier.disk.path == path);
        let mut damage = scan.members.iter().filter(|member| was_ours(&member.disk.path));
        if let Some(source) = damage.find_map(|member| member.damage.clone()) {
            return LvmError::Damaged { group: self.name.clone(), source };
        }
        let hanging = scan.unreadable.iter().find_map(|(path, error)| match error {
            HostError::TimedOut { what, .. } if was_ours(path) => Some(what.clone()),
            _ => None,
        });
        hanging.map_or_else(
            || LvmError::Absent { group: self.name.clone(), others: groups_of(scan) },
            |what| self.hangs(what),
        )
    }

    fn unusable(&self, reason: String) -> LvmError {
        LvmError::Unusable { group: self.name.clone(), reason }
    }

    /// Whether the change check of every disk is as it was: one sector a disk, side by side.
    async fn is_unchanged(self: &Arc<Self>, carriers: &[Member]) -> Result<bool, LvmError> {
        let mut reads = JoinSet::new();
        for carrier in carriers.iter().cloned() {
            let host = self.host.clone();
            reads.spawn(async move {
                let mark = read::mark(host.as_ref(), &carrier.disk.path, &carrier.label).await;
                mark.map(|mark| mark == carrier.mark)
            });
        }
        let mut unchanged = true;
        while let Some(read) = reads.join_next().await {
            match read {
                Ok(Ok(same)) => unchanged &= same,
                Ok(Err(ReadError::Host(HostError::TimedOut { what, .. }))) => {
                    return Err(self.hangs(what));
                }
                Ok(Err(_)) | Err(_) => unchanged = false,
            }
        }
        Ok(unchanged)
    }

    /// Wait for the right to change the group, up to a minute.
    ///
    /// # Errors
    /// [`LvmError::Hung`] at once while an earlier call has not come back, [`LvmError::Occupied`] while
    /// another change takes long.
    pub async fn turn(self: &Arc<Self>) -> Result<Turn, LvmError> {
        self.refuse_if_hung()?;
        let order = tokio::time::timeout(TURN, self.order.clone().lock_owned()).await;
        let order = order.map_err(|_| LvmError::Occupied { group: self.name.clone() })?;
        self.refuse_if_hung()?;
        Ok(Turn { group: self.clone(), looked: AtomicBool::new(false), _order: order })
    }

    /// Make every change of the group so far durable: a cache flush on each of its disks.
    ///
    /// LVM itself never flushes, so no answer that a caller builds on may be given before this. Where
    /// everything sent is durable already, because one flush served many, nothing is done.
    ///
    /// # Errors
    /// [`LvmError::Host`] if a disk failed, [`LvmError::Hung`] if one does not answer.
    pub async fn flush(self: &Arc<Self>) -> Result<(), LvmError> {
        let sent = self.sent.load(Ordering::SeqCst);
        if self.durable.load(Ordering::SeqCst) >= sent {
            return Ok(());
        }
        let mut flushes = JoinSet::new();
        for path in self.devices() {
            let host = self.host.clone();
            flushes.spawn(async move { host.flush(&path).await });
        }
        while let Some(flushed) = flushes.join_next().await {
            let answer = flushed.unwrap_or_else(|lost| resume_unwind(lost.into_panic()));
            answer.map_err(|error| self.failed(error))?;
        }
        self.durable.fetch_max(sent, Ordering::SeqCst);
        Ok(())
    }

    /// Whether some of its disks told an older state at the last reading than others.
    pub(super) fn is_uneven(&self) -> bool {
        self.known().uneven
    }

    /// Why LVM cannot change the group as its disks are now; `None` if they do not keep it from that.
    pub(super) async fn impediment(self: &Arc<Self>) -> Option<String> {
        let group = self.remembered()?;
        if let Some(reason) = group.frozen() {
            return Some(reason);
        }
        let disks = self.host.disks().await.ok()?;
        let carries = |path: &Path| group.pvs.values().any(|pv| pv.device.as_deref() == Some(path));
        let locked = disks.iter().find(|disk| disk.read_only && carries(&disk.path))?;
        Some(format!("{} is read-only", locked.path.display()))
    }

    /// Let LVM commands on this group see its disks and `more`, and no others.
    pub(super) async fn pin(self: &Arc<Self>, more: Option<&Path>) -> Result<(), LvmError> {
        let mut devices = self.devices();
        let pinned = self.known().pinned.clone();
        if more.is_none() && devices.iter().all(|device| pinned.contains(device)) {
            return Ok(());
        }
        devices.extend(more.map(Path::to_owned));
        let done = self.host.pin_devices(&self.name, &devices).await;
        done.map_err(|error| self.failed(error))?;
        self.known().pinned = devices;
        Ok(())
    }

    /// Note that a command is about to change the group.
    pub(super) fn count_change(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
    }

    /// Note whether a command that died has left something to heal; says whether one had before.
    pub fn note_cut(&self, cut: bool) -> bool {
        std::mem::replace(&mut self.known().cut, cut)
    }

    /// What hangs, if something does.
    pub fn hung(&self) -> Option<String> {
        self.known().hangs.clone()
    }

    fn refuse_if_hung(&self) -> Result<(), LvmError> {
        match self.hung() {
            Some(what) => Err(LvmError::Hung { group: self.name.clone(), what }),
            None => Ok(()),
        }
    }

    pub(super) fn failed(self: &Arc<Self>, error: HostError) -> LvmError {
        if matches!(error, HostError::Died { .. }) {
            self.note_cut(true);
        }
        match error {
            HostError::TimedOut { what, .. } => self.hangs(what),
            source => LvmError::Host { group: self.name.clone(), source },
        }
    }

    /// Refuse all further work on this group until its disks and its LVM lane answer again.
    fn hangs(self: &Arc<Self>, what: String) -> LvmError {
        if self.known().hangs.replace(what.clone()).is_none() {
            tracing::error!(group = self.name, what, "the volume group does not answer");
            tokio::spawn(self.clone().wait_until_it_answers());
        }
        LvmError::Hung { group: self.name.clone(), what }
    }

    /// The calls that hang are never killed. These queue behind them and come back when they do.
    async fn wait_until_it_answers(self: Arc<Self>) {
        const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
        let _ = self.host.lvm(&self.name, Cmd::new("lvm").arg("version").limit(FOR_EVER)).await;
        for device in self.devices() {
            while let Err(HostError::TimedOut { .. }) = self.host.read_at(&device, 0, 512).await {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
        // A command that was given up may have made its change, or died in it, since the last flush.
        self.count_change();
        self.note_cut(true);
        self.known().hangs = None;
        tracing::info!(group = self.name, "the volume group answers again");
    }
}

/// Which groups a scan has found, for a message.
fn groups_of(scan: &Scan) -> String {
    let groups = scan.members.iter().filter_map(|member| member.group.as_ref());
    let names: BTreeSet<&str> = groups.map(|group| group.name.as_str()).collect();
    if names.is_empty() {
        "there is none here".to_owned()
    } else {
        format!("here are {}", few(names))
    }
}

impl Turn {
    /// The group whose turn this is.
    pub fn group(&self) -> &Arc<VolumeGroup> {
        &self.group
    }

    pub(super) fn note_looked(&self) {
        self.looked.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_looked(&self) -> bool {
        self.looked.load(Ordering::Relaxed)
    }
}
