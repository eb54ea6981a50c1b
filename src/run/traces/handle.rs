//! What holds the sending of spans while a role runs.

use std::fmt;

use tracing_subscriber::{Layer, Registry};

/// Exporter of spans, beside the lines of the log.
pub type Spans = Box<dyn Layer<Registry> + Send + Sync>;

/// Handling of spans while a role runs.
#[derive(Default)]
pub struct Traces {
    pub(super) end: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("is_on", &self.end.is_some()).finish()
    }
}

impl Traces {
    /// Sends what is left. The runtime in which it began still has to run.
    pub fn end(self) {
        if let Some(end) = self.end {
            end();
        }
    }
}
