//! Who is looked at next, of those that are due: what is urgent first, and no namespace before all others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use tokio::time::Instant;

/// One that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due<K> {
    /// What it is known by.
    pub key: K,
    /// Its namespace.
    pub namespace: String,
    /// Whether something stands midway, such as a pod that is stopped.
    pub is_urgent: bool,
    /// Since when it is due.
    pub since: Instant,
}

/// How many are looked at at once.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// In all.
    pub all: usize,
    /// In one namespace: those whose calls hang hold up no other one.
    pub of_namespace: usize,
    /// How many are left to what is not urgent, if there is any.
    pub not_urgent: usize,
}

/// What is being looked at, by namespace.
#[derive(Debug, Default)]
pub struct Busy {
    by_namespace: HashMap<String, usize>,
    all: usize,
    urgent: usize,
}

impl Busy {
    /// Note that one is looked at.
    pub fn begin(&mut self, namespace: &str, is_urgent: bool) {
        *self.by_namespace.entry(namespace.to_owned()).or_default() += 1;
        self.all += 1;
        self.urgent += usize::from(is_urgent);
    }

    /// Note that a look has ended.
    pub fn end(&mut self, namespace: &str, is_urgent: bool) {
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

impl Slots {
    /// Choose who is looked at next: the urgent ones before the others, of the namespace of which the fewest are
    /// looked at, the longest due first.
    pub fn choose<K: Ord + Clone>(self, due: Vec<Due<K>>, busy: &Busy) -> Vec<Due<K>> {
        let (urgent, others): (Vec<_>, Vec<_>) = due.into_iter().partition(|one| one.is_urgent);
        let mut free = self.all.saturating_sub(busy.all);
        let mut chosen: Vec<Due<K>> = Vec::new();
        let reserved = self.not_urgent.min(others.len());
        let of_urgent = self.all.saturating_sub(reserved).saturating_sub(busy.urgent).min(free);
        self.take(urgent, of_urgent, busy, &mut chosen);
        free -= chosen.len();
        self.take(others, free, busy, &mut chosen);
        chosen
    }

    fn take<K: Ord + Clone>(
        self,
        due: Vec<Due<K>>,
        most: usize,
        busy: &Busy,
        chosen: &mut Vec<Due<K>>,
    ) {
        if most == 0 {
            return;
        }
        let mut waiting: BTreeMap<String, Vec<Due<K>>> = BTreeMap::new();
        for one in due {
            waiting.entry(one.namespace.clone()).or_default().push(one);
        }
        let mut taken: HashMap<String, usize> = HashMap::new();
        for one in chosen.iter() {
            *taken.entry(one.namespace.clone()).or_default() += 1;
        }
        let mut next = BinaryHeap::new();
        for (namespace, all) in &mut waiting {
            // The longest due last, from where it is taken.
            all.sort_by_key(|one| Reverse((one.since, one.key.clone())));
            let count = busy.of(namespace) + taken.get(namespace).copied().unwrap_or_default();
            if let Some(first) = all.last() {
                next.push(Reverse((count, first.since, namespace.clone())));
            }
        }
        let end = chosen.len() + most;
        while chosen.len() < end {
            let Some(Reverse((count, _, namespace))) = next.pop() else { return };
            if count >= self.of_namespace {
                continue;
            }
            let all = waiting.get_mut(&namespace);
            let Some((one, rest)) = all.and_then(|all| Some((all.pop()?, all))) else { continue };
            if let Some(following) = rest.last() {
                next.push(Reverse((count + 1, following.since, namespace)));
            }
            chosen.push(one);
        }
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

    #[tokio::test(start_paused = true)]
    async fn urgent_ones_come_first_and_each_namespace_has_its_share() {
        let start = Instant::now();
        let chosen = |busy: &Busy, all: &[&str]| -> Vec<String> {
            SLOTS.choose(due(start, all), busy).into_iter().map(|one| one.key).collect()
        };
        let free = Busy::default();
        let many = ["a/1:0", "a/2:1", "a/3:2", "a/4:3", "b/5:9", "c/6!9"];
        assert_eq!(
            chosen(&free, &many),
            ["6", "1", "5", "2"],
            "the latest one first, as it is urgent"
        );
        assert_eq!(
            chosen(&free, &many[..4]),
            ["1", "2"],
            "a namespace alone leaves slots to others"
        );
        let urgent = ["a/1!0", "b/2!1", "c/3!2", "d/4!3", "e/5:9"];
        assert_eq!(chosen(&free, &urgent), ["1", "2", "3", "5"], "one slot is left to what waits");
        assert_eq!(chosen(&free, &urgent[..4]), ["1", "2", "3", "4"]);
        let mut busy = Busy::default();
        busy.begin("a", false);
        busy.begin("a", false);
        assert_eq!(chosen(&busy, &many), ["6", "5"], "of a no more");
        busy.end("a", false);
        assert_eq!(chosen(&busy, &many), ["6", "5", "1"]);
        for _ in 0..3 {
            busy.begin("z", false);
        }
        assert_eq!(chosen(&busy, &many), Vec::<String>::new());
    }

    /// What a tenant has waiting, however much, is behind a swap, and beside what others have waiting.
    #[tokio::test(start_paused = true)]
    async fn five_thousand_that_wait_hold_up_no_swap_and_no_other_namespace() {
        let slots = Slots { all: 16, of_namespace: 8, not_urgent: 4 };
        let start = Instant::now();
        let mut all: Vec<String> = (0..5000).map(|at| format!("tenant/{at:04}:0")).collect();
        all.extend(["tenant/swap!99".to_owned(), "other/edit:99".to_owned()]);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let chosen = slots.choose(due(start, &all), &Busy::default());
        let keys: Vec<&str> = chosen.iter().map(|one| &*one.key).collect();
        assert_eq!((keys[0], keys.contains(&"edit")), ("swap", true));
        assert_eq!(keys.len(), 9, "half of the slots, and the one of the other namespace");
    }
}
