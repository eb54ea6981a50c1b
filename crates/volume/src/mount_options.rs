//! Mount options that a claim may ask for: an allow-list, because options are written by people who
//! may not be trusted with the node.

use crate::{FsKind, nearest};

/// Options that are flags of the mount call; their opposites are the default and not needed.
const FLAGS: &[&str] = &[
    "ro",
    "rw",
    "nodev",
    "nosuid",
    "noexec",
    "sync",
    "dirsync",
    "noatime",
    "nodiratime",
    "relatime",
    "strictatime",
    "lazytime",
    "nosymfollow",
    "defaults",
];

/// One option of one file system: its name, and which values it takes.
struct MountOption {
    name: &'static str,
    value: MountOptionValue,
}

enum MountOptionValue {
    /// It stands alone.
    None,
    /// A decimal number of at most ten digits.
    Number,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// Either alone or one of these.
    MaybeOneOf(&'static [&'static str]),
}

const fn flag(name: &'static str) -> MountOption {
    MountOption { name, value: MountOptionValue::None }
}

const fn number(name: &'static str) -> MountOption {
    MountOption { name, value: MountOptionValue::Number }
}

const fn one_of(name: &'static str, values: &'static [&'static str]) -> MountOption {
    MountOption { name, value: MountOptionValue::OneOf(values) }
}

const ERRORS: MountOption = one_of("errors", &["continue", "remount-ro"]);

const EXT2: &[MountOption] = &[
    flag("acl"),
    flag("user_xattr"),
    flag("grpid"),
    flag("nogrpid"),
    flag("discard"),
    flag("nodiscard"),
    ERRORS,
];

const EXT: &[MountOption] = &[
    flag("acl"),
    flag("user_xattr"),
    flag("grpid"),
    flag("nogrpid"),
    flag("discard"),
    flag("nodiscard"),
    flag("barrier"),
    flag("delalloc"),
    flag("nodelalloc"),
    flag("auto_da_alloc"),
    flag("noauto_da_alloc"),
    flag("dioread_nolock"),
    flag("dioread_lock"),
    flag("init_itable"),
    flag("noinit_itable"),
    number("commit"),
    number("stripe"),
    number("inode_readahead_blks"),
    number("max_batch_time"),
    number("min_batch_time"),
    flag("usrquota"),
    flag("grpquota"),
    flag("prjquota"),
    one_of("data", &["ordered", "journal", "writeback"]),
    ERRORS,
];

const XFS: &[MountOption] = &[
    flag("discard"),
    flag("nodiscard"),
    flag("inode32"),
    flag("inode64"),
    flag("largeio"),
    flag("nolargeio"),
    flag("swalloc"),
    flag("wsync"),
    flag("grpid"),
    flag("nogrpid"),
    flag("noalign"),
    flag("uquota"),
    flag("usrquota"),
    flag("quota"),
    flag("uqnoenforce"),
    flag("qnoenforce"),
    flag("gquota"),
    flag("grpquota"),
    flag("gqnoenforce"),
    flag("pquota"),
    flag("prjquota"),
    flag("pqnoenforce"),
    flag("noquota"),
    number("logbufs"),
    one_of("logbsize", &["16k", "32k", "64k", "128k", "256k"]),
    one_of(
        "allocsize",
        &["64k", "128k", "256k", "512k", "1m", "2m", "4m", "8m", "16m", "32m", "64m"],
    ),
];

const COMPRESSION: &[&str] = &["zlib", "lzo", "zstd", "no"];

const BTRFS: &[MountOption] = &[
    flag("acl"),
    flag("noacl"),
    flag("autodefrag"),
    flag("noautodefrag"),
    flag("barrier"),
    flag("datacow"),
    flag("nodatacow"),
    flag("datasum"),
    flag("nodatasum"),
    flag("flushoncommit"),
    flag("noflushoncommit"),
    flag("ssd"),
    flag("nossd"),
    flag("ssd_spread"),
    flag("nossd_spread"),
    flag("nodiscard"),
    number("commit"),
    number("max_inline"),
    number("metadata_ratio"),
    number("thread_pool"),
    one_of("compress", COMPRESSION),
    one_of("compress-force", COMPRESSION),
    one_of("space_cache", &["v2"]),
    MountOption { name: "discard", value: MountOptionValue::MaybeOneOf(&["sync", "async"]) },
];

/// Checks the mount options of a claim: one an element, each allowed for its file system.
///
/// Without a file system only the options that every one has are allowed. The order is preserved.
///
/// # Errors
/// A message with the first option that is not allowed, and why.
///
/// # Source
/// ext4(5), xfs(5), btrfs(5), mount(8). Left out is what affects more than the volume (other
/// devices, helper programs, other mounts, security labels), what lets its content act on the node
/// (`suid`, `dev`), and what reduces durability (`nobarrier`).
pub fn parse_mount_options(
    kind: Option<FsKind>,
    options: &[String],
) -> Result<Vec<String>, String> {
    options.iter().map(|option| parse_option(kind, option).map(|()| option.clone())).collect()
}

fn parse_option(kind: Option<FsKind>, option: &str) -> Result<(), String> {
    let refused = |why: &str| Err(format!("mount option {option:?}: {why}"));
    if option.contains(',') {
        return refused("write each option as an element of its own, without a comma");
    }
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    if let Some(why) = why_never(name) {
        return refused(why);
    }
    if FLAGS.contains(&name) {
        return match value {
            None => Ok(()),
            Some(_) => refused("it takes no value"),
        };
    }
    match known(kind).iter().find(|known| known.name == name) {
        None => refused(&unlisted(kind, name)),
        Some(known) => known.value.accepts(value).or_else(|why| refused(&why)),
    }
}

fn known(kind: Option<FsKind>) -> &'static [MountOption] {
    match kind {
        None => &[],
        Some(FsKind::Ext2) => EXT2,
        Some(FsKind::Ext3 | FsKind::Ext4) => EXT,
        Some(FsKind::Xfs) => XFS,
        Some(FsKind::Btrfs) => BTRFS,
    }
}

/// Why an option is not taken that no one knows here, with the one that was probably meant, or all.
fn unlisted(kind: Option<FsKind>, name: &str) -> String {
    let kinds = kind.map_or_else(|| FsKind::ALL.to_vec(), |kind| vec![kind]);
    let own = kinds.into_iter().flat_map(|kind| known(Some(kind))).map(|known| known.name);
    let names: Vec<&str> = FLAGS.iter().copied().chain(own).collect();
    let why = kind.map_or_else(
        || "it is not allowed for every file system".to_owned(),
        |kind| format!("it is not allowed for {kind}"),
    );
    match nearest(name, &names) {
        Some(same) if same == name => why,
        Some(nearest) => format!("{why}; did you mean {nearest}?"),
        None if kind.is_none() => why,
        None => format!("{why}: {}", names.join(", ")),
    }
}

impl MountOptionValue {
    fn accepts(&self, value: Option<&str>) -> Result<(), String> {
        let listed = |list: &[&str], value| {
            list.contains(&value)
                .then_some(())
                .ok_or_else(|| format!("its values are {}", list.join(", ")))
        };
        match (self, value) {
            (MountOptionValue::None | MountOptionValue::MaybeOneOf(_), None) => Ok(()),
            (MountOptionValue::None, Some(_)) => Err("it takes no value".to_owned()),
            (MountOptionValue::Number, Some(digits))
                if (1..=10).contains(&digits.len())
                    && digits.bytes().all(|b| b.is_ascii_digit()) =>
            {
                Ok(())
            }
            (MountOptionValue::Number, _) => Err("its value is a whole number".to_owned()),
            (MountOptionValue::OneOf(list) | MountOptionValue::MaybeOneOf(list), Some(value)) => {
                listed(list, value)
            }
            (MountOptionValue::OneOf(list), None) => {
                Err(format!("its values are {}", list.join(", ")))
            }
        }
    }
}

/// Why an option is refused whatever the file system.
fn why_never(name: &str) -> Option<&'static str> {
    if name.starts_with("X-") || name.starts_with("x-") {
        return Some("it is read by programs of the node, not by the file system");
    }
    Some(match name {
        "helper" | "uhelper" => "it would start a program on the node",
        "loop" | "offset" | "sizelimit" | "device" | "journal_path" | "journal_dev" | "logdev"
        | "rtdev" => "it would use another device",
        "bind" | "rbind" | "move" | "remount" | "private" | "shared" | "slave" | "unbindable"
        | "rprivate" | "rshared" | "rslave" | "runbindable" | "subvol" | "subvolid"
        | "degraded" => "it would change what is mounted",
        "suid" | "dev" => "it would let the volume's content act on the node",
        "context" | "fscontext" | "defcontext" | "rootcontext" => {
            "security labels come from the pod's security context"
        }
        "noload" | "norecovery" => "it would mount a file system without replaying its journal",
        "nouuid" => "it would let two copies of a file system be mixed up",
        "nobarrier" => "it would lose acknowledged writes at a power failure",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(kind: Option<FsKind>, option: &str) -> Result<Vec<String>, String> {
        parse_mount_options(kind, &[option.to_owned()])
    }

    #[test]
    fn takes_what_is_listed() {
        for (kind, option) in [
            (None, "noatime"),
            (Some(FsKind::Ext4), "data=journal"),
            (Some(FsKind::Ext4), "commit=30"),
            (Some(FsKind::Ext4), "prjquota"),
            (Some(FsKind::Ext4), "usrquota"),
            (Some(FsKind::Ext4), "grpquota"),
            (Some(FsKind::Xfs), "prjquota"),
            (Some(FsKind::Xfs), "usrquota"),
            (Some(FsKind::Xfs), "grpquota"),
            (Some(FsKind::Xfs), "pqnoenforce"),
            (Some(FsKind::Xfs), "uqnoenforce"),
            (Some(FsKind::Xfs), "gqnoenforce"),
            (Some(FsKind::Xfs), "logbsize=256k"),
            (Some(FsKind::Btrfs), "compress=zstd"),
            (Some(FsKind::Btrfs), "discard"),
            (Some(FsKind::Btrfs), "discard=async"),
        ] {
            assert_eq!(parse(kind, option), Ok(vec![option.to_owned()]), "{option}");
        }
    }

    #[test]
    fn keeps_the_order() {
        let options = ["noatime", "errors=remount-ro", "nosuid"].map(str::to_owned);
        assert_eq!(parse_mount_options(Some(FsKind::Ext4), &options), Ok(options.to_vec()));
    }

    #[test]
    fn refuses_what_reaches_beyond_the_volume() {
        for option in [
            "X-mount.mkdir",
            "x-systemd.automount",
            "helper=/bin/sh",
            "uhelper=hal",
            "loop",
            "loop=/dev/loop0",
            "bind",
            "move",
            "remount",
            "suid",
            "dev",
            "context=system_u:object_r:x:s0",
            "device=/dev/sda",
            "journal_path=/dev/sda",
            "journal_dev=0x801",
            "logdev=/dev/sda",
            "rtdev=/dev/sda",
            "nobarrier",
            "subvol=/",
            "noatime,suid",
            "data=ordered,dev",
            "",
            "=",
            "ro=1",
            "commit=",
            "commit=-1",
            "commit=1e9",
            "commit=99999999999",
            "data",
            "data=none",
            "discard=fast",
            "discard=",
            " ro",
            "ro ",
            "RO",
            "errors=panic",
        ] {
            for kind in [None].into_iter().chain(FsKind::ALL.map(Some)) {
                assert!(parse(kind, option).is_err(), "{option:?} on {kind:?}");
            }
        }
    }

    #[test]
    fn an_unknown_option_is_answered_with_the_nearest_or_with_all() {
        for (kind, option, hint) in [
            (Some(FsKind::Ext4), "noatme", "; did you mean noatime?"),
            (Some(FsKind::Xfs), "logbusf=8", "; did you mean logbufs?"),
            (None, "comit=5", "; did you mean commit?"),
        ] {
            let said = parse(kind, option).unwrap_err();
            assert!(said.ends_with(hint), "{said}");
        }
        let said = parse(Some(FsKind::Xfs), "data=journal").unwrap_err();
        let all = "\"data=journal\": it is not allowed for xfs: ro, rw, nodev, ";
        assert!(said.contains(all) && said.ends_with("logbsize, allocsize"), "{said}");
    }

    #[test]
    fn says_why() {
        assert_eq!(
            parse(Some(FsKind::Ext4), "data=fast"),
            Err("mount option \"data=fast\": its values are ordered, journal, writeback".to_owned())
        );
    }

    fn any_kind() -> impl Strategy<Value = Option<FsKind>> {
        prop::option::of(prop::sample::select(FsKind::ALL.to_vec()))
    }

    proptest! {
        #[test]
        fn what_is_taken_is_plain(
            kind in any_kind(),
            option in "(commit|data|errors|ro|discard|compress|suid|loop)?[=,]?[a-z0-9/=, .-]{0,12}",
        ) {
            if let Ok(taken) = parse(kind, &option) {
                prop_assert_eq!(&taken, std::slice::from_ref(&option));
                let plain = |c: char| c.is_ascii_alphanumeric() || "_-=".contains(c);
                prop_assert!(option.chars().all(plain), "{:?}", option);
                prop_assert!(!["suid", "dev", "loop", "remount", "bind"].contains(&option.as_str()));
            }
        }

        #[test]
        fn any_text_is_answered(kind in any_kind(), option in "\\PC{0,40}") {
            let _ = parse(kind, &option);
        }
    }
}
