//! The wiring: the only room that sees every other.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::{CheckConfig, Command};
use crate::config::{LogFormat, Settings};

/// Run one role to its end.
///
/// # Errors
/// What kept the role from being carried out; printed once, by `main`.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::CheckConfig(args) => check_config(args),
        Command::Standalone(args) => {
            match Settings::read(args.settings.into(), args.config.as_deref()) {
                Ok(settings) => log(&settings),
                Err(errors) => return Ok(refuse(&errors)),
            }
            bail!("the rooms are not wired yet")
        }
        Command::Doctor(_) | Command::Try(_) => bail!("the rooms are not wired yet"),
    }
}

fn check_config(args: CheckConfig) -> Result<ExitCode> {
    match Settings::read(args.settings.into(), Some(&args.file)) {
        Ok(settings) => print(&settings.to_string()),
        Err(errors) => Ok(refuse(&errors)),
    }
}

fn refuse(errors: &[crate::config::ConfigError]) -> ExitCode {
    for error in errors {
        eprintln!("{error}");
    }
    ExitCode::FAILURE
}

/// Print to standard output; a reader that has left, as `head` does, is no failure.
fn print(text: &str) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn log(settings: &Settings) {
    let filter = tracing_subscriber::EnvFilter::new(settings.log_level.as_str());
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match settings.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}
