//! One line a step, with a tick and its time.

use std::io::{self, Write};
use std::time::Instant;

use crate::cli;

/// Where steps are told.
pub(super) struct Tell {
    styled: bool,
}

/// A step under way; one that is dropped before it was done has failed, and says so.
pub(super) struct Step<'a> {
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

    /// Tell something that is no step.
    pub fn line(text: &str) {
        // A reader that has left is no reason to stop half-way: the volume still has to go.
        let _ = writeln!(io::stdout().lock(), "{text}");
    }

    /// Begin a chapter.
    pub fn heading(&self, text: &str) {
        Self::line(&if self.styled {
            format!("\n\x1b[1m{text}\x1b[0m")
        } else {
            format!("\n{text}")
        });
    }

    /// Begin a step.
    pub fn begin(&self, name: &'static str) -> Step<'_> {
        Step { tell: self, name, begin: Instant::now(), done: false }
    }
}

impl Step<'_> {
    /// Tell that the step was done, and how long it took.
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

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.line("\x1b[31m", '✗', "failed");
        }
    }
}
