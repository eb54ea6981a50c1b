//! Other values of settings: durations, rates, choices, and the values of pool flags.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use tracing::metadata::LevelFilter;

use super::names::{DiskPath, GroupName};
use crate::bytes::Bytes;
use crate::volume::PoolName;

/// A span of time: a whole number and `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

/// A speed in bytes a second, above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub Bytes);

/// An IP address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAddress(pub SocketAddr);

/// Plugin that expands the file system of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum FilesystemExpansion {
    /// The logical volume and, where this host can, its file system in one call.
    #[default]
    Controller,
    /// The logical volume only; NodeExpandVolume grows the file system.
    Node,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Filter for log lines: `info`, or directives such as `warn,pliant::lvm=debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

/// Value of `--pool`: an existing volume group, or disks that each become a volume group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFlag {
    /// The pool.
    pub name: PoolName,
    /// Source of its space.
    pub source: PoolSource,
}

/// Source of the space of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolSource {
    /// A volume group that is there.
    Group(GroupName),
    /// Blank disks; each becomes a group of its own.
    Create(Vec<DiskPath>),
}

/// Value of `--standby-disk`: a disk that joins a pool when it is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbyDiskFlag {
    /// The pool.
    pub name: PoolName,
    /// The disk.
    pub disk: DiskPath,
}

const RATES: [(&str, u32); 4] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)];

const SPANS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

impl FromStr for TimeSpan {
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
            .map(|ms| TimeSpan(Duration::from_millis(ms)))
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a duration: write a whole number and ms, s, m or h, such as \
                     20s"
                )
            })
    }
}

/// Prints in the largest unit that leaves no rest: `20s`, `1500ms`.
impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let whole = |times: u64| ms > 0 && ms.is_multiple_of(u128::from(times));
        let (unit, times) =
            SPANS.into_iter().rev().find(|(_, times)| whole(*times)).unwrap_or(("s", 1_000));
        write!(f, "{}{unit}", ms / u128::from(times))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(Bytes::ZERO) => {
                Err("a rate of 0 would never finish: leave it out for no limit".to_owned())
            }
            Ok(rate) => Ok(Rate(rate)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Prints in the largest binary unit that leaves no rest: `200Mi`, `1500`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.get();
        let whole = |shift: u32| bytes > 0 && bytes.trailing_zeros() >= shift;
        let (unit, shift) =
            RATES.into_iter().rev().find(|(_, shift)| whole(*shift)).unwrap_or(("", 0));
        write!(f, "{}{unit}", bytes >> shift)
    }
}

impl FromStr for SocketAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(SocketAddress).map_err(|_| {
            format!(
                "`{text}` is not an IP address and a port: write 127.0.0.1:9808 for this host \
                 only, or 0.0.0.0:9808 for all addresses"
            )
        })
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

choice!(FilesystemExpansion, "a component that expands file systems");
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
        let level = |word: &str| word.parse::<LevelFilter>().is_ok();
        let said = text.split(',').all(|word| word.contains('=') || level(word));
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
    /// Returns the directives. A level alone applies to Pliant. For libraries it means only
    /// warnings and errors, since at `debug` they log every frame of every connection.
    ///
    /// ```
    /// use pliant::config::LogFilter;
    ///
    /// let filter = |words: &str| words.parse::<LogFilter>().unwrap().directives();
    /// assert_eq!(filter("debug"), "warn,pliant=debug");
    /// assert_eq!(filter("error"), "error");
    /// assert_eq!(filter("info,hyper=debug"), "info,hyper=debug");
    /// ```
    pub fn directives(&self) -> String {
        match self.0.parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => format!("warn,pliant={}", self.0),
            _ => self.0.clone(),
        }
    }
}

fn pool_and<'a>(text: &'a str, shape: &str) -> Result<(PoolName, &'a str), String> {
    let (name, rest) =
        text.split_once('=').ok_or_else(|| format!("`{text}` has no `=`: write {shape}"))?;
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

impl FromStr for StandbyDiskFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, disk) = pool_and(text, "NAME=/dev/DISK")?;
        Ok(StandbyDiskFlag { name, disk: disk.parse()? })
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_back() {
        for (text, ms) in [("20s", 20_000), ("1500ms", 1500), ("2m", 120_000), ("1h", 3_600_000)] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(ms));
            assert_eq!(span.to_string(), text);
        }
        assert_eq!("0ms".parse::<TimeSpan>().unwrap().to_string(), "0s");
        for text in ["", "20", "s", "1.5s", "-1s", "1 s", "1d", "99999999999999999999s"] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn rates_are_written_back() {
        for text in ["200Mi", "1Ki", "1500", "3Ti", "1025Ki"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        assert_eq!("1M".parse::<Rate>().unwrap().to_string(), "1000000");
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
        for text in ["fast=", "=vg0", "Fast=vg0", "fast=vg0,vg1", "fast=create:", "fast=create:sdb"]
        {
            assert!(text.parse::<PoolFlag>().is_err(), "{text:?}");
        }
    }
}
