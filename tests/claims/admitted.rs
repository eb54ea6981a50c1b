//! A pod is stopped only when the pods that copy its claim may be made and run; and it has its claim again if
//! that is so no more.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use pliant::api::{
    AutoscalerPhase, Filling, PvcAutoscalerStatus, PvcSourcePopulator, Swap, SwapPhase,
};
use pliant::testing::FakeApi;
use serde_json::{Value, json};

use crate::block_on;
use crate::play::{End, fill_pods, is_running, object};
use crate::world::{FULL, SHOP, World, one_pod, refuse_copies, swap};

fn is_fill(pod: &Value) -> bool {
    !pod["metadata"]["labels"]["pliant.io/populator"].is_null()
}

/// Every pod that copies is refused.
fn refuse_fills(world: &World) {
    world.api.guard("pods", |pod, _| is_fill(pod).then(|| FULL.to_owned()));
}

fn condition(status: &PvcAutoscalerStatus, kind: &str) -> (String, String) {
    let one = status.conditions.iter().find(|one| one.type_ == kind).expect("a condition");
    (one.status.clone(), one.reason.clone())
}

fn is_stalled(status: &PvcAutoscalerStatus, reason: &str) -> bool {
    status.reason.as_deref() == Some(reason)
}

#[test]
fn a_pod_goes_on_while_the_pods_that_would_copy_its_claim_are_refused() {
    for own in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = one_pod(own).await;
            let pod = world.pod("nginx-0");
            refuse_fills(&world);
            world.want("2Gi", "ssd", &json!({}));
            world.until("it is told", |status| is_stalled(status, "PopulatorCreationError")).await;
            world.rest().await;
            let status = world.status();
            let message = status.message.clone().unwrap();
            assert!(message.contains("is not stopped until its claim can be copied"), "{message}");
            assert!(message.contains(FULL), "{message}");
            assert_eq!(
                condition(&status, "Stalled"),
                ("True".to_owned(), "PopulatorCreationError".to_owned())
            );
            assert_eq!(swap(&status).unwrap().phase, SwapPhase::Pending);
            assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
            let events = world
                .api
                .list::<Event>()
                .into_iter()
                .filter(|event| event.reason.as_deref() == Some("PopulatorCreationError"));
            let of: Vec<String> =
                events.filter_map(|event| event.regarding.and_then(|of| of.kind)).collect();
            assert!(of.contains(&"PersistentVolumeClaim".to_owned()), "{of:?}");
            assert_eq!(of.len(), 2, "on the claim and on the PvcAutoscaler, once each");
            assert!(!world.api.rehearsals().is_empty(), "the very pod was made in a dry run");
            world.api.unguard("pods");
            world.settled("1/1").await;
            assert_eq!((world.told("SwapSucceeded"), world.play().probes), (1, 1));
            world.write();
            assert_eq!(world.left(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_pod_goes_on_while_the_pods_that_would_copy_its_claim_ahead_are_refused() {
    for own in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = one_pod(own).await;
            let pod = world.pod("nginx-0");
            let hot = json!({"preCopy": true});
            world.play().rounds = [1000 << 20, 300 << 20, 200 << 20].into();
            refuse_fills(&world);
            world.want("2Gi", "ssd", &hot);
            world.until("it is told", |status| is_stalled(status, "PopulatorCreationError")).await;
            // Longer than a pod waits that is stopped.
            tokio::time::sleep(Duration::from_mins(30)).await;
            let status = world.status();
            let swap = swap(&status).unwrap();
            assert_eq!(swap.phase, SwapPhase::PreCopy);
            for said in [&status.message, &status.progress, &swap.message] {
                let said = said.clone().unwrap_or_default();
                assert!(said.contains(FULL), "{said}");
            }
            let message = status.message.clone().unwrap();
            assert!(message.contains("is not stopped until its claim can be copied"), "{message}");
            assert_eq!(
                condition(&status, "Stalled"),
                ("True".to_owned(), "PopulatorCreationError".to_owned())
            );
            assert_eq!(
                world.told("PopulatorCreationError"),
                2,
                "on the claim and on the PvcAutoscaler"
            );
            assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod.clone(), 0));
            world.write();

            // Edited back, it ends at once.
            world.want("4Gi", "hdd", &hot);
            world.settled("1/1").await;
            assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
            assert_eq!((world.told("SwapFailed"), world.left()), (0, vec![]));

            // As soon as they may be made, it is copied ahead as if they always had been.
            world.want("2Gi", "ssd", &hot);
            world.until("it is told", |status| is_stalled(status, "PopulatorCreationError")).await;
            world.api.unguard("pods");
            world.settled("1/1").await;
            assert_eq!(world.ordinal(0).last_swap.unwrap().pre_copy_passes, 3);
            assert_eq!((world.told("SwapSucceeded"), world.told("SwapFailed")), (1, 0));
            world.write();
            assert_eq!(world.left(), Vec::<String>::new());
        });
    }
}

/// What the scheduler says of a pod that finds no node.
const NO_NODE: &str = "0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: db}";

/// What is told of the new claim of the swap, in the status of what that is filled from.
fn told_of_copy(api: &FakeApi) -> Option<Filling> {
    let source = api.list::<PvcSourcePopulator>().pop()?;
    source.status?.claims.pop()
}

/// Keeps the pods that copy from it.
type HoldUp = fn(&World);

#[test]
fn what_a_swap_waits_for_stands_in_the_status_of_its_claims_and_of_their_source() {
    let waits: [(&str, &str, HoldUp); 3] = [
        ("PopulatorCreationError", FULL, refuse_fills),
        ("PopulatorPodPending", NO_NODE, |world| world.play().unschedulable = Some(NO_NODE)),
        ("PopulatorRescheduled", "no volume could be created on node alpha", |world| {
            world.play().full.insert("alpha".to_owned());
        }),
    ];
    for (reason, words, hold_up) in waits {
        for is_hot in [false, true] {
            block_on(async {
                let (world, _operator) = one_pod(&[]).await;
                hold_up(&world);
                world.want("2Gi", "hdd", &json!({ "preCopy": is_hot }));
                let told = |api: &FakeApi| {
                    let told = told_of_copy(api)?;
                    let is_why = told.reason.as_deref() == Some(reason)
                        && told.message.as_ref().is_some_and(|why| why.contains(words));
                    is_why.then_some(told)
                };
                world.api.until("its source says why", |api| told(api).is_some()).await;
                world
                    .until("the swap says the same", |status| {
                        let said = swap(status).and_then(|swap| swap.message);
                        let told = told(&world.api).and_then(|told| told.message);
                        said.is_some() && said == told
                    })
                    .await;
                let (told, status) = (told_of_copy(&world.api).unwrap(), world.status());
                let swap = swap(&status).unwrap();
                assert_eq!(told.name, swap.claim, "it is of that claim");
                assert_eq!(Some(told.uid), world.claim(&swap.claim).unwrap().metadata.uid);
                assert!(status.message.is_some_and(|why| why.contains(words)), "{reason}");
                assert_eq!(status.reason.as_deref(), Some(reason));
                // It is over as soon as nothing is wanted any more.
                world.want("4Gi", "hdd", &json!({ "preCopy": is_hot }));
                world.settled("1/1").await;
                assert_eq!((told_of_copy(&world.api), world.left()), (None, vec![]));
            });
        }
    }
}

#[test]
fn what_only_the_pod_with_the_source_is_refused_for_is_known_before_too() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let pod = world.pod("nginx-0");
        let mounts_source = |pod: &Value| pod["spec"]["volumes"].to_string().contains("source");
        world.api.guard("pods", move |pod, _| {
            mounts_source(pod).then(|| "no pod may read another one's claim".to_owned())
        });
        world.want("2Gi", "ssd", &json!({}));
        world.until("it is told", |status| is_stalled(status, "PopulatorCreationError")).await;
        world.rest().await;
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
        world.api.unguard("pods");
        world.settled("1/1").await;
        world.write();
    });
}

#[test]
fn a_pod_goes_on_while_the_pod_that_tries_it_finds_no_node_or_fails() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let pod = world.pod("nginx-0");
        world.play().unschedulable = Some(NO_NODE);
        world.want("2Gi", "ssd", &json!({}));
        world.until("it is told", |status| is_stalled(status, "PopulatorPodPending")).await;
        tokio::time::sleep(Duration::from_mins(30)).await;
        let message = world.status().message.unwrap();
        assert!(message.contains(NO_NODE), "{message}");
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod.clone(), 0));

        // Edited back, it ends at once, and no pod was stopped.
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
        assert_eq!((world.told("SwapFailed"), world.left()), (0, vec![]));
        assert!(fill_pods(&world.api).is_empty());
    });
}

#[test]
fn a_claim_that_is_refused_and_not_wanted_any_more_stops_no_pod() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let pod = world.pod("nginx-0");
        world.api.guard("persistentvolumeclaims", |claim, _| {
            let size = &claim["spec"]["resources"]["requests"]["storage"];
            (size == "2Gi").then(|| "minimum storage usage per claim is 3Gi".to_owned())
        });
        world.want("2Gi", "hdd", &json!({}));
        world.until("it is told", |status| is_stalled(status, "ClaimForbidden")).await;
        assert!(swap(&world.status()).is_some());
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 0));
        assert_eq!((world.told("SwapFailed"), world.left()), (0, vec![]));
    });
}

/// The pods that copy are refused from the moment at which the pod is stopped.
async fn refused_after_the_stop(world: &World) -> Swap {
    refuse_copies(world);
    world.want("2Gi", "ssd", &json!({}));
    world.until("it is told", |status| is_stalled(status, "PopulatorCreationError")).await;
    let status = world.status();
    let message = status.message.clone().unwrap();
    assert!(message.contains("is stopped, and gets its old claim back at"), "{message}");
    assert!(message.contains(FULL), "{message}");
    assert_eq!(
        condition(&status, "Stalled"),
        ("True".to_owned(), "PopulatorCreationError".to_owned())
    );
    swap(&status).unwrap()
}

#[test]
fn a_pod_has_its_claim_again_if_nothing_copies_that_for_too_long() {
    for own in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = one_pod(own).await;
            let before = world.ordinal(0).active_claim;
            refused_after_the_stop(&world).await;
            tokio::time::sleep(Duration::from_mins(9)).await;
            assert_eq!(swap(&world.status()).unwrap().phase, SwapPhase::FinalCopy);
            tokio::time::sleep(Duration::from_mins(2)).await;
            let pod: Option<Pod> = world.api.get(&format!("{SHOP}/nginx-0"));
            let is_back = pod
                .is_some_and(|pod| is_running(&pod) && pod.metadata.deletion_timestamp.is_none());
            assert!(is_back, "eleven minutes after it was stopped the pod runs again");
            tokio::time::sleep(Duration::from_mins(1)).await;
            let status = world.status();
            assert_eq!(status.phase, AutoscalerPhase::Failed);
            let message = status.message.unwrap();
            assert!(
                message.contains("was down for 10 minutes and nothing was copied"),
                "{message}"
            );
            assert!(message.contains(FULL), "{message}");
            assert_eq!(world.ordinal(0).active_claim, before);
            world.write();
            assert_eq!(world.left(), Vec::<String>::new());
            assert_eq!((world.told("SwapFailed"), world.told("SwapStarted")), (1, 1));

            // The next try finds it out while the pod runs.
            world.api.unguard("pods");
            refuse_fills(&world);
            let pod = world.pod("nginx-0");
            tokio::time::sleep(Duration::from_hours(2)).await;
            assert!(is_stalled(&world.status(), "PopulatorCreationError"));
            assert_eq!((world.pod("nginx-0"), world.told("SwapStarted")), (pod, 1));
            world.api.unguard("pods");
            world.settled("1/1").await;
            world.write();
        });
    }
}

#[test]
fn a_template_that_is_edited_back_gives_a_stopped_pod_its_claim_again() {
    for own in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = one_pod(own).await;
            let before = world.ordinal(0).active_claim;
            refused_after_the_stop(&world).await;
            world.want("4Gi", "hdd", &json!({}));
            world.settled("1/1").await;
            assert_eq!(world.ordinal(0).active_claim, before);
            assert_eq!((world.told("SwapAborted"), world.told("SwapFailed")), (1, 0));
            world.write();
            assert_eq!(world.left(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_swap_is_given_up_for_a_person_and_nothing_else_is_done() {
    for own in [&[][..], &["www"]] {
        block_on(async {
            let (world, _operator) = one_pod(own).await;
            // One that has ended, which is not to be undone.
            world.want("3Gi", "ssd", &json!({}));
            world.settled("1/1").await;
            world.write();
            let before = world.ordinal(0);
            let swap = refused_after_the_stop(&world).await;
            let abort = json!({"abort": [{"ordinal": 0, "specGeneration": swap.spec_generation}]});
            world.want("2Gi", "ssd", &abort);
            world.until("it is given up", |status| is_stalled(status, "SwapAborted")).await;
            tokio::time::sleep(Duration::from_hours(5)).await;
            let after = world.ordinal(0);
            assert_eq!(
                (&after.active_claim, after.claim_revision),
                (&before.active_claim, before.claim_revision)
            );
            assert_eq!((after.swap.clone(), after.retained_claims.len()), (None, 1));
            assert_eq!(world.status().ready_claims(), "0/1", "it is not as the template has it");
            world.write();
            assert_eq!(world.left(), Vec::<String>::new());
            assert_eq!((world.told("SwapAborted"), world.told("SwapFailed")), (1, 0));
            assert_eq!((world.told("SwapStarted"), world.told("RolledBack")), (2, 0));

            world.api.unguard("pods");
            let pod = world.pod("nginx-0");
            world.want("2Gi", "ssd", &json!({"abort": abort["abort"], "retention": "1d"}));
            world.rest().await;
            assert_eq!(world.pod("nginx-0"), pod, "another edit than one of the template is none");
            world.want("1Gi", "ssd", &abort);
            world.settled("1/1").await;
            world.write();
        });
    }
}

#[test]
fn a_copy_that_runs_is_given_up_for_a_person_too() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        world.play().ends.push_back(End::Hangs);
        world.want("2Gi", "ssd", &json!({}));
        let copies = |status: &PvcAutoscalerStatus| {
            swap(status)
                .is_some_and(|swap| swap.phase == SwapPhase::FinalCopy && swap.progress.is_some())
        };
        world.until("it is copied", copies).await;
        let generation = swap(&world.status()).unwrap().spec_generation;
        world.want("2Gi", "ssd", &json!({"abort": [{"ordinal": 0, "specGeneration": generation}]}));
        world.until("it is given up", |status| is_stalled(status, "SwapAborted")).await;
        world.rest().await;
        world.write();
        assert_eq!(world.left(), Vec::<String>::new());
    });
}

#[test]
fn the_pods_that_copy_tolerate_what_the_pods_of_the_workload_do() {
    block_on(async {
        let (world, _operator) = one_pod(&[]).await;
        let toleration =
            json!({"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoExecute"});
        world.api.put(&object::<StatefulSet>(json!({
            "metadata": {"name": "nginx", "namespace": SHOP},
            "spec": {"replicas": 1, "selector": {}, "serviceName": "nginx", "template": {"spec": {
                "containers": [], "tolerations": [toleration], "priorityClassName": "high"}}},
        })));
        world.play().probe_ends.push_back(End::Hangs);
        world.want("2Gi", "ssd", &json!({}));
        world
            .api
            .until("a pod tries it", |api| fill_pods(api).iter().any(|pod| pod.spec.is_some()))
            .await;
        let source = &world.api.list::<PvcSourcePopulator>()[0].spec.populator_pod;
        assert_eq!(source.priority_class_name.as_deref(), Some("high"));
        let pod: Pod = fill_pods(&world.api).remove(0);
        let spec = serde_json::to_value(pod.spec.unwrap()).unwrap();
        assert_eq!(spec["priorityClassName"], "high");
        assert!(spec["tolerations"].as_array().unwrap().contains(&toleration), "{spec}");
    });
}
