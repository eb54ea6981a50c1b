//! Start and end of every role on a host.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{FilesystemExpansion, Settings};
use crate::csi::RpcObserver;
use crate::host::{self, Host, RealHost, StateLock};
use crate::metrics::{self, FigureSource, Metrics};
use crate::node::{Node, NodeSettings, PoolPlan, keep_trimmed};
use crate::run::figures::NodeFigures;

/// How long work under way is waited for at the end. With the last calls before it, it stays below the
/// usual 60 s until SIGKILL.
const DRAIN: Duration = Duration::from_secs(30);

/// How long the process before this one is waited for: as long as it has from SIGTERM to SIGKILL.
const PREDECESSOR: Duration = Duration::from_secs(60);

/// A node that runs.
pub struct Started {
    /// The lock that is held to the end: see [`be_alone`].
    pub alone: StateLock,
    pub node: Arc<Node>,
    pub host: Arc<dyn Host>,
    pub metrics: Metrics,
}

/// Waits until no other process of this driver runs here; none starts as long as the lock is held.
/// Nothing on this host is changed before.
///
/// # Errors
/// Another one keeps running; with the commands to run.
pub async fn be_alone(settings: &Settings) -> Result<StateLock> {
    let dir = settings.state_dir.as_path();
    host::lock_state(dir, PREDECESSOR).await.with_context(|| {
        let dir = dir.display();
        format!(
            "another process of this driver still uses {dir}: stop it, see `fuser -v {dir}/lock`, \
             or choose another --state-dir"
        )
    })
}

/// Starts the node with these pools, and serves its metrics until `stop`. [`NodeSettings`] explains
/// `guarded_devices`.
///
/// # Errors
/// What is missing or in the way, and the commands to run.
pub async fn start(
    alone: StateLock,
    settings: &Settings,
    plans: Vec<PoolPlan>,
    guarded_devices: bool,
    stop: &CancellationToken,
) -> Result<Started> {
    let host = host(settings)?;
    let told = NodeSettings { guarded_devices, ..node_settings(settings) };
    let node = Node::start(host.clone(), told, plans)
        .await
        .context("failed to list the disks of this host")?;
    tokio::spawn(keep_trimmed(Arc::downgrade(&node)));
    let metrics = Metrics::default();
    let figures = Arc::new(NodeFigures::new(node.clone(), host.clone()));
    tell_figures(settings.metrics_address, &metrics, figures, stop).await?;
    Ok(Started { alone, node, host, metrics })
}

fn host(settings: &Settings) -> Result<Arc<dyn Host>> {
    ensure!(
        host::is_installed("lvm"),
        "LVM is not installed, and no volume can be served without it: run apt-get install lvm2"
    );
    let host = RealHost::new(settings.state_dir.as_path());
    Ok(Arc::new(host.context("this host cannot be used")?))
}

/// Serves metrics at the address, if there is one, until `stop`.
///
/// # Errors
/// What is in the way, and the commands to run.
pub async fn tell_figures(
    address: Option<SocketAddr>,
    metrics: &Metrics,
    figures: Arc<dyn FigureSource>,
    stop: &CancellationToken,
) -> Result<()> {
    let Some(address) = address else { return Ok(()) };
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!(
            "failed to serve metrics on {address}; see `ss -ltnp`, or choose another \
             --metrics-address"
        )
    })?;
    tokio::spawn(metrics::serve(listener, metrics.clone(), figures, stop.clone()));
    Ok(())
}

/// Waits for the work whose caller has left, and for what else is to end with it; a disk that hangs is not
/// waited for: `None`.
pub async fn drain<T>(work: impl Future<Output = T>) -> Option<T> {
    let ended = tokio::time::timeout(DRAIN, work).await;
    if ended.is_err() {
        tracing::warn!("operations still in progress; the next start recovers them");
    }
    ended.ok()
}

/// Counts each RPC.
pub struct Observer(pub Metrics);

impl RpcObserver for Observer {
    fn observe(&self, method: &str, code: &'static str, took: Duration) {
        self.0.observe(method, code, took);
    }
}

/// Ends at the first SIGTERM or SIGINT. Commands under way go on to their end: each is in a session of
/// its own, so the terminal's Ctrl-C does not reach them.
pub fn stop_on_signals(stop: CancellationToken) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = stop.cancelled() => {}
        }
        tracing::info!("stopping: finishing the calls in progress, accepting no new ones");
    })
}

fn node_settings(settings: &Settings) -> NodeSettings {
    NodeSettings {
        max_volumes_per_node: settings.max_volumes_per_node,
        two_step: settings.filesystem_expansion == FilesystemExpansion::Node,
        copy_rate: settings.copy_rate,
        wipe_rate: settings.wipe_rate,
        wipe_patience: settings.wipe_timeout,
        state_dir: settings.state_dir.as_path().to_owned(),
        ..NodeSettings::new(settings.node.as_str())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::config::{Flags, Layer, PoolsFrom};

    #[tokio::test(start_paused = true)]
    async fn nothing_begins_while_another_process_has_the_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = dir.path().to_str().unwrap().parse().unwrap();
        let node_id = Some("alpha".parse().unwrap());
        let said = Layer { node_id, state_dir: Some(state_dir), ..Layer::default() };
        let settings = Settings::check(Flags::default(), said, PoolsFrom::Cluster).unwrap();
        let predecessor = host::lock_state(dir.path(), Duration::ZERO).await.unwrap();
        let (alone, ()) = tokio::join!(
            be_alone(&settings),
            tokio::time::advance(PREDECESSOR + Duration::from_secs(1)),
        );
        let error = alone.map(drop).expect_err("its predecessor still ends what it has begun");
        assert!(
            error.to_string().starts_with("another process of this driver still uses"),
            "{error}"
        );
        drop(predecessor);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_is_left_when_the_time_is_over() {
        let begun = Instant::now();
        assert_eq!(drain(std::future::ready(7)).await, Some(7));
        assert_eq!(drain(std::future::pending::<()>()).await, None);
        assert_eq!(begun.elapsed(), DRAIN);
    }
}
