//! Progress of a copy: reported as JSON lines, rate-limited, and stopped on request.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::outcome::CopyError;

/// How often it is reported at most.
const EVERY: Duration = Duration::from_secs(1);
/// The longest that it sleeps without looking whether it must stop.
const NAP: Duration = Duration::from_millis(200);

/// A count of what there is to do, or of what is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes, holes not among them.
    pub bytes: u64,
    /// Everything but directories.
    pub files: u64,
}

/// Reports progress.
pub struct ProgressReporter {
    out: Box<dyn Write + Send>,
    limit: Option<u64>,
    stop: Arc<AtomicBool>,
    phase: &'static str,
    all: Totals,
    done: Totals,
    /// Bytes of `done` that were read or written, and not passed by.
    paid: u64,
    began: Instant,
    told: Instant,
}

/// A line that tells how far it is.
#[derive(Debug, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct ProgressLine {
    phase: &'static str,
    bytes: u64,
    bytes_total: u64,
    files: u64,
    files_total: u64,
    /// Bytes a second.
    rate: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<u64>,
}

impl ProgressReporter {
    /// Reports to `out`, at most `limit` bytes a second, until the end or until `stop` is set.
    pub fn new(
        out: Box<dyn Write + Send>,
        limit: Option<u64>,
        stop: Arc<AtomicBool>,
    ) -> ProgressReporter {
        let (now, none) = (Instant::now(), Totals::default());
        let (began, told) = (now, now);
        ProgressReporter {
            out,
            limit,
            stop,
            phase: "start",
            all: none,
            done: none,
            paid: 0,
            began,
            told,
        }
    }

    /// Reports nothing, without a limit.
    pub fn silent() -> ProgressReporter {
        ProgressReporter::new(Box::new(std::io::sink()), None, Arc::default())
    }

    /// A silent copy for a concurrent operation, with the same limit and stop flag.
    pub fn beside(&self) -> ProgressReporter {
        ProgressReporter::new(Box::new(std::io::sink()), self.limit, self.stop.clone())
    }

    /// Maximum number of bytes a second.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The flag that stops the work.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Begins with a part of the work.
    pub fn begin(&mut self, phase: &'static str, all: Totals) {
        (self.phase, self.all, self.done, self.paid) = (phase, all, Totals::default(), 0);
        self.began = Instant::now();
    }

    /// Bytes were read or written.
    ///
    /// # Errors
    /// [`CopyError::Stopped`] if that was demanded.
    pub fn moved(&mut self, bytes: u64) -> Result<(), CopyError> {
        self.paid = self.paid.saturating_add(bytes);
        self.passed(bytes)?;
        while let Some(rest) = self.limit.and_then(|limit| wait(self.paid, limit, self.elapsed())) {
            std::thread::sleep(rest.min(NAP));
            self.look()?;
        }
        Ok(())
    }

    /// Counts bytes that did not have to be read.
    ///
    /// # Errors
    /// [`CopyError::Stopped`] if that was demanded.
    pub fn passed(&mut self, bytes: u64) -> Result<(), CopyError> {
        self.done.bytes = self.done.bytes.saturating_add(bytes);
        self.look()
    }

    /// A file is behind.
    ///
    /// # Errors
    /// [`CopyError::Stopped`] if that was demanded.
    pub fn file_done(&mut self) -> Result<(), CopyError> {
        self.done.files += 1;
        self.look()
    }

    /// Returns the progress so far.
    #[cfg(test)]
    pub fn done(&self) -> Totals {
        self.done
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn look(&mut self) -> Result<(), CopyError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(CopyError::Stopped);
        }
        if self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            let line = serde_json::to_string(&self.line(self.elapsed())).unwrap_or_default();
            // The copy goes on, whoever listens.
            let _ = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        }
        Ok(())
    }

    fn line(&self, elapsed: Duration) -> ProgressLine {
        let rate = u128::from(self.done.bytes) * 1000 / elapsed.as_millis().max(1);
        let left = u128::from(self.all.bytes.saturating_sub(self.done.bytes));
        let seconds_left = (rate > 0).then(|| u64::try_from(left.div_ceil(rate)).ok()).flatten();
        ProgressLine {
            phase: self.phase,
            bytes: self.done.bytes,
            // The source may have grown since it was counted.
            bytes_total: self.all.bytes.max(self.done.bytes),
            files: self.done.files,
            files_total: self.all.files.max(self.done.files),
            rate: u64::try_from(rate).unwrap_or(u64::MAX),
            seconds_left,
        }
    }
}

/// How long to wait after so many bytes in that time, so as not to be faster than the limit.
fn wait(bytes: u64, limit: u64, elapsed: Duration) -> Option<Duration> {
    let due = u128::from(bytes) * 1_000_000 / u128::from(limit.max(1));
    let due = Duration::from_micros(u64::try_from(due).unwrap_or(u64::MAX));
    due.checked_sub(elapsed).filter(|rest| !rest.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_by_waiting_for_the_rest() {
        let of = |bytes, ms| wait(bytes, 1 << 20, Duration::from_millis(ms));
        assert_eq!(of(1 << 20, 250), Some(Duration::from_millis(750)));
        assert_eq!(of(1 << 20, 1000), None);
        assert_eq!(of(1 << 20, 5000), None);
        assert_eq!(of(0, 0), None);
    }

    #[test]
    fn a_line_says_how_far_of_how_much_and_how_long_yet() {
        let mut progress = ProgressReporter::silent();
        progress.begin("copy", Totals { bytes: 1000, files: 4 });
        progress.moved(200).unwrap();
        progress.passed(50).unwrap();
        progress.file_done().unwrap();
        let line = serde_json::to_string(&progress.line(Duration::from_millis(500))).unwrap();
        let expected = r#"{"phase":"copy","bytes":250,"bytesTotal":1000,"files":1,"filesTotal":4,"rate":500,"secondsLeft":2}"#;
        assert_eq!(line, expected);
        progress.moved(2000).unwrap();
        let line = progress.line(Duration::from_secs(1));
        assert_eq!((line.bytes_total, line.seconds_left), (2250, Some(0)));
    }

    #[test]
    fn who_is_told_to_stop_stops_even_while_it_waits_for_its_rate() {
        let stop = Arc::new(AtomicBool::new(false));
        let mut progress = ProgressReporter::new(Box::new(std::io::sink()), Some(1), stop.clone());
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(progress.moved(1 << 40), Err(CopyError::Stopped)));
    }
}
