//! Claims that a StatefulSet makes by its own template get other volumes under their own names.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kube::ResourceExt;
use pliant::api::{AutoscalerPhase, PvcAutoscalerStatus, SwapPhase};
use serde_json::{Value, json};

use crate::block_on;
use crate::play::{Content, End, Shrinks, object, volume_of_claim};
use crate::world::{SHOP, World, in_exchange, swap};

async fn one_pod(world: &World) {
    world.set(1, &["www"]);
    world.want("4Gi", "hdd", &json!({}));
    world.settled("1/1").await;
    world.write();
}

fn volume(world: &World, claim: &str) -> String {
    volume_of_claim(&world.api, &world.claim(claim).unwrap()).unwrap()
}

#[test]
fn a_claim_keeps_its_name_and_its_uid_and_gets_a_smaller_volume_of_another_class() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world).await;
        let (before, old) = (world.active(0), volume(&world, "www-nginx-0"));
        world.want("2Gi", "ssd", &json!({"retention": "1h"}));
        world.settled("1/1").await;
        let entry = world.ordinal(0);
        let after = world.active(0);
        assert_eq!((after.name_any(), after.uid()), (before.name_any(), before.uid()));
        assert_eq!((entry.claim_revision, world.told("SwapSucceeded")), (1, 1));
        let new = volume(&world, "www-nginx-0");
        assert_ne!(new, old);
        let status = after.status.unwrap();
        let has = status.capacity.unwrap()["storage"].0.clone();
        assert_eq!((status.phase.as_deref(), &*has), (Some("Bound"), "2Gi"));
        let kept = &entry.retained_claims[0];
        assert_eq!(volume(&world, &kept.name), old, "the old volume is that of the new claim");
        world.write();
        assert_eq!(world.play().written["nginx-0"], "wwww");
        assert_eq!(world.left(), Vec::<String>::new());
        tokio::time::sleep(Duration::from_secs(3700)).await;
        assert!(world.claim(&kept.name).is_none() && world.claim("www-nginx-0").is_some());
        assert!(!world.play().contents.contains_key(&old));
        world.write();
        // And once more, from the volume that it has by now.
        world.want("2Gi", "hdd", &json!({"retention": "1h"}));
        world.settled("1/1").await;
        assert_eq!((world.ordinal(0).claim_revision, world.told("SwapSucceeded")), (2, 2));
        world.write();
    });
}

#[test]
fn its_pod_is_not_scheduled_while_the_claim_has_the_old_volume() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world).await;
        world.play().ends.push_back(crate::play::End::Hangs);
        world.want("2Gi", "hdd", &json!({}));
        let is_copied = |phase: SwapPhase| phase == SwapPhase::FinalCopy;
        world
            .until("it is copied", |status| {
                status
                    .of(0)
                    .and_then(|one| one.swap.as_ref())
                    .is_some_and(|one| is_copied(one.phase))
            })
            .await;
        world.rest().await;
        let pod = |world: &World| {
            world.api.get::<k8s_openapi::api::core::v1::Pod>("shop/nginx-0").unwrap()
        };
        assert!(pliant::api::is_gated(&pod(&world)));
        world.play().end_hanging();
        // What the play has changed is nothing that is watched.
        world.api.put(&pod(&world));
        world.settled("1/1").await;
        assert!(!pliant::api::is_gated(&pod(&world)));
        assert!(!pod(&world).labels().contains_key(pliant::api::GATE));
        world.write();
    });
}

#[test]
fn a_copy_that_fails_lets_its_pod_go_on_with_what_it_had() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world).await;
        let old = volume(&world, "www-nginx-0");
        let said = json!({"outcome": "mismatch", "message": "a.txt differs"}).to_string();
        world.play().ends.push_back(crate::play::End::Failed(said));
        world.want("2Gi", "hdd", &json!({}));
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        assert_eq!(volume(&world, "www-nginx-0"), old);
        assert_eq!(world.claims(), ["www-nginx-0"]);
        world.write();
        assert_eq!(world.play().contents[&old], Content::Whole("wwww".to_owned()));
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_deleted_autoscaler_leaves_no_claim_without_its_volume_and_no_pod_behind_a_gate() {
    for phase in
        [SwapPhase::Draining, SwapPhase::Fenced, SwapPhase::FinalCopy, SwapPhase::Rebinding]
    {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            one_pod(&world).await;
            world.want("2Gi", "ssd", &json!({}));
            world
                .until("it is so far", |status| {
                    let swap = status.of(0).and_then(|one| one.swap.as_ref());
                    swap.is_some_and(|swap| swap.phase == phase)
                })
                .await;
            world.api.delete::<pliant::api::PvcAutoscaler>("shop/nginx");
            world.rest().await;
            world.rest().await;
            world.write();
            let text =
                if world.play().written["nginx-0"].len() >= 4 { "" } else { "it does not run" };
            assert_eq!(text, "", "{phase:?}");
        });
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_stopped() {
    for (size, class, more, said) in [
        ("4Gi", "fixed", json!({}), "another driver's"),
        ("4Gi", "hdd", json!({"claimNamePolicy": "Generate"}), "spec.claimNamePolicy is Generate"),
    ] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            one_pod(&world).await;
            let pod = world.pod("nginx-0");
            world.want(size, class, &more);
            world
                .until(said, |status| {
                    status.message.as_ref().is_some_and(|message| message.contains(said))
                })
                .await;
            world.rest().await;
            assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
        });
    }
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({"claimNamePolicy": "Preserve"}));
        world
            .until("it is told", |status| {
                status.reason.as_deref() == Some("ClaimNamePolicyMismatch")
            })
            .await;
    });
}

/// Claims of raw devices.
fn raw(size: &str) -> Value {
    json!({"volumeClaimTemplate": {
        "metadata": {"name": "www"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd", "volumeMode": "Block",
                 "resources": {"requests": {"storage": size}}},
    }})
}

/// A pod that somebody has made by hand runs with a claim.
fn put_stranger(world: &World, claim: &str) {
    let volume = json!({"name": "www", "persistentVolumeClaim": {"claimName": claim}});
    world.api.put(&object::<Pod>(json!({
        "metadata": {"name": "stranger", "namespace": "shop"},
        "spec": {"containers": [], "nodeName": "alpha", "volumes": [volume]},
        "status": {"phase": "Running"},
    })));
}

/// Its node lets who comes to a raw device after the copy write to it, so the copy may lack that.
#[test]
fn a_raw_device_that_a_pod_has_opened_since_its_copy_is_not_exchanged() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.play().file_system = Some("block");
        world.api.put(&object::<PersistentVolumeClaim>(json!({
            "metadata": {"name": "www-nginx-0", "namespace": "shop"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd", "volumeMode": "Block",
                     "resources": {"requests": {"storage": "4Gi"}}},
            "status": {"phase": "Pending"},
        })));
        world.set(1, &["www"]);
        world.want("", "", &raw("4Gi"));
        world.settled("1/1").await;
        world.write();
        let old = volume(&world, "www-nginx-0");
        let phase = |status: &pliant::api::PvcAutoscalerStatus| {
            status.of(0).and_then(|one| one.swap.as_ref()).map(|swap| swap.phase)
        };
        world.play().ends.push_back(End::Hangs);
        world.want("", "", &raw("2Gi"));
        world.until("it is copied", |status| phase(status) == Some(SwapPhase::FinalCopy)).await;
        world.rest().await;
        // The new volume is not kept at its size before that is answered, and so is not given to the claim.
        world.play().shrinks = Shrinks::Left;
        world.play().end_hanging();
        world.api.put(&world.api.get::<Pod>("shop/nginx-0").unwrap());
        world
            .until("it is to be exchanged", |status| phase(status) == Some(SwapPhase::Rebinding))
            .await;
        world.rest().await;
        assert_eq!(phase(&world.status()), Some(SwapPhase::Rebinding), "or nobody can come");
        put_stranger(&world, "www-nginx-0");
        world.until("it is given up", |status| phase(status) == Some(SwapPhase::RollingBack)).await;
        let why = world.ordinal(0).swap.unwrap().message.unwrap();
        let says = "pod stranger started to use claim www-nginx-0 after that was copied";
        assert!(why.starts_with(says), "{why}");
        world.api.delete::<Pod>("shop/stranger");
        world.play().shrinks = Shrinks::AtOnce;
        world
            .until("the copy is left to people", |status| {
                status.reason.as_deref() == Some("ClaimConflict")
            })
            .await;
        world.rest().await;
        assert_eq!((volume(&world, "www-nginx-0"), world.told("SwapSucceeded")), (old, 0));
        world.write();
        let copy = world.ordinal(0).swap.unwrap().claim;
        world.api.delete::<PersistentVolumeClaim>(&format!("shop/{copy}"));
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

/// A tenant makes the copy larger, so long after its volume was kept at its size, while each request takes so long:
/// between a look of the operator and its first write, or before or after. Whether the exchange had begun by then.
async fn grown_after(waits: Duration, each: Duration) -> bool {
    let (world, _operator) = World::with_an_operator();
    one_pod(&world).await;
    let old = volume(&world, "www-nginx-0");
    world.play().shrinks = Shrinks::Left;
    world.want("2Gi", "ssd", &json!({}));
    let is_exchanging = |status: &PvcAutoscalerStatus| {
        swap(status).is_some_and(|swap| swap.phase == SwapPhase::Rebinding)
    };
    world.until("it is to be exchanged", is_exchanging).await;
    world.rest().await;
    world.api.slow_down(SHOP, each);
    world.play().shrinks = Shrinks::AtOnce;
    // What the play has changed is nothing that is watched.
    world.api.put(&world.api.get::<Pod>("shop/nginx-0").unwrap());
    tokio::time::sleep(waits).await;
    let copy = swap(&world.status()).unwrap().claim;
    let is_begun = in_exchange(&world.api) > 0;
    let mut larger = world.claim(&copy).unwrap();
    let asks = larger.spec.as_mut().unwrap().resources.as_mut().unwrap();
    asks.requests.as_mut().unwrap().insert("storage".to_owned(), Written("8Gi".to_owned()));
    world.api.put(&larger);
    if is_begun {
        return true;
    }
    for _ in 0..8 {
        world.rest().await;
    }
    assert_eq!((volume(&world, "www-nginx-0"), in_exchange(&world.api)), (old, 0), "{waits:?}");
    assert_eq!(world.told("SwapSucceeded"), 0);
    false
}

/// A quota counts only what the other claim asks for, so the size is looked at once more just before the first write.
#[test]
fn a_copy_that_its_tenant_makes_larger_while_the_operator_decides_is_not_exchanged() {
    let each = Duration::from_secs(2);
    let begun = (0..60).find(|n| block_on(grown_after(each * *n, each)));
    assert!(begun > Some(2), "it was made larger before it was looked at: {begun:?}");
}

#[test]
fn a_class_of_another_driver_that_the_template_does_not_name_is_refused_before_the_pod_is_stopped()
{
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world).await;
        let (pod, old) = (world.pod("nginx-0"), volume(&world, "www-nginx-0"));
        world.play().default_class = Some("fixed");
        world.want(
            "",
            "",
            &json!({"volumeClaimTemplate": {
                "metadata": {"name": "www"},
                "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
                         "resources": {"requests": {"storage": "2Gi"}}},
            }}),
        );
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        let why = world.ordinal(0).swap.unwrap().message.unwrap();
        assert!(why.contains("has class fixed, whose volumes are another driver's"), "{why}");
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
        assert_eq!(volume(&world, "www-nginx-0"), old);
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}
