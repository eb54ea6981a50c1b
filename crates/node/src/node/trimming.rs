//! Which file system is being trimmed: a call of the kernel holds its directory open, and an unmount is refused then.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long an unmount waits for a call.
const SETTLES: Duration = Duration::from_secs(20);

/// The device whose file system is being trimmed, by its dm uuid.
#[derive(Debug, Default)]
pub(super) struct Trimming(watch::Sender<Option<String>>);

/// One call to the kernel, until it is dropped.
pub(super) struct TrimCall<'a>(&'a Trimming);

impl Trimming {
    /// Notes that a call begins.
    pub fn begin(&self, dm_uuid: &str) -> TrimCall<'_> {
        self.0.send_replace(Some(dm_uuid.to_owned()));
        TrimCall(self)
    }

    /// Waits until no call holds this device's file system, and no longer than a caller waits. After a call there is time to
    /// unmount before the next.
    pub async fn settle(&self, dm_uuid: &str) {
        let mut now = self.0.subscribe();
        let is_over = now.wait_for(|now| now.as_deref() != Some(dm_uuid));
        // If it is not over, the unmount is refused and asked for again.
        let _ = timeout(SETTLES, is_over).await;
    }
}

impl Drop for TrimCall<'_> {
    fn drop(&mut self) {
        self.0.0.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unmount_waits_for_a_call_on_its_own_device() {
        let trimming = Trimming::default();
        let began = Instant::now();
        let call = async {
            let _call = trimming.begin("one");
            sleep(Duration::from_secs(3)).await;
        };
        let waits = async {
            trimming.settle("another").await;
            assert_eq!(began.elapsed(), Duration::ZERO);
            trimming.settle("one").await;
            assert_eq!(began.elapsed(), Duration::from_secs(3));
        };
        tokio::join!(call, waits);
        let _hangs = trimming.begin("one");
        trimming.settle("one").await;
        assert_eq!(began.elapsed(), Duration::from_secs(3) + SETTLES);
    }
}
