//! The settings: flags over environment over file over defaults, checked into one [`Settings`].

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::volume::{FsKind, PoolName, ThinSettings};

mod check;
mod file;
mod names;
mod print;
mod tree;
mod words;

pub use names::{DiskPath, GroupName, NodeName, SocketPath, StateDir};
pub use words::{
    FilesystemExpansion, LogFilter, LogFormat, PoolFlag, PoolSource, Rate, SocketAddress,
    StandbyDiskFlag, TimeSpan,
};

/// All settings of the driver, validated. Prints as the equivalent TOML file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The socket to serve.
    pub endpoint: SocketPath,
    /// The node's name in the cluster.
    pub node: NodeName,
    /// The pools by name; empty only where the cluster defines them.
    pub pools: BTreeMap<PoolName, PoolSettings>,
    /// Plugin that expands the file system of a volume.
    pub filesystem_expansion: FilesystemExpansion,
    /// The file system where neither request nor class names one.
    pub default_fstype: FsKind,
    /// Maximum number of volumes on the node; 0: the caller decides.
    pub max_volumes_per_node: u32,
    /// Directory for lvm.conf, device links and locks of this driver.
    pub state_dir: StateDir,
    /// Address of the metrics endpoint; `None`: no endpoint.
    pub metrics_address: Option<SocketAddr>,
    /// Bytes a second that copies of volumes and snapshots read at most, all together; `None`: as fast as the disks.
    pub copy_rate: Option<Bytes>,
    /// Bytes a second that wiping writes at most; `None`: as fast as the disk.
    pub wipe_rate: Option<Bytes>,
    /// How long CreateVolume and DeleteVolume wait for a wipe before they answer ABORTED.
    pub wipe_timeout: Duration,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Filter for log lines.
    pub log_level: LogFilter,
}

/// Source of the list of pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolsFrom {
    /// The settings; there has to be one.
    Settings,
    /// The StoragePool objects of the cluster; in the settings there may be none.
    Cluster,
}

/// Sources of the space of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// Volume groups that are there.
    pub groups: Vec<GroupName>,
    /// Disks that each become a group of their own.
    pub disks: Vec<NewDiskSetting>,
    /// Disks that join when the pool is full.
    pub standby_disks: Vec<NewDiskSetting>,
    /// How it holds thin volumes; `None`: it makes none.
    pub thin: Option<ThinSettings>,
}

/// A disk that may be initialised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDiskSetting {
    /// The disk.
    pub path: DiskPath,
    /// True if it may be initialised although it is not blank, which destroys its content.
    pub wipe: bool,
}

/// One error in the settings; prints as `pliant.toml:7: pools[0].name: …`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ConfigError {
    /// Place of the setting.
    pub place: SettingSource,
    /// What is wrong, and what is valid.
    pub reason: String,
}

/// Place of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// Nowhere: the setting is missing.
    Missing(&'static str),
    /// On the command line or in its environment variable.
    Flag(&'static str),
    /// The file as a whole, as it was named.
    File(String),
    /// In a file.
    Line {
        /// The file as it was named.
        file: String,
        /// Line number, from 1.
        line: usize,
        /// The path of the key: `pools[0].name`; empty for the file as a whole.
        key: String,
    },
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Missing(key) => f.write_str(key),
            SettingSource::Flag(flag) => f.write_str(flag),
            SettingSource::File(file) => f.write_str(file),
            SettingSource::Line { file, line, key } if key.is_empty() => write!(f, "{file}:{line}"),
            SettingSource::Line { file, line, key } => write!(f, "{file}:{line}: {key}"),
        }
    }
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Place of the value.
    pub place: SettingSource,
}

/// The settings of one source; `None` if it does not have a setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// `endpoint`.
    pub endpoint: Option<SocketPath>,
    /// `node-id`.
    pub node_id: Option<NodeName>,
    /// `pools`.
    pub pools: Vec<PoolLayer>,
    /// `filesystem-expansion`.
    pub filesystem_expansion: Option<FilesystemExpansion>,
    /// `default-fstype`.
    pub default_fstype: Option<FsKind>,
    /// `max-volumes-per-node`.
    pub max_volumes_per_node: Option<u32>,
    /// `state-dir`.
    pub state_dir: Option<StateDir>,
    /// `metrics-address`.
    pub metrics_address: Option<SocketAddress>,
    /// `copy-rate`.
    pub copy_rate: Option<Rate>,
    /// `wipe-rate`.
    pub wipe_rate: Option<Rate>,
    /// `wipe-timeout`.
    pub wipe_timeout: Option<TimeSpan>,
    /// `log-format`.
    pub log_format: Option<LogFormat>,
    /// `log-level`.
    pub log_level: Option<LogFilter>,
}

/// A pool as one source defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLayer {
    /// Name of the pool.
    pub name: PoolName,
    /// Place of the pool.
    pub place: SettingSource,
    /// Names of existing volume groups.
    pub groups: Vec<Placed<GroupName>>,
    /// Disks to create volume groups on.
    pub disks: Vec<WantedDisk>,
    /// Standby disks.
    pub standby_disks: Vec<WantedDisk>,
    /// How it holds thin volumes.
    pub thin: Option<ThinSettings>,
}

/// A disk as one source defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedDisk {
    /// The disk.
    pub path: Placed<DiskPath>,
    /// True if it may be wiped.
    pub wipe: bool,
}

/// The settings of the command line and its environment variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// Single values; its pools are empty.
    pub values: Layer,
    /// `--pool`; if there is any, the pools of the file are not taken.
    pub pools: Vec<PoolFlag>,
    /// `--standby-disk`; added to the pools in effect.
    pub standby_disks: Vec<StandbyDiskFlag>,
    /// `--allow-wipe-disk`; each must be named as a disk to create from or as a standby disk.
    pub allow_wipe_disks: Vec<DiskPath>,
}

#[cfg(test)]
mod tests;
