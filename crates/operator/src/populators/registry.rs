//! Registers the kinds that Pliant populates, so that validators of claims know them.

use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::api::{ArchivePopulator, PvcSourcePopulator, VolumePopulator};
use crate::cluster::writes::OPERATOR;
use crate::cluster::{Watched, begun_again, caught_in_time, every, reconcile};
use crate::error_chain;
use crate::panics::caught;

/// Name for panics and spans.
const LOOP: &str = "volumepopulators";

/// Interval of checks for the CRD VolumePopulator.
const LOOK: Duration = Duration::from_secs(60);

/// Delay after the API server did not respond, and between two registrations that others remove.
const AGAIN: Duration = Duration::from_secs(10);

/// Our kinds.
fn ours() -> [VolumePopulator; 2] {
    let archive = ArchivePopulator::kind(&());
    let pvc = PvcSourcePopulator::kind(&());
    let group = ArchivePopulator::group(&());
    [
        VolumePopulator::new("pliant-archive", &group, &archive),
        VolumePopulator::new("pliant-pvc-source", &group, &pvc),
    ]
}

/// Watches the registered kinds, as soon as the CRD VolumePopulator exists.
///
/// It waits for that: the CRD may be installed later, and no kind can be registered without it.
pub async fn watch(client: &Client, stop: &CancellationToken) -> Watched<VolumePopulator> {
    let api: Api<VolumePopulator> = Api::all(client.clone());
    let mut is_told = false;
    loop {
        let listed = caught(LOOP, api.list_metadata(&ListParams::default().limit(1))).await;
        let after = match listed {
            Ok(Ok(_)) => break,
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(
                        "the CRD VolumePopulator is not installed, so no kind is registered; see \
                         \"Populate a volume\" in the documentation"
                    );
                }
                LOOK
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    error = error_chain::in_full(&error),
                    "failed to look up the CRD VolumePopulator"
                );
                AGAIN
            }
            Err(panicked) => {
                tracing::error!(%panicked, "failed to look up the CRD VolumePopulator");
                AGAIN
            }
        };
        tokio::time::sleep(after).await;
    }
    Watched::start(api, every(), stop)
}

/// Registers the kinds of Pliant, and again if they are removed, until `stop`.
pub async fn run(client: &Client, known: &Watched<VolumePopulator>, stop: CancellationToken) {
    let api: Api<VolumePopulator> = Api::all(client.clone());
    let registered = begun_again(LOOP, async || {
        known.known().await;
        let mut changes = known.changes();
        loop {
            changes.mark_unchanged();
            let missing = missing(|name| known.get(name).map(|one| (*one).clone()));
            if missing.is_empty() {
                let _ = changes.changed().await;
                continue;
            }
            for populator in missing {
                let name = populator.metadata.name.as_deref().unwrap_or_default();
                let span = reconcile(LOOP, name);
                register_in_time(&api, &populator).instrument(span).await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    });
    stop.run_until_cancelled(registered).await;
}

/// Returns the kinds of Pliant that are not registered correctly.
fn missing(known: impl Fn(&str) -> Option<VolumePopulator>) -> Vec<VolumePopulator> {
    let is_there = |one: &VolumePopulator| {
        let there = known(one.metadata.name.as_deref().unwrap_or_default());
        there.is_some_and(|there| there.source_kind == one.source_kind)
    };
    ours().into_iter().filter(|one| !is_there(one)).collect()
}

/// Registers a kind; on an error it is still missing, and retried.
async fn register_in_time(api: &Api<VolumePopulator>, populator: &VolumePopulator) {
    let error = match caught_in_time(LOOP, register(api, populator)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error_chain::in_full(&error),
        Err(why) => why.to_string(),
    };
    tracing::warn!(error, "failed to register a kind");
}

async fn register(
    api: &Api<VolumePopulator>,
    populator: &VolumePopulator,
) -> Result<(), kube::Error> {
    let name = populator.metadata.name.as_deref().unwrap_or_default();
    let params = PatchParams::apply(OPERATOR).force();
    api.patch(name, &params, &Patch::Apply(populator)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_registered_as_it_should_be_is_registered() {
        let names = |missing: Vec<VolumePopulator>| -> Vec<String> {
            missing.into_iter().filter_map(|one| one.metadata.name).collect()
        };
        assert_eq!(names(missing(|_| None)), ["pliant-archive", "pliant-pvc-source"]);
        let find =
            |name: &str| ours().into_iter().find(|one| one.metadata.name.as_deref() == Some(name));
        assert!(missing(find).is_empty(), "a plan after its own apply is empty");
        let other = |name: &str| Some(VolumePopulator::new(name, "pliant.io", "ArchivePopulator"));
        assert_eq!(names(missing(other)), ["pliant-pvc-source"]);
    }
}
