//! Every order of what two operators, Kubernetes and a stranger can do while two claims change their
//! volumes.

use crate::claims::objects::owner;
use std::collections::{BTreeMap, HashSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// The two claims, and their PersistentVolumes.
const SIDES: [(ExchangeSide, &str, &str); 2] =
    [(ExchangeSide::Active, "data-db-0", "pv-0"), (ExchangeSide::Copy, "data-db-0-1a2b3", "pv-1")];

/// What a stranger does, once and at any time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stranger {
    Nothing,
    DeletesCopy,
    DeletesAutoscaler,
    DeletesVolume(&'static str),
}

#[derive(Debug, Clone, PartialEq)]
struct World {
    claims: BTreeMap<&'static str, PersistentVolumeClaim>,
    pvs: BTreeMap<String, PersistentVolume>,
    /// The volumes that are no more.
    destroyed: Vec<String>,
    /// What each operator has decided, from what it saw.
    decided: [Option<(ClaimPair, ExchangeStage)>; 2],
    stranger: Stranger,
    /// Whether a swap knows of it.
    is_known: bool,
    /// Whether the old volume was given back, so that a pod may write to it.
    is_given_back: bool,
}

#[derive(Debug, Clone, Copy)]
enum Move {
    Look(usize),
    Do(usize),
    Lose,
    Find,
    Vanish,
    Reclaim,
    GiveBack,
    Die(usize),
    Stranger,
}

const MOVES: [Move; 12] = [
    Move::Look(0),
    Move::Do(0),
    Move::Lose,
    Move::Find,
    Move::Vanish,
    Move::Reclaim,
    Move::GiveBack,
    Move::Look(1),
    Move::Do(1),
    Move::Die(0),
    Move::Die(1),
    Move::Stranger,
];

/// Those that always happen in the end.
const FAIR: usize = 7;

fn object<K: serde::de::DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

fn claim(name: &str, pv: &str, size: &str) -> PersistentVolumeClaim {
    object(json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"volumeName": pv, "resources": {"requests": {"storage": size}}},
        "status": {"phase": "Bound"},
    }))
}

/// A quota counts what the claim of the pod asks for, and its tenant can edit the other one.
#[test]
fn a_copy_that_asks_for_more_than_the_claim_of_the_pod_does_outgrows_it() {
    let half = |name: &str, size: &str| ClaimAndVolume {
        claim: Some(Box::new(claim(name, "pv", size))),
        ..ClaimAndVolume::default()
    };
    for (copy, expected) in [("1Gi", false), ("2Gi", false), ("3Gi", true), ("1e50", true)] {
        let pair =
            ClaimPair { active: half("data-db-0", "2Gi"), copy: half("data-db-0-1a2b3", copy) };
        assert_eq!(pair.outgrows(), expected, "{copy}");
    }
}

fn volume(name: &str, claim: &str, handle: &str, class: &str, size: &str) -> PersistentVolume {
    object(json!({
        "metadata": {"name": name, "finalizers": ["kubernetes.io/pv-protection"], "annotations": {
            "pv.kubernetes.io/provisioned-by": "x", "pliant.io/populates": "data-db-0-1a2b3"}},
        "spec": {
            "capacity": {"storage": size}, "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": "shop", "name": claim, "uid": claim},
            "csi": {"driver": "x", "volumeHandle": handle},
        },
    }))
}

impl World {
    fn new(stranger: Stranger) -> World {
        let claims = [("4Gi", "pv-0"), ("2Gi", "pv-1")];
        let claims = SIDES.iter().zip(claims);
        World {
            claims: claims
                .map(|((_, name, _), (size, pv))| (*name, claim(name, pv, size)))
                .collect(),
            pvs: [
                ("pv-0".to_owned(), volume("pv-0", "data-db-0", "old", "hdd", "4Gi")),
                ("pv-1".to_owned(), volume("pv-1", "data-db-0-1a2b3", "new", "ssd", "2Gi")),
            ]
            .into(),
            destroyed: Vec::new(),
            decided: [None, None],
            stranger,
            is_known: true,
            is_given_back: false,
        }
    }

    fn pair(&self) -> ClaimPair {
        let half = |name: &str, pv: &str| ClaimAndVolume {
            claim: self.claims.get(name).cloned().map(Box::new),
            pv: self.pvs.get(pv).cloned().map(Box::new),
        };
        let [(_, active, first), (_, copy, second)] = SIDES;
        ClaimPair { active: half(active, first), copy: half(copy, second) }
    }

    fn after(&self, one: Move) -> Option<World> {
        let mut next = self.clone();
        let is_done = match one {
            Move::Look(n) => next.look(n),
            Move::Do(n) => next.act(n),
            Move::Die(n) => next.decided[n].take().is_some(),
            Move::Lose => next.bind("Bound", "Lost"),
            Move::Find => next.bind("Lost", "Bound"),
            Move::Vanish => next.vanish(),
            Move::Reclaim => next.reclaim(),
            Move::GiveBack => next.clean_up(),
            Move::Stranger => next.meddle(),
        };
        is_done.then(|| next.checked())
    }

    fn look(&mut self, n: usize) -> bool {
        if self.decided[n].is_some() {
            return false;
        }
        let pair = self.pair();
        let stage = match pair.exchange("new") {
            _ if !self.is_known && pair.given_up().is_some() => pair.given_up().unwrap(),
            Exchange::Ready if !self.is_known => return false,
            Exchange::Ready => ExchangeStage::Record(ExchangeSide::Copy),
            Exchange::Next(stage) => stage,
            _ => return false,
        };
        self.decided[n] = Some((pair, stage));
        true
    }

    /// Do what was decided, if all that it was decided from is still so.
    fn act(&mut self, n: usize) -> bool {
        let Some((pair, stage)) = self.decided[n].take() else { return false };
        let (ExchangeStage::Record(side)
        | ExchangeStage::Delete(side)
        | ExchangeStage::Free(side)
        | ExchangeStage::Make(side)
        | ExchangeStage::Nudge(side)
        | ExchangeStage::Finish(side)) = stage;
        let (_, name, pv) = SIDES[usize::from(side == ExchangeSide::Copy)];
        let known = pair.record().expect("what both are to be is known");
        let wanted = known.of(side);
        if let ExchangeStage::Make(_) = stage {
            let mut made = wanted.made(&known);
            made.metadata.finalizers = Some(vec!["kubernetes.io/pv-protection".to_owned()]);
            self.pvs.entry(pv.to_owned()).or_insert(made);
            return true;
        }
        if let ExchangeStage::Nudge(_) = stage {
            if let Some(claim) = self.claims.get_mut(name) {
                let notes = claim.annotations_mut();
                notes.insert(VOLUME.to_owned(), wanted.volume.clone());
                notes.extend(wanted.class.clone().map(|class| (CLASS.to_owned(), class)));
                let capacity = wanted.pv.spec.as_ref().unwrap().capacity.clone();
                claim.status.as_mut().unwrap().capacity = capacity;
            }
            return true;
        }
        if self.pvs.get(pv) != pair.half(side).pv.as_deref() {
            return true; // Its version is another one by now.
        }
        let Some(there) = self.pvs.get_mut(pv) else { return true };
        let policy = |there: &mut PersistentVolume, policy: String| {
            there.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some(policy);
        };
        match stage {
            ExchangeStage::Record(_) => {
                there.annotations_mut().insert(EXCHANGE.to_owned(), written(&known));
                policy(there, "Retain".to_owned());
            }
            ExchangeStage::Finish(_) => {
                there.annotations_mut().remove(EXCHANGE);
                policy(
                    there,
                    known.policy(
                        &ClaimAndVolume {
                            claim: self.claims.get(name).cloned().map(Box::new),
                            pv: Some(Box::new(there.clone())),
                        },
                        false,
                    ),
                );
            }
            ExchangeStage::Delete(_) => {
                there.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            }
            ExchangeStage::Free(_) => drop(self.pvs.remove(pv)),
            ExchangeStage::Make(_) | ExchangeStage::Nudge(_) => unreachable!("they were done"),
        }
        true
    }

    /// The controller of volumes looks at the claims.
    fn bind(&mut self, from: &str, to: &str) -> bool {
        let pvs = &self.pvs;
        let is_there = |claim: &PersistentVolumeClaim| {
            let pv = pvs.get(claim.spec.as_ref().unwrap().volume_name.as_ref().unwrap());
            pv.is_some_and(|pv| owner(pv) == claim.metadata.uid.as_deref())
        };
        let mut claims = self.claims.values_mut();
        let is_it = |claim: &&mut PersistentVolumeClaim| {
            let phase = claim.status.as_ref().unwrap().phase.as_deref();
            phase == Some(from) && is_there(claim) == (to == "Bound")
        };
        let Some(claim) = claims.find(is_it) else { return false };
        claim.status.as_mut().unwrap().phase = Some(to.to_owned());
        true
    }

    /// A PersistentVolume that was deleted goes when it has no claim.
    fn vanish(&mut self) -> bool {
        let goes = |pv: &PersistentVolume| is_ending(&pv.metadata) && !self.has_claim(pv);
        let Some(name) = self.pvs.iter().find(|(_, pv)| goes(pv)).map(|(name, _)| name.clone())
        else {
            return false;
        };
        self.pvs.remove(&name).is_some()
    }

    /// One without a claim goes with its volume, if it is not retained.
    fn reclaim(&mut self) -> bool {
        let goes = |pv: &PersistentVolume| {
            let policy = pv.spec.as_ref().unwrap().persistent_volume_reclaim_policy.as_deref();
            policy == Some("Delete") && !self.has_claim(pv)
        };
        let Some(name) = self.pvs.iter().find(|(_, pv)| goes(pv)).map(|(name, _)| name.clone())
        else {
            return false;
        };
        let gone = self.pvs.remove(&name).unwrap();
        self.destroyed.push(handle(&gone).unwrap().to_owned());
        true
    }

    /// The old volume is the pod's again if no swap knows of it, and it is not in an exchange. From then on
    /// it has more than the copy.
    fn clean_up(&mut self) -> bool {
        let pv = self.pvs.get(SIDES[0].2).filter(|pv| handle(pv) == Some("old"));
        let is_free = pv.is_some_and(|pv| record(pv).is_none()) && !self.is_known;
        is_free && !std::mem::replace(&mut self.is_given_back, true)
    }

    fn has_claim(&self, pv: &PersistentVolume) -> bool {
        self.claims.values().any(|claim| claim.metadata.uid.as_deref() == owner(pv))
    }

    fn meddle(&mut self) -> bool {
        match std::mem::replace(&mut self.stranger, Stranger::Nothing) {
            Stranger::Nothing => false,
            Stranger::DeletesAutoscaler => std::mem::take(&mut self.is_known),
            Stranger::DeletesCopy => self.claims.remove(SIDES[1].1).is_some(),
            Stranger::DeletesVolume(name) => self.pvs.get_mut(name).is_some_and(|pv| {
                pv.metadata.deletion_timestamp.get_or_insert(Time(Timestamp::UNIX_EPOCH));
                true
            }),
        }
    }

    /// The claim of the pod never has a volume that is none of the two, or that is no more; and what it is
    /// to have is known as long as it has none.
    fn checked(self) -> World {
        let pair = self.pair();
        let has = pair.active.pv.as_deref().and_then(handle).map(str::to_owned);
        let has = has.or_else(|| Some(handle(&pair.written()?.active.pv)?.to_owned()));
        let has = has.unwrap_or_else(|| panic!("nobody knows the volume of the claim: {self:#?}"));
        assert!(["old", "new"].contains(&&*has), "a stranger's volume: {self:#?}");
        assert!(!self.destroyed.contains(&has), "the volume of the claim is gone: {self:#?}");
        assert!(!self.is_given_back || has == "old", "what was written is lost: {self:#?}");
        assert!(self.claims.contains_key(SIDES[0].1), "the claim is deleted");
        let owners = self.pvs.values().filter(|pv| owner(pv).is_none()).count();
        assert_eq!(owners, 0, "a volume that any claim could get: {self:#?}");
        self
    }

    fn settled(&self) -> World {
        let mut world = self.clone();
        for _ in 0..60 {
            let before = world.clone();
            for one in MOVES[..FAIR].iter().chain([&Move::Do(1)]) {
                world = world.after(*one).unwrap_or(world);
            }
            if world == before {
                break;
            }
        }
        world
    }

    /// In the end the claim has the copy, or what it had if that was deleted first; and nothing is left.
    fn ends_well(&self) -> bool {
        let end = self.settled();
        let pair = end.pair();
        let is_bound = |half: &ClaimAndVolume| half.claim.as_deref().is_none_or(is_bound);
        let has = pair.active.pv.as_deref().and_then(handle);
        let is_new = has == Some("new");
        let is_gone = !end.claims.contains_key(SIDES[1].1);
        let is_old = has == Some("old") && (is_gone || !end.is_known);
        let kept = pair.copy.pv.as_deref().and_then(handle);
        is_bound(&pair.active)
            && is_bound(&pair.copy)
            && pair.written().is_none()
            && (is_new || is_old)
            && (is_gone || kept == Some(if is_new { "old" } else { "new" }))
    }
}

/// How many states of a story are explored. Most have fewer.
const AT_MOST: usize = 4000;

#[test]
fn in_every_order_the_claim_has_a_volume_of_its_own_and_all_ends_well() {
    let mut states = 0;
    for stranger in [
        Stranger::Nothing,
        Stranger::DeletesCopy,
        Stranger::DeletesAutoscaler,
        Stranger::DeletesVolume("pv-0"),
        Stranger::DeletesVolume("pv-1"),
    ] {
        let first = World::new(stranger);
        let mut known: HashSet<String> = [format!("{first:?}")].into();
        let mut open = VecDeque::from([first]);
        while let Some(world) = open.pop_front() {
            for next in MOVES.into_iter().filter_map(|one| world.after(one)) {
                if known.len() < AT_MOST && known.insert(format!("{next:?}")) {
                    if known.len().is_multiple_of(8) {
                        assert!(
                            next.ends_well(),
                            "{stranger:?}, from {next:#?} to {:#?}",
                            next.settled()
                        );
                    }
                    open.push_back(next);
                }
            }
        }
        println!("{} states, and a stranger: {stranger:?}", known.len());
        states += known.len();
    }
    assert!(states > 1000, "only {states} states");
}

#[test]
fn each_of_the_two_is_what_the_other_was_and_keeps_its_claim() {
    let world = World::new(Stranger::Nothing);
    let record = world.pair().record().unwrap();
    assert_eq!(serde_json::from_str::<ExchangeRecord>(&written(&record)).unwrap(), record);
    let pv = json!(record.active.pv);
    let metadata = json!({"name": "pv-0", "annotations": {"pv.kubernetes.io/provisioned-by": "x"}});
    assert_eq!(pv["metadata"], metadata);
    let spec = &pv["spec"];
    assert_eq!(spec["csi"]["volumeHandle"], "new");
    assert_eq!(
        (&spec["claimRef"]["uid"], &spec["storageClassName"]),
        (&json!("data-db-0"), &json!("ssd"))
    );
    let less = (2_u64 << 30) - 1;
    assert_eq!(spec["capacity"]["storage"], json!(less.to_string()), "the resizer is to ask");
    assert_eq!((record.active.volume.as_str(), record.copy.volume.as_str()), ("pv-1", "pv-0"));
    let old = json!(record.copy.pv);
    assert_eq!(old["spec"]["capacity"]["storage"], "4Gi", "it is as large as it is");
    assert_eq!(old["spec"]["claimRef"]["uid"], "data-db-0-1a2b3");
    let made = json!(record.copy.made(&record));
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Retain");
}

#[test]
fn somebody_elses_volume_is_never_taken_for_one_of_the_two() {
    let mut world = World::new(Stranger::Nothing);
    let known = written(&world.pair().record().unwrap());
    let copy = world.pvs.get_mut("pv-1").unwrap();
    copy.annotations_mut().insert(EXCHANGE.to_owned(), known);
    let theirs = volume("pv-0", "data-db-0", "theirs", "hdd", "4Gi");
    world.pvs.insert("pv-0".to_owned(), theirs);
    assert!(matches!(world.pair().next_step(), Exchange::Stuck(_)));
    let mut unbound = World::new(Stranger::Nothing);
    unbound.pvs.insert("pv-1".to_owned(), volume("pv-1", "other", "new", "ssd", "2Gi"));
    assert!(matches!(unbound.pair().exchange("new"), Exchange::Never(_)));
}

#[test]
fn a_record_is_that_of_its_own_two_claims_only() {
    let known = World::new(Stranger::Nothing).pair().record().unwrap();
    let [(_, active, _), (_, copy, _)] = SIDES;
    let claim = known.active.pv.spec.as_ref().unwrap().claim_ref.as_ref().unwrap();
    let namespace = claim.namespace.as_deref().unwrap_or_default();
    assert!(known.is_of(namespace, active, copy));
    for (namespace, active, copy) in
        [("another", active, copy), (namespace, copy, active), (namespace, active, active)]
    {
        assert!(!known.is_of(namespace, active, copy));
    }
}
