//! Who asks for what is under way joins it, and what has ended is done anew.

use std::time::Duration;

use pliant::api::{
    Expand, NodeStorage, Operation, Phase, Quantity, VolumeRequest, VolumeRequestSpec,
};
use pliant::bytes::Bytes;
use pliant::testing::{FakeApi, Lost};
use pliant::volume::{Reason, Volumes};

use crate::world::{Machine, World, growth, id, refused, want};

/// Hold the machine at its next effect, so that work on it lasts.
fn hold(machine: &Machine) {
    machine.host.forget_effects();
    machine.host.hold_after(1);
}

fn posts(api: &FakeApi, of: &str) -> usize {
    let post = format!("POST volumerequests by {of}");
    api.writes().iter().filter(|line| **line == post).count()
}

#[tokio::test(start_paused = true)]
async fn two_equal_wishes_at_once_are_one_request() {
    let (world, cluster, machine) = World::with_a_node().await;
    hold(&machine);
    let want = want("pvc-1", 100, &[]);
    let asked = async {
        machine.host.held().await;
        assert_eq!(world.api.list::<VolumeRequest>().len(), 1);
        machine.host.let_go();
    };
    let (one, other, ()) = tokio::join!(cluster.ensure(&want), cluster.ensure(&want), asked);
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_controllers_are_told_the_same() {
    let (world, cluster, machine) = World::with_a_node().await;
    let other = world.controller().await;
    let want = want("pvc-1", 100, &[]);
    for _ in 0..2 {
        let (one, two) = tokio::join!(cluster.ensure(&want), other.ensure(&want));
        let made = one.unwrap();
        assert_eq!(two.unwrap(), made);
        let (one, two) =
            tokio::join!(cluster.grow(&made.id, growth(200)), other.grow(&made.id, growth(300)));
        assert!(one.unwrap().size >= Bytes::mib(200));
        assert_eq!(two.unwrap().size, Bytes::mib(300));
        let (one, two) = tokio::join!(cluster.remove(&made.id), other.remove(&made.id));
        one.and(two).unwrap();
        assert!(machine.host.group("vg0").unwrap().lvs.is_empty());
    }
    world.cleaned().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_starts_anew_joins_the_work() {
    let (world, cluster, machine) = World::with_a_node().await;
    hold(&machine);
    let want = want("pvc-1", 100, &[]);
    let begun = tokio::time::timeout(Duration::from_secs(5), cluster.ensure(&want)).await;
    assert!(begun.is_err(), "it lasts");
    let uid = world.request().metadata.uid;
    drop(cluster);
    let cluster = world.controller().await;
    let joined = async {
        world.phase(Phase::Running).await;
        machine.host.let_go();
    };
    let (made, ()) = tokio::join!(cluster.ensure(&want), joined);
    assert_eq!(made.unwrap().id, id("alpha", "pvc-1"));
    assert_eq!(world.request().metadata.uid, uid, "it is the request of the first");
}

#[tokio::test(start_paused = true)]
async fn a_newer_growth_replaces_an_older_one_under_way() {
    let (world, cluster, machine) = World::with_a_node().await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    world.cleaned().await;
    hold(&machine);
    let newer = async {
        machine.host.held().await;
        let grown = cluster.grow(&made.id, growth(300));
        let renewed = async {
            let is_renewed = |api: &FakeApi| {
                let all: Vec<VolumeRequest> = api.list();
                all.iter().any(|one| one.metadata.generation == Some(2))
            };
            world.api.until("the wish is replaced", is_renewed).await;
            let Operation::Expand(grow) = world.request().spec.operation else {
                panic!("no growth")
            };
            assert_eq!(grow.min_size.0, Bytes::mib(300));
            machine.host.let_go();
        };
        tokio::join!(grown, renewed).0
    };
    let (older, newer) = tokio::join!(cluster.grow(&made.id, growth(200)), newer);
    assert_eq!(newer.unwrap().size, Bytes::mib(300));
    assert!(older.unwrap().size >= Bytes::mib(200));
    let ended = world.request();
    assert_eq!(ended.status.unwrap().observed_generation, 2);
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_is_done_anew() {
    let (world, cluster, machine) = World::with_a_node().await;
    let want = want("pvc-1", 800, &[]);
    let made = cluster.ensure(&want).await.unwrap();
    let first = world.request().metadata.uid;
    // It went in a way that no request knows of.
    machine.node.remove(&made.id).await.unwrap();
    assert_eq!(cluster.ensure(&want).await.unwrap(), made);
    assert_ne!(world.request().metadata.uid, first);
    assert_eq!(machine.host.group("vg0").unwrap().lvs.len(), 1);
    // Nor is a failure the answer for ever.
    let second = crate::world::want("pvc-2", 800, &[]);
    refused(cluster.ensure(&second).await, Reason::InsufficientCapacity);
    cluster.remove(&made.id).await.unwrap();
    cluster.ensure(&second).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_never_made_on_two_nodes() {
    let (world, cluster, [alpha, beta]) = World::with_two_nodes().await;
    let lvs = |machine: &Machine| machine.host.group("vg0").unwrap().lvs.len();
    hold(&alpha);
    let (on_alpha, on_beta) = (want("pvc-1", 100, &["alpha"]), want("pvc-1", 100, &["beta"]));
    let meanwhile = async {
        alpha.host.held().await;
        let said = refused(cluster.ensure(&on_beta).await, Reason::InProgress);
        assert!(said.contains("on node alpha, as requested before"), "{said}");
        alpha.host.let_go();
    };
    let (made, ()) = tokio::join!(cluster.ensure(&on_alpha), meanwhile);
    let made = made.unwrap();
    // Beta has more room now. Where any node will do, that is no reason to begin again there.
    assert_eq!(cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap(), made);
    let either = want("pvc-1", 100, &["beta", "alpha"]);
    assert_eq!(cluster.ensure(&either).await.unwrap(), made);
    let said = refused(cluster.ensure(&on_beta).await, Reason::AlreadyExists);
    assert!(said.contains("it is on node alpha"), "{said}");
    world.cleaned().await;
    refused(cluster.ensure(&on_beta).await, Reason::AlreadyExists);
    assert_eq!((lvs(&alpha), lvs(&beta)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_claims_the_volume_of_another_node_does_not_get_it() {
    let (world, cluster, _machines) = World::with_two_nodes().await;
    let on_beta = want("pvc-1", 100, &["beta"]);
    let made = cluster.ensure(&on_beta).await.unwrap();
    world.cleaned().await;
    let beta: NodeStorage = world.api.get("beta").unwrap();
    let mut liar: NodeStorage = world.api.get("alpha").unwrap();
    let mut lie = beta.status.unwrap().volumes[0].clone();
    lie.volume_handle = id("alpha", "pvc-1").to_string();
    liar.status.as_mut().unwrap().volumes.push(lie);
    world.api.put(&liar);
    let told = || (!cluster.nodes().all()[0].status.as_ref()?.volumes.is_empty()).then_some(());
    cluster.nodes().until(told).await;
    assert_eq!(cluster.ensure(&on_beta).await.unwrap(), made);
}

#[tokio::test(start_paused = true)]
async fn what_was_made_and_is_not_told_yet_is_not_made_elsewhere() {
    let (world, cluster, machines) = World::with_two_nodes().await;
    let made = cluster.ensure(&want("pvc-1", 100, &["alpha"])).await.unwrap();
    // The node's record as a controller has it whose watch is late.
    let mut old = world.api.get::<NodeStorage>("alpha").unwrap();
    let status = old.status.as_mut().unwrap();
    (status.volumes, status.volume_count) = (Vec::new(), 0);
    world.api.put(&old);
    let forgotten = || cluster.nodes().all()[0].status.as_ref()?.volumes.is_empty().then_some(());
    cluster.nodes().until(forgotten).await;
    let said = refused(cluster.ensure(&want("pvc-1", 100, &["beta"])).await, Reason::InProgress);
    assert!(said.contains("on node alpha"), "{said}");
    assert_eq!(made.node, "alpha");
    assert!(machines[1].host.group("vg0").unwrap().lvs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_the_same_volume_is_returned() {
    let (world, cluster, machines) = World::with_two_nodes().await;
    let want = want("pvc-1", 100, &[]);
    world.api.forget_writes();
    world.api.fail_at(1, Lost::Answer);
    let said = refused(cluster.ensure(&want).await, Reason::Unavailable);
    assert!(said.contains("through the API server"), "{said}");
    world.phase(Phase::Succeeded).await;
    let made = cluster.ensure(&want).await.unwrap();
    assert_eq!(cluster.ensure(&want).await.unwrap(), made);
    // What people see of it: `kubectl get volumerequests` has a column of sizes.
    let told = world.request().status.unwrap().size.expect("a volume has a size").0;
    assert_eq!(told, made.size);
    let lvs: usize = machines.iter().map(|m| m.host.group("vg0").unwrap().lvs.len()).sum();
    assert_eq!(lvs, 1);
    assert!(posts(&world.api, "pliant-controller") >= 2);
}

/// Only the name is the same: what was done for the one is no answer to the other.
#[tokio::test(start_paused = true)]
async fn what_a_request_that_is_gone_came_to_is_not_told_to_another_of_its_name() {
    let (world, cluster, machine) = World::with_a_node().await;
    let made = cluster.ensure(&want("pvc-1", 100, &[])).await.unwrap();
    world.cleaned().await;
    drop(cluster); // It would ask again by itself.
    let request = |mib| {
        let grow =
            Expand { min_size: Quantity(Bytes::mib(mib)), max_size: None, volume_mode: None };
        let (node, volume) = ("alpha".to_owned(), made.id.to_string());
        VolumeRequest::new(
            "grow",
            VolumeRequestSpec {
                node_name: node,
                volume_handle: volume,
                operation: Operation::Expand(grow),
            },
        )
    };
    hold(&machine);
    world.api.put(&request(200));
    machine.host.held().await;
    world.api.delete::<VolumeRequest>("grow");
    world.api.put(&request(300));
    machine.host.let_go();
    let has_ended = |api: &FakeApi| {
        let one: VolumeRequest = api.get("grow").expect("it is there");
        one.status.is_some_and(|status| status.phase.is_final())
    };
    world.api.until("the second has ended", has_ended).await;
    let status = world.request().status.expect("it has ended");
    assert_eq!(status.size.map(|size| size.0), Some(Bytes::mib(300)));
}
