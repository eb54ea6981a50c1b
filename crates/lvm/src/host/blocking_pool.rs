//! System calls that may never come back, on threads that may be lost.
//!
//! A read of a hung disk cannot be cancelled: its thread is gone until the disk answers. So the
//! caller's waiting ends at its limit while the thread goes on, and one object (a device, a mount
//! point) gets a few threads at most, that a hung disk does not take those of the healthy ones.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::HostError;

/// How many calls on one object may be under way.
const CALLS: usize = 8;

/// The calls under way, by the object that they may hang on.
#[derive(Debug, Default)]
pub(super) struct BlockedCalls {
    objects: Mutex<HashMap<PathBuf, Arc<Object>>>,
}

#[derive(Debug)]
struct Object {
    permits: Arc<Semaphore>,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    deadlines: BTreeMap<u64, Instant>,
}

impl BlockedCalls {
    /// Runs a blocking call on a thread of its own and waits for it at most `limit`.
    ///
    /// Beyond eight calls on one object the next waits in line, without a thread. While one of them
    /// is past its limit, all others are rejected at once: each could block a thread for good, and
    /// a host with many volumes on a hung disk would soon have none left for the healthy ones. A
    /// caller that leaves does not end its call.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        what: String,
        object: &Path,
        limit: Duration,
        call: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, HostError> {
        let begin = Instant::now();
        let deadline = begin + limit;
        let object = self.object(object);
        if object.hangs() {
            return Err(HostError::TimedOut { what, limit });
        }
        let permits = Arc::clone(&object.permits);
        let Ok(Ok(permit)) = timeout_at(deadline, permits.acquire_owned()).await else {
            return Err(HostError::TimedOut { what, limit });
        };
        let slot = Slot::take(object, deadline, permit);
        let thread = tokio::task::spawn_blocking(move || {
            let _held = slot;
            call()
        });
        let ended = timeout_at(deadline, thread).await;
        tracing::trace!(what, took = ?begin.elapsed(), "call");
        match ended {
            Ok(Ok(answer)) => answer.map_err(|source| HostError::System { what, source }),
            Ok(Err(_)) => Err(HostError::Died { what }),
            Err(_) => Err(HostError::TimedOut { what, limit }),
        }
    }

    fn object(&self, path: &Path) -> Arc<Object> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.retain(|_, object| Arc::strong_count(object) > 1);
        let object = objects.entry(path.to_owned()).or_insert_with(|| {
            Arc::new(Object { permits: Arc::new(Semaphore::new(CALLS)), running: Mutex::default() })
        });
        Arc::clone(object)
    }
}

impl Object {
    /// Returns whether a call is overdue.
    fn hangs(&self) -> bool {
        let now = Instant::now();
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.deadlines.values().any(|at| *at <= now)
    }
}

/// One call's place; given back when the call has come back, not when its caller has left.
struct Slot {
    object: Arc<Object>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    fn take(object: Arc<Object>, deadline: Instant, permit: OwnedSemaphorePermit) -> Self {
        let number = {
            let mut running = object.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.next += 1;
            let number = running.next;
            running.deadlines.insert(number, deadline);
            number
        };
        Slot { object, number, _permit: permit }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut running = self.object.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.deadlines.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_answer_comes_back_and_an_errno_is_kept() {
        let waiting = BlockedCalls::default();
        let disk = Path::new("/dev/a");
        let answer = waiting.call("read".into(), disk, LONG, || Ok(7)).await;
        assert_eq!(answer.ok(), Some(7));
        let refused: Result<(), _> =
            waiting.call("read".into(), disk, LONG, || Err(io::Error::from_raw_os_error(5))).await;
        assert_eq!(refused.err().and_then(|error| error.errno()), Some(5));
    }

    #[tokio::test]
    async fn a_hung_disk_takes_one_thread_and_the_healthy_one_none() {
        let waiting = BlockedCalls::default();
        let hung = Path::new("/dev/hung");
        let object = waiting.object(hung);
        let (open, gate) = mpsc::channel::<()>();
        let call = move || {
            let _ = gate.recv();
            Ok(())
        };
        let error = waiting.call("flush".into(), hung, Duration::ZERO, call).await;
        assert!(matches!(error, Err(HostError::TimedOut { .. })));
        let no_thread = || -> io::Result<()> { unreachable!("no thread") };
        let turned_away = tokio::select! {
            biased;
            answer = waiting.call("flush".into(), hung, LONG, no_thread) => answer,
            () = std::future::ready(()) => panic!("it waits instead of being turned away"),
        };
        assert!(matches!(turned_away, Err(HostError::TimedOut { .. })));
        let healthy = waiting.call("flush".into(), Path::new("/dev/b"), LONG, || Ok(1)).await;
        assert_eq!(healthy.ok(), Some(1));

        drop(open);
        let all = object.permits.acquire_many(8).await.unwrap();
        assert!(object.running.lock().unwrap().deadlines.is_empty());
        drop(all);
        let back = waiting.call("flush".into(), hung, LONG, || Ok(2)).await;
        assert_eq!(back.ok(), Some(2));
    }
}
