//! Programs: how each is started, and one that runs to its end.

use std::future::Future;
use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use command_fds::CommandFdExt;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::image::Image;
use super::{Cmd, HostError, Output};

/// Maximum size of a program's output; more is an error.
pub(super) const OUTPUT_LIMIT: usize = 64 << 20;
/// How much of standard error is kept.
const TAIL: usize = 4 << 10;

/// Where programs are looked for, and where they look for others.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns whether a program is installed.
pub fn is_installed(program: &str) -> bool {
    file_of(program).is_absolute()
}

/// The file of a program. Named by its whole path it is started by `posix_spawn`, which does not copy
/// this process first as `fork` does.
fn file_of(program: &str) -> PathBuf {
    let mut files = PATH.split(':').map(|dir| Path::new(dir).join(program));
    files.find(|file| file.is_file()).unwrap_or_else(|| program.into())
}

/// Environment of every program: this and nothing else.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    /// The directory with our `lvm.conf`.
    pub(super) lvm_dir: PathBuf,
}

impl Environment {
    /// A program with this environment, nothing on its standard input, in a process group of its
    /// own: a Ctrl-C at our terminal does not end an LVM command half-way.
    pub(super) fn command(&self, program: &str) -> Command {
        #[expect(
            clippy::disallowed_methods,
            reason = "the host interface is the only place that \
                                                       starts processes"
        )]
        let mut command = Command::new(file_of(program));
        command
            .env_clear()
            .env("PATH", PATH)
            .env("LC_ALL", "C")
            .env("HOME", "/nonexistent")
            .env("LVM_SYSTEM_DIR", &self.lvm_dir)
            .env("LVM_SUPPRESS_FD_WARNINGS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(false);
        command
    }

    /// `lvm` with a report descriptor, and the end of it that we read.
    pub(super) fn reporting_lvm(&self) -> io::Result<(Command, PipeReader)> {
        let (reader, writer) = io::pipe()?;
        let mut command = self.command("lvm");
        command
            .env("LVM_REPORT_FD", writer.as_raw_fd().to_string())
            .preserved_fds(vec![writer.into()]);
        Ok((command, reader))
    }
}

/// Starts a program.
pub(super) fn start(mut command: Command, what: &str) -> Result<Child, HostError> {
    command.spawn().map_err(|source| HostError::NotStarted { what: what.to_owned(), source })
}

/// Runs a program to its end; when the limit passes, only the waiting ends.
///
/// It also has these files open, to its end: even if no caller waits for it any more, or the driver
/// was killed.
pub(super) async fn run(
    env: &Environment,
    cmd: Cmd,
    open: Vec<OwnedFd>,
) -> Result<Output, HostError> {
    let what = cmd.to_string();
    let mut command = env.command(cmd.program);
    command.args(&cmd.args);
    if !open.is_empty() {
        command.preserved_fds(open);
    }
    let child = start(command, &what)?;
    within(cmd.limit, &what, output(child, what.clone())).await
}

/// Runs a program on an image, which it has as its last argument and inherits; else as [`run`].
pub(super) async fn run_on(env: &Environment, cmd: Cmd, image: Image) -> Result<Output, HostError> {
    let cmd = cmd.arg(image.path());
    let what = cmd.to_string();
    let mut command = env.command(cmd.program);
    command.args(&cmd.args).preserved_fds(vec![image.into()]);
    let child = start(command, &what)?;
    within(cmd.limit, &what, output(child, what.clone())).await
}

/// Runs one LVM command as its own process and return a report such as the shell's.
pub(super) async fn run_reporting(env: &Environment, cmd: Cmd) -> Result<String, HostError> {
    let what = cmd.to_string();
    let (mut command, report) = env.reporting_lvm().map_err(system(&what))?;
    command.arg(cmd.program).args(&cmd.args);
    let child = start(command, &what)?;
    let report = receiver(report).map_err(system(&what))?;
    let said = what.clone();
    within(cmd.limit, &what, async move {
        let (report, output) = tokio::join!(whole(report), output(child, said.clone()));
        let (report, output) = (report.map_err(system(&said))?, output?);
        if output.code >= 128 {
            return Err(HostError::Died { what: said });
        }
        Ok(ended_report(&report, cmd.program, &output))
    })
    .await
}

/// The report of a process with the last row that the shell would have written.
///
/// A process writes no such row, and for some commands and errors no report at all; its exit code and
/// standard error say the same.
fn ended_report(report: &str, command: &str, output: &Output) -> String {
    let mut report = serde_json::from_str(report)
        .ok()
        .filter(serde_json::Value::is_object)
        .unwrap_or_else(|| json!({}));
    if !report["log"].is_array() {
        report["log"] = json!([]);
    }
    let rows = report["log"].as_array().map_or(0, Vec::len);
    let row = |number: usize, kind: &str, message: &str, errno: &str, code: i32| {
        json!({
            "log_seq_num": number.to_string(), "log_type": kind, "log_context": "shell",
            "log_object_type": "cmd", "log_object_name": command, "log_object_id": "",
            "log_object_group": "", "log_object_group_id": "", "log_message": message,
            "log_errno": errno, "log_ret_code": code.to_string(),
        })
    };
    if let Some(log) = report["log"].as_array_mut() {
        let stderr = output.stderr.trim();
        if rows == 0 && !stderr.is_empty() {
            log.push(row(1, "error", stderr, "-1", 0));
        }
        let number = log.len() + 1;
        log.push(match output.code {
            0 => row(number, "status", "success", "0", 1),
            code => row(number, "status", "failure", "-1", code),
        });
    }
    report.to_string()
}

/// Does the work in a task that is never cancelled, and waits for it this long.
pub(super) async fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, HostError>> + Send + 'static,
) -> Result<T, HostError> {
    let what = || what.to_owned();
    match timeout(limit, tokio::spawn(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(HostError::Died { what: what() }),
        Err(_) => Err(HostError::TimedOut { what: what(), limit }),
    }
}

/// The reading end of a pipe, for tokio.
pub(super) fn receiver(pipe: PipeReader) -> io::Result<tokio::net::unix::pipe::Receiver> {
    tokio::net::unix::pipe::Receiver::from_owned_fd(pipe.into())
}

/// Converts a failed call to an error of the host interface.
pub(super) fn system(what: &str) -> impl FnOnce(io::Error) -> HostError + use<> {
    let what = what.to_owned();
    |source| HostError::System { what, source }
}

async fn output(mut child: Child, what: String) -> Result<Output, HostError> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr, status) = tokio::join!(
        async {
            match stdout {
                Some(stdout) => whole(stdout).await,
                None => Ok(String::new()),
            }
        },
        async {
            match stderr {
                Some(stderr) => tail(stderr).await,
                None => Ok(String::new()),
            }
        },
        child.wait(),
    );
    let read = |source| HostError::System { what: what.clone(), source };
    Ok(Output {
        code: code(status.map_err(read)?),
        stdout: stdout.map_err(read)?,
        stderr: stderr.map_err(read)?,
    })
}

/// The exit code, or 128 + the signal's number.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// All that a program writes. Beyond the limit it is read and dropped, that the program can end.
async fn whole(mut from: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut kept = Vec::new();
    let mut limited = (&mut from).take(OUTPUT_LIMIT as u64);
    limited.read_to_end(&mut kept).await?;
    if tokio::io::copy(&mut from, &mut tokio::io::sink()).await? > 0 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

/// The end of what a program writes.
async fn tail(mut from: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut kept = Vec::new();
    let mut chunk = [0; TAIL];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(String::from_utf8_lossy(&kept).into_owned());
        }
        kept.extend_from_slice(&chunk[..read]);
        kept.drain(..kept.len().saturating_sub(TAIL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> Environment {
        Environment { lvm_dir: "/nonexistent/lvm".into() }
    }

    fn sh(script: &'static str) -> Cmd {
        Cmd::new("sh").args(["-c", script])
    }

    #[tokio::test]
    async fn a_program_sees_only_what_it_is_given() {
        let script = "cat; env | grep -v ^PWD | sort";
        let output = run(&env(), sh(script), Vec::new()).await.unwrap();
        let expected = [
            "HOME=/nonexistent",
            "LC_ALL=C",
            "LVM_SUPPRESS_FD_WARNINGS=1",
            "LVM_SYSTEM_DIR=/nonexistent/lvm",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        ];
        let seen: Vec<&str> = output
            .stdout
            .lines()
            .filter(|line| !line.starts_with("_=") && !line.starts_with("SHLVL="))
            .collect();
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn a_program_has_its_own_process_group() {
        let script = "cut -d' ' -f1,5 /proc/$$/stat";
        let output = run(&env(), sh(script), Vec::new()).await.unwrap();
        let words: Vec<&str> = output.stdout.split_whitespace().collect();
        assert_eq!(words[0], words[1]);
    }

    #[tokio::test]
    async fn code_signal_and_the_tail_of_stderr_are_kept() {
        let script = "seq 1 3000 >&2; seq 1 40000; exit 7";
        let output = run(&env(), sh(script), Vec::new()).await.unwrap();
        assert_eq!((output.code, output.stderr.len()), (7, TAIL));
        assert!(output.stderr.ends_with("\n2999\n3000\n"));
        assert_eq!(output.stdout.lines().count(), 40_000);
        assert_eq!(run(&env(), sh("kill -9 $$"), Vec::new()).await.unwrap().code, 137);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_was_not_started() {
        let error = run(&env(), Cmd::new("pliant-no-such-program"), Vec::new()).await.unwrap_err();
        assert!(matches!(error, HostError::NotStarted { .. }));
    }

    #[tokio::test]
    async fn a_program_goes_on_when_nobody_waits_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let gate = dir.path().join("gate");
        nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let cmd = Cmd::new("sh")
            .args(["-c", "read word <$1; echo $word >$1", "sh"])
            .arg(&gate)
            .limit(Duration::ZERO);
        let error = run(&env(), cmd, Vec::new()).await.unwrap_err();
        assert!(matches!(error, HostError::TimedOut { .. }));
        let said = tokio::task::spawn_blocking(move || {
            std::fs::write(&gate, "alive\n").unwrap();
            std::fs::read_to_string(&gate).unwrap()
        });
        assert_eq!(said.await.unwrap(), "alive\n");
    }

    #[tokio::test]
    async fn a_program_keeps_open_what_it_was_given_when_nobody_waits_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let (gate, held) = (dir.path().join("gate"), dir.path().join("held"));
        nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let file = std::fs::File::create(&held).unwrap();
        file.try_lock().unwrap(); // It goes with the last who has the file open.
        let wait = Cmd::new("sh").args(["-c", "read word <$1", "sh"]).arg(&gate);
        let given = vec![file.into()];
        run(&env(), wait.limit(Duration::ZERO), given).await.unwrap_err();

        let again = std::fs::File::open(&held).unwrap();
        again.try_lock().expect_err("the program has it open");
        let ended = tokio::task::spawn_blocking(move || {
            std::fs::write(&gate, "end\n").unwrap();
            again.lock()
        });
        ended.await.unwrap().unwrap();
    }

    #[test]
    fn a_report_ends_with_the_status_that_the_shell_would_write() {
        let output =
            |code, stderr: &str| Output { code, stdout: String::new(), stderr: stderr.into() };
        let rows = |report: &str, output: &Output| -> Vec<[String; 4]> {
            let report = ended_report(report, "lvs", output);
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            let names = ["log_seq_num", "log_type", "log_message", "log_ret_code"];
            let row =
                |row: &serde_json::Value| names.map(|name| row[name].as_str().unwrap().into());
            report["log"].as_array().unwrap().iter().map(row).collect()
        };
        assert_eq!(rows("", &output(0, "")), [["1", "status", "success", "1"]]);
        assert_eq!(
            rows("[1]", &output(3, " Bad.\n")),
            [["1", "error", "Bad.", "0"], ["2", "status", "failure", "3"]]
        );
        let said = r#"{"report":[],"log":[{"log_seq_num":"1","log_type":"error","log_message":"m",
            "log_ret_code":"0"}]}"#;
        assert_eq!(
            rows(said, &output(5, "m")),
            [["1", "error", "m", "0"], ["2", "status", "failure", "5"]]
        );
    }
}
