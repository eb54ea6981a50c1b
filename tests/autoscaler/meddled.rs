//! A user edits and deletes the objects of a swap, which all are in the namespace of the workload.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use pliant::api::{AutoscalerPhase, PvcAutoscalerStatus, PvcSourcePopulator, SwapPhase, is_gated};
use pliant::testing::FakeApi;
use serde_json::json;

use crate::block_on;
use crate::world::{SHOP, one_pod, swap};

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
        assert_eq!((world.active(0).name_any(), world.ordinal(0).generation), (old, 0));
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
        assert_eq!((world.ordinal(0).generation, world.left()), (1, vec![]));
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
