use serde_json::{Value, json};

use super::plan::ObservedClaim;
use super::*;
use crate::api::{
    NodeStorage, NodeStorageSpec, NodeStorageStatus, VolumeMode, VolumeRequest, VolumeState,
};
use crate::cluster::PvSummary;
use crate::volume::{NodeKey, VolumeId, VolumeKey};

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn id() -> String {
    VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-u-1")).to_string()
}

/// A node with one volume that no PersistentVolume names, and a class.
fn seen() -> ObservedClaim {
    let key = NodeKey::of("alpha").as_str().to_owned();
    let mut node = NodeStorage::new("alpha", NodeStorageSpec { node_hash: key });
    let volume = json!({"volumeHandle": id(), "name": "pvc-u-1", "pool": "fast", "size": "104Mi",
                        "requestedSize": "100Mi", "volumeMode": "Filesystem", "fsType": "xfs", "state": "Ready"});
    node.status =
        Some(NodeStorageStatus { volumes: vec![typed(volume)], ..NodeStorageStatus::default() });
    ObservedClaim {
        nodes: vec![node],
        classes: vec![class("fast", "fast")],
        ..ObservedClaim::default()
    }
}

fn class(name: &str, pool: &str) -> k8s_openapi::api::storage::v1::StorageClass {
    typed(json!({"metadata": {"name": name}, "provisioner": "lvm.csi.pliant.io",
                 "parameters": {"pool": pool}}))
}

fn with(change: impl FnOnce(&mut ObservedClaim)) -> ObservedClaim {
    let mut seen = seen();
    change(&mut seen);
    seen
}

fn fence(state: &str) -> Option<crate::api::FenceStatus> {
    serde_json::from_value(json!({"state": state, "generation": 1})).unwrap()
}

fn volume(seen: &mut ObservedClaim) -> &mut crate::api::VolumeOnNode {
    &mut seen.nodes[0].status.as_mut().unwrap().volumes[0]
}

fn named() -> RecoveryOptions {
    let (namespace, claim) = (Some("default".to_owned()), Some("db".to_owned()));
    RecoveryOptions { namespace, claim, class: None }
}

fn claim(uid: &str, phase: &str) -> PersistentVolumeClaim {
    typed(json!({
        "metadata": {"name": "db", "namespace": "default", "uid": uid},
        "spec": {"storageClassName": "gone", "volumeName": "pvc-u-1",
                 "accessModes": ["ReadWriteOncePod"]},
        "status": {"phase": phase},
    }))
}

fn pv(name: &str, id: &str) -> PvSummary {
    typed(json!({"metadata": {"name": name},
                 "spec": {"csi": {"driver": "lvm.csi.pliant.io", "volumeHandle": id}}}))
}

#[test]
fn both_objects_are_what_the_provisioner_would_have_written() {
    let adoption = plan(&seen(), &id(), &named()).unwrap();
    let yaml = serde_saphyr::to_string(&adoption).unwrap();
    insta::assert_snapshot!(yaml, @r"
    volume:
      apiVersion: v1
      kind: PersistentVolume
      metadata:
        annotations:
          pv.kubernetes.io/provisioned-by: lvm.csi.pliant.io
        name: pvc-u-1
      spec:
        accessModes:
        - ReadWriteOnce
        capacity:
          storage: 104Mi
        claimRef:
          apiVersion: v1
          kind: PersistentVolumeClaim
          name: db
          namespace: default
        csi:
          driver: lvm.csi.pliant.io
          fsType: xfs
          volumeAttributes:
            pool: fast
          volumeHandle: r3j7nlli-sedc5vnwdfpktymcxldjdvbalx
        nodeAffinity:
          required:
            nodeSelectorTerms:
            - matchExpressions:
              - key: topology.lvm.csi.pliant.io/node
                operator: In
                values:
                - alpha
        persistentVolumeReclaimPolicy: Retain
        storageClassName: fast
        volumeMode: Filesystem
    claim:
      apiVersion: v1
      kind: PersistentVolumeClaim
      metadata:
        name: db
        namespace: default
      spec:
        accessModes:
        - ReadWriteOnce
        resources:
          requests:
            storage: 104Mi
        storageClassName: fast
        volumeMode: Filesystem
        volumeName: pvc-u-1
    ");
    let said = adoption.in_words();
    assert_eq!(said, format!("{}: PersistentVolume pvc-u-1 for claim default/db", id()));
}

#[test]
fn a_raw_block_volume_has_no_file_system() {
    let seen = with(|seen| {
        (volume(seen).volume_mode, volume(seen).fs_type) = (VolumeMode::Block, None);
    });
    let adoption = plan(&seen, &id(), &named()).unwrap();
    let spec = adoption.volume.spec.unwrap();
    assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
    assert_eq!(spec.csi.unwrap().fs_type, None);
    assert_eq!(adoption.claim.unwrap().spec.unwrap().volume_mode.as_deref(), Some("Block"));
}

#[test]
fn a_claim_that_has_lost_it_gets_it_back() {
    let lost = with(|seen| seen.claims = vec![claim("u-1", "Lost")]);
    let adoption = plan(&lost, &id(), &RecoveryOptions::default()).unwrap();
    let spec = adoption.volume.spec.unwrap();
    assert_eq!(spec.claim_ref.unwrap().uid.as_deref(), Some("u-1"));
    assert_eq!(spec.access_modes.unwrap(), ["ReadWriteOncePod"]);
    assert_eq!((adoption.claim, spec.storage_class_name.as_deref()), (None, Some("gone")));
    let bound = with(|seen| seen.claims = vec![claim("u-1", "Bound")]);
    let said = plan(&bound, &id(), &named()).unwrap_err();
    assert!(said.starts_with("claim db exists already in namespace default"), "{said}");
}

/// As after a population, in which the volume is created for another claim; a tenant can write the name of a volume.
#[test]
fn a_claim_that_the_volume_was_not_created_for_gets_it_only_when_it_is_named() {
    let populated = || {
        with(|seen| {
            seen.claims = vec![claim("u-2", "Lost")];
            seen.classes.push(class("other", "fast"));
        })
    };
    for wish in [RecoveryOptions::default(), RecoveryOptions { claim: None, ..named() }] {
        let said = plan(&populated(), &id(), &wish).unwrap_err();
        assert!(said.contains("only if you know that the data is its own"), "{said}");
        assert!(said.ends_with("add --namespace default --claim db"), "{said}");
    }
    let adoption = plan(&populated(), &id(), &named()).unwrap();
    let spec = adoption.volume.spec.unwrap();
    assert_eq!(spec.claim_ref.unwrap().uid.as_deref(), Some("u-2"));
    assert_eq!((adoption.claim, spec.storage_class_name.as_deref()), (None, Some("gone")));
    let another =
        RecoveryOptions { claim: Some("x".to_owned()), class: Some("fast".to_owned()), ..named() };
    assert!(plan(&populated(), &id(), &another).unwrap().claim.is_some(), "a new one");
}

#[test]
fn a_claim_that_has_exchanged_its_volume_gets_that_and_only_when_it_is_named() {
    let exchanged = |volume: &str| {
        let mut claim = claim("u-1", "Lost");
        claim.spec.as_mut().unwrap().volume_name = Some("pvc-u-9".to_owned());
        let notes = [("pliant.io/volume", volume), ("pliant.io/storage-class", "fast")];
        let notes = notes.map(|(key, value)| (key.to_owned(), value.to_owned()));
        claim.metadata.annotations = Some(notes.into());
        with(|seen| seen.claims = vec![claim])
    };
    let given = plan(&exchanged("pvc-u-1"), &id(), &named()).unwrap();
    assert_eq!(given.volume.metadata.name.as_deref(), Some("pvc-u-9"), "the one that it names");
    let spec = given.volume.spec.unwrap();
    assert_eq!(spec.storage_class_name.as_deref(), Some("fast"), "that of the volume");
    // It was made for the claim, which has another one now; a tenant can write the annotation.
    for (seen, wish) in [
        (exchanged("pvc-u-2"), named()),
        (
            with(|seen| {
                *seen = exchanged("pvc-u-1");
                seen.claims[0].metadata.uid = Some("u-3".to_owned());
            }),
            RecoveryOptions::default(),
        ),
    ] {
        plan(&seen, &id(), &wish).unwrap_err();
    }
}

#[test]
fn a_name_that_kubernetes_does_not_take_is_replaced_by_the_id() {
    for name in ["Müll", "-a", "a-", "a_b", "", "a/b"] {
        let seen = with(|seen| volume(seen).name = name.to_owned());
        let adoption = plan(&seen, &id(), &named()).unwrap();
        assert_eq!(adoption.volume.metadata.name, Some(id()), "{name}");
    }
}

#[test]
fn what_speaks_against_it_is_told() {
    let request = |operation: Value| -> VolumeRequest {
        typed(json!({"apiVersion": "pliant.io/v1alpha1", "kind": "VolumeRequest",
                     "metadata": {"name": "r"},
                     "spec": {"nodeName": "alpha", "volumeHandle": id(), "operation": operation}}))
    };
    let nameless = RecoveryOptions { claim: None, namespace: None, class: None };
    let of = |class: &str| RecoveryOptions { class: Some(class.to_owned()), ..named() };
    for (seen, wish, words) in [
        (with(|seen| seen.nodes.clear()), named(), "no node reports volume"),
        (with(|seen| seen.volumes = vec![pv("x", &id())]), named(), "has PersistentVolume x"),
        (
            with(|seen| seen.volumes = vec![pv("pvc-u-1", "y")]),
            named(),
            "exists already, for another volume",
        ),
        (with(|seen| volume(seen).state = VolumeState::Deleting), named(), "is Deleting"),
        (with(|seen| volume(seen).state = VolumeState::Creating), named(), "is Creating"),
        (with(|seen| volume(seen).fence = fence("Incomplete")), named(), "is incomplete"),
        (with(|seen| volume(seen).state = VolumeState::Unknown), named(), "is Unknown"),
        (
            with(|seen| seen.requests = vec![request(json!({"delete": {}}))]),
            named(),
            "being created or deleted; see `kubectl describe volumerequest r`",
        ),
        (seen(), nameless, "name one with --namespace and --claim"),
        (seen(), of("slow"), "slow is not a StorageClass of this driver, which has: fast"),
        (
            with(|seen| seen.classes = vec![class("slow", "slow")]),
            named(),
            "no StorageClass uses pool fast",
        ),
        (
            with(|seen| seen.classes.push(class("other", "fast"))),
            named(),
            "several StorageClasses use pool fast: name one with --storage-class: fast and other",
        ),
    ] {
        let said = plan(&seen, &id(), &wish).unwrap_err();
        assert!(said.contains(words), "{said}");
    }
    let growing = with(|seen| {
        seen.requests = vec![request(json!({"expand": {"minSize": "1Gi"}}))];
    });
    plan(&growing, &id(), &named()).unwrap();
    plan(&with(|seen| seen.classes.push(class("other", "fast"))), &id(), &of("other")).unwrap();
}

#[test]
fn all_are_those_that_no_persistent_volume_names() {
    assert_eq!(all(&seen()), [id()]);
    assert_eq!(all(&with(|seen| seen.volumes = vec![pv("x", &id())])), Vec::<String>::new());
}
