//! The command line: each subcommand is a role.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bytes::Bytes;
use crate::config::{
    DiskPath, FilesystemExpansion, Flags, Layer, LogFilter, LogFormat, NodeName, PoolFlag, Rate,
    SocketAddress, SocketPath, StandbyDiskFlag, StateDir, TimeSpan,
};
use crate::volume::{FsKind, Mode, PoolName};
use values::{count, mode, size, volume_stats_interval};

mod carry;
mod cluster;
mod help;
mod operator;
mod pages;
mod people;
mod tell;
mod values;

pub use carry::{CarryFlags, CopyRole, SendRole, SocketsFlag, UnpackRole, VerificationFlag};
pub use cluster::ClusterFlags;
pub use help::examples;
pub use operator::{OperatorRole, ProxyFlags, WebhookFlags};
pub use pages::{candidates, completion, manual, to_complete};
pub use people::{
    AbortArgs, Completion, Crds, DoctorArgs, EditArgs, ExpandArgs, Explain, ListFlags, ListOutput,
    Man, Migrate, OutputFormat, PlanArgs, Recover, ReportArgs, RollbackArgs, ShrinkArgs,
    StatusArgs, VersionArgs,
};
pub use tell::TellFlags;

/// Pliant: a CSI driver for LVM whose volumes expand while they are in use.
#[derive(Debug, Parser)]
#[command(name = "pliant", version, max_term_width = 100)]
pub struct Cli {
    /// The role.
    #[command(subcommand)]
    pub command: Command,
}

/// Role of this process.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show storage pools and PvcAutoscalers: capacity, health, state.
    Status(StatusArgs),
    /// Explain why a PVC, workload, node or pool is in its state.
    Explain(Explain),
    /// Show what each PvcAutoscaler does with its PVCs, and does next.
    Plan(PlanArgs),
    /// Check this host, a node or the cluster for problems.
    Doctor(DoctorArgs),
    /// Collect diagnostics for a bug report, without secrets.
    Report(ReportArgs),
    /// Expand a PVC, or all PVCs of a workload.
    #[command(visible_alias = "grow")]
    Expand(ExpandArgs),
    /// Shrink the PVCs of a workload, in place or by PVC swap.
    Shrink(ShrinkArgs),
    /// Migrate the PVCs of a workload to another StorageClass.
    Migrate(Migrate),
    /// Roll back pods to the PVCs they had before their last PVC swap.
    Rollback(RollbackArgs),
    /// Abort PVC swaps that are in progress.
    Abort(AbortArgs),
    /// Recover orphaned volumes: create a PersistentVolume and a PVC.
    Recover(Recover),
    /// Show the versions of this program and of the nodes.
    Version(VersionArgs),
    /// Print the CustomResourceDefinitions (CRDs), or apply them.
    Crds(Crds),
    /// Validate settings, and print the effective ones as TOML.
    CheckConfig(CheckConfig),
    /// Test a running driver: exercise the full volume lifecycle.
    SelfTest(SelfTest),
    /// Print udev rules that protect volume contents from host tools.
    UdevRules,
    /// Generate the completion script of a shell.
    Completion(Completion),
    /// Generate the manual pages.
    Man(Man),
    /// Copy a volume into another one, and verify the copy.
    Copy(CopyRole),
    /// Send a volume to `pliant copy --from` on another node.
    Send(SendRole),
    /// Unpack an archive of a known checksum into an empty volume.
    Unpack(UnpackRole),
    /// Serve CSI on one host, without Kubernetes.
    Standalone(Standalone),
    /// Run the node plugin of a cluster.
    Node(NodeRole),
    /// Run the controller plugin of a cluster.
    Controller(ControllerRole),
    /// Run the operator: populators, PvcAutoscalers, webhook.
    Operator(Box<OperatorRole>),
}

/// `pliant standalone`.
#[derive(Debug, Args)]
pub struct Standalone {
    /// Read settings from this file, TOML or YAML by its extension; flags and variables override it
    #[arg(long, value_name = "FILE", env = "PLIANT_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Settings that a settings file can contain, too.
    #[command(flatten)]
    pub settings: SettingsFlags,
}

/// `pliant node`.
#[derive(Debug, Args)]
pub struct NodeRole {
    /// Read settings from this file, TOML or YAML by its extension; flags and variables override it
    #[arg(long, value_name = "FILE", env = "PLIANT_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Serve registration to the kubelet on this socket, in the directory that the kubelet watches; the name
    /// must contain an @
    #[arg(
        long,
        value_name = "SOCKET",
        env = "PLIANT_REGISTRATION_SOCKET",
        hide_env_values = true,
        default_value = "/var/lib/kubelet/plugins_registry/node@lvm.csi.pliant.io-reg.sock"
    )]
    pub registration_socket: SocketPath,
    /// Leave registration to another process, such as node-driver-registrar
    #[arg(long, env = "PLIANT_NO_REGISTRATION")]
    pub no_registration: bool,
    /// Measure the usage of mounted file systems at this interval; in s, m or h, at least 10s
    #[arg(long, value_name = "TIME", env = "PLIANT_VOLUME_STATS_INTERVAL", hide_env_values = true,
        default_value = "30s", value_parser = volume_stats_interval)]
    pub volume_stats_interval: TimeSpan,
    /// Write udev rules that protect volume contents from the host's mdadm, LVM and btrfs to this directory, such as
    /// /run/udev/rules.d [default: none]
    #[arg(long, value_name = "DIR", env = "PLIANT_UDEV_RULES_DIR", hide_env_values = true)]
    pub udev_rules_dir: Option<PathBuf>,
    /// Serve volumes that are restored or cloned on other nodes to their node plugins, at this address of the pod
    /// [default: none]
    #[arg(long, value_name = "IP", env = "PLIANT_TRANSFER_IP", hide_env_values = true)]
    pub transfer_ip: Option<IpAddr>,
    /// Listen on this port of --transfer-ip
    #[arg(long, value_name = "PORT", env = "PLIANT_TRANSFER_PORT", hide_env_values = true, default_value_t = 9816,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub transfer_port: u16,
    /// Settings that a settings file can contain, too.
    #[command(flatten)]
    pub settings: MachineFlags,
}

/// `pliant controller`.
#[derive(Debug, Args)]
pub struct ControllerRole {
    /// Serve the sidecars of the pod on this socket
    #[arg(
        long,
        value_name = "SOCKET",
        env = "PLIANT_ENDPOINT",
        hide_env_values = true,
        default_value = "unix:///csi/csi.sock"
    )]
    pub endpoint: SocketPath,
    /// Use this file system if neither the request nor the StorageClass names one
    #[arg(long, value_name = "FSTYPE", env = "PLIANT_DEFAULT_FSTYPE", hide_env_values = true,
        default_value_t = FsKind::Ext4)]
    pub default_fstype: FsKind,
    /// Metrics and logs.
    #[command(flatten)]
    pub tell: TellFlags,
}

/// `pliant check-config`.
#[derive(Debug, Args)]
pub struct CheckConfig {
    /// Settings file, TOML or YAML by its extension
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Settings that are given besides the file.
    #[command(flatten)]
    pub settings: SettingsFlags,
}

/// The settings as flags.
#[derive(Debug, Default, Args)]
pub struct SettingsFlags {
    #[command(flatten)]
    pools: PoolFlags,
    #[command(flatten)]
    machine: MachineFlags,
}

/// Pools as flags: in a cluster, StoragePools define them.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Pools")]
pub struct PoolFlags {
    /// Define a storage pool of volume groups [at least one is required; repeatable]
    ///
    /// NAME=VG uses an existing volume group; the same NAME again adds a volume group to the pool.
    /// NAME=create:/dev/sdb,/dev/sdc creates a volume group on each disk, if the disk is blank. If the flag
    /// is given, the pools of the settings file are ignored.
    #[arg(
        long = "pool",
        value_name = "NAME=VG|NAME=create:DISK[,DISK]",
        env = "PLIANT_POOL",
        hide_env_values = true,
        value_delimiter = ' '
    )]
    pools: Vec<PoolFlag>,

    /// Add this blank disk to a pool when the pool is full [repeatable; default: none]
    #[arg(
        long = "standby-disk",
        value_name = "NAME=DISK",
        env = "PLIANT_STANDBY_DISK",
        hide_env_values = true,
        value_delimiter = ' '
    )]
    standby_disks: Vec<StandbyDiskFlag>,

    /// Allow this disk of --pool or --standby-disk to be initialized although it is not blank: its data is lost
    /// [repeatable; default: none]
    #[arg(
        long = "allow-wipe-disk",
        value_name = "DISK",
        env = "PLIANT_ALLOW_WIPE_DISK",
        hide_env_values = true,
        value_delimiter = ' '
    )]
    allow_wipe_disks: Vec<DiskPath>,
}

/// Settings of a node as flags; each has its environment variable and its key in the settings file.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub struct MachineFlags {
    /// Serve CSI on this socket, a path with or without unix:// [default: unix:///run/pliant/csi.sock]
    #[arg(long, value_name = "SOCKET", env = "PLIANT_ENDPOINT", hide_env_values = true)]
    endpoint: Option<SocketPath>,

    /// Name of this node in the cluster, 1 to 63 characters; never change it, volume IDs contain its hash
    /// [required, no default]
    #[arg(long, value_name = "NAME", env = "PLIANT_NODE_ID", hide_env_values = true)]
    node_id: Option<NodeName>,

    /// Expand file systems by the controller plugin, in ControllerExpandVolume, or by the node plugin, in
    /// NodeExpandVolume [controller or node; default: controller]
    #[arg(long, value_name = "PLUGIN", env = "PLIANT_FILESYSTEM_EXPANSION", hide_env_values = true,
        value_parser = str::parse::<FilesystemExpansion>)]
    filesystem_expansion: Option<FilesystemExpansion>,

    /// Use this file system if neither the request nor the StorageClass names one [ext4, xfs, btrfs, ext3 or
    /// ext2; default: ext4]
    #[arg(long, value_name = "FSTYPE", env = "PLIANT_DEFAULT_FSTYPE", hide_env_values = true)]
    default_fstype: Option<FsKind>,

    /// Limit the number of volumes of this node; 0 reports no limit [default: 0]
    #[arg(long, value_name = "COUNT", env = "PLIANT_MAX_VOLUMES_PER_NODE", hide_env_values = true,
        value_parser = count)]
    max_volumes_per_node: Option<u32>,

    /// Store lvm.conf and device links of the driver in this directory; it may be lost at a reboot
    /// [default: /run/pliant]
    #[arg(long, value_name = "DIR", env = "PLIANT_STATE_DIR", hide_env_values = true)]
    state_dir: Option<StateDir>,

    /// Serve /metrics and /healthz on this address and port, such as 127.0.0.1:9808 [default: off]
    #[arg(long, value_name = "ADDRESS", env = "PLIANT_METRICS_ADDRESS", hide_env_values = true)]
    metrics_address: Option<SocketAddress>,

    /// Limit the copies of snapshots, restores and clones together to this many bytes per second, such as 200Mi
    /// [default: unlimited]
    #[arg(long, value_name = "BYTES", env = "PLIANT_COPY_RATE", hide_env_values = true)]
    copy_rate: Option<Rate>,

    /// Limit wiping to this many bytes per second, such as 200Mi [default: unlimited]
    #[arg(long, value_name = "BYTES", env = "PLIANT_WIPE_RATE", hide_env_values = true)]
    wipe_rate: Option<Rate>,

    /// Let DeleteVolume and the first staging wait this long for a wipe before they return ABORTED, and are
    /// retried; in ms, s, m or h [default: 20s]
    #[arg(long, value_name = "TIME", env = "PLIANT_WIPE_TIMEOUT", hide_env_values = true)]
    wipe_timeout: Option<TimeSpan>,

    /// Select the format of log lines [text or json; default: text]
    #[arg(long, value_name = "FORMAT", env = "PLIANT_LOG_FORMAT", hide_env_values = true,
        value_parser = str::parse::<LogFormat>)]
    log_format: Option<LogFormat>,

    /// Select log lines by level, or by directives such as warn,pliant::lvm=debug
    /// [error, warn, info, debug or trace; default: info]
    #[arg(long, value_name = "LEVEL", env = "PLIANT_LOG_LEVEL", hide_env_values = true)]
    log_level: Option<LogFilter>,
}

impl From<SettingsFlags> for Flags {
    fn from(flags: SettingsFlags) -> Flags {
        let PoolFlags { pools, standby_disks, allow_wipe_disks } = flags.pools;
        Flags { pools, standby_disks, allow_wipe_disks, ..flags.machine.into() }
    }
}

impl From<MachineFlags> for Flags {
    fn from(flags: MachineFlags) -> Flags {
        Flags {
            values: Layer {
                endpoint: flags.endpoint,
                node_id: flags.node_id,
                pools: Vec::new(),
                filesystem_expansion: flags.filesystem_expansion,
                default_fstype: flags.default_fstype,
                max_volumes_per_node: flags.max_volumes_per_node,
                state_dir: flags.state_dir,
                metrics_address: flags.metrics_address,
                copy_rate: flags.copy_rate,
                wipe_rate: flags.wipe_rate,
                wipe_timeout: flags.wipe_timeout,
                log_format: flags.log_format,
                log_level: flags.log_level,
            },
            ..Flags::default()
        }
    }
}

/// `pliant self-test`.
#[derive(Debug, Args)]
pub struct SelfTest {
    /// Connect to the driver on this socket, and wait up to 10 s for a driver that is starting
    #[arg(long, value_name = "SOCKET", env = "PLIANT_ENDPOINT", hide_env_values = true,
        default_value = crate::config::Settings::DEFAULT_ENDPOINT)]
    pub endpoint: SocketPath,
    /// Create volumes in this pool [default: the default pool of the driver]
    #[arg(long, value_name = "NAME")]
    pub pool: Option<PoolName>,
    /// Test this file system: ext4, xfs, btrfs, ext3, ext2, or block for a raw block volume; repeatable
    #[arg(long = "fstype", value_name = "FSTYPE", default_values = ["ext4", "xfs", "btrfs", "block"], value_parser = mode)]
    pub modes: Vec<Mode>,
    /// Create volumes of this size, such as 320Mi
    #[arg(long, value_name = "SIZE", default_value = "320Mi", value_parser = size)]
    pub size: Bytes,
    /// Expand to this size under a running writer; the offline expansion adds as much again
    #[arg(long, value_name = "SIZE", default_value = "512Mi", value_parser = size)]
    pub expand_to: Bytes,
    /// Stage and publish volumes below this directory; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "/run/pliant/self-test")]
    pub dir: PathBuf,
}

/// Reads the command line and its environment; exits with help, or with the error.
pub fn read() -> Cli {
    let words: Vec<_> = std::env::args_os().collect();
    let parsed = named(program()).try_get_matches_from(&words);
    let parsed = parsed.and_then(|found| Cli::from_arg_matches(&found));
    parsed.unwrap_or_else(|error| by_its_variable(error, &words).exit())
}

fn file_name(path: &OsStr) -> Option<&OsStr> {
    Path::new(path).file_name()
}

/// Name by which the caller runs this program: kubectl runs `kubectl-pliant` as a plugin.
pub fn program() -> &'static str {
    program_of(std::env::args_os().next().as_deref())
}

fn program_of(path: Option<&OsStr>) -> &'static str {
    let name = path.and_then(file_name);
    if name == Some(OsStr::new("kubectl-pliant")) { "kubectl pliant" } else { "pliant" }
}

/// The commands of a program that is called so.
fn named(program: &'static str) -> clap::Command {
    help::with_help(Cli::command().bin_name(program).display_name(program), program)
}

/// Names the environment variable in the error if the invalid value came from it: clap names the flag.
fn by_its_variable(mut error: clap::Error, words: &[impl AsRef<OsStr>]) -> clap::Error {
    let Some(ContextValue::String(blamed)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let mut cli = named(program());
    cli.build(); // Before that an argument can not print itself.
    let mut args = cli.get_subcommands().flat_map(clap::Command::get_arguments);
    let arg = args.find(|arg| arg.to_string() == *blamed);
    let Some((long, env)) = arg.and_then(|arg| Some((arg.get_long()?, arg.get_env()?.to_str()?)))
    else {
        return error;
    };
    let flag = format!("--{long}");
    let typed = |word: &str| word.split('=').next() == Some(&flag);
    if !words.iter().any(|word| word.as_ref().to_str().is_some_and(typed)) {
        let told = format!("{env}, the variable of {blamed}");
        error.insert(ContextKind::InvalidArg, ContextValue::String(told));
    }
    error
}

/// True if a stream shows colours: it is a terminal, and `NO_COLOR` is not set.
pub fn styled(stream: &impl IsTerminal) -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stream.is_terminal()
}

/// Flags of these words, for tests.
#[cfg(test)]
pub(crate) fn flags_of(words: &[&str]) -> Flags {
    let words = ["pliant", "standalone"].iter().chain(words);
    match Cli::parse_from(words).command {
        Command::Standalone(standalone) => standalone.settings.into(),
        other => panic!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_has_an_environment_variable_and_names_its_default() {
        let cli = Cli::command();
        let standalone = cli.find_subcommand("standalone").unwrap();
        for arg in standalone.get_arguments().filter(|arg| arg.get_long() != Some("help")) {
            let flag = arg.get_long().unwrap();
            let env = format!("PLIANT_{}", flag.replace('-', "_").to_uppercase());
            assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(env.as_str()));
            let help = arg.get_help().unwrap().to_string();
            let says = ["default: ", "required"].iter().any(|word| help.contains(word));
            assert!(says || flag == "config", "--{flag}: {help}");
        }
    }
}
