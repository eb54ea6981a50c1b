//! `pliant copy`, `pliant send` and `pliant unpack`: standard output is for programs, a line of JSON at a time; the last
//! one is how it ended.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Error, Result, bail};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::archive::{self, ArchiveSource, Proxies, Reach, Route};
use crate::cli::{CarryFlags, CopyRole, SendRole, SocketsFlag, UnpackRole, VerificationFlag};
use crate::copy::{
    self, Compare, CopyError, CopyOptions, CopySummary, Dir, Hand, Pass, ProgressReporter, Sockets,
    copy_device,
};
use crate::remote::{Credentials, PORT, Remote, RemoteDisk, RemoteTree, Served, serve};
use crate::run::log;
use crate::run::print::print;
use crate::{cli, error_chain};

/// Longest message in bytes: with what JSON adds, the result stays below the 4096 bytes that a kubelet reads.
const MESSAGE: usize = 1500;

/// Result of the command.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
enum End {
    Done {
        #[serde(flatten)]
        what: CopySummary,
        seconds: f64,
    },
    Failed {
        reason: &'static str,
        message: String,
        seconds: f64,
    },
}

/// `pliant copy`.
pub fn copy(args: &CopyRole) -> Result<ExitCode> {
    let round = if args.pre_copy { Pass::PreCopy } else { Pass::Final };
    let sockets = match args.sockets {
        SocketsFlag::Skip => Sockets::Skip,
        SocketsFlag::Refuse => Sockets::Refuse,
    };
    let compare = match args.verification {
        VerificationFlag::Full => Compare::All,
        VerificationFlag::ChangedOnly => Compare::CHANGED,
    };
    let target = args.target.as_path();
    carry(&args.carry, |hand, tell| match (&args.source, &args.from, &args.cert_dir) {
        _ if args.probe => copy::probe(target, args.device),
        (_, Some(from), Some(dir)) => {
            let remote = Remote::at(from, &Credentials::read(dir)?, tell.stop())?;
            if args.device {
                copy::copy_disk(&RemoteDisk(remote), target, round, hand, tell)
            } else {
                copy::copy_from(&RemoteTree::of(remote), target, (round, sockets), hand, tell)
            }
        }
        (Some(source), ..) if args.device => copy_device(source, target, round, hand, tell),
        (Some(source), ..) => {
            copy::copy(CopyOptions { source, target, round, sockets, compare }, hand, tell)
        }
        _ => Err(CopyError::Refused("the source is missing: name it, or use --from".to_owned())),
    })
}

/// `pliant send`.
pub fn send(args: &SendRole) -> Result<ExitCode> {
    end_on_signals()?;
    let credentials = Credentials::read(&args.cert_dir)?;
    let source = if args.device {
        Served::Device(args.source.clone())
    } else {
        Served::Tree(
            Dir::open(&args.source)
                .with_context(|| format!("failed to open the source: {}", args.source.display()))?,
        )
    };
    let listen = SocketAddr::new(args.listen.ip, args.listen.port.unwrap_or(PORT));
    let listener =
        TcpListener::bind(listen).with_context(|| format!("failed to listen on {listen}"))?;
    let tell = |what: &str| log::complain(&format_args!("{}: {what}", cli::program()));
    tell(&format!("serving {} on {}", args.source.display(), listener.local_addr()?));
    match serve(&listener, &source, &credentials, &tell)? {}
}

/// Exits on signals: nothing is open for writing. The first process of a container does not exit on them by
/// default.
fn end_on_signals() -> Result<()> {
    when_told_to_end(|| std::process::exit(0))
}

/// `pliant unpack`.
pub fn unpack(args: &UnpackRole) -> Result<ExitCode> {
    let reach = Reach {
        public_only: args.public_only,
        allowed: args.allow_cidr.clone(),
        hosts: args.allow_host.clone(),
    };
    let proxies = Proxies::read(|name| std::env::var(name).ok()).map_err(Error::msg)?;
    let bundle = args.ca_bundle.clone().unwrap_or_default();
    let route = Route { reach, proxies, bundle, ..Route::default() };
    let origin = match (&args.file, &args.url) {
        (Some(file), _) => ArchiveSource::File(file),
        (None, Some(address)) => ArchiveSource::Address(address, &route),
        (None, None) => bail!("the archive is missing: name it with --file or --url"),
    };
    let (sum, target, owners) = (args.sha256, args.target.as_path(), !args.no_owners);
    let order = archive::UnpackOptions { origin, sum, target, owners, max_size: args.max_size };
    carry(&args.carry, |hand, tell| archive::unpack(&order, hand, tell))
}

/// Runs the work, and reports progress and result; the exit status has the result, too.
fn carry(
    flags: &CarryFlags,
    work: impl FnOnce(&Hand, &mut ProgressReporter) -> Result<CopySummary, CopyError>,
) -> Result<ExitCode> {
    let limit = flags.max_rate.map(|rate| rate.0.get());
    let mut tell = ProgressReporter::new(Box::new(io::stdout()), limit, stop_on_signals()?);
    let begun = Instant::now();
    let ended = work(&Hand::default(), &mut tell);
    let seconds = (begun.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
    let (end, code) = match ended {
        Ok(what) => (End::Done { what, seconds }, 0),
        Err(error) => {
            let message = cut(&error_chain::in_full(&error), MESSAGE).to_owned();
            log::complain(&format_args!("{}: {message}", cli::program()));
            (End::Failed { reason: error.word(), message, seconds }, error.code())
        }
    };
    let line = serde_json::to_string(&end)? + "\n";
    if let Some(file) = &flags.result {
        let written = std::fs::write(file, &line);
        written.with_context(|| format!("failed to write the result to {}", file.display()))?;
    }
    print(&line)?;
    Ok(ExitCode::from(code))
}

/// Truncates a text to this many bytes, at a character boundary.
fn cut(text: &str, longest: usize) -> &str {
    let ends = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..ends.unwrap_or_default()]
}

/// Returns a flag that SIGTERM and SIGINT set. The first process of a container does not exit on them by
/// default, and the kubelet would wait for it half a minute.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    when_told_to_end(move || told.store(true, Ordering::Relaxed))?;
    Ok(stop)
}

fn when_told_to_end(end: impl FnOnce() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("failed to start the runtime")?;
    let (mut term, mut int) = {
        let _here = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        });
        end();
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_fits_into_what_a_kubelet_reads() {
        let message = cut(&"\\\"ä".repeat(9000), MESSAGE).to_owned();
        let end = End::Failed { reason: "mismatch", message, seconds: 1.5 };
        assert!(serde_json::to_string(&end).unwrap().len() < 4096);
    }

    #[test]
    fn the_end_is_one_object() {
        let what = CopySummary { bytes: 5, files: 2, ..CopySummary::default() };
        let text = serde_json::to_string(&End::Done { what, seconds: 0.25 }).unwrap();
        assert_eq!(text, r#"{"outcome":"done","bytes":5,"files":2,"seconds":0.25}"#);
    }
}
