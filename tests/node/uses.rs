//! How volumes are staged and published, and which uses are refused: for a wrong path, a second
//! workload, a wrong file system, a read-only use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc::EPERM;
use pliant::bytes::Bytes;
use pliant::fs::superblock;
use pliant::host::{Cmd, Host};
use pliant::node::lv_tags::lv_name;
use pliant::node::{Node, NodeSettings};
use pliant::testing::FakeHost;
use pliant::volume::{
    FsKind, Growth, Mode, NodeVolumes, Publish, RequestedSize, Stage, VolumeError, Volumes,
};

use crate::cuts::block_on;
use crate::machine::{
    Disks, LARGE, NEIGHBOUR, Op, STAGING, Setup, TARGET, VOLUME, after, growth, id_of, publish,
    staging, type_in, want,
};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);
const ELSEWHERE: &str = "/var/lib/kubelet/pods/elsewhere";

fn device_of(host: &FakeHost, name: &str) -> PathBuf {
    host.device_of("vg0", &lv_name(id_of(name).key())).expect("an active volume")
}

/// The options of the mount at a path: its own, then those of its file system.
fn options_at(host: &FakeHost, path: &str) -> Vec<String> {
    let mounts = host.state().mounts;
    let found = mounts.into_iter().rfind(|mount| mount.0 == Path::new(path));
    found.map(|mount| mount.3).unwrap_or_default()
}

fn is_mounted(host: &FakeHost, path: &str) -> bool {
    !options_at(host, path).is_empty()
}

fn assert_refused<T: std::fmt::Debug>(answer: Result<T, VolumeError>, words: &str) {
    match answer {
        Err(VolumeError::PreconditionFailed { reason }) => {
            assert!(reason.contains(words), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

async fn superblock_on(host: &FakeHost, device: &Path) -> superblock::Superblock {
    let head = host.read_at(device, 0, superblock::HEAD).await.expect("it can be read");
    superblock::parse(&head).expect("a file system")
}

/// Set bits of a little-endian number in an ext superblock.
async fn set_bits(host: &FakeHost, device: &Path, field: u64, bits: u8, byte: u64) {
    let at = 1024 + field + byte;
    let old = host.read_at(device, at, 1).await.expect("it can be read")[0];
    host.write_at(device, at, &[old | bits]);
}

#[test]
fn no_device_node_in_a_volume_is_honoured() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        node.stage(&staging(EXT4)).await.expect("stage");
        assert!(options_at(&host, STAGING).contains(&"nodev".to_owned()));
    });
}

#[test]
fn a_read_only_publication_of_a_writable_volume_refuses_writes() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        node.publish(&Publish { read_only: true, ..publish(EXT4) }).await.expect("publish");
        assert_eq!(options_at(&host, TARGET)[0], "ro");
        assert_eq!(options_at(&host, STAGING)[0], "rw");
        // It grows as well as the file system itself.
        let grown = node.expand(&id_of(VOLUME), Path::new(TARGET), Some(growth(LARGE))).await;
        assert_eq!(grown.expect("grow"), Bytes::mib(LARGE));
    });
}

#[test]
fn a_device_is_not_published_read_only() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(Mode::Block), Op::Stage(Mode::Block)]).await;
        let answer = node.publish(&Publish { read_only: true, ..publish(Mode::Block) }).await;
        assert!(matches!(answer, Err(VolumeError::InvalidArgument { .. })), "{answer:?}");
        assert!(!is_mounted(&host, TARGET));
    });
}

#[test]
fn a_device_is_published_read_only_where_the_caller_guards_it() {
    block_on(async {
        let (host, setup, _) = after(&[Op::Create(Mode::Block), Op::Stage(Mode::Block)]).await;
        let settings = NodeSettings { guarded_devices: true, ..setup.settings.clone() };
        let node = Setup { settings, ..setup }.start(&host).await;
        let read_only = Publish { read_only: true, ..publish(Mode::Block) };
        node.publish(&read_only).await.expect("publish");
        assert!(is_mounted(&host, TARGET));
    });
}

#[test]
fn a_volume_for_one_workload_is_published_once() {
    block_on(async {
        for mode in [EXT4, Mode::Block] {
            let (host, _, node) = after(&[Op::Create(mode), Op::Stage(mode)]).await;
            node.publish(&publish(mode)).await.expect("the first");
            let second = Publish { target: ELSEWHERE.into(), ..publish(mode) };
            match node.publish(&second).await {
                Err(VolumeError::InUse { holder, .. }) => {
                    assert!(holder.contains(TARGET), "{holder}");
                }
                other => panic!("{mode}: {other:?}"),
            }
            assert!(!is_mounted(&host, ELSEWHERE));
            node.publish(&Publish { alone: false, ..second }).await.expect("not alone");
            assert!(is_mounted(&host, ELSEWHERE));
        }
    });
}

#[test]
fn a_device_that_a_pod_has_is_shown_to_a_copy_beside_it() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(Mode::Block), Op::Stage(Mode::Block)]).await;
        let pod = Publish { alone: false, ..publish(Mode::Block) };
        let copy = Publish { target: ELSEWHERE.into(), ..pod.clone() };
        for shown in [&pod, &copy, &copy] {
            node.publish(shown).await.expect("publish");
        }
        assert!(is_mounted(&host, TARGET) && is_mounted(&host, ELSEWHERE));
        node.unpublish(&id_of(VOLUME), Path::new(ELSEWHERE)).await.expect("a round has ended");
        assert!(is_mounted(&host, TARGET) && !is_mounted(&host, ELSEWHERE));
    });
}

#[test]
fn a_path_that_shows_another_volume_is_not_taken_for_this_one() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        node.ensure(&want("other", EXT4, 64)).await.expect("create");
        let other = id_of("other");
        let publish = Publish { id: other.clone(), ..publish(EXT4) };
        assert_refused(node.publish(&publish).await, "is not staged");
        assert!(!is_mounted(&host, TARGET));
        let answer = node.expand(&other, Path::new(STAGING), Some(growth(LARGE))).await;
        assert!(matches!(answer, Err(VolumeError::NotFound { .. })), "{answer:?}");
        let answer = node.stats(&other, Path::new(STAGING)).await;
        assert!(matches!(answer, Err(VolumeError::NotFound { .. })), "{answer:?}");
        assert_refused(node.unpublish(&other, Path::new(STAGING)).await, "nothing was unmounted");
        assert!(is_mounted(&host, STAGING));
    });
}

#[test]
fn a_volume_is_not_where_it_was_never_shown() {
    block_on(async {
        for mode in [EXT4, Mode::Block] {
            let (_, _, node) = after(&[Op::Create(mode), Op::Stage(mode), Op::Publish(mode)]).await;
            let (id, nowhere) = (id_of(VOLUME), Path::new(ELSEWHERE));
            let answer = node.expand(&id, nowhere, None).await;
            assert!(matches!(answer, Err(VolumeError::NotFound { .. })), "{mode}: {answer:?}");
            // A directory that is there is none of its mounts.
            for path in [nowhere, Path::new("/var/lib/kubelet")] {
                let answer = node.stats(&id, path).await;
                assert!(matches!(answer, Err(VolumeError::NotFound { .. })), "{mode}: {answer:?}");
            }
        }
    });
}

#[test]
fn what_is_not_ours_is_not_unmounted() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        let disk = host.add_disk(Bytes::mib(100));
        host.add_group("theirs", &[disk.clone()]);
        host.pin_devices("theirs", &[disk]).await.expect("pinned");
        let make = "-y -Wn -Zn --setautoactivation n -ay -l 5 -n data theirs".split(' ');
        host.lvm("theirs", Cmd::new("lvcreate").args(make)).await.expect("made");
        let device = host.device_of("theirs", "data").expect("an active volume");
        host.make_file(Path::new(TARGET)).await.expect_err("its directory comes first");
        host.make_dir(Path::new("/var/lib/kubelet/pods")).await.expect("a directory");
        host.make_file(Path::new(TARGET)).await.expect("a file");
        host.bind(&device, Path::new(TARGET), &[]).await.expect("shown");
        // Of a volume that is there, and of one that is gone.
        for name in [VOLUME, "gone"] {
            let answer = node.unpublish(&id_of(name), Path::new(TARGET)).await;
            assert_refused(answer, "nothing was unmounted");
            assert!(is_mounted(&host, TARGET), "{name}");
        }
    });
}

#[test]
fn nothing_is_formatted_over_what_is_not_what_was_made() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Unstage]).await;
        type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv_name(id_of(VOLUME).key())))
            .await;
        let device = device_of(&host, VOLUME);
        node.ensure(&want("other", Mode::Filesystem(FsKind::Xfs), 320)).await.expect("create");
        let other = Stage {
            id: id_of("other"),
            staging: ELSEWHERE.into(),
            ..staging(Mode::Filesystem(FsKind::Xfs))
        };
        node.stage(&other).await.expect("stage");
        let xfs = host.read_at(&device_of(&host, "other"), 0, superblock::HEAD).await;
        host.write_at(&device, 0, &xfs.expect("it can be read"));
        assert_refused(node.stage(&staging(EXT4)).await, "nothing was formatted");
        assert_eq!(superblock_on(&host, &device).await.kind, FsKind::Xfs);
        assert!(!is_mounted(&host, STAGING));
    });
}

#[test]
fn a_file_system_of_another_kind_than_was_made_is_not_mounted() {
    block_on(async {
        let ext3 = Mode::Filesystem(FsKind::Ext3);
        let (host, _, node) = after(&[Op::Create(ext3), Op::Stage(ext3), Op::Unstage]).await;
        let group = host.group("vg0").expect("a group");
        let lv = &group.lvs[&lv_name(id_of(VOLUME).key())];
        let piece = &lv.segments[0].pieces[0];
        let pv = &group.pvs[&piece.pv];
        let disk = pv.device.clone().expect("a disk");
        let start = pv.pe_start * 512 + piece.range.start * group.extent_size.get();
        // The kernel's driver would mount it: `extents` makes an ext4 of it.
        let incompat = start + 1024 + 0x60;
        let old = host.read_at(&disk, incompat, 1).await.expect("it can be read")[0];
        host.write_at(&disk, incompat, &[old | 0x40]);
        assert_refused(node.stage(&staging(ext3)).await, "nothing was formatted");
        assert!(!is_mounted(&host, STAGING));
    });
}

#[test]
fn a_file_system_with_errors_is_repaired_before_it_is_mounted_for_writing() {
    block_on(async {
        for read_only in [false, true] {
            let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
            set_bits(&host, &device_of(&host, VOLUME), 0x3a, 2, 0).await;
            Op::Unstage.ask(&host, &node).await.expect("unstage");
            let before = host.counts()["processes"];
            node.stage(&Stage { read_only, ..staging(EXT4) }).await.expect("it can be used");
            let started = host.counts()["processes"] - before;
            assert_eq!(started, u64::from(!read_only), "read-only: {read_only}");
        }
    });
}

#[test]
fn a_mounted_file_system_with_errors_does_not_grow() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        let device = device_of(&host, VOLUME);
        set_bits(&host, &device, 0x3a, 2, 0).await;
        let grown = node.grow(&id_of(VOLUME), growth(LARGE)).await.expect("the volume grows");
        assert!(grown.node_expansion_required);
        let said = node.expand(&id_of(VOLUME), Path::new(STAGING), None).await;
        assert!(format!("{said:?}").contains("the kernel found errors"), "{said:?}");
        assert!(superblock_on(&host, &device).await.covers < Bytes::mib(LARGE));
    });
}

#[test]
fn errors_that_only_the_kernel_knows_of_yet_are_told_with_what_to_do() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4)]).await;
        host.fail_with("EXT4_IOC_RESIZE_FS", EPERM);
        let grown = node.grow(&id_of(VOLUME), growth(LARGE)).await.expect("the volume grows");
        assert!(grown.node_expansion_required);
        let said = node.expand(&id_of(VOLUME), Path::new(STAGING), None).await;
        let words = "the kernel found errors in it, and does not grow it until it is checked";
        assert_refused(said, words);
        host.mend();
        Op::Unstage.ask(&host, &node).await.expect("unstage");
        node.stage(&staging(EXT4)).await.expect("it is checked, and grown");
        let device = device_of(&host, VOLUME);
        assert!(superblock_on(&host, &device).await.covers >= Bytes::mib(LARGE));
    });
}

/// A volume whose ext4 can only grow unmounted, larger than its file system.
async fn with_sparse_super2(then: Op) -> (FakeHost, Arc<Node>) {
    let (host, setup) = Disks::Two.machine(true).await;
    let node = setup.start(&host).await;
    for op in [Op::Create(EXT4), Op::Stage(EXT4)] {
        op.ask(&host, &node).await.expect("it is made");
    }
    set_bits(&host, &device_of(&host, VOLUME), 0x5c, 2, 1).await;
    if then == Op::Unstage {
        then.ask(&host, &node).await.expect("unstage");
    }
    Op::Grow(LARGE).ask(&host, &node).await.expect("the device grows");
    (host, node)
}

#[test]
fn a_read_only_use_grows_no_unmounted_file_system() {
    block_on(async {
        let (host, node) = with_sparse_super2(Op::Unstage).await;
        node.stage(&Stage { read_only: true, ..staging(EXT4) }).await.expect("stage");
        let device = device_of(&host, VOLUME);
        assert!(superblock_on(&host, &device).await.covers < Bytes::mib(LARGE));
    });
}

#[test]
fn a_mounted_file_system_is_not_resized_as_an_unmounted_one() {
    block_on(async {
        let (host, node) = with_sparse_super2(Op::Write).await;
        node.stage(&staging(EXT4)).await.expect("it is staged already");
        let device = device_of(&host, VOLUME);
        assert!(superblock_on(&host, &device).await.covers < Bytes::mib(LARGE));
        let ailments = node.volume_health(&id_of(VOLUME)).await.expect("a look");
        assert_eq!(ailments[0].reason, "FilesystemResizePending");
    });
}

#[test]
fn staging_ends_a_resize_that_was_cut_short() {
    block_on(async {
        let (host, setup, _) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Unstage]).await;
        let whole = host.after_crash();
        let node = setup.start(&whole).await;
        whole.forget_effects();
        Op::Grow(LARGE).ask(&whole, &node).await.expect("grow");
        let first_check_after = |effect: &String| effect.starts_with("mkdir /run/pliant/grow");
        let n = 1 + whole.effects().iter().position(first_check_after).expect("it is resized");

        let cut = host.after_crash();
        let node = setup.start(&cut).await;
        cut.forget_effects();
        cut.cut_at(n, pliant::testing::Side::Before);
        assert!(cut.run_until_cut(Op::Grow(LARGE).ask(&cut, &node)).await.is_none());
        let cut = cut.after_crash();
        let node = setup.start(&cut).await;
        let safety = pliant::node::lv_tags::safety_name(id_of(VOLUME).key());
        let has_snapshot =
            |host: &FakeHost| host.state().groups["vg0"].volumes.contains_key(&safety);
        assert!(has_snapshot(&cut), "it was cut with its snapshot");
        Op::Stage(EXT4).ask(&cut, &node).await.expect("stage");
        assert!(!has_snapshot(&cut));
    });
}

#[test]
fn a_growth_keeps_to_what_the_volume_is() {
    block_on(async {
        let (_, _, node) = after(&[Op::Create(Mode::Block)]).await;
        let id = id_of(VOLUME);
        let answer = node.grow(&id, Growth { block: Some(false), ..growth(LARGE) }).await;
        assert!(matches!(answer, Err(VolumeError::InvalidArgument { .. })), "{answer:?}");
        // Asked for less than there is, and no more than that.
        let size = RequestedSize { at_least: Bytes::mib(4), at_most: Some(Bytes::mib(8)) };
        let answer = node.grow(&id, Growth { size, block: None }).await;
        assert!(matches!(answer, Err(VolumeError::SizeOutOfRange { .. })), "{answer:?}");
    });
}

#[test]
fn a_volume_of_that_name_must_be_what_is_asked_for() {
    block_on(async {
        let (_, _, node) = after(&[Op::Create(Mode::Block)]).await;
        let wanted = want(VOLUME, Mode::Block, 4);
        let size = RequestedSize { at_least: Bytes::mib(4), at_most: Some(Bytes::mib(8)) };
        let too_large = pliant::volume::NewVolume { size, ..wanted.clone() };
        let other_mode = want(VOLUME, EXT4, 4);
        for want in [too_large, other_mode] {
            let answer = node.ensure(&want).await;
            assert!(matches!(answer, Err(VolumeError::AlreadyExists { .. })), "{answer:?}");
        }
        let mut elsewhere = want(NEIGHBOUR, Mode::Block, 4);
        elsewhere.nodes = ["beta".to_owned()].into();
        let answer = node.ensure(&elsewhere).await;
        assert!(matches!(answer, Err(VolumeError::TopologyMismatch { .. })), "{answer:?}");
    });
}
