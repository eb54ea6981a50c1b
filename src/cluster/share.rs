//! How much memory the records of each namespace may take, and those of all namespaces together.
//!
//! The share of a namespace keeps it from taking all memory. Whoever can make namespaces has as many shares, so there
//! is a bound of the whole, too: where that is reached, the namespaces that take the most have less than their share,
//! so that what takes little always fits.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// How many bytes the records of one namespace may take in one watch. Some ten thousand claims do.
pub(crate) const SHARE: usize = 16 << 20;

/// How many bytes the records of all namespaces may take in all watches of a process: some sixty thousand claims. The
/// chart gives the operator 256 MiB, and a list that is read again is there twice for a while.
const WHOLE: usize = 96 << 20;

/// Of the whole one part in so many is each watch's own, whatever the others have taken.
const WATCHES: usize = 8;

/// What all watches of a process take together.
#[derive(Debug)]
pub(crate) struct Whole {
    limit: usize,
    taken: AtomicUsize,
}

/// How many bytes the records of each namespace take in one watch. Those without a namespace are no tenant's.
#[derive(Debug)]
pub(crate) struct Shares {
    of: HashMap<String, usize>,
    sum: usize,
    whole: Arc<Whole>,
    /// False while a list is read: what was there before goes when it has ended, and is counted until then.
    is_counted: bool,
}

/// Whether a record has its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It has.
    Taken,
    /// It has not: its namespace has its share, or takes the most where all is taken.
    Beyond(&'static str),
    /// It has once each namespace takes no more than so many bytes.
    Above(usize),
}

/// Why a namespace has no more, where that is its share.
pub(crate) const BEYOND_SHARE: &str = "16 MiB of memory, the share of a namespace";

/// Why a namespace has no more, where all is taken.
pub(crate) const BEYOND_WHOLE: &str =
    "most other namespaces, and all of them together as much memory as there is for them";

impl Whole {
    /// That of this process.
    pub(crate) fn of_process() -> Arc<Whole> {
        static OF_PROCESS: LazyLock<Arc<Whole>> = LazyLock::new(|| Arc::new(Whole::of(WHOLE)));
        OF_PROCESS.clone()
    }

    pub(crate) fn of(limit: usize) -> Whole {
        Whole { limit, taken: AtomicUsize::new(0) }
    }

    /// How many bytes a watch that takes so many may take.
    fn left_for(&self, own: usize, is_counted: bool, before: usize) -> usize {
        let taken = self.taken.load(Ordering::Relaxed);
        let others = taken.saturating_sub(if is_counted { own } else { before });
        self.limit.saturating_sub(others).max(self.limit / WATCHES)
    }
}

impl Shares {
    pub(crate) fn new(whole: Arc<Whole>) -> Shares {
        Shares::none(whole, true)
    }

    fn none(whole: Arc<Whole>, is_counted: bool) -> Shares {
        Shares { of: HashMap::new(), sum: 0, whole, is_counted }
    }

    /// None, of a list that is about to be read; see [`Shares::replace`].
    pub(crate) fn of_list(&self) -> Shares {
        Shares::none(self.whole.clone(), false)
    }

    /// What the list has is what there is from now on.
    pub(crate) fn replace(&mut self, list: &mut Shares) {
        self.whole.taken.fetch_add(list.sum, Ordering::Relaxed);
        self.whole.taken.fetch_sub(self.sum, Ordering::Relaxed);
        (self.of, self.sum) = (std::mem::take(&mut list.of), std::mem::take(&mut list.sum));
    }

    /// Take so much in the place of what a record of a namespace took `before`. While a list is read, what it replaces
    /// takes `listed_over`.
    pub(crate) fn take(
        &mut self,
        namespace: &str,
        before: usize,
        weight: usize,
        listed_over: usize,
    ) -> Found {
        if namespace.is_empty() {
            return Found::Taken;
        }
        let taken = self.taken_by(namespace);
        let then = taken.saturating_sub(before) + weight;
        if weight > before {
            if then > SHARE {
                return Found::Beyond(BEYOND_SHARE);
            }
            let left = self.whole.left_for(self.sum, self.is_counted, listed_over);
            if self.sum - taken + then > left {
                // Some more than is needed, so that the next one has its place without another look at all.
                let level = self.level(left / 8 * 7);
                return if then > level {
                    Found::Beyond(BEYOND_WHOLE)
                } else {
                    Found::Above(level)
                };
            }
        }
        self.set(namespace, then);
        Found::Taken
    }

    pub(crate) fn give_back(&mut self, namespace: &str, weight: usize) {
        self.set(namespace, self.taken_by(namespace).saturating_sub(weight));
    }

    pub(crate) fn taken_by(&self, namespace: &str) -> usize {
        self.of.get(namespace).copied().unwrap_or_default()
    }

    pub(crate) fn sum(&self) -> usize {
        self.sum
    }

    /// True if a namespace takes so little that records of it fit again.
    pub(crate) fn has_space(&self, namespace: &str) -> bool {
        let left = self.whole.left_for(self.sum, self.is_counted, 0);
        self.taken_by(namespace) < SHARE / 4 * 3 && self.sum < left / 4 * 3
    }

    /// How much each namespace may take at most, so that all of them take no more than `most`.
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

impl Drop for Shares {
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
        let mut shares = Shares::new(Arc::new(Whole::of(1600)));
        for (namespace, weight) in [("a", 700), ("b", 600), ("c", 250)] {
            assert_eq!(shares.take(namespace, 0, weight, 0), Found::Taken, "{namespace}");
        }
        assert_eq!(shares.take("a", 0, 51, 0), Found::Beyond(BEYOND_WHOLE));
        // 7/8 of 1600, less the 250 of `c`, for `a` and `b`.
        assert_eq!(shares.take("d", 0, 100, 0), Found::Above(575));
        shares.give_back("a", 125);
        shares.give_back("b", 25);
        assert_eq!(shares.take("d", 0, 100, 0), Found::Taken);
        assert_eq!(shares.take("c", 250, 250, 0), Found::Taken, "no more than before");
    }

    #[test]
    fn each_watch_has_its_own_part_and_what_is_given_back_is_for_all() {
        let whole = Arc::new(Whole::of(1600));
        let (mut one, mut other) = (Shares::new(whole.clone()), Shares::new(whole.clone()));
        assert_eq!(one.take("a", 0, 1600, 0), Found::Taken);
        assert_eq!(other.take("a", 0, 200, 0), Found::Taken, "an eighth");
        assert_eq!(other.take("a", 0, 1, 0), Found::Beyond(BEYOND_WHOLE));
        drop(one);
        assert_eq!(other.take("a", 0, 1400, 0), Found::Taken);
        let mut list = other.of_list();
        assert_eq!(list.take("b", 0, 1600, other.sum()), Found::Taken, "in the place of `a`");
        other.replace(&mut list);
        assert_eq!((other.sum(), whole.taken.load(Ordering::Relaxed)), (1600, 1600));
    }
}
