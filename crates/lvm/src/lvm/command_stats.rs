//! Durations and failures of the LVM commands on a volume group.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host::HostError;

/// Upper bounds of the steps in milliseconds: from a command in a warm shell to the limit after
/// which one is aborted.
pub const STEPS: [u64; 14] =
    [1, 3, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000, 30_000, 120_000];

/// Durations and failures of one LVM command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// Number of runs.
    pub runs: u64,
    /// Total duration of the runs.
    pub time: Duration,
    /// Number of runs that took no longer than each of [`STEPS`] and longer than the one before it;
    /// the others took longer than all.
    pub steps: [u64; STEPS.len()],
    /// Number of failures, by code.
    pub failed: BTreeMap<&'static str, u64>,
}

impl Spent {
    /// Counts a run, with its code if it failed.
    pub(super) fn count(&mut self, time: Duration, code: Option<&'static str>) {
        self.runs += 1;
        self.time += time;
        let step = STEPS.iter().position(|step| time <= Duration::from_millis(*step));
        if let Some(step) = step {
            self.steps[step] += 1;
        }
        if let Some(code) = code {
            *self.failed.entry(code).or_default() += 1;
        }
    }

    /// Counts those of another group too.
    pub fn add(&mut self, other: &Spent) {
        self.runs += other.runs;
        self.time += other.time;
        for (step, more) in self.steps.iter_mut().zip(other.steps) {
            *step += more;
        }
        for (code, more) in &other.failed {
            *self.failed.entry(code).or_default() += more;
        }
    }
}

/// The code of a command without a result.
pub(super) fn code_of(error: &HostError) -> &'static str {
    match error {
        HostError::NotStarted { .. } => "not-started",
        HostError::TimedOut { .. } => "timed-out",
        HostError::Died { .. } => "died",
        HostError::System { .. } => "system",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_how_long_they_took_and_how_they_failed() {
        let mut spent = Spent::default();
        spent.count(Duration::from_millis(1), None);
        spent.count(Duration::from_micros(1001), Some("failed"));
        spent.count(Duration::from_secs(600), Some("timed-out"));
        assert_eq!((spent.runs, spent.time), (3, Duration::from_micros(600_002_001)));
        assert_eq!(spent.steps[..3], [1, 1, 0]);
        assert_eq!(spent.steps.iter().sum::<u64>(), 2, "one took longer than all of them");
        let mut sum = spent.clone();
        sum.add(&spent);
        assert_eq!((sum.runs, sum.steps[..3].to_vec()), (6, vec![2, 2, 0]));
        assert_eq!(sum.failed, BTreeMap::from([("failed", 2), ("timed-out", 2)]));
    }
}
