//! The hour of the day, for loops that compare it with what was written.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The hour of the day, which goes on as steadily as pauses do.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Timestamp,
    since: Instant,
}

impl Clock {
    /// Begin with what the machine says.
    pub fn start() -> Clock {
        Clock { began: Timestamp::now(), since: Instant::now() }
    }

    /// Returns the hour.
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.since.elapsed()).unwrap_or_default();
        self.began.checked_add(passed).unwrap_or(self.began)
    }
}
