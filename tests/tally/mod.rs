//! What was tried and what was survived, counted and written down. Shared by the tests on machines and
//! on clusters in memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pliant::testing::MachineState;

use crate::block_on;

mod figures;

pub use figures::figures;

/// What a try of one cut found wrong; nothing if it was survived.
pub type Verdict = Vec<String>;

/// How many cuts were tried, and what was wrong with some.
#[derive(Default)]
pub struct Tally {
    pub cuts: AtomicUsize,
    pub survived: AtomicUsize,
    pub wrong: Mutex<Vec<String>>,
}

impl Tally {
    /// Try one cut; a panic is a verdict too.
    pub fn take(&self, named: impl Fn() -> String, attempt: impl Future<Output = Verdict>) {
        self.cuts.fetch_add(1, Ordering::Relaxed);
        let verdict = catch_unwind(AssertUnwindSafe(|| block_on(attempt)));
        let verdict = verdict.unwrap_or_else(|_| vec!["a panic".to_owned()]);
        if verdict.is_empty() {
            self.survived.fetch_add(1, Ordering::Relaxed);
        } else {
            let line = format!("{}: {}", named(), verdict.join("; "));
            self.wrong.lock().expect("no panic holds it").push(line);
        }
    }

    /// Write down the figures and panic if a cut was not survived.
    pub fn close(self, file: &str, measured: &[(&str, usize)]) {
        figures(file, measured);
        let wrong = self.wrong.into_inner().expect("no panic holds it");
        let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        assert!(wrong.is_empty(), "{} cuts were not survived:\n{shown}", wrong.len());
    }
}

/// Try each, on all processors.
pub fn for_each<T: Sync>(all: &[T], attempt: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    attempt(one);
                }
            });
        }
    });
}

/// These sides of each effect: those of a machine, or of an API server.
pub fn points<S: Copy>(effects: usize, sides: [S; 2]) -> impl Iterator<Item = (usize, S)> {
    (1..=effects).flat_map(move |n| sides.map(|side| (n, side)))
}

/// The lines by which two states differ.
#[allow(dead_code)] // Those who have no machine do not use it.
pub fn difference(now: &MachineState, reference: &MachineState) -> Option<String> {
    if now == reference {
        return None;
    }
    // Each run takes its snapshots at another time.
    let told = |state: &MachineState| {
        let text = format!("{state:#?}");
        let lines = text.lines().filter(|line| !line.contains("pliant.taken-nanoseconds="));
        lines.collect::<Vec<_>>().join("\n")
    };
    let (now, reference) = (told(now), told(reference));
    if now == reference {
        return None;
    }
    let only = |one: &str, other: &str| {
        let lines = one.lines().filter(|line| !other.lines().any(|o| o == *line));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    };
    Some(format!("has {:?}, lacks {:?}", only(&now, &reference), only(&reference, &now)))
}
