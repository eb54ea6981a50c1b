//! Says which kinds are filled here, so that whoever validates claims knows them.

use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::api::{ArchivePopulator, PvcSourcePopulator, VolumePopulator};
use crate::causes;
use crate::cluster::{Watched, begun_again, caught_in_time, every, reconcile};
use crate::panics::caught;
use crate::populators::WRITER;

/// What panics and spans are under.
const LOOP: &str = "volumepopulators";

/// How often it is looked whether a cluster that knows no VolumePopulator knows it now.
const LOOK: Duration = Duration::from_secs(60);

/// After an API server that did not answer, and between two registrations of what others take away.
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

/// The registered kinds of a cluster, as soon as it knows what a VolumePopulator is.
///
/// It waits for that: the definition may be installed later, and without it nobody can register.
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
                        "this cluster has no VolumePopulator, so no kind is registered; \
                                    see docs/src/how-to/populate.md"
                    );
                }
                LOOK
            }
            Ok(Err(error)) => {
                tracing::warn!(error = causes::in_full(&error), "kinds cannot be registered yet");
                AGAIN
            }
            Err(panicked) => {
                tracing::error!(%panicked, "kinds cannot be registered yet");
                AGAIN
            }
        };
        tokio::time::sleep(after).await;
    }
    Watched::start(api, every(), stop)
}

/// Register our kinds, and again if somebody takes that away, until `stop`.
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

/// Those of ours that are not registered as they should be.
fn missing(known: impl Fn(&str) -> Option<VolumePopulator>) -> Vec<VolumePopulator> {
    let is_there = |one: &VolumePopulator| {
        let there = known(one.metadata.name.as_deref().unwrap_or_default());
        there.is_some_and(|there| there.source_kind == one.source_kind)
    };
    ours().into_iter().filter(|one| !is_there(one)).collect()
}

/// What is not registered is missing still, and tried again.
async fn register_in_time(api: &Api<VolumePopulator>, populator: &VolumePopulator) {
    let error = match caught_in_time(LOOP, register(api, populator)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => causes::in_full(&error),
        Err(why) => why.to_string(),
    };
    tracing::warn!(error, "a kind is not registered yet");
}

async fn register(
    api: &Api<VolumePopulator>,
    populator: &VolumePopulator,
) -> Result<(), kube::Error> {
    let name = populator.metadata.name.as_deref().unwrap_or_default();
    let params = PatchParams::apply(WRITER).force();
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
