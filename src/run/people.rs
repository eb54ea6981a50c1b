//! The commands for people: ask, and print what was answered.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::cli::{Explain, Grow, Output, Status};
use crate::run::{node, print};
use crate::{ask, cli};

/// Print a result as it was asked for; `text` makes the text for people, with colours or without.
pub fn show<T: Serialize>(
    output: Output,
    result: &T,
    text: impl FnOnce(bool) -> String,
) -> Result<ExitCode> {
    print(&match output {
        Output::Text => text(cli::styled(&io::stdout())),
        Output::Json => serde_json::to_string_pretty(result)? + "\n",
        Output::Yaml => serde_saphyr::to_string(result)?,
    })
}

/// `pliant status`.
pub async fn status(args: &Status) -> Result<ExitCode> {
    let nodes = ask::status(&node::client().await?).await?;
    show(args.output, &nodes, |_| ask::table(&nodes))
}

/// `pliant explain`.
pub async fn explain(args: &Explain) -> Result<ExitCode> {
    let client = node::client().await?;
    let namespace = args.namespace.as_deref();
    let told = ask::explain(&client, cli::program(), namespace, &args.subject).await?;
    show(args.output, &told, |styled| ask::explain::print(&told, styled))
}

/// `pliant grow`.
pub async fn grow(args: &Grow) -> Result<ExitCode> {
    let client = node::client().await?;
    let namespace = args.namespace.as_deref();
    ask::grow(&client, namespace, &args.claim, args.size, args.wait.0, |line| {
        println!("{line}");
    })
    .await?;
    Ok(ExitCode::SUCCESS)
}
