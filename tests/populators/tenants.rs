//! Who may make anything in the namespace of a claim makes what has the names of its prime claim and its pod.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use pliant::api::FillingPhase;
use serde_json::{Value, json};

use crate::play::object;
use crate::world::{Content, SHOP, World, phase};

/// The name of the prime claim of a claim, and of the pod that fills it.
fn second(world: &World, claim: &str) -> String {
    format!("prime-{}", world.get_claim(claim).unwrap().uid().unwrap())
}

fn size_of(world: &World, claim: &str) -> String {
    let volume = world.get_claim(claim).unwrap().spec.unwrap().volume_name.unwrap();
    let pv: PersistentVolume = world.api.get(&volume).unwrap();
    pv.spec.unwrap().capacity.unwrap()["storage"].0.clone()
}

fn large() -> Value {
    json!({"resources": {"requests": {"storage": "100Gi"}}})
}

#[tokio::test(start_paused = true)]
async fn a_large_prime_claim_of_a_tenant_with_a_volume_is_neither_used_nor_deleted() {
    let (world, _operator) = World::with_an_operator().await;
    world.claim("web", "now", "ArchivePopulator", "site");
    world.shows("web", "PopulatorDataSourceNotFound").await;
    let name = second(&world, "web");
    world.claim_of(&name, "now", &Value::Null, &large());
    world.until(&name, "is bound", |claim| phase(claim) == "Bound").await;
    let uid = world.get_claim(&name).unwrap().uid();
    world.archive("site");
    world.shows("web", "NameConflict").await;
    world.settled().await;
    assert_eq!(phase(&world.get_claim("web").unwrap()), "Pending");
    assert_eq!((world.get_claim(&name).unwrap().uid(), world.destroyed()), (uid, vec![]));
    assert_eq!(world.reasons("web")["NameConflict"], 1);
    world.api.delete::<PersistentVolumeClaim>(&format!("{SHOP}/{name}"));
    world.filled("web").await;
    assert_eq!((size_of(&world, "web"), world.left()), ("1Gi".to_owned(), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_large_prime_claim_of_a_tenant_without_a_volume_is_deleted() {
    let (world, _operator) = World::with_an_operator().await;
    world.claim("web", "fast", "ArchivePopulator", "site");
    world.shows("web", "PopulatorDataSourceNotFound").await;
    let name = second(&world, "web");
    world.claim_of(&name, "fast", &Value::Null, &large());
    world.archive("site");
    world.schedule("web", &["alpha"]);
    world.filled("web").await;
    assert_eq!((size_of(&world, "web"), world.left()), ("1Gi".to_owned(), vec![]));
    assert_eq!(world.reasons("web")["NameConflict"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_prime_claim_that_a_tenant_makes_larger_is_made_again() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.copy_of("old", &json!({"waitForConsumer": false, "paused": true}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.shows("new", "Waiting: SourcePaused").await;
    let mut prime = world.get_claim(&second(&world, "new")).unwrap();
    prime.spec.as_mut().unwrap().resources = Some(object(large()["resources"].clone()));
    world.api.put(&prime);
    world.settled().await;
    world.unpause("old");
    world.filled("new").await;
    assert_eq!((size_of(&world, "new"), world.left()), ("1Gi".to_owned(), vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_a_claim_that_only_has_the_name_stays() {
    let (world, _operator) = World::with_an_operator().await;
    world.archive("site");
    world.claim("web", "fast", "ArchivePopulator", "site");
    world.shows("web", "WaitForFirstConsumer").await;
    let name = second(&world, "web");
    world.claim_of(&name, "now", &Value::Null, &json!({}));
    world.until(&name, "is bound", |claim| phase(claim) == "Bound").await;
    let volume = world.get_claim(&name).unwrap().spec.unwrap().volume_name.unwrap();
    let mut pv: PersistentVolume = world.api.get(&volume).unwrap();
    pv.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".to_owned());
    world.api.put(&pv);
    // So that it is looked at while it goes.
    let mut web = world.get_claim("web").unwrap();
    web.finalizers_mut().push("pliant.io/populator-protection".to_owned());
    world.api.put(&web);
    world.api.delete::<PersistentVolumeClaim>(&format!("{SHOP}/web"));
    world.settled().await;
    assert!(world.get_claim("web").is_none() && world.get_claim(&name).is_some());
    let pv: PersistentVolume = world.api.get(&volume).unwrap();
    assert_eq!(pv.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_tenant_that_says_it_has_filled_the_volume_is_not_believed() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.copy_of("old", &json!({"waitForConsumer": false, "paused": true}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.shows("new", "Waiting: SourcePaused").await;
    let said = json!({"outcome": "done", "digest": "forged"}).to_string();
    let ended = json!({"name": "populator", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                       "state": {"terminated": {"exitCode": 0, "message": said}}});
    world.api.put(&object::<Pod>(json!({
        "metadata": {"name": second(&world, "new"), "namespace": SHOP,
                     "annotations": {"pliant.io/generation": "1"}},
        "spec": {"containers": []},
        "status": {"phase": "Succeeded", "containerStatuses": [ended]},
    })));
    world.poke();
    world.settled().await;
    assert_eq!(phase(&world.get_claim("new").unwrap()), "Pending", "nothing was copied yet");
    world.unpause("old");
    world.filled("new").await;
    let told = world.told_of_copy("old").unwrap();
    assert_eq!((told.phase, told.checksum.as_deref()), (FillingPhase::Succeeded, Some("abc")));
    assert!(matches!(world.content("new"), Some(Content::Whole(_))));
    assert_eq!((world.reasons("new")["NameConflict"], world.left()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_tenant_that_has_the_name_of_the_sender_is_neither_believed_nor_deleted() {
    let (world, _operator) = World::with_an_operator().await;
    world.source("old", "alpha").await;
    world.put_content("old", "records");
    world.copy_of("old", &json!({}));
    world.claim("web", "fast", "PvcSourcePopulator", "old");
    world.shows("web", "WaitForFirstConsumer").await;
    let web = world.get_claim("web").unwrap().uid().unwrap();
    let name = format!("send-{web}");
    world.api.put(&object::<Pod>(json!({
        "metadata": {"name": name, "namespace": SHOP, "labels": {"pliant.io/populator": web}},
        "spec": {"containers": []}, "status": {"phase": "Running", "podIP": "10.0.0.66"},
    })));
    world.schedule("web", &["beta"]);
    world.shows("web", "PopulatorCreationError").await;
    world.settled().await;
    let shown =
        world.get_claim("web").unwrap().annotations()["pliant.io/population-progress"].clone();
    assert!(
        shown.contains(&format!("Pod {name} in namespace shop has the name of an object of")),
        "{shown}"
    );
    assert_eq!(
        (phase(&world.get_claim("web").unwrap()), world.reasons("web")["PopulatorCreationError"]),
        ("Pending".to_owned(), 1)
    );
    let pod = format!("{SHOP}/{name}");
    assert!(
        world.api.get::<Pod>(&pod).is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
    );
    world.api.delete::<Pod>(&pod);
    world.filled("web").await;
    assert_eq!(
        (world.content("web"), world.left()),
        (Some(Content::Whole("records".to_owned())), vec![])
    );
}

/// What the API server says of a pod that the policy of its namespace does not let be made.
const RESTRICTED: &str = "pods \"prime-u\" is forbidden: violates PodSecurity \"restricted:latest\": unrestricted \
                          capabilities (container \"populator\" must set securityContext.capabilities.drop=[\"ALL\"]; \
                          container \"populator\" must not include \"CHOWN\" in securityContext.capabilities.add)";

#[tokio::test(start_paused = true)]
async fn where_pods_may_not_run_as_root_a_claim_says_what_lets_its_own_do_so() {
    let (world, _operator) = World::with_an_operator().await;
    let restrict = |pod: &Value, _: &[Value]| {
        let is_ours = pod["metadata"]["namespace"] == SHOP;
        is_ours.then(|| RESTRICTED.to_owned())
    };
    world.api.guard("pods", restrict);
    world.archive("site");
    world.claim("web", "now", "ArchivePopulator", "site");
    world.shows("web", "PopulatorCreationError").await;
    let told = |name: &str| {
        world.get_claim(name).unwrap().annotations()["pliant.io/population-progress"].clone()
    };
    let label =
        "`kubectl label --overwrite namespace shop pod-security.kubernetes.io/enforce=baseline`";
    assert!(told("web").contains(RESTRICTED) && told("web").contains(label), "{}", told("web"));
    assert!(told("web").ends_with("value operator.populatorNamespace"), "{}", told("web"));
    assert_eq!(world.reasons("web")["PopulatorCreationError"], 1);
    // What it copies is in its namespace.
    world.source("old", "alpha").await;
    world.copy_of("old", &json!({"waitForConsumer": false}));
    world.claim("new", "fast", "PvcSourcePopulator", "old");
    world.shows("new", "PopulatorCreationError").await;
    assert!(told("new").ends_with(label), "{}", told("new"));
    // As soon as it may, it is filled.
    world.api.unguard("pods");
    world.filled("web").await;
    world.filled("new").await;
    assert_eq!(world.left(), Vec::<String>::new());
}
