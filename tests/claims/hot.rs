//! Claims are copied ahead while their pods run.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use pliant::api::{AutoscalerPhase, PvcSourcePopulator, SwapPhase, Verification};
use serde_json::{Value, json};

use crate::block_on;
use crate::play::End;
use crate::world::World;

async fn one_pod(world: &World, more: &Value) {
    world.set(1, &[]);
    world.want("4Gi", "hdd", more);
    world.settled("1/1").await;
    world.write();
}

/// Claims of this access mode and volume mode, which are copied ahead.
fn hot_copy_of(access: &str, mode: &str, size: &str) -> Value {
    json!({"preCopy": true, "volumeClaimTemplate": {
        "metadata": {"name": "www"},
        "spec": {"accessModes": [access], "storageClassName": "hdd", "volumeMode": mode,
                 "resources": {"requests": {"storage": size}}},
    }})
}

/// What was told for this reason.
fn text(world: &World, reason: &str) -> String {
    let all = world.api.list::<Event>();
    let told = all.iter().find(|event| event.reason.as_deref() == Some(reason));
    told.and_then(|event| event.note.clone()).unwrap_or_default()
}

#[test]
fn a_pod_runs_and_writes_while_its_claim_is_copied_ahead() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world, &json!({})).await;
        let (pod, old) = (world.pod("nginx-0"), world.ordinal(0).active_claim);
        world.play().rounds = [1000 << 20, 400 << 20, 300 << 20].into();
        world.want("2Gi", "ssd", &json!({"preCopy": true, "verification": "ChangedOnly"}));
        let phase = |status: &pliant::api::PvcAutoscalerStatus| {
            status.of(0).and_then(|one| one.swap.as_ref()).map(|swap| swap.phase)
        };
        world.until("it is copied ahead", |status| phase(status) == Some(SwapPhase::PreCopy)).await;
        world.api.until("a fill pod runs", |api| !crate::play::fill_pods(api).is_empty()).await;
        let sources = world.api.list::<PvcSourcePopulator>();
        let compare: Vec<_> = sources.iter().map(|source| source.spec.verification).collect();
        assert_eq!(compare, [Verification::ChangedOnly]);
        world.write();
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod.clone(), 0));
        world.settled("1/1").await;
        let entry = world.ordinal(0);
        let last = entry.last_swap.unwrap();
        assert_eq!(
            (last.pre_copy_passes, last.downtime_seconds, &last.claim),
            (3, Some(0), &entry.active_claim)
        );
        assert!(last.completion_time.is_some() && entry.swap.is_none());
        assert_ne!((world.pod("nginx-0"), entry.active_claim), (pod, old));
        let begun = text(&world, "SwapStarted");
        assert!(begun.ends_with("; its claim was pre-copied in 3 passes while it ran"), "{begun}");
        let swapped = text(&world, "SwapSucceeded");
        let ends = "(4Gi → 2Gi, class hdd → ssd); it was down for 0 s; its claim was pre-copied in 3 passes before that";
        assert!(swapped.ends_with(ends), "{swapped}");
        world.write();
        assert_eq!((world.left(), world.told("SwapSucceeded"), world.pauses()), (vec![], 1, 1));
    });
}

#[test]
fn a_raw_device_is_copied_ahead_while_its_pod_runs() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.play().file_system = Some("block");
        let raw = |size: &str| hot_copy_of("ReadWriteOnce", "Block", size);
        one_pod(&world, &raw("4Gi")).await;
        let pod = world.pod("nginx-0");
        world.play().rounds = [1000 << 20, 300 << 20, 200 << 20].into();
        world.want("", "", &raw("2Gi"));
        world.api.until("a fill pod runs", |api| !crate::play::fill_pods(api).is_empty()).await;
        let fill = crate::play::fill_pods(&world.api).remove(0).spec.unwrap().containers.remove(0);
        assert_eq!(
            fill.args.unwrap().join(" "),
            "copy /source /target --pre-copy --result /dev/termination-log --device"
        );
        world.write();
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod.clone(), 0));
        world.settled("1/1").await;
        assert_eq!(world.ordinal(0).last_swap.unwrap().pre_copy_passes, 3);
        assert_ne!(world.pod("nginx-0"), pod);
        let begun = text(&world, "SwapStarted");
        assert!(begun.ends_with("; its claim was pre-copied in 3 passes while it ran"), "{begun}");
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_claim_that_cannot_be_copied_ahead_is_copied_while_its_pod_is_stopped() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let of_one = |size: &str| hot_copy_of("ReadWriteOncePod", "Filesystem", size);
        one_pod(&world, &of_one("4Gi")).await;
        world.want("", "", &of_one("2Gi"));
        world.settled("1/1").await;
        let entry = world.ordinal(0);
        assert_eq!((entry.claim_revision, entry.last_swap.unwrap().pre_copy_passes), (1, 0));
        let begun = text(&world, "SwapStarted");
        assert!(begun.contains("nothing was copied while it ran: claim www-nginx-0-"), "{begun}");
        assert!(begun.contains("is ReadWriteOncePod"), "{begun}");
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn what_does_not_fit_is_known_before_a_pod_is_stopped() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world, &json!({})).await;
        let (pod, old) = (world.pod("nginx-0"), world.ordinal(0).active_claim);
        let said = json!({"outcome": "failed", "reason": "refused", "message": "too small"});
        world.play().ends.push_back(End::Failed(said.to_string()));
        world.want("2Gi", "hdd", &json!({"preCopy": true}));
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        assert_eq!((world.pod("nginx-0"), world.ordinal(0).active_claim), (pod, old));
        let swap = world.ordinal(0).swap.unwrap();
        assert!(swap.message.unwrap().contains("too small"));
        assert_eq!((swap.reason.as_deref(), swap.next_retry_time), (Some("ContentRejected"), None));
        assert_eq!((world.told("SwapStarted"), world.told("SwapFailed")), (0, 1));
        world.write();
        assert_eq!((world.claims().len(), world.left()), (1, vec![]));
    });
}

#[test]
fn what_its_node_tells_not_to_fit_is_known_before_a_pod_is_stopped_for_a_cold_copy() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world, &json!({})).await;
        let (pod, old) = (world.pod("nginx-0"), world.ordinal(0).active_claim);
        world.holds(0, "3Gi", "4Gi");
        world.want("2Gi", "hdd", &json!({}));
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        assert_eq!((world.pod("nginx-0"), world.ordinal(0).active_claim), (pod, old));
        let why = world.ordinal(0).swap.unwrap().message.unwrap();
        assert!(why.contains("holds 3 GiB") && why.contains("does not fit into 2Gi"), "{why}");
        assert_eq!((world.told("SwapStarted"), world.told("SwapFailed")), (0, 1));
        assert_eq!((world.claims().len(), world.left()), (1, vec![]));
        world.want("3500Mi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.write();
    });
}

#[test]
fn rounds_that_fail_are_given_up_and_the_pod_is_stopped_for_all_of_it() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world, &json!({})).await;
        world.play().ends.extend(vec![End::Failed("EIO".to_owned()); 5]);
        world.want("2Gi", "hdd", &json!({"preCopy": true}));
        // Five tries, with pauses that become longer.
        tokio::time::sleep(Duration::from_secs(600)).await;
        world.settled("1/1").await;
        assert_eq!(world.ordinal(0).last_swap.unwrap().pre_copy_passes, 0);
        let begun = text(&world, "SwapStarted");
        assert!(
            begun.contains("nothing was copied while it ran: the last of 5 attempts"),
            "{begun}"
        );
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn a_copy_that_somebody_let_begin_under_the_pod_is_not_used() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world, &json!({})).await;
        let (pod, old) = (world.pod("nginx-0"), world.ordinal(0).active_claim);
        world.play().ends.push_back(End::Hangs);
        world.want("2Gi", "hdd", &json!({"preCopy": true}));
        world.api.until("a fill pod runs", |api| !crate::play::fill_pods(api).is_empty()).await;
        let mut source = world.api.list::<pliant::api::PvcSourcePopulator>().remove(0);
        source.spec.paused = false;
        world.api.put(&source);
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        assert_eq!((world.pod("nginx-0"), world.ordinal(0).active_claim), (pod, old));
        let why = world.ordinal(0).swap.unwrap().message.unwrap();
        assert!(why.starts_with("another client set spec.paused"), "{why}");
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn hot_copy_that_is_switched_off_stops_the_pod_at_once() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        one_pod(&world, &json!({})).await;
        world.play().ends.push_back(End::Hangs);
        world.want("2Gi", "hdd", &json!({"preCopy": true}));
        world.api.until("a fill pod runs", |api| !crate::play::fill_pods(api).is_empty()).await;
        world.rest().await;
        assert_eq!(world.told("SwapStarted"), 0);
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.write();
        assert_eq!((world.ordinal(0).claim_revision, world.left()), (1, vec![]));
    });
}
