//! The scheduler knows how full a node is before a volume is refused there.

use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use pliant::volume::{Reason, Volumes};
use serde_json::{Value, json};

use crate::world::{World, refused, want};

pub fn object(name: &str, node: &str, class: &str, room: &str) -> CSIStorageCapacity {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "default",
            "labels": {"csi.storage.k8s.io/drivername": "lvm.csi.pliant.io"},
        },
        "storageClassName": class,
        "nodeTopology": {"matchLabels": {"topology.lvm.csi.pliant.io/node": node}},
        "capacity": room, "maximumVolumeSize": room,
    }))
    .expect("an object")
}

pub fn class(name: &str, parameters: &Value) -> StorageClass {
    serde_json::from_value(json!({
        "metadata": {"name": name}, "provisioner": "lvm.csi.pliant.io", "parameters": parameters,
    }))
    .expect("a class")
}

pub fn told(world: &World, name: &str) -> (String, String) {
    let object: CSIStorageCapacity =
        world.api.get(&format!("default/{name}")).expect("it is there");
    let text = |quantity: Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
        quantity.unwrap_or_default().0
    };
    (text(object.capacity), text(object.maximum_volume_size))
}

#[tokio::test(start_paused = true)]
async fn a_full_node_is_told_before_a_volume_is_refused() {
    let (world, cluster, _machines) = World::with_two_nodes().await;
    world.api.put(&class("fast", &json!({"csi.storage.k8s.io/fstype": "xfs", "pool": "fast"})));
    world.api.put(&class("slow", &json!({"pool": "slow"})));
    world.api.put(&class("strange", &json!({"colour": "blue"})));
    for (name, node, class) in [
        ("a-fast", "alpha", "fast"),
        ("a-slow", "alpha", "slow"),
        ("a-strange", "alpha", "strange"),
        ("a-gone", "alpha", "gone"),
        ("b-fast", "beta", "fast"),
    ] {
        world.api.put(&object(name, node, class, "800Mi"));
    }
    cluster.ensure(&want("pvc-1", 600, &["alpha"])).await.unwrap();
    assert_eq!(told(&world, "a-fast").0, "800Mi", "the provisioner says it when it is its time");

    refused(cluster.ensure(&want("pvc-2", 600, &["alpha"])).await, Reason::InsufficientCapacity);

    let too_little_for_xfs = ("280Mi".to_owned(), "0".to_owned());
    assert_eq!(told(&world, "a-fast"), too_little_for_xfs);
    assert_eq!(told(&world, "a-slow"), ("0".to_owned(), "0".to_owned()));
    for other in ["a-strange", "a-gone", "b-fast"] {
        assert_eq!(told(&world, other).0, "800Mi", "{other}");
    }
    let before = world.api.writes().len();
    refused(cluster.ensure(&want("pvc-2", 600, &["alpha"])).await, Reason::InsufficientCapacity);
    let more = world.api.writes().split_off(before);
    assert!(!more.iter().any(|line| line.contains("csistoragecapacities")), "{more:#?}");
}
