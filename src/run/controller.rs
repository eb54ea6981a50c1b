//! `pliant controller`: CSI Controller for a cluster, beside the sidecars that call it.

use std::sync::Arc;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use crate::cli::ControllerRole;
use crate::cluster::{Cluster, PersistentVolumes};
use crate::controllers::{events, nodes, pools, request_gc};
use crate::csi::parse::Defaults;
use crate::csi::{self, Controller, Identity, Services};
use crate::in_flight::InFlight;
use crate::metrics::Metrics;
use crate::run::client::client;
use crate::run::figures::ControllerFigures;
use crate::run::machine::{self, Observer};

/// Serves Identity and Controller on one socket, and run the loops, until SIGTERM or SIGINT.
pub async fn serve(role: ControllerRole) -> Result<()> {
    let stop = CancellationToken::new();
    let stopped = machine::stop_on_signals(stop.clone())?;
    let client = client().await?;
    let metrics = Metrics::default();
    let address = role.tell.metrics_address.map(|address| address.0);
    let figures = Arc::new(ControllerFigures::default());
    machine::tell_figures(address, &metrics, figures.clone(), &stop).await?;
    let cluster = tokio::select! {
        cluster = Cluster::start(&client, &stop) => Arc::new(cluster),
        () = stop.cancelled() => return Ok(()),
    };
    let kept = Arc::new(PersistentVolumes::watch(&client, &stop));
    figures.tell_of(cluster.clone(), kept.clone());
    let loops = {
        let (cluster, stop) = (cluster.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::join!(
                request_gc::run(cluster.requests(), cluster.nodes(), stop.clone()),
                nodes::forget_gone(&client, cluster.nodes(), stop.clone()),
                pools::report(&client, cluster.nodes(), stop.clone()),
                events::emit(&client, &cluster, &kept, stop.clone()),
            )
        })
    };
    let defaults = Defaults { fs: role.default_fstype, ..Defaults::default() };
    let busy = InFlight::new();
    let services = Services {
        identity: Identity,
        controller: Some(Controller::new(cluster, busy.clone(), defaults)),
        node: None,
    };
    csi::serve(role.endpoint.as_path(), services, Arc::new(Observer(metrics)), stopped).await?;
    stop.cancel();
    let ended = machine::drain(async { tokio::join!(busy.idle(), loops).1 }).await;
    ended.transpose()?;
    Ok(())
}
