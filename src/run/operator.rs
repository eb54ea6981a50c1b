//! `pliant operator`: the loops that have claims filled and moved, beside the driver and not in it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::api::{ArchivePopulator, PvcSourcePopulator};
use crate::cli::OperatorRole;
use crate::metrics::{FigureSource, Figures, Metrics};
use crate::populators::validator::Mode;
use crate::populators::{Populator, Settings, Tally, Watches, registry, validator};
use crate::run::machine;
use crate::run::node::client;

/// Run the loops until SIGTERM or SIGINT. What is under way is taken up by another replica, or by the
/// next start.
pub async fn serve(role: OperatorRole) -> Result<()> {
    let stop = CancellationToken::new();
    let stopped = machine::stop_on_signals(stop.clone())?;
    let client = client().await?;
    let metrics = Metrics::default();
    metrics.expect_fillings();
    let address = role.tell.metrics_address.map(|address| address.0);
    machine::tell_figures(address, &metrics, Arc::new(Nothing), &stop).await?;
    let settings = Settings { image: role.fill_image, namespace: role.fill_namespace };
    let tally: Arc<dyn Tally> = Arc::new(Counts(metrics));
    let watches = Arc::new(Watches::start(&client, &stop));
    let archives: Arc<Populator<ArchivePopulator>> =
        Populator::start(&client, &settings, &watches, &tally, &stop);
    let copies: Arc<Populator<PvcSourcePopulator>> =
        Populator::start(&client, &settings, &watches, &tally, &stop);
    let loops = async {
        tokio::join!(
            archives.run(stop.clone()),
            copies.run(stop.clone()),
            registered(&client, role.validator, &watches, &tally, &stop),
        )
    };
    let stopping = async {
        stopped.await;
        stop.cancel();
    };
    tokio::join!(loops, stopping);
    Ok(())
}

/// Register our kinds, and tell claims of those that are not registered.
async fn registered(
    client: &Client,
    mode: Mode,
    watches: &Watches,
    tally: &Arc<dyn Tally>,
    stop: &CancellationToken,
) {
    let known = registry::watch(client, stop);
    let Some(known) = stop.run_until_cancelled(known).await else { return };
    tokio::join!(
        registry::run(client, &known, stop.clone()),
        validator::run(client, mode, watches.claims(), &known, tally, stop.clone()),
    );
}

/// The operator has no figures but those that it counts.
struct Nothing;

#[async_trait]
impl FigureSource for Nothing {
    async fn figures(&self) -> Figures {
        Figures::default()
    }
}

/// Counts for whoever scrapes.
struct Counts(Metrics);

impl Tally for Counts {
    fn validated(&self, result: &'static str) {
        self.0.validated(result);
    }

    fn filled(&self, result: &'static str, took: Duration) {
        self.0.filled(result, took);
    }
}
