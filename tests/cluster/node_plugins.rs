//! What node plugins do with what they are asked: late, wrongly, for long, or not at all.

use std::sync::Arc;
use std::time::Duration;

use pliant::api::{
    Create, Delete, Expand, FsType, NodeStorage, NodeStorageStatus, Operation, Phase, Quantity,
    StoragePool, StoragePoolSpec, VolumeMode, VolumeRequest, VolumeRequestSpec,
    VolumeRequestStatus,
};
use pliant::bytes::Bytes;
use pliant::node::NodeSettings;
use pliant::testing::{FakeApi, Lines};
use pliant::volume::{Mode, NewVolume, NodeVolumes, Page, Reason, Stage, Volumes};
use tokio::time::Instant;

use crate::world::{Controller, Machine, World, growth, id, refused, stage, stage_raw, want};

#[tokio::test(start_paused = true)]
async fn a_node_plugin_that_is_away_is_named_in_time_and_does_the_work_when_it_is_back() {
    let (world, cluster, machine) = World::with_a_node().await;
    let host = machine.host.after_crash();
    drop(machine);
    let asked = Instant::now();
    let said = refused(cluster.ensure(&want("pvc-1", 100, &[])).await, Reason::Unavailable);
    assert!(asked.elapsed() <= Duration::from_secs(15), "{:?}", asked.elapsed());
    assert!(
        said.contains("the node plugin of node alpha has not started the operation within 15 s"),
        "{said}"
    );
    assert!(said.contains("--field-selector spec.nodeName=alpha"), "{said}");
    let machine = world.restart("alpha", host).await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), 1);
    cluster.remove(&made.id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn neither_other_node_plugins_nor_what_was_told_before_are_signs_of_life() {
    let (_world, cluster, [_alpha, beta]) = World::with_two_nodes().await;
    cluster.ensure(&want("pvc-1", 8, &["beta"])).await.unwrap();
    drop(beta);
    let asked = Instant::now();
    let others = async {
        for number in 0..10 {
            cluster.ensure(&want(&format!("other-{number}"), 8, &["alpha"])).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let wanted = want("pvc-2", 8, &["beta"]);
    let (on_beta, ()) = tokio::join!(cluster.ensure(&wanted), others);
    refused(on_beta, Reason::Unavailable);
    assert!(asked.elapsed() <= Duration::from_secs(15), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_told_also_where_other_work_is() {
    let patience = Duration::from_secs(3600); // Nothing is told of the wipe.
    let (world, cluster, _machine) = slowly_wiped(patience).await;
    let volume = id("alpha", "pvc-1");
    let others = async {
        for number in 0..12 {
            let small = NewVolume { mode: Mode::Block, ..want(&format!("other-{number}"), 4, &[]) };
            cluster.ensure(&small).await.unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    };
    let asked = Instant::now();
    let removed = async {
        let said = refused(cluster.remove(&volume).await, Reason::InProgress);
        assert!(said.contains("Running"), "{said}");
        assert!(asked.elapsed() >= Duration::from_secs(45), "{:?}", asked.elapsed());
    };
    let told = async {
        world.phase(Phase::Running).await;
        let after = asked.elapsed();
        assert!((30..31).contains(&after.as_secs()), "{after:?}");
    };
    tokio::join!(removed, others, told);
}

#[tokio::test(start_paused = true)]
async fn work_that_was_begun_on_a_node_that_is_gone_for_good_is_given_up() {
    let (world, _cluster, machine) = World::with_a_node().await;
    drop(machine);
    let volume = id("alpha", "pvc-1").to_string();
    let spec = VolumeRequestSpec {
        node_name: "alpha".to_owned(),
        volume_handle: volume,
        operation: Operation::Delete(Delete {}),
    };
    let mut request = VolumeRequest::new("delete-pvc-1", spec);
    let observed_generation = 1;
    request.status = Some(VolumeRequestStatus {
        observed_generation,
        phase: Phase::Running,
        ..VolumeRequestStatus::default()
    });
    world.api.put(&request);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.request().metadata.name.as_deref(), Some("delete-pvc-1"), "it may go on");
    world.api.delete::<NodeStorage>("alpha");
    tokio::time::sleep(Duration::from_secs(590)).await;
    world.request();
    world.cleaned().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_no_node_plugin_takes_up_is_given_up_in_ten_minutes() {
    let (world, cluster, machine) = World::with_a_node().await;
    let host = machine.host.after_crash();
    drop(machine);
    let asked = Instant::now();
    refused(cluster.ensure(&want("pvc-1", 100, &[])).await, Reason::Unavailable);
    tokio::time::sleep_until(asked + Duration::from_secs(590)).await;
    assert_eq!(world.request().status, None);
    world.cleaned().await;
    // Nobody asks for the volume any more, so it is not made.
    let machine = world.restart("alpha", host).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(machine.host.group("vg0").unwrap().lvs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_removed_or_written_over_is_told_again() {
    let (world, cluster, _machine) = World::with_a_node().await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    world.api.delete::<NodeStorage>("alpha");
    let has_one = |api: &FakeApi| {
        let record: Option<NodeStorage> = api.get("alpha");
        record.and_then(|one| one.status).is_some_and(|told| told.volume_count == 1)
    };
    world.api.until("the node tells again", has_one).await;
    let mut wrong: NodeStorage = world.api.get("alpha").unwrap();
    wrong.status = Some(NodeStorageStatus::default());
    world.api.put(&wrong);
    tokio::time::sleep(Duration::from_secs(60)).await; // It looks once a minute.
    world.api.until("the node tells again", has_one).await;
    cluster
        .nodes()
        .until(|| cluster.nodes().all()[0].status.as_ref()?.volumes.first().cloned())
        .await;
    assert_eq!(cluster.find(&made.id).await.unwrap().unwrap().volume, made);
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_is_removed_while_another_request_waits() {
    let (world, cluster, [alpha, beta]) = World::with_two_nodes().await;
    drop(beta);
    refused(cluster.ensure(&want("pvc-1", 100, &["beta"])).await, Reason::Unavailable);
    cluster.ensure(&want("pvc-2", 100, &["alpha"])).await.unwrap();
    let one = |api: &FakeApi| api.list::<VolumeRequest>().len() == 1;
    world.api.until("only what waits is left", one).await;
    assert_eq!(world.request().spec.node_name, "beta");
    drop(alpha);
}

/// A request as anybody with the right to could write it.
fn rubbish(name: &str, volume: String, work: Operation) -> VolumeRequest {
    VolumeRequest::new(
        name,
        VolumeRequestSpec { node_name: "alpha".to_owned(), volume_handle: volume, operation: work },
    )
}

fn create(name: &str, fs_type: Option<FsType>, parameter: Option<&str>) -> Operation {
    Operation::Create(Create {
        name: name.to_owned(),
        min_size: Quantity(Bytes::mib(8)),
        max_size: None,
        volume_mode: VolumeMode::Filesystem,
        fs_type,
        parameters: parameter.map(|name| (name.to_owned(), "x".to_owned())).into_iter().collect(),
    })
}

#[tokio::test(start_paused = true)]
async fn rubbish_is_refused_by_name_and_stops_nobody() {
    let (world, cluster, machine) = World::with_a_node().await;
    let ours = || id("alpha", "pvc-1").to_string();
    let grow = Operation::Expand(Expand {
        min_size: Quantity(Bytes::mib(8)),
        max_size: Some(Quantity(Bytes::mib(4))),
        volume_mode: None,
    });
    let all = [
        (
            "bad-id",
            "../../etc".to_owned(),
            Operation::Delete(Delete {}),
            "InvalidArgument",
            "../../etc",
        ),
        ("empty-id", String::new(), grow.clone(), "InvalidArgument", "not the handle of a volume"),
        ("bad-mode", ours(), create("pvc-1", None, None), "InvalidArgument", "fsType is missing"),
        (
            "bad-class",
            ours(),
            create("pvc-1", Some(FsType::Ext4), Some("colour")),
            "InvalidArgument",
            "colour",
        ),
        (
            "other-name",
            ours(),
            create("pvc-9", Some(FsType::Ext4), None),
            "InvalidArgument",
            "pvc-9",
        ),
        ("no-volume", ours(), grow, "NotFound", "does not exist"),
    ];
    for (name, volume, work, _, _) in all.clone() {
        world.api.put(&rubbish(name, volume, work));
    }
    let made = cluster.ensure(&want("pvc-2", 100, &[])).await.unwrap();
    for (name, _, _, reason, word) in all {
        let request: VolumeRequest = world.api.get(name).unwrap();
        let status = request.status.unwrap_or_else(|| panic!("{name} is not answered"));
        let failure = status.error.unwrap_or_else(|| panic!("{name} is done"));
        assert_eq!(failure.reason, reason, "{name}: {}", failure.message);
        assert!(failure.message.contains(word), "{name}: {}", failure.message);
    }
    let lvs: Vec<String> = machine.host.group("vg0").unwrap().lvs.into_keys().collect();
    assert_eq!(lvs, [pliant::node::lv_tags::lv_name(made.id.key())]);
}

/// A volume whose wipe takes 80 s, and whose removal waits so long for it before it tells how far it is.
async fn slowly_wiped(wipe_patience: Duration) -> (World, Controller, Machine) {
    let (world, cluster, machine) = World::with_a_node().await;
    let host = machine.host.after_crash();
    drop(machine);
    let rate = Some(Bytes::mib(10));
    let slow = NodeSettings { wipe_rate: rate, wipe_patience, ..NodeSettings::new("alpha") };
    let machine = world.start(slow, host).await;
    cluster.ensure(&want("pvc-1", 800, &[])).await.unwrap();
    world.cleaned().await;
    let Stage { id, staging, .. } = stage();
    machine.node.stage(&stage()).await.unwrap(); // What was never used is not wiped at its end.
    machine.node.unstage(&id, &staging).await.unwrap();
    (world, cluster, machine)
}

#[tokio::test(start_paused = true)]
async fn a_long_wipe_is_told_as_it_goes_on_and_joined_until_its_end() {
    let (world, cluster, machine) = slowly_wiped(NodeSettings::new("alpha").wipe_patience).await;
    let volume = id("alpha", "pvc-1");
    let (begun, told) = (Instant::now(), std::sync::Mutex::new(Vec::new()));
    let watched = async {
        world.phase(Phase::Running).await;
        while begun.elapsed() < Duration::from_secs(60) {
            world.api.changed().await;
            let request = world.api.list::<VolumeRequest>().pop();
            told.lock().unwrap().extend(request.and_then(|one| one.status).map(|s| s.progress));
        }
    };
    let removed = async {
        let said = refused(cluster.remove(&volume).await, Reason::InProgress);
        assert!(said.contains("MiB of 800 MiB)"), "{said}");
        assert!(begun.elapsed() <= Duration::from_secs(45), "{:?}", begun.elapsed());
        let found = cluster.find(&volume).await.unwrap().unwrap();
        assert_eq!(found.state.to_string(), "deleting");
        cluster.remove(&volume).await
    };
    let ended = tokio::join!(removed, watched).0;
    ended.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(80), "{:?}", begun.elapsed());
    let told = told.into_inner().unwrap();
    let first = told.iter().position(Option::is_some).expect("progress is told");
    assert!(told[first..].iter().all(Option::is_some), "and never taken back: {told:?}");
    assert!(machine.host.group("vg0").unwrap().lvs.is_empty());
    assert_eq!(world.request().status.unwrap().phase, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_long_wipe_does_not_hold_up_other_volumes() {
    let (_world, cluster, machine) = slowly_wiped(NodeSettings::new("alpha").wipe_patience).await;
    let volume = id("alpha", "pvc-1");
    let other = async {
        let begun = Instant::now();
        let small = NewVolume { mode: Mode::Block, ..want("pvc-2", 8, &[]) };
        let made = cluster.ensure(&small).await.unwrap();
        cluster.grow(&made.id, growth(16)).await.unwrap();
        assert!(begun.elapsed() <= Duration::from_secs(5), "{:?}", begun.elapsed());
    };
    let (removed, ()) = tokio::join!(cluster.remove(&volume), other);
    refused(removed, Reason::InProgress);
    assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_fails_is_told_and_tried_anew() {
    let (_world, cluster, machine) = World::with_a_node().await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    machine.host.fail("lvextend", pliant::testing::Failing::Once);
    let said = cluster.grow(&made.id, growth(200)).await.unwrap_err().to_string();
    assert!(said.contains("lvextend"), "{said}");
    cluster.grow(&made.id, growth(200)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_node_plugin_does_for_a_request_is_logged_with_its_name() {
    let (lines, (_world, cluster, _machine)) = (Lines::begin(), World::with_a_node().await);
    cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    let made = lines.with("lvcreate");
    let made: Vec<_> = made.iter().filter(|one| one["fields"]["command"].is_string()).collect();
    assert!(!made.is_empty());
    for one in made {
        assert_eq!(one["span"]["name"], "reconcile");
        assert_eq!(one["span"]["controller"], "volumerequests");
        let request = one["span"]["object"].as_str().unwrap_or_default();
        assert!(request.starts_with("create-"), "{one}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_wipe_is_ended_by_a_node_plugin_that_starts_anew() {
    let (world, cluster, machine) = slowly_wiped(NodeSettings::new("alpha").wipe_patience).await;
    let volume = id("alpha", "pvc-1");
    let restarted = async {
        world.phase(Phase::Running).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let host = machine.host.after_crash();
        drop(machine);
        world.restart("alpha", host).await
    };
    let (removed, machine) = tokio::join!(cluster.remove(&volume), restarted);
    removed.unwrap();
    assert!(machine.host.group("vg0").unwrap().lvs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_plugin_that_is_stopped_during_a_long_wipe_leaves_it_to_the_next() {
    let (world, cluster, machine) = slowly_wiped(NodeSettings::new("alpha").wipe_patience).await;
    let volume = id("alpha", "pvc-1");
    let restarted = async {
        world.phase(Phase::Running).await;
        let begun = Instant::now();
        let host = machine.stop().await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(world.request().status.unwrap().phase, Phase::Running);
        assert_eq!(host.group("vg0").unwrap().lvs.len(), 1, "the wipe has not ended");
        world.restart("alpha", host).await
    };
    let (removed, machine) = tokio::join!(cluster.remove(&volume), restarted);
    removed.unwrap();
    assert!(machine.host.group("vg0").unwrap().lvs.is_empty());
    assert_eq!(world.request().status.unwrap().phase, Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_long_growth_is_told_as_one() {
    let (world, cluster, machine) = slowly_wiped(NodeSettings::new("alpha").wipe_patience).await;
    let block = NewVolume { mode: Mode::Block, ..want("pvc-2", 8, &[]) };
    let made = cluster.ensure(&block).await.unwrap();
    world.cleaned().await;
    machine.node.stage(&stage_raw("pvc-2")).await.unwrap();
    let told = async {
        world.phase(Phase::Resizing).await;
        let request = world.request();
        assert!(request.metadata.name.unwrap().starts_with("expand-"));
    };
    let (grown, ()) = tokio::join!(cluster.grow(&made.id, growth(68)), told);
    assert_eq!(grown.unwrap().size, Bytes::mib(68));
    assert_eq!(world.request().status.unwrap().phase, Phase::Resized);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_tells_the_key_of_another_is_not_asked_for_its_volumes() {
    let (world, cluster, [_alpha, beta]) = World::with_two_nodes().await;
    let made = cluster.ensure(&want("pvc-1", 8, &["beta"])).await.unwrap();
    // The token of alpha is stolen, and the record of beta is not there.
    drop(beta);
    let told: NodeStorage = world.api.get("beta").unwrap();
    world.api.delete::<NodeStorage>("beta");
    let mut forged: NodeStorage = world.api.get("alpha").unwrap();
    forged.spec.node_hash = told.spec.node_hash;
    forged.status = told.status;
    world.api.put(&forged);
    let nodes = cluster.nodes();
    nodes
        .until(|| matches!(&nodes.all()[..], [one] if one.spec == forged.spec).then_some(()))
        .await;
    let requests = world.api.list::<VolumeRequest>().len();
    let said = refused(cluster.remove(&made.id).await, Reason::Unavailable);
    assert!(said.contains("no NodeStorage has node hash"), "{said}");
    refused(cluster.find(&made.id).await, Reason::Unavailable);
    let listed = cluster.list(&Page::default()).await.unwrap();
    assert!(listed.volumes.is_empty(), "{listed:?}");
    assert_eq!(world.api.list::<VolumeRequest>().len(), requests, "nobody is asked");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_smaller_than_was_asked_for_is_not_believed() {
    let (world, cluster, _machine) = World::with_a_node().await;
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    let mut forged: NodeStorage = world.api.get("alpha").unwrap();
    let status = forged.status.as_mut().unwrap();
    status.volumes[0].size = Quantity(Bytes::mib(4));
    world.api.put(&forged);
    let nodes = cluster.nodes();
    let is_forged = |node: &Arc<NodeStorage>| node.status == forged.status;
    nodes.until(|| nodes.all().iter().any(is_forged).then_some(())).await;
    let said = refused(cluster.ensure(&want("pvc-1", 8, &[])).await, Reason::Failed);
    assert!(said.contains("with 4194304 bytes, but at least 8388608 bytes"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_piece_of_work_is_its_failure_alone() {
    let (_world, cluster, machine) = World::with_a_node().await;
    for name in ["other-0", "other-1"] {
        cluster.ensure(&want(name, 8, &[])).await.unwrap();
    }
    machine.host.panic_at("lvcreate");
    for name in ["other-0", "other-1"] {
        let said = refused(cluster.ensure(&want("pvc-1", 8, &[])).await, Reason::Failed);
        assert!(said.contains("internal error"), "{said}");
        cluster.remove(&id("alpha", name)).await.unwrap();
    }
    machine.host.mend();
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_pools_are_set_up_stops_nothing_else_and_passes() {
    let (world, cluster, machine) = World::with_a_node().await;
    let disk = machine.host.add_disk(Bytes::gib(1));
    machine.host.add_group("vg1", &[disk]);
    machine.host.panic_at("list disks");
    let groups = vec!["vg1".to_owned()];
    world.api.put(&StoragePool::new(
        "more",
        StoragePoolSpec { volume_groups: groups, ..StoragePoolSpec::default() },
    ));
    tokio::time::sleep(Duration::from_secs(300)).await;
    cluster.ensure(&want("pvc-1", 8, &[])).await.unwrap();
    machine.host.mend();
    let ready =
        |api: &FakeApi| api.get::<StoragePool>("more")?.status.map(|told| told.ready_node_count);
    world.api.until("the pool is on the node", |api| ready(api) == Some(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_node_tells_what_it_has_stops_nothing_else_and_passes() {
    let world = World::new();
    world.lacks.0.lock().unwrap().push("a program".to_owned());
    let machine = world.node("alpha").await;
    world.told(1).await;
    let lacks = world.lacks.0.clone();
    std::thread::spawn(move || {
        let _held = lacks.lock();
        panic!("so that who looks at what is lacking panics");
    })
    .join()
    .unwrap_err();
    tokio::time::sleep(Duration::from_secs(300)).await;
    world.lacks.0.clear_poison();
    world.lacks.0.lock().unwrap().clear();
    let lacks_nothing = |api: &FakeApi| {
        let told = api.get::<NodeStorage>("alpha")?.status?.conditions;
        Some(told.iter().all(|condition| !condition.message.contains("a program")))
    };
    world.api.until("it lacks nothing", |api| lacks_nothing(api) == Some(true)).await;
    drop(machine);
}
