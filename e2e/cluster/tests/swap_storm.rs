//! Claims are swapped again and again, under pods that write records, while everything dies at random: no
//! record is lost, each pod has in the end what the last edit says, and nothing is left of what was between.
//! `PLIANT_DEATHS` asks for more deaths than fit into every run.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::claim::capacity;
use crate::deaths::{Grave, NODES, Victim, WHILE_ALL_DIES, asked, same_everywhere};
use crate::dice::Dice;
use crate::figures::figures;
use crate::world::run;

/// Who dies next: mostly one of our own processes, the operator, a node plugin, a controller or a copy.
fn victim(dice: &mut Dice) -> Victim {
    let node = dice.one_of(&NODES);
    match dice.next() >> 60 {
        0..=8 => Victim::One("pliant", node, dice.next() >> 48),
        9..=10 => Victim::Process("kubelet", node),
        11 => Victim::Process("csi-provisioner", node),
        12 => Victim::Part("kube-apiserver"),
        13..=14 => Victim::Part("kube-controller-manager"),
        _ => Victim::Node(node),
    }
}

#[test]
fn swaps_lose_no_record_whoever_dies() {
    let (seed, count) = asked(3, 4);
    run("swap_storm", |world| async move {
        let world = world.with_patience(WHILE_ALL_DIES);
        let [ext4, xfs, btrfs] = ["swap-storm-ext4", "swap-storm-xfs", "swap-storm-btrfs"];
        for (class, fs) in [(ext4, "ext4"), (xfs, "xfs"), (btrfs, "btrfs")] {
            world
                .class_named(class, json!({"pool": "fast", "csi.storage.k8s.io/fstype": fs}))
                .await;
        }
        let grave = Grave::dug(&world).await;
        let kept = json!({"retention": "1s"});
        world.workload(2, json!([])).await;
        world.autoscaler(ext4, "200Mi", kept.clone()).await;
        world.settled("2/2").await;

        let over = CancellationToken::new();
        let killer = tokio::spawn(grave.deaths(Dice::of(seed), count, victim, over.clone()));
        let mut edits = 0;
        // Of another class by turns, smaller where they lie between, and the last one after the last death.
        let wishes = [(xfs, "320Mi"), (btrfs, "360Mi"), (btrfs, "300Mi"), (ext4, "160Mi")];
        for (class, size) in wishes.into_iter().cycle() {
            let is_last = killer.is_finished();
            world.autoscaler(class, size, kept.clone()).await;
            world.settled("2/2").await;
            edits += 1;
            for ordinal in [0, 1] {
                assert_eq!(capacity(&world.active(ordinal).await), size);
            }
            if is_last {
                break;
            }
        }
        over.cancel();
        let deaths = killer.await.unwrap();
        world.until_alone(2).await;
        same_everywhere(&world.client).await;
        // A pod that misses a record does not get ready, so that nothing would have settled.
        let records = world.records("db-0").await + world.records("db-1").await;
        eprintln!("{edits} edits, {deaths} deaths, {records} records");
        let deaths = usize::try_from(deaths).unwrap();
        let lost = world.bytes_lost("db-0").await + world.bytes_lost("db-1").await;
        figures("swap_storm.txt", &[("swap_kills", deaths), ("swap_bytes_lost", lost)]);
        assert_eq!(lost, 0);
        world.end_workload().await;
    });
}
