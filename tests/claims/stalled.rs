//! A swap that goes on no more while its pod is down: its pod has its old claim again, or status and events say
//! what it waits for.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pliant::api::{AutoscalerPhase, PvcAutoscalerStatus, SwapPhase};
use pliant::claims::AutoscalerReason;
use pliant::testing::FakeApi;
use serde_json::{Value, json};

use crate::block_on;
use crate::play::{End, Shrinks, fill_pods, is_running, object};
use crate::preflight::{another_node, room};
use crate::world::{SHOP, World, one_pod, swap};

fn is_in(phase: SwapPhase) -> impl Fn(&PvcAutoscalerStatus) -> bool {
    move |status| swap(status).is_some_and(|swap| swap.phase == phase)
}

/// What the status says, in its message and in the one condition that is true: `Stalled` if a person has to act.
fn stalled(status: &PvcAutoscalerStatus) -> (String, String) {
    let mut holds = status.conditions.iter().filter(|one| one.status == "True");
    let condition = holds.next().unwrap();
    assert!(holds.next().is_none(), "{:?}", status.conditions);
    let reason = AutoscalerReason::ALL.into_iter().find(|one| one.to_string() == condition.reason);
    let needs_action = reason.is_some_and(AutoscalerReason::needs_action);
    assert_eq!(condition.type_, if needs_action { "Stalled" } else { "Reconciling" });
    assert_eq!(Some(&condition.reason), status.reason.as_ref());
    assert_eq!(Some(&condition.message), status.message.as_ref());
    (condition.reason.clone(), condition.message.clone())
}

/// The pod that copies, as soon as it does.
async fn copying(world: &World) -> Pod {
    let fills = |pod: &Pod| is_running(pod) && pod.name_any().starts_with("prime-");
    let runs = |api: &FakeApi| fill_pods(api).into_iter().find(fills);
    let is_final = is_in(SwapPhase::FinalCopy);
    world.until("it is copied", |status| is_final(status)).await;
    world.api.until("a pod copies", |api| runs(api).is_some()).await;
    runs(&world.api).unwrap()
}

fn runs(world: &World, name: &str) -> bool {
    world.api.get::<Pod>(&format!("{SHOP}/{name}")).is_some_and(|pod| is_running(&pod))
}

#[test]
fn a_pod_has_its_claim_again_if_its_copy_copies_nothing_for_too_long() {
    for own in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = one_pod(own).await;
            let before = world.ordinal(0).active_claim;
            world.play().ends.push_back(End::Hangs);
            world.want("2Gi", "ssd", &json!({}));
            let pod = copying(&world).await;
            tokio::time::sleep(Duration::from_mins(9)).await;
            assert_eq!(world.status().reason, None, "a disk may take as long");
            tokio::time::sleep(Duration::from_mins(2)).await;
            let (reason, message) = stalled(&world.status());
            assert_eq!(reason, "PopulatorPodPending");
            let says = format!(
                "pod {}, which populates the volume, runs but has copied nothing since",
                pod.name_any()
            );
            assert!(message.contains(&says), "{message}");
            assert!(message.contains("is stopped, and gets its old claim back at"), "{message}");
            assert!(is_in(SwapPhase::FinalCopy)(&world.status()));
            tokio::time::sleep(Duration::from_mins(11)).await;
            let status = world.status();
            assert_eq!(status.phase, AutoscalerPhase::Failed, "{status:#?}");
            let message = status.message.unwrap();
            assert!(
                message.contains("was down for 10 minutes and nothing was copied"),
                "{message}"
            );
            assert_eq!(world.ordinal(0).active_claim, before);
            assert!(runs(&world, "nginx-0"));
            world.write();
            assert_eq!(world.left(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_copy_that_goes_on_late_goes_on() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        world.play().ends.push_back(End::Hangs);
        world.want("2Gi", "ssd", &json!({}));
        copying(&world).await;
        tokio::time::sleep(Duration::from_mins(15)).await;
        assert_eq!(stalled(&world.status()).0, "PopulatorPodPending");
        world.play().end_hanging();
        // Somebody writes to an object, so that those who play look again.
        world.want("2Gi", "ssd", &json!({"retention": "1d"}));
        world.settled("1/1").await;
        world.write();
        assert_eq!(world.told("SwapFailed"), 0);
    });
}

/// The node of a pod does not respond: Kubernetes says so of the pod, and its log cannot be read.
fn fall_silent(world: &World, pod: &Pod, is_deleted: bool) {
    let mut silent =
        serde_json::to_value(world.api.get::<Pod>(&format!("{SHOP}/{}", pod.name_any()))).unwrap();
    silent["spec"]["nodeName"] = json!("beta");
    silent["status"]["conditions"] =
        json!([{"type": "Ready", "status": "False", "lastTransitionTime": Timestamp::now()}]);
    // Whoever deletes it, its kubelet does not let it go.
    silent["metadata"]["finalizers"] = json!(["example.com/its-kubelet"]);
    if is_deleted {
        silent["metadata"]["deletionTimestamp"] = json!(Timestamp::now());
    }
    world.api.put(&object::<Pod>(silent));
    world.api.put_log(&format!("{SHOP}/{}/populator", pod.name_any()), "");
}

#[test]
fn a_pod_has_its_claim_again_if_the_node_of_its_copy_does_not_respond() {
    for is_deleted in [false, true] {
        block_on(async {
            let (world, _operator) = one_pod(&[]).await;
            let before = world.ordinal(0).active_claim;
            room(&world, None);
            another_node(&world);
            world.play().ends.push_back(End::Hangs);
            world.want("2Gi", "hdd", &json!({}));
            let pod = copying(&world).await;
            fall_silent(&world, &pod, is_deleted);
            tokio::time::sleep(Duration::from_mins(3)).await;
            let (reason, message) = stalled(&world.status());
            assert_eq!(reason, "PopulatorPodPending");
            assert!(message.contains("`kubectl describe node beta`"), "{message}");
            assert!(message.contains("is stopped, and gets its old claim back at"), "{message}");
            tokio::time::sleep(Duration::from_mins(10)).await;
            // Its pod is still there, and so is the claim that it would have filled.
            assert!(fill_pods(&world.api).iter().any(|one| one.uid() == pod.uid()));
            let status = world.status();
            assert!(is_in(SwapPhase::RollingBack)(&status), "{status:#?}");
            let (reason, message) = stalled(&status);
            assert_eq!(reason, "PopulatorPodPending");
            assert!(message.contains("check node beta"), "{message}");
            assert_eq!(world.ordinal(0).active_claim, before);
            assert!(runs(&world, "nginx-0"), "it has its old claim");
            world.write();

            // The node is back, or given up for good.
            let mut gone: Pod = world.api.get(&format!("{SHOP}/{}", pod.name_any())).unwrap();
            gone.finalizers_mut().clear();
            world.api.put(&gone);
            world.api.delete::<Pod>(&format!("{SHOP}/{}", pod.name_any()));
            let has_failed = |status: &PvcAutoscalerStatus| status.phase == AutoscalerPhase::Failed;
            world.until("it has failed", has_failed).await;
            world.rest().await;
            world.write();
            assert_eq!(world.left(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_pod_has_its_claim_again_if_its_exchange_does_not_begin() {
    block_on(async {
        let (world, _operator) = one_pod(&["www"]).await;
        world.play().shrinks = Shrinks::Left;
        world.want("2Gi", "ssd", &json!({}));
        let is_exchanging = is_in(SwapPhase::Rebinding);
        world.until("it is exchanged", |status| is_exchanging(status)).await;
        tokio::time::sleep(Duration::from_mins(9)).await;
        assert!(is_exchanging(&world.status()));
        tokio::time::sleep(Duration::from_mins(3)).await;
        let status = world.status();
        assert!(is_in(SwapPhase::RollingBack)(&status), "{status:#?}");
        assert!(runs(&world, "nginx-0"), "it has its old volume");
        let (reason, message) = stalled(&status);
        assert_eq!(reason, "ClaimConflict", "there is a whole copy, which a person may delete");
        assert!(message.contains("has a copy that is not used"), "{message}");
        let why = swap(&status).unwrap().message.unwrap();
        assert!(why.contains("was down for 10 minutes and the swap made no progress"), "{why}");
        world.write();
        world.delete_claim(&swap(&status).unwrap().claim);
        let has_failed = |status: &PvcAutoscalerStatus| status.phase == AutoscalerPhase::Failed;
        world.until("it has failed", has_failed).await;
        world.write();
    });
}

#[test]
fn an_exchange_that_has_begun_says_what_it_waits_for() {
    block_on(async {
        let (world, _operator) = one_pod(&["www"]).await;
        let forbidden = "no PersistentVolume may be made by hand";
        let is_by_hand = |pv: &Value| !pv["metadata"]["annotations"]["pliant.io/rebind"].is_null();
        world
            .api
            .guard("persistentvolumes", move |pv, _| is_by_hand(pv).then(|| forbidden.to_owned()));
        world.want("2Gi", "ssd", &json!({}));
        let is_told = |status: &PvcAutoscalerStatus| {
            status.message.as_ref().is_some_and(|message| message.contains(forbidden))
        };
        world.until("it is told", is_told).await;
        tokio::time::sleep(Duration::from_mins(30)).await;
        let status = world.status();
        assert!(is_in(SwapPhase::Rebinding)(&status), "nothing leads back: {status:#?}");
        let (_, message) = stalled(&status);
        assert!(message.contains(forbidden), "{message}");
        world.api.unguard("persistentvolumes");
        world.settled("1/1").await;
        world.write();
    });
}
