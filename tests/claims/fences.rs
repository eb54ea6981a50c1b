//! The node of an old volume keeps everybody from it while it is copied, and after that.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use pliant::api::{AutoscalerPhase, PvcAutoscaler, PvcAutoscalerStatus, SwapPhase, VolumeRequest};
use pliant::volume::{Fence, Standing};
use serde_json::json;

use crate::block_on;
use crate::play::{End, object};
use crate::world::{SHOP, World};

const fn superseded(generation: i64, copying: bool) -> Fence {
    Fence { generation, standing: Standing::Superseded, copying }
}

const fn active(generation: i64) -> Fence {
    Fence { generation, standing: Standing::Active, copying: false }
}

/// One pod with a claim; the volume of that.
async fn one_pod(world: &World, class: &str) -> String {
    world.set(1, &[]);
    world.want("4Gi", class, &json!({}));
    world.settled("1/1").await;
    world.write();
    world.active(0).spec.unwrap().volume_name.unwrap()
}

/// A PvcAutoscaler that is deleted while its swap waits for somebody who has the old volume open; that volume.
async fn forgotten_midway(world: &World) -> String {
    let old = one_pod(world, "hdd").await;
    world.play().held.insert(old.clone());
    world.want("2Gi", "hdd", &json!({}));
    world.until_reason("ClaimInUse").await;
    world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
    old
}

fn phase(status: &PvcAutoscalerStatus) -> Option<SwapPhase> {
    status.of(0).and_then(|one| one.swap.as_ref()).map(|swap| swap.phase)
}

impl World {
    fn fence(&self, volume: &str) -> Option<Fence> {
        self.play().fences.get(volume).copied()
    }

    async fn until_reason(&self, reason: &str) -> String {
        self.until(reason, |status| status.reason.as_deref() == Some(reason)).await;
        self.rest().await;
        let status = self.status();
        assert_eq!(status.reason.as_deref(), Some(reason));
        status.message.unwrap()
    }
}

#[test]
fn whoever_has_the_device_open_past_kubernetes_is_waited_for() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "hdd").await;
        world.play().held.insert(old.clone());
        world.want("2Gi", "hdd", &json!({}));
        let message = world.until_reason("ClaimInUse").await;
        assert!(message.contains("is open on node alpha (once)"), "{message}");
        assert!(
            message.contains("no pod uses it; on that node, `fuser -v /dev/mapper/*"),
            "{message}"
        );
        assert_eq!(
            (phase(&world.status()), world.told("ClaimInUse")),
            (Some(SwapPhase::Fenced), 1)
        );
        assert_eq!(world.fence(&old), Some(superseded(1, true)), "and nobody else gets at it");
        assert_eq!(world.play().pods, 0, "nothing is copied");
        world.play().held.clear();
        world.settled("1/1").await;
        assert_eq!(world.fence(&old), Some(superseded(2, false)), "not even to be read");
        let entry = world.ordinal(0);
        assert_eq!((entry.claim_revision, entry.fence_generation), (1, 2));
        assert_eq!((entry.retained_claims[0].fence, world.told("SwapSucceeded")), (None, 1));
        world.write();
    });
}

#[test]
fn the_new_volume_is_half_copied_until_it_has_all_and_the_next_swap_counts_on() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world, "hdd").await;
        world.play().ends.push_back(End::Hangs);
        world.want("2Gi", "hdd", &json!({}));
        world.until("it is copied", |status| phase(status) == Some(SwapPhase::FinalCopy)).await;
        world.rest().await;
        let half = Fence { generation: 1, standing: Standing::HalfCopied, copying: true };
        let fences = world.play().fences.clone();
        let mut filled = fences.iter().filter(|(_, fence)| **fence == half);
        let new = filled.next().expect("a volume that is filled").0;
        world.play().end_hanging();
        // What the play has changed is nothing that is watched.
        world.api.put(&world.api.get::<PersistentVolume>(new).unwrap());
        world.settled("1/1").await;
        assert_eq!(world.active(0).spec.unwrap().volume_name.as_ref(), Some(new));
        assert_eq!(world.fence(new), Some(active(2)));
        world.write();
        world.want("1Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.fence(new), Some(superseded(4, false)));
        let newest = world.active(0).spec.unwrap().volume_name.unwrap();
        assert_eq!(world.fence(&newest), Some(active(2)));
        world.write();
    });
}

#[test]
fn a_volume_that_is_somebody_elses_is_not_fenced_for_the_claim_that_names_it() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "hdd").await;
        let claim = json!({"claimName": world.ordinal(0).active_claim});
        world.want("2Gi", "hdd", &json!({}));
        world.until("it is begun with", |status| phase(status).is_some()).await;
        world.api.put(&crate::play::object::<Pod>(json!({
            "metadata": {"name": "other", "namespace": SHOP},
            "spec": {"containers": [], "volumes": [{"name": "x", "persistentVolumeClaim": claim}]},
            "status": {"phase": "Running"},
        })));
        world.until_reason("ClaimInUse").await;
        assert_eq!(phase(&world.status()), Some(SwapPhase::Draining));
        // Its tenant has made it anew meanwhile, and wrote the name of another one's volume into it.
        let mut pv: PersistentVolume = world.api.get(&old).unwrap();
        world.api.put(&crate::play::object::<PersistentVolumeClaim>(json!({
            "metadata": {"name": "theirs", "namespace": "another", "uid": "their-uid"},
            "spec": {"volumeName": old}, "status": {"phase": "Bound"},
        })));
        let owner = pv.spec.as_mut().unwrap().claim_ref.as_mut().unwrap();
        (owner.namespace, owner.name) = (Some("another".to_owned()), Some("theirs".to_owned()));
        owner.uid = Some("their-uid".to_owned());
        world.api.put(&pv);
        world.api.delete::<Pod>("shop/other");
        world.rest().await;
        assert_eq!(world.fence(&old), None);
    });
}

#[test]
fn a_claim_that_only_says_that_it_has_the_volume_gives_nobody_back_to_it() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "hdd").await;
        let pv = world.active(0).spec.unwrap().volume_name;
        // Their tenant has pods with them, as whoever got back a volume that nobody knows of.
        for name in ["a", "b", "c", "d", "e"] {
            world.api.put(&crate::play::object::<PersistentVolumeClaim>(json!({
                "metadata": {"name": name, "namespace": "another",
                             "labels": {"pliant.io/pvc-autoscaler": "mine"},
                             "annotations": {"pliant.io/volume": old}},
                "spec": {"volumeName": pv}, "status": {"phase": "Bound"},
            })));
            world.api.put(&crate::play::object::<Pod>(json!({
                "metadata": {"name": name, "namespace": "another"},
                "spec": {"containers": [], "volumes": [
                    {"name": "x", "persistentVolumeClaim": {"claimName": name}}]},
                "status": {"phase": "Running"},
            })));
        }
        world.play().held.insert(old.clone());
        world.want("2Gi", "hdd", &json!({}));
        world.until_reason("ClaimInUse").await;
        world.rest().await;
        assert_eq!(world.fence(&old), Some(superseded(1, true)));
    });
}

#[test]
fn a_reader_of_the_old_claim_is_waited_for_by_name() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world, "hdd").await;
        let claim = world.ordinal(0).active_claim;
        let named = json!({"claimName": claim, "readOnly": true});
        world.api.put(&crate::play::object::<Pod>(json!({
            "metadata": {"name": "reader", "namespace": SHOP},
            "spec": {"containers": [], "volumes": [{"name": "x", "persistentVolumeClaim": named}]},
            "status": {"phase": "Running"},
        })));
        world.want("2Gi", "hdd", &json!({}));
        let message = world.until_reason("ClaimInUse").await;
        assert!(message.ends_with("stop reader, or wait until it ends"), "{message}");
        world.api.delete::<Pod>("shop/reader");
        world.settled("1/1").await;
    });
}

#[test]
fn a_copy_that_fails_lets_the_pod_in_again_and_the_next_one_fences_it_again() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "hdd").await;
        let said = json!({"outcome": "mismatch", "message": "no"}).to_string();
        world.play().ends.push_back(End::Failed(said));
        world.want("2Gi", "hdd", &json!({}));
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        assert_eq!(world.fence(&old), Some(active(3)), "after it was closed under number 2");
        world.write();
        assert_eq!(world.play().written["nginx-0"], "wwww", "its pod has started");
        world.want("3Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.fence(&old), Some(superseded(5, false)));
        world.write();
    });
}

#[test]
fn a_node_that_does_not_answer_is_waited_for() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "hdd").await;
        world.want("2Gi", "hdd", &json!({}));
        let stops = |status: &PvcAutoscalerStatus| phase(status) == Some(SwapPhase::Draining);
        world.until("its pod is stopped", stops).await;
        world.play().are_node_plugins_away = true;
        let message = world.until_reason("VolumeNotFenced").await;
        assert!(message.contains("the node plugin of node alpha has not started"), "{message}");
        assert_eq!((world.fence(&old), world.play().pods), (None, 0));
        world.play().are_node_plugins_away = false;
        world.settled("1/1").await;
        assert_eq!(world.fence(&old), Some(superseded(2, false)));
    });
}

#[test]
fn no_pod_is_stopped_before_its_node_knows_the_new_volume_as_half_copied() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "hdd").await;
        let pod = world.pod("nginx-0");
        world.want("2Gi", "hdd", &json!({}));
        // It has answered just before.
        world.until("it is begun with", |status| phase(status).is_some()).await;
        world.play().are_node_plugins_away = true;
        let says = |text: &String| text.contains("is to be incomplete, but its node has not");
        world
            .until("it waits for the node", |status| status.progress.as_ref().is_some_and(says))
            .await;
        world.rest().await;
        assert_eq!(phase(&world.status()), Some(SwapPhase::Pending));
        assert_eq!((world.pod("nginx-0"), world.fence(&old)), (pod, None));
        world.play().are_node_plugins_away = false;
        world.settled("1/1").await;
        assert_eq!(world.fence(&old), Some(superseded(2, false)));
        world.write();
    });
}

#[test]
fn a_volume_that_has_a_higher_number_already_is_fenced_by_a_yet_higher_one() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "hdd").await;
        world.play().fences.insert(old.clone(), active(7));
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.fence(&old), Some(superseded(9, false)));
        assert_eq!(world.ordinal(0).fence_generation, 9);
        world.write();
    });
}

#[test]
fn a_swap_that_was_forgotten_midway_gives_its_volume_back() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = forgotten_midway(&world).await;
        world.rest().await;
        assert_eq!(world.fence(&old), Some(superseded(1, true)), "somebody has it open");
        world.play().held.clear();
        world.rest().await;
        assert_eq!(world.fence(&old), Some(active(2)));
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
        assert_eq!(world.active(0).spec.unwrap().volume_name, Some(old));
    });
}

#[test]
fn made_again_it_gives_no_pod_a_volume_that_is_not_given_back_yet() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = forgotten_midway(&world).await;
        world.want("4Gi", "hdd", &json!({}));
        let says = |text: &String| text.contains("is read-only for a swap");
        world
            .until("it waits for the volume", |status| status.progress.as_ref().is_some_and(says))
            .await;
        world.rest().await;
        assert!(world.status().ordinals.is_empty(), "so the webhook has no claim for the pod");
        world.play().held.clear();
        world.settled("1/1").await;
        assert_eq!(world.active(0).spec.unwrap().volume_name, Some(old));
        world.write();
    });
}

#[test]
fn a_workload_that_ends_midway_leaves_no_volume_that_nobody_can_use() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "hdd").await;
        let said = json!({"outcome": "mismatch", "message": "no"}).to_string();
        world.play().ends.push_back(End::Failed(said));
        world.play().held.insert(old.clone());
        world.want("2Gi", "hdd", &json!({}));
        world.until_reason("ClaimInUse").await;
        world.want("2Gi", "hdd", &json!({"mode": "DryRun"}));
        world.set(0, &[]);
        world.api.delete::<Pod>("shop/nginx-0");
        world.play().held.clear();
        world.until("it is given back", |status| phase(status) != Some(SwapPhase::Fenced)).await;
        world.rest().await;
        assert_eq!(world.fence(&old), Some(active(3)));
    });
}

#[test]
fn volumes_of_other_drivers_are_swapped_by_what_kubernetes_knows() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world, "fixed").await;
        world.want("8Gi", "fixed", &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.ordinal(0).claim_revision, world.fence(&old)), (1, None));
        assert!(world.api.list::<VolumeRequest>().is_empty());
        world.write();
    });
}

#[test]
fn a_pod_that_was_deleted_by_force_may_still_write_to_a_volume_of_another_driver() {
    for word in ["ready", "taint", "confirmed"] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            world.set(1, &[]);
            world.want("4Gi", "fixed", &json!({}));
            world.settled("1/1").await;
            world.write();
            let uid = world.pod("nginx-0");
            let put_node = |ready: &str, taint: bool| {
                let mut node: Node = world.api.get("alpha").unwrap();
                node.status.as_mut().unwrap().conditions =
                    Some(vec![object(json!({"type": "Ready", "status": ready}))]);
                let out =
                    json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
                node.spec = taint.then(|| object(json!({"taints": out})));
                world.api.put(&node);
            };
            world.want("8Gi", "fixed", &json!({}));
            let is_draining = |status: &PvcAutoscalerStatus| {
                let swap = status.of(0).and_then(|one| one.swap.as_ref());
                swap.is_some_and(|swap| swap.phase == SwapPhase::Draining)
            };
            world.until("its pod is to stop", is_draining).await;
            put_node("Unknown", false);
            let is_told = |status: &PvcAutoscalerStatus| {
                status.reason.as_deref() == Some("NodeUnavailable")
                    && status.message.as_ref().is_some_and(|text| text.contains(&uid))
            };
            world.until("it is told", is_told).await;
            world.rest().await;
            let swap = world.ordinal(0).swap.unwrap();
            assert_eq!((swap.phase, swap.pod_uid.as_ref()), (SwapPhase::Fenced, Some(&uid)));
            match word {
                "ready" => put_node("True", false),
                "taint" => put_node("Unknown", true),
                _ => world.want("8Gi", "fixed", &json!({"confirmedStoppedPodUIDs": [uid]})),
            }
            world.settled("1/1").await;
            assert_eq!(world.ordinal(0).claim_revision, 1);
            world.write();
        });
    }
}

#[test]
fn a_volume_that_is_superseded_by_none_that_is_known_is_reported_and_can_be_reactivated() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let volume = one_pod(&world, "hdd").await;
        // The API server was restored to a time before a swap: only the node knows of that.
        world.play().fences.insert(volume.clone(), superseded(7, false));
        world.api.delete::<Pod>(&format!("{SHOP}/nginx-0"));
        let is_told = |status: &PvcAutoscalerStatus| {
            status.reason.as_deref() == Some("VolumeSuperseded")
                && status.message.as_ref().is_some_and(|text| text.contains("since generation 7"))
        };
        world.until("it is told", is_told).await;
        world.rest().await;
        assert_eq!(world.play().fences[&volume], superseded(7, false));
        assert_eq!(world.status().ready_claims(), "0/1", "its pod cannot have it");
        let reactivate = |generation: i64| json!({"reactivate": [{"ordinal": 0, "fenceGeneration": generation}]});
        world.want("4Gi", "hdd", &reactivate(6));
        world.rest().await;
        assert_eq!(world.play().fences[&volume], superseded(7, false), "that is another one");
        world.want("4Gi", "hdd", &reactivate(7));
        world.settled("1/1").await;
        assert_eq!(world.play().fences[&volume], active(8));
        world.write();
    });
}
