//! Options of mkfs that are tried before a volume is made, and what an old kernel does not mount.

use std::sync::Arc;

use pliant::fs::superblock;
use pliant::host::Host;
use pliant::node::Node;
use pliant::testing::{Failing, FakeHost};
use pliant::volume::{Class, FsKind, MkfsOptions, Mode, NewVolume, VolumeError, Volumes};

use crate::cuts::block_on;
use crate::machine::{Disks, Op, VOLUME, want};

/// A volume of this kind with such options.
fn wanted(name: &str, kind: FsKind, mib: u64, options: &str) -> NewVolume {
    let mkfs_options = MkfsOptions::parse(kind, options).expect("they are on the list");
    let class = Class { mkfs_options, ..Class::default() };
    NewVolume { class, ..want(name, Mode::Filesystem(kind), mib) }
}

async fn machine() -> (FakeHost, Arc<Node>) {
    let (host, setup) = Disks::Two.machine(false).await;
    let node = setup.start(&host).await;
    (host, node)
}

/// How many programs were started, and how many commands of LVM that make a volume.
fn programs(host: &FakeHost) -> u64 {
    host.counts().get("processes").copied().unwrap_or_default()
}

/// The words of a refusal of mkfsOptions, after which there is no volume.
async fn refused(node: &Node, want: &NewVolume) -> String {
    let error = node.ensure(want).await.expect_err("it is refused");
    assert!(matches!(error, VolumeError::InvalidArgument { .. }), "{error:?}");
    let made = node.list(&pliant::volume::Page::default()).await.expect("they are listed");
    assert_eq!(made.volumes, [], "nothing is made");
    error.to_string()
}

#[test]
fn options_that_mkfs_refuses_are_refused_before_a_volume_is_made() {
    block_on(async {
        let (host, node) = machine().await;
        host.refuse_options(
            "-i 1 ",
            "mke2fs 1.47.0 (5-Feb-2023)\nmkfs.ext4: invalid inode ratio 1 (min 1024/max 67108864)\n\
             Usage: mkfs.ext4 [-c|-l filename] [-b block-size]\n\t[-C cluster-size]\n",
        );
        let words = refused(&node, &wanted(VOLUME, FsKind::Ext4, 64, "-i 1")).await;
        assert!(words.contains("mkfsOptions"), "{words}");
        let said = "mkfs.ext4: invalid inode ratio 1 (min 1024/max 67108864)";
        assert!(words.ends_with(said) && !words.contains('\n'), "{words}");
    });
}

#[test]
fn options_are_tried_once_for_each_size() {
    block_on(async {
        let (host, node) = machine().await;
        let before = programs(&host);
        let made = async |name: &str, mib, options: &str| {
            node.ensure(&wanted(name, FsKind::Ext4, mib, options)).await.expect("it is made");
            programs(&host) - before
        };
        assert_eq!(made("plain", 8, "").await, 0, "without options nothing is tried");
        assert_eq!(made("one", 8, "-m 1").await, 1);
        assert_eq!(made("other", 8, "-m 1").await, 1);
        assert_eq!(made("larger", 12, "-m 1").await, 2);
        host.refuse_options("-N 4294967295", "inode_size (256) * inodes_count too big\n");
        for _ in 0..3 {
            let error = node.ensure(&wanted("bad", FsKind::Ext4, 8, "-N 4294967295")).await;
            assert!(error.is_err());
            // What refuses the options has to take none: else nothing would be known of them.
            assert_eq!(programs(&host) - before, 4);
        }
    });
}

#[test]
fn options_that_cannot_be_tried_keep_no_volume_from_being_made() {
    block_on(async {
        let (host, node) = machine().await;
        host.fail("mkfs.ext4", Failing::Always);
        node.ensure(&wanted(VOLUME, FsKind::Ext4, 64, "-m 1")).await.expect("it is made");
    });
}

#[test]
fn options_that_the_kernel_does_not_mount_are_refused() {
    block_on(async {
        let (host, node) = machine().await;
        host.run_kernel("5.15.0-91-generic");
        for (options, words) in [
            ("-i nrext64=1", "needs Linux 5.19, and the node has 5.15.0-91-generic"),
            ("-b size=64k", "larger than the page size of the node"),
        ] {
            let said = refused(&node, &wanted(VOLUME, FsKind::Xfs, 320, options)).await;
            assert!(said.contains(words), "{said}");
        }
    });
}

/// What mkfs was told when the volume was staged first.
async fn made_by(release: &str, knows_no_exchange: bool) -> String {
    let (host, node) = machine().await;
    host.run_kernel(release);
    if knows_no_exchange {
        host.refuse_options("exchange=0", "unknown option -i exchange=0\nUsage: mkfs.xfs\n");
        host.refuse_options("parent=0", "unknown option -n parent=0\nUsage: mkfs.xfs\n");
    }
    let xfs = Mode::Filesystem(FsKind::Xfs);
    Op::Create(xfs).ask(&host, &node).await.expect("it is made");
    Op::Stage(xfs).ask(&host, &node).await.expect("it is staged");
    let device = host
        .device_of("vg0", &pliant::node::lv_tags::lv_name(&pliant::volume::VolumeKey::of(VOLUME)));
    let head = host.read_at(&device.expect("it is active"), 0, superblock::HEAD).await;
    assert!(superblock::parse(&head.expect("it is read")).is_some(), "it has a file system");
    let effects = host.effects();
    let made = effects.iter().find(|effect| effect.starts_with("mkfs.xfs"));
    made.expect("mkfs was run").clone()
}

#[test]
fn an_xfs_is_made_so_that_the_kernel_of_the_node_mounts_it() {
    block_on(async {
        let typed = made_by("5.15.0-91-generic", false).await;
        assert!(typed.contains(" -i nrext64=0,exchange=0 -n parent=0 "), "{typed}");
        let typed = made_by("5.15.0-91-generic", true).await;
        assert!(typed.contains(" -i nrext64=0 ") && !typed.contains("parent"), "{typed}");
        let typed = made_by("6.12.0", false).await;
        assert!(!typed.contains("nrext64"), "{typed}");
    });
}
