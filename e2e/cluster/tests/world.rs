//! A namespace of a test: makes things, waits for them, and says what happened when it fails.

use std::fmt::Debug;
use std::fs::File;
use std::future::Future;
use std::io::Write;
use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Event, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::wait::Condition;
use kube::runtime::watcher::{self, watch_object, watcher};
use kube::{Api, Client, Resource};
use pliant::api::NodeStorage;
use pliant::bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt;

use crate::calls::{self, PATIENCE, kubectl, persist, said};

/// The label of a namespace and of a class: the test whose it is.
const OF_TEST: &str = "pliant.test/of";

/// A namespace, and the way to it.
#[derive(Clone)]
pub struct World {
    pub client: Client,
    pub name: String,
    /// How long something is waited for.
    patience: Duration,
}

/// Run a test in a namespace of its name. It is removed if the test succeeds; then what its claims
/// had is gone from the nodes too, or the test fails after all.
pub fn run<F: Future<Output = ()>>(name: &str, test: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = calls::client().await;
        let world = World { client, name: name.replace('_', "-"), patience: PATIENCE };
        world.begin().await;
        test(world.clone()).await;
        world.end().await;
    });
}

impl World {
    /// The same, waiting longer: while everything dies, nothing has to be done.
    pub fn with_patience(&self, patience: Duration) -> World {
        World { patience, ..self.clone() }
    }

    /// A second namespace, made for the same test; it goes with its cluster.
    pub async fn beside(&self, name: &str) -> World {
        let beside = World { name: format!("{}-{name}", self.name), ..self.clone() };
        beside.begin().await;
        beside
    }

    /// Make the namespace, and first remove that of an earlier run that failed.
    pub async fn begin(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        if namespaces.get_opt(&self.name).await.unwrap().is_some() {
            let _ = namespaces.delete(&self.name, &DeleteParams::default()).await;
            self.until_gone(namespaces.clone(), &self.name).await;
        }
        let metadata = json!({"name": self.name, "labels": {OF_TEST: self.name}});
        self.create(&namespaces, json!({"metadata": metadata})).await;
    }

    async fn end(&self) {
        let pods = self.api::<Pod>();
        let claims = self.api::<PersistentVolumeClaim>();
        let (all, params) = (ListParams::default(), DeleteParams::default());
        let volumes: Vec<String> = claims
            .list(&all)
            .await
            .unwrap()
            .into_iter()
            .filter_map(|claim| claim.spec?.volume_name)
            .collect();
        pods.delete_collection(&params, &all).await.unwrap();
        claims.delete_collection(&params, &all).await.unwrap();
        for volume in volumes {
            self.until_gone(Api::<PersistentVolume>::all(self.client.clone()), &volume).await;
            assert_eq!(self.on_nodes(&volume).await, None, "the volume of {volume} is left");
        }
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let ours = ListParams::default().labels(&format!("{OF_TEST}={}", self.name));
        classes.delete_collection(&params, &ours).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.name, &params).await.unwrap();
    }

    /// The node on which a volume of this name is, as the nodes tell it.
    pub async fn on_nodes(&self, volume: &str) -> Option<String> {
        let nodes: Api<NodeStorage> = Api::all(self.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.unwrap();
        let has = |node: &NodeStorage| {
            node.status.iter().flat_map(|s| &s.volumes).any(|one| one.name == volume)
        };
        nodes.into_iter().find(has).and_then(|node| node.metadata.name)
    }

    /// The things of a kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Make a thing; what a call has made whose answer was lost is not made twice.
    async fn create<K>(&self, api: &Api<K>, object: Value)
    where
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let params = PostParams::default();
        match persist(|| api.create(&params, &object)).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made.unwrap()),
        }
    }

    /// Make a class of this test: `pool`, `csi.storage.k8s.io/fstype` and whatever else.
    pub async fn class(&self, parameters: Value) -> String {
        self.class_named(&self.name, parameters).await;
        self.name.clone()
    }

    /// Make a class of this test whose volumes wait for no pod.
    pub async fn class_that_binds_at_once(&self, parameters: Value) -> String {
        self.make_class(&self.name, "Immediate", parameters).await;
        self.name.clone()
    }

    /// Make a class of any name.
    pub async fn class_named(&self, name: &str, parameters: Value) {
        self.make_class(name, "WaitForFirstConsumer", parameters).await;
    }

    /// Make a class of any name, whose volumes are on one node only.
    pub async fn class_on(&self, name: &str, node: &str, parameters: Value) {
        let key = pliant::volume::TOPOLOGY;
        let only = json!([{"matchLabelExpressions": [{"key": key, "values": [node]}]}]);
        self.make_class_of(name, json!({"parameters": parameters, "allowedTopologies": only}))
            .await;
    }

    async fn make_class(&self, name: &str, binding: &str, parameters: Value) {
        let more = json!({"volumeBindingMode": binding, "parameters": parameters});
        self.make_class_of(name, more).await;
    }

    async fn make_class_of(&self, name: &str, more: Value) {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let _ = classes.delete(name, &DeleteParams::default()).await;
        let mut class = json!({
            "metadata": {"name": name, "labels": { OF_TEST: self.name }},
            "provisioner": "lvm.csi.pliant.io",
            "allowVolumeExpansion": true,
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.create(&classes, class).await;
    }

    /// Make a class of this test that does not allow its volumes to grow.
    pub async fn class_without_expansion(&self) -> String {
        let name = self.class(json!({"pool": "fast"})).await;
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"allowVolumeExpansion": false}));
        classes.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        name
    }

    /// Make a claim.
    pub async fn claim(&self, name: &str, class: &str, size: &str, mode: &str) {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": mode,
                "storageClassName": class,
                "resources": {"requests": {"storage": size}},
            },
        });
        self.create(&self.api::<PersistentVolumeClaim>(), claim).await;
    }

    /// Allow the claims of the namespace to ask for so much in all; returns when that is counted.
    pub async fn quota(&self, storage: &str) {
        let quotas = self.api::<ResourceQuota>();
        let spec = json!({"hard": {"requests.storage": storage}});
        self.create(&quotas, json!({"metadata": {"name": "storage"}, "spec": spec})).await;
        self.until::<ResourceQuota>("storage", "is counted", |quota| {
            quota.status.as_ref().is_some_and(|status| status.used.is_some())
        })
        .await;
    }

    /// Wait until the quota of the namespace is charged with so much.
    pub async fn until_charged(&self, storage: &str) {
        self.until_quota(storage, |used| used == storage).await;
    }

    /// The same of a size that is no number of extents: what was asked for, or the whole extents that were given for it.
    pub async fn until_charged_in_extents(&self, storage: &str) {
        let size: Bytes = storage.parse().expect("a size");
        let whole = Bytes::new(size.get() + (4 << 20));
        let is_it = |used: &str| used.parse().is_ok_and(|used: Bytes| used >= size && used < whole);
        self.until_quota(storage, is_it).await;
    }

    async fn until_quota(&self, storage: &str, is_it: impl Fn(&str) -> bool) {
        self.until::<ResourceQuota>("storage", &format!("is charged with {storage}"), |quota| {
            let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
            used.and_then(|used| used.get("requests.storage")).is_some_and(|used| is_it(&used.0))
        })
        .await;
    }

    /// Start a pod that runs a script with the claim at /data, or as the device /dev/data.
    pub async fn pod(&self, name: &str, claim: &str, script: &str, more: Value) -> String {
        self.start(self.pod_with(name, claim, script, more).await).await
    }

    /// Make such a pod, of which it is not said that it will run.
    pub async fn make_pod(&self, name: &str, claim: &str, script: &str) {
        self.make_pod_with(name, claim, script, json!({})).await;
    }

    /// As [`World::make_pod`], with more in its spec.
    pub async fn make_pod_with(&self, name: &str, claim: &str, script: &str, more: Value) {
        let pod = self.pod_with(name, claim, script, more).await;
        self.create(&self.api::<Pod>(), pod).await;
    }

    async fn pod_with(&self, name: &str, claim: &str, script: &str, more: Value) -> Value {
        let block = self.get_claim(claim).await.spec.unwrap().volume_mode.unwrap() == "Block";
        let (devices, mounts) = if block {
            (json!([{"name": "data", "devicePath": "/dev/data"}]), json!([]))
        } else {
            (json!([]), json!([{"name": "data", "mountPath": "/data"}]))
        };
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "dnsPolicy": "Default",
                "hostNetwork": true,
                "containers": [{
                    "name": "app",
                    "image": "pliant.test/busybox:1",
                    "command": ["sh", "-c", script],
                    "volumeDevices": devices,
                    "volumeMounts": mounts,
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        });
        if let (Value::Object(spec), Value::Object(more)) = (&mut pod["spec"], more) {
            spec.extend(more);
        }
        pod
    }

    /// Start a pod as it is written here; the node on which it runs.
    pub async fn start(&self, pod: Value) -> String {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.create(&self.api::<Pod>(), pod).await;
        self.until::<Pod>(&name, "runs", |pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Running" | "Succeeded"))
        })
        .await
        .spec
        .and_then(|spec| spec.node_name)
        .expect("a pod that runs has a node")
    }

    /// Remove a pod, and wait until it is gone.
    pub async fn remove_pod(&self, name: &str) {
        self.remove(self.api::<Pod>(), name).await;
    }

    /// Remove a claim, and wait until it is gone with its volume.
    pub async fn remove_claim(&self, name: &str) {
        let volume = self.get_claim(name).await.spec.unwrap().volume_name.unwrap();
        self.remove(self.api::<PersistentVolumeClaim>(), name).await;
        self.until_gone(Api::<PersistentVolume>::all(self.client.clone()), &volume).await;
    }

    /// Remove a claim and its PersistentVolume, and not the volume.
    pub async fn forget_claim(&self, name: &str) {
        let volume = self.get_claim(name).await.spec.unwrap().volume_name.unwrap();
        self.remove(self.api::<PersistentVolumeClaim>(), name).await;
        self.remove(Api::<PersistentVolume>::all(self.client.clone()), &volume).await;
    }

    async fn remove<K>(&self, api: Api<K>, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        // With the time that a pod has to end: without any, it would be gone while it still runs.
        let params = DeleteParams::default();
        match persist(|| api.delete(name, &params)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            gone => drop(gone.unwrap()),
        }
        self.until_gone(api, name).await;
    }

    /// The claim as it is now.
    pub async fn get_claim(&self, name: &str) -> PersistentVolumeClaim {
        let claims = self.api::<PersistentVolumeClaim>();
        persist(|| claims.get(name)).await.unwrap()
    }

    /// Edit the size of a claim.
    pub async fn resize(&self, claim: &str, size: &str) -> Result<(), kube::Error> {
        let patch = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let claims = self.api::<PersistentVolumeClaim>();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        persist(|| claims.patch(claim, &params, &patch)).await.map(drop)
    }

    /// Wait until a thing is as it should be.
    pub async fn until<K>(&self, name: &str, what: &str, is: impl Fn(&K) -> bool) -> K
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let condition = |object: Option<&K>| object.is_some_and(&is);
        self.wait(self.api::<K>(), name, what, condition).await.expect("it is there")
    }

    /// Wait until a thing that is in no namespace is as it should be.
    pub async fn until_named<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        is: impl Fn(&K) -> bool,
    ) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let condition = |object: Option<&K>| object.is_some_and(&is);
        self.wait(api.clone(), name, what, condition).await.expect("it is there")
    }

    pub async fn until_gone<K>(&self, api: Api<K>, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        self.wait(api, name, "is gone", |object: Option<&K>| object.is_none()).await;
    }

    async fn wait<K>(
        &self,
        api: Api<K>,
        name: &str,
        what: &str,
        condition: impl Condition<K>,
    ) -> Option<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let seen = watch_object(api, name).default_backoff();
        // An API server that is away for a while is asked again.
        let mut seen = std::pin::pin!(seen.filter_map(Result::ok));
        let waited = async {
            while let Some(object) = seen.next().await {
                if condition.matches_object(object.as_ref()) {
                    return object;
                }
            }
            unreachable!("the watch has ended")
        };
        if let Ok(object) = timeout(self.patience, waited).await {
            return object;
        }
        self.tell().await;
        panic!("waited in vain until {} {}/{name} {what}", K::kind(&()), self.name);
    }

    /// Run a script in a pod; its output.
    pub async fn exec(&self, pod: &str, script: &str) -> String {
        let output = self.try_exec(pod, script).await;
        output.unwrap_or_else(|output| panic!("{script} in {pod}: {output:?}"))
    }

    /// Run a script in a pod that may be on its way back.
    pub async fn exec_when_back(&self, pod: &str, script: &str) -> String {
        let end = Instant::now() + self.patience;
        loop {
            match self.try_exec(pod, script).await {
                Ok(output) => return output,
                Err(output) => {
                    assert!(Instant::now() < end, "{script} in {pod}: {output:?}");
                }
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Run a script in a pod that may come and go; what came of it, if it came to an end.
    pub async fn try_exec(&self, pod: &str, script: &str) -> Result<String, Option<Output>> {
        let args = ["exec", "-n", &self.name, pod, "--", "sh", "-c", script];
        match kubectl(&args).await {
            Some(output) if output.status.success() => {
                Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
            }
            failed => Err(failed),
        }
    }

    /// Wait until an event of this reason with these words in it is told of an object.
    pub async fn until_said(&self, of: &str, reason: &str, words: &str) {
        let fields = format!("involvedObject.name={of},reason={reason}");
        let told = watcher(self.api::<Event>(), watcher::Config::default().fields(&fields));
        let told = told.default_backoff().touched_objects().filter_map(Result::ok);
        let says = |event: &Event| event.message.as_ref().is_some_and(|text| text.contains(words));
        let mut said = Box::pin(told.filter(says));
        if !matches!(timeout(self.patience, said.next()).await, Ok(Some(_))) {
            self.tell().await;
            panic!("waited in vain until {reason} of {}/{of} says: {words}", self.name);
        }
    }

    /// Wait until so many events of a thing have this reason: who tells them does so in his own time.
    pub async fn until_told(&self, of: &str, reason: &str, times: usize) {
        let fields = format!("involvedObject.name={of},reason={reason}");
        let told = watcher(self.api::<Event>(), watcher::Config::default().fields(&fields));
        let told = told.default_backoff().touched_objects().filter_map(Result::ok);
        let waited = told.take(times).collect::<Vec<_>>();
        if timeout(self.patience, waited).await.is_err() {
            self.tell().await;
            panic!("waited in vain until {reason} is told of {}/{of}", self.name);
        }
    }

    /// The reasons and messages of the events of a thing, in order.
    pub async fn events(&self, of: &str) -> Vec<(String, String)> {
        let fields = ListParams::default().fields(&format!("involvedObject.name={of}"));
        let events = self.api::<Event>().list(&fields).await.unwrap();
        let told =
            |event: Event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        events.into_iter().map(told).collect()
    }

    /// Show what happened in the namespace, and write beside it what the cluster and the driver said.
    async fn tell(&self) {
        let of_test = [
            "get events --sort-by=.lastTimestamp",
            "get pvc,pods -o wide",
            "logs -l app --all-containers --prefix --ignore-errors",
            "logs -l app --all-containers --prefix --ignore-errors --previous",
            "get pvcautoscalers,pvcsourcepopulators,archivepopulators -o yaml",
        ]
        .map(|args| format!("{args} -n {}", self.name));
        let of_cluster = [
            "get vreq,nst,storagepools",
            "get pods -A -o wide",
            "logs -n pliant-system -l app.kubernetes.io/component=node --tail=100 --prefix",
            "logs -n pliant-system -l app.kubernetes.io/component=controller -c controller --tail=100 \
             --prefix",
            "logs -n pliant-system -l app.kubernetes.io/component=operator --tail=200 --prefix",
        ];
        let path = format!("target/cluster/logs/{}.txt", self.name);
        let mut more = File::create(&path).unwrap();
        for args in of_test {
            let told = shown(&args).await;
            eprint!("{told}");
            more.write_all(told.as_bytes()).unwrap();
        }
        for args in of_cluster {
            more.write_all(shown(args).await.as_bytes()).unwrap();
        }
        eprintln!("what the cluster and its drivers said: {path}");
    }
}

/// A kubectl command as it is typed, and what it says.
async fn shown(args: &str) -> String {
    let told = kubectl(&args.split_whitespace().collect::<Vec<_>>()).await;
    let told = told.as_ref().map_or_else(|| "no end".to_owned(), said);
    format!("$ kubectl {args}\n{told}\n")
}
