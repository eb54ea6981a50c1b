//! Everything dies at random while claims are made, grown and removed. A seed determines who dies and
//! when, and what the claims ask for; `PLIANT_SEED` and `PLIANT_DEATHS` ask for others. In the end all is as
//! it would be without a death: each claim has its size and its data, and nothing is left of those that
//! were removed.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::calls::SETTLED;
use crate::claim::capacity;
use crate::deaths::{Grave, NODES, Victim, WHILE_ALL_DIES, asked, leaked, same_everywhere};
use crate::dice::Dice;
use crate::figures::figures;
use crate::world::{World, run};

/// Those of the driver and of its callers on a node, by the names of their processes.
const ON_NODES: [&str; 4] = ["pliant", "pliant", "csi-provisioner", "csi-resizer"];
const CLAIMS: usize = 8;

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
    let node = dice.one_of(&NODES);
    match dice.next() >> 60 {
        0..=8 => Victim::Process(dice.one_of(&ON_NODES), node),
        9..=10 => Victim::Process("kubelet", node),
        11..=12 => Victim::Part("kube-apiserver"),
        13..=14 => Victim::Part("kube-controller-manager"),
        _ => Victim::Node(node),
    }
}

#[test]
fn what_dies_at_random_loses_and_leaks_nothing() {
    let (seed, count) = asked(5, 9);
    run("storm", |world| async move {
        let world = world.with_patience(WHILE_ALL_DIES);
        for fs in ["ext4", "xfs", "btrfs"] {
            world
                .class_named(
                    &format!("storm-{fs}"),
                    json!({"pool": "fast", "csi.storage.k8s.io/fstype": fs}),
                )
                .await;
        }
        let grave = Grave::dug(&world).await;
        let mut dice = Dice::of(seed);
        let lives: Vec<Life> = (0..CLAIMS).map(|number| Life::of(number, &mut dice)).collect();
        let over = CancellationToken::new();
        let killer = tokio::spawn(grave.deaths(dice, count, victim, over.clone()));
        let mut living = tokio::task::JoinSet::new();
        for life in lives.clone() {
            living.spawn(life.live(world.clone()));
        }
        while let Some(lived) = living.join_next().await {
            lived.expect("a claim gets what it asks for");
        }
        over.cancel();
        let deaths = killer.await.unwrap();
        eprintln!("{deaths} deaths");
        assert_ne!(deaths, 0, "all lived too short");
        for life in lives.iter().filter(|life| !life.removed) {
            let [.., size] = life.sizes;
            assert_eq!(capacity(&world.get_claim(&life.name).await), size, "{life:?}");
            assert_eq!(world.exec_when_back(&life.name, life.check()).await, "0", "{life:?}");
        }
        same_everywhere(&world.client).await;
        let leaked = leaked(&world.client).await;
        figures("storm.txt", &[("leaked_volumes", leaked.len())]);
        assert!(leaked.is_empty(), "nobody names {leaked:?}, which are on the disks");
    });
}
