//! Conditions that have lasted for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// Start of each observation here: times in objects are from other clocks.
#[derive(Debug)]
pub struct Debounce<T> {
    patience: Duration,
    since: HashMap<T, Instant>,
}

impl<T: Clone + Eq + Hash + Ord> Debounce<T> {
    /// Creates an empty state; observations count once they have lasted this long.
    pub fn new(patience: Duration) -> Self {
        Debounce { patience, since: HashMap::new() }
    }

    /// Returns the observations that have lasted, in order, and the time until more will have. An
    /// interrupted one starts again.
    pub fn of(&mut self, found: Vec<T>, now: Instant) -> (Vec<T>, Option<Duration>) {
        let before = std::mem::take(&mut self.since);
        let since = |one: &T| before.get(one).copied().unwrap_or(now);
        self.since = found.into_iter().map(|one| (one.clone(), since(&one))).collect();
        let left = |since: &Instant| self.patience.saturating_sub(now - *since);
        let lasts = self.since.iter().filter(|(_, since)| left(since).is_zero());
        let mut lasts: Vec<T> = lasts.map(|(one, _)| one.clone()).collect();
        lasts.sort();
        (lasts, self.since.values().map(left).filter(|left| !left.is_zero()).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_told() {
        let (mut lasting, start) = (Debounce::new(Duration::from_secs(300)), Instant::now());
        for (after, found, told, next) in [
            (0, &["a"][..], &[][..], Some(300)),
            (100, &["a", "b"], &[], Some(200)),
            (299, &["a", "b"], &[], Some(1)),
            (300, &["a", "b"], &["a"], Some(100)),
            (301, &["b"], &[], Some(99)),
            (400, &["a", "b"], &["b"], Some(300)),
            (700, &["b", "a"], &["a", "b"], None),
            (701, &[], &[], None),
        ] {
            let (lasts, left) = lasting.of(found.to_vec(), start + Duration::from_secs(after));
            assert_eq!(
                (lasts.as_slice(), left.map(|left| left.as_secs())),
                (told, next),
                "{after} s"
            );
        }
    }
}
