//! One line a step, with a tick and its time.

use std::io::{self, Write};
use std::time::Instant;

use crate::cli;

/// Prints steps.
pub(super) struct Tell {
    styled: bool,
}

/// A step in progress; one that is dropped before it is done prints that it failed.
pub(super) struct TestStep<'a> {
    tell: &'a Tell,
    name: &'static str,
    begin: Instant,
    done: bool,
}

impl Tell {
    pub fn new() -> Self {
        let styled = cli::styled(&io::stdout());
        Tell { styled }
    }

    /// Prints a line that is not a step.
    pub fn line(text: &str) {
        // A closed output is no reason to stop: the volume still has to be deleted.
        let _ = writeln!(io::stdout().lock(), "{text}");
    }

    /// Prints a heading.
    pub fn heading(&self, text: &str) {
        Self::line(&if self.styled {
            format!("\n\x1b[1m{text}\x1b[0m")
        } else {
            format!("\n{text}")
        });
    }

    /// Begins a step.
    pub fn begin(&self, name: &'static str) -> TestStep<'_> {
        TestStep { tell: self, name, begin: Instant::now(), done: false }
    }
}

impl TestStep<'_> {
    /// Prints that the step is done, and its duration.
    pub fn done(mut self, what: &str) {
        self.done = true;
        self.line("\x1b[32m", '✓', what);
    }

    fn line(&self, colour: &str, mark: char, what: &str) {
        let took = self.begin.elapsed().as_secs_f64() * 1000.0;
        let end = if self.tell.styled { "\x1b[0m" } else { "" };
        let colour = if self.tell.styled { colour } else { "" };
        Tell::line(&format!("  {colour}{mark}{end} {:<10} {took:>8.1} ms  {what}", self.name));
    }
}

impl Drop for TestStep<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.line("\x1b[31m", '✗', "failed");
        }
    }
}
