//! Nodes with more volumes than a record lists.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use pliant::api::{NodeStorage, Operation, Phase, VolumeRequest};
use pliant::bytes::Bytes;
use pliant::testing::FakeApi;
use pliant::volume::{NewSnapshot, NodeKey, Page, Reason, SnapshotPage, Snapshots, Volumes};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::{Controller, World, id, refused, want};

/// More volumes than a record lists.
const MANY: usize = 4200;

/// Who plays the node plugin of a node: it makes what is asked for, and tells it as a real one does.
struct Played {
    api: FakeApi,
    node: &'static str,
    /// By id.
    volumes: BTreeMap<String, Value>,
    free: &'static str,
    /// How many volumes it says that it has beyond those that it has.
    extra: usize,
    /// Whether it is of a version that does not name what its record leaves out.
    is_old: bool,
}

fn volume(node: &str, name: &str) -> (String, Value) {
    let id = id(node, name).to_string();
    let told = json!({"volumeHandle": id, "name": name, "pool": "fast", "size": "64Mi", "requestedSize": "64Mi",
                      "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready"});
    (id, told)
}

impl Played {
    fn new(world: &World, node: &'static str, volumes: usize) -> Played {
        let volumes = (0..volumes).map(|at| volume(node, &format!("pvc-{at}"))).collect();
        world.api.put_json::<Node>(json!({"metadata": {"name": node}}));
        let played =
            Played { api: world.api.clone(), node, volumes, free: "1Gi", extra: 0, is_old: false };
        played.publish();
        played
    }

    fn publish(&self) {
        let volumes: Vec<&Value> = self.volumes.values().collect();
        let pool = json!({"name": "fast", "configured": true, "default": true, "capacity": "1Ti", "extentSize": "4Mi",
                          "maximumVolumeSize": [{"layout": "linear", "size": self.free}], "available": self.free,
                          "volumeCount": volumes.len(), "health": "Healthy"});
        let mut record: NodeStorage = serde_json::from_value(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": self.node},
            "spec": {"nodeHash": NodeKey::of(self.node).as_str()},
            "status": {"volumeCount": volumes.len() + self.extra, "volumes": volumes, "pools": [pool]},
        }))
        .unwrap();
        record.status = record.status.map(|status| {
            let (mut status, gap) = status.bounded(None);
            if let Some(why) = &gap {
                status.set_inventory_gap(why);
            }
            status
        });
        let mut record = serde_json::to_value(&record).unwrap();
        if self.is_old {
            record["status"].as_object_mut().unwrap().remove("unlistedVolumes");
        }
        self.api.put_json::<NodeStorage>(record);
    }

    /// Answer what is asked, for ever.
    async fn run(mut self) {
        loop {
            let changed = self.api.changed();
            for mut request in self.api.list::<VolumeRequest>() {
                let is_asked = request.spec.node_name == self.node && !request.has_ended();
                if !is_asked {
                    continue;
                }
                let mut status = json!({"observedGeneration": 1, "phase": Phase::Succeeded});
                match &request.spec.operation {
                    Operation::Create(create) => {
                        let (id, told) = volume(self.node, &create.name);
                        self.volumes.insert(id, told);
                        self.publish();
                    }
                    Operation::Inspect(_) => {
                        status["inspection"] = match self.volumes.get(&request.spec.volume_handle) {
                            Some(volume) => {
                                json!({"volume": volume, "mounted": false, "openCount": 0})
                            }
                            None => json!({}),
                        };
                    }
                    Operation::Delete(_) => {
                        self.volumes.remove(&request.spec.volume_handle);
                        self.publish();
                    }
                    work => panic!("{work:?} is not asked for here"),
                }
                request.metadata.generation = Some(1);
                request.status = Some(serde_json::from_value(status).unwrap());
                self.api.put(&request);
            }
            changed.await;
        }
    }
}

/// A name whose volume comes behind all others in the order of the ids, so that a record at its bound does not list it.
fn last_name(node: &str) -> String {
    let key = |name: &str| id(node, name).key().as_str().to_owned();
    let last = (0..MANY).map(|at| key(&format!("pvc-{at}"))).max().unwrap();
    let mut names = (0..1_000_000).map(|at| format!("new-{at}"));
    names.find(|name| key(name) > last).unwrap()
}

/// Wait until the requests that have ended are removed; where no record tells of the volume, but that which made it.
async fn told(world: &World, is_old: bool, name: &str) {
    let witness = format!("create-{}", id("alpha", name).key().as_str());
    let expected = if is_old { vec![witness] } else { Vec::new() };
    let names = |api: &FakeApi| -> Vec<String> {
        api.list::<VolumeRequest>().into_iter().filter_map(|one| one.metadata.name).collect()
    };
    world.api.until("the requests are removed", |api| names(api) == expected).await;
}

fn is_listed(api: &FakeApi, name: &str) -> bool {
    let record: NodeStorage = api.get("alpha").unwrap();
    record.status.unwrap().volumes.iter().any(|one| one.name == name)
}

fn requests_on(api: &FakeApi, node: &str) -> Vec<String> {
    let all = api.list::<VolumeRequest>().into_iter();
    let of_node = all.filter(|request| request.spec.node_name == node);
    of_node.filter_map(|request| request.metadata.name).collect()
}

/// Alpha with more volumes than its record lists, and beta, which has none.
async fn two_nodes(is_old: bool) -> (World, Controller, JoinSet<()>) {
    let world = World::new();
    let mut node_plugins = JoinSet::new();
    let (mut alpha, beta) = (Played::new(&world, "alpha", MANY), Played::new(&world, "beta", 0));
    alpha.is_old = is_old;
    alpha.publish();
    let controller = world.controller().await;
    controller.knows_pools_of(2).await;
    node_plugins.spawn(alpha.run());
    node_plugins.spawn(beta.run());
    (world, controller, node_plugins)
}

/// Make the first volume on alpha, which has more room for a moment.
async fn made_on_alpha(world: &World, controller: &Controller, name: &str) {
    let made = controller.ensure(&want(name, 64, &["alpha"])).await.unwrap();
    assert_eq!((made.id, made.node.as_str()), (id("alpha", name), "alpha"));
    assert_eq!(made.size, Bytes::mib(64));
    assert!(!is_listed(&world.api, name), "it is to be left out");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_a_record_leaves_out_is_made_once_and_found_again() {
    for is_old in [false, true] {
        let (world, controller, _node_plugins) = two_nodes(is_old).await;
        let name = last_name("alpha");
        made_on_alpha(&world, &controller, &name).await;
        told(&world, is_old, &name).await;
        for nodes in [&[][..], &["alpha"], &["beta", "alpha"]] {
            let again = controller.ensure(&want(&name, 64, nodes)).await.unwrap();
            assert_eq!(again.id, id("alpha", &name), "{nodes:?}");
            told(&world, is_old, &name).await;
        }
        let found = controller.find(&id("alpha", &name)).await.unwrap().expect("it is there");
        assert_eq!(found.volume.name, name);
        assert!(requests_on(&world.api, "beta").is_empty());
    }
}

/// The scheduler has chosen another node since: a second volume of the name would never be found again.
#[tokio::test(start_paused = true)]
async fn no_other_node_is_chosen_for_a_volume_that_a_record_leaves_out() {
    for is_old in [false, true] {
        let (world, controller, _node_plugins) = two_nodes(is_old).await;
        let name = last_name("alpha");
        made_on_alpha(&world, &controller, &name).await;
        told(&world, is_old, &name).await;
        drop(controller);
        let controller = world.controller().await;
        let words =
            refused(controller.ensure(&want(&name, 64, &["beta"])).await, Reason::AlreadyExists);
        assert!(words.contains("it is on node alpha"), "{words}");
        let listed: NodeStorage = world.api.get("beta").unwrap();
        assert_eq!(listed.status.unwrap().volume_count, 0);
    }
}

/// Those that it leaves out are healthy: what ails is listed first.
#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_volumes_of_a_node_is_refused_by_its_name() {
    let (world, controller, _node_plugins) = two_nodes(false).await;
    let first_page = Page { most: Some(1), ..Page::default() };
    for page in [Page::default(), first_page] {
        let words = refused(controller.list(&page).await.map(drop), Reason::Unavailable);
        assert!(words.contains("node alpha has 4200 volumes, but lists only"), "{words}");
        assert!(!words.contains("beta"), "{words}");
    }
    let ailing = Page { only_ailing: true, ..Page::default() };
    assert_eq!(controller.list(&ailing).await.unwrap().volumes, []);
    let mut record: NodeStorage = world.api.get("alpha").unwrap();
    record.status.as_mut().unwrap().volumes.clear();
    world.api.put(&record);
    let is_cut = || controller.nodes().all()[0].status.as_ref()?.volumes.is_empty().then_some(());
    controller.nodes().until(is_cut).await;
    let words = refused(controller.list(&ailing).await.map(drop), Reason::Unavailable);
    assert!(words.contains("node alpha has 4200 volumes, but lists only"), "{words}");
}

/// Whoever has the token of alpha's node plugin says that it has more volumes than its record lists, and answers nothing.
#[tokio::test(start_paused = true)]
async fn a_false_count_of_volumes_holds_up_no_volume_of_another_node() {
    let world = World::new();
    let mut alpha = Played::new(&world, "alpha", 0);
    (alpha.free, alpha.extra) = ("0", 1_000_000);
    alpha.publish();
    let beta = Played::new(&world, "beta", 0);
    let controller = world.controller().await;
    controller.knows_pools_of(2).await;
    let mut node_plugins = JoinSet::new();
    node_plugins.spawn(beta.run());
    for (at, nodes) in
        [&[][..], &["beta"], &["beta", "alpha"], &["alpha", "beta"]].iter().enumerate()
    {
        let other = want(&format!("pvc-{at}"), 64, nodes);
        let made = tokio::time::timeout(Duration::from_secs(1), controller.ensure(&other)).await;
        let made = made.unwrap_or_else(|_| panic!("{nodes:?} waits for alpha"));
        assert_eq!(made.unwrap().node, "beta", "{nodes:?}");
    }
    assert!(requests_on(&world.api, "alpha").is_empty());
    world.cleaned().await;
}

/// By it alone is known where the volume is. Once that is gone, or the record tells all, it goes as any other.
#[tokio::test(start_paused = true)]
async fn the_request_that_made_a_volume_stays_while_the_record_of_its_node_may_hide_it() {
    for is_removed in [true, false] {
        let (world, controller, _node_plugins) = two_nodes(true).await;
        let name = last_name("alpha");
        made_on_alpha(&world, &controller, &name).await;
        told(&world, true, &name).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        told(&world, true, &name).await;
        if is_removed {
            controller.remove(&id("alpha", &name)).await.unwrap();
        } else {
            let _ = Played::new(&world, "alpha", 0);
        }
        world.cleaned().await;
    }
}

/// Its node plugin cannot answer, and may have made it: no other node does, and the answer names this one.
#[tokio::test(start_paused = true)]
async fn a_node_that_may_have_made_a_volume_and_does_not_answer_is_named() {
    let (world, controller, node_plugins) = two_nodes(true).await;
    let name = last_name("alpha");
    made_on_alpha(&world, &controller, &name).await;
    told(&world, true, &name).await;
    drop(node_plugins);
    let again = controller.ensure(&want(&name, 64, &["beta", "alpha"])).await;
    let words = refused(again, Reason::Unavailable);
    assert!(
        words.contains("the node plugin of node alpha has not started the operation"),
        "{words}"
    );
    assert!(requests_on(&world.api, "beta").is_empty());
}

/// What it leaves out it names, so a node that is away holds up no new volume of another one.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_away_with_more_volumes_than_it_lists_holds_up_no_other() {
    let world = World::new();
    let (_away, beta) = (Played::new(&world, "alpha", MANY), Played::new(&world, "beta", 0));
    let controller = world.controller().await;
    controller.knows_pools_of(2).await;
    let mut node_plugins = JoinSet::new();
    node_plugins.spawn(beta.run());
    let other = want("pvc-other", 64, &["beta"]);
    let made = tokio::time::timeout(Duration::from_secs(5), controller.ensure(&other)).await;
    let made = made.expect("it waits for alpha");
    assert_eq!(made.unwrap().node, "beta");
}

/// Of the longest names, and in a pool of the longest name.
fn snapshot(at: usize) -> Value {
    let name = format!("{at:0>128}");
    let source = id("alpha", "pvc-0");
    let handle = NewSnapshot { name: name.clone(), source }.id().to_string();
    json!({"snapshotHandle": handle, "name": name, "pool": "p".repeat(63), "size": "1048576Mi",
           "restoreSize": "1099511627775", "volumeMode": "Filesystem", "fsType": "btrfs",
           "creationTime": "2026-11-30T12:34:56.789012Z", "readyToUse": false})
}

#[tokio::test(start_paused = true)]
async fn a_record_lists_all_snapshots_that_a_node_may_have_and_no_more_are_taken() {
    let world = World::new();
    Played::new(&world, "alpha", 1000);
    let mut record: NodeStorage = world.api.get("alpha").unwrap();
    let mut status = record.status.take().unwrap();
    let most = pliant::api::MOST_SNAPSHOTS;
    status.snapshots = (0..most).map(|at| serde_json::from_value(snapshot(at)).unwrap()).collect();
    status.snapshot_count = i32::try_from(most).unwrap();
    record.status = Some(status.bounded(None).0);
    world.api.put(&record);
    let controller = world.controller().await;
    controller.knows_pools_of(1).await;
    let page = SnapshotPage::default();
    assert_eq!(controller.list_snapshots(&page).await.unwrap().snapshots.len(), most);
    let one_more = NewSnapshot { name: "one more".to_owned(), source: id("alpha", "pvc-0") };
    let words = refused(controller.ensure_snapshot(&one_more).await, Reason::PreconditionFailed);
    assert!(words.contains("node alpha has 1000 snapshots"), "{words}");
    assert!(requests_on(&world.api, "alpha").is_empty());
}
