//! A panic in the work for one object is that object's trouble, and so is a call of it that never ends.

use std::fmt;
use std::time::Duration;

use kube::{Client, Resource};
use tokio::time::timeout;
use tracing::Span;

use crate::causes;
use crate::cluster::{OnceEvent, Record};
use crate::panics::{Panicked, caught};

/// The reason of the event on an object whose work ended in a panic.
pub const INTERNAL_ERROR: &str = "InternalError";

/// How long the work for one object of a loop may take. A look at a thousand claims takes some seconds, and a webhook
/// that guards a namespace may take half a minute for each write.
pub const LONGEST_WORK: Duration = Duration::from_secs(120);

/// How long the report of a panic may take: the API server may be what hangs.
const LONGEST_REPORT: Duration = Duration::from_secs(10);

/// Why the work for one object has no outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfinished {
    /// It ended in a panic.
    Panicked(Panicked),
    /// It took longer than [`LONGEST_WORK`], and goes on no more.
    TooLong,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfinished::Panicked(panicked) => panicked.fmt(f),
            Unfinished::TooLong => {
                write!(f, "no outcome after {} s, as of calls that hang", LONGEST_WORK.as_secs())
            }
        }
    }
}

/// Before a loop that ended in a panic is begun again.
const PAUSE: Duration = Duration::from_secs(10);

/// Run a loop; one that ends in a panic is begun again after a pause, from what the cluster has then.
pub async fn begun_again<F: Future<Output = ()>>(
    in_loop: &'static str,
    mut begin: impl FnMut() -> F,
) {
    while let Err(panicked) = caught(in_loop, Box::pin(begin())).await {
        tracing::error!(in_loop, %panicked, "beginning a loop again");
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

/// The span of the work of a loop for one object: each line of that work says whose it is.
pub fn reconcile(controller: &'static str, object: impl fmt::Display) -> Span {
    let object = object.to_string();
    // At the highest level, so that no filter separates a line from its object.
    tracing::error_span!("reconcile", controller, object)
}

/// Report on an object that the work for it has no outcome.
pub async fn report_unfinished<K: Record>(
    client: &Client,
    writer: &str,
    object: &K,
    why: &Unfinished,
) {
    match why {
        Unfinished::Panicked(panicked) => report_panic(client, writer, object, panicked).await,
        // Not by an event: whoever does not answer would not take it.
        Unfinished::TooLong => {
            let (kind, (namespace, name)) = (K::Object::kind(&()), object.place());
            tracing::warn!(%kind, name, namespace, error = %why, "work is stopped, and tried again");
        }
    }
}

/// Report on an object that the work for it ended in a panic; the log has where.
pub async fn report_panic<K: Record>(
    client: &Client,
    writer: &str,
    object: &K,
    panicked: &Panicked,
) {
    let text = format!(
        "{panicked}; nothing is done about this object for a while; report it with the log"
    );
    let event = OnceEvent::of(object, (INTERNAL_ERROR, true), &panicked.0, &text);
    match timeout(LONGEST_REPORT, event.write(client, writer)).await {
        Ok(Err(error)) => {
            let error = causes::in_full(&error);
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
