//! Trims mounted file systems whose class wants it: what they do not use goes back to their thin pool, and to the disk.

use std::ops::Range;
use std::sync::Weak;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc::{EINVAL, ENOENT, EOPNOTSUPP, ESTALE};
use tokio::time::{Instant, sleep, sleep_until};

use crate::bytes::Bytes;
use crate::node::Node;
use crate::node::error::failed;
use crate::node::usages::{Mounted, mounted};
use crate::panics::{AFTER_PANIC, caught};
use crate::volume::{FsKind, Mode, TrimInterval, VolumeError};

/// One call to the kernel trims this much: an unmount waits for no more.
const PIECE: u64 = 1 << 30;
/// After a piece nothing is trimmed for so many times as long as that took: writers have the disk nine tenths of the time.
const PAUSE: u32 = 9;
/// And never longer, or one slow file system keeps all others waiting.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After the mounts could not be read.
const AGAIN: Duration = Duration::from_secs(60);

/// The time, which no other clock moves once this has started.
struct TrimClock {
    began: Instant,
    epoch: Duration,
}

impl TrimClock {
    fn start() -> TrimClock {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        TrimClock { began: Instant::now(), epoch }
    }

    fn now(&self) -> Duration {
        self.epoch + self.began.elapsed()
    }

    fn at(&self, time: Duration) -> Instant {
        self.began + time.saturating_sub(self.epoch)
    }
}

/// Trims each mounted file system when its interval says so, one after the other, until the node is dropped.
pub async fn keep_trimmed(node: Weak<Node>) {
    let clock = TrimClock::start();
    let mut done = clock.now();
    loop {
        let now = clock.now();
        let mut looked = true;
        // No interval is shorter, so that a volume that comes meanwhile misses nothing.
        let mut next = now + TrimInterval::SHORTEST;
        {
            let Some(node) = node.upgrade() else { return };
            match caught("trims", trim_due(&node, done, now)).await {
                Ok(Ok(Some(soonest))) => next = next.min(soonest),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "failed to look for file systems to trim, retrying");
                    (looked, next) = (false, clock.now() + AGAIN);
                }
                Err(panicked) => {
                    tracing::error!(%panicked, "failed to trim file systems");
                    sleep(AFTER_PANIC).await;
                }
            }
        }
        if looked {
            done = now;
        }
        sleep_until(clock.at(next)).await;
    }
}

/// Trims those whose time came after `done`, and not after `now`; the soonest time after that.
async fn trim_due(
    node: &Node,
    done: Duration,
    now: Duration,
) -> Result<Option<Duration>, VolumeError> {
    let mut soonest: Option<Duration> = None;
    for one in mounted(node).await? {
        let Some(every) = one.trim else { continue };
        let next = every.next_after(now, one.id.key());
        soonest = Some(soonest.map_or(next, |soonest| soonest.min(next)));
        if every.next_after(done, one.id.key()) > now {
            continue;
        }
        match trim(node, &one).await {
            Ok(bytes) => {
                tracing::info!(volume = %one.id, bytes = bytes.get(), "trimmed the file system");
            }
            Err(error) => {
                tracing::warn!(volume = %one.id, %error, "failed to trim the file system");
            }
        }
    }
    Ok(soonest)
}

/// Trims one; returns how many bytes its file system gave back. Nothing if its device takes none, or it is gone.
async fn trim(node: &Node, one: &Mounted) -> Result<Bytes, VolumeError> {
    let mut all = 0;
    for range in pieces(one.mode, one.size) {
        let info = node.host.dm_info(&one.dm_uuid).await.map_err(failed("device-mapper"))?;
        let Some(info) = info else { break };
        if info.suspended {
            let reason = "its device is suspended; it is trimmed at its next time".to_owned();
            return Err(VolumeError::Unavailable { reason });
        }
        let began = Instant::now();
        let trimmed = {
            let _now = node.trimming.begin(&one.dm_uuid);
            node.host.trim(&one.at, info.number, range.clone()).await
        };
        match trimmed {
            Ok(bytes) => all += bytes.get(),
            // It is a little smaller than its device.
            Err(error) if error.errno() == Some(EINVAL) && range.start > 0 => break,
            // It takes none, or it is unmounted.
            Err(error) if matches!(error.errno(), Some(EOPNOTSUPP | ESTALE | ENOENT)) => break,
            Err(error) => return Err(failed("failed to trim the file system")(error)),
        }
        sleep((began.elapsed() * PAUSE).min(LONGEST_PAUSE)).await;
    }
    Ok(Bytes::new(all))
}

/// What is trimmed by one call each. A btrfs has addresses of its own, of which no part is a part of its device.
fn pieces(mode: Mode, size: Bytes) -> Vec<Range<u64>> {
    if mode == Mode::Filesystem(FsKind::Btrfs) {
        return std::iter::once(0..u64::MAX).collect();
    }
    let count = size.get().div_ceil(PIECE);
    (0..count).map(|at| at * PIECE..size.get().min((at + 1) * PIECE)).collect()
}
