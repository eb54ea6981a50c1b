//! A swap that would be refused midway is not begun with, and says what it lacks.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use pliant::api::{AutoscalerPhase, NodeStorage, PvcAutoscaler, PvcAutoscalerStatus};
use pliant::volume::{DRIVER, NodeKey, TOPOLOGY};
use serde_json::{Value, json};

use crate::block_on;
use crate::play::{End, SELECTED_NODE, object};
use crate::world::{Operator, SHOP, World};

/// One pod with 4 GiB of class hdd, and the sentence in its status once 2 GiB are wanted.
async fn one_pod() -> (World, Operator) {
    let (world, operator) = World::with_an_operator();
    world.set(1, &[]);
    world.want("4Gi", "hdd", &json!({}));
    world.settled("1/1").await;
    world.write();
    (world, operator)
}

fn quota(world: &World, hard: &str, used: &str) {
    let of = |storage: &str| json!({"requests.storage": storage});
    world.api.put(&object::<ResourceQuota>(json!({
        "metadata": {"name": "storage", "namespace": SHOP},
        "status": {"hard": of(hard), "used": of(used)},
    })));
}

fn budget(world: &World, allowed: i32) {
    let mut pod: Pod = world.api.get(&format!("{SHOP}/nginx-0")).unwrap();
    pod.metadata.labels.get_or_insert_default().insert("app".to_owned(), "nginx".to_owned());
    world.api.put(&pod);
    world.api.put(&object::<PodDisruptionBudget>(json!({
        "metadata": {"name": "web", "namespace": SHOP},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "nginx"}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
                   "expectedPods": 1, "observedGeneration": 9},
    })));
}

/// The node tells of a pool with so much room; without a size that it has only another pool.
pub fn room(world: &World, largest: Option<&str>) {
    let mut node: NodeStorage = world.api.get("alpha").unwrap();
    let name = if largest.is_some() { "default" } else { "fast" };
    let largest = largest.unwrap_or("1Gi");
    let mut pools = vec![
        json!({"name": name, "configured": true, "default": name == "default", "capacity": "9Gi", "available": largest,
        "volumeCount": 1, "health": "Healthy", "extentSize": "4Mi",
        "maximumVolumeSize": [{"layout": "linear", "size": largest}]}),
    ];
    if name == "fast" {
        pools.push(
            json!({"name": "slow", "configured": true, "capacity": "9Gi", "available": "1Gi",
            "volumeCount": 0, "health": "Healthy", "extentSize": "4Mi", "maximumVolumeSize": []}),
        );
    }
    let status = node.status.as_mut().unwrap();
    status.pools = pools.into_iter().map(object).collect();
    world.api.put(&node);
}

async fn waits_for(world: &World, reason: &str, sentence: &str) {
    world.until(reason, |status| status.reason.as_deref() == Some(reason)).await;
    world.rest().await;
    let status = world.status();
    let message = status.message.unwrap();
    assert!(message.contains(sentence), "{message}");
    assert!(status.ordinals[0].swap.is_none(), "nothing is made");
    assert_eq!(world.told(reason), 1, "it is told once, and looked at again");
}

fn condition(status: &PvcAutoscalerStatus, kind: &str) -> Value {
    let one = status.conditions.iter().find(|one| one.type_ == kind).expect("a condition");
    json!([one.status, one.reason])
}

#[test]
fn a_swap_waits_until_the_node_has_room() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        room(&world, Some("1Gi"));
        world.want("2Gi", "hdd", &json!({}));
        waits_for(
            &world,
            "InsufficientCapacity",
            "node alpha has free space for 1 GiB only: remove what is not needed",
        )
        .await;
        let status = world.status();
        assert_eq!(condition(&status, "Ready"), json!(["False", "Waiting"]));
        assert_eq!(condition(&status, "Stalled"), json!(["True", "InsufficientCapacity"]));
        room(&world, None);
        world
            .until("it says which pool", |status| {
                status.message.as_deref().is_some_and(|text| text.contains("no pool for class hdd"))
            })
            .await;
        room(&world, Some("2Gi"));
        world.settled("1/1").await;
        let status = world.status();
        assert_eq!(condition(&status, "Ready"), json!(["True", "InSync"]));
        assert_eq!(condition(&status, "Stalled"), json!(["False", "NotStalled"]));
        world.write();
    });
}

#[test]
fn a_pool_that_only_plans_takes_no_room_from_a_class_that_names_none() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        let mut node: NodeStorage = world.api.get("alpha").unwrap();
        let pool = |name: &str, default: bool, size: &str| {
            object(json!({"name": name, "configured": true, "default": default, "capacity": size,
                "available": size, "volumeCount": 0, "health": "Healthy", "extentSize": "4Mi",
                "maximumVolumeSize": [{"layout": "linear", "size": size}]}))
        };
        node.status.as_mut().unwrap().pools =
            vec![pool("fast", true, "9Gi"), pool("looks", false, "0")];
        world.api.put(&node);
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.told("InsufficientCapacity"), 0);
        world.write();
    });
}

/// Another node, whose node plugin tells of a pool of which the first one has none.
pub fn another_node(world: &World) {
    let labels = json!({"kubernetes.io/hostname": "beta"});
    world.api.put(&object::<Node>(json!({"metadata": {"name": "beta", "labels": labels}})));
    let pool = json!({"name": "default", "configured": true, "default": true, "capacity": "9Gi", "available": "3Gi",
                      "volumeCount": 0, "health": "Healthy", "extentSize": "4Mi",
                      "maximumVolumeSize": [{"layout": "linear", "size": "3Gi"}]});
    world.api.put(&object::<NodeStorage>(json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": "beta"},
        "spec": {"nodeHash": NodeKey::of("beta").as_str()}, "status": {"pools": [pool]},
    })));
}

#[test]
fn a_claim_goes_to_another_node_if_its_own_has_no_pool_and_its_pod_may_run_there() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        room(&world, None);
        another_node(&world);
        let mut pod: Pod = world.api.get(&format!("{SHOP}/nginx-0")).unwrap();
        let stays = [("kubernetes.io/hostname".to_owned(), "alpha".to_owned())];
        pod.spec.as_mut().unwrap().node_selector = Some(stays.into());
        world.api.put(&pod);
        world.want("2Gi", "hdd", &json!({}));
        let sentence =
            "no pool for class hdd, and neither has another node on which its pod could run";
        waits_for(&world, "InsufficientCapacity", sentence).await;

        let mut pod: Pod = world.api.get(&format!("{SHOP}/nginx-0")).unwrap();
        pod.spec.as_mut().unwrap().node_selector = None;
        world.api.put(&pod);
        world.want("2Gi", "hdd", &json!({"mode": "DryRun"}));
        let sent = "the claim goes to node beta, which has free space for a volume of 3 GiB";
        let is_sent = |next: &String| next.contains(sent);
        world
            .until("it says where to", |status| status.planned_action.as_ref().is_some_and(is_sent))
            .await;
        world.want("2Gi", "hdd", &json!({}));
        let begun = |status: &PvcAutoscalerStatus| status.of(0).and_then(|one| one.swap.clone());
        world.until("it is begun with", |status| begun(status).is_some()).await;
        let swap = world.ordinal(0).swap.unwrap();
        assert_eq!(swap.node.as_deref(), Some("beta"));
        world.settled("1/1").await;
        let made = world.active(0);
        assert_eq!(made.name_any(), swap.claim);
        assert_eq!(made.annotations().get(SELECTED_NODE).map(String::as_str), Some("beta"));
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn who_would_send_a_claim_to_another_node_is_refused_before_its_pod_is_stopped() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        let pod = world.pod("nginx-0");
        room(&world, None);
        another_node(&world);
        // A quota with a place for one pod that copies.
        world.api.guard("pods", |_, others| {
            let is_fill = |pod: &Value| !pod["metadata"]["labels"]["pliant.io/populator"].is_null();
            let has_one = others.iter().any(is_fill);
            has_one.then(|| "exceeded quota: small".to_owned())
        });
        world.want("2Gi", "hdd", &json!({}));
        let is_told = |status: &PvcAutoscalerStatus| {
            status.reason.as_deref() == Some("PopulatorCreationError")
        };
        world.until("it is told", is_told).await;
        world.rest().await;
        assert!(is_told(&world.status()));
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
        world.api.unguard("pods");
        world.settled("1/1").await;
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_swap_waits_until_the_quota_leaves_enough_for_both_of_its_claims() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        quota(&world, "8Gi", "1e50");
        world.want("2Gi", "hdd", &json!({}));
        let sentence = "status.used of requests.storage in ResourceQuota storage is invalid";
        waits_for(&world, "InvalidSize", sentence).await;
        quota(&world, "7Gi", "4294967295500m");
        let sentence = "ResourceQuota storage leaves 3Gi of requests.storage, but a swap of claim";
        waits_for(&world, "ExceedsQuota", sentence).await;
        quota(&world, "8Gi", "4Gi");
        world.settled("1/1").await;
        world.write();
    });
}

#[test]
fn a_swap_waits_until_the_pod_may_be_stopped() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        budget(&world, 0);
        world.want("2Gi", "hdd", &json!({}));
        waits_for(&world, "EvictionBlocked", "PodDisruptionBudget web allows no disruption now")
            .await;
        assert_eq!(world.status().ready_claims(), "0/1", "it is larger than the template has it");
        budget(&world, 1);
        world.settled("1/1").await;
        world.write();
    });
}

#[test]
fn another_try_waits_as_the_first_one_would() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        let said = json!({"outcome": "mismatch", "message": "a.txt differs"}).to_string();
        world.play().ends.push_back(End::Failed(said));
        world.want("2Gi", "hdd", &json!({}));
        let has_failed = |status: &PvcAutoscalerStatus| status.phase == AutoscalerPhase::Failed;
        world.until("it has failed", has_failed).await;
        world.rest().await;
        budget(&world, 0);
        tokio::time::sleep(Duration::from_hours(2)).await;
        let status = world.status();
        let swap = status.ordinals[0].swap.clone().unwrap();
        assert_eq!((status.reason.as_deref(), swap.failures), (Some("EvictionBlocked"), 1));
        assert_eq!((world.told("EvictionBlocked"), world.told("SwapStarted")), (1, 1));
        budget(&world, 1);
        world.settled("1/1").await;
        assert_eq!(world.told("SwapStarted"), 2);
        world.write();
    });
}

#[test]
fn what_a_swap_would_find_is_told_before_it_begins() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        quota(&world, "80Gi", "4Gi");
        budget(&world, 1);
        room(&world, Some("9Gi"));
        world.holds(0, "1Gi", "4Gi");
        world.want("2Gi", "hdd", &json!({"mode": "DryRun"}));
        world.until("it is told", |status| status.planned_action.is_some()).await;
        let next = world.status().planned_action.unwrap();
        let found = "retained for 168h; 1 GiB will be copied; node alpha has free space for a volume of 9 GiB; \
                     ResourceQuota storage leaves 76Gi; PodDisruptionBudget web allows disruptions: 1";
        assert!(next.ends_with(found), "{next}");
        room(&world, Some("1Gi"));
        world
            .until("it would wait", |status| {
                status.reason.as_deref() == Some("InsufficientCapacity")
            })
            .await;
        world.rest().await;
        assert!(world.ordinal(0).swap.is_none());
    });
}

/// A class whose volumes are made only where a label has one of these values.
fn class_of(world: &World, provisioner: &str, key: &str, values: &[&str]) {
    world.api.put(&object::<StorageClass>(json!({
        "metadata": {"name": "near"}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
        "allowedTopologies": [{"matchLabelExpressions": [{"key": key, "values": values}]}],
    })));
}

/// The node has the label of its zone, and is as it says.
fn node(world: &World, spec: &Value, ready: &str) {
    let labels = json!({"kubernetes.io/hostname": "alpha", "topology.kubernetes.io/zone": "eu-1"});
    world.api.put(&object::<Node>(json!({
        "metadata": {"name": "alpha", "labels": labels}, "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })));
}

#[test]
fn a_swap_waits_for_a_class_that_makes_volumes_where_the_claim_can_be_read() {
    let zone = "topology.kubernetes.io/zone";
    let ours = (DRIVER, TOPOLOGY, "beta", "alpha");
    for (provisioner, key, other, own) in [ours, ("other.example.com", zone, "eu-2", "eu-1")] {
        block_on(async {
            let (world, _operator) = one_pod().await;
            node(&world, &json!({}), "True");
            class_of(&world, provisioner, key, &[other]);
            world.want("2Gi", "near", &json!({}));
            let sentence = "can be read on node alpha only, and the allowedTopologies of class near \
                            exclude it: set another class with `kubectl edit pvcautoscaler nginx`";
            waits_for(&world, "StorageClassTopologyMismatch", sentence).await;
            class_of(&world, provisioner, key, &[other, own]);
            world.settled("1/1").await;
            world.write();
        });
    }
}

#[test]
fn a_swap_waits_until_the_node_of_the_volume_is_ready_and_takes_pods() {
    let cordoned = json!({"unschedulable": true});
    for (spec, ready, sentence) in [
        (
            json!({}),
            "Unknown",
            "is not ready, so pod nginx-0 is not stopped: see `kubectl describe",
        ),
        (cordoned, "True", "pod nginx-0 could not start there again: run `kubectl uncordon alpha`"),
    ] {
        block_on(async {
            let (world, _operator) = one_pod().await;
            node(&world, &spec, ready);
            world.want("2Gi", "hdd", &json!({}));
            waits_for(&world, "NodeUnavailable", sentence).await;
            node(&world, &json!({}), "True");
            world.settled("1/1").await;
            world.write();
        });
    }
}

#[test]
fn a_swap_waits_until_the_node_plugin_of_the_volume_answers() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        world.play().are_node_plugins_away = true;
        world.want("2Gi", "hdd", &json!({}));
        let sentence = "the node plugin of node alpha has not started the operation within 15 s; see `kubectl get pods";
        waits_for(&world, "NodeUnavailable", sentence).await;
        assert_eq!(world.told("SwapStarted"), 0);
        world.play().are_node_plugins_away = false;
        world.settled("1/1").await;
        world.write();
    });
}

#[test]
fn for_how_long_a_pod_would_be_stopped_is_told_by_the_swap_before() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        world.holds(0, "1Gi", "4Gi");
        let mut told: PvcAutoscaler = world.api.get(&format!("{SHOP}/nginx")).unwrap();
        let entry = &mut told.status.as_mut().unwrap().ordinals[0];
        entry.last_swap = Some(object(json!({"claim": "before", "downtimeSeconds": 42,
            "copiedBytes": 512 << 20, "preCopyPasses": 0, "completionTime": "2026-01-01T00:00:00Z"})));
        world.api.put(&told);
        world.want("2Gi", "hdd", &json!({"mode": "DryRun"}));
        world.until("it is told", |status| status.planned_action.is_some()).await;
        let next = world.status().planned_action.unwrap();
        let found = "1 GiB will be copied; downtime of up to about 84 s, as pod nginx-0 was down for \
                     42 s while 512 MiB were copied";
        assert!(next.contains(found), "{next}");
        // Copied ahead it would be another pause.
        world.want("2Gi", "hdd", &json!({"mode": "DryRun", "preCopy": true}));
        let says_less = |status: &PvcAutoscalerStatus| {
            !status.planned_action.as_ref().unwrap().contains("42 s")
        };
        world.until("nothing is concluded", says_less).await;
    });
}

#[test]
fn a_size_into_which_the_content_does_not_fit_is_told_before_anybody_tries() {
    block_on(async {
        let (world, _operator) = one_pod().await;
        world.holds(0, "3Gi", "4Gi");
        world.want("1Gi", "hdd", &json!({"mode": "DryRun"}));
        world.until("it is told", |status| status.planned_action.is_some()).await;
        let next = world.status().planned_action.unwrap();
        assert!(next.contains("; that would fail: the target is too small"), "{next}");
    });
}

#[test]
fn what_the_workload_does_by_itself_is_said_before_a_pod_is_stopped() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        let mut set: StatefulSet = world.api.get("shop/nginx").unwrap();
        let spec = set.spec.as_mut().unwrap();
        spec.update_strategy = Some(object(json!({"type": "OnDelete"})));
        spec.persistent_volume_claim_retention_policy =
            Some(object(json!({"whenScaled": "Delete"})));
        world.api.put(&set);
        world.want("2Gi", "hdd", &json!({"mode": "DryRun"}));
        let says = |status: &PvcAutoscalerStatus, what: &str| {
            status.planned_action.as_ref().is_some_and(|next| next.contains(what))
        };
        world
            .until("it is said", |status| {
                says(status, "OnDelete") && says(status, "persistentVolumeClaimRetentionPolicy")
            })
            .await;
    });
}
