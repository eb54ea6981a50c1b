use super::*;
use crate::controllers::events::fact::{EventObjectKind, Fact, Visibility};

fn fact(reason: EventReason, subject: &str) -> Fact {
    let about = EventObject {
        kind: EventObjectKind::Node,
        namespace: None,
        name: "alpha".to_owned(),
        uid: "of-alpha".to_owned(),
    };
    Fact { about, reason, subject: subject.to_owned(), text: "\u{e4}".repeat(600) }
}

/// The events that are kept, the oldest first.
#[derive(Default)]
struct Kept(Vec<Event>);

impl Kept {
    fn history(&self) -> History {
        self.0.iter().filter_map(parse).collect()
    }

    /// Let one replica look; what it has written, `Reason` or `Recovered: Reason is over: subject`.
    fn look(&mut self, told: &mut ReportedFacts, facts: &[Fact], sight: Visibility) -> Vec<String> {
        let (history, mut written) = (self.history(), Vec::new());
        for step in told.plan(facts, &[], |_| sight) {
            if let Some(telling) = history.telling(&step) {
                let event = telling.event();
                let said = if event.reason == "Recovered" { &*event.text } else { "" };
                written.push(format!("{} {said}", event.reason).trim().to_owned());
                let event = event.event("default", "replica");
                let is_there = |one: &Event| one.metadata.name == event.metadata.name;
                assert!(!self.0.iter().any(is_there), "{event:?} is not written");
                self.0.push(event);
            }
            told.note(step);
        }
        assert_eq!(told.plan(facts, &[], |_| sight), [], "a plan after its apply is empty");
        written
    }
}

const MISSING: &str = "DiskMissing";
const OVER: &str = "Recovered DiskMissing is over: disk a";

#[test]
fn a_change_is_told_once_and_each_time_it_happens() {
    let (mut kept, mut told) = (Kept::default(), ReportedFacts::default());
    let missing = fact(EventReason::DiskMissing, "disk a");
    let other = fact(EventReason::DiskMissing, "disk b");
    let mut look = |facts: &[&Fact]| {
        let facts: Vec<Fact> = facts.iter().copied().cloned().collect();
        kept.look(&mut told, &facts, Visibility::There)
    };
    assert_eq!(look(&[&missing]), [MISSING]);
    let changed = Fact { text: "now with other words".to_owned(), ..missing.clone() };
    assert_eq!(look(&[&changed]), [""; 0]);
    assert_eq!(look(&[&missing, &other]), [MISSING]);
    assert_eq!(look(&[&other]), [OVER]);
    assert_eq!(look(&[&missing]), [MISSING, "Recovered DiskMissing is over: disk b"]);
    assert_eq!(look(&[]), [OVER]);
}

#[test]
fn who_starts_later_goes_on_where_the_events_are() {
    let (mut kept, missing) = (Kept::default(), [fact(EventReason::DiskMissing, "disk a")]);
    let mut old = ReportedFacts::default();
    for round in 0..4 {
        assert_eq!(kept.look(&mut old, &missing, Visibility::There), [MISSING], "{round}");
        let mut new = kept.history().holding();
        assert_eq!(kept.look(&mut new, &missing, Visibility::There), [""; 0], "{round}");
        // What is over while nobody looks is told by who looks next.
        let mut new = kept.history().holding();
        assert_eq!(kept.look(&mut new, &[], Visibility::There), [OVER], "{round}");
        assert_eq!(kept.look(&mut old, &[], Visibility::There), [""; 0], "{round}");
        // Then the next time is another one, whoever sees it.
        old = kept.history().holding();
    }
}

#[test]
fn two_who_know_of_different_times_agree_when_events_are_no_longer_kept() {
    let missing = [fact(EventReason::DiskMissing, "disk a")];
    for lost in 0..=5 {
        let (mut kept, mut old) = (Kept::default(), ReportedFacts::default());
        for facts in [&missing[..], &[], &missing[..], &[], &missing[..]] {
            kept.look(&mut old, facts, Visibility::There);
        }
        kept.0.drain(..lost);
        let mut new = kept.history().holding();
        // What still holds and is told nowhere any more is told anew, once.
        let anew = kept.look(&mut new, &missing, Visibility::There);
        assert_eq!(anew.len(), usize::from(lost == 5), "{lost}");
        for (facts, said) in [(&[][..], OVER), (&missing[..], MISSING), (&[], OVER)] {
            assert_eq!(kept.look(&mut new, facts, Visibility::There), [said], "{lost}");
            assert_eq!(kept.look(&mut old, facts, Visibility::There), [""; 0], "{lost}");
        }
    }
}

#[test]
fn what_is_gone_or_has_only_happened_is_forgotten() {
    for reason in EventReason::ALL {
        let (mut kept, mut told) = (Kept::default(), ReportedFacts::default());
        let one = [fact(reason, "x")];
        assert_eq!(kept.look(&mut told, &one, Visibility::There).len(), 1, "{reason}");
        let over = kept.look(&mut told, &[], Visibility::There);
        assert_eq!(over.is_empty(), !reason.recovers(), "{reason}");
        kept.look(&mut told, &one, Visibility::There);
        let gone = kept.look(&mut told, &[], Visibility::Gone);
        assert_eq!(gone, [""; 0], "{reason}: there is nobody to tell of");
    }
}

#[test]
fn what_nobody_can_see_or_is_young_is_not_over() {
    let (mut kept, mut told) = (Kept::default(), ReportedFacts::default());
    let missing = [fact(EventReason::DiskMissing, "disk a")];
    kept.look(&mut told, &missing, Visibility::There);
    assert_eq!(kept.look(&mut told, &[], Visibility::Hidden), [""; 0]);
    assert_eq!(told.plan(&[], &missing, |_| Visibility::There), []);
    assert_eq!(ReportedFacts::default().plan(&[], &missing, |_| Visibility::There), []);
    assert_eq!(kept.look(&mut told, &[], Visibility::There), [OVER]);
}

#[test]
fn events_are_as_long_as_the_api_server_takes_them() {
    let mut long = fact(EventReason::PoolDegraded, "pool");
    long.about.name = format!("{}.{}", "a".repeat(199), "b".repeat(53));
    let written = History::default().telling(&EventStep::Tell(Box::new(long))).unwrap().event();
    assert_eq!(written.text.len(), 1024);
    assert!(written.name.starts_with(&"a".repeat(199)) && written.name.len() == 216);
    assert!(!written.name.contains(".."), "{}", written.name);
}

#[test]
fn an_event_is_believed_about_the_objects_of_its_namespace() {
    let step = EventStep::Tell(Box::new(fact(EventReason::DiskMissing, "disk a")));
    let event = |namespace: &str| {
        let event = History::default().telling(&step).unwrap().event();
        event.event(namespace, "whoever")
    };
    for (namespace, is_believed) in [("default", true), ("shop", false)] {
        let history: History = [event(namespace)].iter().filter_map(parse).collect();
        assert_eq!(history.telling(&step).is_none(), is_believed, "{namespace}");
    }
    let mut many = event("default");
    let key = format!("{} DiskMissing disk a", u32::MAX);
    many.metadata.annotations.as_mut().unwrap().insert(EVENT_KEY.to_owned(), key);
    assert_eq!(parse(&many), None);
}
