//! `pliant node`: the driver of one node of a cluster, and the agent that works for the controller.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use kube::config::{InferConfigError, KubeconfigError};
use kube::{Api, Client, Config};
use tokio_util::sync::CancellationToken;

use crate::api::Pool;
use crate::busy::Busy;
use crate::causes;
use crate::cluster::{Watched, every};
use crate::config::{Settings, SocketPath};
use crate::controllers::agent::Agent;
use crate::controllers::pools;
use crate::controllers::storage::{Found, Prerequisites, StorageRecord};
use crate::controllers::usage;
use crate::csi::{self, Identity, Services, registration};
use crate::doctor::{self, Finding, Level};
use crate::host::Host;
use crate::run::machine::{self, Observer, Started};

/// Serve Identity and Node on one socket, and work for the controller, until SIGTERM or SIGINT.
pub async fn serve(
    settings: Settings,
    registration: Option<SocketPath>,
    usage_period: Duration,
) -> Result<()> {
    let stop = CancellationToken::new();
    let stopped = machine::stop_on_signals(stop.clone())?;
    let client = client().await?;
    let name = settings.node.as_str();
    let wanted: Watched<Pool> =
        Watched::start_without_events(Api::all(client.clone()), every(), &stop);
    // Volumes are served again before the API server can be asked: a node may start without it.
    let Started { alone: _alone, node, host, metrics } =
        machine::start(&settings, Vec::new(), true, &stop).await?;
    let busy = Busy::new();
    let storage = StorageRecord::new(&client, node.clone(), Doctor(host));
    let agent = Agent::new(&client, name, node.clone(), busy.clone(), storage.clone());
    let loops = {
        let (node, stop, name) = (node.clone(), stop.clone(), name.to_owned());
        tokio::spawn(async move {
            tokio::join!(
                pools::follow(&name, &wanted, &node, &storage, stop.clone()),
                storage.clone().run(stop.clone()),
                agent.run(stop.clone()),
                usage::tell(node.clone(), storage.clone(), usage_period, stop.clone()),
            )
        })
    };
    let endpoint = settings.endpoint.as_path();
    if let Some(at) = registration {
        let (endpoint, stop) = (endpoint.to_owned(), stop.clone());
        tokio::spawn(async move {
            if let Err(error) = registration::register(at.as_path(), &endpoint, stop.clone()).await
            {
                tracing::error!(error = crate::causes::in_full(&error), "not registered");
                stop.cancel();
            }
        });
    }
    let services = Services {
        identity: Identity,
        controller: None,
        node: Some(csi::Node::new(node, busy.clone())),
    };
    csi::serve(endpoint, services, Arc::new(Observer(metrics)), stopped).await?;
    stop.cancel();
    match machine::drain(async { tokio::join!(busy.idle(), loops).1 }).await {
        Some(ended) => ended.map(drop).context("a loop of the agent ended in a fault"),
        None => Ok(()),
    }
}

/// How long the API server may say nothing: longer than a watch lasts, which it ends after 290 s. Without
/// a limit a call whose answer was lost could be waited for without an end.
const SILENCE: Duration = Duration::from_secs(300);

/// Speak with the API server, as the pod or the KUBECONFIG of this process says.
pub async fn client() -> Result<Client> {
    let mut config = Config::infer().await.map_err(|error| unreachable(&error))?;
    config.read_timeout = Some(SILENCE);
    // Whoever asks knows what to do about an answer, and when to ask again. The library would ask fifteen
    // times, as late as it is told to: a pod that may not be evicted would hold up all others for minutes.
    config.default_retry = false;
    config.reset_reader_on_write = true;
    Client::try_from(config).context("what the kubeconfig says can not be used")
}

/// In one line: where a way to the API server was looked for, and what to set.
fn unreachable(error: &InferConfigError) -> anyhow::Error {
    let kubeconfig = error.source().and_then(|cause| cause.downcast_ref::<KubeconfigError>());
    let looked = match kubeconfig {
        Some(KubeconfigError::ReadConfig(why, path)) => format!("{}: {why}", path.display()),
        Some(KubeconfigError::FindPath) => "there is no home directory to look in".to_owned(),
        Some(other) => causes::in_full(other),
        None => causes::in_full(error),
    };
    let looked = looked.split_whitespace().collect::<Vec<_>>().join(" "); // YAML's errors show lines of it.
    anyhow!(
        "no way to the API server is known: {looked}; set KUBECONFIG to a kubeconfig, or run this in a pod with \
         a service account"
    )
}

/// What `pliant doctor` says of the machine is what it lacks.
struct Doctor(Arc<dyn Host>);

#[async_trait]
impl Prerequisites for Doctor {
    async fn look(&self) -> Found {
        let seen = doctor::look_at_machine(self.0.as_ref()).await;
        let findings = doctor::judge_machine(&seen).into_iter();
        let bad = findings.filter(|finding| finding.level == Level::Bad);
        let told =
            |finding: Finding| format!("{}: {}", finding.what, finding.todo.unwrap_or_default());
        let lvm = seen.tools.get("lvm").filter(|version| !version.is_empty()).cloned();
        Found { lacking: bad.map(told).collect(), lvm, kernel: seen.kernel }
    }
}
