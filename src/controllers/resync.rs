//! Wakes the resizer of Kubernetes where it has not seen an edit.
//!
//! external-resizer 2.2.0 writes a claim as it has read it into the cache of its own watch. An edit that
//! comes between is lost to it, and so are its own later looks, until something else of the claim changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::Quantity;
use crate::cluster::writes::OPERATOR;
use crate::cluster::{
    Binding, ClaimSummary, Debounce, ObjectNames, PvSummary, RESIZER_WOKEN_FOR, Unreadable,
    Watched, Works, begun_again, writes,
};
use crate::controllers::{is_done, until};

/// What panics are counted under.
const LOOP: &str = "resizes";

/// How long a claim asks for more than it has, and no one says that he is at it, before he is
/// woken.
const LATE: Duration = Duration::from_secs(5);

/// After an API server that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// A claim as it was seen: changed meanwhile, it is another one.
type ObservedVersion = (String, String, String);

/// What was found of claims, and what was done for them.
#[derive(Debug)]
struct Nudges {
    unheard: Debounce<ObservedVersion>,
    /// For which size the resizer was woken, by the uid of the claim: what the claim says of that itself, a backup
    /// restores with it.
    woken: HashMap<String, Quantity>,
    /// Those whose sizes cannot be read, and that have an event that says so.
    reported: HashSet<ObservedVersion>,
    /// When those are tried again for which nothing could be done.
    put_off: HashMap<ObservedVersion, Instant>,
}

impl Nudges {
    fn new() -> Nudges {
        Nudges {
            unheard: Debounce::new(LATE),
            woken: HashMap::new(),
            reported: HashSet::new(),
            put_off: HashMap::new(),
        }
    }

    /// The claims for which something is to be done; beside it, how long it is until there may be more.
    fn due(
        &mut self,
        all: &[Arc<ClaimSummary>],
        now: Instant,
    ) -> (Vec<ObservedVersion>, Option<Duration>) {
        let unheard: Vec<&Arc<ClaimSummary>> = all.iter().filter(|one| is_unheard(one)).collect();
        let uids: HashSet<&str> = unheard.iter().map(|one| uid(one)).collect();
        self.woken.retain(|one, _| uids.contains(one.as_str()));
        // Once for each size.
        let is_woken = |one: &ClaimSummary| {
            let asked = one.sizes.as_ref().ok().map(|sizes| sizes.requested);
            asked.is_some() && self.woken.get(uid(one)).copied() == asked
        };
        let found = unheard.into_iter().filter(|one| !is_woken(one)).map(|one| seen(one)).collect();
        let (late, more) = self.unheard.of(found, now);
        let unreadable = all.iter().filter(|one| one.sizes.is_err()).map(|one| seen(one));
        let unreadable: HashSet<ObservedVersion> = unreadable.collect();
        self.reported.retain(|one| unreadable.contains(one));
        let all: HashSet<&ObservedVersion> = late.iter().chain(&unreadable).collect();
        self.put_off.retain(|one, at| *at > now && all.contains(one));
        let tries = self.put_off.values().min().map(|at| *at - now);
        let due = all.into_iter().filter(|one| !self.put_off.contains_key(*one));
        let due = due.filter(|one| !self.reported.contains(*one)).cloned().collect();
        (due, more.into_iter().chain(tries).min())
    }

    /// Notes what has become of the work for a claim.
    fn note(&mut self, one: ObservedVersion, claim: &ClaimSummary, is_done: bool) {
        match &claim.sizes {
            _ if !is_done => drop(self.put_off.insert(one, Instant::now() + AGAIN)),
            Ok(sizes) => drop(self.woken.insert(uid(claim).to_owned(), sizes.requested)),
            Err(_) => drop(self.reported.insert(one)),
        }
    }
}

/// Touches claims of this driver whose edit the resizer missed, once for each size, until `stop`.
/// The claims have the key [`ClaimSummary::MAY_GROW`].
pub async fn wake_resizer(
    client: &Client,
    claims: &Watched<ClaimSummary>,
    stop: CancellationToken,
) {
    let woken = begun_again(LOOP, async || {
        claims.known().await;
        let (mut nudges, mut works) = (Nudges::new(), Works::default());
        let mut at_work: HashMap<ObservedVersion, Arc<ClaimSummary>> = HashMap::new();
        let mut changes = claims.changes();
        loop {
            let now = Instant::now();
            let (due, next) = nudges.due(&claims.with_key(ClaimSummary::MAY_GROW), now);
            for one in due {
                works.add(&one, &one.0, now);
            }
            works.begin(|one| {
                // What has changed meanwhile is another one.
                let claim = claims.get_in(&one.0, &one.1).filter(|claim| seen(claim) == *one)?;
                at_work.insert(one.clone(), claim.clone());
                Some(resync(client.clone(), claim))
            });
            tokio::select! {
                _ = changes.changed() => {}
                () = until(next) => {}
                (one, is_done) = works.ended() => {
                    if let Some(claim) = at_work.remove(&one) {
                        nudges.note(one, &claim, is_done);
                    }
                }
            }
        }
    });
    stop.run_until_cancelled(woken).await;
}

/// Does what is due for a claim; returns whether it is done.
async fn resync(client: Client, claim: Arc<ClaimSummary>) -> bool {
    let place = format!("{}/{}", claim.names.namespace, claim.names.name);
    let work = async {
        match &claim.sizes {
            Ok(_) => wake(&client, &claim).await,
            Err(why) => report(&client, &claim, &why.to_string()).await,
        }
    };
    is_done(LOOP, &place, Box::pin(work)).await
}

fn uid(claim: &ClaimSummary) -> &str {
    &claim.names.uid
}

fn seen(claim: &ClaimSummary) -> ObservedVersion {
    let ObjectNames { namespace, name, resource_version, .. } = &claim.names;
    (namespace.to_string(), name.to_string(), resource_version.to_string())
}

/// Returns whether a claim requests more than it has, and no controller has acknowledged it.
fn is_unheard(claim: &ClaimSummary) -> bool {
    // Whether one grows whose sizes cannot be read is not known: see `report`.
    let Ok(sizes) = &claim.sizes else { return false };
    let asked = sizes.requested;
    // What was refused is no word of what is asked for since.
    let is_its =
        claim.refused.as_ref().is_ok_and(|refused| refused.is_none_or(|size| size == asked));
    let is_heard = claim.is_resizing && is_its;
    claim.binding == Binding::Bound && !is_heard && sizes.wants_more() && !claim.is_ending
}

/// Returns whether the volume of a claim is of this driver.
async fn is_ours(client: &Client, claim: &ClaimSummary) -> Result<bool, kube::Error> {
    let Some(volume) = claim.volume.as_deref().filter(|name| !name.is_empty()) else {
        return Ok(false);
    };
    let pv = Api::<PvSummary>::all(client.clone()).get_opt(volume).await?;
    Ok(pv.is_some_and(|pv| pv.handle().is_some()))
}

/// Writes an event on a claim of this driver whose size cannot be read: whether it is to grow is not known.
async fn report(client: &Client, claim: &ClaimSummary, why: &str) -> Result<(), kube::Error> {
    if !is_ours(client, claim).await? {
        return Ok(());
    }
    tracing::warn!(namespace = &*claim.names.namespace, error = why, "failed to read a size");
    Unreadable::of_record(claim, why).event().write(client, OPERATOR).await.map(drop)
}

/// Changes something of the claim, if its volume is of this driver. That it says so already, as one that was restored,
/// would be no change, so it says another word then.
async fn wake(client: &Client, claim: &ClaimSummary) -> Result<(), kube::Error> {
    if !is_ours(client, claim).await? {
        return Ok(());
    }
    let (namespace, name) = claim.names.place();
    let Ok(size) = claim.sizes.as_ref().map(|sizes| sizes.requested.to_string()) else {
        return Ok(());
    };
    tracing::info!(
        claim = name,
        namespace,
        size,
        "notifying the resizer of an edit that it missed"
    );
    let is_said = claim.woken_for.as_deref() == Some(&*size);
    let note = if is_said { format!("{size}, again") } else { size };
    let patch = json!({"metadata": {
        "resourceVersion": &*claim.names.resource_version,
        "annotations": { RESIZER_WOKEN_FOR: note },
    }});
    let api = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    match writes::patch(&api, name, &Patch::Merge(patch), OPERATOR).await {
        // As it is now it is another one, and is looked at again.
        Err(kube::Error::Api(status)) if writes::is_stale(&status) => Ok(()),
        woken => woken,
    }
}
