//! Fair queue of due keys: urgent ones first, and no namespace before all others.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

/// A due key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due<K> {
    /// Key.
    pub key: K,
    /// Namespace of the object.
    pub namespace: String,
    /// True if an operation is midway, for example a pod is stopped.
    pub is_urgent: bool,
    /// Time since which it is due.
    pub since: Instant,
}

/// Maximum number of concurrent reconciles.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// Total.
    pub all: usize,
    /// Maximum in one namespace: one with hanging calls delays no other.
    pub of_namespace: usize,
    /// Number reserved for keys that are not urgent, if there are any.
    pub not_urgent: usize,
}

/// Running reconciles, by namespace.
#[derive(Debug, Default)]
struct RunningReconciles {
    by_namespace: HashMap<String, usize>,
    all: usize,
    urgent: usize,
}

impl RunningReconciles {
    /// Adds a running reconcile.
    fn begin(&mut self, namespace: &str, is_urgent: bool) {
        *self.by_namespace.entry(namespace.to_owned()).or_default() += 1;
        self.all += 1;
        self.urgent += usize::from(is_urgent);
    }

    /// Removes a running reconcile.
    fn end(&mut self, namespace: &str, is_urgent: bool) {
        self.all = self.all.saturating_sub(1);
        self.urgent = self.urgent.saturating_sub(usize::from(is_urgent));
        if let Some(count) = self.by_namespace.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }

    fn of(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }
}

/// Queue of due keys, with the number of running reconciles: urgent ones come first, then the namespace with the
/// fewest running ones, then the longest waiting.
///
/// Each operation costs the same, however many wait: they stay in this order between the operations.
#[derive(Debug)]
pub struct FairQueue<K> {
    slots: Slots,
    urgent: UrgencyQueue<K>,
    others: UrgencyQueue<K>,
    waiting: HashMap<K, Due<K>>,
    busy: RunningReconciles,
}

/// Waiting keys of one urgency.
#[derive(Debug)]
struct UrgencyQueue<K> {
    by_namespace: HashMap<String, BTreeSet<(Instant, K)>>,
    /// Namespaces with waiting keys: the number of running reconciles, and the time since which the first key
    /// is due.
    order: BTreeSet<(usize, Instant, String)>,
    len: usize,
}

impl<K> Default for UrgencyQueue<K> {
    fn default() -> Self {
        UrgencyQueue { by_namespace: HashMap::new(), order: BTreeSet::new(), len: 0 }
    }
}

impl<K: Ord + Clone> UrgencyQueue<K> {
    /// Changes the waiting keys of a namespace, or its number of running reconciles, and restores
    /// the order.
    fn change(
        &mut self,
        namespace: &str,
        (before, after): (usize, usize),
        change: impl FnOnce(&mut BTreeSet<(Instant, K)>),
    ) {
        let mut all = self.by_namespace.remove(namespace).unwrap_or_default();
        if let Some((since, _)) = all.first() {
            self.order.remove(&(before, *since, namespace.to_owned()));
        }
        self.len -= all.len();
        change(&mut all);
        self.len += all.len();
        if let Some((since, _)) = all.first() {
            self.order.insert((after, *since, namespace.to_owned()));
            self.by_namespace.insert(namespace.to_owned(), all);
        }
    }

    /// Returns the first key of a namespace with fewer running reconciles than this.
    fn first(&self, of_namespace: usize) -> Option<&K> {
        let (count, _, namespace) = self.order.first()?;
        let all = self.by_namespace.get(namespace).filter(|_| *count < of_namespace)?;
        all.first().map(|(_, key)| key)
    }
}

impl<K: Ord + Clone + Hash> FairQueue<K> {
    /// Creates an empty queue.
    pub fn new(slots: Slots) -> Self {
        FairQueue {
            slots,
            urgent: UrgencyQueue::default(),
            others: UrgencyQueue::default(),
            waiting: HashMap::new(),
            busy: RunningReconciles::default(),
        }
    }

    /// Enqueues a key with its present urgency, in place of an earlier entry.
    pub fn insert(&mut self, due: Due<K>) {
        self.remove(&due.key);
        let count = self.busy.of(&due.namespace);
        let lane = if due.is_urgent { &mut self.urgent } else { &mut self.others };
        lane.change(&due.namespace, (count, count), |all| {
            all.insert((due.since, due.key.clone()));
        });
        self.waiting.insert(due.key.clone(), due);
    }

    /// Removes a waiting key, if there is one.
    pub fn remove(&mut self, key: &K) -> Option<Due<K>> {
        let due = self.waiting.remove(key)?;
        let count = self.busy.of(&due.namespace);
        let lane = if due.is_urgent { &mut self.urgent } else { &mut self.others };
        lane.change(&due.namespace, (count, count), |all| {
            all.remove(&(due.since, due.key.clone()));
        });
        Some(due)
    }

    /// Takes the next key that may run now; it counts as running until [`FairQueue::end`].
    pub fn choose(&mut self) -> Option<Due<K>> {
        if self.busy.all >= self.slots.all {
            return None;
        }
        // Those that are not urgent have some slots, if there are as many, also while urgent ones wait.
        let not_urgent = self.others.len + (self.busy.all - self.busy.urgent);
        let of_urgent = self.slots.all.saturating_sub(self.slots.not_urgent.min(not_urgent));
        let urgent = self.urgent.first(self.slots.of_namespace);
        let urgent = urgent.filter(|_| self.busy.urgent < of_urgent);
        let key = urgent.or_else(|| self.others.first(self.slots.of_namespace))?.clone();
        let chosen = self.remove(&key)?;
        self.recount(&chosen.namespace, |busy| busy.begin(&chosen.namespace, chosen.is_urgent));
        Some(chosen)
    }

    /// Ends a running reconcile.
    pub fn end(&mut self, chosen: &Due<K>) {
        self.recount(&chosen.namespace, |busy| busy.end(&chosen.namespace, chosen.is_urgent));
    }

    fn recount(&mut self, namespace: &str, count: impl FnOnce(&mut RunningReconciles)) {
        let before = self.busy.of(namespace);
        count(&mut self.busy);
        let counts = (before, self.busy.of(namespace));
        self.urgent.change(namespace, counts, |_| {});
        self.others.change(namespace, counts, |_| {});
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SLOTS: Slots = Slots { all: 4, of_namespace: 2, not_urgent: 1 };

    /// Due ones as `namespace/key!seconds`, with `!` for urgent ones, else `:`.
    fn due(start: Instant, all: &[&str]) -> Vec<Due<String>> {
        let one = |text: &&str| {
            let (namespace, rest) = text.split_once('/').unwrap();
            let (key, since) = rest.split_once(['!', ':']).unwrap();
            Due {
                key: key.to_owned(),
                namespace: namespace.to_owned(),
                is_urgent: text.contains('!'),
                since: start + Duration::from_secs(since.parse().unwrap()),
            }
        };
        all.iter().map(one).collect()
    }

    /// Who is chosen of those that are due, while these are looked at.
    fn chosen(slots: Slots, due: Vec<Due<String>>, busy: &[Due<String>]) -> Vec<String> {
        let mut queue = FairQueue::new(slots);
        // They were chosen one by one: each alone is the next one.
        for one in busy {
            queue.insert(one.clone());
            assert_eq!(queue.choose().as_ref(), Some(one));
        }
        for one in due {
            queue.insert(one);
        }
        std::iter::from_fn(|| queue.choose()).map(|one| one.key).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_ones_come_first_and_each_namespace_has_its_share() {
        let start = Instant::now();
        let chosen =
            |busy: &[&str], all: &[&str]| chosen(SLOTS, due(start, all), &due(start, busy));
        let many = ["a/1:0", "a/2:1", "a/3:2", "a/4:3", "b/5:9", "c/6!9"];
        assert_eq!(
            chosen(&[], &many),
            ["6", "1", "5", "2"],
            "the latest one first, as it is urgent"
        );
        assert_eq!(chosen(&[], &many[..4]), ["1", "2"], "a namespace alone leaves slots to others");
        let urgent = ["a/1!0", "b/2!1", "c/3!2", "d/4!3", "e/5:9"];
        assert_eq!(chosen(&[], &urgent), ["1", "2", "3", "5"], "one slot is left to what waits");
        assert_eq!(chosen(&[], &urgent[..4]), ["1", "2", "3", "4"]);
        assert_eq!(chosen(&["a/x:0", "a/y:0"], &many), ["6", "5"], "of a no more");
        assert_eq!(chosen(&["a/x:0"], &many), ["6", "5", "1"]);
        assert_eq!(chosen(&["y/x:0", "y/y:0", "z/z:0", "z/w:0"], &many), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_waits_is_there_once_and_as_it_was_inserted_last() {
        let start = Instant::now();
        let mut queue = FairQueue::new(SLOTS);
        for one in due(start, &["a/1:0", "a/2:5", "a/1:9", "a/3:7", "a/3!8"]) {
            queue.insert(one);
        }
        let first = queue.choose().expect("the urgent one");
        assert_eq!(first.key, "3");
        assert_eq!(queue.remove(&"2".to_owned()).map(|one| one.key), Some("2".to_owned()));
        assert_eq!(queue.choose().map(|one| one.key), Some("1".to_owned()));
        queue.insert(due(start, &["a/4:0"]).remove(0));
        assert_eq!(queue.choose(), None, "of a no more");
        queue.end(&first);
        assert_eq!(queue.choose().map(|one| one.key), Some("4".to_owned()));
    }

    /// What a tenant has waiting, however much, is behind a swap, and beside what others have waiting.
    #[tokio::test(start_paused = true)]
    async fn five_thousand_that_wait_hold_up_no_swap_and_no_other_namespace() {
        let slots = Slots { all: 16, of_namespace: 8, not_urgent: 4 };
        let start = Instant::now();
        let mut all: Vec<String> = (0..5000).map(|at| format!("tenant/{at:04}:0")).collect();
        all.extend(["tenant/swap!99".to_owned(), "other/edit:99".to_owned()]);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let keys = chosen(slots, due(start, &all), &[]);
        assert_eq!((&*keys[0], keys.iter().any(|key| key == "edit")), ("swap", true));
        assert_eq!(keys.len(), 9, "half of the slots, and the one of the other namespace");
    }
}
