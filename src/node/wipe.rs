//! Make bytes unreadable, in pieces: with progress, at a rate, joined by whoever asks again.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::libc::EOPNOTSUPP;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::bytes::{Bytes, Pace};
use crate::causes;
use crate::host::{DeviceNumber, HeldDevice, HeldFor, Host, HostError};
use crate::lvm::{VolumeGroup, tags};
use crate::node::{Found, device_node, record};
use crate::panics::caught;
use crate::volume::{FsKind, Mode, VolumeError, VolumeKey, Wipe};

/// One call to the kernel zeroes this much: long enough to be cheap, short enough to show progress.
const PIECE: u64 = 1 << 30;
/// After this much a long wipe writes down how far it is.
const WRITE_DOWN_EVERY: u64 = 16 << 30;
/// The ends of a device, where signatures stand.
const END: u64 = 1 << 20;
/// Where btrfs keeps copies of its superblock, each of 4 KiB.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

/// What has to be zero before a new volume is handed out.
///
/// A raw block volume shows every byte, so all of it. A file system shows only what was written
/// through it, so the places where signatures stand.
pub(super) fn before_first_use(mode: Mode, size: Bytes) -> Vec<Range<u64>> {
    let size = size.get();
    match mode {
        Mode::Block => vec![whole(size)],
        Mode::Filesystem(kind) => {
            let mut ranges = ends(0..size);
            if kind == FsKind::Btrfs {
                let copies = BTRFS_COPIES.iter().map(|at| *at..at + 4096);
                ranges.extend(copies.filter(|copy| copy.end <= size));
            }
            ranges
        }
    }
}

#[allow(clippy::single_range_in_vec_init)] // It is a list of ranges that has one.
fn whole(size: u64) -> Range<u64> {
    0..size
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
    /// The volume.
    pub key: VolumeKey,
    /// The dm uuid of its device, or of the one that is to join it.
    pub uuid: String,
    /// The device.
    pub device: PathBuf,
    /// What to wipe, in this order.
    pub ranges: Vec<Range<u64>>,
    /// How many bytes beside these were wiped before the driver was started anew.
    pub before: u64,
    /// How: [`Wipe::Discard`] trusts the disk, anything else writes zeroes.
    pub how: Wipe,
    /// Where to write down the progress: the group and the logical volume.
    pub write_down: Option<(Arc<VolumeGroup>, String)>,
}

impl Task {
    /// Zeroes over these ranges of a volume's device.
    pub fn new(found: &Found, device: PathBuf, ranges: Vec<Range<u64>>) -> Task {
        let (key, uuid) = (found.record.id.key().clone(), found.dm_uuid());
        Task { key, uuid, device, ranges, before: 0, how: Wipe::Zero, write_down: None }
    }
}

/// The wipes under way.
#[derive(Debug)]
pub(super) struct Wipes {
    jobs: Mutex<HashMap<VolumeKey, Job>>,
    /// Bytes since the start.
    wiped: Arc<AtomicU64>,
    host: Arc<dyn Host>,
    /// Bytes a second, all wipes together do not know of each other; `None`: as fast as it goes.
    rate: Option<Bytes>,
    /// How long a caller waits before it is told to ask again.
    patience: Duration,
}

#[derive(Debug, Clone)]
struct Job {
    uuid: String,
    began: Instant,
    before: u64,
    done: Arc<AtomicU64>,
    total: u64,
    ended: watch::Receiver<Option<Result<(), String>>>,
}

impl Job {
    /// How much of the whole is done; a restart of the driver does not begin at nothing.
    fn done(&self) -> u64 {
        self.before + self.done.load(Ordering::Relaxed)
    }

    fn progress(&self) -> String {
        let (done, of) = (self.done(), self.before + self.total);
        let pace = Pace::of(done - self.before, of.saturating_sub(done), self.began.elapsed());
        format!("{}{pace}", progress_text(done, of))
    }
}

impl Wipes {
    pub fn new(host: Arc<dyn Host>, rate: Option<Bytes>, patience: Duration) -> Self {
        Wipes { jobs: Mutex::default(), wiped: Arc::default(), host, rate, patience }
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, HashMap<VolumeKey, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much was wiped since the start.
    pub fn wiped(&self) -> Bytes {
        Bytes::new(self.wiped.load(Ordering::Relaxed))
    }

    /// How much of a volume's wipe is done, also before a restart of the driver; `None` if there is none,
    /// under way or not asked after yet.
    pub fn progress(&self, key: &VolumeKey) -> Option<Bytes> {
        self.jobs().get(key).map(|job| Bytes::new(job.done()))
    }

    /// Whether a wipe for the volume is under way.
    pub fn runs(&self, key: &VolumeKey) -> bool {
        self.jobs().get(key).is_some_and(|job| job.ended.borrow().is_none())
    }

    /// The wipes under way, each with its progress in words.
    pub fn under_way(&self) -> Vec<(VolumeKey, String)> {
        let jobs = self.jobs();
        let running = jobs.iter().filter(|(_, job)| job.ended.borrow().is_none());
        running.map(|(key, job)| (key.clone(), job.progress())).collect()
    }

    /// Start a wipe without waiting for it; one that is under way for the volume goes on.
    pub fn start(&self, task: Task) {
        self.join(task);
    }

    /// Wipe, or join the wipe of the same logical volume, and wait for its end; durable then.
    ///
    /// # Errors
    /// [`VolumeError::Working`] with the progress when the patience is over; the wipe goes on.
    /// [`VolumeError::Unavailable`] if the disk fails.
    pub async fn wipe(&self, task: Task) -> Result<(), VolumeError> {
        let key = task.key.clone();
        // That another device of the volume was wiped says nothing of this one.
        if self.job(&key).is_some_and(|job| job.uuid != task.uuid) {
            self.settle(&key).await?;
        }
        let job = self.join(task);
        self.wait(&key, job).await
    }

    /// Wait for the wipe that is under way for a volume, whatever it wipes and however it ends.
    ///
    /// # Errors
    /// [`VolumeError::Working`] when the patience is over.
    pub async fn settle(&self, key: &VolumeKey) -> Result<(), VolumeError> {
        let Some(job) = self.job(key) else { return Ok(()) };
        match self.wait(key, job).await {
            Err(working @ VolumeError::Working { .. }) => Err(working),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn job(&self, key: &VolumeKey) -> Option<Job> {
        self.jobs().get(key).cloned()
    }

    async fn wait(&self, key: &VolumeKey, job: Job) -> Result<(), VolumeError> {
        let mut ended = job.ended.clone();
        let ended = tokio::time::timeout(self.patience, ended.wait_for(Option::is_some)).await;
        let outcome = match ended {
            Ok(Ok(outcome)) => outcome.clone(),
            Ok(Err(_)) => Some(Err("the wipe stopped".to_owned())),
            Err(_) => None,
        };
        match outcome {
            None => {
                Err(VolumeError::Working { what: "wiping".to_owned(), progress: job.progress() })
            }
            Some(result) => {
                self.jobs().remove(key);
                result.map_err(|reason| VolumeError::Unavailable { reason })
            }
        }
    }

    fn join(&self, task: Task) -> Job {
        let mut jobs = self.jobs();
        if let Some(job) = jobs.get(&task.key) {
            return job.clone();
        }
        let total = task.ranges.iter().map(|range| range.end - range.start).sum();
        let (tell, ended) = watch::channel(None);
        let (uuid, before, began) = (task.uuid.clone(), task.before, Instant::now());
        let job = Job { uuid, began, before, done: Arc::default(), total, ended };
        jobs.insert(task.key.clone(), job.clone());
        let (host, rate, done) = (self.host.clone(), self.rate, job.done.clone());
        let wiped = self.wiped.clone();
        tokio::spawn(async move {
            let result = match caught("wipes", run(host.as_ref(), &task, rate, &done)).await {
                Ok(result) => result.map_err(|error| causes::in_full(&error)),
                Err(panicked) => Err(panicked.to_string()),
            };
            wiped.fetch_add(done.load(Ordering::Relaxed), Ordering::Relaxed);
            let _ = tell.send(Some(result));
        });
        job
    }
}

fn progress_text(done: u64, total: u64) -> String {
    let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100);
    format!("{percent} % ({} of {})", Bytes::new(done), Bytes::new(total))
}

async fn run(
    host: &dyn Host,
    task: &Task,
    rate: Option<Bytes>,
    done: &AtomicU64,
) -> Result<(), HostError> {
    let begin = Instant::now();
    let device = hold(host, &task.uuid, &task.device, HeldFor::Writing).await?;
    let mut written_down = 0;
    for range in &task.ranges {
        let mut at = range.start;
        while at < range.end {
            let piece = at..range.end.min(at + piece_at(rate));
            at = piece.end;
            let length = piece.end - piece.start;
            match task.how {
                Wipe::Discard => discard_or_zero(device.as_ref(), piece).await?,
                Wipe::Zero | Wipe::None => device.write_zeroes(piece).await?,
            }
            let so_far = done.fetch_add(length, Ordering::Relaxed) + length;
            if so_far - written_down >= WRITE_DOWN_EVERY {
                written_down = so_far;
                device.flush().await?;
                write_down(task, at).await;
            }
            if let Some(rate) = rate {
                tokio::time::sleep_until(begin + time_for(so_far, rate)).await;
            }
        }
    }
    device.flush().await
}

/// Hold the device of a volume open, so that it stays this one. The number of a device that was removed
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

/// Discard, or write zeroes where the disk knows no discard.
async fn discard_or_zero(device: &dyn HeldDevice, piece: Range<u64>) -> Result<(), HostError> {
    match device.discard(piece.clone()).await {
        Err(error) if error.errno() == Some(EOPNOTSUPP) => device.write_zeroes(piece).await,
        answer => answer,
    }
}

/// The size of a piece: a second's worth where there is a rate.
fn piece_at(rate: Option<Bytes>) -> u64 {
    rate.map_or(PIECE, |rate| rate.get().clamp(END, PIECE))
}

/// How long it takes to write so much at this rate.
fn time_for(bytes: u64, rate: Bytes) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(rate.get().max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// Note in a tag that everything before `wiped` is done. Failing to is no harm: a restart would do
/// a part again.
async fn write_down(task: &Task, wiped: u64) {
    let Some((group, lv)) = &task.write_down else {
        return;
    };
    let Ok(turn) = group.turn().await else { return };
    let Ok(seen) = turn.read().await else { return };
    let Some(now) = seen.lvs.get(lv) else { return };
    let old = tags::find(&now.tags, record::WIPED).into_iter().collect::<Vec<_>>();
    if let Err(error) = turn.retag(lv, &old, &[record::wiped_tag(Bytes::new(wiped))]).await {
        let error = causes::in_full(&error);
        tracing::warn!(lv, error, "the progress of a wipe could not be written down");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_needs_only_the_places_of_signatures() {
        let mib = 1 << 20;
        assert_eq!(before_first_use(Mode::Block, Bytes::mib(8)), vec![whole(8 * mib)]);
        let ext4 = Mode::Filesystem(FsKind::Ext4);
        assert_eq!(before_first_use(ext4, Bytes::mib(8)), vec![0..mib, 7 * mib..8 * mib]);
        assert_eq!(before_first_use(ext4, Bytes::mib(2)), vec![whole(2 * mib)]);
        let btrfs = Mode::Filesystem(FsKind::Btrfs);
        assert_eq!(
            before_first_use(btrfs, Bytes::mib(128)),
            vec![0..mib, 127 * mib..128 * mib, 64 * mib..64 * mib + 4096]
        );
        assert_eq!(before_first_use(btrfs, Bytes::mib(64)), vec![0..mib, 63 * mib..64 * mib]);
    }

    #[test]
    fn a_rate_is_in_bytes_a_second() {
        let rate = Bytes::mib(100);
        assert_eq!(time_for(200 << 20, rate), Duration::from_secs(2));
        assert_eq!(piece_at(Some(rate)), 100 << 20, "a second's worth");
        assert_eq!(piece_at(Some(Bytes::kib(1))), END);
        assert_eq!(piece_at(Some(Bytes::gib(9))), PIECE);
        assert_eq!(piece_at(None), PIECE);
    }

    #[test]
    fn progress_is_told_in_percent_and_sizes() {
        assert_eq!(progress_text(1 << 30, 4 << 30), "25 % (1 GiB of 4 GiB)");
        assert_eq!(progress_text(0, 0), "100 % (0 B of 0 B)");
    }

    #[tokio::test(start_paused = true)]
    async fn progress_has_a_pace_and_goes_on_after_a_restart() {
        let job = Job {
            uuid: String::new(),
            began: Instant::now(),
            before: 2 << 30,
            done: Arc::default(),
            total: 2 << 30,
            ended: watch::channel(None).1,
        };
        assert_eq!(job.progress(), "50 % (2 GiB of 4 GiB)", "nobody knows yet how fast it is");
        job.done.store(1 << 30, Ordering::Relaxed);
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(job.progress(), "75 % (3 GiB of 4 GiB), 128 MiB/s, 8 s left");
    }
}
