//! What is due at a time, in the order of the times.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

/// When each is due, once each: what is next is found without a look at the others.
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
    /// Have one be due at this time, and at no other one.
    pub fn set(&mut self, key: K, at: Instant) {
        self.remove(&key);
        self.by_time.insert((at, key.clone()));
        self.times.insert(key, at);
    }

    /// Have one not be due; when it would have been.
    pub fn remove(&mut self, key: &K) -> Option<Instant> {
        let at = self.times.remove(key)?;
        self.by_time.remove(&(at, key.clone()));
        Some(at)
    }

    /// All that are due at some time.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.times.keys()
    }

    /// When the first one is due.
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Take the first one that is due by now, and since when it is.
    pub fn take_due(&mut self, now: Instant) -> Option<(K, Instant)> {
        let (at, key) = self.by_time.first().filter(|(at, _)| *at <= now).cloned()?;
        self.remove(&key);
        Some((key, at))
    }
}

/// Wait until something is due; without a time, for ever.
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
