//! A volume's life, asked of the controller and lived on a node, and what is told of it.

use std::path::PathBuf;
use std::time::Duration;

use pliant::api::{
    Create, FsType, Operation, Quantity, StoragePool, VolumeMode, VolumeRequest, VolumeRequestSpec,
};
use pliant::bytes::Bytes;
use pliant::volume::{
    CapacityQuery, Class, Mode, NewVolume, NodeVolumes, Page, Reason, RequestedSize, State,
    VolumeError, Volumes,
};
use tokio::time::Instant;

use crate::world::{World, device, growth, id, refused, stage_raw, want};

#[tokio::test(start_paused = true)]
async fn a_volume_lives_on_the_node_that_it_was_asked_for_and_leaves_nothing_behind() {
    let (world, cluster, [alpha, _beta]) = World::with_two_nodes().await;
    let made = cluster.ensure(&want("pvc-1", 100, &["beta"])).await.unwrap();
    assert_eq!((made.node.as_str(), made.size), ("beta", Bytes::mib(100)));
    assert_eq!(made.id, id("beta", "pvc-1"));
    let grown = cluster.grow(&made.id, growth(200)).await.unwrap();
    assert_eq!((grown.size, grown.node_expansion_required), (Bytes::mib(200), false));
    // What the node has is told beside the answer.
    let told = || world.storage("beta").volumes.first().map(|volume| volume.size.0);
    world.api.until("the node tells of it", |_| told() == Some(Bytes::mib(200))).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // The watch brings it.
    let found = cluster.find(&made.id).await.unwrap().unwrap();
    assert_eq!((found.volume.size, found.state), (Bytes::mib(200), State::Ready));
    assert_eq!(cluster.list(&Page::default()).await.unwrap().volumes, [found]);
    assert!(alpha.host.group("vg0").unwrap().lvs.is_empty());

    cluster.remove(&made.id).await.unwrap();
    assert_eq!(cluster.find(&made.id).await.unwrap(), None);
    cluster.remove(&made.id).await.unwrap(); // Gone already is success.
    assert!(!world.api.list::<VolumeRequest>().is_empty(), "they can be read for a while");
    world.cleaned().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_may_lie_anywhere_goes_where_most_room_is() {
    let (_world, cluster, _machines) = World::with_two_nodes().await;
    let first = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    let second = cluster.ensure(&want("pvc-2", 100, &[])).await.unwrap();
    assert_ne!(first.node, second.node);
    let listed = cluster.list(&Page::default()).await.unwrap().volumes;
    let mut expected = vec![first, second];
    expected.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(listed.into_iter().map(|one| one.volume).collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn only_a_node_that_has_told_can_say_that_a_volume_is_not_there() {
    let (_world, cluster, _machine) = World::with_a_node().await;
    assert_eq!(cluster.find(&id("alpha", "never made")).await.unwrap(), None);
    let elsewhere = id("gamma", "pvc-1");
    let said = refused(cluster.find(&elsewhere).await, Reason::Unavailable);
    assert!(said.contains("kubectl get nodestorages"), "{said}");
    refused(cluster.remove(&elsewhere).await, Reason::Unavailable);
    refused(cluster.grow(&elsewhere, growth(9)).await, Reason::Unavailable);
    let said = refused(cluster.ensure(&want("x", 9, &["gamma"])).await, Reason::Unavailable);
    assert!(said.contains("no node plugin has reported node gamma"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn what_could_still_be_made_is_answered_from_what_the_nodes_told() {
    let (_world, cluster, [_alpha, _beta]) = World::with_two_nodes().await;
    let asked = |node: Option<&str>, mode| CapacityQuery {
        class: Class::default(),
        mode,
        node: node.map(str::to_owned),
    };
    let block = Some(Mode::Block);
    let empty = cluster.capacity(&asked(Some("alpha"), block)).await.unwrap();
    assert_eq!((empty.free, empty.smallest), (empty.largest, Bytes::mib(4)));
    cluster.ensure(&want("pvc-1", 100, &["alpha"])).await.unwrap();
    let one = cluster.capacity(&asked(Some("alpha"), block)).await.unwrap();
    assert_eq!(one.free + Bytes::mib(100), empty.free);
    let both = cluster.capacity(&asked(None, block)).await.unwrap();
    assert_eq!((both.free, both.largest), (one.free + empty.free, empty.largest));
    let none = cluster.capacity(&asked(Some("gamma"), block)).await.unwrap();
    assert_eq!((none.free, none.largest), (Bytes::ZERO, Bytes::ZERO));
}

#[tokio::test(start_paused = true)]
async fn no_room_is_told_with_its_numbers_after_the_room_that_there_is() {
    let (world, cluster, machine) = World::with_a_node().await;
    let said =
        refused(cluster.ensure(&want("pvc-1", 2000, &[])).await, Reason::InsufficientCapacity);
    for number in ["1.95 GiB", "880 MiB is free", "880Mi or less"] {
        assert!(said.contains(number), "{number} is not in: {said}");
    }
    // The room goes, and nobody tells of it.
    machine.node.ensure(&want("pvc-2", 800, &[])).await.unwrap();
    world.api.forget_writes();
    refused(cluster.ensure(&want("pvc-3", 800, &[])).await, Reason::InsufficientCapacity);
    // Who reads that the pod must go elsewhere reads the capacity next.
    let writes = world.api.writes();
    let told = |what: &str| writes.iter().position(|line| line.starts_with(what)).unwrap();
    let (capacity, answer) =
        (told("PATCH nodestorages/alpha/status"), told("PATCH volumerequests/create-"));
    assert!(capacity < answer, "{writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_growth_without_room_says_which_one_would_succeed() {
    let (_world, cluster, _machine) = World::with_a_node().await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    cluster.ensure(&want("pvc-2", 100, &[])).await.unwrap();
    let said = refused(cluster.grow(&made.id, growth(2000)).await, Reason::ExpansionOutOfRange);
    assert!(said.contains("request 780Mi or less"), "{said}");
    let grown = cluster.grow(&made.id, growth(780)).await.unwrap();
    assert_eq!(grown.size.get(), 817_889_280);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_refuses_keeps_its_reason_and_its_sentence() {
    let (_world, cluster, machine) = World::with_a_node().await;
    let made = cluster.ensure(&NewVolume { mode: Mode::Block, ..want("pvc-1", 100, &[]) }).await;
    let made = made.unwrap();
    machine.node.stage(&stage_raw("pvc-1")).await.unwrap();
    machine.host.open(&device(&machine, "pvc-1"));
    let said = refused(cluster.remove(&made.id).await, Reason::InUse);
    assert!(said.contains("a process has /dev/dm-"), "{said}");
    let larger = NewVolume { mode: Mode::Block, ..want("pvc-1", 200, &[]) };
    let said = refused(cluster.ensure(&larger).await, Reason::AlreadyExists);
    assert!(said.contains("at least 209715200"), "{said}");
    let at_most = Some(Bytes::mib(101));
    let odd = RequestedSize { at_least: Bytes::new((100 << 20) + 1), at_most };
    let growth = pliant::volume::Growth { size: odd, block: None };
    let said = refused(cluster.grow(&made.id, growth).await, Reason::SizeOutOfRange);
    assert!(said.contains("in whole extents"), "{said}");
    refused(cluster.grow(&id("alpha", "no such"), growth).await, Reason::NotFound);
    machine.host.close(&device(&machine, "pvc-1"));
    cluster.remove(&made.id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_wants_a_volume_unused_hears_at_once_when_the_kubelet_lets_go() {
    let (_world, cluster, machine) = World::with_a_node().await;
    let made = cluster.ensure(&NewVolume { mode: Mode::Block, ..want("pvc-1", 100, &[]) }).await;
    machine.node.stage(&stage_raw("pvc-1")).await.unwrap();
    let (id, device) = (made.unwrap().id, device(&machine, "pvc-1"));
    let seconds = |begun: Instant| begun.elapsed().as_secs();
    // The kubelet first takes it from the pod, and then from the node.
    let kubelet = async |last: bool| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (host, device) = (machine.host.clone(), device.clone());
        let work = async move {
            if last {
                host.close(&device);
            }
            Ok::<_, VolumeError>(())
        };
        machine.busy.run(id.key().as_str(), work).await.unwrap();
    };
    let lets_go = async || {
        machine.host.open(&device);
        kubelet(false).await;
        kubelet(true).await;
    };
    let begun = Instant::now();
    let (seen, ()) = tokio::join!(cluster.inspect_unused(&id), lets_go());
    assert_eq!((seen.unwrap().unwrap().open_count, seconds(begun)), (0, 6));

    machine.host.open(&device);
    let begun = Instant::now();
    let seen = cluster.inspect_unused(&id).await.unwrap().unwrap();
    assert_eq!((seen.open_count, seconds(begun)), (1, 10), "nobody lets go of it");
    let begun = Instant::now();
    let seen = cluster.inspect(&id).await.unwrap().unwrap();
    assert_eq!((seen.open_count, seconds(begun)), (1, 0), "who only looks does not wait");
    machine.host.close(&device);

    let begun = Instant::now();
    let (removed, ()) = tokio::join!(cluster.remove(&id), lets_go());
    removed.unwrap();
    assert_eq!(seconds(begun), 6);
}

#[tokio::test(start_paused = true)]
async fn a_parameter_of_another_version_is_refused_by_name() {
    let (world, _cluster, _machine) = World::with_a_node().await;
    let create = Create {
        name: "pvc-1".to_owned(),
        min_size: Quantity(Bytes::mib(100)),
        max_size: None,
        volume_mode: VolumeMode::Filesystem,
        fs_type: Some(FsType::Ext4),
        parameters: [("frobnicate".to_owned(), "yes".to_owned())].into(),
    };
    let (node, volume) = ("alpha".to_owned(), id("alpha", "pvc-1").to_string());
    let spec = VolumeRequestSpec {
        node_name: node,
        volume_handle: volume,
        operation: Operation::Create(create),
    };
    world.api.put(&VolumeRequest::new("create-newer", spec));
    world.phase(pliant::api::Phase::Failed).await;
    let failure = world.request().status.unwrap().error.unwrap();
    assert_eq!(failure.reason, "InvalidArgument");
    assert!(failure.message.contains("frobnicate"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_removed_while_another_group_of_its_pool_is_away() {
    let (world, cluster, machine) = World::with_a_node().await;
    let other: PathBuf = machine.host.add_disk(Bytes::mib(100));
    machine.host.add_group("vg1", std::slice::from_ref(&other));
    let mut pool: StoragePool = world.api.get("fast").unwrap();
    pool.spec.volume_groups.push("vg1".to_owned());
    world.api.put(&pool);
    let made = cluster.ensure(&want("pvc-1", 200, &[])).await.unwrap();
    let host = machine.host.after_crash();
    drop(machine);
    host.remove_disk(&other);
    let machine = world.restart("alpha", host).await;
    world.api.until("it tells", |_| world.storage("alpha").inventory_gap().is_some()).await;
    cluster.remove(&made.id).await.unwrap();
    assert!(machine.host.group("vg0").unwrap().lvs.is_empty());
    assert!(world.storage("alpha").inventory_gap().is_some(), "what it could not read is told");
}
