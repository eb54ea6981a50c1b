//! Claims that a StatefulSet makes by its own template get other volumes under their own names.

use kube::ResourceExt;
use pliant::api::{AutoscalerPhase, SwapPhase};
use serde_json::json;

use crate::block_on;
use crate::play::{Content, volume_of_claim};
use crate::world::World;

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
        assert_eq!((entry.generation, world.told("Swapped")), (1, 1));
        let new = volume(&world, "www-nginx-0");
        assert_ne!(new, old);
        let status = after.status.unwrap();
        let has = status.capacity.unwrap()["storage"].0.clone();
        assert_eq!((status.phase.as_deref(), &*has), (Some("Bound"), "2Gi"));
        let kept = &entry.retained[0];
        assert_eq!(volume(&world, &kept.claim), old, "the old volume is that of the new claim");
        world.write();
        assert_eq!(world.play().written["nginx-0"], "wwww");
        assert_eq!(world.left(), Vec::<String>::new());
        tokio::time::sleep(std::time::Duration::from_secs(3700)).await;
        assert!(world.claim(&kept.claim).is_none() && world.claim("www-nginx-0").is_some());
        assert!(!world.play().contents.contains_key(&old));
        world.write();
        // And once more, from the volume that it has by now.
        world.want("2Gi", "hdd", &json!({"retention": "1h"}));
        world.settled("1/1").await;
        assert_eq!((world.ordinal(0).generation, world.told("Swapped")), (2, 2));
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
        [SwapPhase::Draining, SwapPhase::Fenced, SwapPhase::FinalCopy, SwapPhase::Exchanging]
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
        ("4Gi", "hdd", json!({"naming": "Hashed"}), "spec.naming is Hashed"),
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
            assert_eq!((world.pod("nginx-0"), world.told("SwapBegun")), (pod, 0));
        });
    }
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({"naming": "SameName"}));
        world.until("it is told", |status| status.reason.as_deref() == Some("WrongNaming")).await;
    });
}
