//! Copies of a volume that are not to be used.

use std::path::{Path, PathBuf};

use pliant::node::lv_tags::lv_name;
use pliant::testing::FakeHost;
use pliant::volume::{
    Fence, FsKind, Mode, NodeVolumes, Publish, Reason, Standing, VolumeError, VolumeKey, Volumes,
};

use crate::cuts::block_on;
use crate::machine::{
    MODES, Op, STAGING, VOLUME, after, id_of, publish, readable, staging, wrongs,
};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

const fn fence(generation: i64, standing: Standing) -> Fence {
    Fence { generation, standing, copying: false }
}

const fn copying(generation: i64, standing: Standing) -> Fence {
    Fence { generation, standing, copying: true }
}

fn refused(answer: Result<(), VolumeError>) -> String {
    let error = answer.expect_err("it is fenced off");
    assert_eq!(error.reason(), Reason::PreconditionFailed, "{error}");
    error.to_string()
}

/// Whether what is mounted there can only be read.
fn read_only(host: &FakeHost, target: &Path) -> bool {
    let state = host.state();
    let mount = state.mounts.iter().find(|(at, ..)| at == target);
    mount.expect("it is mounted").3.contains(&"ro".to_owned())
}

fn lvm_commands(host: &FakeHost) -> u64 {
    pliant::host::Host::counts(host).get("lvm_commands").copied().unwrap_or_default()
}

#[test]
fn what_is_not_active_is_refused_until_it_is_and_nothing_is_touched() {
    for mode in MODES {
        for standing in [Standing::HalfCopied, Standing::Superseded] {
            block_on(async {
                let used = [Op::Create(mode), Op::Stage(mode), Op::Write, Op::Unstage];
                let (host, setup, node) = after(&used).await;
                node.fence(&id_of(VOLUME), fence(4, standing)).await.expect("it is fenced off");
                let node = setup.start(&host).await; // Not from memory.
                let before = host.state();
                for said in [
                    refused(node.stage(&staging(mode)).await),
                    refused(node.publish(&publish(mode)).await),
                ] {
                    let words = standing.as_str().replace('-', " ");
                    for word in [
                        format!("is {words}"),
                        "generation 4".to_owned(),
                        format!("lvchange --deltag pliant.fence={standing}:4 vg0/pliant-"),
                    ] {
                        assert!(said.contains(&word), "{word}: {said}");
                    }
                }
                assert_eq!(host.state(), before, "{mode} {standing}");
                node.fence(&id_of(VOLUME), fence(5, Standing::Active)).await.expect("it is let in");
                node.stage(&staging(mode)).await.expect("it is staged");
                node.publish(&publish(mode)).await.expect("it is published");
                assert_eq!(wrongs(&host, true).await, Vec::<String>::new());
            });
        }
    }
}

#[test]
fn what_is_staged_gets_no_second_workload() {
    block_on(async {
        let (_, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Publish(EXT4)]).await;
        node.fence(&id_of(VOLUME), fence(1, Standing::Superseded)).await.expect("while in use");
        let target = PathBuf::from("/var/lib/kubelet/pods/second");
        let second = Publish { target, alone: false, ..publish(EXT4) };
        refused(node.publish(&second).await);
        node.unpublish(&id_of(VOLUME), &publish(EXT4).target).await.expect("the first lets go");
        node.unstage(&id_of(VOLUME), Path::new(STAGING)).await.expect("and the kubelet too");
    });
}

#[test]
fn a_copy_fills_what_is_half_copied_and_reads_what_is_superseded() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        let id = id_of(VOLUME);
        node.fence(&id, copying(1, Standing::HalfCopied)).await.expect("a copy begins");
        Op::Stage(EXT4).ask(&host, &node).await.expect("it is formatted and staged");
        assert!(!read_only(&host, Path::new(STAGING)));
        Op::Write.ask(&host, &node).await.expect("it is filled");
        Op::Unstage.ask(&host, &node).await.expect("the copy has ended");
        node.fence(&id, fence(1, Standing::HalfCopied)).await.expect("and was not compared");
        refused(node.stage(&staging(EXT4)).await);

        node.fence(&id, copying(2, Standing::Superseded)).await.expect("it is copied from");
        Op::Stage(EXT4).ask(&host, &node).await.expect("it is staged");
        assert!(read_only(&host, Path::new(STAGING)));
        Op::Publish(EXT4).ask(&host, &node).await.expect("it is shown");
    });
}

#[test]
fn a_read_only_use_of_what_was_staged_before_is_read_only() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        node.fence(&id_of(VOLUME), copying(1, Standing::Superseded)).await.expect("it is fenced");
        Op::Publish(EXT4).ask(&host, &node).await.expect("it is shown");
        assert!(!read_only(&host, Path::new(STAGING)), "as it was");
        assert!(read_only(&host, &publish(EXT4).target));
    });
}

#[test]
fn a_workload_that_is_let_in_again_can_write_to_what_a_copy_has_staged() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Unstage]).await;
        let id = id_of(VOLUME);
        node.fence(&id, copying(1, Standing::Superseded)).await.expect("it is copied from");
        Op::Stage(EXT4).ask(&host, &node).await.expect("it is staged");
        let copy = Publish { target: "/pods/copy/mount".into(), alone: false, ..publish(EXT4) };
        node.publish(&copy).await.expect("it is shown");
        node.fence(&id, fence(2, Standing::Active)).await.expect("it is let in again");
        let pod = Publish { alone: false, ..publish(EXT4) };
        node.publish(&pod).await.expect("and not staged again");
        assert!(!read_only(&host, Path::new(STAGING)));
        assert!(!read_only(&host, &pod.target));
        assert!(read_only(&host, &copy.target), "the copy only reads");
    });
}

#[test]
fn what_was_said_later_is_not_unsaid() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(EXT4)]).await;
        let id = id_of(VOLUME);
        node.fence(&id, fence(3, Standing::Superseded)).await.expect("it is fenced off");
        let (before, commands) = (host.state(), lvm_commands(&host));
        for late in [fence(2, Standing::Active), fence(3, Standing::Active), Fence::default()] {
            let said = refused(node.fence(&id, late).await);
            assert!(said.contains("is superseded since generation 3"), "{said}");
        }
        node.fence(&id, fence(3, Standing::Superseded)).await.expect("again is done already");
        assert_eq!((host.state(), lvm_commands(&host)), (before, commands), "by no command");

        let node = setup.start(&host.after_crash()).await;
        let found = node.find(&id).await.expect("a look").expect("it is there");
        assert_eq!(found.fence, fence(3, Standing::Superseded));
    });
}

#[test]
fn what_is_fenced_off_can_be_deleted() {
    block_on(async {
        let used = [Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage];
        let (host, _, node) = after(&used).await;
        let marks = crate::machine::marks(&host);
        node.fence(&id_of(VOLUME), fence(1, Standing::Superseded)).await.expect("it is fenced");
        node.remove(&id_of(VOLUME)).await.expect("it is deleted");
        assert!(!readable(&host, &marks).await);
    });
}

#[test]
fn a_fence_that_cannot_be_read_lets_nobody_in() {
    block_on(async {
        let (host, setup, _) = after(&[Op::Create(EXT4)]).await;
        let lv = lv_name(&VolumeKey::of(VOLUME));
        let line = format!("lvchange -y --addtag pliant.fence=elsewhere vg0/{lv}");
        crate::machine::type_in(&host, "vg0", &line).await;
        let node = setup.start(&host).await;
        let said = refused(node.stage(&staging(EXT4)).await);
        assert!(said.contains("do not identify it"), "{said}");
    });
}
