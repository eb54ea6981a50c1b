//! Observes the changes of claims and sources, plans, and applies.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::api::{FillingPhase, is_understood};
use crate::cluster::writes::{is_refused, is_stale};
use crate::cluster::{Asks, Clock, ObjectNames, Watched, begun_again, every};
use crate::error_chain;
use crate::populators::apply::{Work, apply};
use crate::populators::events::Events;
use crate::populators::observe::{namespace_of, observe};
use crate::populators::observed::ObservedPopulation;
use crate::populators::plan::plan;
use crate::populators::populator::{AGAIN, Populator};
use crate::populators::queue::{PopulationReconciles, keys_of_source};
use crate::populators::settings::PopulationSettings;
use crate::populators::status::{backs_off, pause_of_progress, wait};
use crate::populators::{PopulationMetrics, PopulationSource, PopulatorReason, Watches};

/// Delay after a reconcile, for related changes to arrive; the first change after a quiet time is
/// handled at once.
const PAUSE: Duration = Duration::from_millis(50);

/// Delay after a conflicting write.
const SOON: Duration = Duration::from_secs(1);

impl<S: PopulationSource> Populator<S> {
    /// Starts to watch the sources, until `stop`; all kinds share the watched claims and the requests
    /// to nodes.
    pub fn start(
        client: &Client,
        settings: &PopulationSettings,
        watches: &Arc<Watches>,
        asks: &Arc<Asks>,
        tally: &Arc<dyn PopulationMetrics>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Populator {
            client: client.clone(),
            settings: settings.clone(),
            watches: watches.clone(),
            asks: asks.clone(),
            sources: Watched::start_keyed(
                Api::all(client.clone()),
                every(),
                stop,
                |source: &mut S| {
                    source.meta_mut().annotations = None;
                    source.meta_mut().labels = None;
                },
                keys_of_source,
            ),
            tally: tally.clone(),
            events: Events { client: client.clone() },
            clock: Clock::start(),
        })
    }

    /// Populates claims, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let filled = begun_again("claims", async || {
            self.watches.known().await;
            tokio::join!(self.sources.known(), self.asks.cluster().known());
            let mut looks = PopulationReconciles::of(&self);
            loop {
                looks.begin(&self);
                tokio::time::sleep(PAUSE).await;
                looks.wait().await;
            }
        });
        stop.run_until_cancelled(filled).await;
    }

    /// Reconciles a claim; returns the delay until the next time without a change.
    pub(super) async fn reconcile(&self, claim: &ObjectNames) -> Option<Duration> {
        let failed = match self.reconcile_inner(claim).await {
            Ok(due) => return due,
            Err(error) => error,
        };
        match &failed {
            kube::Error::Api(status) if is_stale(status) => Some(SOON),
            error => {
                let error = error_chain::in_full(error);
                tracing::warn!(error, "failed to reconcile a claim");
                Some(AGAIN)
            }
        }
    }

    async fn reconcile_inner(&self, claim: &ObjectNames) -> Result<Option<Duration>, kube::Error> {
        let Some((seen, source)) = observe(self, claim).await? else { return Ok(None) };
        if seen.status_entry().is_some_and(|told| !is_understood(told)) {
            return Ok(Some(AGAIN)); // Another version populates it, and continues.
        }
        let there = namespace_of(self, &seen.claim, source.as_ref());
        let work = Work { seen: &seen, source: source.as_ref(), namespace: &there };
        for step in plan(&seen) {
            let (makes, notes) = (step.makes(), step.notes());
            match apply(self, step, &work).await {
                Err(kube::Error::Api(status)) if makes && is_refused(&status) => {
                    self.tell_refusal(&seen, &work, &status.message).await?;
                    return Ok(Some(AGAIN * 3));
                }
                // It would be refused again. What comes after it is not done without it.
                Err(kube::Error::Api(status)) if notes && status.is_invalid() => {
                    tracing::error!(why = status.message, "failed to write a status");
                    return Ok(Some(AGAIN));
                }
                done => done?,
            }
        }
        Ok(next(&seen))
    }

    /// The API server does not let something be made: a quota, a policy. Who has the claim can help.
    async fn tell_refusal(
        &self,
        seen: &ObservedPopulation,
        work: &Work<'_, S>,
        why: &str,
    ) -> Result<(), kube::Error> {
        // Writes before the rejection have changed the status.
        let Some((seen, source)) = observe(self, &seen.claim.metadata.clone().into()).await? else {
            return Ok(());
        };
        let mut message = format!(
            "the objects that populate the claim cannot be created in namespace {}: {why}",
            work.namespace
        );
        if why.contains("violates PodSecurity") {
            message.push_str(&allow(work));
        }
        let work = Work { seen: &seen, source: source.as_ref(), namespace: work.namespace };
        for step in wait(&seen, PopulatorReason::PopulatorCreationError, &message) {
            apply(self, step, &work).await?;
        }
        Ok(())
    }
}

/// Returns how a namespace can allow populator pods: as root they set the owners of files.
fn allow<S: PopulationSource>(work: &Work<'_, S>) -> String {
    let label = "pod-security.kubernetes.io/enforce=baseline";
    let other = work.source.is_some_and(|source| !source.is_near());
    let other = if other {
        ", or have the claim populated in another one: value operator.populatorNamespace"
    } else {
        ""
    };
    format!(
        "; the pod runs as root, which the policy baseline allows: `kubectl label --overwrite namespace {} \
         {label}`{other}",
        work.namespace
    )
}

/// Returns the delay until the next reconcile without a change.
fn next(seen: &ObservedPopulation) -> Option<Duration> {
    if let Some(left) = backs_off(seen) {
        return Duration::try_from(left).ok().map(|left| left + PAUSE);
    }
    if seen.pod.is_some() {
        return Some(Duration::try_from(pause_of_progress(seen)).unwrap_or(AGAIN));
    }
    // Pods of others, ConfigMaps and classes are not watched; the claim, which gets a node, and its source are.
    let watched = [
        PopulatorReason::PreCopySkipped,
        PopulatorReason::WaitForFirstConsumer,
        PopulatorReason::SourcePaused,
    ];
    let is_at_rest = seen.status_entry().is_some_and(|told| {
        let waits_so = |reason: &PopulatorReason| Some(reason.to_string()) == told.reason;
        told.phase == FillingPhase::Failed || watched.iter().any(waits_so)
    });
    (!is_at_rest && seen.source.is_some()).then_some(AGAIN)
}
