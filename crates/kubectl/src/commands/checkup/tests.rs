use serde_json::{Value, json};

use super::*;
use crate::api::{Health, ready_condition};
use crate::doctor::{FindingSeverity, print};
use crate::volume::{NodeKey, VolumeId, VolumeKey};

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(component: &str, node: &str, ready: &str) -> Value {
    json!({"metadata": {"name": format!("pliant-{component}-{node}"), "namespace": "pliant",
                        "labels": {"app.kubernetes.io/component": component}},
           "spec": {"containers": [], "nodeName": node},
           "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

fn id(name: &str) -> String {
    VolumeId::new(NodeKey::of("alpha"), VolumeKey::of(name)).to_string()
}

/// A cluster of a node with the driver and one without, where nothing is wrong.
fn seen() -> ObservedCluster {
    let pool = json!({"name": "fast", "configured": true, "capacity": "4Gi", "available": "3Gi", "volumeCount": 1,
                      "health": "Healthy"});
    let volume = json!({"volumeHandle": id("pvc-1"), "name": "pvc-1", "pool": "fast", "size": "1Gi",
                        "requestedSize": "1Gi", "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready"});
    ObservedCluster {
        definitions: crate::api::definitions(),
        driver: typed(json!({"metadata": {"name": DRIVER},
                             "spec": {"attachRequired": false, "storageCapacity": true}})),
        classes: vec![typed(json!({"metadata": {"name": "fast"}, "provisioner": DRIVER,
            "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"pool": "fast"}}))],
        pools: vec![typed(json!({"apiVersion": "pliant.io/v1alpha1", "kind": "StoragePool",
            "metadata": {"name": "fast"}, "spec": {"volumeGroups": ["vg0"]}, "status": {"readyNodeCount": 1, "nodeCount": 1}}))],
        nodes: ["alpha", "control"].map(|name| typed(json!({"metadata": {"name": name}}))).into(),
        kubelets: vec![typed(json!({"metadata": {"name": "alpha"},
                                    "spec": {"drivers": [{"name": DRIVER, "nodeID": "alpha"}]}}))],
        storages: vec![typed(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage",
            "metadata": {"name": "alpha"}, "spec": {"nodeHash": NodeKey::of("alpha").as_str()},
            "status": {"version": env!("CARGO_PKG_VERSION"), "capacity": "4Gi", "available": "3Gi",
                       "volumeCount": 1, "pools": [pool], "volumes": [volume]},
        }))],
        pods: vec![
            typed(pod("node", "alpha", "True")),
            typed(pod("controller", "alpha", "True")),
            typed(pod("operator", "alpha", "True")),
        ],
        volumes: vec![typed(json!({"metadata": {"name": "pvc-1"},
            "spec": {"csi": {"driver": DRIVER, "volumeHandle": id("pvc-1")}}}))],
        ..ObservedCluster::default()
    }
}

/// What is found beside what is good.
fn found(change: impl FnOnce(&mut ObservedCluster)) -> String {
    let mut seen = seen();
    change(&mut seen);
    let mut findings = judge(&seen, "pliant", None).unwrap();
    findings.retain(|finding| finding.severity != FindingSeverity::Ok);
    print(&findings, false)
}

#[test]
fn where_nothing_is_wrong_all_is_good() {
    insta::assert_snapshot!(print(&judge(&seen(), "pliant", None).unwrap(), false), @r"
    ✓ the CRDs of the driver are installed
    ✓ CSIDriver lvm.csi.pliant.io exists
    ✓ the controller plugin is ready, pods: 1
    ✓ the operator is ready, pods: 1
    ✓ all node plugins have version 0.1.0
    ✓ pool fast is usable, nodes: 1
    ✓ class fast can be used
    ✓ node alpha: 3 GiB of 4 GiB free, volumes: 1
    ✓ node control: the driver is not deployed there
    9 passed, 0 warnings, 0 errors
    ");
    insta::assert_snapshot!(print(&judge(&seen(), "pliant", Some("alpha")).unwrap(), false), @r"
    ✓ node alpha: 3 GiB of 4 GiB free, volumes: 1
    1 passed, 0 warnings, 0 errors
    ");
    let said = judge(&seen(), "pliant", Some("beta")).unwrap_err().to_string();
    assert_eq!(said, "there is no node beta; `kubectl get nodes` lists them");
}

#[test]
fn what_the_chart_installs_is_missed() {
    insta::assert_snapshot!(found(|seen| {
        let name = Some("nodestorages.pliant.io");
        seen.definitions.retain(|one| one.metadata.name.as_deref() != name);
        seen.driver = None;
        seen.pods.clear();
        seen.pools.clear();
        seen.classes.clear();
    }), @r"
    ✗ these CRDs are missing: nodestorages.pliant.io
        → pliant crds | kubectl apply --server-side --filename -
    ✗ CSIDriver lvm.csi.pliant.io is missing
        → install the chart again: helm upgrade --install pliant charts/pliant …
    ✗ no pod of the controller plugin exists
        → install the chart again: helm upgrade --install pliant charts/pliant …
    ✗ no StoragePool exists
        → create one: kubectl explain storagepool.spec
    ! no StorageClass names the driver lvm.csi.pliant.io
        → create one, or name it in the values of the chart
    ✗ node alpha: no node plugin runs there, and the node has volumes
        → kubectl get daemonsets --all-namespaces; see its node selector and tolerations
    0 passed, 1 warning, 5 errors
    ");
    insta::assert_snapshot!(found(|seen| {
        let driver = seen.driver.as_mut().unwrap();
        driver.spec.attach_required = None;
        seen.pods = ["node", "controller", "operator"].map(|part| typed(pod(part, "alpha", "False"))).into();
    }), @r"
    ✗ CSIDriver lvm.csi.pliant.io requires volumes to be attached, and no component
      attaches them
        → kubectl delete csidriver lvm.csi.pliant.io, then install the chart again: helm upgrade --install pliant charts/pliant …
    ✗ no pod of the controller plugin is ready, of 1: volumes are neither created
      nor expanded
        → kubectl describe pods --all-namespaces --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller
    ✗ no pod of the operator is ready, of 1: no claim is populated or managed, and
      pods of managed StatefulSets are not created
        → kubectl describe pods --all-namespaces --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=operator
    ✗ node alpha: its node plugin pliant-node-alpha is not ready
        → kubectl logs pliant-node-alpha --namespace pliant --container node
    0 passed, 0 warnings, 4 errors
    ");
    insta::assert_snapshot!(found(|seen| {
        seen.driver.as_mut().unwrap().spec.storage_capacity = None;
        seen.pods.push(typed(pod("controller", "beta", "False")));
    }), @r#"
    ! CSIDriver lvm.csi.pliant.io lacks storageCapacity: pods are scheduled to nodes
      without free space
        → kubectl patch csidriver lvm.csi.pliant.io --patch '{"spec":{"storageCapacity":true}}'
    ! ready pods of the controller plugin: 1 of 2
        → kubectl describe pods --all-namespaces --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller
    0 passed, 2 warnings, 0 errors
    "#);
}

#[test]
fn what_is_wrong_with_pools_and_classes_is_told() {
    insta::assert_snapshot!(found(|seen| {
        let class = |name: &str, mode: &str, key: &str, pool: &str| typed(json!({
            "metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode,
            "parameters": {key: pool}}));
        seen.classes = vec![
            class("typo", "WaitForFirstConsumer", "pol", "fast"),
            class("nowhere", "WaitForFirstConsumer", "pool", "slow"),
            class("early", "Immediate", "pool", "fast"),
        ];
        let why = "usable on 0 of 0 nodes; no node matches the node selector";
        let ready = ready_condition(Health::Unavailable, "NoMatchingNode", why);
        seen.pools[0].status = typed(json!({"readyNodeCount": 0, "conditions": [ready]}));
    }), @r"
    ✗ pool fast: usable on 0 of 0 nodes; no node matches the node selector
        → kubectl get storagepool fast --output yaml
    ✗ class typo cannot be used: class parameter pol: unknown; did you mean pool?
      Known parameters are pool, layout, wipe, resizeSnapshot, mkfsOptions,
      trimInterval, csi.storage.k8s.io/fstype
        → kubectl get storageclass typo --output yaml
    ✗ class nowhere takes pool slow, which no node has
        → pliant status
    ! class early creates volumes immediately, on nodes where their pods may not run
        → create it again with volumeBindingMode: WaitForFirstConsumer
    0 passed, 1 warning, 3 errors
    ");
}

#[test]
fn a_class_that_names_no_pool_can_be_used_where_a_node_has_one_for_it() {
    let with = |pools: Value| {
        found(|seen| {
            seen.classes[0].parameters = None;
            seen.storages[0].status.as_mut().unwrap().pools = typed(pools);
        })
    };
    let pool = |name: &str, default: bool, health: &str| {
        json!({"name": name, "configured": true, "default": default, "capacity": "4Gi", "available": "3Gi",
               "volumeCount": 1, "health": health})
    };
    let besides = with(json!([pool("fast", true, "Healthy"), pool("looks", false, "Healthy")]));
    assert_eq!(besides, "0 passed, 0 warnings, 0 errors\n");
    let none = with(json!([]));
    assert!(none.contains("✗ class fast names no pool, and no node has one"), "{none}");
    let looks = with(json!([pool("looks", true, "Unavailable")]));
    let said = "✗ class fast takes pool looks, which can be used on no node\n    → pliant status";
    assert!(looks.contains(said), "{looks}");
}

#[test]
fn the_topologies_of_a_class_are_looked_at() {
    let class = |name: &str, mode: &str, key: &str, value: &str| {
        typed(json!({
            "metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode,
            "parameters": {"pool": "fast"},
            "allowedTopologies": [{"matchLabelExpressions": [{"key": key, "values": [value]}]}]}))
    };
    let (waits, own) = ("WaitForFirstConsumer", crate::volume::TOPOLOGY);
    insta::assert_snapshot!(found(|seen| {
        seen.classes = vec![
            class("host", waits, "kubernetes.io/hostname", "alpha"),
            class("zone", "Immediate", "topology.kubernetes.io/zone", "z"),
            class("gone", waits, own, "node9"),
            class("poolless", waits, own, "control"),
            class("own", waits, own, "alpha"),
            class("own-at-once", "Immediate", own, "alpha"),
        ];
        seen.nodes[0].metadata.labels = typed(json!({"kubernetes.io/hostname": "alpha"}));
        let other = json!({"apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage",
            "metadata": {"name": "control"}, "spec": {"nodeHash": "k"}, "status": {
                "version": env!("CARGO_PKG_VERSION")}});
        seen.storages.push(typed(other));
        seen.kubelets.push(typed(json!({"metadata": {"name": "control"},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "control"}]}})));
        seen.pods.push(typed(pod("node", "control", "True")));
    }), @r"
    ✗ class host cannot be used: its allowedTopologies name kubernetes.io/hostname,
      and volumes of this driver have only the key topology.lvm.csi.pliant.io/node
        → create it again with allowedTopologies: [{matchLabelExpressions: [{key: topology.lvm.csi.pliant.io/node, values: [alpha]}]}]
    ✗ class zone cannot be used: its allowedTopologies name
      topology.kubernetes.io/zone, and volumes of this driver have only the key
      topology.lvm.csi.pliant.io/node
        → create it again with allowedTopologies: [{matchLabelExpressions: [{key: topology.lvm.csi.pliant.io/node, values: [NODE]}]}]
    ✗ class gone allows only topology.lvm.csi.pliant.io/node=node9, and no such node
      has reported its pools
        → pliant status
    ✗ class poolless takes pool fast, which no node that it allows has
        → pliant status
    0 passed, 0 warnings, 4 errors
    ");
}

#[test]
fn an_adoption_is_advised_with_the_class_that_it_needs() {
    let advised = |change: fn(&mut ObservedCluster)| {
        found(|seen| {
            seen.volumes.clear();
            change(seen);
        })
    };
    let one = advised(|_| {});
    assert!(one.contains("--namespace NAMESPACE --claim NAME\n"), "{one}");
    let two = advised(|seen| {
        let mut other = seen.classes[0].clone();
        other.metadata.name = Some("second".to_owned());
        seen.classes.push(other);
    });
    assert!(two.contains("--claim NAME --storage-class CLASS # one of fast and second\n"), "{two}");
}

#[test]
fn what_a_node_tells_is_told() {
    insta::assert_snapshot!(found(|seen| {
        let status = seen.storages[0].status.as_mut().unwrap();
        status.version = "0.0.9".to_owned();
        status.set_inventory_gap("vg0 could not be read");
        status.pools = vec![
            typed(json!({"name": "fast", "configured": true, "capacity": "4Gi", "available": "3Gi", "volumeCount": 1,
                "health": "Degraded", "conditions": [ready_condition(
                    Health::Degraded, "DiskRejected", "/dev/sdc is not blank: ext4; see `wipefs /dev/sdc`")]})),
            typed(json!({"name": "big", "configured": true, "capacity": "0", "available": "0", "volumeCount": 0,
                "health": "Unavailable",
                "plannedActions": ["make volume group pliant-big-1 of /dev/sdd"]})),
        ];
        status.disks = vec![typed(json!({"device": "/dev/sdb", "volumeGroup": "vg0", "state": "Missing",
                                         "message": "the disk of vg0 is away; see `pvs`"}))];
        status.volumes[0].health_statuses = vec![
            typed(json!({"status": "Degraded", "reason": "VolumeSuspended", "message": "it is not ready"})),
            typed(json!({"status": "DataLoss", "reason": "DiskMissing", "message": "its disk is away"})),
        ];
        status.conditions.push(typed(json!({"type": "ToolsThere", "status": "False", "reason": "x",
            "message": "mkfs.xfs is missing", "lastTransitionTime": "2026-01-01T00:00:00Z"})));
    }), @r"
    ! all node plugins have version 0.0.9, and this program has 0.1.0
        → use a program of the same version
    ! node alpha, pool fast: /dev/sdc is not blank: ext4; see `wipefs /dev/sdc`
        → pliant status
    ! node alpha, pool big, planned: make volume group pliant-big-1 of /dev/sdd
        → if this is right: kubectl edit storagepool big, createVolumeGroups: true
    ✗ node alpha: not all volumes can be read: vg0 could not be read
        → check on the node: kubectl exec pliant-node-alpha --namespace pliant --container node -- pliant doctor
    ✗ node alpha: disk /dev/sdb is missing: the disk of vg0 is away; see `pvs`
        → put the disk back; until then its volume group cannot be changed
    ! node alpha: volume pvc-1: it is not ready
        → pliant explain pv/pvc-1
    ✗ node alpha: volume pvc-1: its disk is away
        → pliant explain pv/pvc-1
    ✗ node alpha: ToolsThere: mkfs.xfs is missing
        → check on the node: kubectl exec pliant-node-alpha --namespace pliant --container node -- pliant doctor
    0 passed, 4 warnings, 4 errors
    ");
}

#[test]
fn the_trouble_of_one_pool_stands_once_and_with_that_pool() {
    insta::assert_snapshot!(found(|seen| {
        let status = seen.storages[0].status.as_mut().unwrap();
        let why = "/dev/nosuch is not there; see `ls /dev/disk/by-id`";
        status.pools.push(typed(json!({"name": "twice", "configured": true, "capacity": "0", "available": "0",
            "volumeCount": 0, "health": "Unavailable",
            "conditions": [ready_condition(Health::Unavailable, "PoolIncomplete", why)]})));
        status.set_inventory_gap(&format!("pool twice: {why}"));
        status.disks = vec![typed(json!({"device": "/dev/nosuch", "state": "Missing", "message": why}))];
        let condition = |kind: &str, reason: &str, message: &str| typed(json!({"type": kind,
            "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}));
        status.conditions.extend([
            condition("Ready", "PoolUnavailable", &format!("pool twice: {why}")),
            condition("DisksHealthy", "DiskMissing", &format!("/dev/nosuch: {why}")),
        ]);
    }), @r"
    ✗ node alpha, pool twice: /dev/nosuch is not there; see `ls /dev/disk/by-id`;
      not all of its volumes can be listed
        → check on the node: kubectl exec pliant-node-alpha --namespace pliant --container node -- pliant doctor
    ✗ node alpha: disk /dev/nosuch is missing
        → attach it, or correct its path: kubectl edit storagepools
    0 passed, 0 warnings, 2 errors
    ");
}

#[test]
fn nodes_that_are_silent_or_gone_are_told() {
    insta::assert_snapshot!(found(|seen| {
        seen.nodes.remove(0);
        seen.kubelets.clear();
        seen.pods.remove(0);
        seen.storages[0].status = None;
    }), @r"
    ✗ class fast takes pool fast, which no node has
        → pliant status
    ! node alpha is not in the cluster, and its NodeStorage lists no volume
        → wait 10 minutes: the controller plugin deletes the NodeStorage if its inventory is complete
    ✗ node alpha: no node plugin runs there, and the node has volumes
        → kubectl get daemonsets --all-namespaces; see its node selector and tolerations
    ✗ node alpha: its kubelet has not registered the driver, so no pod gets a volume
        → see the lines with `registration` in the log of its node plugin
    ✗ node alpha: its node plugin has not reported its pools
        → start the node plugin there
    0 passed, 1 warning, 4 errors
    ");
    let with_its_volumes = found(|seen| drop(seen.nodes.remove(0)));
    assert!(
        with_its_volumes.starts_with(
            "✗ node alpha is not in the cluster, and has volumes: 1\n    \
         → if it is gone for good, with its volumes: kubectl delete nodestorage alpha\n"
        ),
        "{with_its_volumes}"
    );
}

#[test]
fn volumes_and_persistent_volumes_without_each_other_are_told() {
    insta::assert_snapshot!(found(|seen| {
        seen.volumes[0].spec.csi.as_mut().unwrap().volume_handle = id("pvc-2").into();
    }), @r"
    ✗ volume r3j7nlli-6kdi4gvhzk3gsul43h22wg3zk7 (pvc-1, 1 GiB) of node alpha has no
      PersistentVolume
        → pliant recover r3j7nlli-6kdi4gvhzk3gsul43h22wg3zk7 --namespace NAMESPACE --claim NAME
    ✗ PersistentVolume pvc-1 names volume r3j7nlli-aiyj6tepqeae7nssh3olacxeyg, which
      node alpha does not have
        → put the removed disk back, or restore the data from a backup
    0 passed, 0 warnings, 2 errors
    ");
}

#[test]
fn what_may_not_be_read_is_not_missed() {
    let hidden = found(|seen| {
        *seen = ObservedCluster {
            unseen: vec![
                DEFINITIONS,
                DRIVERS,
                CLASSES,
                POOLS,
                NODES,
                KUBELETS,
                STORAGES,
                PODS,
                VOLUMES,
                REQUESTS,
            ],
            ..ObservedCluster::default()
        };
    });
    assert!(
        hidden.starts_with("! you may not read custom resource definitions, csidrivers"),
        "{hidden}"
    );
    assert!(hidden.ends_with("0 passed, 1 warning, 0 errors\n"), "{hidden}");
}

#[test]
fn a_namespace_with_more_than_its_share_is_named_once_for_each_kind() {
    let event = |name: &str, by: &str, kind: &str| {
        typed(json!({"metadata": {"name": name, "namespace": "crowd"}, "eventTime": null,
                     "reason": "NamespaceTooLarge", "reportingController": by,
                     "regarding": {"kind": kind, "namespace": "crowd", "name": name},
                     "note": "this object and later ones are skipped"}))
    };
    let said = found(|seen| {
        seen.too_large = vec![
            event("a", DRIVER, "PersistentVolumeClaim"),
            event("b", DRIVER, "PersistentVolumeClaim"),
            event("c", DRIVER, "PvcAutoscaler"),
            event("d", "a-tenant", "Pod"),
        ];
    });
    let lines = |word: &str| said.matches(word).count();
    assert_eq!(lines("namespace crowd has too many objects"), 2, "{said}");
    assert_eq!(lines("kubectl get persistentvolumeclaim --namespace crowd"), 1, "{said}");
    assert_eq!(lines("kubectl get pvcautoscaler --namespace crowd"), 1, "{said}");
}
