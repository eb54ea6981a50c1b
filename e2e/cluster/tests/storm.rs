//! Everything dies at random while claims are made, grown and removed. A seed determines who dies and
//! when, and what the claims ask for; `PLIANT_SEED` and `PLIANT_DEATHS` ask for others. In the end all is as
//! it would be without a death: each claim has its size and its data, and nothing is left of those that
//! were removed.

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::ListParams;
use kube::{Api, Client};
use pliant::api::NodeStorage;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::calls::{SETTLED, kubectl, must, persist, requests};
use crate::claim::capacity;
use crate::dice::Dice;
use crate::world::{World, run};

/// Those of the driver and of its callers on a node, by the names of their processes.
const ON_NODES: [&str; 4] = ["pliant", "pliant", "csi-provisioner", "csi-resizer"];
const CLAIMS: usize = 8;
/// Longer than the deaths go on, and than it takes afterwards until all is well.
const WHILE_ALL_DIES: Duration = Duration::from_secs(600);

/// Who dies.
#[derive(Debug, Clone, Copy)]
enum Victim {
    /// A process on a node.
    Process(&'static str, &'static str),
    /// A part of the control plane.
    Part(&'static str),
    /// A whole node, by its power.
    Node(&'static str),
}

/// What becomes of one claim.
#[derive(Debug, Clone)]
struct Life {
    name: String,
    fs: &'static str,
    sizes: [&'static str; 3],
    removed: bool,
}

impl Life {
    fn of(number: usize, dice: &mut Dice) -> Life {
        let (fs, sizes) = dice.one_of(&[
            ("ext4", ["64Mi", "96Mi", "160Mi"]),
            ("xfs", ["320Mi", "352Mi", "448Mi"]),
            ("btrfs", ["256Mi", "320Mi", "384Mi"]),
            ("block", ["16Mi", "32Mi", "80Mi"]),
        ]);
        Life { name: format!("life-{number}"), fs, sizes, removed: dice.one_of(&[true, false]) }
    }

    /// Writes blocks with their checksums for ever, each run in files of its own, and syncs each. On a
    /// raw device the same bytes, as often as it starts.
    fn script(&self) -> &'static str {
        if self.fs == "block" {
            return "yes pliant | head -c 8388608 | dd of=/dev/data bs=64k conv=fsync; sleep 9999";
        }
        "r=$(cat /proc/sys/kernel/random/uuid); i=0; while true; do i=$((i+1)); \
         dd if=/dev/urandom of=/data/$r-$i bs=64k count=1 2>/dev/null; sync /data/$r-$i; \
         (cd /data && md5sum $r-$i) >>/data/$r.sums; sync /data/$r.sums; \
         [ $i -lt 100 ] || { rm -f /data/$r*; i=0; }; sleep 1; done"
    }

    /// How many of the blocks that were acknowledged are not as they were written; the last line may be
    /// under way.
    fn check(&self) -> &'static str {
        if self.fs == "block" {
            return "[ $(head -c 8388608 /dev/data | md5sum | cut -c-32) = \
                    $(yes pliant | head -c 8388608 | md5sum | cut -c-32) ] && echo 0 || echo 1";
        }
        "cd /data && for s in *.sums; do head -n -1 $s; done | md5sum -c - 2>/dev/null | grep -vc OK$ || true"
    }

    async fn live(self, world: World) {
        let (class, mode) = match self.fs {
            "block" => ("storm-ext4".to_owned(), "Block"),
            fs => (format!("storm-{fs}"), "Filesystem"),
        };
        let [first, rest @ ..] = self.sizes;
        world.claim(&self.name, &class, first, mode).await;
        world.pod(&self.name, &self.name, self.script(), json!({})).await;
        for size in rest {
            world.resize(&self.name, size).await.unwrap();
            world
                .until::<PersistentVolumeClaim>(&self.name, "has its new size", |claim| {
                    capacity(claim) == size
                })
                .await;
            sleep(SETTLED).await;
        }
        if self.removed {
            world.remove_pod(&self.name).await;
            world.remove_claim(&self.name).await;
        }
    }
}

/// Who dies next; the power of a node rarely, for it takes a node longest to come back.
fn victim(dice: &mut Dice) -> Victim {
    let node = dice.one_of(&["node1", "node2"]);
    match dice.next() >> 60 {
        0..=8 => Victim::Process(dice.one_of(&ON_NODES), node),
        9..=10 => Victim::Process("kubelet", node),
        11..=12 => Victim::Part("kube-apiserver"),
        13..=14 => Victim::Part("kube-controller-manager"),
        _ => Victim::Node(node),
    }
}

impl Victim {
    async fn dies(self) {
        match self {
            // Nobody of this name, or no way to him right now, is no death.
            Victim::Process(name, node) => {
                let script = format!("kill -KILL $(pidof {name})");
                let reaper = format!("reaper-{node}");
                let args = ["exec", "-n", "storm", &reaper, "--", "sh", "-c", &script];
                let _ = kubectl(&args).await;
            }
            Victim::Part(name) => {
                for verb in ["kill", "start"] {
                    must("e2e/cluster/control", &[name, verb]).await;
                }
            }
            Victim::Node(name) => {
                for verb in ["kill", "start"] {
                    must("e2e/cluster/node", &[name.trim_start_matches("node"), verb]).await;
                }
            }
        }
    }
}

/// Let so many die, some seconds apart, or until nobody is left to see it.
async fn deaths(mut dice: Dice, count: u64, over: CancellationToken) -> u64 {
    for number in 0..count {
        let pause = Duration::from_millis(1000 + (dice.next() >> 52)); // Up to 5.1 s.
        if over.run_until_cancelled(sleep(pause)).await.is_none() {
            return number;
        }
        let victim = victim(&mut dice);
        eprintln!("{victim:?} dies");
        victim.dies().await;
    }
    count
}

#[test]
fn what_dies_at_random_loses_and_leaks_nothing() {
    let asked = |name: &str| env::var(name).ok().and_then(|words| words.parse().ok());
    let seed: u64 = asked("PLIANT_SEED").unwrap_or(5);
    let count: u64 = asked("PLIANT_DEATHS").unwrap_or(30);
    eprintln!("seed {seed}");
    run("storm", |world| async move {
        let world = world.with_patience(WHILE_ALL_DIES);
        for fs in ["ext4", "xfs", "btrfs"] {
            world.class_named(&format!("storm-{fs}"), json!({"pool": "fast", "fs-type": fs})).await;
        }
        for node in ["node1", "node2"] {
            reaper(&world, node).await;
        }
        let mut dice = Dice::of(seed);
        let lives: Vec<Life> = (0..CLAIMS).map(|number| Life::of(number, &mut dice)).collect();
        let over = CancellationToken::new();
        let killer = tokio::spawn(deaths(dice, count, over.clone()));
        let mut living = tokio::task::JoinSet::new();
        for life in lives.clone() {
            living.spawn(life.live(world.clone()));
        }
        while let Some(lived) = living.join_next().await {
            lived.expect("a claim gets what it asks for");
        }
        over.cancel();
        eprintln!("{} deaths", killer.await.unwrap());
        for life in lives.iter().filter(|life| !life.removed) {
            let [.., size] = life.sizes;
            assert_eq!(capacity(&world.get_claim(&life.name).await), size, "{life:?}");
            assert_eq!(world.exec_when_back(&life.name, life.check()).await, "0", "{life:?}");
        }
        same_everywhere(&world.client).await;
    });
}

/// A pod that may kill any process of its node.
async fn reaper(world: &World, node: &str) {
    let pod = json!({
        "metadata": {"name": format!("reaper-{node}")},
        "spec": {
            "nodeName": node,
            "hostPID": true,
            "terminationGracePeriodSeconds": 0,
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

/// The volumes of the nodes are those of the PersistentVolumes, and no work is left: within a minute of
/// the last one.
async fn same_everywhere(client: &Client) {
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
    volumes.map(|volume| volume.id).collect()
}

async fn in_cluster(client: &Client) -> BTreeSet<String> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let all = ListParams::default();
    let volumes = persist(|| volumes.list(&all)).await.unwrap();
    let handles = volumes.into_iter().filter_map(|volume| volume.spec?.csi);
    handles.filter(|csi| csi.driver == "lvm.csi.pliant.io").map(|csi| csi.volume_handle).collect()
}
