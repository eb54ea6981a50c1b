//! How often the file system of a volume is trimmed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::VolumeKey;

const HOUR: u64 = 3600;
/// A year.
const LONGEST: u64 = 8760 * HOUR;

/// Interval between two trims of a mounted file system, in whole hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimInterval(Duration);

impl TrimInterval {
    /// The shortest one.
    pub const SHORTEST: Duration = Duration::from_secs(HOUR);

    /// Returns when the volume of this key is next trimmed after a time since the epoch. Each volume has times of its own,
    /// which do not depend on when anything was started.
    pub fn next_after(self, now: Duration, key: &VolumeKey) -> Duration {
        let digest = Sha256::digest(key.as_str());
        let number = u64::from_be_bytes(std::array::from_fn(|at| digest[at]));
        let every = self.0.as_secs();
        let phase = number % every;
        let passed = (now.as_secs() + every - phase) / every;
        Duration::from_secs(passed * every + phase)
    }

    /// Its whole hours.
    pub fn hours(self) -> u64 {
        self.0.as_secs() / HOUR
    }

    /// An interval of so many hours; `None` outside its limits.
    pub fn of_hours(hours: u64) -> Option<TrimInterval> {
        let seconds = hours.checked_mul(HOUR).filter(|seconds| (HOUR..=LONGEST).contains(seconds));
        seconds.map(|seconds| TrimInterval(Duration::from_secs(seconds)))
    }
}

impl FromStr for TrimInterval {
    type Err = String;

    fn from_str(text: &str) -> Result<TrimInterval, String> {
        let hours = text.strip_suffix('h').and_then(|hours| hours.parse().ok());
        let interval = hours.and_then(TrimInterval::of_hours);
        interval.ok_or_else(|| format!("`{text}` is not an interval from 1h to 8760h"))
    }
}

impl fmt::Display for TrimInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}h", self.hours())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_volume_has_its_turn_once_an_interval() {
        let day: TrimInterval = "24h".parse().unwrap();
        let starts = [0, 1, 86_399, 1_795_000_000, 1_795_043_211].map(Duration::from_secs);
        for key in ["first", "second"].map(VolumeKey::of) {
            for now in starts {
                let next = day.next_after(now, &key);
                assert!(next > now && next <= now + day.0, "{next:?} after {now:?}");
                assert_eq!(day.next_after(next, &key), next + day.0);
                let before = Duration::from_secs(next.as_secs() - 1);
                assert_eq!(day.next_after(before, &key), next);
            }
        }
        let [first, second] =
            ["first", "second"].map(|name| day.next_after(starts[3], &VolumeKey::of(name)));
        assert_ne!(first, second, "they do not all come at once");
    }

    #[test]
    fn an_interval_is_read_as_it_is_written() {
        for text in ["1h", "24h", "8760h"] {
            assert_eq!(text.parse::<TrimInterval>().unwrap().to_string(), text);
        }
        for text in ["", "h", "0h", "8761h", "24", "1d", "-1h", "1.5h", "99999999999999999999h"] {
            let error = text.parse::<TrimInterval>().unwrap_err();
            assert_eq!(error, format!("`{text}` is not an interval from 1h to 8760h"));
        }
        assert_eq!(TrimInterval::of_hours(u64::MAX), None);
    }
}
