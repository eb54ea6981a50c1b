//! Contains panics: a panic in the work for one object affects only that object. It is caught,
//! counted, and reported.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;

/// After a panic, which the same work would meet again.
pub const AFTER_PANIC: Duration = Duration::from_secs(60);

/// Message of a panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("internal error: {0}")]
pub struct Panicked(pub String);

/// How many panics were caught since the start, by what they were in. Its scope is that of the figure: the process.
static CAUGHT: LazyLock<Mutex<BTreeMap<&'static str, u64>>> = LazyLock::new(Mutex::default);

/// Does the work for one object; a panic is counted, and does not affect the others.
///
/// # Errors
/// The panic message.
pub async fn caught<T>(
    work_for: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, Panicked> {
    // The work looks again when it is begun again, and keeps nothing of what it had.
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| counted(work_for, &*panic))
}

/// Like [`caught`], for synchronous work.
///
/// # Errors
/// The panic message.
pub fn caught_now<T>(work_for: &'static str, work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let done = std::panic::catch_unwind(AssertUnwindSafe(work));
    done.map_err(|panic| counted(work_for, &*panic))
}

/// Counts the panics that were caught since the start, by what the work was for.
pub fn panics() -> BTreeMap<&'static str, u64> {
    CAUGHT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn counted(work_for: &'static str, panic: &(dyn Any + Send)) -> Panicked {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    *CAUGHT.lock().unwrap_or_else(PoisonError::into_inner).entry(work_for).or_default() += 1;
    Panicked(said.unwrap_or("no details").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_what_it_said_and_is_counted() {
        assert_eq!(caught("test", async { 7 }).await, Ok(7));
        let said = caught("test", async { panic!("of {}", "one") }).await;
        assert_eq!(said, Err::<(), _>(Panicked("of one".to_owned())));
        let now = caught_now("test", || panic!("of another"));
        assert_eq!(now, Err::<(), _>(Panicked("of another".to_owned())));
        assert_eq!(panics().get("test"), Some(&2));
    }
}
