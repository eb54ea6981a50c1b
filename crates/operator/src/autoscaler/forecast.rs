//! Forecast of when a claim is full, at the rate of its last two samples. Pure.

use crate::autoscaler::usage::SampledUsage;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Returns the time until a claim is full; `None` if its usage does not rise, or without two samples.
///
/// No sample came since the last one, so since then nearly nothing was written: the longer that is, the
/// longer the forecast.
pub(super) fn until_full(usage: SampledUsage, now: Timestamp) -> Option<SignedDuration> {
    let before = usage.before?;
    let seconds = now.max(usage.at).duration_since(before.at).as_secs();
    let left = |from: u64, used: u64, size: u64| {
        let written = used.checked_sub(from).filter(|written| *written > 0)?;
        let free = u128::from(size.saturating_sub(used));
        let left = free * u128::try_from(seconds).ok()? / u128::from(written);
        i64::try_from(left).ok().map(SignedDuration::from_secs)
    };
    let bytes = left(before.used.get(), usage.used.get(), usage.size.get());
    let inodes = left(before.inodes_used, usage.inodes_used, usage.inodes);
    let inodes = inodes.filter(|_| usage.inodes > 0);
    bytes.into_iter().chain(inodes).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autoscaler::usage::UsedBefore;
    use crate::bytes::Bytes;

    const MINUTE: i64 = 60;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// From so many percent of bytes and inodes at minute 0 to so many at minute 10.
    fn usage(from: (u64, u64), to: (u64, u64)) -> SampledUsage {
        let before = UsedBefore { at: at(0), used: Bytes::new(from.0), inodes_used: from.1 * 10 };
        SampledUsage {
            at: at(10 * MINUTE),
            size: Bytes::new(100),
            used: Bytes::new(to.0),
            inodes: 1000,
            inodes_used: to.1 * 10,
            before: Some(before),
        }
    }

    #[test]
    fn the_pace_of_two_samples_says_when_it_is_full() {
        for (from, to, minute, left) in [
            ((40, 0), (60, 0), 10, Some(20)),
            ((40, 0), (60, 0), 30, Some(60)),
            ((40, 0), (60, 0), 0, Some(20)),
            ((40, 10), (60, 60), 10, Some(8)),
            ((60, 0), (60, 0), 10, None),
            ((60, 0), (40, 0), 10, None),
            ((60, 20), (40, 60), 10, Some(10)),
            ((60, 0), (100, 0), 10, Some(0)),
        ] {
            let found = until_full(usage(from, to), at(minute * MINUTE));
            assert_eq!(found.map(|left| left.as_secs() / MINUTE), left, "{from:?} {to:?} {minute}");
        }
        let blind = SampledUsage { inodes: 0, ..usage((40, 10), (60, 60)) };
        assert_eq!(until_full(blind, at(0)).unwrap().as_secs(), 20 * MINUTE);
        let first = SampledUsage { before: None, ..usage((0, 0), (90, 0)) };
        assert_eq!(until_full(first, at(0)), None, "there is no decision without two samples");
        let together = UsedBefore { at: at(10 * MINUTE), ..blind.before.unwrap() };
        let together = SampledUsage { before: Some(together), ..blind };
        assert_eq!(until_full(together, at(0)).unwrap().as_secs(), 0);
    }
}
