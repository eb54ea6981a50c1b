//! Runs one operation per volume, to its end even if the caller leaves.
//!
//! When a gRPC client cancels a call, its handler is dropped at the next await. An operation that
//! changes a disk must not stop there, so it is spawned here. A second caller for the same volume
//! gets an error at once, or after a while, and finds the operation done when it retries.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast};

/// The volumes that are being worked on.
#[derive(Debug, Clone, Default)]
pub struct InFlight {
    shared: Arc<InFlightVolumes>,
}

#[derive(Debug)]
struct InFlightVolumes {
    keys: Mutex<HashSet<String>>,
    released: Notify,
    /// The keys of work that has ended, for those who wait for one.
    ended: broadcast::Sender<String>,
}

impl Default for InFlightVolumes {
    fn default() -> Self {
        InFlightVolumes {
            keys: Mutex::default(),
            released: Notify::default(),
            ended: broadcast::Sender::new(64),
        }
    }
}

/// Reason why an operation was not run.
#[derive(Debug, thiserror::Error)]
pub enum BusyError<E> {
    /// Another piece of work on the same volume is under way; nothing was started.
    #[error("another operation on this volume is in progress; retry")]
    Busy,
    /// The work panicked; its volume is free again.
    #[error("the operation ended in an internal error of the driver")]
    Fault,
    /// The work was done and failed.
    #[error(transparent)]
    Work(E),
}

struct InFlightGuard {
    shared: Arc<InFlightVolumes>,
    key: String,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        lock(&self.shared.keys).remove(&self.key);
        self.shared.released.notify_waiters();
        // Usually no one waits.
        let _ = self.shared.ended.send(self.key.clone());
    }
}

/// The ends of work on one volume from now on; see [`InFlight::ends`].
#[derive(Debug)]
pub struct Ends {
    key: String,
    ended: broadcast::Receiver<String>,
}

impl Ends {
    /// Waits until work on the volume ends.
    pub async fn next(&mut self) {
        loop {
            match self.ended.recv().await {
                Ok(key) if key != self.key => {}
                // So much has ended that it is not known what: look.
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

fn lock(keys: &Mutex<HashSet<String>>) -> std::sync::MutexGuard<'_, HashSet<String>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InFlight {
    /// Nothing is busy.
    pub fn new() -> Self {
        InFlight::default()
    }

    /// Runs `work` on the volume `key`, to its end, while no other work on that volume runs.
    ///
    /// # Errors
    /// [`BusyError::Busy`] at once while other work on the same key runs; else the error of the
    /// work.
    pub async fn run<T, E, F>(&self, key: &str, work: F) -> Result<T, BusyError<E>>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        self.run_within(Duration::ZERO, key, work).await
    }

    /// Runs `work` on the volume `key`, to its end, after waiting up to `patience` for other work
    /// on that volume.
    ///
    /// # Errors
    /// [`BusyError::Busy`] when the patience is over; else the error of the work.
    pub async fn run_within<T, E, F>(
        &self,
        patience: Duration,
        key: &str,
        work: F,
    ) -> Result<T, BusyError<E>>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let held = self.take(patience, key).await.ok_or(BusyError::Busy)?;
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(held);
            result
        });
        match task.await {
            Ok(result) => result.map_err(BusyError::Work),
            Err(_) => Err(BusyError::Fault),
        }
    }

    /// Takes note of the ends of work on the volume `key`, from now on.
    pub fn ends(&self, key: &str) -> Ends {
        Ends { key: key.to_owned(), ended: self.shared.ended.subscribe() }
    }

    /// Waits until no work is under way.
    pub async fn idle(&self) {
        loop {
            let mut released = std::pin::pin!(self.shared.released.notified());
            released.as_mut().enable();
            if lock(&self.shared.keys).is_empty() {
                return;
            }
            released.await;
        }
    }

    async fn take(&self, patience: Duration, key: &str) -> Option<InFlightGuard> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let mut released = std::pin::pin!(self.shared.released.notified());
            released.as_mut().enable(); // Before the look, so that no release is missed.
            if lock(&self.shared.keys).insert(key.to_owned()) {
                return Some(InFlightGuard { shared: self.shared.clone(), key: key.to_owned() });
            }
            if patience.is_zero() || tokio::time::timeout_at(deadline, released).await.is_err() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_second_caller_is_told_at_once_and_others_go_on() {
        let busy = InFlight::new();
        let (finish, finished) = oneshot::channel::<()>();
        let first = tokio::spawn({
            let busy = busy.clone();
            async move { busy.run("a", async { finished.await.map_err(|_| ()) }).await }
        });
        while busy.take(Duration::ZERO, "a").await.is_some() {
            tokio::task::yield_now().await;
        }
        assert!(matches!(busy.run("a", async { Ok::<_, ()>(()) }).await, Err(BusyError::Busy)));
        assert!(busy.run("b", async { Ok::<_, ()>(()) }).await.is_ok());
        finish.send(()).unwrap();
        assert!(first.await.unwrap().is_ok());
        assert!(busy.run("a", async { Ok::<_, ()>(()) }).await.is_ok());
    }

    #[tokio::test]
    async fn work_goes_on_when_its_caller_leaves() {
        let busy = InFlight::new();
        let done = Arc::new(AtomicBool::new(false));
        let (finish, finished) = oneshot::channel::<()>();
        let call = busy.run("a", {
            let done = done.clone();
            async move {
                finished.await.map_err(|_| ())?;
                done.store(true, Ordering::SeqCst);
                Ok::<_, ()>(())
            }
        });
        {
            let mut call = std::pin::pin!(call);
            assert!(tokio::time::timeout(Duration::from_millis(1), &mut call).await.is_err());
        }
        finish.send(()).unwrap();
        let patience = Duration::from_secs(60);
        busy.run_within(patience, "a", async { Ok::<_, ()>(()) }).await.unwrap();
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn idle_is_when_no_work_is_under_way() {
        let busy = InFlight::new();
        let held = busy.take(Duration::ZERO, "a").await;
        let mut idle = std::pin::pin!(busy.idle());
        assert!(tokio::time::timeout(Duration::ZERO, &mut idle).await.is_err());
        drop(held);
        idle.await;
    }

    #[tokio::test]
    async fn the_end_of_work_is_told_to_who_waits_for_its_volume() {
        let busy = InFlight::new();
        let mut ends = busy.ends("a");
        busy.run("b", async { Ok::<_, ()>(()) }).await.unwrap();
        assert!(tokio::time::timeout(Duration::ZERO, ends.next()).await.is_err());
        busy.run("a", async { Ok::<_, ()>(()) }).await.unwrap();
        ends.next().await;
    }

    #[tokio::test]
    async fn a_panic_frees_the_volume() {
        let busy = InFlight::new();
        let fault = busy.run("a", async { panic!("on purpose") as Result<(), ()> }).await;
        assert!(matches!(fault, Err(BusyError::Fault)));
        assert!(busy.run("a", async { Ok::<_, ()>(()) }).await.is_ok());
    }
}
