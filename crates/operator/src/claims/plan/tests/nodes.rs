//! What nodes do in the explored world, and those who get at volumes past Kubernetes.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::world::{Claim, FillingPhaseKey, Lie, Source, World};
use crate::api::{
    NodeStorage, NodeStorageSpec, NodeStorageStatus, PvcAutoscalerStatus, Quantity, VolumeMode,
    VolumeOnNode, VolumeState,
};
use crate::bytes::Bytes;
use crate::claims::finalizer::is_in_status;
use crate::claims::unreferenced::fence_without_swap;
use crate::cluster::{
    NodeOperation, NotDone, ObservedVolume, OperationRequest, VolumeSeen, believe, told_of,
};
use crate::volume::{Fence, FsKind, Mode, NodeKey, Reason, Standing, Use, VolumeId, VolumeKey};

/// Who asks for no swap.
const SWEEPER: usize = 2;

impl World {
    /// The volume of a claim, as an operator knows it.
    pub(super) fn volume(&self, name: &str, n: usize) -> Option<VolumeSeen> {
        let claim = self.claims.get(name).filter(|claim| claim.content.is_some())?;
        let asked = self.asked[n].get(&claim.label()).cloned();
        if self.lie.is_some() {
            let records = self.records();
            return Some(VolumeSeen::of(claim.id(), told_of(&records, &claim.id()), asked));
        }
        let (mode, fence) = (Some(Mode::Filesystem(FsKind::Xfs)), Some(claim.fence));
        Some(VolumeSeen { id: claim.id(), mode, is_limited: false, fence, asked })
    }

    /// The records of nodes one of which lies, as they are read.
    fn records(&self) -> Vec<NodeStorage> {
        let fence = |standing, generation, copying| Fence { generation, standing, copying };
        let own = match self.lie {
            Some(Lie::Superseded) => Some(fence(Standing::Superseded, 9, false)),
            Some(Lie::Highest) => Some(fence(Standing::Superseded, i64::MAX, false)),
            Some(Lie::OfAnother) | None => None,
        };
        let others = fence(Standing::Superseded, 9, true);
        let with_volume = || self.claims.values().filter(|claim| claim.content.is_some());
        let own = with_volume().map(|claim| claim.told(own.unwrap_or(claim.fence)));
        let others = with_volume().map(|claim| claim.told(others));
        // Whoever believes the first one that he finds finds the liar.
        let mut records = vec![record("aaa", others.collect()), record("alpha", own.collect())];
        records.iter_mut().for_each(believe);
        records
    }

    /// The claims of pods whose node says that others took their place.
    pub(super) fn superseded(&self) -> BTreeMap<String, i64> {
        let matters = self.lie.is_some() || !self.tampering.is_empty();
        let active = self.status.of(0).filter(|one| matters && one.swap.is_none());
        let active = active.map(|one| one.active_claim.clone());
        let told = active.and_then(|name| Some((self.volume(&name, 0)?.fence?, name)));
        let closed = told.filter(|(fence, _)| fence.standing == Standing::Superseded);
        let closed = closed.filter(|(fence, _)| !fence.copying);
        closed.map(|(fence, name)| (name, fence.generation)).into_iter().collect()
    }

    /// Another node lies about all volumes from now on.
    pub(super) fn lie(&mut self) -> bool {
        self.left.lies -= 1;
        self.lie = Some(Lie::OfAnother);
        true
    }

    /// The node of the volumes lies about them.
    pub(super) fn lie_of_its_own(&mut self) -> bool {
        let is_last = self.left.own_lies == 1;
        self.left.own_lies -= 1;
        self.lie = Some(if is_last { Lie::Superseded } else { Lie::Highest });
        true
    }

    /// It writes its record again.
    pub(super) fn tell_truth(&mut self) -> bool {
        self.lie.take().is_some()
    }

    /// An operator asks: a request that is there is joined, and outlives who has made it.
    pub(super) fn ask(&mut self, n: usize, volume: &VolumeId, wish: NodeOperation) {
        let there = self.claims.values().find(|claim| claim.id() == *volume);
        let Some(name) = there.map(Claim::label) else { return };
        let NodeOperation::Fence(fence) = wish else {
            // That a volume is kept at the size that it has is done at once.
            assert!(self.left.keeps_names, "no volume here shrinks where it lies");
            let look =
                ObservedVolume { node: "alpha".to_owned(), fence: Fence::default(), open_count: 0 };
            let answer = Some(Ok(look));
            self.asked[n]
                .insert(name, OperationRequest { wish, answer, is_old: false, is_recent: true });
            return;
        };
        let before = self.asked[n].remove(&name).filter(|asked| asked.wish == wish);
        let answer = before.and_then(|before| before.answer);
        self.asked[n].insert(
            name.clone(),
            OperationRequest { wish, answer, is_old: false, is_recent: true },
        );
        self.asks.insert((name, fence.to_string()));
    }

    /// What was asked for a swap that has ended is of no use, and would make states of one that are the
    /// same.
    pub(super) fn forget(&mut self) {
        let World { asked, status, claims, .. } = self;
        let label = |name: &String| claims.get(name).map(Claim::label).unwrap_or_default();
        let is_in_status = |name: &String| {
            status.of(0).is_some_and(|one| {
                let of_swap = one.swap.as_ref().is_some_and(|swap| swap.fence.is_some());
                let swap = one.swap.as_ref().filter(|swap| swap.preserves_name);
                label(&one.active_claim) == *name && (of_swap || one.is_shrinking())
                    || swap.is_some_and(|swap| label(&swap.claim) == *name)
                    || one
                        .retained_claims
                        .iter()
                        .any(|old| label(&old.name) == *name && old.fence.is_some())
            })
        };
        let is_copied =
            |name: &String| claims.values().any(|one| one.label() == *name && one.fence.copying);
        asked[..SWEEPER].iter_mut().for_each(|asked| asked.retain(|name, _| is_in_status(name)));
        asked[SWEEPER].retain(|name, _| is_copied(name));
    }

    /// A node does one of the things that it is asked, and looks.
    pub(super) fn answer(&mut self, is_last: bool) -> bool {
        let next = if is_last { self.asks.pop_last() } else { self.asks.pop_first() };
        let Some((name, wanted)) = next else { return false };
        let wanted: Fence = wanted.parse().expect("it was written");
        let owner = self.claims.iter().find(|(_, claim)| claim.label() == name);
        let owner = owner.map(|(owner, _)| owner.clone()).unwrap_or_default();
        let is_running = self.pod.as_ref().is_some_and(|pod| pod.is_running && pod.claim == owner);
        let node = "alpha".to_owned();
        let mut answer = Ok(ObservedVolume { node: node.clone(), fence: wanted, open_count: 0 });
        if let Some(claim) = self.claims.get_mut(&owner) {
            if wanted.replaces(&claim.fence) {
                claim.fence = wanted;
                let open_count =
                    [is_running, claim.is_held, claim.is_read].map(u32::from).iter().sum();
                answer = Ok(ObservedVolume { node, fence: wanted, open_count });
            } else {
                answer = Err(NotDone {
                    reason: Reason::PreconditionFailed,
                    why: "what came before".to_owned(),
                });
            }
        }
        for asked in &mut self.asked {
            if let Some(asked) =
                asked.get_mut(&name).filter(|asked| asked.wish == NodeOperation::Fence(wanted))
            {
                let is_old = !answer.as_ref().is_ok_and(|look| look.open_count == 0);
                (asked.answer, asked.is_old) = (Some(answer.clone()), is_old);
            }
        }
        true
    }

    /// An operator looks for volumes that no swap knows of.
    pub(super) fn sweep(&mut self) -> bool {
        let gone = PvcAutoscalerStatus::default();
        let status = if self.keeper.is_some() { &self.status } else { &gone };
        let is_forgotten = |(name, claim): &(&String, &Claim)| {
            claim.has_finalizer && !is_in_status(Some(status), name)
        };
        if let Some(name) = self.claims.iter().find(is_forgotten).map(|(name, _)| name.clone()) {
            self.let_claim_go(&name, true);
            return true;
        }
        let pods = self.pods();
        let to_ask =
            self.claims.iter().filter(|(_, claim)| !claim.is_lost).find_map(|(name, claim)| {
                let volume = self.volume(name, SWEEPER)?;
                let claim = claim.object(name);
                let is_superseded = self.is_superseded(name);
                let fence =
                    fence_without_swap(&volume, &claim, Some(status), &pods, is_superseded)?;
                let wish = NodeOperation::Fence(fence);
                volume.is_to_be_asked(&wish).then_some((volume.id, wish))
            });
        to_ask.is_some_and(|(id, wish)| {
            self.ask(SWEEPER, &id, wish);
            true
        })
    }

    /// Somebody whom nobody knows of has the volume of the pod open, as a container that outlived its pod.
    pub(super) fn hold(&mut self) -> bool {
        let active = self.status.of(0).map(|one| one.active_claim.clone());
        let claim = active.and_then(|name| self.claims.get_mut(&name));
        let Some(claim) = claim.filter(|one| one.content.is_some() && one.fence.lets() == Use::Any)
        else {
            return false;
        };
        if claim.is_held {
            return false;
        }
        claim.is_held = true;
        self.left.holds -= 1;
        true
    }

    /// He writes once more, and lets go.
    pub(super) fn let_go(&mut self) -> bool {
        let Some(claim) = self.claims.values_mut().find(|claim| claim.is_held) else {
            return false;
        };
        self.data += 1;
        (claim.is_held, claim.content) = (false, Some(self.data));
        true
    }

    /// Whether the pod of a source reads a claim.
    pub(super) fn reads(&self, (name, source): (&String, &Source), from: &str) -> bool {
        let goes_on = self.claims.get(name).is_some_and(|claim| !claim.is_ending);
        let runs = matches!(source.phase, FillingPhaseKey::Filling | FillingPhaseKey::Stalled);
        goes_on && source.from == from && runs
    }

    /// What a copy had mounted is let go when the copy has ended.
    pub(super) fn unmount(&mut self) -> bool {
        let is_copied = |name: &str| self.sources.iter().any(|one| self.reads(one, name));
        let ended = self.claims.iter().find(|(name, claim)| claim.is_read && !is_copied(name));
        let Some(name) = ended.map(|(name, _)| name.clone()) else { return false };
        self.change(&name, |claim| claim.is_read = false);
        true
    }

    /// The PvcAutoscaler is deleted midway: whoever was about to write its status fails.
    pub(super) fn delete(&mut self) -> bool {
        if self.status.of(0).is_none_or(|one| one.swap.is_none()) {
            return false;
        }
        self.left.deletions -= 1;
        self.is_answered = true; // Its status goes along.
        (self.keeper, self.status) = (None, PvcAutoscalerStatus::default());
        for operator in &mut self.operators {
            operator.take_if(|decided| decided.note.is_some());
        }
        true
    }

    /// It is made again.
    pub(super) fn create(&mut self) -> bool {
        self.keeper = Some(self.uid());
        true
    }
}

/// The record of a node that tells of these volumes.
fn record(node: &str, volumes: Vec<VolumeOnNode>) -> NodeStorage {
    let mut record = NodeStorage::new(node, NodeStorageSpec::default());
    record.status = Some(NodeStorageStatus { volumes, ..NodeStorageStatus::default() });
    record
}

impl Claim {
    /// Its volume as a node tells of it, with this fence.
    fn told(&self, fence: Fence) -> VolumeOnNode {
        let size = Quantity(Bytes::gib(self.gib));
        VolumeOnNode {
            volume_handle: self.id().to_string(),
            name: self.label(),
            pool: "fast".to_owned(),
            size,
            requested_size: size,
            volume_mode: VolumeMode::Filesystem,
            fs_type: Some(FsKind::Xfs.into()),
            state: VolumeState::Ready,
            fence: (fence != Fence::default()).then(|| fence.into()),
            max_size: None,
            health_statuses: Vec::new(),
        }
    }

    /// What its node calls its volume.
    pub(super) fn label(&self) -> String {
        format!("v{}", self.volume)
    }

    /// Digests cost more than all else that is asked of a claim, so each is made once.
    pub(super) fn id(&self) -> VolumeId {
        static IDS: [OnceLock<VolumeId>; 256] = [const { OnceLock::new() }; 256];
        let id = || VolumeId::new(NodeKey::of("alpha"), VolumeKey::of(&self.label()));
        IDS[usize::from(self.volume)].get_or_init(id).clone()
    }

    /// It gets the volume of another claim, with all that is true of that.
    pub(super) fn take_volume(&mut self, other: &Claim) {
        (self.volume, self.class, self.content) = (other.volume, other.class, other.content);
        (self.fence, self.is_held, self.is_read) = (other.fence, other.is_held, other.is_read);
        (self.is_filled, self.detached_for) = (false, 0);
        self.is_lost = false;
    }
}
