//! Capacity and health of the cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;

use crate::api::{FenceState, Health, LayoutRoom, NodeStorage, PoolOnNode, PvcAutoscaler};
use crate::bytes::Bytes;
use crate::cluster::{PvSummary, Unreadable, list};
use crate::commands::columns::{TableOptions, columns};
use crate::commands::managed::retained;
use crate::commands::read::{ListReader, believed};
use crate::commands::thin_pools::thin_pools;
use crate::commands::{
    AskError, NODES, PVC_AUTOSCALERS, STORAGES, VOLUMES, asked, cannot_decode, may_not_read, plan,
    resource_name,
};
use crate::doctor::harmless;

/// Health of the pools of a deleted node.
const GONE: &str = "the node is gone: see `kubectl get nodes`";

/// Number of characters in the bar of a full pool.
const BAR: u64 = 16;

/// Status of a cluster: its NodeStorages and PvcAutoscalers.
#[derive(Debug, Clone)]
pub struct Status {
    /// NodeStorages of all nodes, by name.
    pub nodes: Vec<NodeStorage>,
    /// Names of the nodes of the cluster; `None` if they may not be read.
    pub there: Option<Vec<String>>,
    /// All PvcAutoscalers that may be read, by namespace and name.
    pub autoscalers: Vec<PvcAutoscaler>,
    /// Descriptions of volumes that swaps retain, by the ID of the volume.
    pub retained: BTreeMap<String, String>,
    /// Kinds that the caller may not read.
    pub unseen: Vec<&'static str>,
    /// Objects that this version cannot decode.
    pub unreadable: Vec<Unreadable>,
    /// True if a NodeStorage is among those.
    pub lacks_nodes: bool,
}

/// An object of the status, as the API server returns it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum StatusObject<'a> {
    /// Storage of a node.
    Node(&'a NodeStorage),
    /// A PvcAutoscaler.
    Claims(&'a PvcAutoscaler),
}

impl Status {
    /// All objects for programs, the nodes first.
    pub fn records(&self) -> Vec<StatusObject<'_>> {
        let claims = self.autoscalers.iter().map(StatusObject::Claims);
        self.nodes.iter().map(StatusObject::Node).chain(claims).collect()
    }

    /// Lists the objects that the tables omit.
    fn undecoded(&self) -> String {
        let text = cannot_decode(&self.unreadable);
        if text.is_empty() { text } else { format!("\n{text}") }
    }

    /// Names of all objects, as `kubectl get --output name` prints them.
    pub fn resource_names(&self) -> String {
        let nodes = self.nodes.iter().map(|one| resource_name::<NodeStorage>(&one.name_any()));
        let claims =
            self.autoscalers.iter().map(|one| resource_name::<PvcAutoscaler>(&one.name_any()));
        nodes.chain(claims).collect()
    }

    /// Tables of all objects, for people.
    pub fn text(&self, options: TableOptions) -> String {
        let nodes = if self.unseen.contains(&STORAGES) || self.nodes.is_empty() && self.lacks_nodes
        {
            String::new()
        } else {
            table_of(&self.nodes, self.there.as_deref(), &self.retained, options)
        };
        let unseen: Vec<String> = self.unseen.iter().map(|what| (*what).to_owned()).collect();
        let claims = plan::claims_of(&self.autoscalers, options);
        nodes + &claims + &may_not_read(&unseen) + &self.undecoded()
    }
}

/// Reads the status of a cluster, with the PvcAutoscalers of one namespace or all.
///
/// # Errors
/// [`AskError::Api`], and [`AskError::Forbidden`] if the caller may read none of the kinds.
pub async fn status(client: &Client, namespace: Option<&str>) -> Result<Status, AskError> {
    let api: Api<NodeStorage> = Api::all(client.clone());
    let listed = list(&api, &ListParams::default()).await.map_err(asked(STORAGES));
    let mut ask = ListReader::new(client);
    let ours = namespace.map_or_else(|| ask.all(), |name| Api::namespaced(client.clone(), name));
    let autoscalers = ask.list(ours, ListParams::default(), PVC_AUTOSCALERS).await?;
    let nodes = match listed {
        Ok(list) => {
            list.unreadable.into_iter().for_each(|one| ask.note_undecoded(one, STORAGES));
            believed(list.items)
        }
        // Whoever may list only one of the two kinds sees that one.
        Err(AskError::Forbidden { .. }) if ask.unseen.is_empty() => {
            ask.unseen.push(STORAGES);
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let there: Vec<Node> = ask.list(ask.all(), ListParams::default(), NODES).await?;
    let sees_nodes = !ask.unseen.contains(&NODES) && !ask.partial.contains(&NODES);
    let there = sees_nodes.then(|| names(&there));
    let volumes: Vec<PvSummary> = if nodes.iter().any(has_superseded) {
        ask.list(ask.all(), ListParams::default(), VOLUMES).await?
    } else {
        Vec::new()
    };
    Ok(Status {
        retained: retained(&autoscalers, &volumes),
        nodes: in_order(nodes),
        there,
        autoscalers: in_order(autoscalers),
        unseen: ask.unseen,
        unreadable: ask.unreadable,
        lacks_nodes: ask.partial.contains(&STORAGES),
    })
}

/// By namespace and name, without the bookkeeping of the API server.
fn in_order<K: Resource>(mut all: Vec<K>) -> Vec<K> {
    all.sort_by_key(|one| (one.namespace(), one.name_any()));
    for one in &mut all {
        one.meta_mut().managed_fields = None;
    }
    all
}

/// The names of nodes.
pub fn names(nodes: &[Node]) -> Vec<String> {
    nodes.iter().filter_map(|node| node.metadata.name.clone()).collect()
}

/// Prints a table with a line for each pool of each node. A node that is not in `there` is marked as gone;
/// `None` marks none.
pub fn table(nodes: &[NodeStorage], there: Option<&[String]>) -> String {
    table_of(nodes, there, &BTreeMap::new(), TableOptions::default())
}

/// Prints the table, with descriptions of volumes that swaps retain.
fn table_of(
    nodes: &[NodeStorage],
    there: Option<&[String]>,
    retained: &BTreeMap<String, String>,
    TableOptions { wide, headers }: TableOptions,
) -> String {
    let head = [
        "NODE", "POOL", "SIZE", "USED", "FREE", "LARGEST", "GROUPS", "VOLUMES", "VERSION", "HEALTH",
    ];
    let head = head.map(str::to_owned);
    let mut rows = vec![head];
    for node in nodes {
        let name = node.metadata.name.clone().unwrap_or_default();
        let is_gone = there.is_some_and(|there| !there.contains(&name));
        let told = node.status.as_ref().map(|status| status.version.clone());
        let version = told.filter(|version| !version.is_empty()).unwrap_or_else(dash);
        let groups = |pool: &PoolOnNode| groups_of(node, &pool.name);
        let pools = node.status.iter().flat_map(|status| &status.pools);
        let pools = pools.map(|pool| row(&name, pool, groups(pool), &version, is_gone));
        let before = rows.len();
        rows.extend(pools);
        if rows.len() == before {
            let none =
                if is_gone { GONE } else { "no pool: see `kubectl get storagepools`" }.to_owned();
            let (none_of_it, none_there) = (dash(), "0".to_owned());
            let gaps = std::array::from_fn::<_, 6, _>(|_| none_of_it.clone());
            let [pool, size, used, free, largest, groups] = gaps;
            rows.push([name, pool, size, used, free, largest, groups, none_there, version, none]);
        }
    }
    if rows.len() == 1 {
        return "No node has reported its pools. Is the driver running? `kubectl get pods \
                --all-namespaces --selector app.kubernetes.io/name=pliant`\n"
            .to_owned();
    }
    let to_the_right = [false, false, true, false, true, false, false, true, false, false];
    let table = if wide {
        columns(&rows, to_the_right, headers)
    } else {
        let usual = |row: &[String; 10]| without_wide(row.clone());
        columns(&rows.iter().map(usual).collect::<Vec<_>>(), without_wide(to_the_right), headers)
    };
    table + &thin_pools(nodes, headers) + &below(nodes, retained)
}

fn dash() -> String {
    "–".to_owned()
}

/// Prints a line for each long operation, and for each fenced volume.
fn below(nodes: &[NodeStorage], retained: &BTreeMap<String, String>) -> String {
    let fenced = nodes.iter().flat_map(|node| fenced_on(node, retained));
    let lines = nodes.iter().flat_map(work_on).chain(fenced);
    let lines: Vec<String> = lines.map(|line| harmless(&line)).collect();
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("\n")) }
}

fn work_on(node: &NodeStorage) -> impl Iterator<Item = String> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    node.status.iter().flat_map(|status| &status.operations).map(move |one| {
        format!("{name}: {} volume {}: {}", one.r#type.words(), one.volume_handle, one.progress)
    })
}

/// True if a swap has replaced a volume of the node.
fn has_superseded(node: &NodeStorage) -> bool {
    let mut volumes = node.status.iter().flat_map(|status| &status.volumes);
    volumes.any(|volume| volume.fence.is_some_and(|fence| fence.state == FenceState::Superseded))
}

fn fenced_on<'a>(
    node: &'a NodeStorage,
    retained: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = String> + 'a {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    node.status.iter().flat_map(|status| &status.volumes).filter_map(move |volume| {
        let fence = volume.fence.filter(|fence| fence.state != FenceState::Active)?;
        // What is retained on purpose is no trouble.
        let words =
            retained.get(&volume.volume_handle).filter(|_| fence.state == FenceState::Superseded);
        Some(match words {
            Some(words) => format!("{name}: {words}"),
            None => format!(
                "{name}: volume {} ({}) is {} since generation {}",
                volume.volume_handle,
                volume.name,
                fence.state.words(),
                fence.generation
            ),
        })
    })
}

/// The columns that are always shown.
fn without_wide<T>(row: [T; 10]) -> [T; 8] {
    let [node, pool, size, used, free, _, _, volumes, version, health] = row;
    [node, pool, size, used, free, volumes, version, health]
}

/// The largest volume that can be created now, by layout.
fn largest(pool: &PoolOnNode) -> String {
    let one = |room: &LayoutRoom| format!("{} {}", room.size.0, room.layout);
    let all: Vec<String> = pool.maximum_volume_size.iter().map(one).collect();
    if all.is_empty() { dash() } else { all.join(", ") }
}

/// The volume groups of a pool.
fn groups_of(node: &NodeStorage, pool: &str) -> String {
    let groups = node.status.iter().flat_map(|status| &status.volume_groups);
    let names: Vec<&str> =
        groups.filter(|group| group.pool == pool).map(|group| group.name.as_str()).collect();
    if names.is_empty() { dash() } else { names.join(", ") }
}

fn row(
    node: &str,
    pool: &PoolOnNode,
    groups: String,
    version: &str,
    is_gone: bool,
) -> [String; 10] {
    let (size, free) = (pool.capacity.0, pool.available.0);
    let health = match (&pool.health, pool.problem()) {
        _ if is_gone => GONE.to_owned(),
        (Health::Healthy, _) => "ok".to_owned(),
        (_, Some(message)) => message.to_owned(),
        (health, None) => format!("{health:?}").to_lowercase(),
    };
    let used = if size == Bytes::ZERO { "–".to_owned() } else { bar(size, free) };
    [
        node.to_owned(),
        pool.name.clone(),
        size.to_string(),
        used,
        free.to_string(),
        largest(pool),
        groups,
        pool.volume_count.to_string(),
        version.to_owned(),
        health,
    ]
}

fn bar(size: Bytes, free: Bytes) -> String {
    let used = size.saturating_sub(free).get();
    let part = |of: u64| u64::try_from(u128::from(used) * u128::from(of) / u128::from(size.get()));
    let (full, percent) = (part(BAR).unwrap_or(BAR), part(100).unwrap_or(100));
    let signs: String = (0..BAR).map(|at| if at < full { '█' } else { '░' }).collect();
    format!("{signs} {percent:3} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        NodeStorageSpec, NodeStorageStatus, OperationStatus, OperationType, Quantity,
        ready_condition,
    };

    fn node(name: &str, pools: &[(&str, u64, u64, Health, Option<&str>)]) -> NodeStorage {
        let mut node = NodeStorage::new(name, NodeStorageSpec::default());
        let pool =
            |(name, size, free, health, message): &(&str, u64, u64, Health, Option<&str>)| {
                PoolOnNode {
                    name: (*name).to_owned(),
                    configured: true,
                    default: false,
                    capacity: Quantity(Bytes::gib(*size)),
                    available: Quantity(Bytes::gib(*free)),
                    maximum_volume_size: Vec::new(),
                    extent_size: Quantity(Bytes::mib(4)),
                    volume_count: 3,
                    health: *health,
                    conditions: message
                        .map(|words| ready_condition(*health, "PoolIncomplete", words))
                        .into_iter()
                        .collect(),
                    planned_actions: Vec::new(),
                    rejected_disks: Vec::new(),
                }
            };
        let pools = pools.iter().map(pool).collect();
        let version = "0.1.0".to_owned();
        node.status = Some(NodeStorageStatus { version, pools, ..NodeStorageStatus::default() });
        node
    }

    #[test]
    fn each_pool_of_each_node_has_a_line() {
        let away = Some("volume group vg0 is not there; see `vgs`");
        let nodes = [
            node("alpha", &[("fast", 1800, 684, Health::Healthy, None)]),
            node(
                "beta",
                &[("big", 0, 0, Health::Unavailable, away), ("fast", 4, 0, Health::Healthy, None)],
            ),
            node("gamma", &[]),
        ];
        insta::assert_snapshot!(table(&nodes, None), @r"
        NODE   POOL      SIZE  USED                       FREE  VOLUMES  VERSION  HEALTH
        alpha  fast  1.75 TiB  █████████░░░░░░░  62 %  684 GiB        3  0.1.0    ok
        beta   big        0 B  –                           0 B        3  0.1.0    volume group vg0 is not there; see `vgs`
        beta   fast     4 GiB  ████████████████ 100 %      0 B        3  0.1.0    ok
        gamma  –            –  –                             –        0  0.1.0    no pool: see `kubectl get storagepools`
        ");
    }

    #[test]
    fn volumes_that_pods_are_kept_from_are_named() {
        let volume = |id: &str, state: &str| {
            serde_json::json!({"volumeHandle": id, "name": "pvc-1", "pool": "fast", "size": "1Gi",
                "requestedSize": "1Gi", "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready",
                "fence": {"state": state, "generation": 3}})
        };
        let mut alpha = node("alpha", &[]);
        alpha.status.as_mut().unwrap().volumes = ["Superseded", "Active", "Incomplete"]
            .into_iter()
            .zip(["a-b", "a-c", "a-d"])
            .map(|(state, id)| serde_json::from_value(volume(id, state)).unwrap())
            .collect();
        let text = table(&[alpha], None);
        assert!(
            text.ends_with(
                "\n\nalpha: volume a-b (pvc-1) is superseded since generation 3\nalpha: volume a-d \
                 (pvc-1) is incomplete since generation 3\n"
            ),
            "{text}"
        );
    }

    /// A node's token writes the whole record of that node.
    #[test]
    fn what_a_node_writes_is_no_line_of_another_one_and_steers_no_terminal() {
        let forged = "gone\nbeta  fast  4 GiB  ok\x1b[2J\x1b[1;1H\u{9b}2J\u{202e}";
        let mut alpha = node("alpha", &[("fa\tst", 4, 3, Health::Degraded, Some(forged))]);
        let status = alpha.status.as_mut().unwrap();
        status.version = "0.1.0\r".to_owned();
        status.operations = vec![OperationStatus {
            volume_handle: forged.to_owned(),
            r#type: OperationType::Wipe,
            progress: forged.to_owned(),
        }];
        let fenced = serde_json::json!({"volumeHandle": forged, "name": forged, "pool": "fast", "size": "1Gi",
            "requestedSize": "1Gi", "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready",
            "fence": {"state": "Superseded", "generation": 3}});
        status.volumes = vec![serde_json::from_value(fenced).unwrap()];
        let text = table(&[alpha], None);
        assert_eq!(text.lines().count(), 5, "a head, a pool, a gap, the work, a volume: {text:?}");
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(steers), "{text:?}");
    }

    #[test]
    fn long_work_is_told_with_how_far_it_is_and_an_older_node_plugin_by_its_version() {
        let mut alpha = node("alpha", &[("fast", 4, 3, Health::Healthy, None)]);
        let status = alpha.status.as_mut().unwrap();
        status.operations = vec![OperationStatus {
            volume_handle: "a-b".to_owned(),
            r#type: OperationType::Wipe,
            progress: "62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left".to_owned(),
        }];
        let mut beta = node("beta", &[("fast", 4, 3, Health::Healthy, None)]);
        beta.status.as_mut().unwrap().version = "0.0.9".to_owned();
        let silent = NodeStorage::new("gamma", NodeStorageSpec::default());
        insta::assert_snapshot!(table(&[alpha, beta, silent], None), @r"
        NODE   POOL   SIZE  USED                     FREE  VOLUMES  VERSION  HEALTH
        alpha  fast  4 GiB  ████░░░░░░░░░░░░  25 %  3 GiB        3  0.1.0    ok
        beta   fast  4 GiB  ████░░░░░░░░░░░░  25 %  3 GiB        3  0.0.9    ok
        gamma  –         –  –                           –        0  –        no pool: see `kubectl get storagepools`

        alpha: wiping volume a-b: 62 % (124 GiB of 200 GiB), 180 MiB/s, 7 min left
        ");
    }

    #[test]
    fn without_nodes_it_says_where_to_look() {
        assert!(table(&[], None).contains("kubectl get pods"));
    }

    #[test]
    fn a_node_that_is_gone_is_told_as_such() {
        let nodes = [
            node("alpha", &[("fast", 4, 3, Health::Healthy, None)]),
            node("beta", &[("fast", 4, 3, Health::Healthy, None)]),
            node("gamma", &[]),
        ];
        insta::assert_snapshot!(table(&nodes, Some(&["alpha".to_owned()])), @r"
        NODE   POOL   SIZE  USED                     FREE  VOLUMES  VERSION  HEALTH
        alpha  fast  4 GiB  ████░░░░░░░░░░░░  25 %  3 GiB        3  0.1.0    ok
        beta   fast  4 GiB  ████░░░░░░░░░░░░  25 %  3 GiB        3  0.1.0    the node is gone: see `kubectl get nodes`
        gamma  –         –  –                           –        0  0.1.0    the node is gone: see `kubectl get nodes`
        ");
    }
}
