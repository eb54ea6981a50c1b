//! The binary: parse the command line and run the role that it names.

use std::process::ExitCode;

use pliant::{cli, run};

fn main() -> ExitCode {
    run::run(cli::read().command).unwrap_or_else(|error| {
        eprintln!("{}: {error:#}", cli::program());
        ExitCode::FAILURE
    })
}
