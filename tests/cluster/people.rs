//! What people are told, and what they can do, while controller and node plugins run.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use pliant::api::{NodeStorage, PvcAutoscaler};
use pliant::bytes::Bytes;
use pliant::commands::adopt::RecoveryOptions;
use pliant::commands::explain::{ClaimOrVolume, ClaimState, Explanation, NodeVerdict};
use pliant::commands::{self, TableOptions};
use pliant::doctor::FindingSeverity;
use pliant::testing::{FakeApi, fake_api};
use pliant::volume::{DRIVER, NodeKey, TOPOLOGY, Volumes};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::{World, want};

pub fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of this kind")
}

/// What Kubernetes has of two nodes, their node plugins and a class, beside what the driver writes.
pub fn furnish(world: &World) {
    for node in ["alpha", "beta"] {
        let driver = json!({"name": DRIVER, "nodeID": node});
        world.api.put::<CSINode>(&typed(
            json!({"metadata": {"name": node}, "spec": {"drivers": [driver]}}),
        ));
        let labels =
            json!({"app.kubernetes.io/name": "pliant", "app.kubernetes.io/component": "node"});
        let name = format!("pliant-node-{node}");
        world.api.put::<Pod>(&typed(json!({
            "metadata": {"name": name, "namespace": "pliant", "labels": labels},
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })));
    }
    world.api.put::<StorageClass>(&typed(json!({
        "metadata": {"name": "fast"}, "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"pool": "fast"},
    })));
}

pub fn claim(size: &str) -> PersistentVolumeClaim {
    typed(json!({
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": size}}},
        "status": {"phase": "Pending"},
    }))
}

pub fn user() -> Pod {
    typed(json!({
        "metadata": {"name": "db-0", "namespace": "default"},
        "spec": {"containers": [], "nodeSelector": {"zone": "b"}, "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "db"}}]},
    }))
}

async fn explained(world: &World, subject: &str) -> Result<Explanation, String> {
    let subject: ClaimOrVolume = subject.parse()?;
    let told = commands::explain(&world.api.client_of("person"), "pliant", None, &subject).await;
    told.map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_explained_from_its_first_minute_to_its_last() {
    let (world, cluster, _machines) = World::with_two_nodes().await;
    furnish(&world);
    let wish = world.api.put(&claim("2000Mi"));
    assert_eq!(explained(&world, "db").await.unwrap().state, ClaimState::WaitForFirstConsumer);
    world.api.put(&user());
    let told = explained(&world, "pvc/db").await.unwrap();
    assert_eq!(told.state, ClaimState::PodUnschedulable);
    assert!(told.nodes.iter().all(|node| node.verdict == NodeVerdict::Excluded), "{told:?}");
    let mut free = user();
    free.spec.as_mut().unwrap().node_selector = None;
    world.api.put(&free);
    let told = explained(&world, "pvc/db").await.unwrap();
    assert_eq!(told.state, ClaimState::InsufficientCapacity, "{told:?}");
    assert_eq!(told.nodes[0].why, "1.09 GiB short");

    // A second volume of the pod that lies on beta.
    let mut both = free.clone();
    both.spec
        .as_mut()
        .unwrap()
        .volumes
        .as_mut()
        .unwrap()
        .push(typed(json!({"name": "log", "persistentVolumeClaim": {"claimName": "log"}})));
    world.api.put(&both);
    world.api.put::<PersistentVolumeClaim>(&typed(json!({
        "metadata": {"name": "log", "namespace": "default"}, "spec": {"volumeName": "pvc-log"},
    })));
    let here = json!({"key": TOPOLOGY, "operator": "In", "values": ["beta"]});
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [here]}]});
    world.api.put::<PersistentVolume>(&typed(json!({
        "metadata": {"name": "pvc-log"}, "spec": {"nodeAffinity": {"required": required}},
    })));
    let told = explained(&world, "pvc/db").await.unwrap();
    assert_eq!(told.nodes[0].verdict, NodeVerdict::Excluded, "{told:?}");

    let uid = wish.metadata.uid.unwrap();
    let made = cluster.ensure(&want(&format!("pvc-{uid}"), 100, &["beta"])).await.unwrap();
    let mut bound = claim("100Mi");
    bound.spec.as_mut().unwrap().volume_name = Some("pvc-1".to_owned());
    bound.status = typed(json!({"phase": "Bound", "capacity": {"storage": "100Mi"}}));
    let bound = world.api.put(&bound);
    let volume = json!({
        "metadata": {"name": "pvc-1"},
        "spec": {"persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": DRIVER, "volumeHandle": made.id.to_string()},
                 "claimRef": {"namespace": "default", "name": "db", "uid": bound.metadata.uid}},
    });
    world.api.put::<PersistentVolume>(&typed(volume));
    for subject in ["db", "pv/pvc-1"] {
        let told = explained(&world, subject).await.unwrap();
        assert_eq!(
            (told.about.as_str(), told.state),
            ("default/db", ClaimState::Healthy),
            "{told:?}"
        );
        assert!(told.why.contains("100 MiB of ext4 in pool fast on node beta"), "{}", told.why);
    }
    world.api.delete::<PersistentVolumeClaim>("default/db");
    world.api.put::<Event>(&typed(json!({
        "metadata": {"name": "e", "namespace": "default"}, "eventTime": null,
        "regarding": {"kind": "PersistentVolume", "name": "pvc-1"},
        "reason": "VolumeFailedDelete", "note": "rpc error: desc = it is mounted",
    })));
    world.cleaned().await;
    assert_eq!(explained(&world, "pv/pvc-1").await.unwrap().state, ClaimState::DeletionFailed);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_told_by_its_name() {
    let world = World::new();
    for (subject, words) in [
        ("db", "there is no claim db in namespace default"),
        ("pv/x", "there is no PersistentVolume x"),
        ("pod/x", "`pod` is not a type that this command takes: write pvc/NAME or pv/NAME"),
        ("pvc/", "write pvc/NAME or pv/NAME"),
    ] {
        let said = explained(&world, subject).await.unwrap_err();
        assert!(said.starts_with(words), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_persistent_volume_is_gone_is_adopted() {
    let (world, cluster, _machine) = World::with_a_node().await;
    furnish(&world);
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    let client = world.api.client_of("person");
    let observed = || commands::adopt::observe(&client);
    assert_eq!(commands::adopt::all(&observed().await.unwrap()), [""; 0], "it is still being made");
    world.cleaned().await;
    let seen = observed().await.unwrap();
    assert_eq!(commands::adopt::all(&seen), [made.id.to_string()]);
    let wish =
        RecoveryOptions { namespace: Some("default".to_owned()), ..RecoveryOptions::default() };
    let adoption = commands::adopt::plan(&seen, &made.id.to_string(), &wish).unwrap();
    commands::adopt::adopt(&client, &adoption).await.unwrap();
    let volume: PersistentVolume = world.api.get("pvc-1").unwrap();
    assert_eq!(volume.spec, adoption.volume.spec);
    let claim: PersistentVolumeClaim = world.api.get("default/pvc-1").unwrap();
    assert_eq!(claim.spec.unwrap().volume_name.as_deref(), Some("pvc-1"));
    let seen = observed().await.unwrap();
    let said = commands::adopt::plan(&seen, &made.id.to_string(), &wish).unwrap_err();
    assert!(said.contains("has PersistentVolume pvc-1"), "{said}");
    // In between somebody else was quicker: nothing of theirs is changed.
    let said = commands::adopt::adopt(&client, &adoption).await.unwrap_err().to_string();
    assert!(said.contains("a new PersistentVolume"), "{said}");
}

/// What is found beside what is good.
async fn ails(world: &World) -> Vec<String> {
    let seen = commands::checkup::observe(&world.api.client_of("person")).await.unwrap();
    let findings = commands::checkup::judge(&seen, "pliant", None).unwrap();
    let bad = findings.into_iter().filter(|finding| finding.severity != FindingSeverity::Ok);
    bad.map(|finding| finding.message).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_looked_at() {
    let (world, cluster, machine) = World::with_a_node().await;
    furnish(&world);
    world.api.put::<CSIDriver>(&typed(json!({
        "metadata": {"name": DRIVER}, "spec": {"attachRequired": false, "storageCapacity": true},
    })));
    let labels =
        json!({"app.kubernetes.io/name": "pliant", "app.kubernetes.io/component": "controller"});
    world.api.put::<Pod>(&typed(json!({
        "metadata": {"name": "pliant-controller", "namespace": "pliant", "labels": labels},
        "spec": {"containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })));
    for definition in pliant::api::definitions() {
        world.api.put(&definition);
    }
    world.api.delete::<Pod>("pliant/pliant-node-beta");
    world.api.delete::<CSINode>("beta");
    assert_eq!(ails(&world).await, [""; 0]);

    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    world.cleaned().await;
    let leaked =
        format!("volume {} (pvc-1, 100 MiB) of node alpha has no PersistentVolume", made.id);
    assert_eq!(ails(&world).await, [leaked]);
    drop(machine);
    world.api.delete::<Pod>("pliant/pliant-node-alpha");
    let said = ails(&world).await;
    assert!(
        said.iter().any(|what| what.starts_with("node alpha: no node plugin runs there")),
        "{said:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_report_has_all_that_was_told_and_no_secrets() {
    let (world, cluster, _machine) = World::with_a_node().await;
    furnish(&world);
    let secret = "hunter2";
    let mut node_plugin: Pod = world.api.get("pliant/pliant-node-alpha").unwrap();
    node_plugin.spec.as_mut().unwrap().containers = typed(
        json!([{"name": "node", "env": [{"name": "TOKEN", "value": secret}]}, {"name": "other"}]),
    );
    node_plugin.status.as_mut().unwrap().container_statuses = typed(json!([
        {"name": "node", "image": "pliant:1", "imageID": "", "ready": true, "restartCount": 2,
         "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]));
    node_plugin.metadata.annotations = typed(json!({"note": secret}));
    world.api.put(&node_plugin);
    world.api.put_log("pliant/pliant-node-alpha/node", "WARN vg0 is away\n");
    let mut class: StorageClass = world.api.get("fast").unwrap();
    class.metadata.annotations = typed(json!({"note": secret}));
    world.api.put(&class);
    let event = |name: &str, by: &str, kind: &str| {
        let source = json!({"component": by});
        world.api.put::<Event>(&typed(json!({
            "metadata": {"name": name, "namespace": "default"}, "eventTime": null, "note": name,
            "deprecatedSource": source, "regarding": {"kind": kind, "name": "db"},
        })));
    };
    event("of the provisioner", "lvm.csi.pliant.io_x", "PersistentVolumeClaim");
    event("of a stranger", "scheduler", "Pod");
    let mut template = json!({"metadata": {"name": "data", "annotations": {"note": secret}}});
    template["spec"] = json!({"accessModes": [], "resources": {"requests": {"storage": "1Gi"}}});
    world.api.put::<PvcAutoscaler>(&typed(json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"statefulSetName": "db", "volumeClaimTemplate": template},
    })));
    cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    let report =
        commands::report::report(&world.api.client_of("person"), "pliant", 50).await.unwrap();
    let part = |what: &str| {
        let part = report.iter().find(|part| part.what == what);
        part.unwrap_or_else(|| panic!("{what}: {report:#?}")).found.clone()
    };
    assert!(part("status").as_str().unwrap().contains("fast"));
    assert!(part("nodestorages").to_string().contains("pvc-1"));
    assert_eq!(part("pvcautoscalers")[0]["spec"]["statefulSetName"], "db");
    assert!(part("volumerequests").to_string().contains("create"));
    assert!(part("doctor").to_string().contains("CSIDriver lvm.csi.pliant.io is missing"));
    assert_eq!(part("pods")[0]["containers"][0]["lastState"]["terminated"], "OOMKilled");
    assert_eq!(part("log of node in pliant-node-alpha"), "WARN vg0 is away\n");
    assert!(part("log of node in pliant-node-alpha, before its restart").is_string());
    assert!(part("log of other in pliant-node-alpha").to_string().contains("has not started"));
    let events = part("events");
    assert_eq!(events.as_array().unwrap().len(), 1, "{events}");
    let contains = part("report")["sections"].as_array().unwrap().len();
    assert_eq!(contains + 1, report.len());
    let all = serde_json::to_string(&report).unwrap();
    assert!(!all.contains(secret), "{all}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_asked_to_grow_is_waited_for() {
    let world = World::new();
    let mut bound = claim("100Mi");
    bound.status = typed(json!({"phase": "Bound", "capacity": {"storage": "100Mi"}}));
    world.api.put(&bound);
    let client = world.api.client_of("person");
    let mut told = Vec::new();
    let (size, limit) = (Bytes::mib(200), Some(Duration::from_secs(60)));
    let grown = async {
        commands::grow(&client, "pliant", None, "db", size, |line| told.push(line.to_owned()))
            .await?;
        let tell = |line: &str| told.push(line.to_owned());
        commands::await_growth(&client, None, "db", size, limit, tell).await
    };
    let resizer = async {
        let asked = |api: &FakeApi| {
            let claim: PersistentVolumeClaim = api.get("default/db").expect("the claim");
            claim.spec.unwrap().resources.unwrap().requests.unwrap()["storage"].0 == "200Mi"
        };
        world.api.until("the wish is written", asked).await;
        let mut claim: PersistentVolumeClaim = world.api.get("default/db").unwrap();
        claim.status = typed(json!({"phase": "Bound", "capacity": {"storage": "204Mi"}}));
        world.api.put(&claim);
    };
    tokio::join!(grown, resizer).0.unwrap();
    assert_eq!(told[0], "request     200 MiB, accepted");
    assert!(told[1].starts_with("claim       204Mi, after "), "{told:?}");
}

/// All kinds of the driver and of the cluster: what a tenant with `edit` in a namespace may not read.
const NOT_FOR_TENANTS: [&str; 9] = [
    "nodestorages",
    "pvcautoscalers",
    "storagepools",
    "volumerequests",
    "nodes",
    "csinodes",
    "storageclasses",
    "persistentvolumes",
    "customresourcedefinitions",
];

/// A sentence that says once what the caller lacks, and shows no code.
#[track_caller]
fn is_one_sentence(said: &str, verb: &str, plural: &str) {
    let what = format!("cannot {verb} resource \"{plural}\"");
    assert_eq!(said.matches(&what).count(), 1, "{said}");
    assert!(!said.contains("Status {") && !said.contains("ApiError"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_to_be_missing_that_may_not_be_read() {
    let (world, cluster, _machine) = World::with_a_node().await;
    furnish(&world);
    cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    world.api.put(&claim("100Mi"));
    world.api.put(&user());
    let tenant = world.api.client_of("tenant");
    world.api.forbid("tenant", &NOT_FOR_TENANTS);

    let said = commands::plan::plan(&tenant, None, None).await.unwrap_err().to_string();
    assert!(said.starts_with("you may not list pvcautoscalers in namespace default"), "{said}");
    let named = commands::plan::plan(&tenant, None, Some(&"db".parse().unwrap()))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(named, said);

    let seen = commands::checkup::observe(&tenant).await.unwrap();
    let said = commands::checkup::judge(&seen, "pliant", Some("alpha")).unwrap_err().to_string();
    assert!(said.starts_with("you may not list nodes"), "{said}");
    let findings = commands::checkup::judge(&seen, "pliant", None).unwrap();
    let bad = findings.iter().filter(|one| one.severity == FindingSeverity::Error);
    assert!(!bad.clone().any(|one| one.message.contains("no StoragePool exists")), "{findings:?}");
    assert!(!bad.clone().any(|one| one.message.contains("has not reported")), "{findings:?}");
    assert!(
        !findings.iter().any(|one| one.message.contains("is not deployed there")),
        "{findings:?}"
    );

    let said = commands::status(&tenant, None).await.unwrap_err().to_string();
    is_one_sentence(&said, "list", "nodestorages");

    let told = commands::explain(&tenant, "pliant", None, &"db".parse().unwrap()).await.unwrap();
    assert_eq!(told.state, ClaimState::Forbidden, "{told:?}");
    let told = commands::explain(&tenant, "pliant", None, &"pv/x".parse().unwrap()).await;
    is_one_sentence(&told.unwrap_err().to_string(), "get", "persistentvolumes");

    let seen = commands::edit::observe(&tenant, "pliant", None).await.unwrap();
    for wish in [
        commands::edit::RequestedChange::Shrink(Bytes::mib(32)),
        commands::edit::RequestedChange::Move("fast".to_owned()),
        commands::edit::RequestedChange::RollBack,
    ] {
        for whose in ["db", "sts/db", "deploy/db"] {
            let judged = commands::edit::judge(&seen, &whose.parse().unwrap(), &wish);
            let said = judged.unwrap_err().to_string();
            assert!(said.starts_with("you may not list pvcautoscalers"), "{whose}: {said}");
        }
    }
    let said = commands::adopt::observe(&tenant).await.unwrap_err().to_string();
    assert!(said.contains("you may not read nodestorages"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn what_the_claims_of_a_workload_share_is_read_once() {
    let (world, _cluster, _machines) = World::with_two_nodes().await;
    furnish(&world);
    let template = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    world.api.put::<StatefulSet>(&typed(json!({
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"serviceName": "db", "selector": {}, "template": {},
            "volumeClaimTemplates": [template("data"), template("log")]},
    })));
    let add = |name: String, volume: Value| {
        let mut one = claim("100Mi");
        one.metadata.name = Some(name);
        one.spec.as_mut().unwrap().volume_name = volume.as_str().map(str::to_owned);
        world.api.put(&one);
    };
    let person = world.api.client_of("person");
    let sts = "sts/db".parse().unwrap();
    let calls = async || {
        let before = world.api.calls();
        let told = commands::explain::answer(&person, "pliant", None, &sts).await.unwrap();
        let commands::explain::Answer::Each(told) = told else { panic!("{told:?}") };
        (world.api.calls() - before, told)
    };
    add("data-db-0".to_owned(), json!("pvc-odd"));
    world.api.put_json::<PersistentVolume>(
        json!({"metadata": {"name": "pvc-odd"}, "spec": {"capacity": 7}}),
    );
    let (one, told) = calls().await;
    assert!(told[0].unreadable[0].contains("pvc-odd"), "{told:?}");
    for at in 1..10 {
        add(format!("data-db-{at}"), Value::Null);
    }
    let (ten, told) = calls().await;
    assert_eq!(told.len(), 10);
    assert!(ten <= one + 9 * 3, "{one} calls for one claim, {ten} for ten");
    // What could not be read of one is said of that one.
    let odd = told.iter().filter(|one| !one.unreadable.is_empty()).map(|one| &one.about);
    assert_eq!(odd.collect::<Vec<_>>(), ["default/data-db-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_may_not_be_read_is_not_said_to_be_missing() {
    let world = World::new();
    world.api.put(&claim("100Mi"));
    let stranger = world.api.client_of("stranger");
    world.api.forbid("stranger", &["persistentvolumeclaims"]);
    let told = commands::explain(&stranger, "pliant", None, &"db".parse().unwrap()).await;
    is_one_sentence(&told.unwrap_err().to_string(), "get", "persistentvolumeclaims");
    let seen = commands::edit::observe(&stranger, "pliant", None).await.unwrap();
    for wish in [
        commands::edit::RequestedChange::Shrink(Bytes::mib(32)),
        commands::edit::RequestedChange::RollBack,
    ] {
        let said =
            commands::edit::judge(&seen, &"db".parse().unwrap(), &wish).unwrap_err().to_string();
        assert!(said.starts_with("you may not list persistentvolumeclaims"), "{said}");
    }
    let grown = commands::grow(&stranger, "pliant", None, "db", Bytes::mib(200), |_| {}).await;
    is_one_sentence(&grown.unwrap_err().to_string(), "patch", "persistentvolumeclaims");
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_says_is_one_sentence() {
    let world = World::new();
    world.api.refuse_all(503);
    let said =
        commands::status(&world.api.client_of("person"), None).await.unwrap_err().to_string();
    let words = "the server is currently unable to handle the request";
    assert_eq!(said.matches(words).count(), 1, "{said}");
    assert!(!said.contains("Status {") && !said.contains("ApiError"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_a_swap_retains_is_one_quiet_line() {
    let world = World::without_pools();
    let id = crate::world::id("alpha", "pvc-1").to_string();
    world.api.put::<NodeStorage>(&typed(json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage",
        "metadata": {"name": "alpha"}, "spec": {"nodeHash": NodeKey::of("alpha").as_str()},
        "status": {"volumes": [{"volumeHandle": id, "name": "pvc-1", "pool": "fast", "size": "1Gi",
            "requestedSize": "1Gi", "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready",
            "fence": {"state": "Superseded", "generation": 2}}]},
    })));
    let unnamed = format!("alpha: volume {id} (pvc-1) is superseded since generation 2");
    let text = || async {
        commands::status(&world.api.client_of("person"), None)
            .await
            .unwrap()
            .text(TableOptions::default())
    };
    assert!(text().await.contains(&unnamed), "nothing is known of its claim");

    world.api.put::<PersistentVolume>(&typed(json!({
        "metadata": {"name": "pvc-1"},
        "spec": {"claimRef": {"namespace": "default", "name": "data-db-0", "uid": "u"},
                 "csi": {"driver": DRIVER, "volumeHandle": id}},
    })));
    let template = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": [], "resources": {"requests": {"storage": "1Gi"}}}});
    let kept = |used: Value| {
        typed::<PvcAutoscaler>(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
            "metadata": {"name": "db", "namespace": "default"},
            "spec": {"statefulSetName": "db", "volumeClaimTemplate": template, "retention": "3d"},
            "status": {"ordinals": [{"ordinal": 0, "activeClaim": "data-db-0-1",
                "retainedClaims": [{"name": "data-db-0", "uid": "u", "replacementReadyTime": used}]}]},
        }))
    };
    world.api.put(&kept(json!("2026-11-30T10:00:00Z")));
    let told = text().await;
    let line = "alpha: claim default/data-db-0, which pod db-0 had before its swap, is retained until \
                2026-12-03T10:00:00Z";
    assert!(told.contains(line) && !told.contains("superseded"), "{told}");
    let mut unready = kept(Value::Null);
    unready.metadata = world.api.get::<PvcAutoscaler>("default/db").unwrap().metadata;
    world.api.put(&unready);
    let told = text().await;
    let line = "alpha: claim default/data-db-0, which pod db-0 had before its swap, is retained for 72h \
                after that pod is ready";
    assert!(told.contains(line), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_persistent_volume_that_is_retained_without_its_claim_is_named() {
    let (world, cluster, _machine) = World::with_a_node().await;
    furnish(&world);
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    world.cleaned().await;
    let released = |phase: &str, policy: &str| {
        world.api.put::<PersistentVolume>(&typed(json!({
            "metadata": {"name": "pvc-1"},
            "spec": {"claimRef": {"namespace": "shop", "name": "data-db-0", "uid": "u"},
                     "persistentVolumeReclaimPolicy": policy, "capacity": {"storage": "100Mi"},
                     "csi": {"driver": DRIVER, "volumeHandle": made.id.to_string()}},
            "status": {"phase": phase},
        })));
    };
    let words = "PersistentVolume pvc-1 (100Mi) is Released and retained with its data: claim \
                 shop/data-db-0 was deleted";
    for (phase, policy, is_told) in
        [("Bound", "Retain", false), ("Released", "Delete", false), ("Released", "Retain", true)]
    {
        released(phase, policy);
        let said = ails(&world).await;
        assert_eq!(said.iter().any(|what| what == words), is_told, "{phase} {policy}: {said:?}");
    }
    let seen = commands::checkup::observe(&world.api.client_of("person")).await.unwrap();
    let found = commands::checkup::judge(&seen, "pliant", Some("alpha")).unwrap();
    let todo = found.iter().find(|one| one.message == words).unwrap().remediation.clone();
    assert_eq!(todo.as_deref(), Some("pliant explain pv/pvc-1"));
    let told = explained(&world, "pv/pvc-1").await.unwrap();
    assert_eq!((told.state, told.remediation.len()), (ClaimState::Retained, 2));
}

/// An upgrade writes them; an older program leaves newer ones as they are.
#[tokio::test]
async fn definitions_are_written_over_older_ones_and_not_over_newer_ones() {
    let api = fake_api();
    let names = commands::apply_definitions(&api.client()).await.unwrap();
    assert_eq!(names.len(), 6);
    let of = |name: &str| api.get::<CustomResourceDefinition>(name).unwrap();
    let ours = of("storagepools.pliant.io");

    let mut old = ours.clone();
    old.metadata.annotations = None;
    old.spec.versions[0].schema = None;
    api.put(&old);
    commands::apply_definitions(&api.client()).await.unwrap();
    assert_eq!(of("storagepools.pliant.io").spec, ours.spec);
    api.forget_writes();
    commands::apply_definitions(&api.client()).await.unwrap();

    let mut newer = of("volumerequests.pliant.io");
    newer.metadata.annotations =
        Some([("pliant.io/version".to_owned(), "99.0.0".to_owned())].into());
    api.put(&newer);
    api.forget_writes();
    let refusal = commands::apply_definitions(&api.client()).await.unwrap_err().to_string();
    assert!(refusal.contains("volumerequests.pliant.io has version 99.0.0"), "{refusal}");
    assert_eq!(api.writes(), [""; 0], "none is changed");
}
