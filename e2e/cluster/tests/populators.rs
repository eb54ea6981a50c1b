//! Claims are filled from archives and from other claims, and the API server keeps what they name.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, Secret, TypedObjectReference,
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pliant::api::{
    ArchivePopulator, FenceState, FillingPhase, NodeStorage, PopulatorStatus, PvcSourcePopulator,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use crate::deaths::NODES;
use crate::figures::figures;
use crate::world::{World, run};

const FINALIZER: &str = "pliant.io/populator-protection";

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn named(claim: &PersistentVolumeClaim) -> [Option<String>; 2] {
    let spec = claim.spec.clone().unwrap_or_default();
    [
        spec.data_source.map(|named| named.kind),
        spec.data_source_ref.map(|named: TypedObjectReference| named.kind),
    ]
}

fn reason(status: Option<&PopulatorStatus>) -> Option<(FillingPhase, Option<String>)> {
    let told = status?.claims.first()?;
    Some((told.phase, told.reason.clone()))
}

/// A tar with one file, as the format has it.
pub fn tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut tar = header.to_vec();
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    tar
}

impl World {
    /// An archive in a ConfigMap, and the populator of it; with a checksum that is not its own if
    /// `wrong`.
    pub async fn archive(&self, wrong: bool) {
        let archive = tar("hello", b"kept\n");
        let sum = format!("{:x}", Sha256::digest(&archive));
        let sum = if wrong { "0".repeat(64) } else { sum };
        let mut map = ConfigMap::default();
        map.metadata.name = Some("files".to_owned());
        let data = k8s_openapi::ByteString(archive);
        map.binary_data = Some([("site.tar".to_owned(), data)].into());
        self.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
        let populator = json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "ArchivePopulator",
            "metadata": {"name": "site"},
            "spec": {"configMapRef": {"name": "files", "key": "site.tar"}, "sha256": sum},
        });
        let populator: ArchivePopulator = serde_json::from_value(populator).unwrap();
        self.api::<ArchivePopulator>().create(&PostParams::default(), &populator).await.unwrap();
    }

    /// A populator that copies a claim.
    async fn copy(&self, source: &str, early: bool) {
        self.copy_with(source, early, false).await;
    }

    async fn copy_with(&self, source: &str, early: bool, paused: bool) {
        let populator = json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcSourcePopulator",
            "metadata": {"name": source},
            "spec": {"sourcePvcRef": {"name": source}, "waitForConsumer": !early, "paused": paused},
        });
        let populator: PvcSourcePopulator = serde_json::from_value(populator).unwrap();
        self.api::<PvcSourcePopulator>().create(&PostParams::default(), &populator).await.unwrap();
    }

    /// Let a copy begin that was paused.
    async fn unpause(&self, source: &str) {
        let patch = Patch::Merge(json!({"spec": {"paused": false}}));
        let copies = self.api::<PvcSourcePopulator>();
        copies.patch(source, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The volume of the prime claim, of which there is one.
    async fn filled_volume(&self) -> String {
        let ours = ListParams::default().labels("pliant.io/populator");
        let claims = self.api::<PersistentVolumeClaim>().list(&ours).await.unwrap().items;
        let [only] = claims.as_slice() else { panic!("one prime claim, not {claims:#?}") };
        only.spec.clone().unwrap().volume_name.expect("it has a volume")
    }

    /// Wait until the node of a volume tells this of it.
    async fn until_fenced(&self, volume: &str, state: FenceState, copying: bool) {
        let is_so = |node: &NodeStorage| {
            let volumes = node.status.iter().flat_map(|status| &status.volumes);
            let fence = volumes.filter(|one| one.name == volume).find_map(|one| one.fence);
            fence.is_some_and(|fence| (fence.state, fence.copy_in_progress) == (state, copying))
        };
        let node = self.on_nodes(volume).await.expect("a node has it");
        let nodes = Api::<NodeStorage>::all(self.client.clone());
        self.until_named(&nodes, &node, &format!("has {volume} as {state:?}"), is_so).await;
    }

    /// Ask for a claim with these sources; what the API server keeps of it, or its code.
    async fn ask(
        &self,
        name: &str,
        class: &str,
        mode: &str,
        fields: &Value,
    ) -> Result<PersistentVolumeClaim, u16> {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": class,
            "resources": {"requests": {"storage": "64Mi"}},
        });
        if let (Value::Object(spec), Value::Object(fields)) = (&mut spec, fields.clone()) {
            spec.extend(fields);
        }
        let claim =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        let answer = self.api().create(&PostParams::default(), &claim).await;
        answer.map_err(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("{other}"),
        })
    }

    pub async fn claim_from(&self, name: &str, class: &str, size: &str, kind: &str, from: &str) {
        let more = json!({
            "dataSourceRef": {"apiGroup": "pliant.io", "kind": kind, "name": from},
            "resources": {"requests": {"storage": size}},
        });
        self.ask(name, class, "Filesystem", &more).await.unwrap();
    }

    /// Wait until a claim has its volume and nothing of the filling is left.
    pub async fn filled(&self, name: &str) {
        self.until::<PersistentVolumeClaim>(name, "is filled", |claim| {
            phase(claim) == "Bound" && !claim.finalizers().iter().any(|one| one == FINALIZER)
        })
        .await;
        self.nothing_left().await;
    }

    async fn nothing_left(&self) {
        let ours = ListParams::default().labels("pliant.io/populator");
        let claims = self.api::<PersistentVolumeClaim>().list(&ours).await.unwrap();
        let pods = self.api::<Pod>().list(&ours).await.unwrap();
        assert_eq!((claims.items.len(), pods.items.len()), (0, 0));
    }

    /// Wait until the garbage collector has taken the keys of pods that sent.
    async fn no_keys_left(&self) {
        let ours = ListParams::default().labels("pliant.io/populator");
        let end = Instant::now() + Duration::from_secs(60);
        while !self.api::<Secret>().list(&ours).await.unwrap().items.is_empty() {
            assert!(Instant::now() < end, "the keys of a filling are left");
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// How often a reason was told on a claim.
    async fn times(&self, claim: &str, reason: &str) -> usize {
        self.events(claim).await.iter().filter(|(told, _)| told == reason).count()
    }
}

#[test]
fn an_archive_fills_a_claim() {
    run("an_archive_fills_a_claim", |world| async move {
        world.archive(false).await;
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.claim_from("web", &class, "64Mi", "ArchivePopulator", "site").await;
        world.pod("app", "web", "sleep 9999", json!({})).await;
        assert_eq!(world.exec("app", "cat /data/hello").await, "kept");
        world.filled("web").await;
        assert_eq!(world.times("web", "PopulatorFinished").await, 1);
        assert_eq!(world.times("web", "UnrecognizedDataSourceKind").await, 0);
    });
}

#[test]
fn an_archive_with_another_checksum_fills_nothing() {
    run("an_archive_with_another_checksum_fills_nothing", |world| async move {
        world.archive(true).await;
        let class = world.class_that_binds_at_once(json!({"pool": "fast"})).await;
        world.claim_from("web", &class, "64Mi", "ArchivePopulator", "site").await;
        let failed = Some((FillingPhase::Failed, Some("ChecksumMismatch".to_owned())));
        world
            .until::<ArchivePopulator>("site", "has failed", |one| {
                reason(one.status.as_ref()) == failed
            })
            .await;
        world
            .until::<PersistentVolumeClaim>("web", "is let go", |claim| {
                !claim.finalizers().iter().any(|one| one == FINALIZER)
            })
            .await;
        world.nothing_left().await;
        assert_eq!(phase(&world.get_claim("web").await), "Pending");
        world.api::<PersistentVolumeClaim>().delete("web", &DeleteParams::default()).await.unwrap();
    });
}

#[test]
fn an_archive_is_not_unpacked_to_a_raw_device() {
    run("an_archive_is_not_unpacked_to_a_raw_device", |world| async move {
        world.archive(false).await;
        let class = world.class_that_binds_at_once(json!({"pool": "fast"})).await;
        let from = json!({"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "site"});
        world.ask("web", &class, "Block", &json!({"dataSourceRef": from})).await.unwrap();
        let failed = Some((FillingPhase::Failed, Some("VolumeModeMismatch".to_owned())));
        world
            .until::<ArchivePopulator>("site", "has failed", |one| {
                reason(one.status.as_ref()) == failed
            })
            .await;
        assert_eq!(world.times("web", "VolumeModeMismatch").await, 1);
        world.api::<PersistentVolumeClaim>().delete("web", &DeleteParams::default()).await.unwrap();
    });
}

/// Smaller than its source, of another class, and with another file system.
#[test]
fn a_claim_is_copied_into_a_smaller_one_with_another_file_system() {
    run("a_claim_is_copied_into_a_smaller_one_with_another_file_system", |world| async move {
        let old = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world
            .class_named(
                "copied-to-xfs",
                json!({"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"}),
            )
            .await;
        world.claim("old", &old, "512Mi", "Filesystem").await;
        let script = "dd if=/dev/urandom of=/data/a bs=1M count=20 2>/dev/null; ln /data/a /data/b; \
                      ln -s a /data/c; chown 12:34 /data/a; chmod 640 /data/a; sync; sleep 9999";
        world.pod("writer", "old", script, json!({})).await;
        let tell = "cd /data && sync && md5sum a b && stat -c '%a %u %g %h' a && readlink c";
        let before = world.exec_when_back("writer", &format!("test -L /data/c && {tell}")).await;
        // While somebody writes it waits, and says for whom.
        world.copy("old", true).await;
        world.claim_from("new", "copied-to-xfs", "320Mi", "PvcSourcePopulator", "old").await;
        let waits = Some((FillingPhase::Waiting, Some("SourceInUse".to_owned())));
        world
            .until::<PvcSourcePopulator>("old", "waits for its pod", |one| {
                reason(one.status.as_ref()) == waits
            })
            .await;
        world.remove_pod("writer").await;
        world.filled("new").await;
        world.pod("reader", "new", "sleep 9999", json!({})).await;
        assert_eq!(world.exec("reader", tell).await, before);
        assert_eq!(
            world.exec("reader", "awk '$2 == \"/data\" {print $3}' /proc/mounts").await,
            "xfs"
        );
    });
}

/// What is filled, or is about to be, says so below Kubernetes.
#[test]
fn a_volume_is_half_copied_until_the_claim_has_it() {
    run("a_volume_is_half_copied_until_the_claim_has_it", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world.claim("old", &class, "320Mi", "Filesystem").await;
        world.pod("writer", "old", "echo kept >/data/a; sync; sleep 9999", json!({})).await;
        world.exec_when_back("writer", "cat /data/a").await;
        world.remove_pod("writer").await;
        world.copy_with("old", true, true).await;
        world.claim_from("new", &class, "320Mi", "PvcSourcePopulator", "old").await;
        let paused = Some((FillingPhase::Waiting, Some("SourcePaused".to_owned())));
        world
            .until::<PvcSourcePopulator>("old", "has its room", |one| {
                reason(one.status.as_ref()) == paused
            })
            .await;
        let volume = world.filled_volume().await;
        world.until_fenced(&volume, FenceState::Incomplete, true).await;
        world.unpause("old").await;
        world.filled("new").await;
        world.until_fenced(&volume, FenceState::Active, false).await;
        world.pod("reader", "new", "sleep 9999", json!({})).await;
        assert_eq!(world.exec("reader", "cat /data/a").await, "kept");
        assert_eq!(world.get_claim("new").await.spec.unwrap().volume_name, Some(volume));
    });
}

#[test]
fn a_raw_device_is_copied_on_its_node() {
    run("a_raw_device_is_copied_on_its_node", |world| async move {
        let class = world.class(json!({"pool": "fast"})).await;
        world.claim("old", &class, "64Mi", "Block").await;
        world.pod("writer", "old", "sleep 9999", json!({})).await;
        let sum = "dd if=/dev/data bs=1M count=64 2>/dev/null | md5sum";
        let fill = "dd if=/dev/urandom of=/dev/data bs=1M count=64 2>/dev/null; sync";
        let before = world.exec("writer", &format!("{fill}; {sum}")).await;
        world.remove_pod("writer").await;
        world.copy("old", true).await;
        let from = json!({"apiGroup": "pliant.io", "kind": "PvcSourcePopulator", "name": "old"});
        world.ask("new", &class, "Block", &json!({"dataSourceRef": from})).await.unwrap();
        world.filled("new").await;
        world.pod("reader", "new", "sleep 9999", json!({})).await;
        assert_eq!(world.exec("reader", sum).await, before);
    });
}

/// The node that a node is not.
fn other_than(node: &str) -> &'static str {
    NODES.into_iter().find(|other| *other != node).expect("there are two")
}

/// The pod of the new claim runs on another node than the volume that it is filled from.
#[test]
fn a_claim_is_copied_to_another_node() {
    run("a_claim_is_copied_to_another_node", |world| async move {
        let old = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "ext4"})).await;
        world
            .class_named("sent-to-xfs", json!({"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"}))
            .await;
        world.claim("old", &old, "512Mi", "Filesystem").await;
        let script = "dd if=/dev/urandom of=/data/a bs=1M count=20 2>/dev/null; ln /data/a /data/b; \
                      mkdir /data/d; for i in $(seq 500); do echo $i >/data/d/$i; done; \
                      ln -s a /data/c; chown 12:34 /data/a; chmod 640 /data/a; sync; sleep 9999";
        let here = world.pod("writer", "old", script, json!({})).await;
        let tell = "cd /data && sync && md5sum a b && cat d/* | md5sum && stat -c '%a %u %g %h' a \
                    && readlink c";
        let before = world.exec_when_back("writer", &format!("test -L /data/c && {tell}")).await;
        world.remove_pod("writer").await;
        world.copy("old", false).await;
        world.claim_from("new", "sent-to-xfs", "320Mi", "PvcSourcePopulator", "old").await;
        let there = json!({"nodeSelector": {"kubernetes.io/hostname": other_than(&here)}});
        let node = world.pod("reader", "new", "sleep 9999", there).await;
        assert_eq!(node, other_than(&here));
        assert_eq!(world.exec("reader", tell).await, before);
        world.filled("new").await;
        world.no_keys_left().await;
    });
}

#[test]
fn a_raw_device_is_copied_to_another_node() {
    run("a_raw_device_is_copied_to_another_node", |world| async move {
        let class = world.class(json!({"pool": "fast"})).await;
        world.claim("old", &class, "64Mi", "Block").await;
        let here = world.pod("writer", "old", "sleep 9999", json!({})).await;
        let sum = "dd if=/dev/data bs=1M count=64 2>/dev/null | md5sum";
        let fill = "dd if=/dev/urandom of=/dev/data bs=1M count=64 2>/dev/null; sync";
        let before = world.exec("writer", &format!("{fill}; {sum}")).await;
        world.remove_pod("writer").await;
        world.copy("old", false).await;
        let from = json!({"apiGroup": "pliant.io", "kind": "PvcSourcePopulator", "name": "old"});
        world.ask("new", &class, "Block", &json!({"dataSourceRef": from})).await.unwrap();
        let there = json!({"nodeSelector": {"kubernetes.io/hostname": other_than(&here)}});
        world.pod("reader", "new", "sleep 9999", there).await;
        assert_eq!(world.exec("reader", sum).await, before);
        world.filled("new").await;
        world.no_keys_left().await;
    });
}

#[test]
fn a_source_that_is_deleted_leaves_nothing() {
    run("a_source_that_is_deleted_leaves_nothing", |world| async move {
        let class = world.class(json!({"pool": "fast"})).await;
        world.claim("old", &class, "512Mi", "Filesystem").await;
        let script =
            "dd if=/dev/urandom of=/data/a bs=1M count=300 2>/dev/null; sync; touch /data/done";
        world.pod("writer", "old", script, json!({"restartPolicy": "Never"})).await;
        world
            .until::<Pod>("writer", "has ended", |pod| {
                pod.status.as_ref().and_then(|one| one.phase.as_deref()) == Some("Succeeded")
            })
            .await;
        world.copy("old", true).await;
        world.claim_from("new", &class, "512Mi", "PvcSourcePopulator", "old").await;
        world
            .until::<PvcSourcePopulator>("old", "is copied", |one| {
                let told = reason(one.status.as_ref()).map(|(phase, _)| phase);
                !matches!(told, None | Some(FillingPhase::Waiting))
            })
            .await;
        let copies = world.api::<PvcSourcePopulator>();
        copies.delete("old", &DeleteParams::default()).await.unwrap();
        world
            .until::<PersistentVolumeClaim>("new", "is let go", |claim| {
                !claim.finalizers().iter().any(|one| one == FINALIZER)
            })
            .await;
        world.nothing_left().await;
        // Either all of it came in time, or nothing did.
        if phase(&world.get_claim("new").await) != "Bound" {
            let claims = world.api::<PersistentVolumeClaim>();
            claims.delete("new", &DeleteParams::default()).await.unwrap();
        }
        world.remove_pod("writer").await;
    });
}

#[test]
fn a_kind_that_nobody_fills_is_told_once() {
    run("a_kind_that_nobody_fills_is_told_once", |world| async move {
        let class = world.class(json!({"pool": "fast"})).await;
        let from = json!({"apiGroup": "example.com", "kind": "Backup", "name": "x"});
        world.ask("lost", &class, "Filesystem", &json!({"dataSourceRef": from})).await.unwrap();
        for _ in 0..60 {
            if world.times("lost", "UnrecognizedDataSourceKind").await > 0 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        // Both replicas have looked by now.
        tokio::time::sleep(std::time::Duration::from_secs(15)).await;
        assert_eq!(world.times("lost", "UnrecognizedDataSourceKind").await, 1);
        world
            .api::<PersistentVolumeClaim>()
            .delete("lost", &DeleteParams::default())
            .await
            .unwrap();
    });
}

/// A case of KEP-1495, by its words: `dataSource`, `dataSourceRef`, and the kinds that the API server
/// keeps of both, or its code.
type Case = (&'static str, Value, Value, Result<[Option<String>; 2], u16>);

/// What is to become of a claim, as the test plan of KEP-1495 lists it for the API server.
fn cases_of_the_api_server() -> [Case; 12] {
    let pvc = || json!({"kind": "PersistentVolumeClaim", "name": "x"});
    let snapshot =
        || json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "x"});
    let custom = || json!({"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "x"});
    let pod = || json!({"kind": "Pod", "name": "x"});
    let none = || Value::Null;
    let kept = |kind: &str| Ok([Some(kind.to_owned()), Some(kind.to_owned())]);
    let wiped = || Ok([None, None]);
    [
        ("both unset", none(), none(), wiped()),
        ("DataSource is a PVC", pvc(), none(), kept("PersistentVolumeClaim")),
        ("DataSource is a VolumeSnapshot", snapshot(), none(), kept("VolumeSnapshot")),
        ("both are the same", pvc(), pvc(), kept("PersistentVolumeClaim")),
        ("both are valid and differ", pvc(), snapshot(), Err(422)),
        ("DataSource is a Pod", pod(), none(), wiped()),
        ("DataSource is a custom resource", custom(), none(), wiped()),
        ("DataSource is invalid, DataSourceRef is valid", pod(), pvc(), Err(422)),
        ("DataSourceRef is a Pod", none(), pod(), Err(422)),
        ("DataSourceRef is a PVC", none(), pvc(), kept("PersistentVolumeClaim")),
        ("DataSourceRef is a VolumeSnapshot", none(), snapshot(), kept("VolumeSnapshot")),
        ("DataSourceRef is a custom resource", none(), custom(), kept("ArchivePopulator")),
    ]
}

/// What of a claim is told, as the same plan lists it for the validator. The one that is told of is the
/// last: by then the others have been looked at.
fn cases_of_the_validator() -> [(&'static str, Value, usize); 4] {
    let snapshot =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "x"});
    let registered = json!({"apiGroup": "pliant.io", "kind": "ArchivePopulator", "name": "x"});
    let unregistered = json!({"apiGroup": "example.com", "kind": "Backup", "name": "x"});
    [
        ("no DataSourceRef", Value::Null, 0),
        ("DataSourceRef is a VolumeSnapshot", snapshot, 0),
        ("DataSourceRef is a registered custom resource", registered, 0),
        ("DataSourceRef is an unregistered custom resource", unregistered, 1),
    ]
}

impl World {
    /// The cases of the API server that do not hold.
    async fn broken_by_the_api_server(&self, class: &str) -> Vec<String> {
        let mut broken = Vec::new();
        for (number, (case, source, by_ref, expected)) in
            cases_of_the_api_server().into_iter().enumerate()
        {
            let name = format!("case-{number}");
            let more = json!({"dataSource": source, "dataSourceRef": by_ref});
            let answer = self.ask(&name, class, "Filesystem", &more).await;
            let kept = answer.as_ref().map(named).map_err(|code| *code);
            if kept != expected {
                broken.push(format!("{case}: {kept:?} in place of {expected:?}"));
            }
            if answer.is_ok() {
                self.drop_claim(&name).await;
            }
        }
        broken
    }

    /// The cases of the validator that do not hold.
    async fn broken_by_the_validator(&self, class: &str) -> Vec<String> {
        let cases = cases_of_the_validator();
        for (number, (_, from, _)) in cases.iter().enumerate() {
            let more = json!({ "dataSourceRef": from });
            self.ask(&format!("told-{number}"), class, "Filesystem", &more).await.unwrap();
        }
        // The plan names PVCs and VolumeSnapshots in one case.
        let pvc = json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x"}});
        self.ask("told-pvc", class, "Filesystem", &pvc).await.unwrap();
        self.until_told("told-3", "UnrecognizedDataSourceKind", 1).await;
        let mut broken = Vec::new();
        for (number, (case, _, expected)) in cases.into_iter().enumerate() {
            let name = format!("told-{number}");
            let mut times = self.times(&name, "UnrecognizedDataSourceKind").await;
            if case.ends_with("VolumeSnapshot") {
                times += self.times("told-pvc", "UnrecognizedDataSourceKind").await;
            }
            if times != expected {
                broken.push(format!("{case}: told {times} times in place of {expected}"));
            }
            self.drop_claim(&name).await;
        }
        self.drop_claim("told-pvc").await;
        broken
    }

    async fn drop_claim(&self, name: &str) {
        let claims = self.api::<PersistentVolumeClaim>();
        claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// The twelve cases of the API server and the four of the validator, counted.
#[test]
fn the_cases_of_the_kep_hold() {
    run("the_cases_of_the_kep_hold", |world| async move {
        // Its volumes wait for a pod, and there is none.
        let class = world.class(json!({"pool": "fast"})).await;
        let mut broken = world.broken_by_the_api_server(&class).await;
        broken.extend(world.broken_by_the_validator(&class).await);
        let all = cases_of_the_api_server().len() + cases_of_the_validator().len();
        figures("kep1495.txt", &[("kep1495_cases_passed", all - broken.len())]);
        assert_eq!(broken, Vec::<String>::new());
    });
}
