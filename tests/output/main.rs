//! The program whose standard error or output cannot be written.

#![allow(clippy::disallowed_methods)] // No room of the driver: it starts the binary itself.

#[cfg(feature = "otlp")]
mod traces;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write, stderr};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::geteuid;
use pliant::csi::pb;
use pliant::csi::pb::controller_client::ControllerClient;
use pliant::csi::pb::identity_client::IdentityClient;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// How long a driver may take to serve, in milliseconds.
const START: u16 = 30_000;

/// A driver that serves no pool, and who is its client.
struct Served {
    child: Child,
    dir: tempfile::TempDir,
    metrics: SocketAddr,
}

/// Whether this user may run a driver. Where not it is said past the capture of the test, which passes.
fn may_drive() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        writeln!(stderr(), "skipped: a driver needs root").expect("a line of standard error");
    }
    is_root
}

impl Served {
    /// One with this as its standard error; `None` where this user may not run it.
    fn start(errors: Stdio) -> Option<Served> {
        Served::start_as(Command::new(cargo_bin("pliant")).stderr(errors))
    }

    /// One that this command starts, to which its words are added.
    fn start_as(command: &mut Command) -> Option<Served> {
        if !may_drive() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let made = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
        made.add_watch(dir.path(), AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO).unwrap();
        let child = command
            .args(["standalone", "--node-id=a", "--pool=fast=create:/dev/absent"])
            .arg(format!("--endpoint={}", dir.path().join("csi.sock").display()))
            .arg(format!("--state-dir={}", dir.path().join("state").display()))
            .arg(format!("--metrics-address={metrics}"))
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
        runtime.block_on(async {
            let channel = self.channel().await;
            let looked = IdentityClient::new(channel.clone()).probe(pb::ProbeRequest {}).await;
            let create = pb::CreateVolumeRequest { name: "a".to_owned(), ..Default::default() };
            let made = ControllerClient::new(channel).create_volume(create).await;
            let code = |error: tonic::Status| error.code();
            (looked.map_or_else(code, |_| Code::Ok), made.map_or_else(code, |_| Code::Ok))
        })
    }

    /// A connection to its socket.
    async fn channel(&self) -> Channel {
        let socket = format!("unix://{}", self.dir.path().join("csi.sock").display());
        let endpoint = Endpoint::from_shared(socket).unwrap();
        loop {
            match endpoint.connect().await {
                Ok(channel) => break channel,
                Err(_) => tokio::task::yield_now().await, // It is bound, and listens in a moment.
            }
        }
    }

    /// How many lines of its log it says are lost.
    fn lost(&self) -> u64 {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line =
            text.lines().find_map(|line| line.strip_prefix("pliant_log_lines_dropped_total "));
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

#[cfg(not(feature = "otlp"))]
#[test]
fn a_build_without_opentelemetry_says_so_once_if_it_is_asked_for() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(cargo_bin("pliant"));
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let errors: File = log.reopen().unwrap();
    let Some(served) = Served::start_as(command.stderr(errors)) else { return };
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    let text = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(text.matches("this build has no OpenTelemetry").count(), 1, "{text}");
}

/// A file system of so many bytes in memory.
struct Small(tempfile::TempDir);

impl Small {
    fn new(size: u32) -> Small {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let none: Option<&str> = None;
        mount(none, dir.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
        Small(dir)
    }

    /// Write to a file until nothing more fits.
    fn fill(&self, name: &str) {
        let mut file = File::create(self.0.path().join(name)).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        umount2(self.0.path(), MntFlags::MNT_DETACH).ok();
    }
}

#[test]
fn a_log_on_a_disk_that_was_full_goes_on_once_there_is_space() {
    if !may_drive() {
        return;
    }
    let disk = Small::new(128 << 10);
    let log = disk.0.path().join("log");
    let Some(served) = Served::start(File::create(&log).unwrap().into()) else { return };
    assert_eq!((served.answers(), served.lost()), ((Code::Ok, Code::InvalidArgument), 0));

    disk.fill("other");
    // Of the page that the log has some is free.
    let full = (0..4096 / 16).any(|_| {
        assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
        served.lost() > 0
    });
    assert!(full, "nothing is lost on a full disk");

    std::fs::remove_file(disk.0.path().join("other")).unwrap();
    let (lost, before) = (served.lost(), std::fs::metadata(&log).unwrap().len());
    assert_eq!((served.answers(), served.lost()), ((Code::Ok, Code::InvalidArgument), lost));
    let text = std::fs::read_to_string(&log).unwrap();
    let since = &text[usize::try_from(before).unwrap()..];
    assert!(since.contains("INVALID_ARGUMENT") || since.contains("InvalidArgument"), "{since}");
}

#[test]
fn what_the_driver_opens_never_takes_the_place_of_a_closed_standard_error() {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$0" "$@" <&- >&- 2>&-"#]).arg(cargo_bin("pliant"));
    let Some(served) = Served::start_as(&mut shell) else { return };
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    for number in 0..3 {
        let file = format!("/proc/{}/fd/{number}", served.child.id());
        assert_eq!(std::fs::read_link(file).unwrap(), Path::new("/dev/null"));
    }
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
