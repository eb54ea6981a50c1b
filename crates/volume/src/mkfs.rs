//! Options for making file systems, against an allow-list per file system.
//!
//! An option reaches the list only if it changes nothing beyond the new file system: none names
//! another device or file, none makes it smaller than its volume, none undoes what growing needs.

use crate::FsKind;

/// Longest text of options in bytes; with everything escaped it still fits an LVM tag.
const LONGEST: usize = 256;

/// Options for `mkfs`, checked against the allow-list of their file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MkfsOptions(Vec<String>);

impl MkfsOptions {
    /// Parses options as they are typed, with blanks between: `-i 8192 -O ^has_journal`.
    ///
    /// There is no quoting, because no allowed value needs it.
    ///
    /// # Errors
    /// A sentence about the first option that is not on the list, given twice, or whose value is bad.
    pub fn parse(fs: FsKind, text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("longer than {LONGEST} bytes"));
        }
        let known = options_of(fs);
        let mut words = Vec::new();
        let mut rest = text.split_ascii_whitespace();
        while let Some(word) = rest.next() {
            let (flag, joined) = match word.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value)),
                _ => (word, None),
            };
            let Some((_, value)) = known.iter().find(|(names, _)| names.contains(&flag)) else {
                return Err(format!("{flag:?} is not allowed for {fs}: {}", listed(known)));
            };
            if words.iter().any(|word| word == flag) {
                return Err(format!("{flag} is given twice"));
            }
            words.push(flag.to_owned());
            let given = joined.or_else(|| rest.next());
            let given = given.ok_or_else(|| format!("{flag} needs a value"))?;
            value.check(given).map_err(|reason| format!("{flag} {given:?}: {reason}"))?;
            words.push(given.to_owned());
        }
        Ok(MkfsOptions(words))
    }

    /// The words for the command line, in order: an option, its value, an option, its value.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

fn listed(known: Options) -> String {
    let names: Vec<&str> = known.iter().map(|(names, _)| names[0]).collect();
    format!("use {}", names.join(", "))
}

/// The names of an option, and what its value may be.
type Options = &'static [(&'static [&'static str], MkfsValue)];

/// What a value may be.
enum MkfsValue {
    /// Digits.
    Number,
    /// Digits, and a unit.
    Size,
    /// 0 to 50, with decimals.
    Percent,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Several of these words, each with `^` before it to turn it off.
    Features(&'static [&'static str]),
    /// Several keys, each with a value of its own; `None` takes none.
    Keys(&'static [(&'static str, Option<MkfsValue>)]),
    /// A name of at most so many letters.
    Label(usize),
}

impl MkfsValue {
    fn check(&self, text: &str) -> Result<(), String> {
        let fits = match self {
            MkfsValue::Number => is_number(text),
            MkfsValue::Size => {
                is_number(text.strip_suffix(['k', 'm', 'g', 'K', 'M', 'G']).unwrap_or(text))
            }
            MkfsValue::Percent => is_percent(text),
            MkfsValue::Label(most) => is_label(text, *most),
            MkfsValue::Word(words) => words.contains(&text),
            MkfsValue::Features(words) => {
                text.split(',').all(|word| words.contains(&word.strip_prefix('^').unwrap_or(word)))
            }
            MkfsValue::Keys(keys) => {
                return text.split(',').try_for_each(|pair| check_pair(keys, pair));
            }
        };
        if fits { Ok(()) } else { Err(format!("use {}", self.said())) }
    }

    fn said(&self) -> String {
        match self {
            MkfsValue::Number => "a number".to_owned(),
            MkfsValue::Size => "a number with k, m, g or no unit".to_owned(),
            MkfsValue::Percent => "a percentage from 0 to 50".to_owned(),
            MkfsValue::Label(most) => {
                format!(
                    "1 to {most} of A-Z, a-z, 0-9, dot, dash and underscore, a letter or digit first"
                )
            }
            MkfsValue::Word(words) => format!("one of {}", words.join(", ")),
            MkfsValue::Features(words) => {
                format!("some of {}, with commas between", words.join(", "))
            }
            MkfsValue::Keys(keys) => {
                let names: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
                format!("some of {}, with commas between", names.join(", "))
            }
        }
    }
}

fn check_pair(
    keys: &'static [(&'static str, Option<MkfsValue>)],
    pair: &str,
) -> Result<(), String> {
    let (key, given) = pair.split_once('=').map_or((pair, None), |(key, v)| (key, Some(v)));
    let Some((_, value)) = keys.iter().find(|(known, _)| *known == key) else {
        return Err(format!("use {}", MkfsValue::Keys(keys).said()));
    };
    match (value, given) {
        (None, None) => Ok(()),
        (Some(value), Some(given)) => value.check(given).map_err(|why| format!("{key}: {why}")),
        (None, Some(_)) => Err(format!("{key} takes no value")),
        (Some(value), None) => Err(format!("{key}: use {}", value.said())),
    }
}

fn is_number(text: &str) -> bool {
    (1..=12).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_percent(text: &str) -> bool {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    is_number(whole) && is_number(part) && text.parse::<f64>().is_ok_and(|percent| percent <= 50.0)
}

fn is_label(text: &str, most: usize) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    text.len() <= most
        && text.bytes().all(plain)
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

fn options_of(fs: FsKind) -> Options {
    match fs {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => EXT,
        FsKind::Xfs => XFS,
        FsKind::Btrfs => BTRFS,
    }
}

const SWITCH: Option<MkfsValue> = Some(MkfsValue::Word(&["0", "1"]));
const NUMBER: Option<MkfsValue> = Some(MkfsValue::Number);
const SIZE: Option<MkfsValue> = Some(MkfsValue::Size);

/// mke2fs(8). Not on it, among others: `-O journal_dev` and `-J device=`, which name a device;
/// `-E offset=`, which moves the file system; `-b`, because small blocks stay for good; `-d` and `-z`, which name files; `mmp`, which lets
/// each mount wait.
#[rustfmt::skip]
const EXT: Options = &[
    (&["-e"], MkfsValue::Word(&["continue", "remount-ro"])),
    (&["-i"], MkfsValue::Number),
    (&["-I"], MkfsValue::Word(&["128", "256", "512", "1024", "2048", "4096"])),
    (&["-J"], MkfsValue::Keys(&[("size", NUMBER), ("fast_commit_size", NUMBER)])),
    (&["-L"], MkfsValue::Label(16)),
    (&["-m"], MkfsValue::Percent),
    (&["-N"], MkfsValue::Number),
    (&["-T"], MkfsValue::Word(&["big", "default", "floppy", "huge", "largefile", "largefile4", "news", "small"])),
    (&["-O"], MkfsValue::Features(&[
        "64bit", "dir_index", "dir_nlink", "ea_inode", "ext_attr", "extent", "extra_isize",
        "fast_commit", "filetype", "flex_bg", "has_journal", "huge_file", "inline_data",
        "large_dir", "large_file", "meta_bg", "metadata_csum", "metadata_csum_seed",
        "orphan_file", "project", "quota", "resize_inode", "sparse_super", "uninit_bg",
    ])),
    (&["-E"], MkfsValue::Keys(&[
        ("lazy_itable_init", SWITCH), ("lazy_journal_init", SWITCH),
        ("packed_meta_blocks", SWITCH), ("resize", NUMBER),
        ("stride", NUMBER), ("stripe_width", NUMBER), ("stripe-width", NUMBER),
    ])),
];

/// mkfs.xfs(8). Not on it, among others: `-l logdev=`, `-r`, `-d file` and `-d name=`, which name
/// devices and files, `-p` and `-c`, which name files, and `-d size=`.
#[rustfmt::skip]
const XFS: Options = &[
    (&["-b"], MkfsValue::Keys(&[("size", SIZE)])),
    (&["-d"], MkfsValue::Keys(&[
        ("agcount", NUMBER), ("agsize", SIZE), ("noalign", None), ("su", SIZE), ("sunit", NUMBER),
        ("sw", NUMBER), ("swidth", NUMBER),
    ])),
    (&["-i"], MkfsValue::Keys(&[
        ("maxpct", Some(MkfsValue::Percent)), ("nrext64", SWITCH), ("perblock", NUMBER),
        ("size", SIZE), ("sparse", SWITCH),
    ])),
    (&["-l"], MkfsValue::Keys(&[
        ("lazy-count", SWITCH), ("size", SIZE), ("su", SIZE), ("sunit", NUMBER),
        ("version", Some(MkfsValue::Word(&["2"]))),
    ])),
    (&["-L"], MkfsValue::Label(12)),
    (&["-m"], MkfsValue::Keys(&[
        ("bigtime", SWITCH), ("crc", SWITCH), ("finobt", SWITCH), ("inobtcount", SWITCH),
        ("reflink", SWITCH), ("rmapbt", SWITCH),
    ])),
    (&["-n"], MkfsValue::Keys(&[
        ("ftype", SWITCH), ("size", SIZE), ("version", Some(MkfsValue::Word(&["2", "ci"]))),
    ])),
    (&["-s"], MkfsValue::Keys(&[("size", SIZE)])),
];

/// mkfs.btrfs(8). Not on it, among others: `--rootdir`, which names a directory, `--byte-count`,
/// `--uuid`, and what needs several devices.
#[rustfmt::skip]
const BTRFS: Options = &[
    (&["--csum", "--checksum"], MkfsValue::Word(&["blake2", "crc32c", "sha256", "xxhash"])),
    (&["-d", "--data"], MkfsValue::Word(&["dup", "single"])),
    (&["-L", "--label"], MkfsValue::Label(64)),
    (&["-m", "--metadata"], MkfsValue::Word(&["dup", "single"])),
    (&["-n", "--nodesize"], MkfsValue::Size),
    (&["-O", "--features"], MkfsValue::Features(&[
        "block-group-tree", "extref", "free-space-tree", "no-holes", "quota", "skinny-metadata",
    ])),
    (&["-R", "--runtime-features"], MkfsValue::Features(&["free-space-tree", "quota"])),
    (&["-s", "--sectorsize"], MkfsValue::Size),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn takes_what_is_listed() {
        for (fs, text) in [
            (FsKind::Ext4, ""),
            (FsKind::Ext4, "-i 8192 -I 256 -m 0.5 -N 100000 -L data_1"),
            (FsKind::Ext3, "-O ^dir_index,large_file -E stride=16,stripe_width=64"),
            (FsKind::Ext2, "-E lazy_itable_init=0 -J size=64 -m 50 -L sixteen--letters"),
            (FsKind::Xfs, "-m crc=1,reflink=0 -i size=1k -d su=64k,sw=4 -l size=64m -s size=4k"),
            (FsKind::Btrfs, "-n 16k -m dup -d single -O ^no-holes --csum xxhash -L a.b"),
        ] {
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            let parsed = MkfsOptions::parse(fs, text).unwrap();
            assert_eq!(parsed.words(), words);
        }
    }

    #[test]
    fn takes_values_joined_to_long_names() {
        let parsed = MkfsOptions::parse(FsKind::Btrfs, "--nodesize=16k").unwrap();
        assert_eq!(parsed.words(), ["--nodesize", "16k"]);
        let joined = MkfsOptions::parse(FsKind::Ext4, "-i=8192").unwrap_err();
        assert!(joined.starts_with("\"-i=8192\" is not allowed for ext4"), "{joined}");
    }

    #[test]
    fn the_longest_text_is_taken_and_a_longer_one_is_not() {
        let text = format!("-i 8192{}", " ".repeat(LONGEST - "-i 8192".len()));
        assert_eq!(MkfsOptions::parse(FsKind::Ext4, &text).unwrap().words(), ["-i", "8192"]);
        assert!(MkfsOptions::parse(FsKind::Ext4, &(text + " ")).is_err());
    }

    #[test]
    fn refuses_what_reaches_beyond_the_new_file_system() {
        let too_long = format!("-i 8192{}", " ".repeat(LONGEST));
        for (fs, text) in [
            (FsKind::Ext4, "/dev/sda"),
            (FsKind::Ext4, "-O journal_dev"),
            (FsKind::Ext4, "-J device=/dev/sda"),
            (FsKind::Ext4, "-J size=4,device=LABEL=x"),
            (FsKind::Ext4, "-E offset=1048576"),
            (FsKind::Ext4, "-d /etc"),
            (FsKind::Ext4, "-z /tmp/undo"),
            (FsKind::Ext4, "-L /dev/sda"),
            (FsKind::Ext4, "-L -n"),
            (FsKind::Ext4, "-i"),
            (FsKind::Ext4, "-i -m"),
            (FsKind::Ext4, "-m 99"),
            (FsKind::Ext4, "-m nan"),
            (FsKind::Ext4, "-m 50.1"),
            (FsKind::Ext4, "-J size="),
            (FsKind::Ext4, "-L seventeen-letters"),
            (FsKind::Ext4, &*too_long),
            (FsKind::Xfs, "-d noalign=1"),
            (FsKind::Ext4, "-i 4096 -i 8192"),
            (FsKind::Ext4, "-b 1024"),
            (FsKind::Ext4, "-i8192"),
            (FsKind::Ext4, "-n"),
            (FsKind::Xfs, "-l logdev=/dev/sda"),
            (FsKind::Xfs, "-r rtdev=/dev/sda"),
            (FsKind::Xfs, "-d file=1,name=/etc/passwd"),
            (FsKind::Xfs, "-d size=16m"),
            (FsKind::Xfs, "-p /etc/passwd"),
            (FsKind::Xfs, "-c options=/etc/passwd"),
            (FsKind::Btrfs, "--rootdir=/etc"),
            (FsKind::Btrfs, "-r /etc"),
            (FsKind::Btrfs, "-d raid1"),
            (FsKind::Btrfs, "-b 16m"),
            (FsKind::Btrfs, "--csum=/dev/sda"),
        ] {
            assert!(MkfsOptions::parse(fs, text).is_err(), "{fs} {text}");
        }
    }

    #[test]
    fn says_what_would_be_right() {
        assert_eq!(
            MkfsOptions::parse(FsKind::Xfs, "-m reflink=2").unwrap_err(),
            "-m \"reflink=2\": reflink: use one of 0, 1"
        );
        assert_eq!(
            MkfsOptions::parse(FsKind::Btrfs, "-f").unwrap_err(),
            "\"-f\" is not allowed for btrfs: use --csum, -d, -L, -m, -n, -O, -R, -s"
        );
    }

    proptest! {
        #[test]
        fn what_is_taken_is_plain(
            fs in prop::sample::select(FsKind::ALL.to_vec()),
            text in "((-[a-zA-Z]|--[a-z]{1,8}) ?=?(size=|device=|name=)?[a-z0-9,=^/.-]{0,12} ?){0,3}",
        ) {
            if let Ok(options) = MkfsOptions::parse(fs, &text) {
                for word in options.words() {
                    let plain = |c: char| c.is_ascii_alphanumeric() || "_-=,^.".contains(c);
                    prop_assert!(word.chars().all(plain), "{:?}", word);
                }
                prop_assert!(options.words().chunks(2).all(|pair| !pair[1].starts_with('-')));
            }
        }

        #[test]
        fn any_text_is_answered(
            fs in prop::sample::select(FsKind::ALL.to_vec()),
            text in ".{0,300}",
        ) {
            let _ = MkfsOptions::parse(fs, &text);
        }
    }
}
