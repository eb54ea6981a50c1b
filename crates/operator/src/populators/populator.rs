//! What populates the claims of one kind of source.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt};

use crate::cluster::{Asks, Clock, Watched};
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
