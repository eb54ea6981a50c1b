//! The table: which tool does what for which file system.

use std::path::Path;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::fs::superblock::{Facts, Superblock};
use crate::host::Cmd;
use crate::volume::FsKind;

/// Making a file system writes little, but a slow disk may take its time to flush it.
const MAKE_LIMIT: Duration = Duration::from_secs(600);
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

/// Whether this file system can grow while it is mounted with its [`driver`].
pub fn grows_online(superblock: &Superblock) -> bool {
    !matches!(superblock.facts, Facts::Ext(ext) if ext.sparse_super2)
}

/// The command that makes a file system of this uuid; discards nothing, because the device has just been wiped.
pub(super) fn mkfs(kind: FsKind, options: &[String], uuid: &str, device: &Path) -> Cmd {
    let (program, fixed): (_, &[&str]) = match kind {
        // Without `-b` a device below 512 MiB gets blocks of 1 KiB, for good.
        FsKind::Ext2 => ("mkfs.ext2", &["-F", "-q", "-b", "4096", "-E", "nodiscard"]),
        FsKind::Ext3 => ("mkfs.ext3", &["-F", "-q", "-b", "4096", "-E", "nodiscard"]),
        FsKind::Ext4 => ("mkfs.ext4", &["-F", "-q", "-b", "4096", "-E", "nodiscard"]),
        FsKind::Xfs => ("mkfs.xfs", &["-f", "-q", "-K"]),
        FsKind::Btrfs => ("mkfs.btrfs", &["-f", "-q", "-K"]),
    };
    let cmd = Cmd::new(program).args(fixed).args(options);
    let cmd = match kind {
        FsKind::Xfs => cmd.arg("-m").arg(format!("uuid={uuid}")),
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 | FsKind::Btrfs => cmd.arg("-U").arg(uuid),
    };
    cmd.arg(device).limit(MAKE_LIMIT)
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

/// What a person types to repair what [`repair`] may not.
pub(super) fn repair_by_hand(kind: FsKind, device: &Path) -> String {
    let device = device.display();
    match kind {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => format!("e2fsck -f {device}"),
        FsKind::Xfs => format!("xfs_repair {device}"),
        FsKind::Btrfs => format!("btrfs check {device}"),
    }
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

    #[test]
    fn commands_read_as_one_would_type_them() {
        let device = Path::new("/dev/dm-3");
        let options = ["-m".to_owned(), "1".to_owned()];
        let typed = |kind| mkfs(kind, &options, "6ba7", device).to_string();
        assert_eq!(
            typed(FsKind::Ext4),
            "mkfs.ext4 -F -q -b 4096 -E nodiscard -m 1 -U 6ba7 /dev/dm-3"
        );
        assert_eq!(typed(FsKind::Xfs), "mkfs.xfs -f -q -K -m 1 -m uuid=6ba7 /dev/dm-3");
        assert_eq!(typed(FsKind::Btrfs), "mkfs.btrfs -f -q -K -m 1 -U 6ba7 /dev/dm-3");
        assert_eq!(look(FsKind::Btrfs, device).to_string(), "btrfs check --readonly /dev/dm-3");
        assert_eq!(resize_ext(device).to_string(), "resize2fs /dev/dm-3");
        let shrink = shrink_ext(device, Bytes::mib(64));
        assert_eq!(shrink.to_string(), "resize2fs /dev/dm-3 65536K");
    }
}
