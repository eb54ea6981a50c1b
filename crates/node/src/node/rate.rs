//! A limit of bytes a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::bytes::Bytes;

/// No piece of work is smaller.
const SMALLEST_PIECE: u64 = 1 << 20;

/// A limit that all share who have it; without a rate it limits nothing.
#[derive(Debug)]
pub(super) struct RateLimit {
    rate: Option<Bytes>,
    /// When all that was counted is done at the rate.
    free_at: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// A limit of so many bytes a second.
    pub fn new(rate: Option<Bytes>) -> RateLimit {
        RateLimit { rate, free_at: Mutex::default() }
    }

    /// The size of a piece of work, of which none is larger than `most`: small where there is a limit, so that those who
    /// share it take turns.
    pub fn piece(&self, most: u64) -> u64 {
        if self.rate.is_some() { most.min(SMALLEST_PIECE) } else { most }
    }

    /// Counts bytes, and waits until they and all that were counted before are done at the rate.
    pub async fn count(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let until = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let (now, took) = (Instant::now(), time_for(bytes, rate));
            let until = free_at.map_or(now, |free_at| free_at.max(now)) + took;
            *free_at = Some(until);
            until
        };
        sleep_until(until).await;
    }
}

/// The size of a piece: a second's worth where there is a rate, and never more than `most`.
pub(super) fn piece_at(rate: Option<Bytes>, most: u64) -> u64 {
    rate.map_or(most, |rate| rate.get().clamp(SMALLEST_PIECE.min(most), most))
}

/// How long so much takes at this rate.
pub(super) fn time_for(bytes: u64, rate: Bytes) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(rate.get().max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_in_bytes_a_second() {
        let rate = Bytes::mib(100);
        assert_eq!(time_for(200 << 20, rate), Duration::from_secs(2));
        assert_eq!(piece_at(Some(rate), 1 << 30), 100 << 20, "a second's worth");
        assert_eq!(piece_at(Some(Bytes::kib(1)), 1 << 30), SMALLEST_PIECE);
        assert_eq!(piece_at(Some(Bytes::gib(9)), 1 << 30), 1 << 30);
        assert_eq!(piece_at(None, 1 << 30), 1 << 30);
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_have_a_limit_share_it() {
        let limit = RateLimit::new(Some(Bytes::mib(10)));
        let began = Instant::now();
        let (first, second) = (limit.count(20 << 20), limit.count(10 << 20));
        tokio::join!(first, second);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        tokio::time::sleep(Duration::from_secs(60)).await;
        limit.count(10 << 20).await;
        assert_eq!(began.elapsed(), Duration::from_secs(64), "a pause is not made up for");
        RateLimit::new(None).count(u64::MAX).await;
        assert_eq!(began.elapsed(), Duration::from_secs(64));
    }
}
