//! A volume that was never shown: made by one command, wiped behind the answer and before its first use.

use std::sync::Arc;
use std::time::Duration;

use pliant::bytes::Bytes;
use pliant::node::lv_tags::lv_name;
use pliant::node::{GroupSource, Node, PoolPlan};
use pliant::testing::FakeHost;
use pliant::volume::{FsKind, Mode, NodeVolumes, Stage, State, VolumeError, Volumes};

use crate::cuts::block_on;
use crate::machine::{
    LARGE, Op, SMALL, Setup, VOLUME, growth, id_of, settings, staging, until_wiped, want, wrongs,
};

const RAW: Mode = Mode::Block;
const GIB: u64 = 1 << 30;

/// A driver that never waits for a wipe, on a disk of so many GiB.
async fn impatient(gib: u64) -> (FakeHost, Setup, Arc<Node>) {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::gib(gib));
    host.add_group("vg0", &[disk]);
    let groups = vec![GroupSource::Existing("vg0".to_owned())];
    let plan = PoolPlan::new("fast".parse().expect("a name"), groups);
    let settings = pliant::node::NodeSettings { wipe_patience: Duration::ZERO, ..settings() };
    let setup = Setup { settings, plans: vec![plan] };
    let node = setup.start(&host).await;
    host.forget_effects();
    (host, setup, node)
}

fn commands(host: &FakeHost) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for effect in host.effects() {
        let verb = effect.split(' ').next().unwrap_or_default().to_owned();
        if verb.starts_with("lv") && commands.last() != Some(&verb) {
            commands.push(verb);
        }
    }
    commands
}

fn zeroed(host: &FakeHost) -> Vec<String> {
    let effects = host.effects().into_iter();
    effects
        .filter_map(|effect| effect.strip_prefix("BLKZEROOUT /dev/dm-0 ").map(str::to_owned))
        .collect()
}

/// Hold a wipe after its first piece.
async fn hold_a_wipe(host: &FakeHost, setup: &Setup, node: &Node, mib: u64) {
    let rehearsal = host.after_crash();
    let rehearsing = setup.start(&rehearsal).await;
    rehearsal.forget_effects();
    rehearsing.ensure(&want(VOLUME, RAW, mib)).await.expect("create");
    until_wiped(&rehearsing).await;
    let effects = rehearsal.effects();
    let first = effects.iter().position(|effect| effect.starts_with("BLKZEROOUT"));
    host.hold_after(1 + first.expect("it is wiped"));
    node.ensure(&want(VOLUME, RAW, mib)).await.expect("it is wiped behind the answer");
    host.held().await;
}

#[test]
fn a_file_system_volume_is_made_and_grown_by_one_command_each() {
    block_on(async {
        let (host, _, node) = impatient(4).await;
        let ext4 = Mode::Filesystem(FsKind::Ext4);
        node.ensure(&want(VOLUME, ext4, SMALL)).await.expect("create");
        until_wiped(&node).await;
        assert_eq!(commands(&host), ["lvcreate"]);
        assert_eq!(host.state().devices.len(), 0, "it is not made active");
        assert_eq!(host.effects().last().map(String::as_str), Some("fsync /dev/fake0"));
        host.forget_effects();
        node.grow(&id_of(VOLUME), growth(LARGE)).await.expect("grow");
        assert_eq!(commands(&host), ["lvextend"]);
        assert_eq!(host.effects().last().map(String::as_str), Some("fsync /dev/fake0"));
    });
}

#[test]
fn a_raw_volume_is_shown_when_its_wipe_has_ended_and_not_before() {
    block_on(async {
        let (host, setup, node) = impatient(4).await;
        hold_a_wipe(&host, &setup, &node, 3 << 10).await;
        let state = node.find(&id_of(VOLUME)).await.expect("find").expect("a volume").state;
        assert_eq!(state, State::Creating);
        match node.stage(&staging(RAW)).await {
            Err(VolumeError::InProgress { what, progress }) => {
                assert_eq!(
                    (what.as_str(), progress.split(',').next()),
                    ("wiping", Some("0 % (0 B of 3 GiB)"))
                );
            }
            other => panic!("{other:?}"),
        }
        let refused = Op::Publish(RAW).ask(&host, &node).await.expect_err("it is not wiped");
        assert!(refused.contains("stage it first"), "{refused}");
        host.let_go();
        until_wiped(&node).await;
        Op::Stage(RAW).ask(&host, &node).await.expect("it is wiped");
        Op::Publish(RAW).ask(&host, &node).await.expect("it is shown");
        assert_eq!(zeroed(&host).len(), 3, "once");
    });
}

#[test]
fn what_a_new_raw_volume_grows_by_is_wiped_too() {
    block_on(async {
        let (host, setup, node) = impatient(8).await;
        hold_a_wipe(&host, &setup, &node, 3 << 10).await;
        node.grow(&id_of(VOLUME), growth(4 << 10)).await.expect("it is not in use");
        host.let_go();
        until_wiped(&node).await;
        loop {
            match node.stage(&staging(RAW)).await {
                Err(VolumeError::InProgress { .. }) => tokio::task::yield_now().await,
                staged => break staged.expect("it is wiped"),
            }
        }
        let end = format!("{}..{}", 3 * GIB, 4 * GIB);
        assert!(zeroed(&host).contains(&end), "{:?}", zeroed(&host));
        assert_eq!(wrongs(&host, false).await, [""; 0]);
    });
}

#[test]
fn a_removal_waits_for_no_wipe_of_what_was_never_shown() {
    block_on(async {
        let (host, setup, node) = impatient(8).await;
        hold_a_wipe(&host, &setup, &node, 6 << 10).await;
        let said = Op::Delete.ask(&host, &node).await.expect_err("a piece is under way");
        assert!(said.starts_with("InProgress"), "{said}");
        host.let_go();
        while Op::Delete.ask(&host, &node).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(zeroed(&host).len(), 1, "no piece was begun after that");
        assert!(
            !host.group("vg0").expect("a group").lvs.contains_key(&lv_name(id_of(VOLUME).key()))
        );
    });
}

#[test]
fn a_first_wipe_goes_on_from_what_is_durably_wiped_and_the_last_one_begins_again() {
    block_on(async {
        let (host, setup, node) = impatient(20).await;
        let gib = 18;
        node.ensure(&want(VOLUME, RAW, gib << 10)).await.expect("create");
        let noted = |host: &FakeHost| {
            host.effects().iter().any(|effect| effect.contains("pliant.wiped-bytes="))
        };
        while !noted(&host) {
            tokio::task::yield_now().await;
        }
        let again = host.after_crash();
        let node = setup.start(&again).await;
        let first = format!("{}..{}", 16 * GIB, 17 * GIB);
        assert_eq!(zeroed(&again).first(), Some(&first));
        Op::Stage(RAW).ask(&again, &node).await.expect("it is wiped");
        let group = again.group("vg0").expect("a group");
        let tags = &group.lvs[&lv_name(id_of(VOLUME).key())].tags;
        assert!(!tags.iter().any(|tag| tag.starts_with("pliant.wiped-bytes")), "{tags:?}");
        again.forget_effects();
        while Op::Delete.ask(&again, &node).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(zeroed(&again).len() as u64, gib, "all of it");
    });
}

/// A node with many new raw volumes has just started; each command that makes one active takes a second.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_a_few_wipes_of_others_and_not_for_all() {
    let (host, setup, node) = impatient(64).await;
    let name = |number: usize| format!("raw-{number}");
    let many = 60;
    for number in 0..many {
        node.ensure(&want(&name(number), RAW, SMALL)).await.expect("create");
    }
    let host = host.after_power_cut();
    let active = || host.state().devices.len();
    host.slow_down("lvchange", Duration::from_secs(1));
    let (settings, plans) = (setup.settings.clone(), setup.plans.clone());
    let node = Node::start(Arc::new(host.clone()), settings, plans).await.expect("start");
    let before = active();
    node.ensure(&want("new", RAW, SMALL)).await.expect("create");
    assert!(active() <= before + 4, "{} are made active before it is there", active() - before);

    // The wipes begin in this order.
    let last = (0..many).map(|number| id_of(&name(number))).max_by_key(|id| lv_name(id.key()));
    let last = Stage { id: last.expect("a volume"), ..staging(RAW) };
    let before = active();
    while let Err(error) = node.stage(&last).await {
        assert!(matches!(error, VolumeError::InProgress { .. }), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A few for each of its own commands.
    assert!(active() <= before + 16, "{} are made active before it is shown", active() - before);
}
