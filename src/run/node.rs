//! `pliant node`: the driver of one node of a cluster, and the loop that executes VolumeRequests of
//! the controller.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use kube::Api;
use tokio_util::sync::CancellationToken;

use crate::api::{StoragePool, VolumeRequest};
use crate::cluster::{Watched, every};
use crate::config::{Settings, SocketPath};
use crate::controllers::node_plugin::NodePlugin;
use crate::controllers::pools;
use crate::controllers::sampling;
use crate::controllers::sends;
use crate::controllers::storage::{HostCheck, Prerequisites, StorageRecord};
use crate::csi::{self, Identity, KubeletDir, Services, registration};
use crate::doctor::{self, Finding, FindingSeverity};
use crate::host::{Host, write_udev_rules};
use crate::in_flight::InFlight;
use crate::node::join_peers;
use crate::run::client::client;
use crate::run::machine::{self, Observer, Started};
use crate::transfers::Transfers;

/// Serves Identity and Node on one socket, and work for the controller, until SIGTERM or SIGINT.
pub async fn serve(
    settings: Settings,
    registration: Option<SocketPath>,
    volume_stats_interval: Duration,
    udev_rules_dir: Option<&Path>,
    transfer_address: Option<SocketAddr>,
) -> Result<()> {
    let stop = CancellationToken::new();
    let stopped = machine::stop_on_signals(stop.clone())?;
    let client = client().await?;
    let name = settings.node.as_str();
    let wanted: Watched<StoragePool> =
        Watched::start_without_events(Api::all(client.clone()), every(), &stop);
    // Volumes are served again before the API server can be asked: a node may start without it.
    let alone = machine::be_alone(&settings).await?;
    keep_udev_off(udev_rules_dir);
    let Started { alone: _alone, node, host, metrics } =
        machine::start(alone, &settings, Vec::new(), true, &stop).await?;
    let busy = InFlight::new();
    let endpoint = settings.endpoint.as_path();
    let kubelet = kubelet(host.as_ref(), registration.as_ref(), endpoint).await?;
    if let Some(address) = transfer_address {
        // Volumes are served without it too.
        match Transfers::start(&node, address) {
            Ok(transfers) => join_peers(&node, transfers),
            Err(error) => tracing::error!(
                error = crate::error_chain::in_full(&error),
                "failed to listen for the node plugins of other nodes"
            ),
        }
    }
    let requests: Watched<VolumeRequest> = Watched::start_without_events(
        Api::all(client.clone()),
        every().fields(&format!("spec.nodeName={name}")),
        &stop,
    );
    let storage = StorageRecord::new(&client, node.clone(), HostDoctor(host));
    let node_plugin = NodePlugin::new(&client, name, node.clone(), busy.clone(), storage.clone());
    let loops = {
        let (node, stop, name) = (node.clone(), stop.clone(), name.to_owned());
        tokio::spawn(async move {
            tokio::join!(
                pools::follow(&name, &wanted, &node, &storage, stop.clone()),
                storage.clone().run(stop.clone()),
                node_plugin.run(stop.clone()),
                sends::follow(&requests, &node, &storage, stop.clone()),
                sampling::report(
                    node.clone(),
                    storage.clone(),
                    volume_stats_interval,
                    stop.clone()
                ),
            )
        })
    };
    if let Some(at) = registration {
        let (endpoint, stop) = (endpoint.to_owned(), stop.clone());
        tokio::spawn(async move {
            if let Err(error) = registration::register(at.as_path(), &endpoint, stop.clone()).await
            {
                tracing::error!(
                    error = crate::error_chain::in_full(&error),
                    "failed to register with the kubelet"
                );
                stop.cancel();
            }
        });
    }
    let leaving = node.clone();
    let served = csi::Node::new(node, busy.clone());
    let served = match kubelet {
        Some(dir) => served.of_kubelet(dir),
        None => served,
    };
    let services = Services { identity: Identity, controller: None, node: Some(served) };
    csi::serve(endpoint, services, Arc::new(Observer(metrics)), stopped).await?;
    stop.cancel();
    leaving.leave(); // Behind it, so that the node plugin leaves the wipe that it waits for to the next one.
    match machine::drain(async { tokio::join!(busy.idle(), loops).1 }).await {
        Some(ended) => ended.map(drop).context(
            "a loop of the node plugin ended in an internal \
                                                error",
        ),
        None => Ok(()),
    }
}

/// Writes the rules for the host's udev, if that is wanted. Volumes are served without them too.
fn keep_udev_off(dir: Option<&Path>) {
    let Some(dir) = dir else { return };
    if let Err(error) = write_udev_rules(dir) {
        let dir = dir.display().to_string();
        tracing::warn!(dir, error = error.to_string(), "failed to write the host's udev rules");
    }
}

/// The directory of the kubelet, by the sockets that are in it, with a link to it followed once.
async fn kubelet(
    host: &dyn Host,
    registration: Option<&SocketPath>,
    endpoint: &Path,
) -> Result<Option<KubeletDir>> {
    let mut sockets = registration.map(SocketPath::as_path).into_iter().chain([endpoint]);
    let Some(named) = sockets.find_map(KubeletDir::of_socket) else { return Ok(None) };
    let real = host.real_path(named).await.with_context(|| {
        format!("failed to inspect the directory of the kubelet, {}", named.display())
    })?;
    let real = real.unwrap_or_else(|| named.to_owned());
    if real != named {
        tracing::info!(named = %named.display(), real = %real.display(), "the kubelet's directory is a link");
    }
    Ok(Some(KubeletDir::new(named.to_owned(), real)))
}

/// What `pliant doctor` says of the host is what it lacks.
struct HostDoctor(Arc<dyn Host>);

#[async_trait]
impl Prerequisites for HostDoctor {
    async fn look(&self) -> HostCheck {
        let seen = doctor::look_at_machine(self.0.as_ref()).await;
        let findings = doctor::judge_machine(&seen).into_iter();
        let bad = findings.filter(|finding| finding.severity == FindingSeverity::Error);
        let told = |finding: Finding| {
            format!("{}: {}", finding.message, finding.remediation.unwrap_or_default())
        };
        let lvm = seen.tools.get("lvm").filter(|version| !version.is_empty()).cloned();
        HostCheck { lacking: bad.map(told).collect(), lvm, kernel: seen.kernel }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeHost;

    #[tokio::test]
    async fn a_link_to_the_directory_of_the_kubelet_is_followed() {
        let host = FakeHost::new();
        let at = |text: &str| text.parse::<SocketPath>().unwrap();
        let registration = at("/var/lib/kubelet/plugins_registry/node@x-reg.sock");
        let endpoint = Path::new("/run/pliant/csi.sock");
        let plain = KubeletDir::new("/var/lib/kubelet".into(), "/var/lib/kubelet".into());
        let found = kubelet(&host, Some(&registration), endpoint).await.unwrap();
        assert_eq!(found, Some(plain));
        host.link(Path::new("/var/lib/kubelet"), Path::new("/var"));
        let led = KubeletDir::new("/var/lib/kubelet".into(), "/var".into());
        let found = kubelet(&host, Some(&registration), endpoint).await.unwrap();
        assert_eq!(found, Some(led));
        assert_eq!(kubelet(&host, None, endpoint).await.unwrap(), None);
        // With another program that registers the driver.
        let endpoint = Path::new("/data/kubelet/plugins/lvm.csi.pliant.io/csi.sock");
        let found = kubelet(&host, None, endpoint).await.unwrap();
        assert_eq!(found, Some(KubeletDir::new("/data/kubelet".into(), "/data/kubelet".into())));
    }
}
