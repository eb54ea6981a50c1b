//! Progress of a populator pod, from its log. Pure.

use std::fmt;

use serde::Deserialize;

use crate::bytes::{Bytes, Pace};

/// Log line of a populator pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct PodProgress {
    /// Bytes that are written.
    pub bytes: u64,
    /// Bytes that there are to write, as soon as that is known.
    #[serde(default, rename = "bytesTotal", alias = "of")]
    pub of: Option<u64>,
    /// Bytes in a second.
    #[serde(default)]
    pub rate: Option<u64>,
    /// Seconds that it will still take.
    #[serde(default, rename = "secondsLeft", alias = "left")]
    pub left: Option<u64>,
}

impl PodProgress {
    /// Parses the newest line with progress; other lines are for people.
    pub fn parse(log: &str) -> Option<PodProgress> {
        log.lines().rev().find_map(|line| serde_json::from_str(line).ok())
    }

    /// Returns the completed part, in percent; at most 99 while it runs.
    pub fn percent(&self) -> Option<i32> {
        let of = self.of.filter(|of| *of > 0)?;
        let percent = u128::from(self.bytes) * 100 / u128::from(of);
        i32::try_from(percent.min(99)).ok()
    }
}

impl fmt::Display for PodProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = Bytes::new(self.bytes);
        match (self.percent(), self.of) {
            (Some(percent), Some(of)) => write!(f, "{percent} % ({done} of {})", Bytes::new(of))?,
            _ => write!(f, "{done}")?,
        }
        write!(f, "{}", Pace { rate: self.rate, left: self.left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_line_of_progress_is_told() {
        let log = "starting\n{\"bytes\":1}\n{\"bytes\":1073741824,\"bytesTotal\":2147483648,\
                   \"rate\":1048576,\"secondsLeft\":1024}\nfsync\n";
        let progress = PodProgress::parse(log).unwrap();
        assert_eq!(progress.to_string(), "50 % (1 GiB of 2 GiB), 1 MiB/s, 18 min left");
        assert_eq!(PodProgress::parse("nothing yet\n"), None);
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let short = |bytes, of, left| PodProgress { bytes, of, rate: None, left }.to_string();
        assert_eq!(short(1 << 20, None, None), "1 MiB");
        assert_eq!(short(1 << 20, Some(0), Some(3)), "1 MiB, 3 s left");
        assert_eq!(short(1 << 20, Some(1 << 20), Some(7201)), "99 % (1 MiB of 1 MiB), 3 h left");
    }
}
