//! The program whose standard error or output cannot be written.

#![allow(clippy::disallowed_methods)] // No room of the driver: it starts the binary itself.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::geteuid;
use pliant::csi::pb;
use pliant::csi::pb::controller_client::ControllerClient;
use pliant::csi::pb::identity_client::IdentityClient;
use tonic::Code;
use tonic::transport::Endpoint;

/// How long a driver may take to serve, in milliseconds.
const START: u16 = 30_000;

/// A driver that serves no pool, and who is its client.
struct Served {
    child: Child,
    dir: tempfile::TempDir,
    metrics: SocketAddr,
}

impl Served {
    /// One with this as its standard error; `None` where this user may not run it.
    fn start(errors: Stdio) -> Option<Served> {
        if !geteuid().is_root() {
            eprintln!("skipped: a driver needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let made = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
        made.add_watch(dir.path(), AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO).unwrap();
        let child = Command::new(cargo_bin("pliant"))
            .args(["standalone", "--node-id=a", "--pool=fast=absent"])
            .arg(format!("--endpoint={}", dir.path().join("csi.sock").display()))
            .arg(format!("--state-dir={}", dir.path().join("state").display()))
            .arg(format!("--metrics-address={metrics}"))
            .stderr(errors)
            .spawn()
            .unwrap();
        let mut served = Served { child, dir, metrics };
        while !served.dir.path().join("csi.sock").exists() {
            let mut asked = [PollFd::new(made.as_fd(), PollFlags::POLLIN)];
            let news = poll(&mut asked, PollTimeout::from(START)).unwrap();
            let ended = served.child.try_wait().unwrap();
            assert!(news > 0 && ended.is_none(), "it does not serve: {ended:?}");
            made.read_events().unwrap();
        }
        Some(served)
    }

    /// What it answers: a call that looks, and one that changes something.
    fn answers(&self) -> (Code, Code) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let socket = format!("unix://{}", self.dir.path().join("csi.sock").display());
        runtime.block_on(async {
            let endpoint = Endpoint::from_shared(socket).unwrap();
            let channel = loop {
                match endpoint.connect().await {
                    Ok(channel) => break channel,
                    Err(_) => tokio::task::yield_now().await, // It is bound, and listens in a moment.
                }
            };
            let looked = IdentityClient::new(channel.clone()).probe(pb::ProbeRequest {}).await;
            let create = pb::CreateVolumeRequest { name: "a".to_owned(), ..Default::default() };
            let made = ControllerClient::new(channel).create_volume(create).await;
            let code = |error: tonic::Status| error.code();
            (looked.map_or_else(code, |_| Code::Ok), made.map_or_else(code, |_| Code::Ok))
        })
    }

    /// How many lines of its log it says are lost.
    fn lost(&self) -> u64 {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("pliant_log_lines_lost_total "));
        line.unwrap_or_else(|| panic!("no figure of it in {text}")).parse().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_full_standard_error_changes_no_answer() {
    let Some(served) = Served::start(full().into()) else { return };
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    assert!(served.lost() > 0);
}

#[test]
fn a_standard_error_that_nobody_reads_changes_no_answer() {
    let (reader, writer) = std::io::pipe().unwrap();
    let Some(served) = Served::start(writer.into()) else { return };
    drop(reader);
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    assert!(served.lost() > 0);
}

#[test]
fn what_is_logged_while_it_can_be_is_not_lost() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let Some(served) = Served::start(log.reopen().unwrap().into()) else { return };
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    assert_eq!(served.lost(), 0);
    let text = std::fs::read_to_string(log.path()).unwrap();
    assert!(text.contains("InvalidArgument") || text.contains("INVALID_ARGUMENT"), "{text}");
}

/// Exit code and standard error of a command with this as its standard output.
fn ended(args: &[&str], output: Stdio, errors: Stdio) -> (Option<i32>, String) {
    let child = Command::new(cargo_bin("pliant")).args(args).stdout(output).stderr(errors).spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Commands that print something, on this machine alone.
const PRINT: [&[&str]; 6] = [
    &["crds"],
    &["udev-rules"],
    &["completion", "bash"],
    &["--help"],
    &["--version"],
    &["doctor", "--output=json"],
];

#[test]
fn a_reader_that_has_left_is_no_failure_and_no_message() {
    for args in PRINT {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, errors) = ended(args, writer.into(), Stdio::piped());
        assert_eq!(errors, "", "{args:?}");
        // `doctor` says by its status what it has found.
        assert!(code == Some(0) || args[0] == "doctor" && code == Some(1), "{args:?}: {code:?}");
    }
}

#[test]
fn a_full_standard_output_is_said_in_one_line() {
    for args in PRINT.into_iter().filter(|args| !args[0].starts_with("--")) {
        let (code, errors) = ended(args, full().into(), Stdio::piped());
        assert_eq!(code, Some(1), "{args:?}");
        assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
        assert!(errors.contains("No space left on device"), "{args:?}: {errors}");
    }
}

#[test]
fn an_error_that_cannot_be_printed_is_still_an_exit_status() {
    for args in [&["check-config", "/nonexistent/x"][..], &["crds"]] {
        let (code, _) = ended(args, full().into(), full().into());
        assert_eq!(code, Some(1), "{args:?}");
    }
    let (code, _) = ended(&["standalone", "--no-such-flag"], full().into(), full().into());
    assert_eq!(code, Some(2), "as with a standard error that can be written");
}
