//! The commands for people: questions about a cluster or a host, and changes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::bytes::Bytes;
use crate::cli::ClusterFlags;
use crate::cli::values::size;
use crate::commands::explain::Subject;
use crate::commands::{self, TableOptions, Whose};
use crate::config::TimeSpan;

/// `pliant status`.
#[derive(Debug, Args)]
#[command(mut_arg("namespace", |arg| arg.help("Show the PvcAutoscalers of this namespace [default: of all namespaces]")))]
pub struct StatusArgs {
    /// Options of the list.
    #[command(flatten)]
    pub list: ListFlags,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant expand`.
#[derive(Debug, Args)]
pub struct ExpandArgs {
    /// PVC to expand: pvc/NAME or NAME; or all PVCs of sts/NAME, deploy/NAME or pvcas/NAME
    #[arg(value_name = "PVC")]
    pub whose: Whose,
    /// New minimum size, such as 20Gi
    #[arg(value_name = "SIZE", value_parser = size)]
    pub size: Bytes,
    /// Options of the change.
    #[command(flatten)]
    pub edit: EditArgs,
}

/// `pliant shrink`.
#[derive(Debug, Args)]
pub struct ShrinkArgs {
    /// PVC to shrink: pvc/NAME or NAME; or all PVCs of sts/NAME, deploy/NAME or pvcas/NAME
    #[arg(value_name = "PVC")]
    pub whose: Whose,
    /// New size, such as 20Gi
    #[arg(value_name = "SIZE", value_parser = size)]
    pub size: Bytes,
    /// Options of the change.
    #[command(flatten)]
    pub edit: EditArgs,
}

/// `pliant migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// PVC to migrate: pvc/NAME or NAME; or all PVCs of sts/NAME or pvcas/NAME
    #[arg(value_name = "PVC")]
    pub whose: Whose,
    /// Migrate to this StorageClass
    #[arg(long, value_name = "NAME")]
    pub storage_class: String,
    /// Options of the change.
    #[command(flatten)]
    pub edit: EditArgs,
}

/// `pliant rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// PVC of the pod to roll back: pvc/NAME or NAME; or all swapped pods of sts/NAME or pvcas/NAME
    #[arg(value_name = "PVC")]
    pub whose: Whose,
    /// Options of the change.
    #[command(flatten)]
    pub edit: EditArgs,
}

/// `pliant abort`.
#[derive(Debug, Args)]
pub struct AbortArgs {
    /// PVC of the pod whose swap is aborted: pvc/NAME or NAME; or all pods of sts/NAME or pvcas/NAME
    #[arg(value_name = "PVC")]
    pub whose: Whose,
    /// Options of the change.
    #[command(flatten)]
    pub edit: EditArgs,
}

/// How a change is made.
#[derive(Debug, Default, Args)]
pub struct EditArgs {
    /// Apply the change without a question; without this flag a preview is shown first, unless a single PVC is expanded
    #[arg(short, long)]
    pub yes: bool,
    /// Wait until the change is complete, and print its progress
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time, with exit status 1; in ms, s, m or h [default: no limit]
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub timeout: Option<TimeSpan>,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// PvcAutoscaler to show in full: pvcas/NAME or NAME, or that of sts/NAME, deploy/NAME or pvc/NAME [default: list
    /// all of the namespace]
    #[arg(value_name = "PVCAUTOSCALER", conflicts_with = "all_namespaces")]
    pub subject: Option<commands::plan::PlanSubject>,
    /// Options of the list.
    #[command(flatten)]
    pub list: ListFlags,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// How a list is printed.
#[derive(Debug, Args)]
pub struct ListFlags {
    /// List the PvcAutoscalers of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Select the output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: ListOutput,
    /// Omit the names of the columns
    #[arg(long)]
    pub no_headers: bool,
    /// Print the list again after each change, until interrupted
    #[arg(short, long)]
    pub watch: bool,
}

impl ListFlags {
    /// Options of the table.
    pub fn table(&self) -> TableOptions {
        TableOptions { wide: self.output == ListOutput::Wide, headers: !self.no_headers }
    }
}

/// `pliant explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// Object to explain: pvc/NAME or NAME, pv/NAME, pod/NAME, sts/NAME, deploy/NAME, pvcas/NAME, node/NAME or
    /// pool/NAME
    #[arg(value_name = "OBJECT")]
    pub subject: Subject,
    /// Select the output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Write the report, as YAML, to this file [default: -, standard output]
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
    /// Include this many of the last lines of each log
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub tail: u32,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant recover`.
#[derive(Debug, Args)]
#[command(mut_arg("namespace", |arg| arg.help("Create the PVC in this namespace; not needed for a PVC in phase Lost")))]
pub struct Recover {
    /// ID of the volume, as `pliant doctor --cluster` prints it
    #[arg(value_name = "VOLUME", required_unless_present = "all")]
    pub volume: Option<String>,
    /// Recover every orphaned volume, one that no PersistentVolume names
    #[arg(long, conflicts_with_all = ["volume", "claim"])]
    pub all: bool,
    /// Create a PVC of this name [default: the name of the volume]
    #[arg(long, value_name = "NAME")]
    pub claim: Option<String>,
    /// Create the PVC with this StorageClass [default: the only one with the pool of the volume]
    #[arg(long, value_name = "NAME")]
    pub storage_class: Option<String>,
    /// Print the objects as YAML, and create none
    #[arg(long)]
    pub dry_run: bool,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant crds`.
#[derive(Debug, Args)]
pub struct Crds {
    /// Apply the CRDs to the cluster, over those of this version and of older ones
    #[arg(long)]
    pub apply: bool,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Show the version of this program only, and connect to no cluster
    #[arg(long)]
    pub client: bool,
    /// Select the output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant completion`.
#[derive(Debug, Args)]
pub struct Completion {
    /// Shell to generate the script for
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `pliant man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Directory to write the pages to; created if it does not exist
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// `pliant doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check this node of the cluster: node/NAME or NAME [default: this host]
    #[arg(value_name = "NODE", value_parser = commands::node)]
    pub node: Option<String>,
    /// Check the whole cluster [default: this host; as a kubectl plugin, the cluster]
    #[arg(long, conflicts_with = "node")]
    pub cluster: bool,
    /// Select the output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,
    /// The cluster.
    #[command(flatten)]
    pub which: ClusterFlags,
}

/// Format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text for people
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListOutput {
    /// Table for people
    Table,
    /// Table with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Names only, as TYPE/NAME
    Name,
}
