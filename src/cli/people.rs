//! The commands for people: what they ask of a cluster or a machine.

use clap::{Args, ValueEnum};

use crate::ask::explain::Subject;
use crate::bytes::Bytes;
use crate::cli::size;
use crate::config::Span;

/// `pliant status`.
#[derive(Debug, Args)]
pub struct Status {
    /// How it is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}

/// `pliant grow`.
#[derive(Debug, Args)]
pub struct Grow {
    /// The claim
    #[arg(value_name = "CLAIM")]
    pub claim: String,
    /// What it shall have at least, such as 20Gi
    #[arg(value_name = "SIZE", value_parser = size)]
    pub size: Bytes,
    /// Its namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// How long to wait for it; in ms, s, m or h
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub wait: Span,
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
}

/// `pliant doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// How findings are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
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
