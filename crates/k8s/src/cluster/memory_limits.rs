//! Memory limits for the objects of each namespace, and of all namespaces together.
//!
//! The share of a namespace prevents it from using all memory. A user who can create namespaces has as many shares,
//! so there is a total limit too: when that is reached, the largest namespaces get less than their share, so that
//! small ones always fit.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// Maximum size of the objects of one namespace in one watch, in bytes. It fits some ten thousand
/// claims.
pub const SHARE: usize = 16 << 20;

/// Maximum size of the objects of all namespaces in all watches of a process, in bytes: some sixty thousand claims.
/// The chart gives the operator 256 MiB, and a list that is read again is in memory twice for a while.
const WHOLE: usize = 96 << 20;

/// Divisor of the total: that part is reserved for each watch, whatever the others use.
const WATCHES: usize = 8;

/// Memory of all watches of a process.
#[derive(Debug)]
pub struct MemoryLimits {
    limit: usize,
    taken: AtomicUsize,
}

/// Memory of each namespace in one watch, in bytes. Cluster-scoped objects do not belong to a tenant.
#[derive(Debug)]
pub struct NamespaceShares {
    of: HashMap<String, usize>,
    sum: usize,
    whole: Arc<MemoryLimits>,
    /// False while a list is read: what was there before goes when it has ended, and is counted until then.
    is_counted: bool,
}

/// Result of a reservation.
#[derive(Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Reserved.
    Taken,
    /// Rejected: the namespace has its share, or is the largest when everything is in use.
    Beyond(&'static str),
    /// Possible once each namespace uses no more than this, in bytes.
    Above(usize),
}

/// Reason for a namespace that exceeds its share.
pub const BEYOND_SHARE: &str = "16 MiB of memory, the share of a namespace";

/// Reason for a namespace when everything is in use.
pub const BEYOND_WHOLE: &str =
    "most other namespaces, and all of them together use up the memory for them";

impl MemoryLimits {
    /// Returns that of this process.
    pub fn of_process() -> Arc<MemoryLimits> {
        static OF_PROCESS: LazyLock<Arc<MemoryLimits>> =
            LazyLock::new(|| Arc::new(MemoryLimits::of(WHOLE)));
        OF_PROCESS.clone()
    }

    pub fn of(limit: usize) -> MemoryLimits {
        MemoryLimits { limit, taken: AtomicUsize::new(0) }
    }

    /// Returns the remaining size for a watch that uses this much, in bytes.
    fn left_for(&self, own: usize, is_counted: bool, before: usize) -> usize {
        let taken = self.taken.load(Ordering::Relaxed);
        let others = taken.saturating_sub(if is_counted { own } else { before });
        self.limit.saturating_sub(others).max(self.limit / WATCHES)
    }
}

impl NamespaceShares {
    pub fn new(whole: Arc<MemoryLimits>) -> NamespaceShares {
        NamespaceShares::none(whole, true)
    }

    fn none(whole: Arc<MemoryLimits>, is_counted: bool) -> NamespaceShares {
        NamespaceShares { of: HashMap::new(), sum: 0, whole, is_counted }
    }

    /// Creates an empty count for a list that is about to be read; see [`Shares::replace`].
    pub fn of_list(&self) -> NamespaceShares {
        NamespaceShares::none(self.whole.clone(), false)
    }

    /// Replaces the count by that of the list.
    pub fn replace(&mut self, list: &mut NamespaceShares) {
        self.whole.taken.fetch_add(list.sum, Ordering::Relaxed);
        self.whole.taken.fetch_sub(self.sum, Ordering::Relaxed);
        (self.of, self.sum) = (std::mem::take(&mut list.of), std::mem::take(&mut list.sum));
    }

    /// Reserves memory in place of what an object of a namespace used `before`. While a list is read, what it
    /// replaces uses `listed_over`.
    pub fn take(
        &mut self,
        namespace: &str,
        before: usize,
        weight: usize,
        listed_over: usize,
    ) -> Reservation {
        if namespace.is_empty() {
            return Reservation::Taken;
        }
        let taken = self.taken_by(namespace);
        let then = taken.saturating_sub(before) + weight;
        if weight > before {
            if then > SHARE {
                return Reservation::Beyond(BEYOND_SHARE);
            }
            let left = self.whole.left_for(self.sum, self.is_counted, listed_over);
            if self.sum - taken + then > left {
                // Some more than is needed, so that the next one has its place without another look at all.
                let level = self.level(left / 8 * 7);
                return if then > level {
                    Reservation::Beyond(BEYOND_WHOLE)
                } else {
                    Reservation::Above(level)
                };
            }
        }
        self.set(namespace, then);
        Reservation::Taken
    }

    pub fn give_back(&mut self, namespace: &str, weight: usize) {
        self.set(namespace, self.taken_by(namespace).saturating_sub(weight));
    }

    pub fn taken_by(&self, namespace: &str) -> usize {
        self.of.get(namespace).copied().unwrap_or_default()
    }

    pub fn sum(&self) -> usize {
        self.sum
    }

    /// Returns true if a namespace uses so little that its objects fit again.
    pub fn has_space(&self, namespace: &str) -> bool {
        let left = self.whole.left_for(self.sum, self.is_counted, 0);
        self.taken_by(namespace) < SHARE / 4 * 3 && self.sum < left / 4 * 3
    }

    /// Returns the maximum for each namespace, so that all of them use no more than `most`.
    fn level(&self, most: usize) -> usize {
        let mut sizes = BTreeMap::<usize, usize>::new();
        self.of.values().for_each(|size| *sizes.entry(*size).or_default() += 1);
        let (mut below, mut above) = (0, self.of.len());
        for (size, count) in sizes {
            if below + size * above > most {
                return most.saturating_sub(below) / above;
            }
            (below, above) = (below + size * count, above - count);
        }
        SHARE
    }

    fn set(&mut self, namespace: &str, taken: usize) {
        let before = self.taken_by(namespace);
        if taken == 0 {
            self.of.remove(namespace);
        } else if let Some(its) = self.of.get_mut(namespace) {
            *its = taken;
        } else {
            self.of.insert(namespace.to_owned(), taken);
        }
        self.sum = self.sum - before + taken;
        if self.is_counted {
            self.whole.taken.fetch_add(taken, Ordering::Relaxed);
            self.whole.taken.fetch_sub(before, Ordering::Relaxed);
        }
    }
}

impl Drop for NamespaceShares {
    fn drop(&mut self) {
        if self.is_counted {
            self.whole.taken.fetch_sub(self.sum, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_all_is_taken_the_namespaces_that_take_the_most_have_less() {
        let mut shares = NamespaceShares::new(Arc::new(MemoryLimits::of(1600)));
        for (namespace, weight) in [("a", 700), ("b", 600), ("c", 250)] {
            assert_eq!(shares.take(namespace, 0, weight, 0), Reservation::Taken, "{namespace}");
        }
        assert_eq!(shares.take("a", 0, 51, 0), Reservation::Beyond(BEYOND_WHOLE));
        // 7/8 of 1600, less the 250 of `c`, for `a` and `b`.
        assert_eq!(shares.take("d", 0, 100, 0), Reservation::Above(575));
        shares.give_back("a", 125);
        shares.give_back("b", 25);
        assert_eq!(shares.take("d", 0, 100, 0), Reservation::Taken);
        assert_eq!(shares.take("c", 250, 250, 0), Reservation::Taken, "no more than before");
    }

    #[test]
    fn each_watch_has_its_own_part_and_what_is_given_back_is_for_all() {
        let whole = Arc::new(MemoryLimits::of(1600));
        let (mut one, mut other) =
            (NamespaceShares::new(whole.clone()), NamespaceShares::new(whole.clone()));
        assert_eq!(one.take("a", 0, 1600, 0), Reservation::Taken);
        assert_eq!(other.take("a", 0, 200, 0), Reservation::Taken, "an eighth");
        assert_eq!(other.take("a", 0, 1, 0), Reservation::Beyond(BEYOND_WHOLE));
        drop(one);
        assert_eq!(other.take("a", 0, 1400, 0), Reservation::Taken);
        let mut list = other.of_list();
        assert_eq!(list.take("b", 0, 1600, other.sum()), Reservation::Taken, "in the place of `a`");
        other.replace(&mut list);
        assert_eq!((other.sum(), whole.taken.load(Ordering::Relaxed)), (1600, 1600));
    }
}
