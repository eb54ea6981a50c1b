//! The binary: parse the command line and run the role that it names.

use std::process::ExitCode;

use pliant::{cli, run};

fn main() -> ExitCode {
    let done = match cli::to_complete() {
        Some(words) => run::complete(words),
        None => run::run(cli::read().command),
    };
    done.unwrap_or_else(|error| {
        run::complain(&error);
        ExitCode::FAILURE
    })
}
