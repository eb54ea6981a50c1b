//! A user edits and deletes the objects of a swap, which all are in the namespace of the workload.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use pliant::api::{
    AutoscalerPhase, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, PvcSourcePopulator,
    SwapPhase, is_gated,
};
use pliant::testing::FakeApi;
use pliant::volume::Use;
use serde_json::json;

use crate::block_on;
use crate::play::Content;
use crate::world::{SHOP, World, one_pod, restored, swap};

#[test]
fn a_copy_that_a_user_lets_begin_before_its_time_is_kept_and_no_pod_has_it() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let old = world.active(0).name_any();
        // Another process has the device open, so that the volume is not proved unused.
        let volume = world.active(0).spec.unwrap().volume_name.unwrap();
        world.play().held.insert(volume);
        world.want("2Gi", "hdd", &json!({}));
        let is_fenced = |phase| phase == SwapPhase::Fenced;
        world
            .until("it is fenced", |told| swap(told).is_some_and(|swap| is_fenced(swap.phase)))
            .await;
        let mut source = world.api.list::<PvcSourcePopulator>().remove(0);
        source.spec.paused = false;
        world.api.put(&source);
        world.until("it has failed", |told| told.phase == AutoscalerPhase::Failed).await;
        world.play().held.clear();
        world.rest().await;
        assert_eq!((world.active(0).name_any(), world.ordinal(0).claim_revision), (old, 0));
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_pod_that_is_made_before_the_old_volume_is_proved_unused_waits_at_the_gate() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let volume = world.active(0).spec.unwrap().volume_name.unwrap();
        world.play().held.insert(volume);
        world.want("2Gi", "hdd", &json!({}));
        let is_held = |api: &FakeApi| api.list::<Pod>().iter().any(is_gated);
        world.api.until("the next pod waits", is_held).await;
        world.rest().await;
        assert!(is_held(&world.api), "it is let in too early");
        world.play().held.clear();
        world.settled("1/1").await;
        world.write();
        assert_eq!((world.ordinal(0).claim_revision, world.left()), (1, vec![]));
    });
}

#[test]
fn a_new_claim_that_is_deleted_before_its_pod_has_it_gives_the_pod_its_old_one() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let old = world.active(0).name_any();
        let is_switched = |name: &str| *name != *old;
        world.play().starts_no_pod = true;
        world.want("2Gi", "hdd", &json!({}));
        world
            .until("it is switched", |told| {
                told.of(0).is_some_and(|one| is_switched(&one.active_claim))
            })
            .await;
        let new = world.active(0).name_any();
        world.api.delete::<PersistentVolumeClaim>(&format!("{SHOP}/{new}"));
        world.play().starts_no_pod = false;
        let is_back = |told: &PvcAutoscalerStatus| told.reason.as_deref() == Some("RolledBack");
        world.until("the pod has its old claim again", is_back).await;
        world.rest().await;
        assert_eq!(world.active(0).name_any(), old);
        assert_eq!(world.told("SwapFailed"), 1);
        let why = world.texts("SwapFailed").remove(0);
        assert!(why.contains("was deleted before the pod was ready with it"), "{why}");
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_claim_of_another_client_that_takes_the_name_of_a_new_one_stays_as_it_is() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let old = world.active(0).name_any();
        world.play().starts_no_pod = true;
        world.want("2Gi", "hdd", &json!({}));
        let is_switched = |one: &OrdinalStatus| one.active_claim != old;
        world.until("it is switched", |told| told.of(0).is_some_and(is_switched)).await;
        let new = world.active(0).name_any();
        world.api.delete::<PersistentVolumeClaim>(&format!("{SHOP}/{new}"));
        let is_gone =
            |api: &FakeApi| api.get::<PersistentVolumeClaim>(&format!("{SHOP}/{new}")).is_none();
        world.api.until("it is gone", is_gone).await;
        restored(&world, &new, &json!({}), &json!({})).await;
        world.rest().await;
        world.play().starts_no_pod = false;
        let is_back = |told: &PvcAutoscalerStatus| told.reason.as_deref() == Some("RolledBack");
        world.until("the pod has its old claim again", is_back).await;
        world.rest().await;
        assert_eq!(world.active(0).name_any(), old);
        world.write();
        let theirs = world.claim(&new).expect("it is another client's");
        let is_held = theirs.finalizers().iter().any(|one| one == "pliant.io/swap-protection");
        assert!(theirs.labels().is_empty() && !is_held, "{theirs:?}");
        assert!(!theirs.annotations().contains_key("pliant.io/superseded-by"), "{theirs:?}");
        let retained = world.ordinal(0).retained_claims;
        assert!(retained.iter().all(|one| one.name != new), "it goes when its time is over");
        let volume = theirs.spec.unwrap().volume_name.unwrap();
        assert_eq!(world.play().lets(&volume), Use::Any);
        assert!(!matches!(world.play().contents.get(&volume), Some(Content::Whole(_))));
    });
}

/// The swap of the one pod waits for a process that has the old volume open, and the next pod waits at the gate;
/// the volume.
async fn held_open(world: &World) -> String {
    let volume = world.active(0).spec.unwrap().volume_name.unwrap();
    world.play().held.insert(volume.clone());
    world.want("2Gi", "hdd", &json!({}));
    let is_held = |api: &FakeApi| api.list::<Pod>().iter().any(is_gated);
    world.api.until("the next pod waits", is_held).await;
    world.rest().await;
    volume
}

fn set_paused(world: &World, paused: bool) {
    let mut source = world.api.list::<PvcSourcePopulator>().remove(0);
    source.spec.paused = paused;
    world.api.put(&source);
}

fn delete_autoscaler(world: &World) {
    world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
}

/// The process writes once more, and lets go.
fn write_past_all(world: &World, volume: &str) {
    let mut play = world.play();
    play.contents.insert(volume.to_owned(), Content::Whole("wwx".to_owned()));
    play.written.insert("nginx-0".to_owned(), "wwx".to_owned());
    play.held.clear();
}

#[test]
fn a_gate_stays_closed_without_proof_when_the_pvc_autoscaler_is_deleted() {
    for begins_before in [true, false] {
        block_on(async {
            let (world, operator) = one_pod(&[]).await;
            let old = world.active(0).name_any();
            let volume = held_open(&world).await;
            let new = world.ordinal(0).swap.unwrap().claim;
            if begins_before {
                // The operator is down meanwhile, and the copy ends before anybody looks at the swap.
                drop(operator);
                set_paused(&world, false);
                delete_autoscaler(&world);
            } else {
                delete_autoscaler(&world);
                set_paused(&world, false);
                drop(operator);
            }
            let _operator = world.operator();
            for _ in 0..4 {
                world.rest().await;
            }
            let runs_on_new = |pod: &Pod| {
                let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
                let mut claims = volumes.filter_map(|one| one.persistent_volume_claim.as_ref());
                !is_gated(pod) && claims.any(|claim| claim.claim_name == new)
            };
            let is_there = world.claim(&new).is_some();
            let is_let_in = world.api.list::<Pod>().iter().any(runs_on_new);
            assert!(!is_there || !is_let_in, "{begins_before}: it may lack what was written since");
            write_past_all(&world, &volume);
            world.want("4Gi", "hdd", &json!({}));
            world.settled("1/1").await;
            assert_eq!(world.active(0).name_any(), old, "{begins_before}");
            world.write();
        });
    }
}

/// What a tenant writes onto a claim closes no volume.
#[test]
fn no_annotation_of_a_tenant_closes_a_volume_when_the_pvc_autoscaler_is_deleted() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let old = world.active(0).name_any();
        let volume = held_open(&world).await;
        let mut claim = world.claim(&old).unwrap();
        claim.annotations_mut().insert("pliant.io/superseded-by".to_owned(), "any".to_owned());
        world.api.put(&claim);
        delete_autoscaler(&world);
        world.rest().await;
        world.play().held.clear();
        for _ in 0..4 {
            world.rest().await;
        }
        assert_eq!(world.play().lets(&volume), Use::Any, "its pod may have it again");
        assert_eq!(world.play().contents[&volume], Content::Whole("ww".to_owned()));
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.active(0).name_any(), world.told("VolumeSuperseded")), (old, 0));
        world.write();
    });
}
