//! One volume group: reads it, serializes its changes, makes its changes durable.

mod believe;
pub(super) mod look;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use crate::host::{Cmd, DeviceNumber, Disk, Host, HostError};
use crate::lvm::LvmError;
use crate::lvm::command_stats::Spent;
use crate::lvm::group::Group;
use crate::lvm::scan::{Member, NamedDisks};
use crate::lvm::thin_usage::{self, ThinUsage};

/// A volume group of this host.
///
/// A read costs one sector a disk while nothing has changed. The sector shows a change also if an
/// administrator made it outside of this driver. Changes are serialized; volume groups do not wait
/// for each other.
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

#[derive(Debug, Default)]
struct Known {
    /// The disks that carry the group, with the change checks of the last reading.
    carriers: Vec<Member>,
    /// The disks that plans named at the last reading.
    named: NamedDisks,
    /// The last reading.
    seen: Option<Arc<Group>>,
    /// Which disks described the group at the last reading and were not believed.
    strangers: Option<String>,
    /// Why live devices of volumes are not on the disks that the group has, by the volumes' names.
    elsewhere: BTreeMap<String, String>,
    /// Whether a disk told an older state than that: a commit was cut off between two disks.
    uneven: bool,
    /// The disks that LVM commands on the group see, with the numbers that they had then.
    pinned: Vec<(PathBuf, Option<DeviceNumber>)>,
    /// Why the last reading failed; `None` if it did not.
    trouble: Option<String>,
    /// When the disks last agreed with it.
    read_at: Option<Instant>,
    /// A call that has not come back.
    hangs: Option<String>,
    /// An LVM command died on it, and what that left is not repaired yet.
    cut: bool,
    /// How full its thin pool was when the kernel was asked last; `None` without an active one.
    thin: Option<ThinReading>,
}

/// How full a thin pool was when the kernel was asked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinReading {
    /// As the kernel reported it.
    pub now: ThinUsage,
    /// The same, in steps: see [`ThinUsage::steady`].
    pub steady: ThinUsage,
}

/// How long a change waits for those before it: longer than any but the merge of a snapshot takes.
const TURN: Duration = Duration::from_secs(60);

/// The right to change a group; the next one in line gets it when this is dropped.
#[derive(Debug)]
pub struct VgGuard {
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

    /// Returns the durations and failures of each LVM command on the volume group since the start.
    pub fn spent(&self) -> BTreeMap<&'static str, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn count_spent(
        &self,
        command: &'static str,
        time: Duration,
        code: Option<&'static str>,
    ) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.entry(command).or_default().count(time, code);
    }

    /// The disks that carried it at the last scan.
    pub fn devices(&self) -> Vec<PathBuf> {
        self.known().carriers.iter().map(|carrier| carrier.disk.path.clone()).collect()
    }

    /// The disks that carried it at the last scan, with the numbers that they had then.
    pub fn numbers_when_read(&self) -> Vec<(PathBuf, DeviceNumber)> {
        self.disks().into_iter().map(|disk| (disk.path, disk.number)).collect()
    }

    /// Lets the disks be read that plans name, also before the group was read first.
    pub fn let_read(&self, named: &NamedDisks) {
        self.known().named = named.clone();
    }

    /// Returns the disks that carried it at the last scan, as the kernel described them.
    pub fn disks(&self) -> Vec<Disk> {
        self.known().carriers.iter().map(|carrier| carrier.disk.clone()).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last reading, without looking at a disk; `None` before the first one.
    pub fn remembered(&self) -> Option<Arc<Group>> {
        self.known().seen.clone()
    }

    /// Returns when the volume group was last read without an error.
    pub fn last_reading(&self) -> Option<Instant> {
        self.known().read_at
    }

    /// Returns which disks described the volume group at the last reading and were not trusted, and
    /// the commands to run.
    pub fn strangers(&self) -> Option<String> {
        self.known().strangers.clone()
    }

    /// Returns why the live device of a logical volume is not on the disks of the volume group;
    /// `None` if it is, as far as is known.
    pub fn elsewhere(&self, lv: &str) -> Option<String> {
        self.known().elsewhere.get(lv).cloned()
    }

    pub(super) fn note_elsewhere(&self, lv: &str, reason: Option<String>) {
        let mut known = self.known();
        match reason {
            Some(reason) => known.elsewhere.insert(lv.to_owned(), reason),
            None => known.elsewhere.remove(lv),
        };
    }

    /// Returns why the last reading failed; `None` if it did not.
    pub fn trouble(&self) -> Option<String> {
        self.known().trouble.clone()
    }

    /// Waits for the right to change the group, up to a minute.
    ///
    /// # Errors
    /// [`LvmError::Hung`] at once while an earlier call has not come back, [`LvmError::Occupied`] while
    /// another change takes long.
    pub async fn turn(self: &Arc<Self>) -> Result<VgGuard, LvmError> {
        refuse_if_hung(self)?;
        let order = tokio::time::timeout(TURN, self.order.clone().lock_owned()).await;
        let order = order.map_err(|_| LvmError::Occupied { group: self.name.clone() })?;
        refuse_if_hung(self)?;
        Ok(VgGuard { group: self.clone(), looked: AtomicBool::new(false), _order: order })
    }

    /// Makes every change of the group so far durable: a cache flush on each of its disks.
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
            answer.map_err(|error| failed(self, error))?;
        }
        self.durable.fetch_max(sent, Ordering::SeqCst);
        Ok(())
    }

    /// Notes that a command is about to change the group.
    pub(super) fn count_change(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes whether a command that died has left something to repair; returns whether one had
    /// before.
    pub fn note_cut(&self, cut: bool) -> bool {
        std::mem::replace(&mut self.known().cut, cut)
    }

    /// Returns the call that hangs, if one does.
    pub fn hung(&self) -> Option<String> {
        self.known().hangs.clone()
    }
}

/// Returns how full the thin pool of a volume group was when the kernel was asked last; `None` without an active one.
pub fn thin_reading(vg: &VolumeGroup) -> Option<ThinReading> {
    vg.known().thin
}

/// Asks the kernel how full the thin pool of the last reading is, and remembers it; returns that with the number of events
/// that the pool has sent, or `None` without an active one. Reads no disk and starts no process.
///
/// # Errors
/// [`LvmError::Host`] if device-mapper does not answer.
pub async fn read_thin_usage(vg: &Arc<VolumeGroup>) -> Result<Option<(ThinUsage, u32)>, LvmError> {
    let device = vg.remembered().and_then(|seen| Some(seen.thin_pool()?.device()));
    let Some(device) = device else {
        vg.known().thin = None;
        return Ok(None);
    };
    let found = vg.host.dm_status(&device).await.map_err(|error| failed(vg, error))?;
    let found = found.and_then(|(info, targets)| {
        Some((thin_usage::parse(&targets.first()?.params)?, info.events))
    });
    let mut known = vg.known();
    known.thin = found.map(|(now, _)| {
        let before = known.thin.map(|before| before.steady);
        ThinReading { now, steady: now.steady(before) }
    });
    Ok(found)
}

/// Returns whether some of its disks had an older state at the last reading than others.
pub(super) fn is_uneven(vg: &VolumeGroup) -> bool {
    vg.known().uneven
}

/// Returns why LVM cannot change the volume group as its disks are now; `None` if they do not
/// prevent it.
pub(super) async fn impediment(vg: &Arc<VolumeGroup>) -> Option<String> {
    let group = vg.remembered()?;
    if let Some(reason) = group.frozen() {
        return Some(reason);
    }
    let disks = vg.host.disks().await.ok()?;
    let carries = |path: &Path| group.pvs.values().any(|pv| pv.device.as_deref() == Some(path));
    let locked = disks.iter().find(|disk| disk.read_only && carries(&disk.path))?;
    Some(format!("{} is read-only", locked.path.display()))
}

/// Lets LVM commands on this group see its disks and `more`, and no others.
pub(super) async fn pin(vg: &Arc<VolumeGroup>, more: Option<&Path>) -> Result<(), LvmError> {
    let (mut pins, pinned) = {
        let known = vg.known();
        let disks = known.carriers.iter().map(|carrier| &carrier.disk);
        let pins: Vec<_> = disks.map(|disk| (disk.path.clone(), Some(disk.number))).collect();
        (pins, known.pinned.clone())
    };
    if more.is_none() && pins.iter().all(|pin| pinned.contains(pin)) {
        return Ok(());
    }
    pins.extend(more.map(|device| (device.to_owned(), None)));
    let devices: Vec<PathBuf> = pins.iter().map(|(path, _)| path.clone()).collect();
    let done = vg.host.pin_devices(&vg.name, &devices).await;
    done.map_err(|error| failed(vg, error))?;
    vg.known().pinned = pins;
    Ok(())
}

fn refuse_if_hung(vg: &VolumeGroup) -> Result<(), LvmError> {
    match vg.hung() {
        Some(what) => Err(LvmError::Hung { group: vg.name.clone(), what }),
        None => Ok(()),
    }
}

pub(super) fn failed(vg: &Arc<VolumeGroup>, error: HostError) -> LvmError {
    if matches!(error, HostError::Died { .. }) {
        vg.note_cut(true);
    }
    match error {
        HostError::TimedOut { what, .. } => hangs(vg, what),
        source => LvmError::Host { group: vg.name.clone(), source },
    }
}

/// Refuses all further work on this group until its disks and its LVM lane answer again.
fn hangs(vg: &Arc<VolumeGroup>, what: String) -> LvmError {
    if vg.known().hangs.replace(what.clone()).is_none() {
        tracing::error!(group = vg.name, what, "volume group not responding");
        tokio::spawn(wait_until_it_answers(vg.clone()));
    }
    LvmError::Hung { group: vg.name.clone(), what }
}

/// The calls that hang are never killed. These queue behind them and come back when they do.
async fn wait_until_it_answers(vg: Arc<VolumeGroup>) {
    const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
    let _ = vg.host.lvm(&vg.name, Cmd::new("lvm").arg("version").limit(FOR_EVER)).await;
    for device in vg.devices() {
        while let Err(HostError::TimedOut { .. }) = vg.host.read_at(&device, 0, 512).await {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }
    // A command that was aborted may have made its change, or died in it, since the last flush.
    vg.count_change();
    vg.note_cut(true);
    vg.known().hangs = None;
    tracing::info!(group = vg.name, "volume group responding again");
}

impl VgGuard {
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
