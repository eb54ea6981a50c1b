//! What populates the claims of one kind of source.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource, ResourceExt};

use crate::cluster::{Asks, Binding, ClaimSummary, Clock, Watched};
use crate::populators::events::Events;
use crate::populators::settings::PopulationSettings;
use crate::populators::{PopulationMetrics, PopulationSource, Watches};

/// Populates the claims of one kind of source.
pub struct Populator<S: PopulationSource> {
    pub(super) client: Client,
    pub(super) settings: PopulationSettings,
    pub(super) watches: Arc<Watches>,
    pub(super) asks: Arc<Asks>,
    pub(super) sources: Watched<S>,
    pub(super) tally: Arc<dyn PopulationMetrics>,
    pub(super) events: Events,
    pub(super) clock: Clock,
}

impl<S: PopulationSource> fmt::Debug for Populator<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Populator").field("kind", &S::kind(&())).finish_non_exhaustive()
    }
}

impl<S: PopulationSource> Populator<S> {
    /// Returns the API for objects of a kind in the namespace of this one.
    pub(super) fn of<K>(&self, metadata: &ObjectMeta) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), metadata.namespace.as_deref().unwrap_or_default())
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Uids of the claims that name a source.
    pub(super) fn uids_of(&self, source: &S) -> Vec<String> {
        let namespace = source.namespace().unwrap_or_default();
        let its = self.watches.claims_filled_from::<S>(&namespace, &source.name_any());
        its.iter().map(|claim| claim.names.uid.to_string()).collect()
    }
}

/// Delay after the API server did not respond, and while waiting for something that is not watched.
pub(super) const AGAIN: Duration = Duration::from_secs(10);

/// Returns true if a claim names a source of this kind and is not populated yet.
pub(super) fn is_open<S: PopulationSource>(claim: &ClaimSummary) -> bool {
    let is_unfinished = claim.binding == Binding::Pending || claim.held_by.populator;
    is_unfinished && names::<S>(claim).is_some()
}

/// The name of the source of this kind that a claim names.
pub(super) fn names<S: PopulationSource>(claim: &ClaimSummary) -> Option<&str> {
    let named = claim.source.as_ref()?;
    let is_ours = *named.group == *S::group(&()) && *named.kind == *S::kind(&());
    // One of another namespace is rejected in its reconcile; see KEP-3294.
    (is_ours && !named.has_namespace).then_some(&*named.name)
}
