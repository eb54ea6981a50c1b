//! The features that a kernel can mount: pure.
//!
//! The tools come with the driver, the kernel with the node. `docs/src/reference/kernels.md` has the same table, with
//! its sources.

use crate::bytes::Bytes;
use crate::host::Kernel;
use crate::volume::{FsKind, MkfsOptions};

/// A version of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KernelVersion(u32, u32);

impl KernelVersion {
    /// The version in a release such as `6.1.0-30-amd64`.
    fn of(release: &str) -> Option<KernelVersion> {
        let mut parts = release.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.bytes().take_while(u8::is_ascii_digit).count();
        Some(KernelVersion(major, minor[..digits].parse().ok()?))
    }
}

impl std::fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Something that file systems can have on disk, and that kernels do not know, or do not write to, before one.
#[derive(Debug)]
struct Feature {
    of: &'static [FsKind],
    /// The option of mkfs, and the word in it that names the feature.
    option: &'static str,
    name: &'static str,
    since: KernelVersion,
    /// Whether a mkfs makes it without being asked to.
    is_default: bool,
}

const fn feature(
    of: &'static [FsKind],
    option: &'static str,
    name: &'static str,
    since: (u32, u32),
    is_default: bool,
) -> Feature {
    Feature { of, option, name, since: KernelVersion(since.0, since.1), is_default }
}

const XFS: &[FsKind] = &[FsKind::Xfs];
const EXT4: &[FsKind] = &[FsKind::Ext4];
const EXT: &[FsKind] = &[FsKind::Ext2, FsKind::Ext3, FsKind::Ext4];
const BTRFS: &[FsKind] = &[FsKind::Btrfs];

/// All of them, but those that every kernel since 4.2 has.
///
/// # Source
/// xfs: `mkfs/lts_*.conf` of xfsprogs and the releases of Linux. ext4: ext4(5), "KERNEL SUPPORT". btrfs:
/// `Documentation/mkfs.btrfs.rst` of btrfs-progs.
const FEATURES: [Feature; 16] = [
    feature(XFS, "-m", "rmapbt", (4, 8), true),
    feature(XFS, "-m", "reflink", (4, 9), true),
    feature(XFS, "-m", "bigtime", (5, 10), true),
    feature(XFS, "-m", "inobtcount", (5, 10), true),
    feature(XFS, "-i", "nrext64", (5, 19), true),
    feature(XFS, "-i", "exchange", (6, 10), true),
    feature(XFS, "-n", "parent", (6, 10), true),
    feature(EXT4, "-O", "metadata_csum_seed", (4, 4), true),
    feature(EXT4, "-O", "orphan_file", (5, 15), true),
    feature(EXT, "-O", "project", (4, 5), false),
    feature(EXT, "-O", "ea_inode", (4, 13), false),
    feature(EXT, "-O", "large_dir", (4, 13), false),
    feature(EXT, "-O", "fast_commit", (5, 10), false),
    feature(BTRFS, "-O", "free-space-tree", (4, 5), true),
    feature(BTRFS, "-R", "free-space-tree", (4, 5), false),
    feature(BTRFS, "-O", "block-group-tree", (6, 1), true),
];

/// The first Linux that mounts an xfs whose blocks are larger than its pages.
const LARGE_BLOCKS: KernelVersion = KernelVersion(6, 12);

impl Feature {
    /// What switches it off, as the value of its option.
    fn off(&self) -> String {
        match self.option {
            "-O" | "-R" => format!("^{}", self.name),
            _ => format!("{}=0", self.name),
        }
    }

    /// Returns whether options switch it on or off; `None` if they do not name it.
    fn chosen(&self, options: &MkfsOptions) -> Option<bool> {
        let of_option = |flag: &str| flag == self.option || LONG.contains(&(flag, self.option));
        let values = options.words().chunks_exact(2).filter(|pair| of_option(&pair[0]));
        let words = values.flat_map(|pair| pair[1].split(','));
        let mut chosen = words.filter_map(|word| {
            let (name, value) = word.split_once('=').unwrap_or((word, "1"));
            let is_off = name.starts_with('^') || value == "0";
            (name.trim_start_matches('^') == self.name).then_some(!is_off)
        });
        chosen.next_back()
    }
}

/// Long names of options.
const LONG: [(&str, &str); 2] = [("--features", "-O"), ("--runtime-features", "-R")];

/// A word for an option of mkfs that switches something off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    pub(super) option: &'static str,
    pub(super) value: String,
}

/// What the kernel of this release lacks of this kind.
fn lacking(kind: FsKind, release: &str) -> impl Iterator<Item = &'static Feature> {
    let version = KernelVersion::of(release);
    let lacks = move |one: &&Feature| {
        one.of.contains(&kind) && version.is_some_and(|version| version < one.since)
    };
    FEATURES.iter().filter(lacks)
}

/// Returns the features that mkfs has to switch off, so that the kernel mounts its result. A mkfs
/// that is too old to know one of them does not create it either.
pub fn switches(kind: FsKind, kernel: &Kernel) -> Vec<Switch> {
    let lacking = lacking(kind, &kernel.release).filter(|one| one.is_default);
    lacking.map(|one| Switch { option: one.option, value: one.off() }).collect()
}

/// Returns those that the options do not name.
pub(super) fn not_named<'a>(
    kind: FsKind,
    switches: &'a [Switch],
    options: &MkfsOptions,
) -> impl Iterator<Item = &'a Switch> {
    let is_named = |switch: &Switch| {
        let same = |one: &&Feature| {
            one.of.contains(&kind) && one.option == switch.option && one.off() == switch.value
        };
        FEATURES.iter().find(same).is_some_and(|one| one.chosen(options).is_some())
    };
    let named: Vec<bool> = switches.iter().map(is_named).collect();
    switches.iter().zip(named).filter(|(_, is_named)| !is_named).map(|(switch, _)| switch)
}

/// Returns why the kernel would not mount the result of mkfs with these options; `None` if it
/// would.
pub fn refusal(kind: FsKind, options: &MkfsOptions, kernel: &Kernel) -> Option<String> {
    let Kernel { release, page_size } = kernel;
    if let Some(one) = lacking(kind, release).find(|one| one.chosen(options) == Some(true)) {
        return Some(format!(
            "{} {} needs Linux {}, and the node has {release}",
            one.option, one.name, one.since
        ));
    }
    let is_old = KernelVersion::of(release).is_none_or(|version| version < LARGE_BLOCKS);
    let block = block_size(kind, options).filter(|block| block > page_size)?;
    match kind {
        FsKind::Xfs if is_old => Some(format!(
            "blocks of {block} are larger than the page size of the node, {page_size}: Linux \
             {release} cannot mount such an xfs, {LARGE_BLOCKS} can"
        )),
        FsKind::Btrfs => Some(format!(
            "sectors of {block} are larger than the page size of the node, {page_size}: it cannot \
             mount such a btrfs"
        )),
        FsKind::Xfs | FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => None,
    }
}

/// The size of blocks that options ask for, where that is one that the kernel has to be able to read at once.
fn block_size(kind: FsKind, options: &MkfsOptions) -> Option<Bytes> {
    let value = |flags: [&str; 2]| {
        let mut pairs = options.words().chunks_exact(2);
        pairs.find(|pair| flags.contains(&pair[0].as_str())).map(|pair| pair[1].as_str())
    };
    match kind {
        FsKind::Xfs => size_of(value(["-b", "-b"])?.strip_prefix("size=")?),
        FsKind::Btrfs => size_of(value(["-s", "--sectorsize"])?),
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => None,
    }
}

/// A size as mkfs reads it.
fn size_of(text: &str) -> Option<Bytes> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    Some(Bytes::new(digits.parse::<u64>().ok()?.checked_mul(1 << shift)?))
}

/// Returns the features that file systems are created without on a kernel, for people, such as `xfs
/// without nrext64 (Linux 5.19)`.
pub fn made_without(release: &str) -> Vec<String> {
    let of = |kind: FsKind| {
        let lacking = lacking(kind, release).filter(|one| one.is_default);
        let names: Vec<String> =
            lacking.map(|one| format!("{} (Linux {})", one.name, one.since)).collect();
        (!names.is_empty()).then(|| format!("{kind} without {}", names.join(", ")))
    };
    FsKind::ALL.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(release: &str) -> Kernel {
        Kernel { release: release.to_owned(), page_size: Bytes::new(4096) }
    }

    fn options(kind: FsKind, text: &str) -> MkfsOptions {
        MkfsOptions::parse(kind, text).unwrap()
    }

    #[test]
    fn what_a_kernel_lacks_is_switched_off() {
        let off = |kind, release: &str| {
            let switches = switches(kind, &kernel(release)).into_iter();
            switches.map(|one| format!("{} {}", one.option, one.value)).collect::<Vec<_>>()
        };
        let newest = ["-i exchange=0", "-n parent=0"];
        assert_eq!(off(FsKind::Xfs, "6.12.0"), [""; 0]);
        assert_eq!(off(FsKind::Xfs, "6.1.0-30-amd64"), newest);
        assert_eq!(off(FsKind::Xfs, "5.15.0-91-generic"), ["-i nrext64=0", newest[0], newest[1]]);
        let before = off(FsKind::Xfs, "5.4.0");
        assert_eq!(before[..3], ["-m bigtime=0", "-m inobtcount=0", "-i nrext64=0"]);
        assert_eq!(off(FsKind::Ext4, "5.10.0"), ["-O ^orphan_file"]);
        assert_eq!(off(FsKind::Ext4, "5.15.0"), [""; 0]);
        assert_eq!(off(FsKind::Ext3, "4.3.0"), [""; 0], "what ext4 has ext3 does not have");
        assert_eq!(off(FsKind::Btrfs, "5.15.0"), ["-O ^block-group-tree"]);
        for unknown in ["", "five", "5", "5.", "-1.2"] {
            assert_eq!(off(FsKind::Xfs, unknown), [""; 0], "of {unknown:?} nothing is known");
        }
    }

    #[test]
    fn what_is_named_by_the_class_is_not_switched_off() {
        let left = |kind, text: &str| {
            let switches = switches(kind, &kernel("5.10.0"));
            let options = options(kind, text);
            let left = not_named(kind, &switches, &options);
            left.map(|one| one.value.clone()).collect::<Vec<_>>()
        };
        assert_eq!(left(FsKind::Ext4, "-O ^orphan_file,quota"), [""; 0]);
        assert_eq!(left(FsKind::Ext4, "-O quota"), ["^orphan_file"]);
        assert_eq!(left(FsKind::Xfs, "-i size=1024,nrext64=0"), ["exchange=0", "parent=0"]);
        assert_eq!(left(FsKind::Btrfs, "--features ^block-group-tree"), [""; 0]);
    }

    #[test]
    fn options_that_the_kernel_does_not_mount_are_refused() {
        let refusal =
            |kind, text: &str, release: &str| refusal(kind, &options(kind, text), &kernel(release));
        let words = refusal(FsKind::Xfs, "-i nrext64=1", "5.15.0-91-generic");
        let said = "-i nrext64 needs Linux 5.19, and the node has 5.15.0-91-generic";
        assert_eq!(words.as_deref(), Some(said));
        for (kind, text, release, is_refused) in [
            (FsKind::Xfs, "-i nrext64=1", "5.19.0", false),
            (FsKind::Xfs, "-i nrext64=0", "5.15.0", false),
            (FsKind::Xfs, "-b size=64k", "6.8.0", true),
            (FsKind::Xfs, "-b size=64k", "6.12.1", false),
            (FsKind::Xfs, "-b size=4096", "5.4.0", false),
            (FsKind::Ext4, "-O quota,orphan_file", "5.10.0", true),
            (FsKind::Ext4, "-O orphan_file,^orphan_file", "5.10.0", false),
            (FsKind::Ext4, "-O project", "4.4.0", true),
            (FsKind::Ext4, "-O project", "", false),
            (FsKind::Btrfs, "-s 16k", "6.12.0", true),
            (FsKind::Btrfs, "--sectorsize 4k", "6.12.0", false),
            (FsKind::Btrfs, "-n 64k", "6.12.0", false),
            (FsKind::Btrfs, "-O block-group-tree", "6.0.0", true),
        ] {
            let words = refusal(kind, text, release);
            assert_eq!(words.is_some(), is_refused, "{kind} {text} on {release}: {words:?}");
        }
    }

    #[test]
    fn what_file_systems_are_made_without_is_said() {
        assert_eq!(made_without("6.12.48+deb13-amd64"), [""; 0]);
        assert_eq!(
            made_without("5.14.0-427.el9"),
            [
                "ext4 without orphan_file (Linux 5.15)",
                "xfs without nrext64 (Linux 5.19), exchange (Linux 6.10), parent (Linux 6.10)",
                "btrfs without block-group-tree (Linux 6.1)",
            ]
        );
    }

    /// People read the same table there.
    #[test]
    fn the_page_has_the_same_table() {
        let page = include_str!("../../../../docs/src/reference/kernels.md");
        for one in FEATURES.iter().filter(|one| one.is_default) {
            let row = page.lines().find(|line| {
                let mut cells = line.split('|').skip(2);
                cells.next().is_some_and(|options| options.contains(one.name))
            });
            let row = row.unwrap_or_else(|| panic!("{} has no row", one.name));
            let version = row.split('|').nth(3).unwrap_or_default();
            assert!(version.contains(&one.since.to_string()), "{}: {version}", one.name);
        }
    }
}
