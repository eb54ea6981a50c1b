//! Objects of a watch, by namespace and name.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::cluster::Record;

/// Set of objects, each found by its own namespace and name: a copy of these would take as much memory as many an
/// object.
#[derive(Debug)]
pub(super) struct Records<K> {
    table: HashTable<Arc<K>>,
    state: RandomState,
}

impl<K> Default for Records<K> {
    fn default() -> Self {
        Records { table: HashTable::new(), state: RandomState::new() }
    }
}

impl<K: Record> Records<K> {
    pub fn get(&self, place: (&str, &str)) -> Option<&Arc<K>> {
        self.table.find(self.state.hash_one(place), |one| one.place() == place)
    }

    /// Inserts an object, and returns the one that it replaces.
    pub fn insert(&mut self, record: Arc<K>) -> Option<Arc<K>> {
        let before = self.remove(record.place());
        let state = &self.state;
        let hash = |one: &Arc<K>| state.hash_one(one.place());
        self.table.insert_unique(hash(&record), record, hash);
        before
    }

    pub fn remove(&mut self, place: (&str, &str)) -> Option<Arc<K>> {
        let hash = self.state.hash_one(place);
        let found = self.table.find_entry(hash, |one| one.place() == place).ok()?;
        Some(found.remove().0)
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.table.iter().cloned().collect()
    }
}
