//! The wiring: the only room that sees every other.

mod figures;
mod standalone;
mod trial;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cli::{CheckConfig, Command, Doctor, Output};
use crate::config::{LogFormat, Settings};
use crate::doctor;
use crate::host::RealHost;

/// Run one role to its end.
///
/// # Errors
/// What kept the role from being carried out; printed once, by `main`.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::CheckConfig(args) => check_config(args),
        Command::Standalone(args) => {
            match Settings::read(args.settings.into(), args.config.as_deref()) {
                Ok(settings) => {
                    log(&settings);
                    runtime()?.block_on(standalone::serve(settings))?;
                    Ok(ExitCode::SUCCESS)
                }
                Err(errors) => Ok(refuse(&errors)),
            }
        }
        Command::Doctor(args) => runtime()?.block_on(examine(&args)),
        Command::Try(args) => {
            runtime()?.block_on(async { trial::run(&args).await.map(|()| ExitCode::SUCCESS) })
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2) // The work is waiting; threads beyond this only cost memory.
        .enable_all()
        .build()
        .context("the runtime could not be started")
}

async fn examine(args: &Doctor) -> Result<ExitCode> {
    let state = std::env::temp_dir().join(format!("pliant-doctor-{}", std::process::id()));
    let host = RealHost::new(&state).context("the machine can not be looked at")?;
    let findings = doctor::judge(&doctor::look(&host).await);
    drop(host);
    let _ = std::fs::remove_dir_all(&state);
    match args.output {
        Output::Text => print(&doctor::print(&findings, doctor::styled())),
        Output::Json => print(&(serde_json::to_string_pretty(&findings)? + "\n")),
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
