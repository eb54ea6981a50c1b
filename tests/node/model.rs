//! What must be true of one volume: the answer to each call, one after the other, and whether an
//! order exists that explains what callers who asked at the same time were told.

use std::collections::BTreeSet;

use pliant::bytes::Bytes;
use pliant::volume::Mode;
use tonic::Code;

use crate::calls::{Answer, Call, Verb};

/// A volume as its callers know it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Model {
    /// `None`: there is no volume.
    pub mib: Option<u64>,
    /// Mounted at its staging path; of a raw block volume: active.
    staged: bool,
    pub published: bool,
}

impl Model {
    /// What the call makes of the volume, and its answer.
    pub fn after(self, call: Call) -> (Model, Answer) {
        let block = call.mode == Mode::Block;
        let refused = |code| (self, Answer::Refused(code));
        let bytes = |mib| Bytes::mib(mib).to_i64();
        let Some(mib) = self.mib else {
            return match call.verb {
                Verb::Create => {
                    let made = Model { mib: Some(call.mib), ..Model::default() };
                    (made, Answer::Size(bytes(call.mib)))
                }
                Verb::Delete | Verb::Unstage | Verb::Unpublish => (self, Answer::Done),
                _ => refused(Code::NotFound),
            };
        };
        let larger = Model { mib: Some(mib.max(call.mib)), ..self };
        let held = self.published || (self.staged && !block);
        match call.verb {
            Verb::Create if mib < call.mib => refused(Code::AlreadyExists),
            Verb::Create | Verb::Get => (self, Answer::Size(bytes(mib))),
            Verb::Delete if held => refused(Code::FailedPrecondition),
            Verb::Delete => (Model::default(), Answer::Done),
            Verb::Stage => (Model { staged: true, ..self }, Answer::Done),
            Verb::Unstage if self.published => refused(Code::FailedPrecondition),
            Verb::Unstage => (Model { staged: false, ..self }, Answer::Done),
            Verb::Publish if !self.staged => refused(Code::FailedPrecondition),
            Verb::Publish => (Model { published: true, ..self }, Answer::Done),
            Verb::Unpublish => (Model { published: false, ..self }, Answer::Done),
            Verb::Expand => (larger, Answer::Grown(bytes(mib.max(call.mib)), false)),
            Verb::NodeExpand if !self.published => refused(Code::NotFound),
            Verb::NodeExpand => (larger, Answer::Size(bytes(mib.max(call.mib)))),
        }
    }
}

/// A call and its answer, with when it was asked and answered by one clock.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub asked: u64,
    pub answered: u64,
    pub call: Call,
    pub answer: Answer,
}

/// Where the volume may stand after these events: by each order of the calls that keeps to their
/// times and explains all answers. None if there is no such order.
pub fn explain(before: &BTreeSet<Model>, events: &[Event]) -> BTreeSet<Model> {
    // Somebody else was at work: nothing was done.
    let turned_away = |event: &&Event| event.answer == Answer::Refused(Code::Aborted);
    let events: Vec<Event> = events.iter().filter(|event| !turned_away(event)).copied().collect();
    assert!(events.len() < 128, "an event is a bit");
    let all = (1u128 << events.len()) - 1;
    let mut seen: BTreeSet<(u128, Model)> = before.iter().map(|model| (0, *model)).collect();
    let mut open: Vec<(u128, Model)> = seen.iter().copied().collect();
    while let Some((done, model)) = open.pop() {
        let left = || events.iter().enumerate().filter(|(i, _)| done >> i & 1 == 0);
        let first_end = left().map(|(_, event)| event.answered).min().unwrap_or_default();
        for (i, event) in left().filter(|(_, event)| event.asked < first_end) {
            let (next, answer) = model.after(event.call);
            if answer == event.answer && seen.insert((done | 1 << i, next)) {
                open.push((done | 1 << i, next));
            }
        }
    }
    seen.into_iter().filter(|(done, _)| *done == all).map(|(_, model)| model).collect()
}
