//! The binary: parse the command line and run the role that it names.

use std::process::ExitCode;

use clap::Parser;
use pliant::{cli::Cli, run};

fn main() -> ExitCode {
    run::run(Cli::parse().command).unwrap_or_else(|error| {
        eprintln!("pliant: {error:#}");
        ExitCode::FAILURE
    })
}
