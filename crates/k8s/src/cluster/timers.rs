//! Timers in the order of their times.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

/// Timers, one for each key: the next one is found without a scan.
#[derive(Debug)]
pub struct Timers<K> {
    by_time: BTreeSet<(Instant, K)>,
    times: HashMap<K, Instant>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { by_time: BTreeSet::new(), times: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Timers<K> {
    /// Sets the timer of a key to this time only.
    pub fn set(&mut self, key: K, at: Instant) {
        self.remove(&key);
        self.by_time.insert((at, key.clone()));
        self.times.insert(key, at);
    }

    /// Removes the timer of a key; returns its time.
    pub fn remove(&mut self, key: &K) -> Option<Instant> {
        let at = self.times.remove(key)?;
        self.by_time.remove(&(at, key.clone()));
        Some(at)
    }

    /// All that are due at some time.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.times.keys()
    }

    /// Time of the first one.
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the first key that is due by now, and its time.
    pub fn take_due(&mut self, now: Instant) -> Option<(K, Instant)> {
        let (at, key) = self.by_time.first().filter(|(at, _)| *at <= now).cloned()?;
        self.remove(&key);
        Some((key, at))
    }
}

/// Waits until a key is due; forever without a timer.
pub async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_is_due_once_at_its_last_time() {
        let (mut timers, start) = (Timers::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (key, seconds) in [("a", 9), ("b", 5), ("a", 3), ("c", 4), ("b", 7)] {
            timers.set(key, at(seconds));
        }
        assert_eq!((timers.remove(&"c"), timers.remove(&"c")), (Some(at(4)), None));
        assert_eq!((timers.next(), timers.take_due(at(2))), (Some(at(3)), None));
        assert_eq!(timers.take_due(at(8)), Some(("a", at(3))));
        assert_eq!(timers.take_due(at(8)), Some(("b", at(7))));
        assert_eq!((timers.next(), timers.take_due(at(99))), (None, None));
    }
}
