//! Claims with `layout: thin`, in a thin pool that is created with the first of them.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use pliant::api::NodeStorage;
use serde_json::json;

use crate::claim::capacity;
use crate::expansion::SIZE;
use crate::snapshots::of_snapshot;
use crate::world::{World, run};

const SLEEP: &str = "sleep 9999";

impl World {
    /// Make a claim of 64 MiB in a thin pool, and its pod; the class and the node.
    pub async fn thin_claim(&self, name: &str) -> (String, String) {
        let class = format!("{}-thin", self.name);
        let parameters =
            json!({"pool": "fast", "layout": "thin", "csi.storage.k8s.io/fstype": "ext4"});
        self.class_named(&class, parameters).await;
        self.claim(name, &class, "64Mi", "Filesystem").await;
        let node = self.pod(name, name, SLEEP, json!({})).await;
        (class, node)
    }
}

/// The pool `fast` allows thin pools of 512 MiB, which other tests use too.
#[test]
fn a_thin_claim_grows_and_is_restored_in_its_thin_pool() {
    run("a_thin_claim_grows_and_is_restored_in_its_thin_pool", |world| async move {
        let (class, node) = world.thin_claim("data").await;
        world.exec("data", "echo early >/data/first; sync /data/first").await;
        world.resize("data", "96Mi").await.unwrap();
        let is_larger = |claim: &PersistentVolumeClaim| capacity(claim) == "96Mi";
        world.until("data", "has its new size", is_larger).await;
        world.snapshot("early", "data").await;
        world.exec("data", "echo late >/data/first; sync /data/first").await;

        let there = json!({"nodeSelector": {"kubernetes.io/hostname": node}});
        world.claim_of("restored", &class, "96Mi", of_snapshot("early")).await;
        assert_eq!(world.pod("restored", "restored", SLEEP, there).await, node);
        for (name, content) in [("data", "late"), ("restored", "early")] {
            assert_eq!(world.exec(name, "cat /data/first").await, content);
            let size: u64 = world.exec(name, SIZE).await.parse().unwrap();
            assert!(size > 72 * 1024, "{name} has {size} KiB of 96 MiB");
        }
        // A volume, its snapshot, and what was restored from that.
        let has_three = |node: &NodeStorage| {
            let groups = node.status.iter().flat_map(|status| &status.volume_groups);
            let pools = groups.filter_map(|group| group.thin_pool.as_ref());
            pools.map(|pool| pool.provisioned.0.get()).sum::<u64>() >= 3 * (96 << 20)
        };
        let nodes = Api::<NodeStorage>::all(world.client.clone());
        world.until_named(&nodes, &node, "has three in its thin pool", has_three).await;

        for name in ["data", "restored"] {
            world.remove_pod(name).await;
            world.remove_claim(name).await;
        }
        world.delete_snapshot("early").await;
    });
}
