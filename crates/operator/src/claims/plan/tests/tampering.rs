//! A user in the explored world who tampers with what keeps a swap safe: its finalizer, its labels and notes, what it
//! copies from, and what a swap before has left.

use super::figures::figures;
use super::world::{Claim, FillingPhaseKey, Left, Move, NOTHING, SAME, Source, World};
use super::{explore_all, settle};

/// What such a user does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tampering {
    /// Take our finalizer off the old claim.
    StripFinalizer,
    /// The same, and delete that claim.
    StripAndDelete,
    DeleteRetained,
    GrowRetained,
    /// Take off a retained claim that another one has taken its place.
    UnmarkRetained,
    RelabelRetained,
    /// Write on the claim of the pod that a retained one, or one that is not there, has taken its place.
    MarkActive,
    RelabelActive,
    GrowNewClaim,
    RelabelNewClaim,
    /// Delete the `prime-…` claim, or a pod that copies.
    DropFill,
    /// Delete the PvcSourcePopulator, and make one of its name that copies another claim.
    Redirect,
    UnlabelSource,
    /// Turn `spec.preCopy` of the PvcSourcePopulator round.
    TurnAhead,
}

/// A claim of the namespace that has nothing to do with the swap.
pub(super) const ELSEWHERE: &str = "scratch";

/// All of it, one by one.
const EACH: [&[Tampering]; 14] = [
    &[Tampering::StripFinalizer],
    &[Tampering::StripAndDelete],
    &[Tampering::DeleteRetained],
    &[Tampering::GrowRetained],
    &[Tampering::UnmarkRetained],
    &[Tampering::RelabelRetained],
    &[Tampering::MarkActive],
    &[Tampering::RelabelActive],
    &[Tampering::GrowNewClaim],
    &[Tampering::RelabelNewClaim],
    &[Tampering::DropFill],
    &[Tampering::Redirect],
    &[Tampering::UnlabelSource],
    &[Tampering::TurnAhead],
];

/// Those that lie of which claim has what was written last.
const LIES: &[Tampering] =
    &[Tampering::UnmarkRetained, Tampering::MarkActive, Tampering::RelabelActive];

impl World {
    pub(super) fn tamper(&mut self, how: Tampering) -> bool {
        self.left.tampers -= 1;
        let (active, retained) = (self.active_claim(), self.retained_claim());
        let new = self.new_claim();
        match how {
            Tampering::StripFinalizer => self.strip(active.as_ref()),
            Tampering::StripAndDelete => self.strip(active.as_ref()) && self.end(active.as_ref()),
            Tampering::DeleteRetained => self.end(retained.as_ref()),
            Tampering::GrowRetained => self.grow(retained.as_ref()),
            Tampering::UnmarkRetained => self.write_note(retained.as_ref(), None),
            Tampering::RelabelRetained => self.relabel(retained.as_ref()),
            Tampering::MarkActive => {
                self.write_note(active.as_ref(), Some(retained.unwrap_or("x".to_owned())))
            }
            Tampering::RelabelActive => self.relabel(active.as_ref()),
            Tampering::GrowNewClaim => self.grow(new.as_ref()),
            Tampering::RelabelNewClaim => self.relabel(new.as_ref()),
            Tampering::DropFill => self.drop_fill(),
            Tampering::Redirect => self.redirect(),
            Tampering::UnlabelSource => {
                let source = self.sources.values_mut().next();
                source.is_some_and(|source| std::mem::take(&mut source.has_labels))
            }
            Tampering::TurnAhead => self.turn_ahead(),
        }
    }

    /// Whether a swap waits for what a user has taken from it.
    pub(super) fn is_held_up_by_user(&self) -> bool {
        let new = self.new_claim().and_then(|name| self.claims.get(&name));
        new.is_some_and(|claim| claim.is_anothers)
            || self.sources.values().any(|source| !source.has_labels)
    }

    /// Whether all stays as it is until the user who has tampered does what the status says, and nothing is lost: the
    /// pod runs, or its node keeps it from a volume that lacks what was written since.
    pub(super) fn waits_for_user(&self, runs: bool) -> bool {
        if self.tampering.is_empty() {
            return false;
        }
        let active = self.active_claim().and_then(|name| self.claims.get(&name));
        let has_all = active.is_some_and(|claim| claim.content == Some(self.data));
        let is_elsewhere = self.claims.values().any(|one| one.content == Some(self.data));
        match self.status.reason.as_deref() {
            Some("ClaimConflict") => runs && has_all,
            Some("VolumeSuperseded") => !runs && is_elsewhere,
            // The operator is refused what has the name of another client's: see `writes::make_own`.
            _ => runs && has_all && self.sources.values().any(|source| !source.has_labels),
        }
    }

    fn active_claim(&self) -> Option<String> {
        let name = self.status.of(0)?.active_claim.clone();
        Some(name).filter(|name| self.claims.contains_key(name))
    }

    fn retained_claim(&self) -> Option<String> {
        let mut retained =
            self.status.of(0)?.retained_claims.iter().rev().map(|old| old.name.clone());
        retained.find(|name| self.claims.contains_key(name))
    }

    fn strip(&mut self, name: Option<&String>) -> bool {
        let claim = name.and_then(|name| self.claims.get_mut(name));
        claim.is_some_and(|claim| std::mem::take(&mut claim.has_finalizer))
    }

    /// Nobody deletes what was written last and is not kept for a swap: whoever does that wants it to be gone.
    fn end(&mut self, name: Option<&String>) -> bool {
        let claim = name.and_then(|name| self.claims.get_mut(name));
        claim.is_some_and(|claim| !std::mem::replace(&mut claim.is_ending, true))
    }

    fn grow(&mut self, name: Option<&String>) -> bool {
        let claim = name.and_then(|name| self.claims.get_mut(name)).filter(|one| !one.is_grown);
        claim.is_some_and(|claim| {
            (claim.gib, claim.is_grown) = (claim.gib + 1, true);
            true
        })
    }

    fn relabel(&mut self, name: Option<&String>) -> bool {
        let claim = name.and_then(|name| self.claims.get_mut(name));
        claim.is_some_and(|claim| !std::mem::replace(&mut claim.is_anothers, true))
    }

    fn write_note(&mut self, name: Option<&String>, by: Option<String>) -> bool {
        let is_new = |claim: &&mut Claim| claim.superseded != by.is_some();
        let claim = name.and_then(|name| self.claims.get_mut(name)).filter(is_new);
        let Some(claim) = claim else { return false };
        (claim.superseded, claim.marks) = (by.is_some(), claim.marks + 1);
        claim.forged_by = by;
        true
    }

    /// What fills a volume is made again, and begins with what is there by then.
    fn drop_fill(&mut self) -> bool {
        use FillingPhaseKey::{Ahead, Filling, Held, Stalled};
        let source = self.sources.values_mut().next();
        let is_begun = |one: &&mut Source| matches!(one.phase, Ahead | Filling | Held | Stalled);
        let Some(source) = source.filter(is_begun) else { return false };
        (source.phase, source.read) = (FillingPhaseKey::Waiting, None);
        true
    }

    fn redirect(&mut self) -> bool {
        let Some(source) = self.sources.values_mut().next() else { return false };
        if !source.paused {
            return false; // What has begun is over before anybody could look.
        }
        let to = ELSEWHERE.to_owned();
        if source.from == to {
            return false;
        }
        let phase = FillingPhaseKey::Waiting;
        let is_told_of_before = false;
        *source = Source { from: to, phase, is_told_of_before, read: None, ..source.clone() };
        true
    }

    fn turn_ahead(&mut self) -> bool {
        use FillingPhaseKey::{Ahead, Held, Refused, Waiting};
        let source = self.sources.values_mut().next();
        let source = source
            .filter(|one| one.paused && matches!(one.phase, Ahead | Held | Refused | Waiting));
        let Some(source) = source else { return false };
        (source.copies_ahead, source.phase) = (!source.copies_ahead, Waiting);
        true
    }
}

/// A swap has ended, what was before is retained, and the template is edited back.
fn swapped_once(left: Left) -> World {
    let mut world = settle(&World::new(left));
    world.left = Left { edits: 1, ..left };
    world.left.tampers = 0;
    world = settle(&world.after(Move::Edit).expect("there is another template"));
    world.left = Left { edits: 0, edits_back: 1, ..left };
    let mut world = world.after(Move::EditBack).expect("there is another template");
    world.left = Left { edits: 0, ..left };
    world
}

/// How many states of a story are explored in the order in which they are reached.
const AT_MOST: usize = 1_500;

fn stories() -> impl Iterator<Item = (String, World, usize)> {
    let once = Left { tampers: 1, ..NOTHING };
    let each = [
        Left { kills: 1, ..once },
        Left { deaths: 1, ..once },
        Left { tampers: 2, ..once },
        Left { is_hot: true, ..once },
        Left { tampers: 1, kills: 1, ..SAME },
    ];
    let each = each.into_iter().flat_map(|left| EACH.into_iter().map(move |what| (left, what)));
    let others = [
        (Left { operators: 2, ..once }, EACH[1]),
        (Left { backs: 1, ..once }, EACH[2]),
        (Left { aborts: 1, ..once }, EACH[11]),
        (Left { deletions: 1, ..once }, LIES),
    ];
    each.chain(others).map(|(left, tampering)| {
        let world = World { tampering, ..swapped_once(left) };
        (format!("{tampering:?} with {left:?}"), world, AT_MOST)
    })
}

#[test]
fn whatever_a_user_takes_from_a_swap_nothing_is_lost_and_all_ends_well() {
    let (states, broken) = explore_all(stories());
    figures(
        "tampers.txt",
        &[("tampered_states_explored", states), ("tampered_invariant_violations", broken)],
    );
    assert_eq!(broken, 0, "stories in which something is lost or does not end well");
    assert!(states > 10_000, "only {states} states");
}
