//! Claims with a volume, and PersistentVolumes without a claim.

use super::*;
use crate::api::FsType;

fn id() -> String {
    VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-u-1")).to_string()
}

/// A claim that has 100 GiB on alpha, used by a pod that runs there.
pub(super) fn bound() -> ClaimFacts {
    let mut pod = pod();
    pod["spec"]["nodeName"] = json!("alpha");
    let mut facts = with_pod(pod);
    let status = json!({"phase": "Bound", "capacity": {"storage": "100Gi"}});
    facts = with_claim(facts, "/status", status);
    facts = with_claim(facts, "/spec/resources/requests/storage", json!("100Gi"));
    facts = with_claim(facts, "/spec/volumeName", json!("pvc-u-1"));
    facts.volume = typed(json!({
        "metadata": {"name": "pvc-u-1"},
        "spec": {"csi": {"driver": "lvm.csi.pliant.io", "volumeHandle": id()},
                 "persistentVolumeReclaimPolicy": "Delete",
                 "claimRef": {"namespace": "default", "name": "db-2", "uid": "u-1"}},
        "status": {"phase": "Bound"},
    }));
    facts.storages[0].status.as_mut().unwrap().volumes = vec![VolumeOnNode {
        volume_handle: id(),
        name: "pvc-u-1".to_owned(),
        pool: "fast".to_owned(),
        size: Quantity(Bytes::gib(100)),
        requested_size: Quantity(Bytes::gib(100)),
        volume_mode: VolumeMode::Filesystem,
        fs_type: Some(FsType::Ext4),
        state: VolumeState::Ready,
        fence: None,
        max_size: None,
        health_statuses: Vec::new(),
    }];
    facts
}

/// The same, growing to 200 GiB, with this word of the resize and this condition.
fn growing(word: &str, condition: &Value) -> ClaimFacts {
    let facts = with_claim(bound(), "/spec/resources/requests/storage", json!("200Gi"));
    let status = json!({
        "phase": "Bound",
        "capacity": {"storage": "100Gi"},
        "allocatedResourceStatuses": if word.is_empty() { json!(null) } else { json!({"storage": word}) },
        "conditions": [condition],
    });
    with_claim(facts, "/status", status)
}

fn condition(kind: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "message": message})
}

#[test]
fn a_claim_that_has_what_it_asks_for_is_fine() {
    let mut fixed = bound();
    fixed.classes[0].allow_volume_expansion = None;
    let unused = ClaimFacts { pods: Vec::new(), ..bound() };
    let cases = vec![
        (bound(), ClaimState::Healthy),
        (fixed, ClaimState::Healthy),
        (unused, ClaimState::Healthy),
    ];
    insta::assert_snapshot!(all(cases), @r"
    default/db-2 is healthy: 100 GiB of ext4 in pool fast on node alpha, used by
    db-0.
    default/db-2 is healthy: 100 GiB of ext4 in pool fast on node alpha, used by
    db-0. It cannot be expanded: allowVolumeExpansion of its class fast is not true.
    default/db-2 is healthy: 100 GiB of ext4 in pool fast on node alpha, no pod uses
    it.
    ");
}

#[test]
fn a_growth_is_seen_whatever_form_its_size_has() {
    for asks in ["214748364800500m", "3e11"] {
        let asks =
            with_claim(growing("", &json!({})), "/spec/resources/requests/storage", json!(asks));
        assert_eq!(said(&asks).0, ClaimState::Expanding);
    }
    for at in ["/spec/resources/requests/storage", "/status/capacity/storage"] {
        let (state, text) = said(&with_claim(bound(), at, json!("1e50")));
        assert_eq!(state, ClaimState::InvalidSize, "{text}");
        let text = text.replace('\n', " ");
        assert!(text.contains("`1e50` is not a size: its exponent is larger than 40"), "{text}");
        assert!(text.contains("kubectl edit pvc db-2 --namespace default"), "{text}");
    }
}

#[test]
fn each_state_of_a_resize_is_told_in_plain_words() {
    let resizing = || condition("Resizing", "");
    let pending = condition("FileSystemResizePending", "Waiting for user to (re-)start a pod");
    let error = condition(
        "ControllerResizeError",
        "failed to expand pvc with rpc error: code = OutOfRange desc = insufficient capacity in pool fast",
    );
    let unused = ClaimFacts { pods: Vec::new(), ..growing("NodeResizePending", &pending) };
    let mut away = growing("ControllerResizeInProgress", &resizing());
    away.node_plugins.clear();
    let mut failing = growing("ControllerResizeInProgress", &resizing());
    let words =
        "resize volume \"pvc-u-1\" failed: rpc error: code = Unavailable desc = vg0 is away";
    failing.events = vec![typed(event("VolumeResizeFailed", words))];
    let cases = vec![
        (growing("", &resizing()), ClaimState::Expanding),
        (growing("ControllerResizeInProgress", &resizing()), ClaimState::Expanding),
        (growing("ControllerResizeInfeasible", &error), ClaimState::ExpansionFailed),
        (growing("NodeResizePending", &pending), ClaimState::NodeExpansionPending),
        (unused, ClaimState::OfflineExpansionPending),
        (away, ClaimState::NodePluginUnavailable),
        (failing, ClaimState::ExpansionRetrying),
    ];
    insta::assert_snapshot!(all(cases), @r"
    default/db-2 is being expanded from 100 GiB to 200 GiB on node alpha; the
    resizer has not called the driver yet.
    What to do:
      if it stays so, read the log of the resizer
        kubectl logs --namespace pliant --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller --container resizer
    default/db-2 is being expanded from 100 GiB to 200 GiB on node alpha; the
    resizer has not called the driver yet.
    What to do:
      if it stays so, read the log of the resizer
        kubectl logs --namespace pliant --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller --container resizer
    default/db-2 cannot be expanded from 100 GiB to 200 GiB, and stays usable at its
    size: insufficient capacity in pool fast
    What to do:
      request less, but more than 100 GiB; it is tried immediately
        pliant expand pvc/db-2 --namespace default SIZE
    default/db-2 has a volume of 200 GiB, and the kubelet expands its file system
    under db-0 within two minutes. No pod has to be restarted.
    default/db-2 has a volume of 200 GiB, and its file system is expanded when the
    next pod uses it. Nothing is wrong.
    What to do:
      start a pod that uses it
    default/db-2 is being expanded from 100 GiB to 200 GiB on node alpha, and no
    node plugin runs there.
    What to do:
      look at the driver's pod on alpha
        kubectl get pods --all-namespaces --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=node --field-selector spec.nodeName=alpha
    default/db-2 is being expanded from 100 GiB to 200 GiB on node alpha; the last
    attempt failed, and is retried automatically: vg0 is away
    ");
}

#[test]
fn the_record_of_a_growth_says_how_far_it_is() {
    let with = |phase, progress: Option<&str>, failure: Option<&str>| {
        let work = Operation::Expand(Expand {
            min_size: Quantity(Bytes::gib(200)),
            max_size: None,
            volume_mode: None,
        });
        let spec = VolumeRequestSpec {
            node_name: "alpha".to_owned(),
            volume_handle: id(),
            operation: work,
        };
        let mut request = VolumeRequest::new("expand-x", spec);
        let failure = failure.map(|message| Failure {
            reason: "Unavailable".to_owned(),
            message: message.to_owned(),
        });
        let progress = progress.map(str::to_owned);
        request.status = Some(VolumeRequestStatus {
            phase,
            progress,
            error: failure,
            ..VolumeRequestStatus::default()
        });
        let mut facts = growing("ControllerResizeInProgress", &condition("Resizing", ""));
        facts.requests = vec![request];
        facts
    };
    let cases = vec![
        (with(Phase::Pending, None, None), ClaimState::Expanding),
        (with(Phase::Running, Some("12 % (12 GiB of 100 GiB)"), None), ClaimState::Expanding),
        (with(Phase::Resizing, None, None), ClaimState::Expanding),
        (with(Phase::Failed, None, Some("vg0 is away")), ClaimState::ExpansionRetrying),
    ];
    insta::assert_snapshot!(all(cases), @r"
    default/db-2 is being expanded from 100 GiB to 200 GiB on node alpha; its node
    plugin has not started it yet.
    What to do:
      if it stays so, read the log of the resizer
        kubectl logs --namespace pliant --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller --container resizer
    default/db-2 is being expanded from 100 GiB to 200 GiB on node alpha; 12 % (12
    GiB of 100 GiB).
    What to do:
      if it stays so, read the log of the resizer
        kubectl logs --namespace pliant --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller --container resizer
    default/db-2 is being expanded from 100 GiB to 200 GiB on node alpha; the volume
    is larger, its file system follows.
    What to do:
      if it stays so, read the log of the resizer
        kubectl logs --namespace pliant --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller --container resizer
    default/db-2 is being expanded from 100 GiB to 200 GiB on node alpha; the last
    attempt failed, and is retried automatically: vg0 is away
    ");
}

#[test]
fn a_volume_that_pods_are_kept_from_is_told() {
    let mut fenced = bound();
    fenced.storages[0].status.as_mut().unwrap().volumes[0].fence =
        typed(json!({"state": "Superseded", "generation": 3}));
    let mut let_in = bound();
    let_in.storages[0].status.as_mut().unwrap().volumes[0].fence =
        typed(json!({"state": "Active", "generation": 3}));
    let mut filled = bound();
    filled.storages[0].status.as_mut().unwrap().volumes[0].fence =
        typed(json!({"state": "Incomplete", "generation": 1, "copyInProgress": true}));
    let cases = vec![
        (fenced, ClaimState::VolumeFenced),
        (let_in, ClaimState::Healthy),
        (filled, ClaimState::Healthy),
    ];
    insta::assert_snapshot!(all(cases), @r"
    default/db-2 is Bound to a volume on node alpha that is superseded since
    generation 3 of its swap, so no pod can be started with it.
    What to do:
      create the PvcAutoscaler of its workload again: it returns the volume to the
      pod, or reports the command to run
    default/db-2 is healthy: 100 GiB of ext4 in pool fast on node alpha, used by
    db-0.
    default/db-2 is healthy: 100 GiB of ext4 in pool fast on node alpha, used by
    db-0.
    ");
}

#[test]
fn what_is_wrong_with_a_volume_is_told() {
    let mut gone = bound();
    gone.storages[0].status.as_mut().unwrap().volumes.clear();
    let mut unread = bound();
    let status = unread.storages[0].status.as_mut().unwrap();
    status.volumes.clear();
    status.set_inventory_gap("volume group vg0 is not there; see `vgs`");
    let mut ailing = bound();
    ailing.storages[0].status.as_mut().unwrap().volumes[0].health_statuses =
        vec![typed(json!({"status": "Inaccessible", "reason": "DiskMissing",
                          "message": "a disk of vg0 is away; see `pvs`"}))];
    let mut silent = bound();
    silent.storages.remove(0);
    let mut moved = bound();
    moved.storages.remove(0);
    moved.nodes.remove(0);
    let mut away = bound();
    away.node_plugins.clear();
    let mut waiting = bound();
    waiting.pods[0] = typed(json!({
        "metadata": {"name": "db-0", "namespace": "default"},
        "spec": {"containers": [], "nodeSelector": {"zone": "b"}},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3"}]},
    }));
    let mut crowded = bound();
    crowded.pods[0] = typed(json!({
        "metadata": {"name": "db-0", "namespace": "default"},
        "spec": {"containers": []},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False",
                                   "message": "0/3 nodes are available: 1 Insufficient cpu."}]},
    }));
    let lost = with_claim(bound(), "/status", json!({"phase": "Lost"}));
    let mut other = bound();
    other.volume = typed(json!({"metadata": {"name": "x"}, "spec": {"csi":
        {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}}));
    let cases = vec![
        (gone, ClaimState::VolumeNotFound),
        (unread, ClaimState::VolumeStatusUnknown),
        (ailing, ClaimState::VolumeUnhealthy),
        (silent, ClaimState::NodePluginUnavailable),
        (moved, ClaimState::VolumeNotFound),
        (away, ClaimState::NodePluginUnavailable),
        (waiting, ClaimState::PodUnschedulable),
        (crowded, ClaimState::PodUnschedulable),
        (lost, ClaimState::Lost),
        (other, ClaimState::OtherDriver),
    ];
    insta::assert_snapshot!(all(cases), @r"
    default/db-2 is Bound, and its volume r3j7nlli-sedc5vnwdfpktymcxldjdvbalx is no
    longer on node alpha: it was removed without the driver, or its disk was
    replaced.
    What to do:
      restore the data into a new claim from a backup
    default/db-2 is Bound, and its volume cannot be read on node alpha: volume group
    vg0 is not there; see `vgs`
    What to do:
      see what is wrong with the node
        pliant doctor node/alpha
    default/db-2 is Bound, and its volume on node alpha is unhealthy: a disk of vg0
    is away; see `pvs`
    What to do:
      see what else is wrong with the node
        pliant doctor node/alpha
    default/db-2 is Bound to a volume of node alpha, whose node plugin has reported
    nothing.
    What to do:
      look at the driver's pod on alpha
        kubectl get pods --all-namespaces --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=node --field-selector spec.nodeName=alpha
    default/db-2 is Bound to volume r3j7nlli-sedc5vnwdfpktymcxldjdvbalx, whose node
    is not in the cluster. Its data is on the disks of that node.
    What to do:
      bring the node back under its old name
    default/db-2 is Bound to a volume on node alpha, and no node plugin runs there.
    Running pods continue; until the node plugin responds, no pod with this claim
    can start there, and the claim cannot be expanded.
    What to do:
      look at the driver's pod on alpha
        kubectl get pods --all-namespaces --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=node --field-selector spec.nodeName=alpha
    default/db-2 is Bound to a volume on node alpha, where its pod db-0 has to run;
    it may not: its pod requires the node label zone=b.
    What to do:
      let the pod run on alpha: see its nodeSelector, affinity and tolerations
    default/db-2 is Bound to a volume on node alpha, where its pod db-0 has to run;
    the scheduler reports: 0/3 nodes are available: 1 Insufficient cpu.
    What to do:
      free resources for the pod on alpha
    default/db-2 is Lost: its PersistentVolume pvc-u-1 was removed. If the volume is
    still on its node, it is an orphaned volume.
    What to do:
      see such volumes
        pliant recover --all --dry-run
    default/db-2 is Bound to a volume of another driver, which Pliant cannot
    explain.
    ");
}

#[test]
fn what_is_going_or_kept_is_told() {
    let going =
        |facts| with_claim(facts, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let finalizers = json!(["kubernetes.io/pvc-protection"]);
    let unused = ClaimFacts { pods: Vec::new(), ..bound() };
    let unused = going(with_claim(unused, "/metadata/finalizers", finalizers));
    let volume = |phase: &str, policy: &str| {
        let mut facts = bound();
        facts.claim = None;
        let pv = facts.volume.as_mut().unwrap();
        pv.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some(policy.to_owned());
        pv.status.as_mut().unwrap().phase = Some(phase.to_owned());
        facts
    };
    let mut stuck = volume("Released", "Delete");
    let words = "rpc error: code = FailedPrecondition desc = volume x is in use: mounted at /mnt";
    stuck.events = vec![typed(event("VolumeFailedDelete", words))];
    let cases = vec![
        (going(bound()), ClaimState::Deleting),
        (unused, ClaimState::Deleting),
        (volume("Available", "Delete"), ClaimState::Available),
        (volume("Released", "Retain"), ClaimState::Retained),
        (volume("Released", "Delete"), ClaimState::Deleting),
        (stuck, ClaimState::DeletionFailed),
    ];
    insta::assert_snapshot!(all(cases), @r#"
    default/db-2 is being deleted, and waits until these pods are gone: db-0.
    What to do:
      delete these pods, or the workload that creates them
    default/db-2 is being deleted, and waits for kubernetes.io/pvc-protection.
    pvc-u-1 is Available: no claim is bound to it yet.
    pvc-u-1 is retained with its data (reclaim policy Retain): its claim was
    deleted.
    Do one of:
      use it again: delete the PersistentVolume, which leaves the volume, and
      recover it
        kubectl delete pv pvc-u-1 && pliant recover r3j7nlli-sedc5vnwdfpktymcxldjdvbalx --namespace default --claim db-2
      delete it, with its data
        kubectl patch pv pvc-u-1 --patch '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'
    pvc-u-1 is being deleted with its data.
    pvc-u-1 cannot be deleted yet: volume x is in use: mounted at /mnt
    "#);
}

#[test]
fn the_cordon_of_the_node_that_a_pod_waits_for_can_be_lifted_as_advised() {
    let mut facts = bound();
    facts.pods[0] = typed(json!({
        "metadata": {"name": "db-0", "namespace": "default"}, "spec": {"containers": []},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3"}]},
    }));
    facts.nodes[0].spec = typed(json!({"taints": [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}));
    let (state, text) = said(&facts);
    assert_eq!(state, ClaimState::PodUnschedulable);
    let advice = "What to do:\n  let pods run on alpha again\n    kubectl uncordon alpha\n";
    assert!(text.ends_with(advice), "{text}");
}

#[test]
fn the_adoption_that_is_advised_names_the_class_of_the_volume() {
    let mut facts = bound();
    facts.claim = None;
    let pv = facts.volume.as_mut().unwrap();
    pv.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".to_owned());
    pv.spec.as_mut().unwrap().storage_class_name = Some("fast".to_owned());
    pv.status.as_mut().unwrap().phase = Some("Released".to_owned());
    let (state, text) = said(&facts);
    assert_eq!(state, ClaimState::Retained);
    assert!(text.contains("--namespace default --claim db-2 --storage-class fast\n"), "{text}");
}
