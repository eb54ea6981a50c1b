//! A thin pool: which of its chunks its volumes have.

use std::collections::{BTreeMap, BTreeSet};

/// The chunks that volumes have, by volume and their place in it: which chunk of the pool.
pub(super) type Given = BTreeMap<(String, u64), u64>;

/// A thin pool.
#[derive(Clone, Default)]
pub(super) struct FakeThinPool {
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Whether a chunk is zeroed when a volume gets it.
    pub zeroes: bool,
    /// The percentage in use at which it sends an event.
    pub mark: u32,
    /// The events that it has sent.
    pub events: u32,
    /// Whether one was sent since it was made or expanded.
    pub told: bool,
    /// Blocks of metadata that are in use besides those of its chunks.
    pub more_metadata: u64,
    /// Whether it takes no writes after an error in its metadata.
    pub damaged: bool,
    pub given: Given,
    /// As it was at the last flush.
    pub durable: Given,
}

impl FakeThinPool {
    /// The chunks in use.
    pub fn used(&self) -> u64 {
        self.given.values().collect::<BTreeSet<_>>().len() as u64
    }
}
