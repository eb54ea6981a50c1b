//! Counts the calls to the host by kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every kind of call that is counted.
const NAMES: [&str; 20] = [
    "binds",
    "device_reads",
    "device_copies",
    "device_writes",
    "discards",
    "disk_lists",
    "dm_changes",
    "dm_reads",
    "fs_grows",
    "fs_reads",
    "fs_shrinks",
    "fs_trims",
    "fsyncs",
    "lvm_commands",
    "mount_table_reads",
    "mounts",
    "path_calls",
    "processes",
    "unmounts",
    "zero_writes",
];

/// Counters since the start.
#[derive(Debug)]
pub(super) struct CallCounters(BTreeMap<&'static str, AtomicU64>);

impl Default for CallCounters {
    fn default() -> Self {
        CallCounters(NAMES.iter().map(|name| (*name, AtomicU64::new(0))).collect())
    }
}

impl CallCounters {
    /// Counts one call.
    pub(super) fn add(&self, name: &'static str) {
        let counter = self.0.get(name);
        debug_assert!(counter.is_some(), "{name} is not a counter");
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads them all.
    pub(super) fn read(&self) -> BTreeMap<&'static str, u64> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.0.iter().map(|(name, counter)| (*name, read(counter))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_called_is_zero() {
        let counts = CallCounters::default();
        counts.add("fsyncs");
        counts.add("fsyncs");
        let read = counts.read();
        assert_eq!(read.len(), NAMES.len());
        assert_eq!((read["fsyncs"], read["processes"]), (2, 0));
    }
}
