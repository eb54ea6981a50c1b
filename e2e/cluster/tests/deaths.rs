//! Who dies while a test goes on, and whether all is the same everywhere afterwards. A seed determines who
//! dies and when; `PLIANT_SEED` and `PLIANT_DEATHS` ask for others.

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use pliant::api::NodeStorage;
use pliant::lvm::THIN_POOL;
use pliant::node::lv_tags::lv_name;
use pliant::volume::VolumeId;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::calls::{kubectl, must, persist, requests, said};
use crate::dice::Dice;
use crate::world::World;

/// Longer than the deaths go on, and than it takes afterwards until all is well.
pub const WHILE_ALL_DIES: Duration = Duration::from_secs(600);

/// The nodes of the cluster.
pub const NODES: [&str; 2] = ["node1", "node2"];

/// Who dies.
#[derive(Debug, Clone, Copy)]
pub enum Victim {
    /// All processes of a name on a node.
    Process(&'static str, &'static str),
    /// One of them.
    One(&'static str, &'static str, u64),
    /// A part of the control plane.
    Part(&'static str),
    /// A whole node, by its power.
    Node(&'static str),
}

/// A seed and a number of deaths: those that are asked for, or these.
pub fn asked(seed: u64, deaths: u64) -> (u64, u64) {
    let asked = |name: &str| env::var(name).ok().and_then(|words| words.parse().ok());
    let (seed, deaths) =
        (asked("PLIANT_SEED").unwrap_or(seed), asked("PLIANT_DEATHS").unwrap_or(deaths));
    eprintln!("seed {seed}");
    (seed, deaths)
}

/// Where those who kill are: a pod on each node.
#[derive(Debug, Clone)]
pub struct Grave {
    namespace: String,
}

impl Grave {
    /// Start a pod on each node that may kill any process there.
    pub async fn dug(world: &World) -> Grave {
        for node in NODES {
            let pod = json!({
                "metadata": {"name": format!("reaper-{node}")},
                "spec": {
                    "nodeName": node,
                    "hostPID": true,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "reaper",
                        "image": "pliant.test/busybox:1",
                        "command": ["sleep", "99999"],
                        "securityContext": {"privileged": true},
                    }],
                },
            });
            world.start(pod).await;
        }
        Grave { namespace: world.name.clone() }
    }

    /// Let so many die, some seconds apart, or until `over`; how many there were.
    pub async fn deaths(
        self,
        mut dice: Dice,
        count: u64,
        victim: fn(&mut Dice) -> Victim,
        over: CancellationToken,
    ) -> u64 {
        let mut died = 0;
        while died < count {
            let pause = Duration::from_millis(1000 + (dice.next() >> 52)); // Up to 5.1 s.
            if over.run_until_cancelled(sleep(pause)).await.is_none() {
                break;
            }
            let victim = victim(&mut dice);
            if self.take(victim).await {
                died += 1;
                eprintln!("{victim:?} died");
            }
        }
        died
    }

    /// Kill; whether somebody was there.
    async fn take(&self, victim: Victim) -> bool {
        match victim {
            Victim::Process(name, node) => {
                self.run(node, &format!("kill -KILL $(pidof {name})")).await
            }
            Victim::One(name, node, number) => {
                let script =
                    format!("set -- $(pidof {name}); shift $(({number} % $#)); kill -KILL $1");
                self.run(node, &script).await
            }
            Victim::Part(name) => {
                for verb in ["kill", "start"] {
                    must("e2e/cluster/control", &[name, verb]).await;
                }
                true
            }
            Victim::Node(name) => {
                for verb in ["kill", "start"] {
                    must("e2e/cluster/node", &[name.trim_start_matches("node"), verb]).await;
                }
                true
            }
        }
    }

    /// Run a script on a node, which sees all processes there; whether it succeeded: nobody of a name that is
    /// to be killed, or no way to him right now, is no death.
    pub async fn run(&self, node: &str, script: &str) -> bool {
        let reaper = format!("reaper-{node}");
        let args = ["exec", "-n", &self.namespace, &reaper, "--", "sh", "-c", script];
        kubectl(&args).await.is_some_and(|told| told.status.success())
    }
}

/// The volumes of the nodes are those of the PersistentVolumes, and no work is left: within a minute of
/// the last one.
pub async fn same_everywhere(client: &Client) {
    let end = Instant::now() + Duration::from_secs(90);
    loop {
        let (on_nodes, in_cluster) = (on_nodes(client).await, in_cluster(client).await);
        let left = requests(client).await;
        if on_nodes == in_cluster && left.is_empty() {
            return;
        }
        let left: Vec<_> = left.iter().map(|request| &request.spec).collect();
        assert!(
            Instant::now() < end,
            "the nodes have {on_nodes:#?}, the cluster {in_cluster:#?}, requests are {left:#?}"
        );
        sleep(Duration::from_secs(1)).await;
    }
}

async fn on_nodes(client: &Client) -> BTreeSet<String> {
    let nodes: Api<NodeStorage> = Api::all(client.clone());
    let all = ListParams::default();
    let nodes = persist(|| nodes.list(&all)).await.unwrap();
    let volumes =
        nodes.into_iter().filter_map(|node| node.status).flat_map(|status| status.volumes);
    volumes.map(|volume| volume.volume_handle).collect()
}

async fn in_cluster(client: &Client) -> BTreeSet<String> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let all = ListParams::default();
    let volumes = persist(|| volumes.list(&all)).await.unwrap();
    let handles = volumes.into_iter().filter_map(|volume| volume.spec?.csi);
    handles.filter(|csi| csi.driver == "lvm.csi.pliant.io").map(|csi| csi.volume_handle).collect()
}

/// Names of logical volumes of ours that LVM itself finds on the nodes, and that no PersistentVolume names.
pub async fn leaked(client: &Client) -> BTreeSet<String> {
    let named = in_cluster(client).await;
    let named = named.iter().filter_map(|handle| handle.parse::<VolumeId>().ok());
    let named: BTreeSet<String> = named.map(|id| lv_name(id.key())).collect();
    let node_plugins: Api<Pod> = Api::namespaced(client.clone(), "pliant-system");
    let ours = ListParams::default().labels("app.kubernetes.io/component=node");
    let node_plugins = persist(|| node_plugins.list(&ours)).await.unwrap();
    assert_eq!(node_plugins.items.len(), NODES.len(), "a node plugin a node");
    let mut leaked = BTreeSet::new();
    for node_plugin in node_plugins {
        let lvs = ["lvs", "--noheadings", "-o", "lv_name", "-S", "lv_name=~^pliant-"];
        let name = node_plugin.name_any();
        let exec = [&["exec", "-n", "pliant-system", &name, "--"][..], &lvs].concat();
        let told = kubectl(&exec).await.expect("the node plugin answers");
        assert!(told.status.success(), "{told:?}");
        let found = said(&told);
        // A thin pool stays when its last volume goes.
        let lvs = found.split_whitespace().filter(|lv| *lv != THIN_POOL).map(str::to_owned);
        leaked.extend(lvs.filter(|lv| !named.contains(lv)));
    }
    leaked
}
