//! The table: which tool does what for which file system.

use std::path::Path;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::fs::Switch;
use crate::fs::kernel::not_named;
use crate::fs::superblock::{FsFacts, Superblock};
use crate::host::Cmd;
use crate::volume::{FsKind, MkfsOptions};

/// Making a file system writes little, but a slow disk may take its time to flush it.
const MAKE_LIMIT: Duration = Duration::from_secs(600);
/// On an image in memory it waits for no disk.
const TRY_LIMIT: Duration = Duration::from_secs(20);
/// Checking and moving reads all metadata of the file system.
const CHECK_LIMIT: Duration = Duration::from_secs(3600);

/// The kernel's driver to mount this kind with.
///
/// The one of ext4 serves the whole family and grows all of it online. In every kernel it is that of
/// ext3 too, under this name, which is the one that users see. A kernel that has a driver of its own
/// for ext2 (`CONFIG_EXT2_FS`) could not grow what that has mounted.
pub const fn driver(kind: FsKind) -> &'static str {
    match kind {
        FsKind::Ext2 | FsKind::Ext4 => "ext4",
        FsKind::Ext3 => "ext3",
        FsKind::Xfs => "xfs",
        FsKind::Btrfs => "btrfs",
    }
}

/// Mount options that are always added: device nodes in a volume are never honoured.
///
/// # Source
/// Kubernetes does not ask for `nodev`, and a tenant can write any node into an image.
pub const fn always_mounted_with(_kind: FsKind) -> &'static [&'static str] {
    &["nodev"]
}

/// Returns whether this file system can grow while it is mounted with its [`driver`].
pub fn grows_online(superblock: &Superblock) -> bool {
    !matches!(superblock.facts, FsFacts::Ext(ext) if ext.sparse_super2)
}

/// The command that makes a file system of this uuid, without the device; it discards nothing, because the device has just
/// been wiped.
pub(super) fn mkfs(kind: FsKind, options: &MkfsOptions, switches: &[Switch], uuid: &str) -> Cmd {
    let (program, fixed): (_, &[&str]) = match kind {
        // Without `-b` a device below 512 MiB gets blocks of 1 KiB, for good.
        FsKind::Ext2 => ("mkfs.ext2", &["-F", "-q", "-b", "4096"]),
        FsKind::Ext3 => ("mkfs.ext3", &["-F", "-q", "-b", "4096"]),
        FsKind::Ext4 => ("mkfs.ext4", &["-F", "-q", "-b", "4096"]),
        FsKind::Xfs => ("mkfs.xfs", &["-f", "-q", "-K"]),
        FsKind::Btrfs => ("mkfs.btrfs", &["-f", "-q", "-K"]),
    };
    // Of an option that is given twice, mke2fs reads the last value alone.
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let discards_nothing = kind.is_ext().then_some(("-E", "nodiscard"));
    let switches = not_named(kind, switches, options).map(|one| (one.option, one.value.as_str()));
    let chosen = options.words().chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
    for (option, value) in discards_nothing.into_iter().chain(switches).chain(chosen) {
        match pairs.iter_mut().find(|(there, _)| *there == option) {
            Some((_, values)) => *values = format!("{values},{value}"),
            None => pairs.push((option, value.to_owned())),
        }
    }
    let pairs = pairs.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
    let cmd = Cmd::new(program).args(fixed).args(pairs);
    let cmd = match kind {
        FsKind::Xfs => cmd.arg("-m").arg(format!("uuid={uuid}")),
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 | FsKind::Btrfs => cmd.arg("-U").arg(uuid),
    };
    cmd.limit(MAKE_LIMIT)
}

/// The same command as a dry run where mkfs has one: that of btrfs writes some MiB.
pub(super) fn try_mkfs(
    kind: FsKind,
    options: &MkfsOptions,
    switches: &[Switch],
    uuid: &str,
) -> Cmd {
    let cmd = mkfs(kind, options, switches, uuid).limit(TRY_LIMIT);
    match kind {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => cmd.arg("-n"),
        FsKind::Xfs => cmd.arg("-N"),
        FsKind::Btrfs => cmd,
    }
}

/// The command that looks for errors and writes nothing.
pub(super) fn look(kind: FsKind, device: &Path) -> Cmd {
    let cmd = match kind {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => Cmd::new("e2fsck").args(["-f", "-n"]),
        FsKind::Xfs => Cmd::new("xfs_repair").arg("-n"),
        FsKind::Btrfs => Cmd::new("btrfs").args(["check", "--readonly"]),
    };
    cmd.arg(device).limit(CHECK_LIMIT)
}

/// The command that repairs what can be repaired without a question; `None` where the kernel does
/// that at the mount and all further repair is a person's decision.
pub(super) fn repair(kind: FsKind, device: &Path) -> Option<Cmd> {
    kind.is_ext().then(|| Cmd::new("e2fsck").args(["-f", "-p"]).arg(device).limit(CHECK_LIMIT))
}

/// Returns the command for a manual repair of what [`repair`] may not repair.
pub(super) fn repair_by_hand(kind: FsKind, device: &Path) -> String {
    let device = device.display();
    match kind {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => format!("e2fsck -f {device}"),
        FsKind::Xfs => format!("xfs_repair {device}"),
        FsKind::Btrfs => format!("btrfs check {device}"),
    }
}

/// The command that gives an unmounted file system another uuid. That of xfs reports success also where it did nothing.
pub(super) fn set_uuid(superblock: &Superblock, uuid: &str, device: &Path) -> Cmd {
    let cmd = match superblock.kind {
        // Killed while it rewrites all checksums, it leaves what only a person may repair. With the seed of the checksums
        // in the superblock there is nothing else to write.
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 if superblock.has_uuid_in_checksums() => {
            Cmd::new("tune2fs").args(["-O", "metadata_csum_seed", "-U", uuid])
        }
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => Cmd::new("tune2fs").args(["-U", uuid]),
        // What `xfs_admin -U` runs, which is a script.
        FsKind::Xfs => Cmd::new("xfs_db").args(["-x", "-c", &format!("uuid {uuid}")]),
        // Of the two ways this one rewrites the superblocks alone.
        FsKind::Btrfs => Cmd::new("btrfstune").args(["-f", "-M", uuid]),
    };
    cmd.arg(device).limit(CHECK_LIMIT)
}

/// The command that grows an unmounted file system of the ext family to its device.
pub(super) fn resize_ext(device: &Path) -> Cmd {
    Cmd::new("resize2fs").arg(device).limit(CHECK_LIMIT)
}

/// The command that shrinks an unmounted file system of the ext family; it counts in KiB.
pub(super) fn shrink_ext(device: &Path, to: Bytes) -> Cmd {
    let size = format!("{}K", to.get() >> 10);
    Cmd::new("resize2fs").arg(device).arg(size).limit(CHECK_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::switches;
    use crate::host::Kernel;

    #[test]
    fn commands_read_as_one_would_type_them() {
        let device = Path::new("/dev/dm-3");
        let options = MkfsOptions::parse(FsKind::Ext4, "-m 1").unwrap();
        let typed = |kind| mkfs(kind, &options, &[], "6ba7").arg(device).to_string();
        assert_eq!(
            typed(FsKind::Ext4),
            "mkfs.ext4 -F -q -b 4096 -E nodiscard -m 1 -U 6ba7 /dev/dm-3"
        );
        assert_eq!(typed(FsKind::Xfs), "mkfs.xfs -f -q -K -m 1 -m uuid=6ba7 /dev/dm-3");
        let tried = |kind| try_mkfs(kind, &options, &[], "6ba7").arg(device).to_string();
        assert_eq!(
            tried(FsKind::Ext4),
            "mkfs.ext4 -F -q -b 4096 -E nodiscard -m 1 -U 6ba7 -n /dev/dm-3"
        );
        assert_eq!(tried(FsKind::Xfs), "mkfs.xfs -f -q -K -m 1 -m uuid=6ba7 -N /dev/dm-3");
        assert_eq!(typed(FsKind::Btrfs), "mkfs.btrfs -f -q -K -m 1 -U 6ba7 /dev/dm-3");
        assert_eq!(tried(FsKind::Btrfs), typed(FsKind::Btrfs));
        assert_eq!(look(FsKind::Btrfs, device).to_string(), "btrfs check --readonly /dev/dm-3");
        assert_eq!(resize_ext(device).to_string(), "resize2fs /dev/dm-3");
        let shrink = shrink_ext(device, Bytes::mib(64));
        assert_eq!(shrink.to_string(), "resize2fs /dev/dm-3 65536K");
    }

    #[test]
    fn a_new_uuid_leaves_the_checksums_of_ext_as_they_are() {
        let made = |name: &str| {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/superblock");
            let head = std::fs::read(dir.join(name)).expect("the corpus is part of the repository");
            crate::fs::superblock::parse(&head).expect("a real superblock")
        };
        let typed = |name| set_uuid(&made(name), "6ba7", Path::new("/dev/dm-3")).to_string();
        assert_eq!(typed("ext4.made"), "tune2fs -O metadata_csum_seed -U 6ba7 /dev/dm-3");
        assert_eq!(typed("ext3.made"), "tune2fs -U 6ba7 /dev/dm-3");
        assert_eq!(typed("xfs.made"), "xfs_db -x -c 'uuid 6ba7' /dev/dm-3");
        assert_eq!(typed("btrfs.made"), "btrfstune -f -M 6ba7 /dev/dm-3");
    }

    /// mke2fs reads the last of two `-E`, and would discard then; of two `-O` as well.
    #[test]
    fn options_of_one_name_are_given_once() {
        let kernel = Kernel { release: "5.10.0".to_owned(), page_size: Bytes::new(4096) };
        let typed = |kind: FsKind, text: &str| {
            let options = MkfsOptions::parse(kind, text).unwrap();
            mkfs(kind, &options, &switches(kind, &kernel), "6ba7").to_string()
        };
        assert_eq!(
            typed(FsKind::Ext4, "-O quota -E stride=16"),
            "mkfs.ext4 -F -q -b 4096 -E nodiscard,stride=16 -O '^orphan_file,quota' -U 6ba7"
        );
        assert_eq!(
            typed(FsKind::Xfs, "-i size=1024 -m reflink=0"),
            "mkfs.xfs -f -q -K -i nrext64=0,exchange=0,size=1024 -n parent=0 -m reflink=0 -m uuid=6ba7"
        );
    }
}
