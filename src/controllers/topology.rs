//! Says on a claim that its class lets volumes be only where no node of this driver is.
//!
//! The scheduler takes labels of nodes for topologies, and the provisioner refuses then what it has chosen: neither says
//! which key there is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::{
    Binding, Change, Changed, ClaimSummary, Lasting, OnceEvent, Watched, begun_again, topology,
};
use crate::controllers::{is_done, until};
use crate::volume::{DRIVER, TOPOLOGY, few};

/// Why the event is told.
pub const TOPOLOGY_KEY_UNKNOWN: &str = "TopologyKeyUnknown";

/// What panics are counted under.
const LOOP: &str = "topologies";

/// Who writes, for the API server.
const WRITER: &str = "pliant-operator";

/// How long a claim is unbound before its class is looked at: most are bound by then.
const LATE: Duration = Duration::from_secs(10);

/// After an API server that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// Claims without a volume, by their uid.
#[derive(Default)]
struct Unbound {
    claims: HashMap<String, Arc<ClaimSummary>>,
    /// Those whose class was looked at. No class can be changed.
    judged: HashSet<String>,
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
            }
            Changed::These(these) => {
                for Change { before, now, .. } in these {
                    if let Some(before) = before {
                        self.claims.remove(uid(&before));
                    }
                    match now {
                        Some(now) if now.binding == Binding::Pending => self.put(now),
                        Some(bound) => drop(self.judged.remove(uid(&bound))),
                        None => {}
                    }
                }
            }
        }
    }

    fn put(&mut self, claim: Arc<ClaimSummary>) {
        if claim.binding == Binding::Pending && claim.metadata.deletion_timestamp.is_none() {
            self.claims.insert(uid(&claim).to_owned(), claim);
        }
    }

    fn waiting(&self) -> Vec<String> {
        self.claims.keys().filter(|uid| !self.judged.contains(*uid)).cloned().collect()
    }
}

/// Say it once of each claim, until `stop`.
pub async fn tell(client: &Client, claims: &Watched<ClaimSummary>, stop: CancellationToken) {
    let told = begun_again(LOOP, async || {
        claims.known().await;
        let (mut unbound, mut late) = (Unbound::default(), Lasting::new(LATE));
        let mut news = claims.subscribe();
        loop {
            unbound.note(news.take());
            let (found, mut next) = late.of(unbound.waiting(), Instant::now());
            for uid in found {
                let Some(claim) = unbound.claims.get(&uid).cloned() else { continue };
                let place =
                    format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
                if is_done(LOOP, &place, judge(client, &claim)).await {
                    unbound.judged.insert(uid);
                } else {
                    next = Some(AGAIN);
                }
            }
            tokio::select! {
                () = news.changed() => {}
                () = until(next) => {}
            }
        }
    });
    stop.run_until_cancelled(told).await;
}

fn uid(claim: &ClaimSummary) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

/// Write an event on a claim whose class no node can fit.
async fn judge(client: &Client, claim: &ClaimSummary) -> Result<(), kube::Error> {
    let namespace = claim.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let found = claims.get_opt(&claim.name_any()).await?;
    let found = found.filter(|found| found.uid().as_deref() == Some(uid(claim)));
    let name = found.and_then(|found| found.spec?.storage_class_name);
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(()) };
    let Some(class) = Api::<StorageClass>::all(client.clone()).get_opt(&name).await? else {
        return Ok(());
    };
    let Some(text) = unfit(&class) else { return Ok(()) };
    OnceEvent::of(claim, (TOPOLOGY_KEY_UNKNOWN, true), &name, &text)
        .write(client, WRITER)
        .await
        .map(drop)
}

/// What keeps each node of this driver out of a class, if something does.
fn unfit(class: &StorageClass) -> Option<String> {
    let foreign = topology::foreign_keys(class);
    if class.provisioner != DRIVER || foreign.is_empty() {
        return None;
    }
    let (name, instead) = (class.name_any(), topology::in_our_key(class, &[]));
    Some(format!(
        "the allowedTopologies of class {name} name {}, and volumes of this driver have only the key {TOPOLOGY}, whose \
         values are names of nodes, so no node fits; a class cannot be changed: make one with another name and \
         {instead}, and this claim anew with it",
        few(foreign)
    ))
}
