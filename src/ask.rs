//! What people ask of a cluster: how it is and why, that a claim grow, that a volume be taken back. A
//! client of the API server, as `kubectl` is one; called `kubectl-pliant` the program is its plugin.

mod address;
pub mod adopt;
pub mod changes;
pub mod checkup;
mod columns;
mod definitions;
pub mod edit;
pub mod explain;
mod grow;
mod kept;
pub mod plan;
mod read;
pub mod report;
mod status;
mod version;

pub use address::{Whose, node};
pub use columns::TableOptions;
pub use definitions::apply_definitions;
pub use explain::explain;
pub use grow::{await_growth, grow};
pub use status::{Record, Status, names, status, table};
pub use version::{Server, Versions, versions};

use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use tokio::time::timeout;

use crate::causes::in_full;
use crate::doctor::{WIDTH, harmless, wrapped};

/// Why an answer cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The API server, or the way to it.
    #[error("failed to read or write {what}: {why}")]
    Api {
        /// For what.
        what: &'static str,
        /// What it said.
        why: String,
    },
    /// The caller may not read or write it: whether it is there is not known.
    #[error("{reason}")]
    Forbidden {
        /// A sentence: the verb and the kind that a role would have to allow.
        reason: String,
    },
    /// What is asked for is not there, or cannot be had.
    #[error("{reason}")]
    Refused {
        /// A sentence: what, where, what to type.
        reason: String,
    },
}

fn asked(what: &'static str) -> impl Fn(kube::Error) -> AskError {
    move |error| match &error {
        kube::Error::Api(status) if status.is_forbidden() => {
            AskError::Forbidden { reason: format!("you may not do this: {}", in_full(&error)) }
        }
        _ => AskError::Api { what, why: in_full(&error) },
    }
}

/// That what is asked for may be there: the caller may not see it.
fn may_not_list(kind: &str, place: &str) -> AskError {
    let reason =
        format!("you may not list {kind} {place}; a role with the verb list for {kind} allows it");
    AskError::Forbidden { reason }
}

/// A line `TYPE.GROUP/NAME`.
fn resource_name<K: Resource<DynamicType = ()>>(name: &str) -> String {
    format!("{}.{}/{}\n", K::kind(&()).to_lowercase(), K::group(&()), harmless(name))
}

/// What a future gives, or the limit if it takes longer.
async fn within<T>(
    limit: Option<Duration>,
    future: impl Future<Output = T>,
) -> Result<T, Duration> {
    match limit {
        Some(limit) => timeout(limit, future).await.map_err(|_| limit),
        None => Ok(future.await),
    }
}

fn in_namespace(namespace: &str) -> String {
    format!("in namespace {namespace}")
}

/// Who edits, for the API server.
const EDITOR: &str = "kubectl-pliant";

/// The label selector of all pods of the driver, as the chart has it.
const DRIVER_PODS: &str = "app.kubernetes.io/name=pliant";

/// The label selector of the agents' pods, as the chart has it.
const AGENTS: &str = "app.kubernetes.io/name=pliant,app.kubernetes.io/component=node";

/// That of the controller's.
const CONTROLLERS: &str = "app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller";

/// What may not be readable, as people are told.
const CLASSES: &str = "storage classes";
const PVC_AUTOSCALERS: &str = "pvcautoscalers";
const CLAIMS: &str = "persistentvolumeclaims";
const NODES: &str = "nodes";
const PODS: &str = "pods";
const STORAGES: &str = "nodestorages";
const VOLUMES: &str = "persistent volumes";

/// What a caller may not read, so that something may be missing in what was told.
fn may_not_read(unseen: &[String]) -> String {
    if unseen.is_empty() {
        return String::new();
    }
    let unseen = format!("You may not read: {}. The answer may be incomplete.", unseen.join(", "));
    wrapped(&unseen, "", WIDTH)
}

/// What this version cannot decode, a line each; nothing of it is in what was said before.
fn cannot_decode(unreadable: &[impl Display]) -> String {
    let line = |one| wrapped(&format!("{one}. It is not shown."), "", WIDTH);
    unreadable.iter().map(line).collect()
}

/// Why a claim could not be read or written.
fn no_claim(error: kube::Error, namespace: &str, name: &str) -> AskError {
    match &error {
        kube::Error::Api(status) if status.is_not_found() => AskError::Refused {
            reason: format!(
                "there is no claim {name} in namespace {namespace}; `kubectl get pvc \
                 --all-namespaces` lists them"
            ),
        },
        _ => asked("the claim")(error),
    }
}

/// Whether a pod says that it is ready.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}
