//! The words of the settings: each text is checked where it is read and cannot be wrong afterwards.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::volume::PoolName;

/// The node's name in the cluster: 1 to 63 of `[A-Za-z0-9._-]`, a letter or digit at both ends.
///
/// It is `node_id` and the value of the topology key, whose shape it has to have (CSI,
/// `NodeGetInfoResponse`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeName(String);

/// The name of a volume group, as LVM takes it and short enough for our logical volumes in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupName(String);

/// The path of a disk: below `/dev`, no `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskPath(PathBuf);

/// The path of the socket to serve: absolute, at most 107 bytes, the kernel's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPath(PathBuf);

/// A directory of our own: absolute, of `[A-Za-z0-9._/-]`, because its name goes into `lvm.conf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir(PathBuf);

/// A span of time: a whole number and `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A speed in bytes a second, above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub Bytes);

/// Whether ControllerExpandVolume grows the file system too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Expansion {
    /// The logical volume and, where this machine can, its file system in one call.
    #[default]
    OneStep,
    /// The logical volume only; NodeExpandVolume grows the file system.
    TwoStep,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Which log lines are written: `info`, or directives such as `warn,pliant::lvm=debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

/// What `--pool` says: a group that is there, or disks that each become a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFlag {
    /// The pool.
    pub name: PoolName,
    /// Where its space comes from.
    pub source: PoolSource,
}

/// Where the space of a pool comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolSource {
    /// A volume group that is there.
    Group(GroupName),
    /// Blank disks; each becomes a group of its own.
    Create(Vec<DiskPath>),
}

/// What `--spare` says: a disk that may join a pool when it is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpareFlag {
    /// The pool.
    pub name: PoolName,
    /// The disk.
    pub disk: DiskPath,
}

/// The name of a group with its hyphens doubled and of our longest hidden layer in it must fit the
/// 127 characters of a device-mapper name (`libdm`, `DM_NAME_LEN`).
const GROUP_NAME_IN_DM: usize = 80;

impl NodeName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |b: u8| b.is_ascii_alphanumeric();
        let ends = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
        if ends && text.len() <= 63 && text.bytes().all(|b| plain(b) || b"._-".contains(&b)) {
            Ok(NodeName(text.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not a node name: use 1 to 63 of A-Z, a-z, 0-9, ., _ and -, with a \
                 letter or digit at both ends"
            ))
        }
    }
}

impl GroupName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._+-".contains(&b);
        let dots = matches!(text, "" | "." | "..");
        if dots || text.starts_with('-') || !text.bytes().all(known) {
            return Err(format!(
                "`{text}` is not the name of a volume group: LVM takes A-Z, a-z, 0-9, ., _, + and \
                 -, not beginning with -; `vgs` lists the groups"
            ));
        }
        if text.len() + text.matches('-').count() > GROUP_NAME_IN_DM {
            return Err(format!(
                "the volume group name `{text}` is too long: each hyphen counted twice, at most \
                 {GROUP_NAME_IN_DM} characters leave room for the names of our volumes; \
                 `vgrename` changes it"
            ));
        }
        Ok(GroupName(text.to_owned()))
    }
}

impl DiskPath {
    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for DiskPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = Path::new(text);
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._+-/:@".contains(&b);
        if path.starts_with("/dev")
            && path != Path::new("/dev")
            && clean(path)
            && text.bytes().all(known)
        {
            Ok(DiskPath(path.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not the path of a disk: write it as below /dev, such as /dev/sdb or \
                 /dev/disk/by-id/…"
            ))
        }
    }
}

impl SocketPath {
    /// The path in the file system, without `unix://`.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for SocketPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
        if !clean(path) || path.file_name().is_none() {
            return Err(format!(
                "`{text}` is not a socket: write unix:// and an absolute path, such as \
                 unix:///run/pliant/csi.sock"
            ));
        }
        if path.as_os_str().len() > 107 {
            return Err(format!(
                "`{text}` is too long for a socket: the kernel takes paths of at most 107 bytes"
            ));
        }
        Ok(SocketPath(path.to_owned()))
    }
}

impl StateDir {
    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for StateDir {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._/-".contains(&b);
        let path = Path::new(text);
        if clean(path) && path.file_name().is_some() && text.bytes().all(known) {
            Ok(StateDir(path.to_owned()))
        } else {
            Err(format!(
                "`{text}` cannot be the state directory: write an absolute path of A-Z, a-z, 0-9, \
                 ., _ and -, such as /run/pliant"
            ))
        }
    }
}

/// Whether a path is absolute and goes nowhere but down.
fn clean(path: &Path) -> bool {
    path.is_absolute()
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

const SPANS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let times = SPANS.iter().find(|(name, _)| *name == unit);
        number
            .parse::<u64>()
            .ok()
            .zip(times)
            .and_then(|(number, (_, times))| number.checked_mul(*times))
            .map(|ms| Span(Duration::from_millis(ms)))
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a span of time: write a whole number and ms, s, m or h, such \
                     as 20s"
                )
            })
    }
}

/// Prints in the largest unit that leaves no rest: `20s`, `1500ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let whole = |times: u64| ms > 0 && ms.is_multiple_of(u128::from(times));
        let (unit, times) = SPANS
            .into_iter()
            .rev()
            .find(|(_, times)| whole(*times))
            .unwrap_or(("s", 1_000));
        write!(f, "{}{unit}", ms / u128::from(times))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(Bytes::ZERO) => {
                Err("a rate of 0 would never end: leave it out for no limit".to_owned())
            }
            Ok(rate) => Ok(Rate(rate)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The words of a closed choice, as they are written in a file and on the command line.
macro_rules! choice {
    ($type:ty, $what:literal) => {
        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                <Self as clap::ValueEnum>::from_str(text, false).map_err(|_| {
                    let words: Vec<String> = <Self as clap::ValueEnum>::value_variants()
                        .iter()
                        .map(ToString::to_string)
                        .collect();
                    format!("`{text}` is not {}: use {}", $what, words.join(" or "))
                })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                clap::ValueEnum::to_possible_value(self)
                    .map_or(Ok(()), |word| f.write_str(word.get_name()))
            }
        }
    };
}

choice!(Expansion, "a way to expand");
choice!(LogFormat, "a log format");

impl Default for LogFilter {
    fn default() -> Self {
        LogFilter("info".to_owned())
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A lone word that is no level would be a target: a typo that silences everything.
        let level = |word: &str| word.parse::<tracing::metadata::LevelFilter>().is_ok();
        let said = text
            .split(',')
            .all(|word| word.contains('=') || level(word));
        match text.parse::<tracing_subscriber::filter::Targets>() {
            Ok(_) if said && !text.is_empty() => Ok(LogFilter(text.to_owned())),
            _ => Err(format!(
                "`{text}` is not a log level: use error, warn, info, debug or trace, or directives \
                 such as warn,pliant::lvm=debug"
            )),
        }
    }
}

impl LogFilter {
    /// The directives.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn pool_and<'a>(text: &'a str, shape: &str) -> Result<(PoolName, &'a str), String> {
    let (name, rest) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` has no `=`: write {shape}"))?;
    Ok((name.parse()?, rest))
}

impl FromStr for PoolFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, source) = pool_and(text, "NAME=VG or NAME=create:/dev/DISK")?;
        let source = match source.strip_prefix("create:") {
            Some(disks) => {
                PoolSource::Create(disks.split(',').map(str::parse).collect::<Result<_, _>>()?)
            }
            None => PoolSource::Group(source.parse()?),
        };
        Ok(PoolFlag { name, source })
    }
}

impl FromStr for SpareFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, disk) = pool_and(text, "NAME=/dev/DISK")?;
        Ok(SpareFlag {
            name,
            disk: disk.parse()?,
        })
    }
}

macro_rules! prints_as_text {
    ($($type:ty: $self:ident => $text:expr),* $(,)?) => {$(
        impl fmt::Display for $type {
            fn fmt(&$self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&$text, f)
            }
        }
    )*};
}

prints_as_text! {
    NodeName: self => self.0,
    GroupName: self => self.0,
    DiskPath: self => self.0.display(),
    StateDir: self => self.0.display(),
    LogFilter: self => self.0,
    SocketPath: self => format_args!("unix://{}", self.0.display()),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_are_written_back() {
        for (text, ms) in [
            ("20s", 20_000),
            ("1500ms", 1500),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(ms));
            assert_eq!(span.to_string(), text);
        }
        assert_eq!("0ms".parse::<Span>().unwrap().to_string(), "0s");
        for text in [
            "",
            "20",
            "s",
            "1.5s",
            "-1s",
            "1 s",
            "1d",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pool_is_a_group_or_disks() {
        let flag: PoolFlag = "fast=create:/dev/sdb,/dev/sdc".parse().unwrap();
        let disks = ["/dev/sdb", "/dev/sdc"].map(|disk| disk.parse().unwrap());
        assert_eq!(flag.source, PoolSource::Create(disks.to_vec()));
        assert_eq!(
            "fast".parse::<PoolFlag>().unwrap_err(),
            "`fast` has no `=`: write NAME=VG or NAME=create:/dev/DISK"
        );
        for text in [
            "fast=",
            "=vg0",
            "Fast=vg0",
            "fast=vg0,vg1",
            "fast=create:",
            "fast=create:sdb",
        ] {
            assert!(text.parse::<PoolFlag>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_that_lvm_or_the_kernel_refuse_are_refused() {
        for text in [
            "-f",
            ".",
            "..",
            "a b",
            "a/b",
            "",
            &"a".repeat(81),
            &"-a".repeat(30),
        ] {
            assert!(text.parse::<GroupName>().is_err(), "{text:?}");
        }
        for text in [
            "sdb",
            "/dev",
            "/dev/../etc/passwd",
            "/etc/passwd",
            "/dev/s db",
            "/devil",
        ] {
            assert!(text.parse::<DiskPath>().is_err(), "{text:?}");
        }
        for text in [
            "",
            "csi.sock",
            "unix://csi.sock",
            "unix:///",
            "tcp://1.2.3.4:5",
        ] {
            assert!(text.parse::<SocketPath>().is_err(), "{text:?}");
        }
        for text in ["-a", "a-", "", "a/b", &"a".repeat(64)] {
            assert!(text.parse::<NodeName>().is_err(), "{text:?}");
        }
        for text in ["run", "/", "/run/a\"b", "/run/../etc"] {
            assert!(text.parse::<StateDir>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_comes_back(text in "[ -~]{0,90}") {
            if let Ok(name) = text.parse::<GroupName>() {
                prop_assert_eq!(name.to_string(), text.clone());
            }
            if let Ok(path) = text.parse::<SocketPath>() {
                prop_assert_eq!(path.to_string().parse(), Ok(path));
            }
        }
    }
}
