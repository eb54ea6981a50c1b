//! Reported facts that hold, and so what is still to be reported. Pure.

use std::collections::{HashMap, HashSet};

use crate::controllers::events::EventReason;
use crate::controllers::events::fact::{EventObject, EventObjectKind, Fact, Visibility};
use crate::volume::{NodeKey, VolumeId};

/// A fact without its sentence, which may change while it holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FactKey {
    pub about: EventObject,
    pub reason: EventReason,
    pub subject: String,
}

/// Reported facts that are not over.
#[derive(Debug, Default)]
pub(super) struct ReportedFacts(HashSet<FactKey>);

/// Next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventStep {
    /// Report that it holds.
    Tell(Box<Fact>),
    /// Report that it is over.
    Over(FactKey),
    /// Remember it no longer.
    Forget(FactKey),
}

impl ReportedFacts {
    /// Plans the reports: new facts, and reported ones that are over. A `young` one is neither
    /// reported yet nor over.
    pub fn plan(
        &self,
        facts: &[Fact],
        young: &[Fact],
        sight: impl Fn(&EventObject) -> Visibility,
    ) -> Vec<EventStep> {
        let holding: HashSet<FactKey> = facts.iter().chain(young).map(FactKey::of).collect();
        let new = facts.iter().filter(|fact| !self.0.contains(&FactKey::of(fact)));
        let begun = new.map(|fact| EventStep::Tell(Box::new(fact.clone())));
        let gone = self.0.iter().filter(|key| !holding.contains(key)).cloned();
        let over = gone.filter_map(|key| match sight(&key.about) {
            Visibility::Gone => Some(EventStep::Forget(key)),
            _ if !key.reason.recovers() => Some(EventStep::Forget(key)),
            Visibility::There => Some(EventStep::Over(key)),
            Visibility::Hidden => None,
        });
        begun.chain(over).collect()
    }

    /// Groups the facts by the node of their part. Keys without a volume are left out: they never end, and an
    /// existing event is looked up before it is written.
    pub fn by_node(self) -> HashMap<NodeKey, ReportedFacts> {
        let mut all: HashMap<NodeKey, ReportedFacts> = HashMap::new();
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
    pub fn note(&mut self, step: EventStep) {
        match step {
            EventStep::Tell(fact) => drop(self.0.insert(FactKey::of(&fact))),
            EventStep::Over(key) | EventStep::Forget(key) => drop(self.0.remove(&key)),
        }
    }
}

impl FromIterator<FactKey> for ReportedFacts {
    fn from_iter<I: IntoIterator<Item = FactKey>>(keys: I) -> ReportedFacts {
        ReportedFacts(keys.into_iter().collect())
    }
}

impl EventStep {
    /// Returns true if the step writes an event.
    pub fn is_told(&self) -> bool {
        !matches!(self, EventStep::Forget(_))
    }

    /// Returns the object of the event.
    pub fn about(&self) -> &EventObject {
        match self {
            EventStep::Tell(fact) => &fact.about,
            EventStep::Over(key) | EventStep::Forget(key) => &key.about,
        }
    }

    /// The fact that it is about.
    pub fn key(&self) -> FactKey {
        match self {
            EventStep::Tell(fact) => FactKey::of(fact),
            EventStep::Over(key) | EventStep::Forget(key) => key.clone(),
        }
    }
}

impl FactKey {
    /// Returns the key of a fact.
    pub fn of(fact: &Fact) -> FactKey {
        let Fact { about, reason, subject, .. } = fact.clone();
        FactKey { about, reason, subject }
    }

    /// The node of whose part it is: that of the volume, else the one that it is about.
    fn node(&self) -> Option<NodeKey> {
        if self.about.kind == EventObjectKind::Node {
            return Some(NodeKey::of(&self.about.name));
        }
        let volume: VolumeId = self.subject.strip_prefix("volume ")?.parse().ok()?;
        Some(volume.node().clone())
    }
}
