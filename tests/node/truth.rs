//! What is told is so: of volumes that are gone, whole, held, wiped, or not to be seen.

use std::path::Path;
use std::time::Duration;

use pliant::host::Host;
use pliant::node::Node;
use pliant::node::lv_tags::{lv_name, more_name};
use pliant::testing::{Failing, FakeHost};
use pliant::volume::{FsKind, Mode, NodeVolumes, Page, VolumeError, Volumes};

use crate::cuts::block_on;
use crate::machine::{
    Disks, LARGE, Op, SMALL, Setup, VOLUME, after, growth, id_of, marks, readable, want,
};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);
const STAGING: &str = "/var/lib/kubelet/staging/volume";
const TARGET: &str = "/var/lib/kubelet/pods/volume";

/// Which effect of an operation on a copy of this machine is the first of this kind.
async fn place_of(op: Op, host: &FakeHost, kind: impl Fn(&str) -> bool) -> usize {
    let (_, setup) = Disks::Two.machine(false).await;
    let trial = host.after_crash();
    let node = setup.start(&trial).await;
    trial.forget_effects();
    op.ask(&trial, &node).await.expect("nothing goes wrong");
    let effects = trial.effects();
    effects.iter().position(|effect| kind(effect)).expect("it does that") + 1
}

/// What a driver that never waits for a wipe answers in the end.
async fn patiently(op: Op, host: &FakeHost, node: &Node) -> Result<String, String> {
    loop {
        match op.ask(host, node).await {
            Err(said) if said.starts_with("InProgress") => tokio::task::yield_now().await,
            answer => return answer,
        }
    }
}

/// A raw volume with marks on it, whose growth was answered with `Working`, and has ended since.
async fn grown_unasked() -> (FakeHost, std::sync::Arc<Node>) {
    let (host, setup) = Disks::Two.machine(false).await;
    let mut settings = setup.settings.clone();
    settings.wipe_patience = Duration::ZERO;
    let node = Setup { settings, ..setup }.start(&host).await;
    patiently(Op::Create(Mode::Block), &host, &node).await.expect("it is made");
    patiently(Op::Stage(Mode::Block), &host, &node).await.expect("it is wiped");
    Op::Write.ask(&host, &node).await.expect("it is written");
    let wipes = |effect: &str| effect.starts_with("BLKZEROOUT");
    let at = place_of(Op::Grow(LARGE), &host, wipes).await;
    host.forget_effects();
    host.hold_after(at);
    let said = Op::Grow(LARGE).ask(&host, &node).await.expect_err("the wipe goes on");
    assert!(said.starts_with("InProgress"), "{said}");
    host.held().await;
    host.let_go();
    let more = host.device_of("vg0", &more_name(id_of(VOLUME).key())).expect("it is wiped");
    let end = format!("fsync {}", more.display());
    while !host.effects().contains(&end) {
        tokio::task::yield_now().await;
    }
    (host, node)
}

#[test]
fn a_wipe_that_nobody_asked_after_stands_for_no_other() {
    block_on(async {
        let (host, node) = grown_unasked().await;
        let places = marks(&host);
        assert!(readable(&host, &places).await);
        patiently(Op::Delete, &host, &node).await.expect("it is removed");
        assert!(!readable(&host, &places).await, "its bytes are still there");
    });
}

#[test]
fn a_growth_that_is_given_up_keeps_no_room() {
    block_on(async {
        let (host, node) = grown_unasked().await;
        Op::Grow(SMALL).ask(&host, &node).await.expect("it has that size");
        let left = host.group("vg0").expect("a group").lvs;
        assert!(!left.contains_key(&more_name(id_of(VOLUME).key())));
    });
}

/// Hold a volume as a file system does that only another mount namespace shows: its device is open,
/// and no mount of it is seen.
fn hold_out_of_sight(host: &FakeHost) {
    host.open(&host.device_of("vg0", &lv_name(id_of(VOLUME).key())).expect("it is active"));
}

#[test]
fn what_is_held_out_of_sight_is_neither_grown_nor_rolled_back() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        host.unmount(Path::new(STAGING)).await.expect("unmount");
        hold_out_of_sight(&host);
        host.forget_effects();
        host.fail("e2fsck", Failing::Always); // As the real one refuses a device that is mounted.
        let grown = node.grow(&id_of(VOLUME), growth(LARGE)).await.expect("the volume grows");
        assert!(grown.node_expansion_required);
        let effects = host.effects();
        let touched = |effect: &String| effect.contains(".resize") || effect.starts_with("mount");
        assert!(!effects.iter().any(touched), "{effects:#?}");
    });
}

#[test]
fn a_cut_growth_of_what_is_held_out_of_sight_is_left_alone() {
    block_on(async {
        let unstaged = [Op::Create(EXT4), Op::Stage(EXT4), Op::Unstage];
        let (host, _, node) = after(&unstaged).await;
        host.fail("lvremove", Failing::Always);
        Op::Grow(LARGE).ask(&host, &node).await.expect("the volume grows, its snapshot stays");
        host.mend();
        host.fail("e2fsck", Failing::Always);
        hold_out_of_sight(&host);
        for op in [Op::Stage(EXT4), Op::Delete, Op::Grow(LARGE + 8)] {
            let said = op.ask(&host, &node).await.expect_err("somebody holds it");
            assert!(said.starts_with("InUse"), "{op:?}: {said}");
        }
    });
}

#[test]
fn a_check_that_could_not_be_made_is_no_damage() {
    block_on(async {
        let unstaged = [Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage];
        let (host, _, node) = after(&unstaged).await;
        host.fail("lvremove", Failing::Always);
        Op::Grow(LARGE).ask(&host, &node).await.expect("the volume grows, its snapshot stays");
        host.mend();
        host.uninstall("e2fsck");
        host.forget_effects();
        let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it cannot be checked");
        assert!(said.contains("e2fsck"), "{said}");
        let merged = |effect: &String| effect.contains("merge");
        assert!(!host.effects().iter().any(merged), "{:#?}", host.effects());
        host.mend();
        Op::Stage(EXT4).ask(&host, &node).await.expect("it is concluded and kept");
    });
}

#[test]
fn a_caller_that_leaves_stops_no_healing() {
    block_on(async {
        let suspended = |host: &FakeHost| host.state().devices.values().any(|d| d.suspended);
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        let at = place_of(Op::Grow(LARGE), &host, |effect| effect.ends_with("suspend")).await;
        host.forget_effects();
        host.kill_lvm_after(at);
        Op::Grow(LARGE).ask(&host, &node).await.expect_err("LVM died");
        assert!(suspended(&host));
        host.forget_effects();
        host.hold_after(1);
        let caller = tokio::spawn(async move { node.find(&id_of(VOLUME)).await });
        host.held().await;
        caller.abort();
        assert!(caller.await.expect_err("it has left").is_cancelled());
        host.let_go();
        for _others_go_on in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(!suspended(&host), "its workload waits for ever");
    });
}

#[test]
fn a_pool_that_could_not_be_set_up_is_not_listed_as_empty() {
    block_on(async {
        let (host, setup) = Disks::Blank.machine(false).await;
        host.fail_disk(Path::new("/dev/fake0"));
        let node = setup.start(&host).await;
        let listed = node.list(&Page::default()).await;
        assert!(matches!(listed, Err(VolumeError::Unavailable { .. })), "{listed:?}");
    });
}

#[test]
fn the_id_of_a_volume_that_is_gone_takes_no_other_away() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Publish(EXT4)]).await;
        let gone = node.unpublish(&id_of("gone"), Path::new(TARGET)).await;
        assert!(matches!(gone, Err(VolumeError::PreconditionFailed { .. })), "{gone:?}");
        assert!(format!("{:?}", host.state().mounts).contains(TARGET));
    });
}

#[test]
fn statistics_are_of_the_volume_and_of_nothing_mounted_over_it() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Publish(EXT4)]).await;
        host.bind(Path::new("/var"), Path::new(TARGET), &[]).await.expect("bind");
        let stats = node.stats(&id_of(VOLUME), Path::new(TARGET)).await;
        assert!(matches!(stats, Err(VolumeError::NotFound { .. })), "{stats:?}");
    });
}

#[test]
fn a_volume_that_may_not_be_here_is_not_answered_with_the_one_that_is() {
    block_on(async {
        let (_host, _, node) = after(&[Op::Create(EXT4)]).await;
        let mut want = want(VOLUME, EXT4, SMALL);
        want.nodes = ["beta".to_owned()].into();
        let made = node.ensure(&want).await;
        assert!(matches!(made, Err(VolumeError::AlreadyExists { .. })), "{made:?}");
    });
}

#[test]
fn a_disk_that_fails_under_a_wipe_is_unavailable() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        host.fail("BLKZEROOUT", Failing::Always);
        Op::Create(Mode::Block).ask(&host, &node).await.expect("it is wiped behind the answer");
        let said = Op::Stage(Mode::Block).ask(&host, &node).await.expect_err("EIO");
        assert!(said.starts_with("Unavailable"), "{said}");
        host.mend();
        Op::Stage(Mode::Block).ask(&host, &node).await.expect("it is wiped now");
    });
}
