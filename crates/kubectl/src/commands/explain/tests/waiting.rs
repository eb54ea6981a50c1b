//! Claims without a volume.

use super::*;
use crate::api::FsType;

#[test]
fn waiting_for_a_pod_is_normal() {
    let (state, text) = said(&cluster());
    assert_eq!(state, ClaimState::WaitForFirstConsumer);
    insta::assert_snapshot!(text, @r"
    default/db-2 is Pending: waiting for a pod. This is normal: its class creates
    the volume when the first pod that uses the claim is scheduled.
    What to do:
      start a pod that uses it
    ");
}

/// A populator knows why it does not begin, and a pod would change nothing.
#[test]
fn a_claim_whose_population_waits_says_for_what() {
    let source = json!({"apiGroup": "pliant.io", "kind": "PvcSourcePopulator", "name": "copy"});
    let mut facts = with_claim(cluster(), "/spec/dataSourceRef", source);
    let external = event("ExternalProvisioning", "waiting for the driver");
    let told = |reason: &str, note: &str| [external.clone(), event(reason, note)].map(typed).into();
    facts.events = told("WaitForFirstConsumer", "it waits for a pod");
    assert_eq!(said(&facts).0, ClaimState::WaitForFirstConsumer);
    // What no populator has taken up yet has only events.
    facts.events = told("SourceInUse", "pod a has claim data mounted");
    assert_eq!(said(&facts).0, ClaimState::Populating);
    facts.events = told("UnrecognizedDataSourceKind", "no populator for kind Copy");
    facts.events.insert(0, typed(event("WaitForFirstConsumer", "waiting for first consumer")));
    let (state, text) = said(&facts);
    assert_eq!(state, ClaimState::PopulationFailed);
    assert!(text.contains("Failed:\nUnrecognizedDataSourceKind: no populator"), "{text}");
    // The state on the claim is newer than its events.
    let mut shown = |text: &str| {
        let claim = facts.claim.as_mut().unwrap();
        let notes = claim.metadata.annotations.get_or_insert_default();
        notes.insert("pliant.io/population-progress".to_owned(), text.to_owned());
        said(&facts)
    };
    for (text, state) in [
        ("Waiting: WaitForFirstConsumer: it waits", ClaimState::WaitForFirstConsumer),
        ("Provisioning", ClaimState::WaitForFirstConsumer),
        ("PreCopied: SourcePaused: PvcSourcePopulator copy is paused", ClaimState::Populating),
        ("Failed: VolumeModeMismatch: the claim is a block device", ClaimState::PopulationFailed),
    ] {
        assert_eq!(shown(text).0, state, "{text}");
    }
    let (state, text) = shown("Waiting: SourceInUse: pod a has claim data mounted");
    assert_eq!(state, ClaimState::Populating);
    insta::assert_snapshot!(text, @r"
    default/db-2 is Pending: its content comes from PvcSourcePopulator copy.
    Waiting: SourceInUse: pod a has claim data mounted
    What to do:
      read all events of its population
        kubectl describe pvc db-2 --namespace default
    ");
}

#[test]
fn without_room_each_node_says_how_much_is_short() {
    let mut pod = pod();
    pod["spec"]["nodeSelector"] = json!({"zone": "b"});
    let (state, text) = said(&with_pod(pod));
    assert_eq!(state, ClaimState::InsufficientCapacity);
    insta::assert_snapshot!(text, @r"
    default/db-2 is Pending: it requests 200 GiB of class fast, and no node that may
    run its pod db-0 has that much in one pool.
      alpha  698 GiB  excluded: its pod requires the node label zone=b
      beta   110 GiB  90 GiB short
      gamma        –  no pool fast; it has slow
    Do one of:
      request 110Gi or less: create the claim again, it has no volume yet
        kubectl delete pvc db-2 --namespace default
      add a disk to pool fast of beta
        kubectl edit storagepool fast
      let its pod run on alpha: see its nodeSelector, affinity and tolerations
    ");
}

#[test]
fn a_thin_volume_for_which_too_much_is_promised_is_told_how_much() {
    let mut facts = with_pod(pod());
    let mut thin = class();
    thin["parameters"]["layout"] = json!("thin");
    facts.classes = vec![typed(thin)];
    let status = facts.storages[0].status.as_mut().unwrap();
    status.pools[0].maximum_volume_size[0].layout = "thin".to_owned();
    status.volume_groups = vec![typed(
        json!({"name": "vg0", "pool": "fast", "size": "1800Gi", "free": "900Gi",
        "health": "Healthy", "thinPool": {"size": "400Gi", "maximumSize": "1600Gi", "metadataSize": "1Gi",
            "maximumMetadataSize": "15Gi", "provisioned": "1502Gi", "maximumProvisioned": "1600Gi"}}),
    )];
    status.pools[0].maximum_volume_size[0].size = Quantity(Bytes::gib(98));
    let (state, text) = said(&facts);
    assert_eq!(state, ClaimState::InsufficientCapacity);
    let words = "102 GiB short; the thin pool of vg0 has 1.46 TiB of at most 1.56 TiB provisioned";
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(words), "{text}");
    // Another layout does not use what was promised.
    facts.classes = vec![typed(class())];
    assert!(!said(&facts).1.contains("provisioned"));
}

#[test]
fn another_volume_of_its_pod_excludes_nodes() {
    let mut facts = with_pod(pod());
    facts.companions = vec![typed(json!({"metadata": {"name": "pvc-9"}, "spec": {
        "claimRef": {"name": "log"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["b"]}]}]}}}}))];
    let (state, text) = said(&facts);
    assert_eq!(state, ClaimState::InsufficientCapacity);
    let excluded = "alpha  698 GiB  excluded: its pod also uses claim log, which requires zone=b";
    assert!(text.contains(excluded), "{text}");
}

#[test]
fn a_class_that_is_missing_or_wrong_is_told_before_any_node() {
    let mut other = class();
    other["provisioner"] = json!("ebs.csi.aws.com");
    let mut wrong = class();
    wrong["parameters"] = json!({"pol": "fast"});
    let mut default = class();
    default["metadata"]["annotations"] =
        json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let named = |name: Value| with_claim(cluster(), "/spec/storageClassName", name);
    let with = |class: Value| ClaimFacts { classes: vec![typed(class)], ..cluster() };
    let unnamed = |class: Value| with_claim(with(class), "/spec/storageClassName", Value::Null);
    let told = all(vec![
        (named(json!("fats")), ClaimState::StorageClassNotFound),
        (named(json!("")), ClaimState::StorageClassNotSet),
        (unnamed(class()), ClaimState::StorageClassNotSet),
        (unnamed(default), ClaimState::StorageClassNotSet),
        (with(other), ClaimState::OtherDriver),
        (with(wrong), ClaimState::StorageClassInvalid),
    ]);
    insta::assert_snapshot!(told, @r"
    default/db-2 is Pending: StorageClass fats does not exist.
    What to do:
      create the claim again with a class of this driver, such as fast
    default/db-2 is Pending: its storageClassName is empty, so it binds only to an
    existing PersistentVolume, and none fits.
    What to do:
      create the claim again with a class of this driver, such as fast
    default/db-2 is Pending: it names no StorageClass, and none is the default.
    What to do:
      create the claim again with a class of this driver, such as fast
    default/db-2 is Pending: it names no StorageClass, and gets the default one,
    fast, within seconds.
    What to do:
      create the claim again with a class of this driver, such as fast
    default/db-2 is Pending: its class fast belongs to the driver ebs.csi.aws.com,
    which Pliant cannot explain.
    default/db-2 is Pending: its class fast cannot be used: class parameter pol:
    unknown; did you mean pool? Known parameters are pool, layout, wipe,
    resizeSnapshot, mkfsOptions, trimInterval, csi.storage.k8s.io/fstype.
    What to do:
      create the class again: its parameters cannot be edited
        kubectl get storageclass fast --output yaml
    ");
}

#[test]
fn what_its_pod_does_is_told_before_any_node() {
    let with = |field: &str, value: Value| {
        let mut pod = pod();
        pod["spec"][field] = value;
        with_pod(pod)
    };
    let told = all(vec![
        (with("schedulingGates", json!([{"name": "quota"}])), ClaimState::PodSchedulingGated),
        (with("nodeName", json!("beta")), ClaimState::PodNodeNameSet),
    ]);
    insta::assert_snapshot!(told, @r"
    default/db-2 is Pending: its pod db-0 has scheduling gates: quota.
    What to do:
      wait until their owner removes these scheduling gates
    default/db-2 is Pending: its pod db-0 sets nodeName to beta, so it bypasses the
    scheduler, which selects the node of the volume.
    What to do:
      replace nodeName in the pod by nodeSelector: {kubernetes.io/hostname: beta}
    ");
}

#[test]
fn that_no_node_can_have_it_is_told_by_what_comes_nearest() {
    let only = |nodes: &[&str]| {
        let mut facts = with_pod(pod());
        facts.nodes.retain(|node| nodes.contains(&node.metadata.name.as_deref().unwrap()));
        facts.storages.retain(|node| nodes.contains(&node.metadata.name.as_deref().unwrap()));
        facts
    };
    let mut broken = only(&["alpha"]);
    let pool = &mut broken.storages[0].status.as_mut().unwrap().pools[0];
    let why = "volume group vg0 is not there; see `vgs`";
    pool.set_fault(Health::Unavailable, "PoolIncomplete", why);
    let mut silent = only(&["alpha", "beta"]);
    silent.storages.clear();
    silent.node_plugins.remove(0);
    let mut unready = only(&["alpha"]);
    unready.node_plugins[0].status = None;
    let mut unregistered = only(&["alpha"]);
    unregistered.kubelets.clear();
    let mut tainted = only(&["alpha"]);
    tainted.nodes[0].spec = typed(
        json!({"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}),
    );
    let mut confined = only(&["alpha"]);
    confined.classes[0].allowed_topologies = typed(json!([{"matchLabelExpressions": [
        {"key": "topology.lvm.csi.pliant.io/node", "values": ["gamma"]}]}]));
    let told = all(vec![
        (only(&["gamma"]), ClaimState::PoolNotFound),
        (broken, ClaimState::PoolUnavailable),
        (silent, ClaimState::NodePluginUnavailable),
        (unready, ClaimState::NodePluginUnavailable),
        (unregistered, ClaimState::NodePluginUnavailable),
        (tainted, ClaimState::PodUnschedulable),
        (confined, ClaimState::PodUnschedulable),
        (only(&[]), ClaimState::NodePluginUnavailable),
    ]);
    insta::assert_snapshot!(told, @r"
    default/db-2 is Pending: no node that may run its pod db-0 has the pool of class
    fast.
      gamma  –  no pool fast; it has slow
    What to do:
      extend StoragePool fast to gamma, by the labels that it selects
        kubectl label node gamma disks=nvme --overwrite
    default/db-2 is Pending: the pool of class fast cannot be used on any node that
    may run its pod db-0.
      alpha  698 GiB  volume group vg0 is not there; see `vgs`
    What to do:
      see all pools
        pliant status
    default/db-2 is Pending: the driver is ready on no node that may run its pod
    db-0.
      alpha  –  no node plugin runs there
      beta   –  its node plugin has not reported its pools
    What to do:
      look at the driver
        pliant doctor --cluster
    default/db-2 is Pending: the driver is ready on no node that may run its pod
    db-0.
      alpha  698 GiB  its node plugin pliant-node-alpha is not ready
    What to do:
      look at the driver
        pliant doctor --cluster
    default/db-2 is Pending: the driver is ready on no node that may run its pod
    db-0.
      alpha  698 GiB  its kubelet has not registered the driver yet
    What to do:
      look at the driver
        pliant doctor --cluster
    default/db-2 is Pending: no node may run its pod db-0.
      alpha  698 GiB  excluded: the node is cordoned
    What to do:
      let pods run on alpha again
        kubectl uncordon alpha
    default/db-2 is Pending: no node may run its pod db-0.
      alpha  698 GiB  excluded: its class allows only
                      topology.lvm.csi.pliant.io/node=gamma
    What to do:
      create the claim again with a class that allows
      topology.lvm.csi.pliant.io/node=alpha
    default/db-2 is Pending: no node has reported its pools.
    What to do:
      look at the driver
        pliant doctor --cluster
    ");
}

#[test]
fn where_a_node_has_room_it_is_told_what_is_going_on() {
    let chosen = |facts| {
        let annotations = json!({"volume.kubernetes.io/selected-node": "alpha"});
        with_claim(facts, "/metadata/annotations", annotations)
    };
    let mut unscheduled = pod();
    unscheduled["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}]});
    let mut immediate = cluster();
    immediate.classes[0].volume_binding_mode = Some("Immediate".to_owned());
    let failed = "failed to provision volume with StorageClass \"fast\": rpc error: code = Internal \
                  desc = mkfs.ext4 failed";
    let mut failing = chosen(with_pod(pod()));
    failing.events = vec![typed(event("ProvisioningFailed", failed))];
    let told = all(vec![
        (with_pod(unscheduled), ClaimState::WaitForPodScheduled),
        (chosen(with_pod(pod())), ClaimState::Provisioning),
        (immediate, ClaimState::Provisioning),
        (failing, ClaimState::ProvisioningFailed),
    ]);
    insta::assert_snapshot!(told, @r"
    default/db-2 is Pending: enough free space is on alpha, and its pod db-0 is not
    scheduled yet. The scheduler reports: 0/3 nodes are available: 3 Insufficient
    cpu.
      alpha  698 GiB  has enough free space
      beta   110 GiB  90 GiB short
      gamma        –  no pool fast; it has slow
    What to do:
      see what else its pod waits for
        kubectl describe pod db-0 --namespace default
    default/db-2 is Pending: its volume is about to be created on node alpha.
      alpha  698 GiB  has enough free space
      beta   110 GiB  90 GiB short
      gamma        –  no pool fast; it has slow
    What to do:
      if it stays so, read the log of the provisioner
        kubectl logs --namespace pliant --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=controller --container provisioner
    default/db-2 is Pending: its volume is about to be created on alpha.
      alpha  698 GiB  has enough free space
      beta   110 GiB  90 GiB short
      gamma        –  no pool fast; it has slow
    default/db-2 is Pending: its volume could not be created on node alpha:
    mkfs.ext4 failed
      alpha  698 GiB  has enough free space
      beta   110 GiB  90 GiB short
      gamma        –  no pool fast; it has slow
    What to do:
      read the events of the driver
        kubectl describe pvc db-2 --namespace default
    ");
}

fn making(status: VolumeRequestStatus) -> ClaimFacts {
    let work = Operation::Create(Create {
        name: "pvc-u-1".to_owned(),
        min_size: Quantity(Bytes::gib(200)),
        max_size: None,
        volume_mode: VolumeMode::Filesystem,
        fs_type: Some(FsType::Ext4),
        parameters: std::collections::BTreeMap::new(),
    });
    let volume = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-u-1")).to_string();
    let spec =
        VolumeRequestSpec { node_name: "alpha".to_owned(), volume_handle: volume, operation: work };
    let mut request = VolumeRequest::new("create-x", spec);
    request.status = Some(status);
    ClaimFacts { requests: vec![request], ..with_pod(pod()) }
}

#[test]
fn the_record_of_the_work_says_how_far_it_is() {
    let failure = |reason: &str| {
        let message = "a sentence of the driver".to_owned();
        Some(Failure { reason: reason.to_owned(), message })
    };
    let progress = Some("62 % (124 GiB of 200 GiB)".to_owned());
    let status = |phase, progress, failure| VolumeRequestStatus {
        phase,
        progress,
        error: failure,
        ..VolumeRequestStatus::default()
    };
    let mut away = making(status(Phase::Pending, None, None));
    away.node_plugins.clear();
    let full = making(status(Phase::Failed, None, failure("InsufficientCapacity")));
    let told = all(vec![
        (making(status(Phase::Pending, None, None)), ClaimState::Provisioning),
        (making(status(Phase::Running, progress, None)), ClaimState::Provisioning),
        (
            making(status(Phase::Failed, None, failure("PreconditionFailed"))),
            ClaimState::ProvisioningFailed,
        ),
        (away, ClaimState::NodePluginUnavailable),
    ]);
    insta::assert_snapshot!(told, @r"
    default/db-2 is Pending: its volume is being created on node alpha; its node
    plugin has not started it yet.
    default/db-2 is Pending: its volume is being created on node alpha; 62 % (124
    GiB of 200 GiB).
    default/db-2 is Pending: its volume could not be created on node alpha: a
    sentence of the driver
    What to do:
      read the events of the driver
        kubectl describe pvc db-2 --namespace default
    default/db-2 is Pending: its volume is to be created on node alpha, and no node
    plugin runs there.
    What to do:
      look at the driver's pod on alpha
        kubectl get pods --all-namespaces --selector app.kubernetes.io/name=pliant,app.kubernetes.io/component=node --field-selector spec.nodeName=alpha
    ");
    assert!(!judge(&full).nodes.is_empty(), "the numbers of all nodes say more");
}

#[test]
fn who_may_not_read_the_cluster_is_told_what_is_known() {
    let mut facts = cluster();
    facts.classes.clear();
    facts.unseen = vec![crate::commands::CLASSES, super::super::gather::NODES];
    facts.events = vec![typed(event("WaitForFirstConsumer", "waiting for first consumer"))];
    let mut without_numbers = with_pod(pod());
    without_numbers.storages.clear();
    without_numbers.unseen = vec![super::super::gather::STORAGES];
    assert_eq!(judge(&without_numbers).state, ClaimState::Forbidden);
    let (state, text) = said(&facts);
    assert_eq!(state, ClaimState::Forbidden);
    insta::assert_snapshot!(text, @r"
    default/db-2 is Pending, and you may not read what that depends on: storage
    classes, nodes. Its last event: waiting for first consumer
    What to do:
      ask an administrator of the cluster to run
        pliant explain pvc/db-2 --namespace default
    You may not read: storage classes, nodes. The answer may be incomplete.
    ");
}

#[test]
fn a_claim_that_names_its_volume_is_told_why_that_is_not_its() {
    let named = |facts| with_claim(facts, "/spec/volumeName", json!("pv-1"));
    let other = json!({"metadata": {"name": "pv-1"}, "spec": {"claimRef":
        {"namespace": "default", "name": "other", "uid": "u-9"}}});
    let fitting = json!({"metadata": {"name": "pv-1"}, "spec": {}});
    let mut told = String::new();
    let named_back = json!({"metadata": {"name": "pv-1"}, "spec": {"claimRef":
        {"namespace": "default", "name": "db-2"}}});
    for volume in [None, Some(other), Some(fitting), Some(named_back)] {
        let facts = ClaimFacts { volume: volume.map(typed), ..named(cluster()) };
        let (state, text) = said(&facts);
        assert_eq!(state, ClaimState::VolumeConflict, "{text}");
        told += &text;
    }
    insta::assert_snapshot!(told, @r"
    default/db-2 is Pending: it names PersistentVolume pv-1, which does not exist.
    What to do:
      compare the two
        kubectl get pv pv-1 --output yaml
    default/db-2 is Pending: it names PersistentVolume pv-1, which is reserved for
    claim default/other with the uid u-9.
    What to do:
      compare the two
        kubectl get pv pv-1 --output yaml
    default/db-2 is Pending: it names PersistentVolume pv-1. If it is not bound
    within seconds, the two differ in class, size, access or volume mode.
    What to do:
      compare the two
        kubectl get pv pv-1 --output yaml
    default/db-2 is Pending: it names PersistentVolume pv-1. If it is not bound
    within seconds, the two differ in class, size, access or volume mode.
    What to do:
      compare the two
        kubectl get pv pv-1 --output yaml
    ");
}

#[test]
fn the_rule_by_which_each_node_takes_a_pool_is_stated() {
    let mut facts = with_pod(pod());
    facts.classes[0].parameters = None;
    facts.storages[0] = storage("alpha", &[("fast", 698), ("looks", 0)]);
    facts.storages[1] = storage("beta", &[("slow", 110), ("fast", 900)]);
    let (state, text) = said(&facts);
    assert_eq!(state, ClaimState::WaitForPodScheduled);
    insta::assert_snapshot!(text, @r"
    default/db-2 is Pending: enough free space is on alpha and gamma, and its pod
    db-0 is not scheduled yet. Its class names no pool, so each node takes the one
    named default, else the oldest, of those that have a volume group there: fast on
    alpha, slow on beta and gamma.
      alpha  698 GiB  has enough free space
      beta   110 GiB  90 GiB short
      gamma  900 GiB  has enough free space
    What to do:
      see what else its pod waits for
        kubectl describe pod db-0 --namespace default
    ");
    facts.storages.truncate(1);
    facts.storages[0].status.as_mut().unwrap().pools.pop();
    assert!(!said(&facts).1.contains("names no pool"), "where there is no choice");
}

#[test]
fn what_to_write_in_place_of_the_key_of_another_driver_is_stated() {
    for (key, value, nodes) in [
        ("kubernetes.io/hostname", "alpha", "alpha"),
        ("zone", "b", "beta, gamma"),
        ("topology.kubernetes.io/zone", "b", "NODE"),
    ] {
        for immediate in [false, true] {
            let mut facts = with_pod(pod());
            for node in &mut facts.nodes {
                let name = node.metadata.name.clone().unwrap();
                let labels = node.metadata.labels.as_mut().unwrap();
                labels.insert("kubernetes.io/hostname".to_owned(), name);
            }
            let class = &mut facts.classes[0];
            let term = json!({"matchLabelExpressions": [{"key": key, "values": [value]}]});
            class.allowed_topologies = typed(json!([term]));
            if immediate {
                class.volume_binding_mode = Some("Immediate".to_owned());
            }
            let (state, text) = (judge(&facts).state, flat(&facts));
            assert_eq!(state, ClaimState::StorageClassInvalid, "{text}");
            let why = format!(
                "the allowedTopologies of its class fast name {key}, and volumes of this \
                               driver have only the key topology.lvm.csi.pliant.io/node"
            );
            assert!(text.contains(&why), "{text}");
            let write = format!(
                "allowedTopologies: [{{matchLabelExpressions: [{{key: \
                topology.lvm.csi.pliant.io/node, values: [{nodes}]}}]}}]"
            );
            assert!(text.contains(&write), "{text}");
        }
    }
    // Followed.
    let mut facts = with_pod(pod());
    facts.classes[0].allowed_topologies = typed(json!([{"matchLabelExpressions": [
        {"key": "topology.lvm.csi.pliant.io/node", "values": ["alpha"]}]}]));
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);
}

#[test]
fn what_is_advised_where_nodes_are_excluded_can_be_followed() {
    // Beta has too little, and alpha, which has enough, is excluded in each of these ways.
    let excluded = |change: fn(&mut ClaimFacts)| {
        let mut facts = with_pod(pod());
        facts.classes[0].allowed_topologies = None;
        change(&mut facts);
        (judge(&facts).state, flat(&facts), facts)
    };
    let cordon = |facts: &mut ClaimFacts| {
        facts.nodes[0].spec = typed(json!({"taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}));
    };
    let (state, text, mut facts) = excluded(cordon);
    assert_eq!(state, ClaimState::InsufficientCapacity);
    assert!(text.contains("let pods run on alpha again kubectl uncordon alpha"), "{text}");
    facts.nodes[0].spec = None;
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);

    let (_, text, mut facts) = excluded(|facts| {
        facts.pods[0].spec.as_mut().unwrap().node_selector = typed(json!({"zone": "b"}));
    });
    let advice = "let its pod run on alpha: see its nodeSelector, affinity and tolerations";
    assert!(text.contains(advice), "{text}");
    facts.pods[0].spec.as_mut().unwrap().node_selector = None;
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);

    let (_, text, mut facts) = excluded(|facts| {
        let mut other = facts.classes[0].clone();
        other.metadata.name = Some("anywhere".to_owned());
        facts.classes.push(other);
        facts.classes[0].allowed_topologies = typed(json!([{"matchLabelExpressions": [
            {"key": "topology.lvm.csi.pliant.io/node", "values": ["beta"]}]}]));
    });
    let advice = "create the claim again with a class that allows \
                  topology.lvm.csi.pliant.io/node=alpha, such as anywhere";
    assert!(text.contains(advice), "{text}");
    facts = with_claim(facts, "/spec/storageClassName", json!("anywhere"));
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);

    let (_, text, _) = excluded(|facts| {
        facts.nodes[0].spec = typed(json!({"taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "gpu", "effect": "NoSchedule"}]}));
    });
    let both = "uncordon alpha; and let its pod run on alpha: see its nodeSelector";
    assert!(text.contains(both), "{text}");
}

#[test]
fn a_smaller_claim_is_advised_that_fits() {
    let mut facts = with_pod(pod());
    facts.storages.remove(0);
    facts.nodes.remove(0);
    let text = flat(&facts);
    assert!(text.contains("request 110Gi or less"), "{text}");
    let facts = with_claim(facts, "/spec/resources/requests/storage", json!("110Gi"));
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);
}

#[test]
fn what_is_advised_where_no_node_has_the_pool_can_be_followed() {
    let only_gamma = || {
        let mut facts = with_pod(pod());
        facts.nodes.retain(|node| node.metadata.name.as_deref() == Some("gamma"));
        facts.storages.retain(|node| node.metadata.name.as_deref() == Some("gamma"));
        facts
    };
    let mut facts = only_gamma();
    assert!(flat(&facts).contains("kubectl label node gamma disks=nvme --overwrite"));
    // Its node plugin makes the pool then, or says why it does not.
    facts.nodes[0].metadata.labels.as_mut().unwrap().insert("disks".to_owned(), "nvme".to_owned());
    let text = flat(&facts);
    assert!(text.contains("StoragePool fast is for gamma: see its status"), "{text}");
    assert!(text.contains("kubectl get storagepool fast --output yaml"), "{text}");
    facts.storages[0] = storage("gamma", &[("fast", 900)]);
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);

    let mut facts = only_gamma();
    facts.pools.remove(0);
    let text = flat(&facts);
    let write = "StoragePool fast does not exist: create it, or create the claim again with a class of slow";
    assert!(text.contains(write), "{text}");
    facts.classes[0].parameters = typed(json!({"pool": "slow"}));
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);

    let mut facts = only_gamma();
    facts.classes[0].parameters = None;
    facts.storages[0] = storage("gamma", &[]);
    let text = flat(&facts);
    assert!(text.contains("create a StoragePool for gamma"), "{text}");
    facts.storages[0] = storage("gamma", &[("any", 900)]);
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);
}

#[test]
fn a_pool_that_only_plans_can_be_let_make_its_volume_groups_as_advised() {
    let mut facts = with_pod(pod());
    facts.nodes.truncate(1);
    facts.storages = vec![storage("alpha", &[("fast", 0)])];
    let pool = &mut facts.storages[0].status.as_mut().unwrap().pools[0];
    pool.capacity = Quantity::default();
    let why = "it has no volume group yet: see the planned actions";
    pool.set_fault(Health::Unavailable, "NoVolumeGroup", why);
    pool.planned_actions = vec!["make volume group x on /dev/sdb".to_owned()];
    let (state, text) = (judge(&facts).state, flat(&facts));
    assert_eq!(state, ClaimState::PoolUnavailable, "{text}");
    let advice = "let StoragePool fast create what it plans: createVolumeGroups: true kubectl edit storagepool fast";
    assert!(text.contains(advice), "{text}");
    facts.storages = vec![storage("alpha", &[("fast", 900)])];
    assert_eq!(judge(&facts).state, ClaimState::WaitForPodScheduled);
}
