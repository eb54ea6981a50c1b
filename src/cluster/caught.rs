//! A panic in the work for one object is that object's trouble.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{LazyLock, Mutex, PoisonError};

use futures_util::FutureExt;
use kube::{Client, Resource};

use crate::causes;
use crate::cluster::OnceEvent;

/// The reason of the event on an object whose work ended in a panic.
pub const INTERNAL_ERROR: &str = "InternalError";

/// What a panic said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panicked(pub String);

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the program has an error: {}", self.0)
    }
}

/// How many panics were caught since the start, by what they were in. Its scope is that of the figure: the process.
static CAUGHT: LazyLock<Mutex<BTreeMap<&'static str, u64>>> = LazyLock::new(Mutex::default);

/// Do the work for one object of a loop; a panic of it is counted, and is no panic of the loop.
///
/// # Errors
/// What the panic said.
pub async fn caught<T>(
    in_loop: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, Panicked> {
    // The work reads the cluster again when it is begun again, and keeps nothing of what it had.
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        *CAUGHT.lock().unwrap_or_else(PoisonError::into_inner).entry(in_loop).or_default() += 1;
        Panicked(said.unwrap_or("it does not say which").to_owned())
    })
}

/// Count the panics that were caught since the start, by the loop that they were in.
pub fn panics() -> BTreeMap<&'static str, u64> {
    CAUGHT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Report on an object that the work for it ended in a panic; the log has where.
pub async fn report_panic<K: Resource<DynamicType = ()>>(
    client: &Client,
    writer: &str,
    object: &K,
    panicked: &Panicked,
) {
    let text = format!(
        "{panicked}; nothing is done about this object for a while; report it with the log"
    );
    let event = OnceEvent::of(object, (INTERNAL_ERROR, true), &panicked.0, &text);
    if let Err(error) = event.write(client, writer).await {
        let error = causes::in_full(&error);
        tracing::warn!(event = event.name, error, "failed to write an event");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_what_it_said_and_is_counted() {
        assert_eq!(caught("test", async { 7 }).await, Ok(7));
        let said = caught("test", async { panic!("of {}", "one") }).await;
        assert_eq!(said, Err::<(), _>(Panicked("of one".to_owned())));
        assert_eq!(panics().get("test"), Some(&1));
    }
}
