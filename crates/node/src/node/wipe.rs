//! Make bytes unreadable, in pieces: with progress, at a rate, joined by whoever asks again.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::libc::EOPNOTSUPP;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bytes::{Bytes, Pace};
use crate::host::{DeviceNumber, HeldDevice, HeldFor, Host, HostError};
use crate::lvm::tags;
use crate::node::found::{Found, FoundVolume, device_node};
use crate::node::lv_tags;
use crate::node::rate::{piece_at, time_for};
use crate::panics::caught;
use crate::volume::{FsKind, Layout, Mode, VolumeError, VolumeKey, Wipe, error_chain};

/// One call to the kernel zeroes this much: long enough to be cheap, short enough to show progress.
const PIECE: u64 = 1 << 30;
/// After this much a long wipe writes down how far it is.
const WRITE_DOWN_EVERY: u64 = 16 << 30;
/// So many wipes of a group that no caller waits for are under way at once. A driver that starts beside a thousand new volumes
/// would else make all of them active first, and who asks for a volume would wait until the last one is.
const BEHIND_ANSWERS: usize = 4;
/// The ends of a device, where signatures stand.
const END: u64 = 1 << 20;
/// Where btrfs keeps copies of its superblock, each of 4 KiB.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

const STOPPED: &str = "the wipe was stopped";

fn places_of_signatures(kind: FsKind, size: Bytes) -> Vec<Range<u64>> {
    let size = size.get();
    let mut ranges = ends(0..size);
    if kind == FsKind::Btrfs {
        let copies = BTRFS_COPIES.iter().map(|at| *at..at + 4096);
        ranges.extend(copies.filter(|copy| copy.end <= size));
    }
    ranges
}

/// The range itself, where a list has only one.
fn whole(range: Range<u64>) -> Range<u64> {
    range
}

/// The first and the last MiB of a range; all of it where they meet.
pub(super) fn ends(range: Range<u64>) -> Vec<Range<u64>> {
    if range.end - range.start <= 2 * END {
        return vec![range];
    }
    vec![range.start..range.start + END, range.end - END..range.end]
}

/// A wipe to be done.
#[derive(Debug, Clone)]
pub(super) struct Task {
    /// The logical volume.
    pub found: Found<()>,
    /// The key of the volume, or of the one that it is to join.
    pub key: VolumeKey,
    /// Device of the volume; `None` if it has to be activated first.
    pub device: Option<PathBuf>,
    /// Ranges to wipe, in this order.
    pub ranges: Vec<Range<u64>>,
    /// Number of other bytes that an earlier start of the driver has wiped.
    pub before: u64,
    /// Method: [`Wipe::Discard`] trusts the disk, anything else writes zeroes.
    pub how: Wipe,
    /// One call to the kernel has a multiple of so many bytes, except at the end of a range: a thin pool takes back whole
    /// chunks only.
    pub unit: u64,
    /// True if a tag has the progress.
    pub is_written_down: bool,
}

impl Task {
    /// Zeroes over these ranges of a volume's device.
    pub fn new(found: &FoundVolume, ranges: Vec<Range<u64>>) -> Task {
        Task::of(found.record.id.key(), found.bare(), ranges)
    }

    /// Zeroes over these ranges of a logical volume that belongs to what has this key.
    pub fn of(key: &VolumeKey, found: Found<()>, ranges: Vec<Range<u64>>) -> Task {
        let (key, how) = (key.clone(), Wipe::Zero);
        Task { found, key, device: None, ranges, before: 0, how, unit: 1, is_written_down: false }
    }

    /// Zeroes over all of a volume, from where an earlier wipe of it stopped. Over nothing of a thin one: its pool zeroes
    /// what it gives, and would first have to give all of it.
    pub fn whole(found: &FoundVolume) -> Task {
        whole_lv(found.record.id.key(), &found.bare())
    }

    /// Zeroes wherever a new volume is to have them before it is shown to a workload.
    ///
    /// A raw block volume shows every byte. A file system shows only what was written through it, so there the
    /// places where signatures stand are enough.
    pub fn before_first_use(found: &FoundVolume) -> Task {
        match found.record.mode {
            Mode::Block => Task::whole(found),
            Mode::Filesystem(kind) => Task::new(found, places_of_signatures(kind, found.size())),
        }
    }

    fn end(&self) -> u64 {
        self.ranges.iter().map(|range| range.end).max().unwrap_or_default()
    }
}

/// Zeroes over all of a logical volume that belongs to what has this key, from where an earlier wipe of it stopped.
pub(super) fn whole_lv(key: &VolumeKey, found: &Found<()>) -> Task {
    if found.lv.layout() == Layout::Thin {
        return Task::of(key, found.clone(), Vec::new());
    }
    let size = found.size().get();
    // From its beginning, if it cannot be read how far it was.
    let before = lv_tags::wiped_of(&found.lv).unwrap_or_default().get().min(size);
    let task = Task::of(key, found.clone(), vec![whole(before..size)]);
    Task { before, is_written_down: true, ..task }
}

/// The wipes under way.
#[derive(Debug)]
pub(super) struct Wipes {
    jobs: Mutex<HashMap<VolumeKey, WipeJob>>,
    /// Bytes since the start.
    wiped: Arc<AtomicU64>,
    host: Arc<dyn Host>,
    /// Bytes a second, all wipes together do not know of each other; `None`: as fast as it goes.
    rate: Option<Bytes>,
    /// How long a caller waits before it is asked to retry.
    patience: Duration,
    /// By the name of a group, the places for wipes that no caller waits for: a disk that hangs holds those of its own.
    behind_answers: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Cancelled when the process is to end: then no one waits for a wipe any more.
    leaving: CancellationToken,
}

#[derive(Debug, Clone)]
struct WipeJob {
    uuid: String,
    /// The end of the last byte that it wipes.
    end: u64,
    began: Instant,
    before: u64,
    done: Arc<AtomicU64>,
    total: u64,
    ended: watch::Receiver<Option<Result<(), String>>>,
    stop: CancellationToken,
    /// Told when a caller waits for it: then it takes no place behind others.
    wanted: Arc<Notify>,
}

impl WipeJob {
    /// How much of the whole is done; a restart of the driver does not begin at nothing.
    fn done(&self) -> u64 {
        self.before + self.done.load(Ordering::Relaxed)
    }

    fn is_running(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Returns whether it has come to its end, and that was what a task asks for.
    fn has_done(&self, task: &Task) -> bool {
        matches!(&*self.ended.borrow(), Some(Ok(()))) && self.does(task)
    }

    /// Returns whether it does what a task asks for. That another device of the volume was wiped says nothing of this one, and
    /// since it was begun for this one the volume may have grown.
    fn does(&self, task: &Task) -> bool {
        self.uuid == task.found.dm_uuid() && self.end == task.end()
    }

    fn progress(&self) -> String {
        let (done, of) = (self.done(), self.before + self.total);
        let pace = Pace::of(done - self.before, of.saturating_sub(done), self.began.elapsed());
        format!("{}{pace}", progress_text(done, of))
    }
}

impl Wipes {
    pub fn new(host: Arc<dyn Host>, rate: Option<Bytes>, patience: Duration) -> Self {
        Wipes {
            jobs: Mutex::default(),
            wiped: Arc::default(),
            host,
            rate,
            patience,
            behind_answers: Mutex::default(),
            leaving: CancellationToken::new(),
        }
    }

    /// Ends all waits for a wipe from now on: wipes in progress are resumed by the next start.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, HashMap<VolumeKey, WipeJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The places of a group for wipes that no caller waits for.
    fn places(&self, group: &str) -> Arc<Semaphore> {
        let mut all = self.behind_answers.lock().unwrap_or_else(PoisonError::into_inner);
        let its = all.entry(group.to_owned());
        its.or_insert_with(|| Arc::new(Semaphore::new(BEHIND_ANSWERS))).clone()
    }

    /// Returns the number of bytes wiped since the start.
    pub fn wiped(&self) -> Bytes {
        Bytes::new(self.wiped.load(Ordering::Relaxed))
    }

    /// Returns how much of a volume's wipe is done, including before a restart of the driver;
    /// `None` if there is none in progress or with a result that was not read yet.
    pub fn progress(&self, key: &VolumeKey) -> Option<Bytes> {
        self.jobs().get(key).map(|job| Bytes::new(job.done()))
    }

    /// Returns whether a wipe of the volume is in progress.
    pub fn runs(&self, key: &VolumeKey) -> bool {
        self.jobs().get(key).is_some_and(WipeJob::is_running)
    }

    /// The wipes under way, each with its progress in words.
    pub fn under_way(&self) -> Vec<(VolumeKey, String)> {
        let jobs = self.jobs();
        let running = jobs.iter().filter(|(_, job)| job.is_running());
        running.map(|(key, job)| (key.clone(), job.progress())).collect()
    }

    /// Starts a wipe without waiting for it; one that is under way for the volume goes on. It begins when fewer than
    /// [`BEHIND_ANSWERS`] such of its group are under way, or when a caller waits for it.
    pub fn start(&self, task: Task) {
        self.join(task);
    }

    /// Wipes, or join the wipe of the same logical volume, and wait for its end; durable then.
    ///
    /// # Errors
    /// [`VolumeError::InProgress`] with the progress when the patience is over; the wipe goes on.
    /// [`VolumeError::Unavailable`] if the disk fails.
    pub async fn wipe(&self, task: Task) -> Result<(), VolumeError> {
        let key = task.key.clone();
        if self.job(&key).is_some_and(|job| !job.does(&task)) {
            self.settle(&key).await?;
        }
        let job = self.join(task);
        self.wait(&key, job).await
    }

    /// Aborts the wipe of a volume, and waits until it has stopped.
    ///
    /// # Errors
    /// [`VolumeError::InProgress`] when the patience is over: the kernel still writes a piece of it.
    pub async fn stop(&self, key: &VolumeKey) -> Result<(), VolumeError> {
        if let Some(job) = self.job(key) {
            job.stop.cancel();
        }
        self.settle(key).await
    }

    /// Waits for the wipe that is under way for a volume, whatever it wipes and however it ends.
    ///
    /// # Errors
    /// [`VolumeError::InProgress`] when the patience is over.
    pub async fn settle(&self, key: &VolumeKey) -> Result<(), VolumeError> {
        let Some(job) = self.job(key) else { return Ok(()) };
        match self.wait(key, job).await {
            Err(working @ VolumeError::InProgress { .. }) => Err(working),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn job(&self, key: &VolumeKey) -> Option<WipeJob> {
        self.jobs().get(key).cloned()
    }

    async fn wait(&self, key: &VolumeKey, job: WipeJob) -> Result<(), VolumeError> {
        job.wanted.notify_one();
        let mut ended = job.ended.clone();
        let ended = tokio::time::timeout(self.patience, ended.wait_for(Option::is_some));
        let outcome = match self.leaving.run_until_cancelled(ended).await {
            Some(Ok(Ok(outcome))) => outcome.clone(),
            Some(Ok(Err(_))) => Some(Err("the wipe stopped".to_owned())),
            Some(Err(_)) | None => None,
        };
        match outcome {
            None => {
                Err(VolumeError::InProgress { what: "wiping".to_owned(), progress: job.progress() })
            }
            Some(result) => {
                self.jobs().remove(key);
                result.map_err(|reason| VolumeError::Unavailable { reason })
            }
        }
    }

    fn join(&self, task: Task) -> WipeJob {
        let mut jobs = self.jobs();
        let its = jobs.get(&task.key).filter(|job| job.is_running() || job.has_done(&task));
        if let Some(job) = its {
            return job.clone();
        }
        let (tell, ended) = watch::channel(None);
        let job = WipeJob {
            uuid: task.found.dm_uuid(),
            end: task.end(),
            began: Instant::now(),
            before: task.before,
            done: Arc::default(),
            total: task.ranges.iter().map(|range| range.end - range.start).sum(),
            ended,
            stop: CancellationToken::new(),
            wanted: Arc::default(),
        };
        jobs.insert(task.key.clone(), job.clone());
        let (host, rate, its) = (self.host.clone(), self.rate, job.clone());
        let (wiped, places) = (self.wiped.clone(), self.places(task.found.group.name()));
        tokio::spawn(async move {
            let _place = tokio::select! {
                place = places.acquire() => place.ok(),
                () = its.wanted.notified() => None,
            };
            let result = match caught("wipes", run(host.as_ref(), &task, rate, &its)).await {
                Ok(result) => result,
                Err(panicked) => Err(panicked.to_string()),
            };
            wiped.fetch_add(its.done.load(Ordering::Relaxed), Ordering::Relaxed);
            let _ = tell.send(Some(result));
        });
        job
    }
}

pub(super) fn progress_text(done: u64, total: u64) -> String {
    let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100);
    format!("{percent} % ({} of {})", Bytes::new(done), Bytes::new(total))
}

/// Runs a task of this job to its end or until it is stopped.
///
/// # Errors
/// Why it has not come to its end, in words.
async fn run(
    host: &dyn Host,
    task: &Task,
    rate: Option<Bytes>,
    job: &WipeJob,
) -> Result<(), String> {
    let device = match &task.device {
        _ if job.stop.is_cancelled() => return Err(STOPPED.to_owned()),
        Some(device) => device.clone(),
        None => task.found.activate(host).await.map_err(|error| error.to_string())?.0,
    };
    wipe(host, task, &device, rate, job).await.map_err(|error| error_chain::in_full(&error))?;
    if job.stop.is_cancelled() { Err(STOPPED.to_owned()) } else { Ok(()) }
}

/// Wipes, piece by piece, until there is none left or it is to stop: one that has begun ends.
async fn wipe(
    host: &dyn Host,
    task: &Task,
    device: &Path,
    rate: Option<Bytes>,
    job: &WipeJob,
) -> Result<(), HostError> {
    let begin = Instant::now();
    let device = hold(host, &task.found.dm_uuid(), device, HeldFor::Writing).await?;
    let mut written_down = 0;
    for range in &task.ranges {
        let mut at = range.start;
        while at < range.end && !job.stop.is_cancelled() {
            let piece = at..range.end.min(at + piece_at(rate, PIECE).next_multiple_of(task.unit));
            at = piece.end;
            let length = piece.end - piece.start;
            match task.how {
                Wipe::Discard => discard_or_zero(device.as_ref(), piece).await?,
                Wipe::Zero | Wipe::None => device.write_zeroes(piece).await?,
            }
            let so_far = job.done.fetch_add(length, Ordering::Relaxed) + length;
            if so_far - written_down >= WRITE_DOWN_EVERY {
                written_down = so_far;
                device.flush().await?;
                write_down(task, at).await;
            }
            if let Some(rate) = rate {
                let paced = tokio::time::sleep_until(begin + time_for(so_far, rate));
                job.stop.run_until_cancelled(paced).await;
            }
        }
    }
    device.flush().await
}

/// Holds the device of a volume open, so that it stays this one. The number of a device that was removed
/// is given to the next: so it is looked for by its uuid, and once more when it cannot be removed.
pub(super) async fn hold(
    host: &dyn Host,
    uuid: &str,
    device: &Path,
    held_for: HeldFor,
) -> Result<Box<dyn HeldDevice>, HostError> {
    let number = still_its_device(host, uuid, device).await?;
    let held = host.hold(device, number, held_for).await?;
    still_its_device(host, uuid, device).await?;
    Ok(held)
}

async fn still_its_device(
    host: &dyn Host,
    uuid: &str,
    device: &Path,
) -> Result<DeviceNumber, HostError> {
    let info = host.dm_info(uuid).await?;
    let number = info.map(|info| info.number).filter(|number| device_node(*number) == device);
    number.ok_or_else(|| HostError::System {
        what: format!("open {}", device.display()),
        source: io::Error::other("the volume's device was removed meanwhile"),
    })
}

/// Discards, or write zeroes where the disk knows no discard.
async fn discard_or_zero(device: &dyn HeldDevice, piece: Range<u64>) -> Result<(), HostError> {
    match device.discard(piece.clone()).await {
        Err(error) if error.errno() == Some(EOPNOTSUPP) => device.write_zeroes(piece).await,
        answer => answer,
    }
}

/// Notes in a tag that everything before `wiped` is done. Failing to is no harm: a restart would do
/// a part again.
async fn write_down(task: &Task, wiped: u64) {
    if !task.is_written_down {
        return;
    }
    let lv = &task.found.lv.name;
    let Ok(turn) = task.found.group.turn().await else { return };
    let Ok(seen) = turn.read().await else { return };
    let Some(now) = seen.lvs.get(lv) else { return };
    let old: Vec<&str> = tags::find_all(&now.tags, lv_tags::WIPED).collect();
    if let Err(error) = turn.retag(lv, &old, &[lv_tags::wiped_tag(Bytes::new(wiped))]).await {
        let error = error_chain::in_full(&error);
        tracing::warn!(lv, error, "failed to save the progress of a wipe");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_needs_only_the_places_of_signatures() {
        let mib = 1 << 20;
        let places = |kind, mib| places_of_signatures(kind, Bytes::mib(mib));
        assert_eq!(places(FsKind::Ext4, 8), vec![0..mib, 7 * mib..8 * mib]);
        assert_eq!(places(FsKind::Ext4, 2), vec![whole(0..2 * mib)]);
        assert_eq!(
            places(FsKind::Btrfs, 128),
            vec![0..mib, 127 * mib..128 * mib, 64 * mib..64 * mib + 4096]
        );
        assert_eq!(places(FsKind::Btrfs, 64), vec![0..mib, 63 * mib..64 * mib]);
    }

    #[test]
    fn progress_is_told_in_percent_and_sizes() {
        assert_eq!(progress_text(1 << 30, 4 << 30), "25 % (1 GiB of 4 GiB)");
        assert_eq!(progress_text(0, 0), "100 % (0 B of 0 B)");
    }

    #[tokio::test(start_paused = true)]
    async fn progress_has_a_pace_and_goes_on_after_a_restart() {
        let job = WipeJob {
            uuid: String::new(),
            end: 4 << 30,
            began: Instant::now(),
            before: 2 << 30,
            done: Arc::default(),
            total: 2 << 30,
            ended: watch::channel(None).1,
            stop: CancellationToken::new(),
            wanted: Arc::default(),
        };
        assert_eq!(job.progress(), "50 % (2 GiB of 4 GiB)", "nobody knows yet how fast it is");
        job.done.store(1 << 30, Ordering::Relaxed);
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(job.progress(), "75 % (3 GiB of 4 GiB), 128 MiB/s, 8 s left");
    }
}
