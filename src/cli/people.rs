//! The commands for people: what they ask of a cluster or a machine.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::ask::edit::Whose;
use crate::ask::explain::Subject;
use crate::bytes::Bytes;
use crate::cli::{ClusterFlags, size};
use crate::config::Span;

/// `pliant status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Namespace whose PvcAutoscalers are shown [default: those of all]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Show the PvcAutoscalers of all namespaces, as without --namespace
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// How it is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TableOutput,
    /// Go on, and print it again whenever something has changed
    #[arg(short, long)]
    pub watch: bool,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant grow`.
#[derive(Debug, Args)]
pub struct Grow {
    /// The claim, or sts/NAME or deploy/NAME for those of a workload
    #[arg(value_name = "CLAIM")]
    pub whose: Whose,
    /// What it shall have at least, such as 20Gi
    #[arg(value_name = "SIZE", value_parser = size)]
    pub size: Bytes,
    /// Its namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// How long to wait for it; in ms, s, m or h
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub wait: Span,
    /// Edit the template of the PvcAutoscaler that keeps the claim, and so all claims of it
    #[arg(long)]
    pub yes: bool,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant shrink`.
#[derive(Debug, Args)]
pub struct Shrink {
    /// The claim, or sts/NAME or deploy/NAME for those of a workload
    #[arg(value_name = "CLAIM")]
    pub whose: Whose,
    /// What it shall have, such as 20Gi
    #[arg(value_name = "SIZE", value_parser = size)]
    pub size: Bytes,
    /// How it is done.
    #[command(flatten)]
    pub edit: Edit,
}

/// `pliant move`.
#[derive(Debug, Args)]
pub struct Move {
    /// The claim, or sts/NAME or deploy/NAME for those of a workload
    #[arg(value_name = "CLAIM")]
    pub whose: Whose,
    /// The StorageClass that it shall have
    #[arg(long, value_name = "NAME")]
    pub class: String,
    /// How it is done.
    #[command(flatten)]
    pub edit: Edit,
}

/// `pliant rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// The claim of a pod, or sts/NAME for all pods of a workload that have another claim than before
    #[arg(value_name = "CLAIM")]
    pub whose: Whose,
    /// How it is done.
    #[command(flatten)]
    pub edit: Edit,
}

/// `pliant abort`.
#[derive(Debug, Args)]
pub struct Abort {
    /// The claim of a pod, or sts/NAME for all pods of a workload whose swap goes on
    #[arg(value_name = "CLAIM")]
    pub whose: Whose,
    /// How it is done.
    #[command(flatten)]
    pub edit: Edit,
}

/// How a PvcAutoscaler is edited.
#[derive(Debug, Default, Args)]
pub struct Edit {
    /// Its namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Do it; without this it is only told what would be done
    #[arg(long)]
    pub yes: bool,
    /// How long to wait until all claims are so; in ms, s, m or h [default: it is not waited for]
    #[arg(long, value_name = "TIME", requires = "yes")]
    pub wait: Option<Span>,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// The PvcAutoscaler, of which all is told; without it all of the namespace are listed
    #[arg(value_name = "NAME", conflicts_with = "all_namespaces")]
    pub name: Option<String>,
    /// Its namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// List those of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// How it is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: TableOutput,
    /// Go on, and print it again whenever something has changed
    #[arg(short, long)]
    pub watch: bool,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// What to explain: pvc/NAME, pv/NAME, or NAME for a claim
    #[arg(value_name = "CLAIM")]
    pub subject: Subject,
    /// The namespace of the claim [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// How it is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant report`.
#[derive(Debug, Args)]
pub struct Report {
    /// File to write it to, YAML; without it, or with `-`, standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How many of the last lines of each log are taken
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub lines: u32,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant adopt`.
#[derive(Debug, Args)]
pub struct Adopt {
    /// Id of the volume, as `kubectl get nodestorages --output yaml` has it
    #[arg(value_name = "VOLUME", required_unless_present = "all")]
    pub volume: Option<String>,
    /// Adopt every volume that no PersistentVolume names
    #[arg(long, conflicts_with_all = ["volume", "claim"])]
    pub all: bool,
    /// Namespace of the claim that is made; not needed for a claim that is there and Lost
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Name of the claim that is made [default: that of the volume]
    #[arg(long, value_name = "NAME")]
    pub claim: Option<String>,
    /// Its class [default: the only one that takes the pool of the volume]
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,
    /// Print what would be made as YAML, and make nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant crds`.
#[derive(Debug, Args)]
pub struct Crds {
    /// Write them to the cluster and print none, over those of this version and of older ones
    #[arg(long)]
    pub apply: bool,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant version`.
#[derive(Debug, Args)]
pub struct Version {
    /// Ask no cluster
    #[arg(long)]
    pub client: bool,
    /// How it is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `pliant completion`.
#[derive(Debug, Args)]
pub struct Completion {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `pliant man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Directory to write them to; made if it is missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// `pliant doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Look at this node of the cluster, from here, in place of this machine
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// Look at the whole cluster in place of this machine; as a plugin of kubectl it always does
    #[arg(long, conflicts_with = "node")]
    pub cluster: bool,
    /// How findings are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
    /// Which cluster, and as whom.
    #[command(flatten)]
    pub which: ClusterFlags,
}

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For programs and for people.
    Yaml,
}

/// How a table is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableOutput {
    /// For people.
    Text,
    /// For people, with more of each row.
    Wide,
    /// For programs.
    Json,
    /// For programs and for people.
    Yaml,
}

impl TableOutput {
    /// Whether more of each row is shown.
    pub fn is_wide(self) -> bool {
        self == TableOutput::Wide
    }
}

impl From<TableOutput> for Output {
    fn from(table: TableOutput) -> Output {
        match table {
            TableOutput::Text | TableOutput::Wide => Output::Text,
            TableOutput::Json => Output::Json,
            TableOutput::Yaml => Output::Yaml,
        }
    }
}
