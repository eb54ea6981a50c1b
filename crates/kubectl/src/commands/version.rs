//! Versions of the program and the cluster.

use std::collections::BTreeMap;

use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;

use crate::api::NodeStorage;
use crate::commands::read::ListReader;
use crate::commands::{AskError, STORAGES, may_not_list};

/// Versions of this program and of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// Version of this program.
    #[serde(rename = "clientVersion")]
    pub client: String,
    /// Versions of the cluster; `None` if no cluster was asked.
    #[serde(rename = "serverVersion", skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
}

/// Versions that a cluster runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Number of nodes by the version of their node plugin.
    pub nodes: BTreeMap<String, usize>,
}

impl Versions {
    /// Only the version of this program.
    pub fn of_client() -> Versions {
        Versions { client: env!("CARGO_PKG_VERSION").to_owned(), server: None }
    }

    /// Prints the versions for people.
    pub fn text(&self) -> String {
        let client = format!("Client version: {}\n", self.client);
        let Some(Server { nodes }) = &self.server else { return client };
        if nodes.is_empty() {
            return client + "Server version: no node runs the driver\n";
        }
        let one = |(version, count): (&String, &usize)| {
            format!("{version} ({count} node{})", if *count == 1 { "" } else { "s" })
        };
        let all: Vec<String> = nodes.iter().map(one).collect();
        client + &format!("Server version: {}\n", all.join(", "))
    }
}

/// Reads the versions of the node plugins from the NodeStorages.
///
/// # Errors
/// [`AskError::Api`], and [`AskError::Forbidden`] if the caller may not list NodeStorages.
pub async fn versions(client: &Client) -> Result<Versions, AskError> {
    let mut ask = ListReader::new(client);
    let api: Api<NodeStorage> = ask.all();
    let nodes = ask.list(api, ListParams::default(), STORAGES).await?;
    if ask.unseen.contains(&STORAGES) {
        return Err(may_not_list(STORAGES, "of the cluster"));
    }
    let mut counts = BTreeMap::new();
    for version in nodes.into_iter().filter_map(|node| Some(node.status?.version)) {
        let version = if version.is_empty() { "unknown".to_owned() } else { version };
        *counts.entry(version).or_default() += 1;
    }
    Ok(Versions { server: Some(Server { nodes: counts }), ..Versions::of_client() })
}
