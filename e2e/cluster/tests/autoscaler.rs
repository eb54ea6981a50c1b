//! The claims of a StatefulSet are grown, made smaller and given another class while a program writes
//! records to them and checks all that it ever wrote.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use pliant::api::{AutoscalerPhase, PvcAutoscaler, PvcAutoscalerStatus, PvcSourcePopulator};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::calls::{PATIENCE, persist};
use crate::claim::capacity;
use crate::world::{World, run};

/// Checks that no record is missing that was acknowledged, then writes one after the other, each on disk
/// before it is counted. The last line may have been cut short with the power. A record a second: each costs a node four
/// processes, and its one processor is what all tests wait for.
const RECORDS: &str = "\
    cd /data; n=0; while read -r number; do n=$((n + 1)); \
        [ \"$number\" = \"$n\" ] || { echo \"record $n is $number\"; exit 1; }; \
    done <records 2>/dev/null; \
    [ ! -e count ] || [ \"$n\" -ge \"$(cat count)\" ] || { echo \"only $n records\"; exit 1; }; \
    head -n $n records >records.new 2>/dev/null; sync records.new; mv records.new records; \
    echo ok >/tmp/checked; \
    while true; do n=$((n + 1)); echo $n >>records; sync records; \
        echo $n >count.new; sync count.new; mv count.new count; sleep 1; done";

/// The same in blocks of a raw device, behind what the test puts there; the number of the last record is
/// in the first of them.
const RAW_RECORDS: &str = "\
    put() { printf '%-511s\\n' $2 | dd of=/dev/data bs=512 seek=$1 conv=notrunc,fsync 2>/dev/null; }; \
    read -r n <<END
$(dd if=/dev/data bs=512 count=1 2>/dev/null | tr -d '\\0')
END
    n=${n:-0}; \
    dd if=/dev/data bs=512 skip=1 count=$n 2>/dev/null | { i=0; while read -r number; do i=$((i + 1)); \
        [ \"$number\" = $i ] || { echo \"record $i is $number\"; exit 1; }; done; \
        [ $i = $n ] || { echo \"only $i records\"; exit 1; }; } || exit 1; \
    echo ok >/tmp/checked; \
    while true; do [ $n -ge 2000 ] || { n=$((n + 1)); put $n $n; put 0 $n; }; sleep 1; done";

/// Asks a container whether it is ready until it is, and not again: asked each second, the pods of a few tests take a
/// node all of its processor.
pub fn startup_probe(command: &[&str]) -> Value {
    json!({"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 3600})
}

fn writer_of_records(script: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "app",
            "image": "pliant.test/busybox:1",
            "command": ["sh", "-c", script],
            "startupProbe": startup_probe(&["test", "-e", "/tmp/checked"]),
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }],
    })
}

impl World {
    /// A StatefulSet of one pod that writes records to the raw device `data`.
    async fn raw_workload(&self) {
        let pod = json!({
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app",
                "image": "pliant.test/busybox:1",
                "command": ["sh", "-c", RAW_RECORDS],
                "startupProbe": startup_probe(&["test", "-e", "/tmp/checked"]),
                "volumeDevices": [{"name": "data", "devicePath": "/dev/data"}],
            }],
        });
        self.workload_of(pod, 1, json!([])).await;
    }

    /// A StatefulSet whose pods write records to the volume `data`; `templates` are those of its own.
    pub async fn workload(&self, replicas: i32, templates: Value) {
        self.workload_of(writer_of_records(RECORDS), replicas, templates).await;
    }

    /// A StatefulSet of one such pod that ends as soon as it is told to: how long a database takes for that
    /// is no part of what a swap takes.
    pub async fn prompt_workload(&self) {
        let script = format!("trap 'exit 0' TERM; {RECORDS}");
        self.workload_of(writer_of_records(&script), 1, json!([])).await;
    }

    /// A StatefulSet of such pods, which mount the volume `data`.
    pub async fn workload_of(&self, mut pod: Value, replicas: i32, templates: Value) {
        // It stands for the claim: the API server takes no mount without a volume.
        let stands_for_it =
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        let has_own = templates.as_array().is_some_and(|all| !all.is_empty());
        pod["volumes"] = if has_own { json!([]) } else { stands_for_it };
        pod["dnsPolicy"] = json!("Default");
        pod["hostNetwork"] = json!(true); // Nothing here asks for one of its own, which takes a node eight processes.
        let set = json!({
            "metadata": {"name": "db"},
            "spec": {
                "serviceName": "db",
                "replicas": replicas,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "db"}},
                "volumeClaimTemplates": templates,
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod},
            },
        });
        let set: StatefulSet = serde_json::from_value(set).unwrap();
        self.api::<StatefulSet>().create(&PostParams::default(), &set).await.unwrap();
    }

    /// Declare its claims, or edit that.
    pub async fn autoscaler(&self, class: &str, size: &str, more: Value) {
        self.autoscaler_of("db", "data", (class, size), more).await;
    }

    /// Declare its claims of a volume by a PvcAutoscaler of this name, or edit that.
    pub async fn autoscaler_of(
        &self,
        name: &str,
        volume: &str,
        (class, size): (&str, &str),
        more: Value,
    ) {
        let mut spec = json!({
            "statefulSetName": "db",
            "volumeClaimTemplate": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": volume},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": size}},
                    "storageClassName": class,
                },
            },
        });
        let fields = spec.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        fields.retain(|_, field| !field.is_null());
        let whole = json!({"apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
                           "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("test").force();
        let autoscalers = self.api::<PvcAutoscaler>();
        let patch = Patch::Apply(whole);
        persist(|| autoscalers.patch(name, &params, &patch)).await.unwrap();
    }

    pub async fn until_status(
        &self,
        what: &str,
        is: impl Fn(&PvcAutoscalerStatus) -> bool,
    ) -> PvcAutoscalerStatus {
        self.until_status_of("db", what, is).await
    }

    pub async fn until_status_of(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&PvcAutoscalerStatus) -> bool,
    ) -> PvcAutoscalerStatus {
        let is_so = |one: &PvcAutoscaler| {
            let status = one.status.as_ref();
            status.is_some_and(|status| {
                Some(status.observed_generation) == one.metadata.generation && is(status)
            })
        };
        self.until::<PvcAutoscaler>(name, what, is_so).await.status.unwrap()
    }

    /// Wait until all claims are as they are wanted, and all pods ready.
    pub async fn settled(&self, claims: &str) -> PvcAutoscalerStatus {
        let status = self
            .until_status(&format!("has {claims} claims settled"), |status| {
                status.phase == AutoscalerPhase::InSync && status.ready_claims() == claims
            })
            .await;
        self.until::<StatefulSet>("db", "is ready", |set| {
            let status = set.status.clone().unwrap_or_default();
            status.ready_replicas == set.spec.as_ref().and_then(|spec| spec.replicas)
        })
        .await;
        status
    }

    pub async fn active(&self, ordinal: i32) -> PersistentVolumeClaim {
        let autoscalers = self.api::<PvcAutoscaler>();
        let status = persist(|| autoscalers.get("db")).await.unwrap().status.unwrap();
        self.get_claim(&status.of(ordinal).unwrap().active_claim).await
    }

    /// Wait until there are no claims but so many, and nothing that they were filled from.
    pub async fn until_alone(&self, claims: usize) {
        let end = Instant::now() + PATIENCE;
        loop {
            let all = ListParams::default();
            let (api, sources) =
                (self.api::<PersistentVolumeClaim>(), self.api::<PvcSourcePopulator>());
            let there = persist(|| api.list(&all)).await.unwrap().items.len();
            let from = persist(|| sources.list(&all)).await.unwrap().items.len();
            if (there, from) == (claims, 0) {
                return;
            }
            assert!(Instant::now() < end, "{there} claims and {from} sources are left");
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// How many records a pod has written.
    pub async fn records(&self, pod: &str) -> u64 {
        self.exec_when_back(pod, "cat /data/count").await.parse().unwrap()
    }

    /// The bytes of the records that are not as they were written.
    pub async fn bytes_lost(&self, pod: &str) -> usize {
        let count =
            "awk '$1 != NR { lost += length($1) + 1 } END { print lost + 0 }' /data/records";
        self.exec_when_back(pod, count).await.parse().unwrap()
    }

    /// Remove the workload and what keeps its claims: the pods would come back.
    pub async fn end_workload(&self) {
        let now = DeleteParams::default();
        self.api::<StatefulSet>().delete("db", &now).await.unwrap();
        self.api::<PvcAutoscaler>().delete("db", &now).await.unwrap();
    }
}

/// From figure 1 to figure 7: a StatefulSet with a template of its own, its claims taken over, grown,
/// and swapped for smaller ones of another class.
#[test]
fn the_walk_through_from_a_template_to_a_swap() {
    run("the_walk_through_from_a_template_to_a_swap", |world| async move {
        let hdd = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        let ssd = format!("{hdd}-ssd");
        world.class_named(&ssd, json!({"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"})).await;
        let template = json!([{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": hdd,
            "resources": {"requests": {"storage": "400Mi"}}}}]);
        world.workload(2, template).await;
        world
            .until::<StatefulSet>("db", "is ready", |set| {
                set.status.as_ref().and_then(|status| status.ready_replicas) == Some(2)
            })
            .await;
        // Its template goes, its pods run on.
        let orphan = DeleteParams {
            propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        world.api::<StatefulSet>().delete("db", &orphan).await.unwrap();
        world.autoscaler(&hdd, "400Mi", json!({})).await;
        world
            .until_status("misses its workload", |status| {
                status.reason.as_deref() == Some("WorkloadNotFound")
            })
            .await;
        world.workload(2, json!([])).await;
        let status = world.settled("2/2").await;
        assert_eq!(status.of(0).unwrap().active_claim, "data-db-0", "it is taken over");
        let before = world.records("db-0").await;
        world.autoscaler(&hdd, "500Mi", json!({})).await;
        world.settled("2/2").await;
        assert_eq!(capacity(&world.active(1).await), "500Mi");
        // Smaller, and of another class and file system.
        world.autoscaler(&ssd, "320Mi", json!({})).await;
        let status = world.settled("2/2").await;
        for ordinal in [0, 1] {
            let entry = status.of(ordinal).unwrap();
            assert_eq!((entry.claim_revision, entry.retained_claims.len()), (1, 1));
            let pod = format!("db-{ordinal}");
            assert!(world.exec(&pod, "grep ' /data ' /proc/mounts").await.contains(" xfs "));
            assert!(world.records(&pod).await > before);
        }
        assert_eq!(capacity(&world.active(0).await), "320Mi");
        world.until_told("db", "SwapSucceeded", 2).await;
        let sources = world.api::<PvcSourcePopulator>().list(&ListParams::default()).await.unwrap();
        assert_eq!(sources.items.len(), 0);
        world.end_workload().await;
    });
}

#[test]
fn pods_get_claims_of_their_template_and_lose_the_old_ones_after_their_time() {
    run("pods_get_claims_of_their_template", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        let old = world.active(0).await.name_any();
        world.autoscaler(&class, "100Mi", json!({"retention": "5s"})).await;
        world.settled("1/1").await;
        let gone = |status: &PvcAutoscalerStatus| status.of(0).unwrap().retained_claims.is_empty();
        world.until_status("has let the old claim go", gone).await;
        let claims = world.api::<PersistentVolumeClaim>();
        assert!(claims.get_opt(&old).await.unwrap().is_none());
        assert_eq!(capacity(&world.active(0).await), "100Mi");
        world.end_workload().await;
    });
}

#[test]
fn a_target_that_is_too_small_leaves_the_pod_with_its_claim() {
    run("a_target_that_is_too_small", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        world.exec_when_back("db-0", "head -c 100000000 /dev/zero >/data/big; sync").await;
        let old = world.active(0).await.name_any();
        world.autoscaler(&class, "64Mi", json!({})).await;
        let status = world
            .until_status("has failed", |status| status.phase == AutoscalerPhase::Failed)
            .await;
        let said = status.message.unwrap();
        assert!(said.contains("old claim"), "{said}");
        assert_eq!(world.active(0).await.name_any(), old);
        world.until::<Pod>("db-0", "is ready", is_ready).await;
        assert_eq!(world.exec_when_back("db-0", "wc -c </data/big").await, "100000000");
        let claims =
            world.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap();
        assert_eq!(claims.items.len(), 1, "nothing of it is left");
        world.end_workload().await;
    });
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

#[test]
fn a_full_claim_grows_by_itself() {
    run("a_full_claim_grows_by_itself", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload(1, json!([])).await;
        let policy = json!({"growAtPercent": 70, "minStep": "100Mi", "maxSize": "400Mi"});
        world.autoscaler(&class, "200Mi", json!({"autoscale": policy})).await;
        world.settled("1/1").await;
        world.exec_when_back("db-0", "head -c 150000000 /dev/zero >/data/big; sync").await;
        let claim = world.active(0).await.name_any();
        world
            .until::<PersistentVolumeClaim>(&claim, "grows", |claim| capacity(claim) == "300Mi")
            .await;
        let status = world.settled("1/1").await;
        assert_eq!(status.of(0).unwrap().claim_revision, 0, "its pod has gone on");
        world.until_told("db", "AutoscaleExpand", 1).await;
        world.end_workload().await;
    });
}

#[test]
fn a_hot_copy_stops_the_pod_for_less() {
    run("a_hot_copy_stops_the_pod_for_less", |world| async move {
        let hdd = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        let ssd = format!("{hdd}-ssd");
        world.class_named(&ssd, json!({"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&hdd, "500Mi", json!({})).await;
        world.settled("1/1").await;
        // More than a last copy is left with.
        world.exec_when_back("db-0", "head -c 100000000 /dev/urandom >/data/big; sync").await;
        let before = world.records("db-0").await;
        world
            .autoscaler(&ssd, "320Mi", json!({"preCopy": true, "verification": "ChangedOnly"}))
            .await;
        let status = world.settled("1/1").await;
        let entry = status.of(0).unwrap();
        let last = entry.last_swap.clone().unwrap();
        assert_eq!((entry.claim_revision, &last.claim), (1, &entry.active_claim));
        assert!(last.pre_copy_passes >= 1, "{last:?}");
        assert!(last.copied_bytes.unwrap() < 100_000_000, "the last copy has it all: {last:?}");
        println!("hot_copy_pause_seconds {}", last.downtime_seconds.unwrap());
        assert!(world.exec("db-0", "grep ' /data ' /proc/mounts").await.contains(" xfs "));
        assert_eq!(world.exec("db-0", "wc -c </data/big").await, "100000000");
        assert!(world.records("db-0").await > before);
        assert_eq!(capacity(&world.active(0).await), "320Mi");
        world.end_workload().await;
    });
}

/// Its first MiB is written to all the time, and what is behind it has to arrive as it was.
#[test]
fn a_hot_copy_of_a_raw_device_loses_no_block() {
    run("a_hot_copy_of_a_raw_device", |world| async move {
        let hdd = world.class(json!({"pool": "fast"})).await;
        let ssd = format!("{hdd}-ssd");
        world.class_named(&ssd, json!({"pool": "fast"})).await;
        let raw = |class: &str, size: &str| {
            json!({"preCopy": true, "volumeClaimTemplate": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                         "resources": {"requests": {"storage": size}}, "storageClassName": class},
            }})
        };
        world.raw_workload().await;
        world.autoscaler(&hdd, "200Mi", raw(&hdd, "200Mi")).await;
        world.settled("1/1").await;
        // More than a last copy is left with.
        let blocks =
            "dd if=/dev/urandom of=/dev/data bs=1M seek=1 count=90 conv=notrunc,fsync 2>/dev/null";
        world.exec_when_back("db-0", blocks).await;
        let sum = "dd if=/dev/data bs=1M skip=1 count=90 2>/dev/null | md5sum";
        let before = world.exec_when_back("db-0", sum).await;
        let records = "dd if=/dev/data bs=512 count=1 2>/dev/null | tr -d '\\0 \\n'";
        let written: u64 = world.exec_when_back("db-0", records).await.parse().unwrap();
        world.autoscaler(&ssd, "200Mi", raw(&ssd, "200Mi")).await;
        let status = world.settled("1/1").await;
        let entry = status.of(0).unwrap();
        let last = entry.last_swap.clone().unwrap();
        assert_eq!((entry.claim_revision, &last.claim), (1, &entry.active_claim));
        assert!(last.pre_copy_passes >= 1, "{last:?}");
        assert!(last.copied_bytes.unwrap() < 90 << 20, "the last copy has it all: {last:?}");
        println!("hot_copy_of_a_raw_device_pause_seconds {}", last.downtime_seconds.unwrap());
        assert_eq!(world.exec_when_back("db-0", sum).await, before);
        let after: u64 = world.exec_when_back("db-0", records).await.parse().unwrap();
        assert!(after > written, "{after} records, and {written} before");
        world.end_workload().await;
    });
}
