//! `pliant standalone`: a whole driver on one machine.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::busy::Busy;
use crate::config::{Expansion, PoolSettings, Settings};
use crate::csi::parse::Defaults;
use crate::csi::{self, Controller, Identity, RpcObserver, Services};
use crate::host::{self, Host, RealHost};
use crate::metrics::{self, Metrics};
use crate::node::{GroupSource, NewDisk, Node, NodeSettings, PoolPlan};
use crate::run::figures::NodeFigures;
use crate::volume::{NodeKey, PoolName};

/// How long work under way is waited for at the end. With the last calls before it, it stays below the
/// usual 60 s until SIGKILL.
const DRAIN: Duration = Duration::from_secs(30);

/// Serve Identity, Controller and Node on one socket until SIGTERM or SIGINT.
pub async fn serve(settings: Settings) -> Result<()> {
    ensure!(
        host::is_installed("lvm"),
        "LVM is not installed, and without it no volume can be served: apt-get install lvm2"
    );
    let stop = CancellationToken::new();
    let stopped = stop_on_signals(stop.clone())?;
    let host: Arc<dyn Host> = Arc::new(
        RealHost::new(settings.state_dir.as_path()).context("this machine can not be used")?,
    );
    let plans = settings.pools.iter().map(|(name, pool)| plan(name, pool)).collect();
    let node = Node::start(host.clone(), node_settings(&settings), plans)
        .await
        .context("the disks of this machine can not be listed")?;
    let metrics = Metrics::default();
    if let Some(address) = settings.metrics_address {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| {
            format!(
                "metrics can not be served on {address}; see `ss -ltnp`, or choose another \
                     --metrics-address"
            )
        })?;
        let figures = Arc::new(NodeFigures::new(node.clone(), host.clone()));
        tokio::spawn(metrics::serve(listener, metrics.clone(), figures, stop.clone()));
    }
    let busy = Busy::new();
    let defaults = Defaults { fs: settings.default_fs, ..Defaults::default() };
    let services = Services {
        identity: Identity,
        controller: Some(Controller::new(node.clone(), busy.clone(), defaults)),
        node: Some(csi::Node::new(node, busy.clone())),
    };
    let socket = settings.endpoint.as_path();
    csi::serve(socket, services, Arc::new(Observer(metrics)), stopped).await?;
    stop.cancel();
    // Work whose caller has left goes on; a disk that hangs is not waited for.
    if tokio::time::timeout(DRAIN, busy.idle()).await.is_err() {
        tracing::warn!("work is still under way; the next start heals what it leaves");
    }
    Ok(())
}

/// Counts each RPC.
struct Observer(Metrics);

impl RpcObserver for Observer {
    fn observe(&self, method: &str, code: &'static str, took: Duration) {
        self.0.observe(method, code, took);
    }
}

/// Ends at the first SIGTERM or SIGINT. Commands under way go on to their end: each is in a session of
/// its own, so the terminal's Ctrl-C does not reach them.
fn stop_on_signals(stop: CancellationToken) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = stop.cancelled() => {}
        }
        tracing::info!("stopping: no new calls, those under way go on to their end");
    })
}

fn node_settings(settings: &Settings) -> NodeSettings {
    NodeSettings {
        name: settings.node.as_str().to_owned(),
        key: NodeKey::of(settings.node.as_str()),
        max_volumes: settings.max_volumes,
        two_step: settings.expansion == Expansion::TwoStep,
        wipe_rate: settings.wipe_rate,
        wipe_patience: settings.wipe_patience,
        state_dir: settings.state_dir.as_path().to_owned(),
    }
}

fn plan(name: &PoolName, pool: &PoolSettings) -> PoolPlan {
    let existing = pool.groups.iter().map(|group| GroupSource::Existing(group.as_str().to_owned()));
    let created = pool.create.iter().map(|disk| GroupSource::Create(new_disk(disk)));
    PoolPlan {
        spares: pool.spares.iter().map(new_disk).collect(),
        ..PoolPlan::new(name.clone(), existing.chain(created).collect())
    }
}

fn new_disk(disk: &crate::config::NewDisk) -> NewDisk {
    NewDisk { path: disk.path.as_path().to_owned(), wipe: disk.wipe }
}
