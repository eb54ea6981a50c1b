//! What may not be read, or cannot be decoded, is never said to be missing.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota,
};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Resource, ResourceExt};
use pliant::api::{
    ArchivePopulator, NodeStorage, PvcAutoscaler, PvcSourcePopulator, StoragePool, VolumeRequest,
};
use pliant::commands::explain::ClaimState;
use pliant::commands::{self, TableOptions};
use pliant::doctor::{Finding, FindingSeverity};
use pliant::testing::FakeApi;
use pliant::volume::Volumes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::people::{claim, furnish, user};
use crate::world::{World, want};

/// Make every object of a kind one that cannot be decoded.
fn spoil<K>(api: &FakeApi)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize,
{
    for one in api.list::<K>() {
        let (name, namespace) = (one.name_any(), one.namespace());
        let metadata = json!({"name": name, "namespace": namespace, "labels": one.labels()});
        api.put_json::<K>(json!({"metadata": metadata, "spec": 7, "status": 7, "parameters": 7,
                                 "provisioner": 7}));
    }
}

/// What the doctor says of the whole cluster.
async fn doctor(api: &FakeApi, user: &str) -> Vec<Finding> {
    let seen = commands::checkup::observe(&api.client_of(user)).await.expect("it goes on");
    commands::checkup::judge(&seen, "pliant", None).expect("it goes on")
}

/// A cluster in which every kind has an object.
async fn full() -> (World, impl Sized) {
    let (world, cluster, machine) = World::with_a_node().await;
    furnish(&world);
    cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    world.api.put(&claim("100Mi"));
    world.api.put(&user());
    world.api.put_json::<StoragePool>(
        json!({"metadata": {"name": "fast"}, "spec": {"volumeGroups": ["vg0"]}}),
    );
    let volume = "aaaaaaaa-aaaaaaaaaaaaaaaaaaaaaaaaaa";
    let request =
        json!({"nodeName": "alpha", "volumeHandle": volume, "operation": {"inspect": {}}});
    world.api.put_json::<VolumeRequest>(json!({"metadata": {"name": "one"}, "spec": request}));
    let db = json!({"name": "db", "namespace": "default"});
    let template = json!({"spec": {"containers": []}});
    let set = json!({"selector": {}, "serviceName": "db", "template": template});
    world.api.put_json::<StatefulSet>(json!({"metadata": db, "spec": set}));
    let hard = json!({"hard": {"requests.storage": "1Gi"}});
    world.api.put_json::<ResourceQuota>(json!({"metadata": db, "spec": hard}));
    let about = json!({"kind": "PersistentVolumeClaim", "name": "db", "namespace": "default"});
    world.api.put_json::<Event>(json!({"metadata": db, "regarding": about, "eventTime": null}));
    let from = json!({"sourcePvcRef": {"name": "other"}});
    world.api.put_json::<PvcSourcePopulator>(json!({"metadata": db, "spec": from}));
    let from = json!({"url": "https://x/y.tar"});
    world.api.put_json::<ArchivePopulator>(json!({"metadata": db, "spec": from}));
    (world, (cluster, machine))
}

/// Each kind: its plural, and how its objects become unreadable.
type Kind = (&'static str, fn(&FakeApi));

const KINDS: [Kind; 17] = [
    ("customresourcedefinitions", spoil::<CustomResourceDefinition>),
    ("csidrivers", spoil::<CSIDriver>),
    ("storageclasses", spoil::<StorageClass>),
    ("storagepools", spoil::<StoragePool>),
    ("nodes", spoil::<Node>),
    ("csinodes", spoil::<CSINode>),
    ("nodestorages", spoil::<NodeStorage>),
    ("pods", spoil::<Pod>),
    ("persistentvolumes", spoil::<PersistentVolume>),
    ("persistentvolumeclaims", spoil::<PersistentVolumeClaim>),
    ("pvcautoscalers", spoil::<PvcAutoscaler>),
    ("volumerequests", spoil::<VolumeRequest>),
    ("statefulsets", spoil::<StatefulSet>),
    ("resourcequotas", spoil::<ResourceQuota>),
    ("events", spoil::<Event>),
    ("pvcsourcepopulators", spoil::<PvcSourcePopulator>),
    ("archivepopulators", spoil::<ArchivePopulator>),
];

#[tokio::test(start_paused = true)]
async fn what_is_not_known_is_never_said_to_be_missing_or_fine() {
    for (plural, spoil) in KINDS {
        for is_forbidden in [true, false] {
            let (world, _running) = full().await;
            let before: BTreeSet<String> =
                doctor(&world.api, "person").await.into_iter().map(|one| one.message).collect();
            let subject = "db".parse().unwrap();
            let person = world.api.client_of("person");
            let known = commands::explain(&person, "pliant", None, &subject).await.unwrap().state;
            if is_forbidden {
                world.api.forbid("person", &[plural]);
            } else {
                spoil(&world.api);
            }
            let how = format!("{plural}, {}", if is_forbidden { "forbidden" } else { "spoilt" });

            // The doctor says nothing new but that something is not known.
            for one in doctor(&world.api, "person").await {
                let is_why =
                    ["may not read", "cannot be decoded"].map(|why| one.message.contains(why));
                let is_new = !before.contains(&one.message);
                assert!(!is_new || is_why.contains(&true), "{how}: {one:?}");
                assert!(one.severity != FindingSeverity::Ok || !is_new, "{how}: {one:?}");
            }
            if let Ok(status) = commands::status(&person, None).await {
                let text = status.text(TableOptions::default());
                assert!(!text.contains("No node has reported"), "{how}: {text}");
            }
            if let Ok(told) = commands::explain(&person, "pliant", None, &subject).await {
                let is_honest = told.state == known || told.state == ClaimState::Forbidden;
                assert!(is_honest, "{how}: {:?} was {known:?}: {}", told.state, told.why);
            }
            for name in [None, Some("db".parse().unwrap())] {
                let planned = commands::plan::plan(&person, None, name.as_ref()).await;
                let said = planned.err().map(|error| error.to_string()).unwrap_or_default();
                let is_about_it = plural == "pvcautoscalers" && name.is_some() && is_forbidden;
                assert!(!is_about_it || !said.starts_with("there is no"), "{how}: {said}");
            }
        }
    }
}
