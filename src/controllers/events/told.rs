//! Reported facts that hold, and so what is still to be reported. Pure.

use std::collections::{HashMap, HashSet};

use crate::controllers::events::EventReason;
use crate::controllers::events::fact::{About, Fact, Kind, Sight};
use crate::volume::{NodeKey, VolumeId};

/// A fact without its sentence, which may change while it holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub about: About,
    pub reason: EventReason,
    pub subject: String,
}

/// Reported facts that are not over.
#[derive(Debug, Default)]
pub(super) struct Told(HashSet<Key>);

/// Next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Report that it holds.
    Tell(Box<Fact>),
    /// Report that it is over.
    Over(Key),
    /// Remember it no longer.
    Forget(Key),
}

impl Told {
    /// Plans the reports: new facts, and reported ones that are over. A `young` one is neither
    /// reported yet nor over.
    pub fn plan(
        &self,
        facts: &[Fact],
        young: &[Fact],
        sight: impl Fn(&About) -> Sight,
    ) -> Vec<Step> {
        let holding: HashSet<Key> = facts.iter().chain(young).map(Key::of).collect();
        let new = facts.iter().filter(|fact| !self.0.contains(&Key::of(fact)));
        let begun = new.map(|fact| Step::Tell(Box::new(fact.clone())));
        let gone = self.0.iter().filter(|key| !holding.contains(key)).cloned();
        let over = gone.filter_map(|key| match sight(&key.about) {
            Sight::Gone => Some(Step::Forget(key)),
            _ if !key.reason.recovers() => Some(Step::Forget(key)),
            Sight::There => Some(Step::Over(key)),
            Sight::Hidden => None,
        });
        begun.chain(over).collect()
    }

    /// Groups the facts by the node of their part. Keys without a volume are left out: they never end, and an
    /// existing event is looked up before it is written.
    pub fn by_node(self) -> HashMap<NodeKey, Told> {
        let mut all: HashMap<NodeKey, Told> = HashMap::new();
        for key in self.0 {
            if let Some(node) = key.node() {
                all.entry(node).or_default().0.insert(key);
            }
        }
        all
    }

    /// Returns true if there are no reported facts that hold.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stores that a step was done.
    pub fn note(&mut self, step: Step) {
        match step {
            Step::Tell(fact) => drop(self.0.insert(Key::of(&fact))),
            Step::Over(key) | Step::Forget(key) => drop(self.0.remove(&key)),
        }
    }
}

impl FromIterator<Key> for Told {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Told {
        Told(keys.into_iter().collect())
    }
}

impl Step {
    /// Returns true if the step writes an event.
    pub fn is_told(&self) -> bool {
        !matches!(self, Step::Forget(_))
    }

    /// Returns the object of the event.
    pub fn about(&self) -> &About {
        match self {
            Step::Tell(fact) => &fact.about,
            Step::Over(key) | Step::Forget(key) => &key.about,
        }
    }

    /// The fact that it is about.
    pub fn key(&self) -> Key {
        match self {
            Step::Tell(fact) => Key::of(fact),
            Step::Over(key) | Step::Forget(key) => key.clone(),
        }
    }
}

impl Key {
    /// Returns the key of a fact.
    pub fn of(fact: &Fact) -> Key {
        let Fact { about, reason, subject, .. } = fact.clone();
        Key { about, reason, subject }
    }

    /// The node of whose part it is: that of the volume, else the one that it is about.
    fn node(&self) -> Option<NodeKey> {
        if self.about.kind == Kind::Node {
            return Some(NodeKey::of(&self.about.name));
        }
        let volume: VolumeId = self.subject.strip_prefix("volume ")?.parse().ok()?;
        Some(volume.node().clone())
    }
}
