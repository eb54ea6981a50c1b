//! A panic in the work for one object is that object's trouble, and so is a call of it that never ends.

use std::fmt;
use std::time::Duration;

use kube::{Client, Resource};
use tokio::time::timeout;
use tracing::Span;

use crate::cluster::{OnceEvent, Record};
use crate::error_chain;
use crate::panics::{Panicked, caught};

/// The reason of the event on an object whose work ended in a panic.
pub const INTERNAL_ERROR: &str = "InternalError";

/// Timeout of a reconcile of one object. An observation of a thousand claims takes some seconds, and a webhook on a
/// namespace may take half a minute for each write.
pub const LONGEST_WORK: Duration = Duration::from_secs(120);

/// Timeout of the report of a panic: the API server may be what hangs.
const LONGEST_REPORT: Duration = Duration::from_secs(10);

/// Reason why a reconcile has no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfinished {
    /// It panicked.
    Panicked(Panicked),
    /// It took longer than [`LONGEST_WORK`], and was cancelled.
    TooLong,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfinished::Panicked(panicked) => panicked.fmt(f),
            Unfinished::TooLong => {
                write!(f, "timed out after {} s, as calls may hang", LONGEST_WORK.as_secs())
            }
        }
    }
}

/// Delay before a loop restarts after a panic.
const PAUSE: Duration = Duration::from_secs(10);

/// Runs a loop; after a panic it restarts with a delay, from the state of the cluster then.
pub async fn begun_again<F: Future<Output = ()>>(
    in_loop: &'static str,
    mut begin: impl FnMut() -> F,
) {
    while let Err(panicked) = caught(in_loop, Box::pin(begin())).await {
        tracing::error!(in_loop, %panicked, "restarting a loop after a panic");
        tokio::time::sleep(PAUSE).await;
    }
}

/// As [`caught`], for so long and no longer: what it has not done by then is not done.
///
/// # Errors
/// Why there is no outcome.
pub async fn caught_in_time<T>(
    in_loop: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, Unfinished> {
    let ended = timeout(LONGEST_WORK, caught(in_loop, work)).await;
    ended.map_err(|_| Unfinished::TooLong)?.map_err(Unfinished::Panicked)
}

/// Span of the reconcile of one object: each of its log lines names the object.
pub fn reconcile(controller: &'static str, object: impl fmt::Display) -> Span {
    let object = object.to_string();
    // At the highest level, so that no filter separates a line from its object.
    tracing::error_span!("reconcile", controller, object)
}

/// Reports on an object that its reconcile has no outcome.
pub async fn report_unfinished<K: Record>(
    client: &Client,
    writer: &str,
    object: &K,
    why: &Unfinished,
) {
    match why {
        Unfinished::Panicked(panicked) => report_panic(client, writer, object, panicked).await,
        // Not by an event: an API server that does not respond would not take it.
        Unfinished::TooLong => {
            let (kind, (namespace, name)) = (K::Object::kind(&()), object.place());
            tracing::warn!(%kind, name, namespace, error = %why, "reconcile timed out, retrying");
        }
    }
}

/// Reports on an object that its reconcile panicked; the log shows where.
pub async fn report_panic<K: Record>(
    client: &Client,
    writer: &str,
    object: &K,
    panicked: &Panicked,
) {
    let text =
        format!("{panicked}; this object is not reconciled for a while; report this with the log");
    let event = OnceEvent::of(object, (INTERNAL_ERROR, true), &panicked.0, &text);
    match timeout(LONGEST_REPORT, event.write(client, writer)).await {
        Ok(Err(error)) => {
            let error = error_chain::in_full(&error);
            tracing::warn!(event = event.name, error, "failed to write an event");
        }
        Err(_) => tracing::warn!(event = event.name, "failed to write an event in time"),
        Ok(Ok(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panics::panics;

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_begun_again_after_a_panic() {
        let mut begun = 0;
        begun_again("test loop", || {
            begun += 1;
            let begun = begun;
            async move { assert!(begun > 2) }
        })
        .await;
        assert_eq!((begun, panics().get("test loop")), (3, Some(&2)));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_never_ends_is_stopped() {
        assert_eq!(caught_in_time("hung", async { 7 }).await, Ok(7));
        let hung = caught_in_time("hung", std::future::pending::<()>()).await;
        assert_eq!(hung, Err(Unfinished::TooLong));
        let said = caught_in_time("hung", async { panic!("of it") }).await;
        assert_eq!(said, Err::<(), _>(Unfinished::Panicked(Panicked("of it".to_owned()))));
    }
}
