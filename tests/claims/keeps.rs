//! Claims are made, taken over, and let grow.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pliant::api::{AutoscalerPhase, PvcAutoscaler, PvcAutoscalerStatus, Quantity};
use pliant::bytes::Bytes;
use pliant::testing::FakeApi;
use serde_json::json;

use crate::block_on;
use crate::play::object;
use crate::world::{HUNG, SHOP, World};

const KEPT_BY: &str = "pliant.io/pvc-autoscaler";
const SUPERSEDED_BY: &str = "pliant.io/superseded-by";

fn size(text: &str) -> Quantity {
    Quantity(text.parse().unwrap())
}

fn capacity(claim: &PersistentVolumeClaim) -> String {
    claim.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0.clone()
}

#[test]
fn each_pod_gets_a_claim_of_the_template_and_more_pods_get_more() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(2, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("2/2").await;
        assert_eq!(world.claims().len(), 2);
        world.set(3, &[]);
        world.settled("3/3").await;
        assert_eq!(world.claims().len(), 3);
        world.set(1, &[]);
        world.settled("1/1").await;
        assert_eq!(world.claims().len(), 3, "the claims of pods that are no more stay");
    });
}

#[test]
fn an_edit_of_the_template_grows_the_claims_under_running_pods() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(2, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("2/2").await;
        let before = world.claims();
        world.want("8Gi", "hdd", &json!({}));
        world.settled("2/2").await;
        assert_eq!(world.claims(), before);
        assert_eq!(capacity(&world.active(1)), "8Gi");
        assert_eq!(world.play().written["nginx-0"], "w", "it was not started again");
    });
}

#[test]
fn a_size_that_cannot_be_read_decides_nothing_and_others_go_on() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(2, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("2/2").await;
        let asks = |size: &str| {
            let mut claim = world.active(0);
            let requests = &mut claim.spec.as_mut().unwrap().resources.as_mut().unwrap().requests;
            requests.as_mut().unwrap().insert("storage".to_owned(), Written(size.to_owned()));
            world.api.put(&claim);
        };
        world.play().room = Some(Bytes::gib(64));
        asks("100E"); // The API server takes it.
        world.want("8Gi", "hdd", &json!({}));
        let says = |word: &str| world.status().reason.is_some_and(|reason| reason == word);
        world.until("it is reported", |_| says("InvalidSize")).await;
        world.until("the other grows", |_| capacity(&world.active(1)) == "8Gi").await;
        world.rest().await;
        let message = world.status().message.unwrap();
        assert!(message.contains("`100E` is not a size"), "{message}");
        assert_eq!(world.told("InvalidSize"), 1, "in one event");
        let claim = world.active(0);
        let asked = claim.spec.unwrap().resources.unwrap().requests.unwrap();
        assert_eq!(
            (&*asked["storage"].0, &*claim.status.unwrap().capacity.unwrap()["storage"].0),
            ("100E", "4Gi")
        );
        asks("4294967296500m");
        world.settled("2/2").await;
        assert_eq!(capacity(&world.active(0)), "8Gi");
    });
}

/// A StatefulSet whose pods have these volumes.
fn set_with_volumes(world: &World, names: &[&str]) {
    let volumes: Vec<serde_json::Value> = names
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    world.api.put(&object::<k8s_openapi::api::apps::v1::StatefulSet>(json!({
        "metadata": {"name": "nginx", "namespace": SHOP},
        "spec": {"replicas": 1, "selector": {}, "serviceName": "nginx",
                 "template": {"spec": {"containers": [], "volumes": volumes}}},
    })));
}

#[test]
fn a_template_that_no_pod_has_as_a_volume_is_named_with_those_that_they_have() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        set_with_volumes(&world, &["data", "log"]);
        world.want("4Gi", "hdd", &json!({}));
        let reason = |status: &pliant::api::PvcAutoscalerStatus| {
            status.reason.as_deref() == Some("ClaimsNotFound")
        };
        world.until("it says what is wrong", reason).await;
        let message = world.status().message.unwrap();
        let words = "the pods of StatefulSet nginx have no volume www; they have data and log";
        assert!(message.starts_with(words), "{message}");
        assert!(world.claims().is_empty(), "a claim that no pod could use is not made");
        set_with_volumes(&world, &["www"]);
        world.settled("1/1").await;
    });
}

#[test]
fn pods_without_any_claim_get_one_all_the_same() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        set_with_volumes(&world, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.claims().len(), 1);
    });
}

/// Another PvcAutoscaler of the same StatefulSet and template, which is younger.
fn twin(world: &World, size: &str) -> PvcAutoscaler {
    let mut twin = world.wanted(size, "hdd", &json!({}));
    twin.metadata = object(json!({"name": "twin", "namespace": SHOP}));
    twin.status = None;
    twin.metadata.creation_timestamp = Some(Time(Timestamp::now() + SignedDuration::from_hours(1)));
    twin
}

fn is_told(api: &FakeApi, reason: Option<&str>) -> bool {
    let twin: Option<PvcAutoscaler> = api.get(&format!("{SHOP}/twin"));
    let status = twin.and_then(|one| one.status).unwrap_or_default();
    status.observed_generation > 0 && status.reason.as_deref() == reason
}

#[test]
fn of_two_with_one_template_the_younger_stands_back_until_the_older_is_gone() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        // Its name is hashed by now, and it has content.
        world.want("2Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.write();
        let active = world.ordinal(0).active_claim;
        let keeper = |world: &World| world.claim(&active).unwrap().labels()[KEPT_BY].clone();

        world.api.put(&twin(&world, "8Gi"));
        world.api.until("it is told", |api| is_told(api, Some("ClaimConflict"))).await;
        world.rest().await;
        assert_eq!((keeper(&world), capacity(&world.active(0))), ("nginx".into(), "2Gi".into()));
        assert_eq!(world.status().reason, None, "the older one goes on");
        let there: PvcAutoscaler = world.api.get(&format!("{SHOP}/twin")).unwrap();
        assert!(there.status.unwrap().message.unwrap().contains("PvcAutoscaler nginx"));

        world.api.delete::<PvcAutoscaler>(&format!("{SHOP}/nginx"));
        world.api.until("it takes over", |api| is_told(api, None)).await;
        world.rest().await;
        assert_eq!(keeper(&world), "twin");
        assert_eq!(capacity(&world.claim(&active).unwrap()), "8Gi");
        let there: PvcAutoscaler = world.api.get(&format!("{SHOP}/twin")).unwrap();
        assert_eq!(there.status.unwrap().of(0).unwrap().active_claim, active);
        assert_eq!(world.claims().len(), 2, "no empty claim was made");
    });
}

#[test]
fn what_would_be_done_is_only_told_if_that_is_wanted() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        let recommend = json!({"mode": "DryRun"});
        for (wanted, class, says) in
            [("8Gi", "hdd", "4Gi → 8Gi"), ("2Gi", "hdd", "4Gi → 2Gi"), ("4Gi", "ssd", "hdd → ssd")]
        {
            world.want(wanted, class, &recommend);
            world
                .until("it is recommended", |status| {
                    status.phase == AutoscalerPhase::DryRun
                        && status.planned_action.as_ref().is_some_and(|next| next.contains(says))
                })
                .await;
        }
        world.rest().await;
        assert_eq!((world.claims().len(), &*capacity(&world.active(0))), (1, "4Gi"));
    });
}

#[test]
fn claims_of_a_statefulset_with_templates_grow_and_keep_what_never_changes() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.play().file_system = Some("xfs");
        world.set(1, &["www"]);
        world.want("8Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.claims(), ["www-nginx-0"]);
        assert_eq!(capacity(&world.active(0)), "8Gi");
        let mut other = world.wanted("8Gi", "hdd", &json!({}));
        other.spec.volume_claim_template.spec.access_modes = vec!["ReadWriteOncePod".to_owned()];
        world.api.put(&other);
        world
            .until("it is told", |status| status.reason.as_deref() == Some("SwapUnsupported"))
            .await;
        let message = world.status().message.unwrap();
        assert!(message.contains("changes of the accessModes of a claim"), "{message}");
    });
}

#[test]
fn claims_that_a_statefulset_has_made_are_taken_over() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(2, &["www"]);
        world
            .api
            .until("they are made", |api| {
                let there = api.get::<k8s_openapi::api::core::v1::Pod>("shop/nginx-1");
                there.is_some()
            })
            .await;
        world.rest().await;
        world.set(2, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("2/2").await;
        assert_eq!(world.claims(), ["www-nginx-0", "www-nginx-1"]);
        assert_eq!(world.ordinal(1).active_claim, "www-nginx-1");
        assert_eq!(world.play().written["nginx-1"], "w", "no pod was restarted");
    });
}

#[test]
fn a_claim_that_never_got_a_volume_follows_the_template_once_it_is_deleted() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.play().full.insert("alpha".to_owned());
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        let explained = |status: &PvcAutoscalerStatus| {
            status.progress.as_ref().is_some_and(|it| it.contains("`kubectl pliant explain pvc/"))
        };
        world.until("it is told how to see why", explained).await;
        world.want("1Gi", "hdd", &json!({}));
        let is_outdated =
            |status: &PvcAutoscalerStatus| status.reason.as_deref() == Some("ClaimOutdated");
        world.until("it is told", is_outdated).await;
        let (status, claim) = (world.status(), world.ordinal(0).active_claim);
        let message = status.message.unwrap();
        assert!(
            message.contains(&format!("`kubectl delete pvc {claim} --namespace shop`")),
            "{message}"
        );
        assert!(status.conditions.iter().any(|one| one.type_ == "Stalled" && one.status == "True"));

        world.api.delete::<PersistentVolumeClaim>(&format!("{SHOP}/{claim}"));
        world.play().full.clear();
        world.settled("1/1").await;
        assert_eq!(capacity(&world.active(0)), "1Gi");
    });
}

#[test]
fn a_deleted_autoscaler_leaves_its_claims_and_finds_them_again() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        let before = world.claims();
        world.api.delete::<pliant::api::PvcAutoscaler>(&format!("{SHOP}/nginx"));
        world.rest().await;
        assert_eq!(world.claims(), before);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        assert_eq!(world.claims(), before);
    });
}

#[test]
fn without_its_workload_nothing_is_done_and_that_is_told() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.want("4Gi", "hdd", &json!({}));
        world
            .until("it is told", |status| status.reason.as_deref() == Some("WorkloadNotFound"))
            .await;
        assert!(world.claims().is_empty());
        world.set(1, &[]);
        world.settled("1/1").await;
        assert_eq!(
            capacity(&world.active(0)).parse::<pliant::bytes::Bytes>().unwrap(),
            size("4Gi").0
        );
    });
}

#[test]
fn a_claim_that_is_full_grows_by_itself_and_an_edit_of_the_template_makes_that_void() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        let policy = json!({"autoscale": {"maxSize": "6Gi", "cooldown": "1m"}});
        world.want("4Gi", "hdd", &policy);
        world.settled("1/1").await;
        assert!(world.ordinal(0).last_decision.unwrap().contains("has not reported"));
        world.fill(0, 60, 0);
        world.rest().await;
        assert_eq!(capacity(&world.active(0)), "4Gi");
        world.fill(0, 85, 0);
        world.until("it grows", |status| status.of(0).unwrap().autoscaled_size.is_some()).await;
        world.rest().await;
        assert_eq!(capacity(&world.active(0)), "5Gi");
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        assert_eq!(world.told("AutoscaleExpand"), 1, "the old sample decides nothing");
        world.fill(0, 95, 1);
        world
            .until("it grows again", |status| {
                status.of(0).unwrap().last_decision.as_ref().unwrap().contains("the largest")
            })
            .await;
        world.rest().await;
        assert_eq!(capacity(&world.active(0)), "6Gi", "and no further");
        // Whoever edits the size knows better.
        world.want("5Gi", "hdd", &policy);
        world.settled("1/1").await;
        assert_eq!(
            (capacity(&world.active(0)), world.ordinal(0).claim_revision),
            ("5Gi".to_owned(), 1)
        );
        // What a person expands after that stays.
        let mut claim = world.active(0);
        claim.spec.as_mut().unwrap().resources =
            Some(object(json!({"requests": {"storage": "8Gi"}})));
        world.api.put(&claim);
        world.settled("1/1").await;
        world.rest().await;
        assert_eq!(
            (capacity(&world.active(0)), world.ordinal(0).claim_revision),
            ("8Gi".to_owned(), 1)
        );
    });
}

#[test]
fn a_workload_whose_calls_hang_holds_up_no_other() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        let mut hung: PvcAutoscaler = world.wanted("4Gi", "hdd", &json!({}));
        hung.metadata.name = Some(HUNG.to_owned());
        hung.spec.stateful_set_name = Some(HUNG.to_owned());
        world.api.put(&hung);
        world.rest().await;
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
    });
}

#[test]
fn labels_and_annotations_of_the_template_reach_claims_that_are_there() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        let mut claim = world.active(0);
        claim.labels_mut().insert("owner".to_owned(), "somebody".to_owned());
        world.api.put(&claim);
        let mut edited = world.wanted("4Gi", "hdd", &json!({}));
        let template = &mut edited.spec.volume_claim_template.metadata;
        template.labels.insert("tier".to_owned(), "gold".to_owned());
        template.annotations.insert("backup".to_owned(), "daily".to_owned());
        world.api.put(&edited);
        world.settled("1/1").await;
        let claim = world.active(0);
        let label = |key: &str| claim.labels().get(key).map(String::as_str);
        assert_eq!((label("tier"), label("owner")), (Some("gold"), Some("somebody")));
        assert_eq!(claim.annotations()["backup"], "daily");
        assert_eq!(world.play().written["nginx-0"], "w", "it was not started again");
    });
}

/// A backup restores a claim with the annotations of the one of then, and its content in another volume.
fn is_not_believed(note: &str, value: &str) {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        world.set(1, &["www"]);
        world.want("4Gi", "hdd", &json!({}));
        world.settled("1/1").await;
        world.write();
        let mut claim = world.active(0);
        claim.annotations_mut().insert(note.to_owned(), value.to_owned());
        world.api.put(&claim);
        world.rest().await;
        world.settled("1/1").await;
        assert_eq!(world.told("SwapStarted"), 0);
        assert!(!world.active(0).annotations().contains_key(note), "it is taken off");
        world.write();
    });
}

#[test]
fn what_a_restored_claim_tells_of_the_class_of_another_volume_is_not_believed() {
    is_not_believed("pliant.io/storage-class", "ssd");
}

#[test]
fn what_a_restored_claim_tells_of_the_name_of_another_volume_is_not_believed() {
    is_not_believed("pliant.io/volume", "pvc-of-then");
}

/// A claim with data, as a backup restores it: it says that another one has taken its place.
async fn restored(world: &World, name: &str, keeper: &str, by: &str) {
    let labels = json!({KEPT_BY: keeper, "pliant.io/ordinal": "0"});
    crate::world::restored(world, name, &labels, &json!({ SUPERSEDED_BY: by })).await;
}

#[test]
fn a_restored_claim_whose_successor_is_not_there_is_that_of_its_pod() {
    for keeper in ["nginx", "gone"] {
        block_on(async {
            let (world, _operator) = World::with_an_operator();
            restored(&world, "www-nginx-0-0a1b2", keeper, "www-nginx-0-fffff").await;
            world.set(1, &[]);
            world.want("4Gi", "hdd", &json!({}));
            world.settled("1/1").await;
            assert_eq!(
                world.ordinal(0).active_claim,
                "www-nginx-0-0a1b2",
                "{keeper}: an empty one"
            );
            world.rest().await;
            let notes = world.active(0).annotations().clone();
            assert!(!notes.contains_key(SUPERSEDED_BY), "it is no longer so: {notes:?}");
        });
    }
}

#[test]
fn claims_that_name_each_other_as_successors_are_a_question_for_people() {
    block_on(async {
        let (world, _operator) = World::with_an_operator();
        restored(&world, "www-nginx-0-0a1b2", "nginx", "www-nginx-0-fffff").await;
        restored(&world, "www-nginx-0-fffff", "nginx", "www-nginx-0-0a1b2").await;
        world.set(1, &[]);
        world.want("4Gi", "hdd", &json!({}));
        let is_asked =
            |status: &PvcAutoscalerStatus| status.reason.as_deref() == Some("AmbiguousClaimName");
        world.until("it is asked", is_asked).await;
        assert_eq!(world.claims().len(), 2, "no empty one is made");
        // One of the two no longer says so.
        let mut newest = world.claim("www-nginx-0-fffff").expect("a claim");
        newest.annotations_mut().remove(SUPERSEDED_BY);
        world.api.put(&newest);
        world.settled("1/1").await;
        assert_eq!(world.ordinal(0).active_claim, "www-nginx-0-fffff");
    });
}
