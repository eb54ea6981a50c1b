//! What a tenant may write, on a real API server, and what that does to others.

use k8s_openapi::api::core::v1::{
    Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota,
};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pliant::api::{NodeStorage, PvcAutoscaler, PvcAutoscalerStatus};
use pliant::lvm::metadata::checksum;
use pliant::webhook::{Coverage, Service, StatefulSetRef, coverage};
use serde_json::{Value, json};

use crate::autoscaler::is_ready;
use crate::calls::{must, persist};
use crate::claim::capacity;
use crate::world::{World, run};

/// A PvcAutoscaler for a StatefulSet of this name.
fn naming(stateful_set: &str) -> PvcAutoscaler {
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let template = json!({"metadata": {"name": "data"}, "spec": spec});
    let whole: Value = json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler", "metadata": {"generateName": "a-"},
        "spec": {"statefulSetName": stateful_set, "volumeClaimTemplate": template},
    });
    serde_json::from_value(whole).unwrap()
}

#[test]
fn no_name_that_a_tenant_writes_takes_the_webhook_from_others() {
    run("bank", |world: World| async move {
        let autoscalers = world.api::<PvcAutoscaler>();
        for name in ["'", "x'] && false && 'y' in ['z", "x'] || true || 'y' in ['z", "../x", "X"] {
            let made = autoscalers.create(&PostParams::default(), &naming(name)).await;
            let refusal = made.expect_err(name).to_string();
            assert!(refusal.contains("spec.statefulSetName"), "{name}: {refusal}");
        }
        // A name that is one, of a StatefulSet that is not there.
        autoscalers.create(&PostParams::default(), &naming("x")).await.unwrap();
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        let service: Service = "pliant-system/pliant-webhook".parse().unwrap();
        let db = StatefulSetRef::parse(&world.name, "db").unwrap();
        assert_eq!(coverage(&world.client, &service, &db).await.unwrap(), Coverage::Covered);
        world.end_workload().await;
    });
}

impl World {
    /// Whether the API server takes a PvcAutoscaler as a tenant types it, whatever this program could read
    /// of it. Nothing is made.
    async fn is_taken(&self, spec: Value) -> bool {
        let kind = ApiResource::erase::<PvcAutoscaler>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.name, &kind);
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
            "metadata": {"name": "hostile"}, "spec": spec,
        }))
        .unwrap();
        let tried = PostParams { dry_run: true, ..PostParams::default() };
        match persist(|| api.create(&tried, &object)).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 422 => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// A claim that is bound to a volume; the name of its PersistentVolume.
    async fn bound_claim(&self, name: &str, size: &str) -> String {
        let class = self.class_that_binds_at_once(json!({"pool": "fast"})).await;
        self.claim(name, &class, size, "Filesystem").await;
        let is_bound = |claim: &PersistentVolumeClaim| capacity(claim) == size;
        let bound = self.until::<PersistentVolumeClaim>(name, "is bound", is_bound).await;
        bound.spec.unwrap().volume_name.unwrap()
    }

    /// A pod whose claim is to be swapped in a namespace that makes no further pod.
    async fn swap_waits(&self, class: &str) -> PvcAutoscalerStatus {
        self.autoscaler(class, "100Mi", json!({})).await;
        self.until_status("says why its swap waits", |status| status.reason.is_some()).await
    }
}

fn template(size: &str) -> Value {
    json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "pliant",
        "resources": {"requests": {"storage": size}}}})
}

#[test]
fn a_size_that_no_disk_has_is_refused() {
    run("tenant_sizes", |world| async move {
        let of = |size, most| {
            json!({"statefulSetName": "db", "volumeClaimTemplate": template(size),
                   "autoscale": {"growAtPercent": 80, "maxSize": most}})
        };
        assert!(world.is_taken(of("64Mi", "1Ti")).await);
        assert!(!world.is_taken(of("8Ei", "1Ti")).await, "of a template");
        assert!(!world.is_taken(of("64Mi", "8Ei")).await, "of a policy");
    });
}

#[test]
fn a_finalizer_that_a_tenant_writes_retains_no_volume() {
    run("tenant_finalizer", |world| async move {
        let volume = world.bound_claim("data", "32Mi").await;
        let claims = world.api::<PersistentVolumeClaim>();
        let ours = Patch::Merge(json!({"metadata": {"finalizers": ["pliant.io/swap-protection"]}}));
        let (patch, delete) = (PatchParams::default(), DeleteParams::default());
        claims.patch("data", &patch, &ours).await.unwrap();
        claims.delete("data", &delete).await.unwrap();
        let pvs: Api<PersistentVolume> = Api::all(world.client.clone());
        world.until_gone(pvs, &volume).await;
        assert_eq!(world.on_nodes(&volume).await, None, "its volume is left");
    });
}

#[test]
fn a_namespace_that_makes_no_further_pod_keeps_the_one_that_runs() {
    run("tenant_quota", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        let quotas = world.api::<ResourceQuota>();
        let quota: ResourceQuota = serde_json::from_value(
            json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "1"}}}),
        )
        .unwrap();
        quotas.create(&PostParams::default(), &quota).await.unwrap();
        world
            .until::<ResourceQuota>("pods", "is counted", |quota| {
                quota.status.as_ref().is_some_and(|status| status.used.is_some())
            })
            .await;
        let pods = world.api::<Pod>();
        let uid = pods.get("db-0").await.unwrap().uid();
        let status = world.swap_waits(&class).await;
        let pod = pods.get("db-0").await.unwrap();
        assert_eq!(pod.uid(), uid, "its pod was stopped: {status:?}");
        assert!(is_ready(&pod), "its pod does not run: {status:?}");
        quotas.delete("pods", &DeleteParams::default()).await.unwrap();
        world.settled("1/1").await;
        assert_eq!(capacity(&world.active(0).await), "100Mi");
        world.end_workload().await;
    });
}

#[test]
fn a_restricted_namespace_keeps_its_pod() {
    run("tenant_restricted", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.workload(1, json!([])).await;
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        // What runs stays; what is made from now on has to be restricted.
        let namespaces: Api<Namespace> = Api::all(world.client.clone());
        let enforce = "pod-security.kubernetes.io/enforce";
        let labels = Patch::Merge(json!({"metadata": {"labels": {enforce: "restricted"}}}));
        namespaces.patch(&world.name, &PatchParams::default(), &labels).await.unwrap();
        let pods = world.api::<Pod>();
        let uid = pods.get("db-0").await.unwrap().uid();
        let status = world.swap_waits(&class).await;
        assert_eq!(pods.get("db-0").await.unwrap().uid(), uid, "its pod was stopped: {status:?}");
        let said = status.message.unwrap_or_default();
        assert!(said.contains("restricted"), "{said}");
        // The edit back ends it: there is nothing to be undone.
        world.autoscaler(&class, "200Mi", json!({})).await;
        world.settled("1/1").await;
        assert_eq!(pods.get("db-0").await.unwrap().uid(), uid);
        let none = Patch::Merge(json!({"metadata": {"labels": {enforce: null}}}));
        namespaces.patch(&world.name, &PatchParams::default(), &none).await.unwrap();
        world.end_workload().await;
    });
}

/// Where a tenant writes what makes its device a disk of LVM, by sectors, and what.
fn forged_disk(group: &str, uuid: &str) -> [(usize, Vec<u8>); 3] {
    const PV: &str = "Evil00evilevilevilevilevilEvil00";
    const AREA: u64 = 4096;
    let put = |bytes: &mut [u8], at: usize, number: u64| {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    };
    let dashed = |uuid: &str| {
        let ends = [(0, 6), (6, 10), (10, 14), (14, 18), (18, 22), (22, 26), (26, 32)];
        ends.map(|(from, to)| &uuid[from..to]).join("-")
    };
    let text = format!(
        "{group} {{\nid = \"{}\"\nseqno = 999999\nformat = \"lvm2\"\n\
         status = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nflags = []\nextent_size = 8192\n\
         max_lv = 0\nmax_pv = 0\nmetadata_copies = 0\nphysical_volumes {{\npv0 {{\nid = \"{}\"\n\
         device = \"/dev/evil\"\nstatus = [\"ALLOCATABLE\"]\nflags = []\ndev_size = 131072\n\
         pe_start = 2048\npe_count = 15\n}}\n}}\n}}\n\0",
        dashed(uuid),
        dashed(PV)
    );
    let mut label = vec![0; 512];
    label[..8].copy_from_slice(b"LABELONE");
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].copy_from_slice(PV.as_bytes());
    for (at, number) in
        [(8, 1), (64, 64 << 20), (72, 1 << 20), (104, AREA), (112, (1 << 20) - AREA)]
    {
        put(&mut label, at, number);
    }
    label[20..24].copy_from_slice(&32_u32.to_le_bytes());
    (label[136], label[140]) = (2, 1);
    let sum = checksum(&label[20..]).to_le_bytes();
    label[16..20].copy_from_slice(&sum);
    let mut header = vec![0; 512];
    header[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    header[20] = 1;
    let length = u64::try_from(text.len()).unwrap();
    for (at, number) in [(24, AREA), (32, (1 << 20) - AREA), (40, 512), (48, length)] {
        put(&mut header, at, number);
    }
    header[56..60].copy_from_slice(&checksum(text.as_bytes()).to_le_bytes());
    let sum = checksum(&header[4..]).to_le_bytes();
    header[..4].copy_from_slice(&sum);
    [(1, label), (8, header), (9, text.into_bytes())]
}

/// The device-mapper uuid and name of the volume behind the device of a pod, as its container reads them.
const WHOSE: &str = "n=$(stat -L -c '%t %T' /dev/data) && set -- $n && \
     d=/sys/dev/block/$((0x$1)):$((0x$2))/dm && cat $d/uuid $d/name";

/// One tenant writes what the disk of the node says of itself, newer, into its own volume, and the driver
/// starts again: the volumes of others are where they were, and what is made goes to the disks.
#[test]
fn a_group_that_a_tenant_forges_in_its_volume_takes_nothing_from_the_node() {
    run("tenant_group", |world| async move {
        world.claim("evil", "pliant", "64Mi", "Block").await;
        let node = world.pod("evil", "evil", "sleep 9999", json!({})).await;
        let here = json!({"nodeSelector": {"kubernetes.io/hostname": node.clone()}});
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.claim("before", &class, "64Mi", "Filesystem").await;
        world.pod("before", "before", "sleep 9999", here.clone()).await;
        world.exec("before", "echo kept >/data/file; sync").await;

        let known = world.exec("evil", WHOSE).await;
        let (uuid, name) = known.split_once('\n').expect("a uuid and a name");
        let group_uuid = &uuid.strip_prefix("LVM-").expect("a volume of LVM")[..32];
        let (group, _) = name.split_once("-pliant--").expect("a volume of this driver");
        for (sector, bytes) in forged_disk(&group.replace("--", "-"), group_uuid) {
            let octal: Vec<String> = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
            let write = format!(
                "printf '{}' | dd of=/dev/data bs=512 seek={sector} conv=fsync",
                octal.concat()
            );
            world.exec("evil", &write).await;
        }
        let sum = world.exec("evil", "md5sum </dev/data").await;

        let ours = "app.kubernetes.io/component=node";
        let on_node = format!("--field-selector=spec.nodeName={node}");
        must("kubectl", &["delete", "pod", "-n", "pliant-system", "-l", ours, &on_node]).await;
        world.claim("after", &class, "64Mi", "Filesystem").await;
        world.pod("after", "after", "sleep 9999", here).await;
        world.exec("after", "dd if=/dev/urandom of=/data/file bs=1M count=16; sync").await;
        for claim in ["before", "after", "evil"] {
            world.resize(claim, "128Mi").await.unwrap();
            let is_grown = |claim: &PersistentVolumeClaim| capacity(claim) == "128Mi";
            world.until::<PersistentVolumeClaim>(claim, "has its new size", is_grown).await;
        }
        assert_eq!(world.exec("before", "cat /data/file").await, "kept");
        let first = "dd if=/dev/data bs=1M count=64 2>/dev/null | md5sum";
        assert_eq!(world.exec("evil", first).await, sum, "another volume was put on its device");
        let nodes: Api<NodeStorage> = Api::all(world.client.clone());
        let told = serde_json::to_string(&nodes.get(&node).await.unwrap().status).unwrap();
        assert!(!told.contains("Evil00"), "what it wrote is believed: {told}");
        for claim in ["before", "after", "evil"] {
            let volume = world.get_claim(claim).await.spec.unwrap().volume_name.unwrap();
            assert_eq!(world.on_nodes(&volume).await.as_ref(), Some(&node), "{claim}");
        }
    });
}
