//! Copies one logical volume to another, behind the answer of a call: joined by whoever asks again.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bytes::{Bytes, Pace};
use crate::host::{HeldDevice, HeldFor, Host};
use crate::lvm::{Group, Lv, VgGuard};
use crate::node::error::failed;
use crate::node::found::Found;
use crate::node::lv_tags::StoredState;
use crate::node::rate::RateLimit;
use crate::node::transfers::{ReceivingDevice, RemoteContent};
use crate::node::wipe::{hold, progress_text};
use crate::panics::caught;
use crate::volume::{Layout, Reason, VolumeError, VolumeId};

/// How much one call to the kernel copies, or compares.
const PIECE: u64 = 64 << 20;
/// How much one call zeroes.
const ZEROES: u64 = 1 << 30;

/// A copy to be made.
#[derive(Debug, Clone)]
pub(super) struct LvCopy {
    /// The volume that is filled, or whose snapshot is.
    pub of: VolumeId,
    /// What is copied. It does not change any more.
    pub from: Found<()>,
    /// Size of the content. A copy-on-write snapshot has another size than what it shows.
    pub size: Bytes,
    /// What gets the content; it is tagged as `copying`.
    pub to: Found<()>,
    /// Ranges of the target behind the content that are to have zeroes.
    pub zeroes: Vec<Range<u64>>,
    /// The tags that say of the target that it is whole.
    pub whole: Vec<String>,
    /// True if `from` was only taken for this copy: it is removed at the end.
    pub ends_source: bool,
}

/// A copy of what another node has.
#[derive(Debug, Clone)]
pub(super) struct RemoteCopy {
    /// The volume that is filled.
    pub of: VolumeId,
    /// What is copied.
    pub from: Arc<dyn RemoteContent>,
    /// Size of the content.
    pub size: Bytes,
    /// What gets the content; it is tagged as `copying`.
    pub to: Found<()>,
    /// Ranges of the target behind the content that are to have zeroes.
    pub zeroes: Vec<Range<u64>>,
    /// The tags that say of the target that it is whole.
    pub whole: Vec<String>,
    /// True if some of the content may be there already.
    pub resumes: bool,
}

/// The copies under way.
#[derive(Debug)]
pub(super) struct Copies {
    jobs: Mutex<HashMap<String, CopyJob>>,
    host: Arc<dyn Host>,
    /// Bytes a second that all copies together may read.
    pub limit: Arc<RateLimit>,
    /// How long a caller waits before it is asked to retry.
    patience: Duration,
    /// Told at the end of each copy.
    news: watch::Sender<()>,
    /// Cancelled when the process is to end: then no one waits any more.
    leaving: CancellationToken,
}

#[derive(Debug, Clone)]
struct CopyJob {
    of: VolumeId,
    /// The logical volume that is copied.
    from: String,
    began: Instant,
    /// Bytes copied and bytes compared.
    done: Arc<AtomicU64>,
    total: u64,
    ended: watch::Receiver<Option<Result<(), CopyFailure>>>,
    stop: CancellationToken,
}

/// Why a copy did not come to its end.
#[derive(Debug, Clone)]
struct CopyFailure {
    /// True if its source is gone: the same copy can never be made.
    is_gone: bool,
    why: String,
}

impl From<&VolumeError> for CopyFailure {
    fn from(error: &VolumeError) -> CopyFailure {
        CopyFailure { is_gone: error.reason() == Reason::NotFound, why: error.to_string() }
    }
}

impl From<CopyFailure> for VolumeError {
    fn from(failure: CopyFailure) -> VolumeError {
        match failure {
            CopyFailure { is_gone: true, why } => {
                VolumeError::Reported { reason: Reason::NotFound, message: why }
            }
            CopyFailure { is_gone: false, why } => VolumeError::Unavailable { reason: why },
        }
    }
}

impl CopyJob {
    fn progress(&self) -> String {
        let done = self.done.load(Ordering::Relaxed);
        let pace = Pace::of(done, self.total.saturating_sub(done), self.began.elapsed());
        format!("{}{pace}", progress_text(done, self.total))
    }

    fn is_running(&self) -> bool {
        self.ended.borrow().is_none()
    }
}

impl Copies {
    pub fn new(host: Arc<dyn Host>, rate: Option<Bytes>, patience: Duration) -> Self {
        let (news, leaving) = (watch::Sender::new(()), CancellationToken::new());
        let limit = Arc::new(RateLimit::new(rate));
        Copies { jobs: Mutex::default(), host, limit, patience, news, leaving }
    }

    /// Ends all waits for a copy: the next start of the driver makes what is not whole again.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<String, CopyJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the progress of the copy to this logical volume in words; `None` if none is under way.
    pub fn progress(&self, target: &str) -> Option<String> {
        self.jobs().get(target).filter(|job| job.is_running()).map(CopyJob::progress)
    }

    /// The copies under way, each with its progress in words.
    pub fn under_way(&self) -> Vec<(VolumeId, String)> {
        let jobs = self.jobs();
        let running = jobs.values().filter(|job| job.is_running());
        running.map(|job| (job.of.clone(), job.progress())).collect()
    }

    /// As [`Copies::progress`], by the name of the logical volume alone.
    pub fn progress_to(&self, lv: &str) -> Option<String> {
        let jobs = self.jobs();
        let mut its = jobs.iter().filter(|(path, _)| path.rsplit('/').next() == Some(lv));
        its.find(|(_, job)| job.is_running()).map(|(_, job)| job.progress())
    }

    /// Returns the progress of a copy that reads this logical volume; `None` if none does.
    pub fn reader_of(&self, source: &str) -> Option<String> {
        let jobs = self.jobs();
        let mut readers = jobs.values().filter(|job| job.from == source && job.is_running());
        readers.next().map(CopyJob::progress)
    }

    /// Copies, or joins the copy to the same logical volume, and waits for its end; the target is whole, durably, then.
    ///
    /// # Errors
    /// [`VolumeError::InProgress`] when the patience is over; the copy goes on. [`VolumeError::Unavailable`] if it failed,
    /// [`Reason::NotFound`] if its source is gone.
    pub async fn finish(&self, copy: LvCopy) -> Result<(), VolumeError> {
        let target = copy.to.path();
        self.join(copy);
        self.settle(&target).await
    }

    /// As [`Copies::finish`], with what another node has.
    ///
    /// # Errors
    /// As [`Copies::finish`].
    pub async fn finish_remote(&self, copy: RemoteCopy) -> Result<(), VolumeError> {
        let target = copy.to.path();
        let (of, from, size) = (copy.of.clone(), format!("{:?}", copy.from), copy.size);
        let (host, limit) = (self.host.clone(), self.limit.clone());
        let receive = move |job: CopyJob| async move { receive(host, limit, &copy, job).await };
        self.begin((&target, of, from, size), receive);
        self.settle(&target).await
    }

    /// Waits for the copy to a logical volume, if one is under way.
    ///
    /// # Errors
    /// As [`Copies::finish`].
    pub async fn settle(&self, target: &str) -> Result<(), VolumeError> {
        let Some(job) = self.jobs().get(target).cloned() else { return Ok(()) };
        let mut ended = job.ended.clone();
        let ended = tokio::time::timeout(self.patience, ended.wait_for(Option::is_some));
        let outcome = match self.leaving.run_until_cancelled(ended).await {
            Some(Ok(Ok(outcome))) => outcome.clone(),
            Some(Ok(Err(_))) => {
                Some(Err(CopyFailure { is_gone: false, why: "the copy stopped".to_owned() }))
            }
            Some(Err(_)) | None => None,
        };
        let Some(outcome) = outcome else {
            let what = format!("copying to {target}");
            return Err(VolumeError::InProgress { what, progress: job.progress() });
        };
        self.jobs().remove(target);
        outcome.map_err(VolumeError::from)
    }

    /// Hears of the end of each copy.
    pub fn ends(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Stops the copy to a logical volume, and waits until it has.
    pub async fn stop(&self, target: &str) {
        let job = self.jobs().remove(target);
        if let Some(mut job) = job {
            job.stop.cancel();
            let _ = job.ended.wait_for(Option::is_some).await;
        }
    }

    /// Starts a copy without waiting for it; one that is under way to its target goes on.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`] if it was started before and has failed, once: then it may be started anew.
    pub fn start(&self, copy: LvCopy) -> Result<(), VolumeError> {
        let target = copy.to.path();
        let ended = self.jobs().get(&target).and_then(|job| job.ended.borrow().clone());
        if let Some(Err(failure)) = ended {
            self.jobs().remove(&target);
            return Err(failure.into());
        }
        self.join(copy);
        Ok(())
    }

    fn join(&self, copy: LvCopy) {
        let target = copy.to.path();
        let (of, from, size) = (copy.of.clone(), copy.from.path(), copy.size);
        let (host, limit) = (self.host.clone(), self.limit.clone());
        let make =
            move |job: CopyJob| async move { make(host.as_ref(), &limit, &copy, &job).await };
        self.begin((&target, of, from, size), make);
    }

    /// Begins a copy of so many bytes from one logical volume to another, unless one to it is under way.
    fn begin<Made>(
        &self,
        (target, of, from, size): (&str, VolumeId, String, Bytes),
        work: impl FnOnce(CopyJob) -> Made,
    ) where
        Made: Future<Output = Result<(), VolumeError>> + Send + 'static,
    {
        let mut jobs = self.jobs();
        if jobs.get(target).is_some_and(CopyJob::is_running) {
            return;
        }
        let (tell, ended) = watch::channel(None);
        let job = CopyJob {
            of,
            from,
            began: Instant::now(),
            done: Arc::default(),
            total: 2 * size.get(),
            ended,
            stop: CancellationToken::new(),
        };
        jobs.insert(target.to_owned(), job.clone());
        let (work, news, target) = (work(job), self.news.clone(), target.to_owned());
        tokio::spawn(async move {
            let made = caught("copies", work).await;
            let made = made
                .unwrap_or_else(|panicked| Err(VolumeError::Failed { what: panicked.to_string() }));
            if let Err(error) = &made {
                tracing::warn!(target, %error, "a copy ended early");
            }
            let _ = tell.send(Some(made.map_err(|error| CopyFailure::from(&error))));
            news.send_replace(());
        });
    }
}

/// Makes the copy, compares it, and notes that it is whole.
async fn make(
    host: &dyn Host,
    limit: &RateLimit,
    copy: &LvCopy,
    job: &CopyJob,
) -> Result<(), VolumeError> {
    copy_content(host, limit, copy, job).await?;
    let turn = copy.to.group.turn().await?;
    turn.read().await?;
    refuse_unless_wanted(copy).await?;
    note_whole(turn, &copy.to, &copy.whole).await?;
    let turn = copy.from.group.turn().await?;
    let source = &copy.from.lv.name;
    if copy.ends_source {
        turn.remove(source).await?;
        return Ok(());
    }
    drop(turn);
    copy.from.deactivate_if_idle(host).await
}

/// Receives what another node has, and notes that it is whole.
async fn receive(
    host: Arc<dyn Host>,
    limit: Arc<RateLimit>,
    copy: &RemoteCopy,
    job: CopyJob,
) -> Result<(), VolumeError> {
    let io = |what: &str| failed(format!("failed to {what} {}", copy.to.path()));
    let (device, target) = activate_and_hold(host.as_ref(), &copy.to, HeldFor::Writing).await?;
    refuse_unless_copying(&copy.to).await?;
    let is_thin = copy.to.lv.layout() == Layout::Thin;
    let (done, stop) = (job.done.clone(), job.stop.clone());
    let into = Arc::new(ReceivingDevice { host: host.clone(), device, is_thin, limit, done, stop });
    for range in copy.zeroes.iter().flat_map(zero_pieces) {
        goes_on(&job)?;
        into.write_zeroes(range).await.map_err(io("write zeroes to"))?;
    }
    copy.from.receive(copy.size, copy.resumes, into).await?;
    goes_on(&job)?;
    target.flush().await.map_err(io("flush"))?;
    drop(target);
    let turn = copy.to.group.turn().await?;
    turn.read().await?;
    refuse_unless_copying(&copy.to).await?;
    note_whole(turn, &copy.to, &copy.whole).await
}

async fn note_whole(turn: VgGuard, to: &Found<()>, whole: &[String]) -> Result<(), VolumeError> {
    turn.retag(&to.lv.name, &[&StoredState::Copying.tag()], whole).await?;
    turn.deactivate(&to.lv.name).await?;
    drop(turn);
    to.group.flush().await.map_err(VolumeError::from)
}

/// The logical volume as its group has it now.
async fn as_it_is(found: &Found<()>) -> Result<Option<Lv>, VolumeError> {
    let seen: Arc<Group> = found.group.read().await?;
    let now = seen.lvs.get(&found.lv.name).filter(|now| now.uuid == found.lv.uuid);
    Ok(now.cloned())
}

/// # Errors
/// [`VolumeError::Unavailable`] if the target does not wait for content any more.
async fn refuse_unless_copying(to: &Found<()>) -> Result<(), VolumeError> {
    let copying = StoredState::Copying.tag();
    if as_it_is(to).await?.is_some_and(|lv| lv.tags.contains(&copying)) {
        return Ok(());
    }
    let reason = format!("the content of {} is not wanted any more; retry", to.path());
    Err(VolumeError::Unavailable { reason })
}

/// # Errors
/// [`VolumeError::Unavailable`] if the target does not wait for content any more, or its source is being deleted: who
/// began the copy may have looked before another one came to its end.
async fn refuse_unless_wanted(copy: &LvCopy) -> Result<(), VolumeError> {
    let (copying, deleting) = (StoredState::Copying.tag(), StoredState::Deleting.tag());
    let (to, from) = (as_it_is(&copy.to).await?, as_it_is(&copy.from).await?);
    let is_wanted = to.is_some_and(|lv| lv.tags.contains(&copying));
    let is_there = from.is_some_and(|lv| !lv.tags.contains(&deleting));
    if is_wanted && is_there {
        return Ok(());
    }
    let (to, from) = (copy.to.path(), copy.from.path());
    let reason = format!("the copy from {from} to {to} is not wanted any more; retry");
    Err(VolumeError::Unavailable { reason })
}

/// Activates a logical volume, and holds it open: another copy that came to its end may deactivate it in between.
pub(super) async fn activate_and_hold(
    host: &dyn Host,
    found: &Found<()>,
    held_for: HeldFor,
) -> Result<(PathBuf, Box<dyn HeldDevice>), VolumeError> {
    let mut tries = 0..2;
    loop {
        let (device, _) = found.activate(host).await?;
        match hold(host, &found.dm_uuid(), &device, held_for).await {
            Ok(held) => return Ok((device, held)),
            Err(_) if tries.next().is_some() => {}
            Err(error) => return Err(failed(format!("failed to open {}", found.path()))(error)),
        }
    }
}

async fn copy_content(
    host: &dyn Host,
    limit: &RateLimit,
    copy: &LvCopy,
    job: &CopyJob,
) -> Result<(), VolumeError> {
    let io = |what: &str| failed(format!("failed to {what} {}", copy.to.path()));
    let (from, _source) = activate_and_hold(host, &copy.from, HeldFor::Programs).await?;
    let (to, target) = activate_and_hold(host, &copy.to, HeldFor::Writing).await?;
    refuse_unless_wanted(copy).await?;
    // A new chunk of a thin pool has zeroes already.
    let leave_zeroes = copy.to.lv.layout() == Layout::Thin;
    let piece = limit.piece(PIECE);
    for piece in pieces(copy.size.get(), piece) {
        goes_on(job)?;
        let copied = host.copy_range(&from, &to, piece.clone(), leave_zeroes).await;
        copied.map_err(io("copy to"))?;
        count(limit, job, &piece).await;
    }
    for range in copy.zeroes.iter().flat_map(zero_pieces) {
        goes_on(job)?;
        target.write_zeroes(range).await.map_err(io("write zeroes to"))?;
    }
    target.flush().await.map_err(io("flush"))?;
    for piece in pieces(copy.size.get(), piece) {
        goes_on(job)?;
        if !host.is_same(&from, &to, piece.clone()).await.map_err(io("compare"))? {
            return Err(VolumeError::Unavailable {
                reason: format!(
                    "{} differs from {} after the copy, between bytes {} and {}; see the kernel log for errors of \
                     its disks",
                    copy.to.path(),
                    copy.from.path(),
                    piece.start,
                    piece.end
                ),
            });
        }
        count(limit, job, &piece).await;
    }
    Ok(())
}

/// Counts a piece that was copied, or compared; waits as its limit says, unless it is to stop.
async fn count(limit: &RateLimit, job: &CopyJob, piece: &Range<u64>) {
    let bytes = piece.end - piece.start;
    job.done.fetch_add(bytes, Ordering::Relaxed);
    job.stop.run_until_cancelled(limit.count(bytes)).await;
}

fn goes_on(job: &CopyJob) -> Result<(), VolumeError> {
    if job.stop.is_cancelled() {
        return Err(VolumeError::Unavailable { reason: "the copy was stopped".to_owned() });
    }
    Ok(())
}

/// A range in parts that one call to the kernel zeroes.
fn zero_pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { start, end } = *range;
    pieces(end - start, ZEROES).map(move |part| start + part.start..start + part.end)
}

fn pieces(size: u64, piece: u64) -> impl Iterator<Item = Range<u64>> {
    (0..size.div_ceil(piece)).map(move |at| at * piece..size.min((at + 1) * piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_and_nothing_more() {
        let all: Vec<Range<u64>> = pieces(2 * PIECE + 4096, PIECE).collect();
        assert_eq!(all, [0..PIECE, PIECE..2 * PIECE, 2 * PIECE..2 * PIECE + 4096]);
        assert_eq!(pieces(0, PIECE).count(), 0);
    }
}
