//! Claims become smaller where their volumes lie.

use pliant::api::{AutoscalerPhase, InPlacePhase, PvcAutoscaler};
use pliant::bytes::Bytes;
use serde_json::json;

use crate::block_on;
use crate::play::Shrinks;
use crate::sizes;
use crate::world::{Operator, SHOP, World};

const OWN: &str = "www-nginx-0";

/// A StatefulSet with one pod whose claim of 4 GiB has this file system.
async fn settled(file_system: &'static str, templates: &[&str]) -> (World, Operator) {
    let (world, operator) = World::with_an_operator();
    world.play().file_system = Some(file_system);
    world.set(1, templates);
    world.want("4Gi", "hdd", &json!({}));
    world.settled("1/1").await;
    (world, operator)
}

fn capacity(world: &World, claim: &str) -> String {
    let status = world.claim(claim).expect("a claim").status.expect("a status");
    status.capacity.expect("a capacity")["storage"].0.clone()
}

#[test]
fn a_claim_of_a_template_shrinks_under_its_pod() {
    block_on(async {
        let (world, _operator) = settled("btrfs", &["www"]).await;
        let pod = world.pod("nginx-0");
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.claims(), &*capacity(&world, OWN)), (vec![OWN.to_owned()], "2Gi"));
        assert_eq!(world.pod("nginx-0"), pod, "it was not started again");
        assert_eq!(world.left(), Vec::<String>::new());
        assert_eq!((world.ordinal(0).shrink, world.told("ShrinkSucceeded")), (None, 1));

        world.want("3Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(capacity(&world, OWN), "3Gi", "it may grow again");
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_claim_of_ours_shrinks_where_it_lies_if_that_can_be() {
    block_on(async {
        let (world, _operator) = settled("btrfs", &[]).await;
        let before = world.claims();
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.claims(), &*capacity(&world, &before[0])), (before, "2Gi"));
        world.want("1Gi", "ssd", &json!({}));
        world
            .until("another class needs another claim", |status| {
                status.ordinals[0].claim_revision == 1
            })
            .await;
        world.settled("1/1").await;
    });
}

#[test]
fn what_only_shrinks_unmounted_waits_until_no_pod_has_it() {
    block_on(async {
        let (world, _operator) = settled("ext4", &["www"]).await;
        // Its kubelet has not let it go yet.
        let volume = world.active(0).spec.unwrap().volume_name.unwrap();
        world.play().held.insert(volume.clone());
        world.set(0, &["www"]);
        world.api.delete::<k8s_openapi::api::core::v1::Pod>(&format!("{SHOP}/nginx-0"));
        world.want("2Gi", "hdd", &json!({}));
        world.until("it waits", |status| status.reason.as_deref() == Some("ShrinkPending")).await;
        world.rest().await;
        world.play().held.remove(&volume);
        world.until("it is shrunk", |status| status.phase == AutoscalerPhase::InSync).await;
        world.rest().await;
        assert_eq!(capacity(&world, OWN), "2Gi");
        world.set(1, &["www"]);
        world.settled("1/1").await;
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn what_does_not_fit_is_told_or_copied() {
    block_on(async {
        // The class of the template is gone, so that nothing can be copied.
        let (world, _operator) = settled("btrfs", &["www"]).await;
        world.play().used = Bytes::gib(3);
        world.api.delete::<k8s_openapi::api::storage::v1::StorageClass>("hdd");
        world.want("2Gi", "hdd", &json!({}));
        world
            .until("it is told", |status| {
                status.message.as_ref().is_some_and(|why| why.contains("does not fit"))
            })
            .await;
        world.rest().await;
        let shrink = world.ordinal(0).shrink.expect("it is told of");
        assert_eq!(shrink.phase, InPlacePhase::Failed);
        assert_eq!((capacity(&world, OWN), world.told("ShrinkFailed")), ("4Gi".to_owned(), 1));
        assert_eq!(world.left(), Vec::<String>::new());
        // Edited back and forth, with less in it, it is another try.
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.play().used = Bytes::gib(1);
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(capacity(&world, OWN), "2Gi");

        for own in [&[][..], &["www"]] {
            let (world, _operator) = settled("btrfs", own).await;
            world.play().used = Bytes::gib(3);
            world.want("2Gi", "hdd", &json!({}));
            world.until("it is copied", |status| status.ordinals[0].claim_revision == 1).await;
            world.settled("1/1").await;
        }
    });
}

#[test]
fn what_would_shrink_is_only_told_if_that_is_wanted() {
    block_on(async {
        let (world, _operator) = settled("btrfs", &["www"]).await;
        world.want("2Gi", "hdd", &json!({"mode": "DryRun"}));
        world
            .until("it is recommended", |status| {
                let next = status.planned_action.as_ref();
                status.phase == AutoscalerPhase::DryRun
                    && next.is_some_and(|next| next.contains("its pod continues to run"))
            })
            .await;
        world.rest().await;
        assert_eq!(capacity(&world, OWN), "4Gi");
    });
}

#[test]
fn a_claim_that_is_nearly_empty_shrinks_by_itself_under_its_pod() {
    block_on(async {
        let (world, _operator) = settled("btrfs", &["www"]).await;
        let shrink = json!({"minSize": "1Gi", "stabilizationWindow": "1m", "cooldown": "1m"});
        let policy = json!({"maxSize": "100Gi", "cooldown": "1m", "shrink": shrink});
        world.fill(0, 10, 0);
        world.want("4Gi", "hdd", &json!({"autoscale": policy}));
        sizes::until(&world, "it has shrunk", |one| one.autoscaled_size.is_some()).await;
        world.settled("1/1").await;
        assert_eq!((world.claims(), world.told("ShrinkSucceeded")), (vec![OWN.to_owned()], 1));
        assert_ne!(capacity(&world, OWN), "4Gi");
        assert_eq!((world.left(), world.pauses()), (vec![], 0));
    });
}

#[test]
fn a_slow_shrink_is_waited_for_and_a_node_that_cannot_now_is_asked_seldom() {
    block_on(async {
        let (world, _operator) = settled("btrfs", &["www"]).await;
        world.play().shrinks = Shrinks::Slow;
        world.want("2Gi", "hdd", &json!({}));
        world.until("it is told", |status| status.reason.as_deref() == Some("ShrinkPending")).await;
        world.settled("1/1").await;
        assert_eq!((capacity(&world, OWN), world.left()), ("2Gi".to_owned(), vec![]));

        let before = world.api.writes().len();
        world.play().is_read_only = true;
        world.want("1Gi", "hdd", &json!({}));
        world.until("it is told", |status| status.reason.as_deref() == Some("ShrinkPending")).await;
        world.rest().await;
        let asked = world.api.writes().len() - before;
        assert!(asked < 40, "{asked} writes");
        world.play().is_read_only = false;
        world.settled("1/1").await;
        assert_eq!(capacity(&world, OWN), "1Gi");
    });
}

/// Whenever its PvcAutoscaler goes, the claim has what it tells, and grows.
#[test]
fn a_volume_that_shrank_for_nobody_grows_again() {
    let phases = [InPlacePhase::Shrinking, InPlacePhase::UpdatingClaim, InPlacePhase::Unpinning];
    for (phase, slow) in phases.into_iter().flat_map(|phase| [(phase, false), (phase, true)]) {
        block_on(async {
            let (world, _operator) = settled("btrfs", &["www"]).await;
            world.play().shrinks = if slow { Shrinks::Slow } else { Shrinks::AtOnce };
            world.want("2Gi", "hdd", &json!({}));
            world
                .until("it is on its way", |status| {
                    let shrink = status.ordinals[0].shrink.as_ref();
                    shrink.is_some_and(|shrink| shrink.phase == phase)
                })
                .await;
            world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
            world.rest().await;
            world.rest().await;
            let (has, untrue) = (capacity(&world, OWN), world.left());
            let untrue: Vec<_> = untrue.into_iter().filter(|one| one != OWN).collect();
            assert_eq!(untrue, Vec::<String>::new(), "{phase:?}");
            assert!(has == "4Gi" || has == "2Gi", "{phase:?}: {has}");
        });
    }
}
