//! Which workloads are looked at, and when: those of which something has changed, or that are due.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::api::{self, NodeStorage, PvcAutoscaler, SwapPhase, VolumeUsage};
use crate::autoscaler::WRITER;
use crate::autoscaler::keeper::{AGAIN, AT_ONCE, Keeper};
use crate::autoscaler::seen::{Refusal, uid};
use crate::cluster::{
    Busy, ClaimSummary, Due, Slots, Unfinished, caught_in_time, report_unfinished,
};

/// How many are looked at at once: half of them of one namespace, and some that are in no swap.
const SLOTS: Slots = Slots { all: AT_ONCE, of_namespace: AT_ONCE / 2, not_urgent: 4 };

/// The longest pause of one that waits and of which nothing changes.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The longest pause after looks that had no outcome: they ended in a panic, or took too long.
const LONGEST_FAULT: Duration = Duration::from_secs(600);

/// The looks under way, and what was last seen.
#[derive(Debug, Default)]
pub(super) struct Looks {
    known: HashMap<String, Known>,
    busy: Busy,
    attendants: JoinSet<Attended>,
    /// When the first one is due that is not yet.
    next: Option<Instant>,
}

/// What was last seen of a workload, and when it is to be looked at without a change.
#[derive(Debug, Clone, Default)]
struct Known {
    versions: Vec<String>,
    due: Option<Instant>,
    refusal: Option<Refusal>,
    /// Whether somebody looks right now.
    is_attended: bool,
    /// How many looks in a row have found that it waits, with nothing changed.
    waits: u32,
    /// How many looks in a row have had no outcome.
    faults: u32,
}

/// What one who has looked at a workload has to say.
#[derive(Debug)]
struct Attended {
    uid: String,
    namespace: String,
    is_urgent: bool,
    /// After how long to look again without a change.
    after: Option<Duration>,
    refusal: Option<Refusal>,
    /// Why it has no outcome.
    unfinished: Option<Unfinished>,
}

/// What belongs to each workload, found in one go over all.
struct Index<'a> {
    /// The claims of each PvcAutoscaler, by its namespace and name.
    claims: HashMap<(String, String), Vec<Arc<ClaimSummary>>>,
    /// All claims of the namespaces in which one chooses claims by their names.
    of_namespaces: HashMap<String, Vec<Arc<ClaimSummary>>>,
    /// How full each volume is, and whether the agent of its node is away.
    usage: HashMap<&'a str, (&'a VolumeUsage, bool)>,
    /// The uids of those that are about the same claims.
    rivals: HashMap<(String, String, String), Vec<String>>,
}

impl<'a> Index<'a> {
    fn of(keeper: &Keeper, all: &[Arc<PvcAutoscaler>], nodes: &'a [Arc<NodeStorage>]) -> Index<'a> {
        let mut index = Index {
            claims: HashMap::new(),
            of_namespaces: HashMap::new(),
            usage: HashMap::new(),
            rivals: HashMap::new(),
        };
        for one in all {
            if let Some(key) = claims_of(one) {
                index.rivals.entry(key).or_default().push(uid(&one.metadata).to_owned());
            } else if matches!(one.spec.workload(), api::Workload::Pods(_)) {
                index.of_namespaces.entry(one.namespace().unwrap_or_default()).or_default();
            }
        }
        for claim in keeper.watches.claims().all() {
            let namespace = claim.namespace().unwrap_or_default();
            if let Some(all) = index.of_namespaces.get_mut(&namespace) {
                all.push(claim.clone());
            }
            if let Some(by) = &claim.kept_by {
                index.claims.entry((namespace, by.to_string())).or_default().push(claim);
            }
        }
        if all.iter().any(|one| one.spec.autoscale.is_some()) {
            let (away, _) = keeper.cluster.requests().away();
            for node in nodes {
                let is_away = away.contains(&node.name_any());
                for usage in node.status.iter().flat_map(|status| &status.usage) {
                    index.usage.insert(&usage.volume, (usage, is_away));
                }
            }
        }
        index
    }

    fn claims(&self, autoscaler: &PvcAutoscaler) -> Vec<&Arc<ClaimSummary>> {
        let namespace = autoscaler.namespace().unwrap_or_default();
        if let api::Workload::Pods(pods) = autoscaler.spec.workload() {
            let all = self.of_namespaces.get(&namespace).into_iter().flatten();
            return all.filter(|claim| pods.has_claim(&claim.name_any())).collect();
        }
        let key = (namespace, autoscaler.name_any());
        self.claims.get(&key).into_iter().flatten().collect()
    }

    fn rivals(&self, autoscaler: &PvcAutoscaler) -> Vec<String> {
        let all = claims_of(autoscaler).and_then(|key| self.rivals.get(&key));
        let own = uid(&autoscaler.metadata);
        let mut rivals: Vec<String> =
            all.into_iter().flatten().filter(|one| *one != own).cloned().collect();
        rivals.sort();
        rivals
    }
}

/// Which claims of a StatefulSet these are: namespace, StatefulSet and template, as [`PvcAutoscaler::rivals`]
/// compares them.
fn claims_of(one: &PvcAutoscaler) -> Option<(String, String, String)> {
    let template = one.spec.volume_claim_template.metadata.name.clone();
    Some((one.namespace().unwrap_or_default(), one.spec.stateful_set()?.to_owned(), template))
}

/// Whether a pod is stopped for it, or may be soon.
pub(super) fn is_midway(autoscaler: &PvcAutoscaler) -> bool {
    let ordinals = autoscaler.status.iter().flat_map(|status| &status.ordinals);
    let is_on = |phase: SwapPhase| phase != SwapPhase::Failed;
    let mut midway = ordinals.filter(|one| {
        one.is_shrinking() || one.swap.as_ref().is_some_and(|swap| is_on(swap.phase))
    });
    midway.next().is_some()
}

impl Looks {
    /// Begin to look at workloads of which something has changed or that are due, as many as may be looked at at
    /// once.
    pub fn begin(&mut self, keeper: &Arc<Keeper>) {
        let now = Instant::now();
        let (all, nodes) = (keeper.autoscalers.all(), keeper.cluster.nodes().watched().all());
        let index = Index::of(keeper, &all, &nodes);
        let there: HashSet<&str> = all.iter().map(|one| uid(&one.metadata)).collect();
        self.known.retain(|uid, _| there.contains(uid.as_str()));
        self.next = None;
        let (mut due, mut found) = (Vec::new(), HashMap::new());
        for autoscaler in &all {
            let uid = uid(&autoscaler.metadata);
            let one = self.known.entry(uid.to_owned()).or_default();
            if one.is_attended {
                continue;
            }
            let versions = keeper.versions(autoscaler, &index);
            if versions != one.versions {
                (one.waits, one.due) = (0, Some(one.due.map_or(now, |due| due.min(now))));
            }
            match one.due {
                Some(since) if since <= now => {
                    let (namespace, is_urgent) =
                        (autoscaler.namespace().unwrap_or_default(), is_midway(autoscaler));
                    due.push(Due { key: uid.to_owned(), namespace, is_urgent, since });
                    found.insert(uid, (autoscaler, versions));
                }
                later => self.next = [self.next, later].into_iter().flatten().min(),
            }
        }
        for chosen in SLOTS.choose(due, &self.busy) {
            let Some((autoscaler, versions)) = found.remove(chosen.key.as_str()) else { continue };
            let Some(one) = self.known.get_mut(&chosen.key) else { continue };
            (one.versions, one.due, one.is_attended) = (versions, None, true);
            self.busy.begin(&chosen.namespace, chosen.is_urgent);
            self.attendants.spawn(look(
                keeper.clone(),
                autoscaler.clone(),
                chosen,
                one.refusal.take(),
            ));
        }
    }

    /// When the first one is due that is not yet. Those that are wait for a look to end.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Wait until a look has ended, and note all that have.
    pub async fn ended(&mut self) {
        match self.attendants.join_next().await {
            Some(ended) => self.note(ended),
            None => std::future::pending().await,
        }
        while let Some(ended) = self.attendants.try_join_next() {
            self.note(ended);
        }
    }

    /// Note the looks that have ended meanwhile.
    pub fn note_ended(&mut self) {
        while let Some(ended) = self.attendants.try_join_next() {
            self.note(ended);
        }
    }

    /// Note what one who looked at a workload has to say, if that is still there.
    fn note(&mut self, ended: Result<Attended, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return tracing::error!(%error, "a look at a workload has no outcome"),
        };
        self.busy.end(&ended.namespace, ended.is_urgent);
        let Some(one) = self.known.get_mut(&ended.uid) else { return };
        (one.refusal, one.is_attended) = (ended.refusal, false);
        one.faults = if ended.unfinished.is_some() { one.faults.saturating_add(1) } else { 0 };
        let after = match ended.after {
            // A pod may be stopped for it, and what hangs may answer at any moment.
            _ if ended.unfinished == Some(Unfinished::TooLong) && ended.is_urgent => {
                Some(longer(one.faults - 1, LONGEST_WAIT))
            }
            _ if ended.unfinished.is_some() => Some(longer(one.faults - 1, LONGEST_FAULT)),
            Some(AGAIN) if !ended.is_urgent => {
                one.waits = one.waits.saturating_add(1);
                Some(longer(one.waits - 1, LONGEST_WAIT))
            }
            after => after,
        };
        one.due = after.map(|after| Instant::now() + after);
    }
}

/// The pause after so many looks in vain before.
fn longer(before: u32, longest: Duration) -> Duration {
    AGAIN.saturating_mul(2_u32.saturating_pow(before)).min(longest)
}

async fn look(
    keeper: Arc<Keeper>,
    autoscaler: Arc<PvcAutoscaler>,
    chosen: Due<String>,
    mut refusal: Option<Refusal>,
) -> Attended {
    let look = caught_in_time("pvcautoscalers", keeper.attend(&autoscaler, &mut refusal));
    let looked = Box::pin(look).await;
    if let Err(why) = &looked {
        report_unfinished(&keeper.client, WRITER, &*autoscaler, why).await;
    }
    let (after, unfinished) = match looked {
        Ok(after) => (after, None),
        Err(why) => (None, Some(why)),
    };
    Attended {
        uid: chosen.key,
        namespace: chosen.namespace,
        is_urgent: chosen.is_urgent,
        unfinished,
        after,
        refusal,
    }
}

impl Keeper {
    /// The versions of all that belongs to a workload and is watched: while they stay there is nothing
    /// new to see.
    fn versions(&self, autoscaler: &PvcAutoscaler, index: &Index) -> Vec<String> {
        let namespace = autoscaler.namespace().unwrap_or_default();
        let ordinals = autoscaler.status.iter().flat_map(|status| &status.ordinals);
        let swaps = ordinals.filter_map(|one| one.swap.as_ref());
        let sources = swaps.filter_map(|swap| self.sources.get_in(&namespace, &swap.claim));
        let sizes = autoscaler.spec.autoscale.is_some();
        let full = |claim: &ClaimSummary| {
            let volume = claim.volume.as_deref().filter(|_| sizes)?;
            let handle = self.handle_in(volume, claim.metadata.uid.as_deref())?;
            index.usage.get(handle.as_str()).map(|usage| format!("{usage:?}"))
        };
        let claims = index.claims(autoscaler).into_iter();
        let mut of_claims: Vec<String> =
            claims.flat_map(|claim| [claim.resource_version(), full(claim)]).flatten().collect();
        of_claims.sort();
        let mut versions = vec![autoscaler.resource_version().unwrap_or_default()];
        versions.extend(match autoscaler.spec.workload() {
            api::Workload::StatefulSet(name) => {
                self.sets.get_in(&namespace, name).and_then(|set| set.resource_version())
            }
            api::Workload::Deployment(name) => {
                self.deployments.get_in(&namespace, name).and_then(|made| made.resource_version())
            }
            api::Workload::Pods(_) => None,
        });
        versions.extend(index.rivals(autoscaler));
        versions.extend(sources.filter_map(|source| source.resource_version()));
        versions.extend(of_claims);
        versions.extend(self.asks.versions(uid(&autoscaler.metadata)));
        versions
    }
}
