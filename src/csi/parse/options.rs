//! Mount options, against an allow-list.
//!
//! An option reaches the list only if it changes nothing beyond this one mount: none names another
//! device, file or subvolume, none replaces the mount by another, none lets a tenant's damaged file
//! system stop the machine. The kernel refuses what its file system does not know.

/// Options without a value.
#[rustfmt::skip]
const FLAGS: &[&str] = &[
    // Of any mount.
    "async", "atime", "defaults", "diratime", "dirsync", "exec", "lazytime", "mand", "noatime",
    "nodev", "nodiratime", "noexec", "nolazytime", "nomand", "norelatime", "nostrictatime",
    "nosuid", "relatime", "rw", "strictatime", "suid", "sync",
    // Of several file systems.
    "acl", "barrier", "discard", "grpquota", "noacl", "nobarrier", "nodiscard", "noquota",
    "prjquota", "quota", "usrquota",
    // ext4.
    "auto_da_alloc", "delalloc", "dioread_lock", "dioread_nolock", "grpid", "i_version",
    "init_itable", "journal_async_commit", "journal_checksum", "minixdf", "noauto_da_alloc",
    "nodelalloc", "nogrpid", "noinit_itable", "nouser_xattr", "user_xattr",
    // xfs.
    "filestreams", "gquota", "inode32", "inode64", "largeio", "noalign", "nolargeio", "nouuid",
    "pquota", "swalloc", "uquota", "wsync",
    // btrfs.
    "autodefrag", "compress", "datacow", "datasum", "flushoncommit", "noautodefrag", "nodatacow",
    "nodatasum", "noflushoncommit", "nossd", "ssd",
];

/// Options whose value is a number, with a unit at most.
#[rustfmt::skip]
const NUMBERS: &[&str] = &[
    "allocsize", "commit", "inode_readahead_blks", "init_itable", "journal_ioprio", "logbsize",
    "logbufs", "max_batch_time", "max_inline", "min_batch_time", "stripe", "sunit", "swidth",
    "thread_pool",
];

/// Options whose value is one of these words.
#[rustfmt::skip]
const WORDS: &[(&str, &[&str])] = &[
    ("data", &["journal", "ordered", "writeback"]),
    ("errors", &["continue", "remount-ro"]),
    ("discard", &["async", "sync"]),
    ("space_cache", &["v2"]),
    ("compress", &["lzo", "no", "none", "zlib", "zstd"]),
    ("compress-force", &["lzo", "no", "none", "zlib", "zstd"]),
];

/// Parse the options of a mount, each one or several with commas between; `ro` is taken out and
/// told apart.
///
/// # Errors
/// A sentence about the first option that is not on the list.
pub(super) fn parse(flags: &[String]) -> Result<(Vec<String>, bool), String> {
    let given = flags.iter().flat_map(|flag| flag.split(','));
    let (read_only, options): (Vec<&str>, Vec<&str>) = given.partition(|option| *option == "ro");
    match options.iter().find(|option| !is_allowed(option)) {
        Some(option) => Err(format!(
            "{option:?} is not on the list of options that concern this mount alone; see \
             docs/parameters.md"
        )),
        None => Ok((
            options.into_iter().map(str::to_owned).collect(),
            !read_only.is_empty(),
        )),
    }
}

fn is_allowed(option: &str) -> bool {
    let Some((key, value)) = option.split_once('=') else {
        return FLAGS.contains(&option);
    };
    let (word, level) = value.split_once(':').unwrap_or((value, "1"));
    let has_level = key.starts_with("compress") || !value.contains(':');
    NUMBERS.contains(&key) && is_number(value)
        || WORDS
            .iter()
            .any(|(known, words)| *known == key && words.contains(&word))
            && has_level
            && is_number(level)
}

/// Up to nine digits and one letter of a unit.
fn is_number(text: &str) -> bool {
    let digits = text
        .strip_suffix(['k', 'm', 'g', 'K', 'M', 'G'])
        .unwrap_or(text);
    (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}
