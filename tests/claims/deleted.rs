//! Somebody deletes the claim of a pod that is to get another one.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use pliant::api::{
    AutoscalerPhase, GATE, InPlacePhase, PvcAutoscaler, PvcSourcePopulator, SwapPhase,
};
use pliant::testing::{FakeApi, Lines};
use serde_json::json;

use crate::block_on;
use crate::play::{Content, End, object};
use crate::world::{SHOP, World};

/// A pod with what it has written, and the name of its claim.
async fn one_pod(world: &World) -> String {
    world.set(1, &[]);
    world.want("4Gi", "hdd", &json!({}));
    world.settled("1/1").await;
    world.write();
    world.ordinal(0).active_claim
}

fn delete(world: &World, claim: &str) {
    world.api.delete::<PersistentVolumeClaim>(&format!("{SHOP}/{claim}"));
}

fn volume(world: &World, claim: &str) -> String {
    world.claim(claim).unwrap().spec.unwrap().volume_name.unwrap()
}

fn is_held(claim: &PersistentVolumeClaim) -> bool {
    claim.finalizers().iter().any(|one| one == "pliant.io/swap-protection")
}

/// Until its pod is gone and its copy has not begun.
async fn stopped(world: &World, old: &str) {
    let volume = volume(world, old);
    world.play().held.insert(volume);
    world.want("2Gi", "hdd", &json!({}));
    let waits = |phase| phase == SwapPhase::Fenced;
    world
        .until("it is fenced", |status| {
            status.of(0).and_then(|one| one.swap.as_ref()).is_some_and(|swap| waits(swap.phase))
        })
        .await;
    world.rest().await;
    assert!(is_held(&world.claim(old).unwrap()));
}

/// The volume stays, with all that the pod wrote.
fn stays_whole(world: &World, volume: &str) {
    let pv: PersistentVolume = world.api.get(volume).expect("its volume stays");
    let policy = pv.spec.unwrap().persistent_volume_reclaim_policy;
    assert_eq!(policy.as_deref(), Some("Retain"));
    assert_eq!(world.play().contents[volume], Content::Whole("ww".to_owned()));
}

#[test]
fn what_no_copy_has_begun_of_stays_as_a_volume_and_that_is_told() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world).await;
        let volume = volume(&world, &old);
        stopped(&world, &old).await;
        delete(&world, &old);
        world.rest().await;
        assert!(world.claim(&old).is_some(), "it stays until the swap is given up");
        world.play().held.clear();
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        assert!(world.claim(&old).is_none());
        stays_whole(&world, &volume);
        let message = world.status().message.unwrap_or_default();
        assert!(message.contains(&format!("Its volume {volume} is retained")), "{message}");
        assert_eq!(world.told("SwapFailed"), 1);
        let texts = world.texts("VolumeRetained");
        assert_eq!(texts.len(), 1, "{texts:?}");
        let says =
            format!("claim {old} was deleted during a swap, and PersistentVolume {volume} has");
        assert!(texts[0].starts_with(&says), "{texts:?}");
    });
}

#[test]
fn no_annotation_of_a_tenant_has_the_only_copy_deleted() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world).await;
        let volume = volume(&world, &old);
        stopped(&world, &old).await;
        let mut claim = world.claim(&old).unwrap();
        claim.annotations_mut().insert("pliant.io/superseded-by".to_owned(), "any".to_owned());
        world.api.put(&claim);
        delete(&world, &old);
        world.rest().await;
        world.play().held.clear();
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        assert!(world.claim(&old).is_none());
        stays_whole(&world, &volume);
    });
}

/// A user does what is written everywhere about a claim that hangs in its deletion.
fn strip_finalizers(world: &World, claim: &str) {
    let mut changed = world.claim(claim).unwrap();
    changed.metadata.finalizers = None;
    world.api.put(&changed);
    if changed.metadata.deletion_timestamp.is_some() {
        delete(world, claim); // Nothing keeps it.
    }
}

#[test]
fn a_claim_whose_finalizers_are_taken_off_leaves_the_only_copy_as_a_volume() {
    block_on(async {
        for is_stripped_first in [true, false] {
            let (world, _operator) = World::with_an_operator();
            let old = one_pod(&world).await;
            let volume = volume(&world, &old);
            stopped(&world, &old).await;
            if is_stripped_first {
                strip_finalizers(&world, &old);
                delete(&world, &old);
            } else {
                delete(&world, &old);
                strip_finalizers(&world, &old);
            }
            assert!(world.claim(&old).is_none(), "nothing keeps it");
            world.play().held.clear();
            world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
            world.rest().await;
            stays_whole(&world, &volume);
        }
    });
}

#[test]
fn the_volume_of_a_claim_that_a_swap_has_held_has_its_own_policy_again() {
    block_on(async {
        for is_stripped in [false, true] {
            let (world, _operator) = World::with_an_operator();
            let old = one_pod(&world).await;
            let volume = volume(&world, &old);
            let policy = |world: &World| {
                let pv: Option<PersistentVolume> = world.api.get(&volume);
                pv.map(|pv| pv.spec.unwrap().persistent_volume_reclaim_policy.unwrap_or_default())
            };
            assert_eq!(policy(&world).as_deref(), Some("Delete"));
            stopped(&world, &old).await;
            assert_eq!(policy(&world).as_deref(), Some("Retain"), "a swap holds it");
            if is_stripped {
                strip_finalizers(&world, &old);
            }
            world.play().held.clear();
            world.settled("1/1").await;
            assert!(!is_held(&world.claim(&old).unwrap()));
            assert_eq!(policy(&world).as_deref(), Some("Delete"));
            world.want("2Gi", "hdd", &json!({"retention": "1h"}));
            tokio::time::sleep(Duration::from_secs(7200)).await;
            assert_eq!((world.claim(&old), policy(&world)), (None, None), "its time is over");
        }
    });
}

#[test]
fn a_copy_that_runs_is_ended_and_the_pod_has_all() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world).await;
        world.play().ends.push_back(End::Hangs);
        world.want("2Gi", "hdd", &json!({}));
        world
            .api
            .until("a fill pod runs", |api| {
                crate::play::fill_pods(api).iter().any(crate::play::is_running)
            })
            .await;
        delete(&world, &old);
        world.rest().await;
        world.play().end_hanging();
        world.settled("1/1").await;
        assert_eq!(world.ordinal(0).claim_revision, 1);
        assert!(world.claim(&old).is_none(), "as it was asked for");
        world.write();
        assert_eq!(world.play().written["nginx-0"], "wwww");
    });
}

#[test]
fn a_claim_that_was_held_for_a_swap_is_let_go_in_the_end() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world).await;
        stopped(&world, &old).await;
        // Deleted midway, the PvcAutoscaler lets go of nothing by itself.
        world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
        world.rest().await;
        assert!(!is_held(&world.claim(&old).unwrap()));
        world.play().held.clear();
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert!(!is_held(&world.claim(&old).unwrap()) && !is_held(&world.active(0)));
        world.write();
    });
}

#[test]
fn what_is_done_for_an_object_is_logged_with_its_name() {
    block_on(async {
        let (lines, (world, _operator)) = (Lines::begin(), World::with_an_operator());
        let old = one_pod(&world).await;
        stopped(&world, &old).await;
        world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
        world.rest().await;
        for (message, controller, object) in [
            ("applying a step to claims", "pvcautoscalers", format!("{SHOP}/nginx")),
            (
                "releasing a held claim that no swap refers to",
                "held claims",
                format!("{SHOP}/{old}"),
            ),
        ] {
            let said = lines.with(message);
            assert!(!said.is_empty(), "{message}");
            for one in said {
                let span = json!({"name": "reconcile", "controller": controller, "object": object});
                assert_eq!(one["span"], span, "{message}");
            }
        }
    });
}

/// A claim of a tenant's own, with a volume that goes when it goes.
fn tenants_claim(world: &World, name: &str) {
    let of_claim = json!({"kind": "PersistentVolumeClaim", "namespace": SHOP, "name": name,
                          "uid": format!("uid-of-{name}")});
    world.api.put(&object::<PersistentVolume>(json!({
        "metadata": {"name": format!("pv-{name}")},
        "spec": {"persistentVolumeReclaimPolicy": "Delete", "claimRef": of_claim,
                 "csi": {"driver": "other.example.com", "volumeHandle": name}},
    })));
    world.api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": name, "namespace": SHOP, "uid": format!("uid-of-{name}"),
                     "finalizers": ["pliant.io/swap-protection"]},
        "spec": {"volumeName": format!("pv-{name}")}, "status": {"phase": "Bound"},
    })));
}

#[test]
fn a_finalizer_that_no_swap_wrote_keeps_no_volume() {
    block_on(async {
        let world = World::new();
        tenants_claim(&world, "mine");
        delete(&world, "mine");
        assert!(world.claim("mine").is_some(), "its finalizer keeps it");
        let _operator = world.operator();
        world.rest().await;
        assert!(world.claim("mine").is_none());
        let pv: Option<PersistentVolume> = world.api.get("pv-mine");
        let policy = pv.and_then(|pv| pv.spec?.persistent_volume_reclaim_policy);
        assert!([None, Some("Delete".to_owned())].contains(&policy), "{policy:?}");
    });
}

#[test]
fn a_finalizer_that_a_tenant_writes_first_does_not_keep_a_swap_from_holding_its_claim() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let old = one_pod(&world).await;
        let named = volume(&world, &old);
        world.play().held.insert(named.clone());
        // The swap has begun, and does not hold its claim yet.
        world.play().full.insert("alpha".to_owned());
        world.want("2Gi", "hdd", &json!({}));
        until_swap_is(&world, SwapPhase::Pending).await;
        world.rest().await;
        let mut claim = world.claim(&old).unwrap();
        assert!(!is_held(&claim));
        claim.finalizers_mut().push("pliant.io/swap-protection".to_owned());
        world.api.put(&claim);
        world.play().full.clear();
        world
            .until("it is fenced", |status| {
                let swap = status.of(0).and_then(|one| one.swap.as_ref());
                swap.is_some_and(|swap| swap.phase == SwapPhase::Fenced)
            })
            .await;
        let pv: PersistentVolume = world.api.get(&named).unwrap();
        let uid = world.claim(&old).unwrap().metadata.uid;
        assert_eq!(pv.annotations().get("pliant.io/held-for-swap"), uid.as_ref());
        delete(&world, &old);
        world.play().held.clear();
        world.until("it has failed", |status| status.phase == AutoscalerPhase::Failed).await;
        world.rest().await;
        let pv: PersistentVolume = world.api.get(&named).expect("its volume stays");
        assert_eq!(pv.annotations().get("pliant.io/held-for-swap"), None);
        assert_eq!(pv.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    });
}

#[test]
fn however_many_finalizers_there_are_they_hold_up_no_gate() {
    block_on(async {
        let world = World::new();
        for number in 0..300 {
            world.api.put(&object::<PersistentVolumeClaim>(json!({
                "metadata": {"name": format!("c{number}"), "namespace": SHOP,
                             "finalizers": ["pliant.io/swap-protection"]}, "spec": {},
            })));
        }
        world.api.put(&object::<Pod>(json!({
            "metadata": {"name": "waits", "namespace": SHOP, "labels": { GATE: "true" }},
            "spec": {"containers": [], "schedulingGates": [{"name": GATE}]},
            "status": {"phase": "Pending"},
        })));
        let _operator = world.operator();
        let is_open = |api: &FakeApi| {
            let pod: Pod = api.get(&format!("{SHOP}/waits")).unwrap();
            pod.spec.unwrap().scheduling_gates.unwrap_or_default().is_empty()
        };
        world.api.until("the gate is opened", is_open).await;
        let writes = world.api.writes();
        assert!(writes.len() < 100, "{} claims are let go before", writes.len());
    });
}

/// What is left of swaps that no PvcAutoscaler knows of.
fn left_behind(world: &World) -> Vec<String> {
    let claims = world.api.list::<PersistentVolumeClaim>();
    let mut left = Vec::new();
    for claim in &claims {
        let phase = claim.status.clone().unwrap_or_default().phase.unwrap_or_default();
        let is_ours = |one: &&String| one.starts_with("pliant.io/");
        left.extend((phase != "Bound").then(|| format!("{phase} claim {}", claim.name_any())));
        left.extend(
            claim.finalizers().iter().filter(is_ours).map(|one| format!("finalizer {one}")),
        );
        left.extend(claim.name_any().starts_with("prime-").then(|| claim.name_any()));
    }
    let sources = world.api.list::<PvcSourcePopulator>();
    left.extend(sources.iter().map(|one| format!("source {}", one.name_any())));
    for pod in world.api.list::<Pod>() {
        let spec = pod.spec.clone().unwrap_or_default();
        let gates = spec.scheduling_gates.filter(|gates| !gates.is_empty());
        left.extend(gates.map(|_| format!("gate of pod {}", pod.name_any())));
        left.extend(
            pod.labels().get("pliant.io/populator").map(|_| format!("pod {}", pod.name_any())),
        );
    }
    for pv in world.api.list::<PersistentVolume>() {
        let spec = pv.spec.clone().unwrap_or_default();
        let owner = spec.claim_ref.clone().unwrap_or_default().uid;
        let has_claim = claims.iter().any(|claim| claim.metadata.uid == owner);
        left.extend((!has_claim).then(|| format!("volume {}", pv.name_any())));
        let policy = spec.persistent_volume_reclaim_policy.unwrap_or_default();
        left.extend((policy != "Delete").then(|| format!("{policy} of {}", pv.name_any())));
        let marks = pv.annotations().keys().filter(|key| key.contains("swap"));
        left.extend(marks.map(|key| format!("{key} on {}", pv.name_any())));
    }
    left
}

/// The phases of a swap in which what is behind it is deleted.
fn phases(keeps_name: bool) -> Vec<SwapPhase> {
    let mut all = vec![SwapPhase::Pending, SwapPhase::PreCopy, SwapPhase::Draining];
    all.extend([SwapPhase::Fenced, SwapPhase::FinalCopy]);
    all.extend(keeps_name.then_some(SwapPhase::Rebinding));
    all.extend([SwapPhase::Soaking, SwapPhase::RollingBack, SwapPhase::Failed]);
    all
}

/// Until a swap of the one pod is in this phase.
async fn swapping(world: &World, templates: &[&str], phase: SwapPhase) {
    world.set(1, templates);
    world.want("4Gi", "hdd", &json!({}));
    world.settled("1/1").await;
    world.write();
    if matches!(phase, SwapPhase::RollingBack | SwapPhase::Failed) {
        let said = json!({"outcome": "mismatch", "message": "a.txt differs"}).to_string();
        world.play().ends.push_back(End::Failed(said));
    }
    world.want("2Gi", "hdd", &json!({"preCopy": phase == SwapPhase::PreCopy}));
    until_swap_is(world, phase).await;
}

async fn until_swap_is(world: &World, phase: SwapPhase) {
    world
        .until(&format!("it is {phase:?}"), |status| {
            let swap = status.of(0).and_then(|one| one.swap.as_ref());
            swap.is_some_and(|swap| swap.phase == phase)
        })
        .await;
}

/// Delete the PvcAutoscaler, and make it again a while after; what it has left by then.
async fn deleted_and_made_again(world: &World, size: &str) -> (Vec<String>, Vec<String>) {
    world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
    for _ in 0..4 {
        world.rest().await;
    }
    let left = left_behind(world);
    world.want(size, "hdd", &json!({"retention": "1h"}));
    world.settled("1/1").await;
    tokio::time::sleep(Duration::from_secs(7200)).await;
    (left, left_behind(world))
}

/// What the pod had before is to be had again, and it is on its way back.
#[test]
fn a_pvc_autoscaler_that_is_deleted_while_its_pod_gets_back_leaves_nothing() {
    for templates in [&[][..], &["www"]] {
        let mut phases = vec![SwapPhase::Draining, SwapPhase::Fenced];
        phases.extend((!templates.is_empty()).then_some(SwapPhase::Rebinding));
        for phase in phases {
            block_on(async {
                let (world, _operator) = World::with_an_operator();
                world.set(1, templates);
                world.want("4Gi", "hdd", &json!({}));
                world.settled("1/1").await;
                world.want("2Gi", "hdd", &json!({}));
                world.settled("1/1").await;
                let back = json!({"rollback": [{"ordinal": 0, "claimRevision": 1}]});
                world.want("2Gi", "hdd", &back);
                until_swap_is(&world, phase).await;
                let left = deleted_and_made_again(&world, "2Gi").await;
                assert_eq!(left, (vec![], vec![]), "{templates:?} {phase:?}");
                assert_eq!(world.claims().len(), 1, "{templates:?} {phase:?}");
                // Which of the two contents it has hangs on how far it was.
                world.play().wrong.clear();
            });
        }
    }
}

#[test]
fn a_pvc_autoscaler_that_is_deleted_while_its_claim_shrinks_leaves_nothing() {
    for phase in [InPlacePhase::Shrinking, InPlacePhase::UpdatingClaim, InPlacePhase::Unpinning] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            world.play().file_system = Some("btrfs");
            world.set(1, &["www"]);
            world.want("4Gi", "hdd", &json!({}));
            world.settled("1/1").await;
            world.want("2Gi", "hdd", &json!({}));
            world
                .until(&format!("it is {phase:?}"), |status| {
                    let shrink = status.of(0).and_then(|one| one.shrink.as_ref());
                    shrink.is_some_and(|shrink| shrink.phase == phase)
                })
                .await;
            let left = deleted_and_made_again(&world, "3Gi").await;
            assert_eq!((left, world.left()), ((vec![], vec![]), vec![]), "{phase:?}");
            world.write();
        });
    }
}

#[test]
fn a_pvc_autoscaler_that_is_deleted_in_any_phase_leaves_nothing_of_its_swap() {
    for templates in [&[][..], &["www"]] {
        for phase in phases(!templates.is_empty()) {
            block_on(async {
                let (world, _operator) = World::with_an_operator();
                swapping(&world, templates, phase).await;
                world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
                for _ in 0..4 {
                    world.rest().await;
                }
                assert_eq!(left_behind(&world), Vec::<String>::new(), "{templates:?} {phase:?}");
                // Made again, it finds them.
                world.want("2Gi", "hdd", &json!({"retention": "1h"}));
                world.settled("1/1").await;
                world.write();
                tokio::time::sleep(Duration::from_hours(2)).await;
                let claims = world.claims();
                assert_eq!(
                    (claims.len(), left_behind(&world)),
                    (1, vec![]),
                    "{templates:?} {phase:?} {claims:?}"
                );
            });
        }
    }
}

/// A swap had named a second claim to its pod when the PvcAutoscaler went, or a backup brought one.
#[test]
fn made_again_it_knows_the_claim_of_a_pod_by_what_that_runs_with() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let its = one_pod(&world).await;
        let pod = world.pod("nginx-0");
        world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
        world.rest().await;
        let labels = json!({"pliant.io/pvc-autoscaler": "nginx", "pliant.io/ordinal": "0"});
        crate::world::restored(&world, "www-nginx-0-0a1b2", &labels, &json!({})).await;
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!((world.ordinal(0).active_claim, world.pod("nginx-0")), (its, pod));
        assert_eq!(world.claims().len(), 2, "the other one is left to a person");
        world.write();
    });
}

/// So finds them an operator that was away while the PvcAutoscaler was deleted and made again.
#[test]
fn made_again_it_knows_the_claim_of_a_pod_by_what_that_was_filled_from() {
    block_on(async {
        let world = World::new();
        let labels = json!({"pliant.io/pvc-autoscaler": "nginx", "pliant.io/ordinal": "0"});
        let (old, new) = ("www-nginx-0-fffff", "www-nginx-0-0a1b2");
        for name in [old, new] {
            crate::world::restored(&world, name, &labels, &json!({})).await;
        }
        let uid = world.claim(new).unwrap().metadata.uid;
        world.api.put(&object::<PvcSourcePopulator>(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcSourcePopulator",
            "metadata": {"name": new, "namespace": SHOP, "labels": labels},
            "spec": {"sourcePvcRef": {"name": old}},
            "status": {"claims": [{"name": new, "uid": uid, "phase": "Succeeded"}]},
        })));
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        let _operator = world.operator();
        world.settled("1/1").await;
        assert_eq!(world.ordinal(0).active_claim, new);
        assert_eq!(world.claims().len(), 2, "the other one is left to a person");
    });
}

#[test]
fn a_namespace_that_is_deleted_in_any_phase_leaves_no_volume() {
    for templates in [&[][..], &["www"]] {
        for phase in phases(!templates.is_empty()) {
            block_on(async {
                let (world, _operator) = World::with_an_operator();
                let namespace = json!({"metadata": {"name": SHOP, "finalizers": ["kubernetes"]}});
                world.api.put(&object::<Namespace>(namespace));
                swapping(&world, templates, phase).await;
                world.api.delete::<Namespace>(SHOP);
                world.api.delete::<StatefulSet>(&format!("{SHOP}/nginx"));
                world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
                for source in world.api.list::<PvcSourcePopulator>() {
                    world
                        .api
                        .delete::<PvcSourcePopulator>(&format!("{SHOP}/{}", source.name_any()));
                }
                for _ in 0..4 {
                    for pod in world.api.list::<Pod>() {
                        world.api.delete::<Pod>(&format!("{SHOP}/{}", pod.name_any()));
                    }
                    world.claims().iter().for_each(|claim| delete(&world, claim));
                    world.rest().await;
                }
                assert_eq!(left_behind(&world), Vec::<String>::new(), "{templates:?} {phase:?}");
                let volumes = world.api.list::<PersistentVolume>();
                assert_eq!((world.claims(), volumes.len()), (vec![], 0), "{templates:?} {phase:?}");
            });
        }
    }
}
