//! What a driver is asked to do step by step, and what must be there after each step.
//!
//! A [`World`] is what has been promised: made of the acknowledged steps alone, without a look at any
//! disk. [`crate::promises`] compares it with a machine.

use std::collections::BTreeMap;
use std::fmt;

use pliant::volume::{FsKind, Mode};

/// One call of a caller, or one write of a workload that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// CreateVolume with so many MiB.
    Create(&'static str, Mode, u64),
    /// CreateVolume with so many MiB and the content of another volume.
    Clone(&'static str, &'static str, u64),
    /// NodeStageVolume.
    Stage(&'static str),
    /// The workload writes its secret and waits until that is durable.
    Write(&'static str, Part),
    /// ControllerExpandVolume to so many MiB; online where the volume is staged.
    Grow(&'static str, u64),
    /// Shrinks to so many MiB, and may grow again; online where the volume is staged.
    Shrink(&'static str, u64),
    /// NodeUnstageVolume.
    Unstage(&'static str),
    /// DeleteVolume.
    Delete(&'static str),
}

/// What a workload writes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// These MiB of a raw device: from, to.
    Mib(u64, u64),
    /// A file of so many KiB.
    File(&'static str, usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create(name, mode, mib) => write!(f, "create {name} {mode} {mib} MiB"),
            Step::Clone(name, of, mib) => write!(f, "clone {of} to {name} of {mib} MiB"),
            Step::Stage(name) => write!(f, "stage {name}"),
            Step::Write(name, part) => write!(f, "write {name} {part:?}"),
            Step::Grow(name, mib) => write!(f, "grow {name} to {mib} MiB"),
            Step::Shrink(name, mib) => write!(f, "shrink {name} to {mib} MiB"),
            Step::Unstage(name) => write!(f, "unstage {name}"),
            Step::Delete(name) => write!(f, "delete {name}"),
        }
    }
}

/// A volume as it was promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promised {
    /// Block or file system.
    pub mode: Mode,
    /// The volume whose workload wrote what it has: itself, or the one that it is a clone of.
    pub writer: &'static str,
    /// Its size.
    pub mib: u64,
    /// Whether it was staged once: a file system has been made since.
    pub made: bool,
    /// Whether it is staged now.
    pub staged: bool,
    /// What was written, the oldest first.
    pub written: Vec<Part>,
}

/// All that was promised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    /// The volumes by name.
    pub volumes: BTreeMap<&'static str, Promised>,
}

impl World {
    /// What is promised when these steps have been acknowledged.
    pub fn after(steps: &[Step]) -> World {
        let mut world = World::default();
        for step in steps {
            world.take(*step);
        }
        world
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Create(name, mode, mib) => {
                let written = Vec::new();
                let (writer, made, staged) = (name, false, false);
                let new = Promised { mode, writer, mib, made, staged, written };
                self.volumes.insert(name, new);
            }
            Step::Clone(name, of, mib) => {
                let clone = Promised { mib, staged: false, ..self.of(of).clone() };
                self.volumes.insert(name, clone);
            }
            Step::Delete(name) => drop(self.volumes.remove(name)),
            Step::Stage(name) => {
                self.of(name).made = true;
                self.of(name).staged = true;
            }
            Step::Unstage(name) => self.of(name).staged = false,
            Step::Grow(name, mib) | Step::Shrink(name, mib) => self.of(name).mib = mib,
            Step::Write(name, part) => self.of(name).written.push(part),
        }
    }

    fn of(&mut self, name: &str) -> &mut Promised {
        self.volumes.get_mut(name).expect("a script names only volumes that it has made")
    }
}

/// What every secret begins with.
pub const CANARY: &[u8] = b"PLIANT-SECRET";
/// Bytes that secrets are written in.
pub const BLOCK: usize = 4096;

/// The secret that a workload writes into block `number` of a device or a file of a volume: it says
/// whose it is and where it belongs.
pub fn secret(volume: &str, place: &str, number: usize) -> Vec<u8> {
    let mut text = String::from_utf8_lossy(CANARY).into_owned();
    text.push_str(&format!(" {volume} {place} {number:08}\n"));
    text.into_bytes().into_iter().cycle().take(BLOCK).collect()
}

/// The whole secret of a file.
pub fn secret_file(volume: &str, file: &str, kib: usize) -> Vec<u8> {
    (0..kib * 1024 / BLOCK).flat_map(|number| secret(volume, file, number)).collect()
}

/// How many blocks of these bytes show a secret of anybody but `owner`.
pub fn foreign_secrets(bytes: &[u8], owner: &str) -> usize {
    let own = [CANARY, b" ", owner.as_bytes(), b" "].concat();
    let zero = [0; BLOCK];
    let shows = |block: &&[u8]| {
        **block != zero[..block.len()]
            && block.windows(CANARY.len()).enumerate().any(|(at, window)| {
                window == CANARY && !block[at..].starts_with(&own) && at + own.len() <= block.len()
            })
    };
    bytes.chunks(BLOCK).filter(shows).count()
}

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

/// A raw device whose extents are handed on, and an ext4 whose extents become one.
pub const BLOCK_AND_EXT4: &[Step] = &[
    Step::Create("a", Mode::Block, 16),
    Step::Stage("a"),
    Step::Write("a", Part::Mib(0, 16)),
    Step::Grow("a", 24),
    Step::Write("a", Part::Mib(16, 24)),
    Step::Unstage("a"),
    Step::Delete("a"),
    Step::Create("b", Mode::Block, 24),
    Step::Create("c", EXT4, 40),
    Step::Stage("c"),
    Step::Write("c", Part::File("one", 4096)),
    Step::Write("c", Part::File("two", 64)),
    Step::Grow("c", 56),
    Step::Write("c", Part::File("three", 2048)),
    Step::Unstage("c"),
    Step::Grow("c", 72),
    Step::Stage("c"),
    Step::Write("c", Part::File("four", 256)),
    Step::Delete("b"),
    Step::Unstage("c"),
    Step::Shrink("c", 52),
    Step::Stage("c"),
    Step::Write("c", Part::File("five", 64)),
    Step::Unstage("c"),
    Step::Delete("c"),
    Step::Create("d", Mode::Block, 96),
];

/// One file system through its whole life.
pub fn life_of(kind: FsKind, mib: u64) -> Vec<Step> {
    let smaller = (kind == FsKind::Btrfs).then_some(Step::Shrink("e", mib + 8));
    let before = [
        Step::Create("e", Mode::Filesystem(kind), mib),
        Step::Stage("e"),
        Step::Write("e", Part::File("one", 2048)),
        Step::Grow("e", mib + 16),
        Step::Write("e", Part::File("two", 256)),
    ];
    let after = [
        Step::Unstage("e"),
        Step::Grow("e", mib + 32),
        Step::Stage("e"),
        Step::Write("e", Part::File("three", 256)),
        Step::Unstage("e"),
        Step::Delete("e"),
        Step::Create("f", Mode::Block, 64),
    ];
    before.into_iter().chain(smaller).chain(after).collect()
}
