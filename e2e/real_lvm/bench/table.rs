//! What was measured: one table for people, one file of figures for programs.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bench::client::Spent;

/// How often each thing is done; the median counts.
pub const REPEATS: u32 = 9;

/// One way of doing a thing, in milliseconds: the median.
pub type Millis = f64;

/// How long one piece of work takes.
pub fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Does the work once to warm up, then [`REPEATS`] times, and returns the median of the times that
/// it says it took. It is told the number of the round, from 0.
pub fn median(mut work: impl FnMut(u32) -> Duration) -> Millis {
    work(0);
    let mut times: Vec<Duration> = (1..=REPEATS).map(work).collect();
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

/// The same for calls of the driver, with what each has spent on the average.
pub fn measured(mut work: impl FnMut(u32) -> Duration) -> Ours {
    work(0);
    let before = Spent::until_now();
    let mut times: Vec<Duration> = (1..=REPEATS).map(work).collect();
    let spent = Spent::until_now().each(before, f64::from(REPEATS));
    times.sort();
    Ours { millis: times[times.len() / 2].as_secs_f64() * 1000.0, spent }
}

/// The driver's way of doing a thing.
#[derive(Debug, Clone, Copy)]
pub struct Ours {
    pub millis: Millis,
    pub spent: Spent,
}

/// All that was measured. Each row is printed when it is known.
pub struct Table {
    figures: String,
}

impl Table {
    /// Begins with the names of the columns.
    pub fn begin() -> Table {
        println!();
        println!(
            "{:<52}{:>9}{:>9}{:>9}{:>7}{:>6}{:>7}{:>7}",
            "", "plain ms", "ours ms", "ratio", "procs", "LVM", "fsyncs", "reads"
        );
        Table { figures: String::new() }
    }

    /// Adds a thing that was done in both ways.
    pub fn both(&mut self, name: &str, what: &str, plain: Millis, ours: Ours) {
        let ratio = plain / ours.millis;
        self.figure(&format!("bench_{name}_plain_ms"), plain);
        self.figure(&format!("bench_{name}_ratio"), ratio);
        self.row(name, what, (&format!("{plain:.1}"), &format!("{ratio:.1}×")), ours);
    }

    /// Adds a thing that has no plain way.
    pub fn only_ours(&mut self, name: &str, what: &str, ours: Ours) {
        self.row(name, what, ("", ""), ours);
    }

    fn row(&mut self, name: &str, what: &str, (plain, ratio): (&str, &str), ours: Ours) {
        let Ours { millis, spent } = ours;
        self.figure(&format!("bench_{name}_ms"), millis);
        self.figure(&format!("{name}_processes"), spent.processes);
        self.figure(&format!("{name}_lvm_commands"), spent.lvm_commands);
        self.figure(&format!("{name}_fsyncs"), spent.fsyncs);
        println!(
            "{what:<52}{plain:>9}{millis:>9.1}{ratio:>9}{:>7.1}{:>6.1}{:>7.1}{:>7.1}",
            spent.processes, spent.lvm_commands, spent.fsyncs, spent.device_reads
        );
    }

    /// Adds a figure that is no row.
    pub fn figure(&mut self, name: &str, value: f64) {
        let rounded = (value * 1000.0).round() / 1000.0;
        writeln!(self.figures, "{name} {rounded}").expect("a string takes all");
    }

    /// Writes `target/figures.d/NAME.txt`.
    pub fn publish(&self, name: &str) {
        let figures = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/figures.d");
        let file = figures.join(format!("{name}.txt"));
        std::fs::write(file, &self.figures).expect("figures");
    }
}
