//! Volumes become smaller where they lie: what keeps their content, what is refused, and what becomes of
//! a shrink that nobody asks for again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::node::NodeSettings;
use pliant::node::lv_tags::lv_name;
use pliant::testing::{Failing, FakeHost, Side};
use pliant::volume::{
    Fence, FsKind, Mode, NodeVolumes, Reason, State, VolumeError, VolumeKey, Volumes,
};

use crate::cuts::{block_on, points};
use crate::machine::{
    LARGE, LESS, Op, SMALL, STAGING, Setup, VOLUME, after, growth, id_of, marks, readable, wrongs,
};
use crate::tally::figures;

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);
const XFS: Mode = Mode::Filesystem(FsKind::Xfs);
const BTRFS: Mode = Mode::Filesystem(FsKind::Btrfs);

fn used(mode: Mode) -> [Op; 4] {
    [Op::Create(mode), Op::Stage(mode), Op::Write, Op::Unstage]
}

fn refused<T: std::fmt::Debug>(answer: Result<T, VolumeError>) -> (Reason, String) {
    let error = answer.expect_err("it is refused");
    (error.reason(), error.to_string())
}

fn size(host: &FakeHost) -> u64 {
    let lv = lv_name(&VolumeKey::of(VOLUME));
    host.group("vg0").expect("a group").lvs[&lv].extents() * 4
}

/// The tag that keeps it from growing.
fn limit(host: &FakeHost) -> Option<String> {
    let lv = lv_name(&VolumeKey::of(VOLUME));
    let tags = host.group("vg0").expect("a group").lvs[&lv].tags.clone();
    tags.iter().find(|tag| tag.starts_with("pliant.max-size=")).map(str::to_owned)
}

#[test]
fn a_shrunk_volume_grows_only_after_its_release() {
    block_on(async {
        for mode in [EXT4, BTRFS] {
            let (host, setup, node) = after(&used(mode)).await;
            let id = id_of(VOLUME);
            assert_eq!(node.shrink(&id, Bytes::mib(LESS - 1)).await.unwrap(), Bytes::mib(LESS));
            assert_eq!(size(&host), LESS);
            assert_eq!(wrongs(&host, true).await, Vec::<String>::new(), "{mode}");

            let node = setup.start(&host.after_crash()).await; // It is written on the volume itself.
            let (reason, said) = refused(node.grow(&id, growth(SMALL)).await);
            assert_eq!(reason, Reason::SizeOutOfRange, "{said}");
            assert!(said.contains("was shrunk to 304 MiB") && said.contains("lvchange --deltag"));
            assert_eq!(node.grow(&id, growth(LESS)).await.unwrap().size, Bytes::mib(LESS));
            let told = node.find(&id).await.unwrap().expect("it is there").limit;
            assert_eq!(told, Some(Bytes::mib(LESS)));
            for _again in 0..2 {
                node.release(&id).await.unwrap();
            }
            assert_eq!(node.grow(&id, growth(SMALL)).await.unwrap().size, Bytes::mib(SMALL));
        }
    });
}

/// From 2.03.17 on LVM looks at the file system itself, by a path that a container does not have; before it knows no
/// option not to.
#[test]
fn each_lvm_gives_back_what_a_file_system_left() {
    block_on(async {
        for (version, mode) in [("2.03.16", EXT4), ("2.03.17", EXT4), ("2.03.16", BTRFS)] {
            let (host, _, node) = after(&used(mode)).await;
            host.set_lvm_version(version);
            node.shrink(&id_of(VOLUME), Bytes::mib(LESS)).await.unwrap();
            assert_eq!(size(&host), LESS, "{version} {mode}");
        }
    });
}

#[test]
fn what_is_given_back_to_the_group_is_wiped() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Write]).await;
        let device = host.device_of("vg0", &lv_name(&VolumeKey::of(VOLUME))).unwrap();
        let whole = marks(&host);
        let secret = b"what the workload wrote and synced";
        let (disk, third) = whole[2].clone(); // That at 301 MiB.
        let at = 310 << 20;
        host.write_at(&device, at, secret);
        host.flush(&device).await.unwrap();
        let given_back = vec![(disk, third + (9 << 20))];
        assert!(readable(&host, &given_back).await);
        node.unstage(&id_of(VOLUME), std::path::Path::new(STAGING)).await.unwrap();
        node.shrink(&id_of(VOLUME), Bytes::mib(LESS)).await.unwrap();
        assert!(!readable(&host, &given_back).await);
        assert!(readable(&host, &whole).await);
    });
}

#[test]
fn what_cannot_shrink_now_is_as_it_was() {
    block_on(async {
        let id = id_of(VOLUME);
        let less = Bytes::mib(LESS);
        for (mode, ops, reason, words) in [
            (XFS, &used(XFS)[..], Reason::PreconditionFailed, "is xfs, which cannot shrink"),
            (Mode::Block, &[Op::Create(Mode::Block)], Reason::PreconditionFailed, "is block"),
            (EXT4, &used(EXT4)[..3], Reason::InUse, "cannot shrink while it is mounted"),
        ] {
            let (host, _, node) = after(ops).await;
            let before = host.state();
            let (said, why) = refused(node.shrink(&id, less).await);
            assert_eq!(said, reason, "{mode}: {why}");
            assert!(why.contains(words), "{mode}: {why}");
            assert_eq!(host.state(), before, "{mode}");
        }
        let (host, _, node) = after(&used(BTRFS)).await;
        let (said, why) = refused(node.shrink(&id, Bytes::mib(252)).await);
        assert_eq!((said, size(&host)), (Reason::SizeOutOfRange, SMALL), "{why}");
        assert!(why.contains("btrfs needs at least 256 MiB"), "{why}");
    });
}

#[test]
fn what_does_not_fit_is_as_large_as_before_and_may_grow() {
    block_on(async {
        let id = id_of(VOLUME);
        let (host, _, node) = after(&used(BTRFS)[..3]).await;
        host.fill(std::path::Path::new(STAGING), Bytes::mib(310));
        let (reason, said) = refused(node.shrink(&id, Bytes::mib(LESS)).await);
        assert_eq!(reason, Reason::SizeOutOfRange, "{said}");
        assert!(said.contains("its content does not fit"), "{said}");
        assert_eq!((size(&host), limit(&host)), (SMALL, None));
        node.grow(&id, growth(LARGE)).await.expect("nobody minds");

        let (host, _, node) = after(&used(EXT4)).await;
        host.fail("resize2fs", Failing::Once);
        let (reason, said) = refused(node.shrink(&id, Bytes::mib(LESS)).await);
        assert_eq!(reason, Reason::Failed, "{said}");
        assert!(said.contains("is as it was before"), "{said}");
        assert_eq!((size(&host), limit(&host)), (SMALL, None));
        assert_eq!(wrongs(&host, true).await, Vec::<String>::new());
        node.grow(&id, growth(LARGE)).await.expect("nobody minds");
    });
}

#[test]
fn a_smaller_volume_is_no_reason_to_grow() {
    block_on(async {
        let (host, _, node) = after(&used(EXT4)).await;
        let id = id_of(VOLUME);
        assert_eq!(node.shrink(&id, Bytes::mib(LARGE)).await.unwrap(), Bytes::mib(SMALL));
        assert_eq!((size(&host), limit(&host)), (SMALL, None));
        let absent = node.shrink(&id_of("absent"), Bytes::mib(LESS)).await;
        assert_eq!(refused(absent).0, Reason::NotFound);
    });
}

#[test]
fn a_volume_that_has_the_size_already_is_kept_at_it_whatever_is_in_it() {
    block_on(async {
        for (mode, ops) in [
            (XFS, &used(XFS)[..]),
            (Mode::Block, &[Op::Create(Mode::Block)]),
            (EXT4, &used(EXT4)[..]),
        ] {
            let (host, _, node) = after(ops).await;
            let id = id_of(VOLUME);
            let size = Bytes::mib(SMALL);
            assert_eq!(node.shrink(&id, size).await.unwrap(), size, "{mode}");
            assert!(limit(&host).is_some(), "{mode}");
            let said = refused(node.grow(&id, growth(LARGE)).await);
            assert_eq!(said.0, Reason::SizeOutOfRange, "{mode}: {}", said.1);
            node.release(&id).await.unwrap();
            node.grow(&id, growth(LARGE)).await.unwrap();
        }
    });
}

#[test]
fn a_long_wipe_of_what_is_given_back_is_done_once() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let (host, setup, _) = after(&used(EXT4)).await;
        let (wipe_rate, wipe_patience) = (Some(Bytes::mib(1)), Duration::from_secs(3));
        let settings = NodeSettings { wipe_rate, wipe_patience, ..setup.settings.clone() };
        let node = Setup { settings, ..setup }.start(&host).await;
        host.forget_effects();
        let mut calls = 1;
        while let Err(error) = node.shrink(&id_of(VOLUME), Bytes::mib(LESS)).await {
            assert_eq!(error.reason(), Reason::InProgress, "{error}");
            assert!(calls < 20, "it never ends");
            calls += 1;
        }
        assert!(calls > 3, "{calls} calls");
        let zeroed = host.effects().iter().filter(|one| one.starts_with("BLKZEROOUT")).count();
        assert_eq!((size(&host), zeroed as u64), (LESS, SMALL - LESS), "a MiB at a time");
    });
}

#[test]
fn a_volume_that_shrank_further_before_may_grow_to_the_size_of_now() {
    block_on(async {
        let (host, _, node) = after(&used(EXT4)).await;
        let id = id_of(VOLUME);
        node.shrink(&id, Bytes::mib(LESS)).await.unwrap();
        assert_eq!(node.shrink(&id, Bytes::mib(SMALL - 4)).await.unwrap(), Bytes::mib(LESS));
        let grown = node.grow(&id, growth(SMALL - 4)).await.unwrap();
        assert_eq!(grown.size, Bytes::mib(SMALL - 4));
        assert_eq!(refused(node.grow(&id, growth(SMALL)).await).0, Reason::SizeOutOfRange);
        assert!(limit(&host).is_some());
    });
}

#[test]
fn what_has_shrunk_already_may_be_mounted_and_has_no_second_step() {
    block_on(async {
        let (host, setup, node) = after(&used(EXT4)).await;
        let id = id_of(VOLUME);
        node.shrink(&id, Bytes::mib(LESS)).await.unwrap();
        Op::Stage(EXT4).ask(&host, &node).await.unwrap();
        assert_eq!(node.shrink(&id, Bytes::mib(LESS)).await.unwrap(), Bytes::mib(LESS));
        let settings = NodeSettings { two_step: true, ..setup.settings.clone() };
        let node = Setup { settings, ..setup }.start(&host).await;
        assert!(!node.grow(&id, growth(LESS)).await.unwrap().node_expansion_required);
        node.release(&id).await.unwrap();
        assert!(node.grow(&id, growth(SMALL)).await.unwrap().node_expansion_required);
    });
}

#[test]
fn an_ext_shrinks_only_with_room_for_all_that_is_moved() {
    block_on(async {
        let (host, _, node) = after(&used(EXT4)).await;
        let free = host.group("vg0").unwrap().free_extents();
        let line =
            format!("lvcreate -y -Wn -Zn --setautoactivation n -ay -l {} -n theirs vg0", free - 40);
        crate::machine::type_in(&host, "vg0", &line).await;
        // 36 extents move to where 44 stay: that is more than the eighth that a growth needs.
        let (reason, said) = refused(node.shrink(&id_of(VOLUME), Bytes::mib(176)).await);
        assert_eq!(
            (reason, size(&host), limit(&host)),
            (Reason::PreconditionFailed, SMALL, None),
            "{said}"
        );
        assert!(said.contains("a resize snapshot") && said.contains("add a disk"), "{said}");
        assert_eq!(wrongs(&host, true).await, Vec::<String>::new());
    });
}

/// Whoever asked for it has died too: the volume is used, and grows as soon as that is allowed.
#[test]
fn a_shrink_that_nobody_asks_for_again_is_finished_or_given_up() {
    let (cuts, shrunk) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for (mode, before) in [(EXT4, &used(EXT4)[..]), (BTRFS, &used(BTRFS)[..3])] {
        let (base, setup, effects) = block_on(async {
            let (host, setup, node) = after(before).await;
            let base = host.after_crash();
            host.forget_effects();
            Op::Shrink(LESS).ask(&host, &node).await.expect("without a fault");
            (base, setup, host.effects().len())
        });
        for (n, side) in points(effects, Side::BOTH) {
            block_on(async {
                let host = base.after_crash();
                let node = setup.start(&host).await;
                host.forget_effects();
                host.cut_at(n, side);
                if host.run_until_cut(Op::Shrink(LESS).ask(&host, &node)).await.is_some() {
                    return;
                }
                let named = format!("{mode} {side:?} {n}");
                cuts.fetch_add(1, Ordering::Relaxed);
                let host = host.after_crash();
                let node = setup.start(&host).await;
                Op::Stage(mode).ask(&host, &node).await.expect(&named);
                assert_eq!(wrongs(&host, true).await, Vec::<String>::new(), "{named}");
                let id = id_of(VOLUME);
                if n % 2 == 0 {
                    // Nobody is told that it may grow before it is told how small it is.
                    let before = size(&host);
                    while let Err(error) = node.release(&id).await {
                        assert_eq!(error.reason(), Reason::InProgress, "{named}: {error}");
                        assert!(size(&host) < before && limit(&host).is_some(), "{named}");
                    }
                    assert_eq!(limit(&host), None, "{named}");
                }
                let grown = node.grow(&id, growth(LARGE)).await;
                if let Err(error) = grown {
                    assert_eq!(error.reason(), Reason::SizeOutOfRange, "{named}: {error}");
                    assert_eq!(size(&host), LESS, "{named}");
                    shrunk.fetch_add(1, Ordering::Relaxed);
                    node.release(&id).await.expect(&named);
                    node.grow(&id, growth(LARGE)).await.expect(&named);
                }
                assert_eq!((size(&host), limit(&host)), (LARGE, None), "{named}");
                assert_eq!(wrongs(&host, true).await, Vec::<String>::new(), "{named}");
                let told = node.find(&id).await.expect(&named).expect(&named);
                assert!(matches!(told.state, State::Ready | State::Resized), "{named}");
                assert_eq!(told.fence, Fence::default());
            });
        }
    }
    let (cuts, shrunk) = (cuts.into_inner(), shrunk.into_inner());
    assert!(shrunk > 0 && shrunk < cuts, "{shrunk} of {cuts} had shrunk");
    figures("forgotten_shrinks.txt", &[("forgotten_shrinks", cuts)]);
}
