//! The commands for people: explain the state of a cluster, change claims, recover volumes. A
//! client of the API server, as `kubectl` is one; called `kubectl-pliant`, the program is its plugin.

mod address;
pub mod adopt;
pub mod changes;
pub mod checkup;
mod columns;
mod definitions;
pub mod edit;
pub mod explain;
mod grow;
mod managed;
pub mod plan;
mod read;
pub mod report;
mod status;
mod thin_pools;
mod version;

pub use address::{Whose, node};
pub use columns::TableOptions;
pub use definitions::apply_definitions;
pub use explain::explain;
pub use grow::{await_growth, grow};
pub use status::{Status, StatusObject, names, status, table};
pub use version::{Server, Versions, versions};

use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use tokio::time::timeout;

use crate::doctor::{WIDTH, harmless, wrapped};
use crate::error_chain::in_full;

/// Reason why a question about the cluster cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A request to the API server failed.
    #[error("failed to read or write {what}: {why}")]
    Api {
        /// Object that was read or written.
        what: &'static str,
        /// Error message of the request.
        why: String,
    },
    /// The caller may not read or write the object, so it is not known whether it exists.
    #[error("{reason}")]
    Forbidden {
        /// Sentence with the verb and the kind that a role has to allow.
        reason: String,
    },
    /// The object does not exist, or the request cannot be met.
    #[error("{reason}")]
    Refused {
        /// Sentence: what, where, which command to run.
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

/// The error for a kind that the caller may not list; the object may exist.
fn may_not_list(kind: &str, place: &str) -> AskError {
    let reason =
        format!("you may not list {kind} {place}; a role with the verb list for {kind} allows it");
    AskError::Forbidden { reason }
}

/// A line `TYPE.GROUP/NAME`.
fn resource_name<K: Resource<DynamicType = ()>>(name: &str) -> String {
    format!("{}.{}/{}\n", K::kind(&()).to_lowercase(), K::group(&()), harmless(name))
}

/// Returns the output of a future, or the limit if it takes longer.
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

/// Field manager of edits.
const EDITOR: &str = "kubectl-pliant";

/// The label selector of all pods of the driver, as the chart has it.
const DRIVER_PODS: &str = "app.kubernetes.io/name=pliant";

/// The label selector of the node plugin's pods, as the chart has it.
const NODE_PLUGINS: &str = "app.kubernetes.io/name=pliant,app.kubernetes.io/component=node";

/// The label selector of the controller plugin's pods, as the chart has it.
const CONTROLLERS: &str = "app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller";

/// Names of kinds in messages about missing permissions.
const CLASSES: &str = "storage classes";
const PVC_AUTOSCALERS: &str = "pvcautoscalers";
const CLAIMS: &str = "persistentvolumeclaims";
const NODES: &str = "nodes";
const PODS: &str = "pods";
const STORAGES: &str = "nodestorages";
const VOLUMES: &str = "persistent volumes";

/// Lists the kinds that the caller may not read, so the answer may be incomplete.
fn may_not_read(unseen: &[String]) -> String {
    if unseen.is_empty() {
        return String::new();
    }
    let unseen = format!("You may not read: {}. The answer may be incomplete.", unseen.join(", "));
    wrapped(&unseen, "", WIDTH)
}

/// Lists the objects that this version cannot decode, one a line; the answer omits them.
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

/// True if the pod reports that it is ready.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}
