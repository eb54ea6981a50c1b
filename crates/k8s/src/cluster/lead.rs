//! Leader election by a Lease (coordination.k8s.io/v1): its holder runs the loops.
//!
//! Two replicas that both believe they hold it do no harm, because repeated effects do nothing; they only
//! send every request twice. So this saves requests, and safety does not depend on it.
//!
//! A Lease is held as long as it changes. The time in it is from the clock of another node and decides
//! nothing: each candidate measures by its own clock how long the Lease has not changed.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::cluster::writes::{self, OPERATOR, by_json, is_stale};
use crate::cluster::{Pauses, until};
use crate::error_chain;

/// Time for which an unchanged Lease belongs to another holder.
const HELD_FOR: Duration = Duration::from_secs(15);

/// Interval of renewals.
const RENEWED: Duration = Duration::from_secs(5);

/// Time after the last renewal when its holder stops: before any other can start.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// Delay before a retry, and timeout of a request.
const AGAIN: Duration = Duration::from_secs(2);

/// A Lease, and who wants it.
pub struct LeaseCandidate {
    leases: Api<Lease>,
    name: String,
    /// Identity that no other process has, at any start.
    identity: String,
}

impl fmt::Debug for LeaseCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseCandidate { name, identity, .. } = self;
        f.debug_struct("LeaseCandidate").field("name", name).field("identity", identity).finish()
    }
}

/// The Lease as it was last seen, and since when it is so.
#[derive(Default)]
struct Sighting {
    lease: Option<Lease>,
    since: Option<Instant>,
}

impl Sighting {
    /// Takes an event of the watch: a restarted watch repeats the known state.
    fn see(&mut self, lease: Option<Lease>) {
        let version = |lease: &Option<Lease>| lease.as_ref()?.metadata.resource_version.clone();
        if self.since.is_none() || version(&self.lease) != version(&lease) {
            *self = Sighting { lease, since: Some(Instant::now()) };
        }
    }

    /// Returns when it may be taken without a change; `None` before it was seen.
    fn is_free_at(&self, who: &str) -> Option<Instant> {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        // Ours is one whose answer was lost.
        let is_free = holder.is_empty() || holder == who;
        self.since.map(|since| if is_free { since } else { since + HELD_FOR })
    }
}

impl LeaseCandidate {
    /// A process that wants the Lease of this name, by an identity that no other process ever has.
    pub fn new(client: &Client, namespace: &str, name: &str, identity: &str) -> LeaseCandidate {
        let leases = Api::namespaced(client.clone(), namespace);
        LeaseCandidate { leases, name: name.to_owned(), identity: identity.to_owned() }
    }

    /// Runs `work` whenever this process holds the Lease, until `stop`. Its token is cancelled before
    /// another process holds it, unless a person empties or deletes it; the Lease is released when the work
    /// has ended.
    pub async fn lead<F: Future<Output = ()>>(
        &self,
        stop: &CancellationToken,
        work: impl Fn(CancellationToken) -> F,
    ) {
        while let Some(since) = stop.run_until_cancelled(self.acquire()).await {
            tracing::info!(lease = self.name, identity = self.identity, "acquired the Lease");
            let lost = stop.child_token();
            let renewed = async {
                lost.run_until_cancelled(self.renew(since)).await;
                lost.cancel();
            };
            tokio::join!(work(lost.clone()), renewed);
            tracing::info!(lease = self.name, "lost the Lease");
            self.release().await;
        }
    }

    /// Waits until this process holds the Lease; returns since when.
    async fn acquire(&self) -> Instant {
        let watched = watcher::watch_object(self.leases.clone(), &self.name);
        let mut watched = Box::pin(watched.backoff(Pauses::default()));
        let mut seen = Sighting::default();
        let mut not_before = Instant::now();
        loop {
            let free = seen.is_free_at(&self.identity).map(|free| free.max(not_before));
            tokio::select! {
                biased;
                Some(told) = watched.next() => match told {
                    Ok(lease) => seen.see(lease),
                    Err(error) => self.failed("watch", &error),
                },
                () = until(free) => {
                    let since = Instant::now();
                    match in_time(self.take(seen.lease.as_ref())).await {
                        Ok(()) => return since,
                        // Another one was faster, as the watch will show.
                        Err(kube::Error::Api(status)) if is_stale(&status) => {
                            not_before = Instant::now() + HELD_FOR;
                        }
                        Err(error) => {
                            self.failed("take", &error);
                            not_before = Instant::now() + AGAIN;
                        }
                    }
                }
            }
        }
    }

    /// Takes the Lease, if it is still as observed.
    async fn take(&self, seen: Option<&Lease>) -> Result<(), kube::Error> {
        let mut lease = seen.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        let now = MicroTime(Timestamp::now());
        let before = lease.spec.take().unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(HELD_FOR.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(before.lease_transitions.map_or(0, |n| n.saturating_add(1))),
            ..before
        });
        let by = PostParams { field_manager: Some(OPERATOR.to_owned()), ..PostParams::default() };
        match seen {
            Some(_) => self.leases.replace(&self.name, &by, &lease).await.map(drop),
            None => self.leases.create(&by, &lease).await.map(drop),
        }
    }

    /// Renews the Lease, until it is lost, or may be.
    async fn renew(&self, mut since: Instant) {
        let mut next = since + RENEWED;
        while next < since + GIVEN_UP {
            sleep_until(next).await;
            let asked = Instant::now();
            let renewed = json!({"op": "replace", "path": "/spec/renewTime", "value": MicroTime(Timestamp::now())});
            match in_time(self.change(renewed)).await {
                Ok(()) => (since, next) = (asked, asked + RENEWED),
                Err(kube::Error::Api(status)) if is_stale(&status) => return,
                Err(error) => {
                    self.failed("renew", &error);
                    next = Instant::now() + AGAIN;
                }
            }
        }
    }

    /// Releases the Lease at once, if this process still holds it.
    async fn release(&self) {
        let free = json!({"op": "replace", "path": "/spec/holderIdentity", "value": ""});
        match in_time(self.change(free)).await {
            Err(kube::Error::Api(status)) if is_stale(&status) => {}
            Err(error) => self.failed("release", &error),
            Ok(()) => {}
        }
    }

    /// Changes the Lease, if this process holds it.
    async fn change(&self, what: Value) -> Result<(), kube::Error> {
        let ours = json!({"op": "test", "path": "/spec/holderIdentity", "value": self.identity});
        let patch = by_json(json!([ours, what]));
        writes::patch(&self.leases, &self.name, &patch, OPERATOR).await
    }

    fn failed(&self, what: &str, error: &(dyn std::error::Error + 'static)) {
        let error = error_chain::in_full(error);
        tracing::warn!(lease = self.name, error, "failed to {what} the Lease");
    }
}

/// Waits for an answer, but no longer than until the next attempt is due.
async fn in_time(asked: impl Future<Output = Result<(), kube::Error>>) -> Result<(), kube::Error> {
    timeout(AGAIN, asked).await.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
}
