//! State from existing events: facts, their number, and whether they are over.
//!
//! Kubernetes retains an event for an hour, so all replicas know of it, even those that start later.
//! Only [`ReportedFacts`] remembers longer facts.

use std::collections::HashMap;

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::cluster::{EVENT_KEY, NO_NAMESPACE, OnceEvent, pages};
use crate::controllers::events::EventReason;
use crate::controllers::events::fact::EventObject;
use crate::controllers::events::told::{EventStep, FactKey, ReportedFacts};
use crate::volume::DRIVER;

/// Last events of each fact.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<FactKey, FactEdge>);

/// Maximum number of starts and ends of a fact: an event with a higher one is not from Pliant.
const MOST_TIMES: u32 = 1 << 20;

/// Start or end of a fact, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FactEdge {
    times: u32,
    is_over: bool,
}

/// An event to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Telling {
    key: FactKey,
    turn: FactEdge,
    text: String,
}

impl History {
    /// Reads the existing events.
    ///
    /// # Errors
    /// An error of the API server.
    pub async fn read(client: &Client) -> Result<History, kube::Error> {
        let ours = ListParams::default().fields(&format!("reportingController={DRIVER}"));
        let events: Api<Event> = Api::all(client.clone());
        let mut turns = Vec::new();
        pages(&events, &ours, |one| turns.extend(one.ok().as_ref().and_then(parse))).await?;
        Ok(turns.into_iter().collect())
    }

    /// Returns the reported facts that are not over.
    pub fn holding(&self) -> ReportedFacts {
        self.0.iter().filter(|(_, turn)| !turn.is_over).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the event of a step; `None` if it exists, from any writer.
    pub fn telling(&self, step: &EventStep) -> Option<Telling> {
        let (key, is_over, text) = match step {
            EventStep::Tell(fact) => (FactKey::of(fact), false, fact.text.clone()),
            EventStep::Over(key) => {
                (key.clone(), true, format!("{} is over: {}", key.reason, key.subject))
            }
            EventStep::Forget(_) => return None,
        };
        let times = match self.0.get(&key) {
            Some(last) if last.is_over == is_over => return None,
            Some(last) => last.times + u32::from(last.is_over),
            None => 0,
        };
        Some(Telling { key, turn: FactEdge { times, is_over }, text: OnceEvent::bounded(&text) })
    }
}

impl FromIterator<(FactKey, FactEdge)> for History {
    fn from_iter<I: IntoIterator<Item = (FactKey, FactEdge)>>(turns: I) -> History {
        let mut last = HashMap::new();
        for (key, turn) in turns {
            let known = last.entry(key).or_insert(turn);
            *known = turn.max(*known);
        }
        History(last)
    }
}

/// Parses an event; `None` for that of another writer. A user who may write events of a namespace can write
/// anything there: it is trusted for the objects of that namespace.
fn parse(event: &Event) -> Option<(FactKey, FactEdge)> {
    let event_key = event.metadata.annotations.as_ref()?.get(EVENT_KEY)?;
    let (times, rest) = event_key.split_once(' ')?;
    let (reason, subject) = rest.split_once(' ')?;
    let is_over = event.reason.as_deref() == Some(&EventReason::Recovered.to_string());
    let key = FactKey {
        about: EventObject::parse(event.regarding.as_ref()?)?,
        reason: EventReason::parse(reason)?,
        subject: subject.to_owned(),
    };
    let namespace = key.about.namespace.as_deref().unwrap_or(NO_NAMESPACE);
    let times = times.parse().ok().filter(|times| *times < MOST_TIMES)?;
    let is_its = event.metadata.namespace.as_deref() == Some(namespace);
    is_its.then_some((key, FactEdge { times, is_over }))
}

impl Telling {
    /// Returns the event to write: every replica gives it the same name.
    pub fn event(&self) -> OnceEvent {
        let (FactKey { about, reason: of, subject }, times) = (&self.key, self.turn.times);
        let reason = if self.turn.is_over { EventReason::Recovered } else { *of };
        let identity = format!("{}/{reason}/{of}/{subject}/{times}", about.uid);
        OnceEvent {
            name: OnceEvent::name_for(&about.name, &identity),
            about: about.reference(),
            reason: reason.to_string(),
            is_warning: reason.is_warning(),
            text: self.text.clone(),
            key: Some(format!("{times} {of} {subject}")),
        }
    }
}

#[cfg(test)]
mod tests;
