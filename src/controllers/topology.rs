//! Reports claims whose class allows only topologies that no node of this driver has.
//!
//! The scheduler takes labels of nodes for topologies, and the provisioner then rejects its
//! selection. Neither reports which key exists.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::writes::OPERATOR;
use crate::cluster::{
    Binding, Change, Changed, ClaimSummary, Debounce, OnceEvent, Watched, Works, begun_again,
    topology,
};
use crate::controllers::{is_done, until};
use crate::volume::{DRIVER, TOPOLOGY, few};

/// Reason of the event.
pub const TOPOLOGY_KEY_UNKNOWN: &str = "UnknownTopologyKey";

/// What panics are counted under.
const LOOP: &str = "topologies";

/// How long a claim is unbound before its class is looked at: most are bound by then.
const LATE: Duration = Duration::from_secs(10);

/// After an API server that did not answer, and for a class that is not there yet.
const AGAIN: Duration = Duration::from_secs(60);

/// Claims without a volume, by their uid.
#[derive(Default)]
struct Unbound {
    claims: HashMap<String, Arc<ClaimSummary>>,
    /// Those whose class was seen. No class can be changed.
    judged: HashSet<String>,
    /// When those are looked at again whose class was not there, or that could not be told.
    put_off: HashMap<String, Instant>,
}

impl Unbound {
    fn note(&mut self, changed: Changed<ClaimSummary>) {
        match changed {
            Changed::Everything(all) => {
                self.claims.clear();
                for claim in all {
                    self.put(claim);
                }
                let claims = &self.claims;
                self.judged.retain(|uid| claims.contains_key(uid));
                self.put_off.retain(|uid, _| claims.contains_key(uid));
            }
            Changed::These(these) => {
                for Change { before, now, .. } in these {
                    let is_unbound = |one: &ClaimSummary| one.binding == Binding::Pending;
                    if let Some(before) = before {
                        self.claims.remove(uid(&before));
                        let stays =
                            |now: &Arc<ClaimSummary>| is_unbound(now) && uid(now) == uid(&before);
                        if !now.as_ref().is_some_and(stays) {
                            self.judged.remove(uid(&before));
                            self.put_off.remove(uid(&before));
                        }
                    }
                    if let Some(now) = now {
                        self.put(now);
                    }
                }
            }
        }
    }

    fn put(&mut self, claim: Arc<ClaimSummary>) {
        if claim.binding == Binding::Pending && !claim.is_ending {
            self.claims.insert(uid(&claim).to_owned(), claim);
        }
    }

    /// Notes whether the class of one was seen, if that is still there.
    fn note_judged(&mut self, uid: String, is_judged: bool) {
        if !self.claims.contains_key(&uid) {
            return;
        }
        if is_judged {
            self.put_off.remove(&uid);
            self.judged.insert(uid);
        } else {
            self.put_off.insert(uid, Instant::now() + AGAIN);
        }
    }

    fn waiting(&self) -> Vec<String> {
        self.claims.keys().filter(|uid| !self.judged.contains(*uid)).cloned().collect()
    }

    /// Returns whether one may be looked at now.
    fn is_due(&self, uid: &str, now: Instant) -> bool {
        self.put_off.get(uid).is_none_or(|at| *at <= now)
    }

    /// How long it is until one is looked at again.
    fn next(&self, now: Instant) -> Option<Duration> {
        self.put_off.values().min().map(|at| at.duration_since(now))
    }
}

/// Reports it once for each claim, until `stop`.
pub async fn report(client: &Client, claims: &Watched<ClaimSummary>, stop: CancellationToken) {
    let told = begun_again(LOOP, async || {
        claims.known().await;
        let (mut unbound, mut late) = (Unbound::default(), Debounce::new(LATE));
        let mut works = Works::default();
        let mut news = claims.subscribe();
        loop {
            unbound.note(news.take());
            let now = Instant::now();
            let (found, next) = late.of(unbound.waiting(), now);
            for uid in found.iter().filter(|uid| unbound.is_due(uid, now)) {
                let claim = unbound.claims.get(uid);
                let namespace = claim.map(|claim| &*claim.names.namespace).unwrap_or_default();
                works.add(uid, namespace, now);
            }
            works.begin(|uid| {
                let claim = unbound.claims.get(uid).filter(|_| !unbound.judged.contains(uid))?;
                Some(is_judged(client.clone(), claim.clone()))
            });
            let next = next.into_iter().chain(unbound.next(Instant::now())).min();
            tokio::select! {
                () = news.changed() => {}
                () = until(next) => {}
                (uid, is_judged) = works.ended() => unbound.note_judged(uid, is_judged),
            }
        }
    });
    stop.run_until_cancelled(told).await;
}

fn uid(claim: &ClaimSummary) -> &str {
    &claim.names.uid
}

/// Judges one; whether that is done.
async fn is_judged(client: Client, claim: Arc<ClaimSummary>) -> bool {
    let place = format!("{}/{}", claim.names.namespace, claim.names.name);
    let mut has_class = false;
    let work = async {
        has_class = judge(&client, &claim).await?;
        Ok(())
    };
    let is_done = is_done(LOOP, &place, Box::pin(work)).await;
    is_done && has_class
}

/// Writes an event on a claim whose class no node can fit; false if it has no class yet, or that is not there.
async fn judge(client: &Client, claim: &ClaimSummary) -> Result<bool, kube::Error> {
    let (namespace, name) = claim.names.place();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let found = claims.get_opt(name).await?;
    let found = found.filter(|found| found.uid().as_deref() == Some(uid(claim)));
    let name = found.and_then(|found| found.spec?.storage_class_name);
    let Some(name) = name else { return Ok(false) };
    if name.is_empty() {
        return Ok(true); // It is to have none.
    }
    let Some(class) = Api::<StorageClass>::all(client.clone()).get_opt(&name).await? else {
        return Ok(false);
    };
    if let Some(text) = unfit(&class) {
        let event = OnceEvent::of(claim, (TOPOLOGY_KEY_UNKNOWN, true), &name, &text);
        event.write(client, OPERATOR).await?;
    }
    Ok(true)
}

/// What keeps each node of this driver out of a class, if something does.
fn unfit(class: &StorageClass) -> Option<String> {
    let foreign = topology::foreign_keys(class);
    if class.provisioner != DRIVER || foreign.is_empty() {
        return None;
    }
    let (name, instead) = (class.name_any(), topology::in_our_key(class, &[]));
    Some(format!(
        "the allowedTopologies of StorageClass {name} use {}, but volumes of this driver have only \
         the key {TOPOLOGY}, with node names as values, so no node matches; a StorageClass cannot \
         be changed: create one with another name and {instead}, and create this claim again with \
         it",
        few(foreign)
    ))
}
