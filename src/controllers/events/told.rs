//! What was told already, and so what is still to be told. Pure.

use std::collections::{HashMap, HashSet};

use crate::cluster::OnceEvent;
use crate::controllers::events::EventReason;
use crate::controllers::events::fact::{About, Fact, Sight};

/// A fact without its sentence, which may change while it holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    about: About,
    reason: EventReason,
    subject: String,
}

/// How often a fact began to hold, and whether it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    times: u32,
    holds: bool,
}

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Told(HashMap<Key, Standing>);

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Tell that it holds.
    Tell(Box<Fact>, u32),
    /// Tell that it is over.
    Over(Key, u32),
    /// Remember it no longer.
    Forget(Key),
}

/// An event to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Telling {
    /// The same for every replica and after every restart: whoever comes second finds it written.
    pub name: String,
    pub about: About,
    pub reason: EventReason,
    pub text: String,
}

impl Told {
    /// Decide what is to be told: what holds and is not told yet, and what was told and is over.
    pub fn plan(&self, facts: &[Fact], sight: impl Fn(&About) -> Sight) -> Vec<Step> {
        let holding: HashSet<Key> = facts.iter().map(Key::of).collect();
        let begun = facts.iter().filter_map(|fact| {
            let before = self.0.get(&Key::of(fact));
            let times = before.map_or(0, |before| before.times + 1);
            let is_new = !before.is_some_and(|before| before.holds);
            is_new.then(|| Step::Tell(Box::new(fact.clone()), times))
        });
        let gone = self.0.iter().filter(|(key, _)| !holding.contains(key));
        let over = gone.filter_map(|(key, standing)| match sight(&key.about) {
            Sight::Gone => Some(Step::Forget(key.clone())),
            _ if !key.reason.recovers() => Some(Step::Forget(key.clone())),
            Sight::There => standing.holds.then(|| Step::Over(key.clone(), standing.times)),
            Sight::Hidden => None,
        });
        begun.chain(over).collect()
    }

    /// Note that a step was done.
    pub fn note(&mut self, step: Step) {
        match step {
            Step::Tell(fact, times) => {
                self.0.insert(Key::of(&fact), Standing { times, holds: true });
            }
            Step::Over(key, times) => {
                self.0.insert(key, Standing { times, holds: false });
            }
            Step::Forget(key) => drop(self.0.remove(&key)),
        }
    }
}

impl Step {
    /// What it writes.
    pub fn telling(&self) -> Option<Telling> {
        match self {
            Step::Tell(fact, times) => {
                Some(Telling::of(&Key::of(fact), fact.reason, *times, &fact.text))
            }
            Step::Over(key, times) => {
                let text = format!("{} is over: {}", key.reason, key.subject);
                Some(Telling::of(key, EventReason::Recovered, *times, &text))
            }
            Step::Forget(_) => None,
        }
    }
}

impl Key {
    fn of(fact: &Fact) -> Key {
        let Fact { about, reason, subject, .. } = fact.clone();
        Key { about, reason, subject }
    }
}

impl Telling {
    fn of(key: &Key, reason: EventReason, times: u32, text: &str) -> Telling {
        let identity = format!("{}/{reason}/{}/{}/{times}", key.about.uid, key.reason, key.subject);
        Telling {
            name: OnceEvent::name_for(&key.about.name, &identity),
            about: key.about.clone(),
            reason,
            text: OnceEvent::bounded(text),
        }
    }

    /// It, as it is written.
    pub fn event(&self) -> OnceEvent {
        OnceEvent {
            name: self.name.clone(),
            about: self.about.reference(),
            reason: self.reason.to_string(),
            is_warning: self.reason.is_warning(),
            text: self.text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::events::fact::Kind;

    fn fact(uid: &str, reason: EventReason, subject: &str) -> Fact {
        let about = About {
            kind: Kind::Node,
            namespace: None,
            name: "alpha".to_owned(),
            uid: uid.to_owned(),
        };
        let text = "\u{e4}".repeat(600);
        Fact { about, reason, subject: subject.to_owned(), text }
    }

    /// Plan and do it; the reasons of what is written.
    fn next(told: &mut Told, facts: &[Fact], sight: Sight) -> Vec<Telling> {
        let steps = told.plan(facts, |_| sight);
        let written = steps.iter().filter_map(Step::telling).collect();
        for step in steps {
            told.note(step);
        }
        assert_eq!(told.plan(facts, |_| sight), [], "a plan after its apply is empty");
        written
    }

    fn reasons(written: &[Telling]) -> Vec<String> {
        written.iter().map(|one| one.reason.to_string()).collect()
    }

    #[test]
    fn a_change_is_told_once_and_each_time_it_happens() {
        let mut told = Told::default();
        let missing = fact("u", EventReason::DiskMissing, "disk a");
        let other = fact("u", EventReason::DiskMissing, "disk b");
        let first = next(&mut told, std::slice::from_ref(&missing), Sight::There);
        assert_eq!(reasons(&first), ["DiskMissing"]);
        let changed = Fact { text: "now with other words".to_owned(), ..missing.clone() };
        assert_eq!(next(&mut told, &[changed], Sight::There), []);
        assert_eq!(
            reasons(&next(&mut told, &[missing.clone(), other.clone()], Sight::There)),
            ["DiskMissing"]
        );
        let over = next(&mut told, &[other], Sight::There);
        assert_eq!(over[0].text, "DiskMissing is over: disk a");
        let again = next(&mut told, std::slice::from_ref(&missing), Sight::There);
        assert_eq!(reasons(&again), ["DiskMissing", "Recovered"]);
        let mut names = [&first[0].name, &over[0].name, &again[0].name, &again[1].name];
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
        // One that has just started names it as the first has: it finds the event written.
        assert_eq!(next(&mut Told::default(), &[missing], Sight::There)[0].name, first[0].name);
    }

    #[test]
    fn what_is_gone_or_has_only_happened_is_forgotten() {
        let mut told = Told::default();
        for reason in EventReason::ALL {
            let one = fact("u", reason, "x");
            assert_eq!(next(&mut told, std::slice::from_ref(&one), Sight::There).len(), 1);
            assert_eq!(
                next(&mut told, &[], Sight::Gone),
                [],
                "{reason}: there is nobody to tell of"
            );
            assert_eq!(next(&mut told, &[one], Sight::There).len(), 1);
            let over = next(&mut told, &[], Sight::There);
            assert_eq!(over.is_empty(), !reason.recovers(), "{reason}");
        }
        next(&mut told, &[], Sight::Gone);
        assert!(told.0.is_empty());
    }

    #[test]
    fn what_nobody_can_see_is_not_over() {
        let mut told = Told::default();
        let missing = fact("u", EventReason::DiskMissing, "disk a");
        next(&mut told, std::slice::from_ref(&missing), Sight::There);
        assert_eq!(next(&mut told, &[], Sight::Hidden), []);
        assert_eq!(next(&mut told, std::slice::from_ref(&missing), Sight::There), []);
        assert_eq!(reasons(&next(&mut told, &[], Sight::There)), ["Recovered"]);
    }

    #[test]
    fn events_are_as_long_as_the_api_server_takes_them() {
        let mut long = fact("u", EventReason::PoolDegraded, "pool");
        long.about.name = format!("{}.{}", "a".repeat(199), "b".repeat(53));
        let [written] = &next(&mut Told::default(), &[long], Sight::There)[..] else { panic!() };
        assert_eq!(written.text.len(), 1024);
        assert!(written.name.starts_with(&"a".repeat(199)) && written.name.len() == 216);
        assert!(!written.name.contains(".."), "{}", written.name);
    }
}
