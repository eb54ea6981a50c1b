//! One object that cannot be decoded, of each kind that the operator watches: all others go on, and what it tells of
//! is left as it is.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use pliant::api::{GATE, PvcAutoscaler, PvcSourcePopulator, SwapPhase, is_gated};
use serde_json::{Value, json};

use crate::block_on;
use crate::play::object;
use crate::world::{SHOP, World, in_exchange, one_pod};

fn put_bad_ones(world: &World) {
    for namespace in [SHOP, "other"] {
        let metadata = json!({"name": "bad", "namespace": namespace});
        let spec = json!({"statefulSetName": "bad", "volumeClaimTemplate": 7});
        world.api.put_json::<PvcAutoscaler>(json!({"metadata": metadata, "spec": spec}));
        let spec = json!({"sourcePvcRef": []});
        world.api.put_json::<PvcSourcePopulator>(json!({"metadata": metadata, "spec": spec}));
    }
}

#[test]
fn a_swap_comes_to_its_end_beside_objects_that_cannot_be_decoded() {
    block_on(async {
        let world = World::new();
        put_bad_ones(&world);
        let _operator = world.operator();
        world.set(2, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("2/2").await;
        world.write();
        world.want("2Gi", "hdd", &json!({}));
        world.settled("2/2").await;
        assert_eq!(world.left(), Vec::<String>::new());
        assert_eq!(world.told("InvalidObject"), 4, "each once");
    });
}

#[test]
fn a_gate_stays_closed_while_the_pvc_autoscaler_of_its_pod_cannot_be_decoded() {
    block_on(async {
        let mut world = World::new();
        world.stop_kubernetes();
        // Of another name than those above: one process tells of each once.
        let metadata = json!({"name": "odd", "namespace": SHOP});
        let spec = json!({"statefulSetName": "odd", "volumeClaimTemplate": 7});
        world.api.put_json::<PvcAutoscaler>(json!({"metadata": metadata, "spec": spec}));
        for set in ["odd", "good"] {
            let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set,
                               "uid": set, "controller": true});
            world.api.put(&object::<Pod>(json!({
                "metadata": {"name": format!("{set}-0"), "namespace": SHOP, "labels": { GATE: "true" },
                             "ownerReferences": [owner]},
                "spec": {"containers": [], "schedulingGates": [{ "name": GATE }]},
                "status": {"phase": "Pending"},
            })));
        }
        let waits = |pod: &str| is_gated(&world.api.get::<Pod>(&format!("{SHOP}/{pod}")).unwrap());
        let _operator = world.operator();
        world.rest().await;
        assert_eq!((waits("odd-0"), waits("good-0")), (true, false));
        world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/odd"));
        world.rest().await;
        assert!(!waits("odd-0"), "nothing tells of it any more");
    });
}

/// What is written now, as another version would have written it.
fn of_another_version(world: &World, change: impl FnOnce(&mut Value)) -> PvcAutoscaler {
    let there: PvcAutoscaler = world.api.get(&format!("{SHOP}/nginx")).expect("it is there");
    let mut json = json!(there);
    change(&mut json);
    world.api.put_json::<PvcAutoscaler>(json);
    there
}

/// A swap whose pod is stopped stays where it is, as long as what tells of it is not understood; its claim is held,
/// and the pod is kept from both volumes.
fn a_swap_waits_while(change: fn(&mut Value)) {
    block_on(async {
        let (world, operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.write();
        let old = world.ordinal(0).active_claim;
        let volume = world.claim(&old).unwrap().spec.unwrap().volume_name.unwrap();
        world.play().held.insert(volume.clone());
        world.want("2Gi", "hdd", &json!({}));
        let is_fenced = |phase| phase == SwapPhase::Fenced;
        world
            .until("it is fenced", |status| {
                let swap = status.of(0).and_then(|one| one.swap.as_ref());
                swap.is_some_and(|swap| is_fenced(swap.phase))
            })
            .await;
        world.rest().await;
        let understood = of_another_version(&world, change);
        drop(operator);
        let _operator = world.operator();
        world.play().held.clear();
        world.rest().await;
        let claim: PersistentVolumeClaim = world.claim(&old).unwrap();
        assert!(
            claim.finalizers().iter().any(|one| one == "pliant.io/swap-protection"),
            "it is held"
        );
        let there: Option<PvcAutoscaler> = {
            let all = world.api.list::<PvcAutoscaler>();
            all.into_iter().find(|one| one.name_any() == "nginx")
        };
        let swaps = there.and_then(|one| one.status?.ordinals.first()?.swap.clone());
        assert!(
            swaps.is_none_or(|swap| swap.phase == SwapPhase::Unknown),
            "nothing is written over it"
        );
        assert_eq!(world.told("InvalidObject"), 1);

        world.api.put(&understood);
        world.settled("1/1").await;
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_swap_waits_while_its_autoscaler_cannot_be_decoded() {
    a_swap_waits_while(|json| json["spec"]["volumeClaimTemplate"] = json!(7));
}

#[test]
fn a_swap_waits_while_its_phase_is_of_another_version() {
    a_swap_waits_while(|json| {
        json["status"]["ordinals"][0]["swap"]["phase"] = json!("FromTheFuture");
    });
}

/// It may know of the exchange, and its pod is then to have the new volume: nobody gives that up for it.
#[test]
fn an_exchange_waits_while_the_autoscaler_that_began_it_cannot_be_decoded() {
    block_on(async {
        let (world, operator) = one_pod(&["www"]).await;
        world.api.panic_at(Some("DELETE persistentvolumes/"));
        world.want("2Gi", "ssd", &json!({}));
        world.api.until("it has begun", |api| in_exchange(api) == 2).await;
        drop(operator);
        world.api.panic_at(None);
        let understood =
            of_another_version(&world, |json| json["spec"]["volumeClaimTemplate"] = json!(7));
        let _operator = world.operator();
        for _ in 0..4 {
            world.rest().await;
        }
        assert_eq!(in_exchange(&world.api), 2, "it is as it was");

        world.api.put(&understood);
        world.settled("1/1").await;
        assert_eq!((in_exchange(&world.api), world.told("SwapSucceeded")), (0, 1));
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}
