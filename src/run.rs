//! The wiring: the only module that uses all others.

mod carry;
mod client;
mod controller;
mod figures;
mod heap;
mod log;
mod machine;
mod node;
mod operator;
mod people;
mod print;
mod standalone;
mod traces;

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use nix::unistd::{Uid, geteuid};

use crate::cli::{CheckConfig, Command, DoctorArgs};
use crate::config::{LogFilter, LogFormat, PoolsFrom, Settings};
use crate::host::{Host, RealHost, UDEV_RULES};
use crate::run::print::print;
use crate::{api, cli, doctor, self_test};

/// Prints shell completions for these words.
///
/// # Errors
/// An error of the system while reading files, where one may follow.
pub fn complete(words: Vec<OsString>) -> Result<ExitCode> {
    print(&cli::candidates(words)?)
}

/// Prints why a command failed; a failure to print is ignored.
pub fn complain(error: &anyhow::Error) {
    let lines = format!("{error:#}");
    let lines: Vec<String> = lines.lines().map(doctor::harmless).collect();
    log::complain(&format_args!("{}: {}", cli::program(), lines.join("\n")));
}

/// Runs one role to its end.
///
/// # Errors
/// The error of the role; printed once, by `main`.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::CheckConfig(args) => check_config(args),
        Command::Standalone(args) => {
            // Wrong settings are reported to anyone.
            let settings = args.settings.into();
            match Settings::read(settings, args.config.as_deref(), PoolsFrom::Settings) {
                Ok(settings) => on_this_machine("standalone", &settings, standalone::serve),
                Err(errors) => Ok(refuse(&errors)),
            }
        }
        Command::Node(args) => {
            let flags = args.settings.into();
            match Settings::read(flags, args.config.as_deref(), PoolsFrom::Cluster) {
                Ok(settings) => {
                    let registration = (!args.no_registration).then_some(args.registration_socket);
                    on_this_machine("node", &settings, |settings| {
                        let rules = args.udev_rules_dir.as_deref();
                        let transfers = args.transfer_ip.map(|ip| (ip, args.transfer_port).into());
                        let interval = args.volume_stats_interval.0;
                        node::serve(settings, registration, interval, rules, transfers)
                    })
                }
                Err(errors) => Ok(refuse(&errors)),
            }
        }
        Command::Controller(args) => {
            let log = (args.tell.log_format, args.tell.log_level.clone());
            in_the_background("controller", &log, || controller::serve(args))
        }
        Command::Operator(args) => {
            let log = (args.tell.log_format, args.tell.log_level.clone());
            in_the_background("operator", &log, || operator::serve(*args))
        }
        Command::Status(args) => runtime()?.block_on(people::status(&args)),
        Command::Explain(args) => runtime()?.block_on(people::explain(&args)),
        Command::Expand(args) => runtime()?.block_on(people::expand(&args)),
        Command::Shrink(args) => runtime()?.block_on(people::shrink(&args)),
        Command::Migrate(args) => runtime()?.block_on(people::migrate(&args)),
        Command::Rollback(args) => runtime()?.block_on(people::rollback(&args)),
        Command::Abort(args) => runtime()?.block_on(people::abort(&args)),
        Command::Plan(args) => runtime()?.block_on(people::plan(&args)),
        Command::Report(args) => runtime()?.block_on(people::report(&args)),
        Command::Recover(args) => runtime()?.block_on(people::recover(args)),
        Command::Copy(args) => carry::copy(&args),
        Command::Send(args) => carry::send(&args),
        Command::Unpack(args) => carry::unpack(&args),
        Command::Completion(args) => print(&String::from_utf8(cli::completion(args.shell))?),
        Command::Man(args) => people::manual(&args.dir),
        Command::Crds(args) if args.apply => runtime()?.block_on(people::apply_definitions(&args)),
        Command::Version(args) => runtime()?.block_on(people::version(&args)),
        Command::Crds(_) => print(&definitions()?),
        Command::UdevRules => print(UDEV_RULES),
        Command::Doctor(args) if people::is_about_a_cluster(&args) => {
            runtime()?.block_on(people::check_up(&args))
        }
        Command::Doctor(args) => examine(&args),
        Command::SelfTest(args) => {
            must_be_root("self-test", geteuid())?;
            runtime()?.block_on(async { self_test::run(&args).await.map(|()| ExitCode::SUCCESS) })
        }
    }
}

/// Serves what needs the disks of this host, until it is stopped.
fn on_this_machine<F: Future<Output = Result<()>>>(
    role: &str,
    settings: &Settings,
    serve: impl FnOnce(Settings) -> F,
) -> Result<ExitCode> {
    must_be_root(role, geteuid())?;
    let log = (settings.log_format, settings.log_level.clone());
    in_the_background(role, &log, || serve(settings.clone()))
}

/// Serves with a log, until it is stopped.
fn in_the_background<F: Future<Output = Result<()>>>(
    role: &str,
    (format, level): &(LogFormat, LogFilter),
    serve: impl FnOnce() -> F,
) -> Result<ExitCode> {
    let runtime = runtime()?;
    let traces = {
        let _in = runtime.enter();
        log::start(role, *format, level)
    };
    let served = runtime.block_on(serve());
    traces.end();
    // A thread that waits for a hung disk, or for the address of a name, must not keep the process from leaving.
    runtime.shutdown_background();
    served?;
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// The commands to run instead, for a user who could not do what the role does.
fn must_be_root(role: &str, user: Uid) -> Result<()> {
    ensure!(
        user.is_root(),
        "creating and mounting volumes requires root, and this is user {user}: run sudo pliant \
         {role} …"
    );
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    heap::share_one();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2) // The work is waiting; threads beyond this only cost memory.
        .enable_all()
        .build()
        .context("failed to start the runtime")
}

fn check_config(args: CheckConfig) -> Result<ExitCode> {
    match Settings::read(args.settings.into(), Some(&args.file), PoolsFrom::Settings) {
        Ok(settings) => print(&settings.to_string()),
        Err(errors) => Ok(refuse(&errors)),
    }
}

/// Checks this host; the exit status shows whether something has to be fixed.
fn examine(args: &DoctorArgs) -> Result<ExitCode> {
    // A state directory of its own: looking must not touch that of a running driver.
    let state = std::env::temp_dir().join(format!("pliant-doctor-{}", std::process::id()));
    // Made by us and for us alone, or not at all: others write to that directory too.
    DirBuilder::new().mode(0o700).create(&state)?;
    let runtime = runtime()?;
    let seen = RealHost::new(&state).map(|host| {
        let host: Arc<dyn Host> = Arc::new(host);
        runtime.block_on(doctor::look(&host))
    });
    std::fs::remove_dir_all(&state).ok();
    let findings = doctor::judge(&seen?);
    people::print_findings(args.output, &findings)
}

/// The definitions of all kinds, one YAML document each, for `kubectl apply --filename -`.
fn definitions() -> Result<String> {
    api::definitions().iter().map(people::document).collect()
}

fn refuse(errors: &[crate::config::ConfigError]) -> ExitCode {
    for error in errors {
        log::complain(error);
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_root_is_told_what_to_type() {
        must_be_root("self-test", Uid::from_raw(0)).unwrap();
        let said = must_be_root("self-test", Uid::from_raw(1000)).unwrap_err().to_string();
        assert!(said.contains("this is user 1000: run sudo pliant self-test"), "{said}");
    }
}
