//! The command line: each subcommand is a role.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bytes::Bytes;
use crate::config::{
    Address, DiskPath, Expansion, Flags, Layer, LogFilter, LogFormat, NodeName, PoolFlag, Rate,
    SocketPath, Span, SpareFlag, StateDir,
};
use crate::volume::{FsKind, Mode, PoolName};

mod carry;
mod cluster;
mod operator;
mod pages;
mod people;
mod tell;

pub use carry::{CarryFlags, CompareFlag, CopyRole, SendRole, SocketsFlag, UnpackRole};
pub use cluster::ClusterFlags;
pub use operator::{OperatorRole, ProxyFlags, WebhookFlags};
pub use pages::{candidates, completion, manual, to_complete};
pub use people::{
    Abort, Adopt, Completion, Crds, Doctor, Edit, Explain, Grow, Man, Move, Output, Plan, Report,
    Rollback, Shrink, Status, TableOutput, Version,
};
pub use tell::TellFlags;

/// LVM storage driver (CSI): volumes that grow while they are in use.
#[derive(Debug, Parser)]
#[command(name = "pliant", version, max_term_width = 100)]
pub struct Cli {
    /// The role.
    #[command(subcommand)]
    pub command: Command,
}

/// What this process is.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve CSI on one machine: Identity, Controller and Node on one Unix socket.
    Standalone(Standalone),
    /// Serve CSI Node on a node of a cluster, and carry out what the controller asks of the node.
    Node(NodeRole),
    /// Serve CSI Controller for a whole cluster: each node's agent does the work.
    Controller(ControllerRole),
    /// Fill claims of a whole cluster from archives and other claims, and tell those that nobody fills.
    Operator(Box<OperatorRole>),
    /// Show how much room the nodes of a cluster have, and what is wrong with it.
    Status(Status),
    /// Say why a claim of a cluster is as it is, and what to do about it.
    Explain(Explain),
    /// Have a claim of a cluster grow, and wait until it has.
    Grow(Grow),
    /// Have the claims of a PvcAutoscaler be smaller: by new ones with a verified copy, a pod at a time.
    Shrink(Shrink),
    /// Have the claims of a PvcAutoscaler be of another class: by new ones with a verified copy, a pod
    /// at a time.
    Move(Move),
    /// Have pods get again what they had before their last swap, as it was then: what they have written
    /// since is left behind.
    Rollback(Rollback),
    /// Have swaps given up that go on, and nothing else: their pods keep what they have.
    Abort(Abort),
    /// Show what each PvcAutoscaler does with its claims, and would do next.
    Plan(Plan),
    /// Gather what is needed to look into a fault, for a bug report: no secrets, and it says what is
    /// in it.
    Report(Report),
    /// Give volumes that no PersistentVolume names a PersistentVolume and a claim again.
    Adopt(Adopt),
    /// Check settings and print those in effect as TOML, or everything that is wrong with them.
    CheckConfig(CheckConfig),
    /// Look at this machine, or at a cluster: what is there, what is missing, what to type. Changes
    /// nothing.
    Doctor(Doctor),
    /// Walk a volume through its whole life against a running driver: create, write, grow, delete.
    Try(Try),
    /// Copy all of one volume into another, and compare: content, owners, modes, times, attributes,
    /// links and holes.
    Copy(CopyRole),
    /// Send a volume to `pliant copy --from` on another machine, until it is told to end: it reads, and
    /// answers only who has the key.
    Send(SendRole),
    /// Unpack an archive into an empty volume, if it is the one that was asked for.
    Unpack(UnpackRole),
    /// Show the version of this program, and those that the nodes of a cluster run.
    Version(Version),
    /// Print the definitions of the records that Pliant keeps in Kubernetes, as YAML, or write them to the cluster.
    Crds(Crds),
    /// Print the rules for the udev of a host that keep mdadm, LVM and btrfs off what is on volumes.
    UdevRules,
    /// Print what a shell needs to complete these commands.
    Completion(Completion),
    /// Write the manual, a page for each command.
    Man(Man),
}

/// `pliant standalone`.
#[derive(Debug, Args)]
pub struct Standalone {
    /// Settings file, TOML or YAML by its ending; flags and environment lie over it
    #[arg(long, value_name = "FILE", env = "PLIANT_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Everything that a settings file can say too.
    #[command(flatten)]
    pub settings: SettingsFlags,
}

/// `pliant node`.
#[derive(Debug, Args)]
pub struct NodeRole {
    /// Settings file, TOML or YAML by its ending; flags and environment lie over it
    #[arg(long, value_name = "FILE", env = "PLIANT_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Socket at which the kubelet of this node finds the driver, in the directory that it watches;
    /// its name has to contain an @
    #[arg(
        long,
        value_name = "SOCKET",
        env = "PLIANT_REGISTRATION",
        hide_env_values = true,
        default_value = "/var/lib/kubelet/plugins_registry/node@lvm.csi.pliant.io-reg.sock"
    )]
    pub registration: SocketPath,
    /// Leave the registration with the kubelet to another process, such as node-driver-registrar
    #[arg(long, env = "PLIANT_NO_REGISTRATION")]
    pub no_registration: bool,
    /// How often mounted file systems are asked how full they are; what matters of it is written to the
    /// node's record at most so often. In s, m or h, at least 10s
    #[arg(long, value_name = "TIME", env = "PLIANT_USAGE_PERIOD", hide_env_values = true,
        default_value = "30s", value_parser = usage_period)]
    pub usage_period: Span,
    /// Directory of the host's udev rules, such as /run/udev/rules.d, into which rules are written that
    /// keep the host's mdadm, LVM and btrfs off what is on volumes [default: none are written]
    #[arg(long, value_name = "DIR", env = "PLIANT_UDEV_RULES_DIR", hide_env_values = true)]
    pub udev_rules_dir: Option<PathBuf>,
    /// Everything that a settings file can say too.
    #[command(flatten)]
    pub settings: MachineFlags,
}

/// `pliant controller`.
#[derive(Debug, Args)]
pub struct ControllerRole {
    /// Socket to serve to the sidecars of the same pod
    #[arg(
        long,
        value_name = "SOCKET",
        env = "PLIANT_ENDPOINT",
        hide_env_values = true,
        default_value = "unix:///csi/csi.sock"
    )]
    pub endpoint: SocketPath,
    /// File system where neither the request nor the class names one
    #[arg(long, value_name = "FS", env = "PLIANT_DEFAULT_FS", hide_env_values = true,
        default_value_t = FsKind::Ext4)]
    pub default_fs: FsKind,
    /// How it tells of itself.
    #[command(flatten)]
    pub tell: TellFlags,
}

/// `pliant check-config`.
#[derive(Debug, Args)]
pub struct CheckConfig {
    /// Settings file, TOML or YAML by its ending
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What will be given besides the file.
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

/// The pools as flags: in a cluster the administrator's Pool objects say them.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Pools")]
pub struct PoolFlags {
    /// Pool of volume groups [at least one is required; repeat it for several groups or pools]
    ///
    /// NAME=VG takes an existing volume group; the same NAME again adds a group to the pool.
    /// NAME=create:/dev/sdb,/dev/sdc makes one group of each disk, if it is blank. If the flag is
    /// given, pools of the settings file are not taken.
    #[arg(
        long = "pool",
        value_name = "NAME=VG|NAME=create:DISK[,DISK]",
        env = "PLIANT_POOL",
        hide_env_values = true,
        value_delimiter = ' '
    )]
    pools: Vec<PoolFlag>,

    /// Blank disk that joins a pool when it is full [repeatable; default: none]
    #[arg(
        long = "spare",
        value_name = "NAME=DISK",
        env = "PLIANT_SPARE",
        hide_env_values = true,
        value_delimiter = ' '
    )]
    spares: Vec<SpareFlag>,

    /// Disk of --pool or --spare that may be initialised although it is not blank: what is on it
    /// is lost [repeatable; default: none]
    #[arg(
        long = "allow-wipe-disk",
        value_name = "DISK",
        env = "PLIANT_ALLOW_WIPE_DISK",
        hide_env_values = true,
        value_delimiter = ' '
    )]
    allow_wipe_disks: Vec<DiskPath>,
}

/// The settings of a machine as flags; each has its environment variable and its key in the settings
/// file.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub struct MachineFlags {
    /// Socket to serve, a path with or without unix:// [default: unix:///run/pliant/csi.sock]
    #[arg(long, value_name = "SOCKET", env = "PLIANT_ENDPOINT", hide_env_values = true)]
    endpoint: Option<SocketPath>,

    /// Name of this node in the cluster, 1 to 63 characters; volume ids contain a digest of it, so
    /// it stays the same for ever [required, no default]
    #[arg(long, value_name = "NAME", env = "PLIANT_NODE_ID", hide_env_values = true)]
    node_id: Option<NodeName>,

    /// Whether ControllerExpandVolume grows the file system too, or leaves it to NodeExpandVolume
    /// [one-step or two-step; default: one-step]
    #[arg(long, value_name = "STEPS", env = "PLIANT_EXPANSION", hide_env_values = true,
        value_parser = str::parse::<Expansion>)]
    expansion: Option<Expansion>,

    /// File system where neither the request nor the class names one [ext4, xfs, btrfs, ext3 or
    /// ext2; default: ext4]
    #[arg(long, value_name = "FS", env = "PLIANT_DEFAULT_FS", hide_env_values = true)]
    default_fs: Option<FsKind>,

    /// How many volumes this node takes; 0 leaves it to the caller [default: 0]
    #[arg(long, value_name = "COUNT", env = "PLIANT_MAX_VOLUMES", hide_env_values = true,
        value_parser = count)]
    max_volumes: Option<u32>,

    /// Directory for the driver's own lvm.conf and links to devices; may be lost at a reboot
    /// [default: /run/pliant]
    #[arg(long, value_name = "DIR", env = "PLIANT_STATE_DIR", hide_env_values = true)]
    state_dir: Option<StateDir>,

    /// Address and port to serve /metrics and /healthz on, such as 127.0.0.1:9808 [default: off]
    #[arg(long, value_name = "ADDRESS", env = "PLIANT_METRICS_ADDRESS", hide_env_values = true)]
    metrics_address: Option<Address>,

    /// Bytes a second that wiping writes at most, such as 200Mi [default: unlimited]
    #[arg(long, value_name = "BYTES", env = "PLIANT_WIPE_RATE", hide_env_values = true)]
    wipe_rate: Option<Rate>,

    /// How long CreateVolume and DeleteVolume wait for a wipe before they answer ABORTED, which
    /// asks the caller to come again; in ms, s, m or h [default: 20s]
    #[arg(long, value_name = "TIME", env = "PLIANT_WIPE_PATIENCE", hide_env_values = true)]
    wipe_patience: Option<Span>,

    /// How log lines are written [text or json; default: text]
    #[arg(long, value_name = "FORMAT", env = "PLIANT_LOG_FORMAT", hide_env_values = true,
        value_parser = str::parse::<LogFormat>)]
    log_format: Option<LogFormat>,

    /// Which log lines are written: a level, or directives such as warn,pliant::lvm=debug
    /// [error, warn, info, debug or trace; default: info]
    #[arg(long, value_name = "LEVEL", env = "PLIANT_LOG_LEVEL", hide_env_values = true)]
    log_level: Option<LogFilter>,
}

impl From<SettingsFlags> for Flags {
    fn from(flags: SettingsFlags) -> Flags {
        let PoolFlags { pools, spares, allow_wipe_disks } = flags.pools;
        Flags { pools, spares, allow_wipe_disks, ..flags.machine.into() }
    }
}

impl From<MachineFlags> for Flags {
    fn from(flags: MachineFlags) -> Flags {
        Flags {
            values: Layer {
                endpoint: flags.endpoint,
                node_id: flags.node_id,
                pools: Vec::new(),
                expansion: flags.expansion,
                default_fs: flags.default_fs,
                max_volumes: flags.max_volumes,
                state_dir: flags.state_dir,
                metrics_address: flags.metrics_address,
                wipe_rate: flags.wipe_rate,
                wipe_patience: flags.wipe_patience,
                log_format: flags.log_format,
                log_level: flags.log_level,
            },
            ..Flags::default()
        }
    }
}

/// `pliant try`.
#[derive(Debug, Args)]
pub struct Try {
    /// Socket of the running driver; a driver that is starting is waited for, up to 10 s
    #[arg(long, value_name = "SOCKET", env = "PLIANT_ENDPOINT", hide_env_values = true,
        default_value = crate::config::Settings::DEFAULT_ENDPOINT)]
    pub endpoint: SocketPath,
    /// Pool to take the volume from; without it the driver's default pool
    #[arg(long, value_name = "NAME")]
    pub pool: Option<PoolName>,
    /// What to make: ext4, xfs, btrfs, ext3, ext2, or block for a raw device; repeatable
    #[arg(long = "fs", value_name = "FS", default_values = ["ext4", "xfs", "btrfs", "block"], value_parser = mode)]
    pub modes: Vec<Mode>,
    /// Size of the volume at first, such as 320Mi
    #[arg(long, value_name = "SIZE", default_value = "320Mi", value_parser = size)]
    pub size: Bytes,
    /// Size after growing under a running writer; growing offline adds as much again
    #[arg(long, value_name = "SIZE", default_value = "512Mi", value_parser = size)]
    pub grow_to: Bytes,
    /// Directory below which volumes are staged and mounted; made if it is missing
    #[arg(long, value_name = "DIR", default_value = "/run/pliant/try")]
    pub dir: PathBuf,
}

fn usage_period(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0 < Duration::from_secs(10) {
        return Err(format!("{text} is too often for the API server: write 10s or more"));
    }
    Ok(span)
}

fn mode(text: &str) -> Result<Mode, String> {
    text.parse().map_err(|_: String| {
        format!("`{text}` can not be made: use ext4, xfs, btrfs, ext3, ext2 or block")
    })
}

fn size(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(Bytes::ZERO) => {
            Err("there is no such volume: write a size above 0, such as 320Mi".to_owned())
        }
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not a count: write a whole number from 0 to {}", u32::MAX)
    })
}

/// Read the command line and its environment; ends the process with help, or with what is wrong.
pub fn read() -> Cli {
    let words: Vec<_> = std::env::args_os().collect();
    let parsed = named(program()).try_get_matches_from(&words);
    let parsed = parsed.and_then(|found| Cli::from_arg_matches(&found));
    parsed.unwrap_or_else(|error| by_its_variable(error, &words).exit())
}

fn file_name(path: &OsStr) -> Option<&OsStr> {
    Path::new(path).file_name()
}

/// How the caller calls this program: kubectl runs what it finds as `kubectl-pliant` as a plugin.
pub fn program() -> &'static str {
    program_of(std::env::args_os().next().as_deref())
}

fn program_of(path: Option<&OsStr>) -> &'static str {
    let name = path.and_then(file_name);
    if name == Some(OsStr::new("kubectl-pliant")) { "kubectl pliant" } else { "pliant" }
}

/// The commands of a program that is called so.
fn named(program: &'static str) -> clap::Command {
    Cli::command().bin_name(program).display_name(program)
}

/// Where a bad value came from an environment variable, let the error name that: clap blames the
/// flag, which nobody has typed.
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

/// Whether a stream shows colours: a terminal, and nobody has set `NO_COLOR`.
pub fn styled(stream: &impl IsTerminal) -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stream.is_terminal()
}

/// The flags that these words say, for tests.
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
