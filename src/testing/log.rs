//! What is logged.

use std::cell::RefCell;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::sync::Once;

use serde_json::Value;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// The lines of all levels that are logged on this thread while this is there; a runtime of one thread logs there.
#[derive(Debug)]
pub struct Lines {
    /// It is of one thread.
    _here: PhantomData<*const ()>,
}

thread_local! {
    /// What this thread has logged, if that is kept.
    static KEPT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// One log for all threads: with one for each of them, what another thread logged first might never be logged here.
static LOG: Once = Once::new();

impl Lines {
    /// Keep what is logged on this thread from now on. A test whose process has another log cannot have this one.
    pub fn begin() -> Lines {
        LOG.call_once(|| {
            let if_kept = dynamic_filter_fn(|_, _| KEPT.with_borrow(Option::is_some));
            let lines = fmt::layer().json().with_writer(|| Kept);
            registry().with(lines.with_filter(if_kept)).init();
        });
        KEPT.set(Some(Vec::new()));
        Lines { _here: PhantomData }
    }

    /// Those so far in which this is: each an object with `level`, `fields` and `span`.
    pub fn with(&self, text: &str) -> Vec<Value> {
        let written = KEPT.with_borrow(|kept| kept.clone().unwrap_or_default());
        let all = String::from_utf8(written).expect("a log is text");
        let found = all.lines().filter(|line| line.contains(text));
        found.map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        KEPT.set(None);
    }
}

/// What is written is kept on the thread that writes.
struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        KEPT.with_borrow_mut(|kept| kept.iter_mut().for_each(|kept| kept.extend(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
