//! The persistent `lvm` shells: one per lane, a lane being a volume group.
//!
//! A shell avoids starting a process per command. There is no prompt to wait for: a command has
//! ended when one whole JSON object has arrived on the report descriptor. A command that cannot be
//! written on a line of the shell, and every command of a lane whose shell died twice in a row,
//! runs as a process of its own with the same environment and the same report.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin};
use tokio::time::{Instant, timeout_at};

use super::counters::CallCounters;
use super::exec::{Environment, OUTPUT_LIMIT, receiver, run_reporting, start, system, within};
use super::json_stream::ObjectEnd;
use super::lvm_shell_quote::line;
use super::state::StateDirectory;
use super::{Cmd, HostError};

/// After this many deaths without a success between them a lane does without its shell.
const DEATHS: u32 = 2;

/// The shells of all lanes.
#[derive(Debug)]
pub(super) struct Shells {
    state: StateDirectory,
    counts: Arc<CallCounters>,
    lanes: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Lane>>>>,
}

/// One lane: its shell, if it lives, and how often it died since its last success.
#[derive(Debug, Default)]
struct Lane {
    shell: Option<Shell>,
    deaths: u32,
}

impl Shells {
    /// No shell runs yet; each starts with its lane's first command.
    pub(super) fn new(state: StateDirectory, counts: Arc<CallCounters>) -> Self {
        Shells { state, counts, lanes: Mutex::default() }
    }

    /// Runs one command in its lane and return its report.
    ///
    /// A command that was sent goes on when its caller's limit passes, and its lane stays taken until
    /// it has ended; who waits for the lane in vain has sent nothing.
    pub(super) async fn run(&self, lane: &str, cmd: Cmd) -> Result<String, HostError> {
        self.counts.add("lvm_commands");
        let begin = Instant::now();
        let deadline = begin + cmd.limit;
        let (what, limit) = (cmd.to_string(), cmd.limit);
        let dirs = self.state.make_lane(lane).map_err(system(&what))?;
        let lane = self.lane(lane);
        let Ok(mut lane) = timeout_at(deadline, lane.lock_owned()).await else {
            return Err(HostError::TimedOut { what, limit });
        };
        let (counts, cmd) = (Arc::clone(&self.counts), dirs.visible(cmd));
        let env = Environment { lvm_dir: dirs.lvm_dir };
        let left = deadline.saturating_duration_since(Instant::now());
        let work = async move { lane.run(&env, &counts, cmd).await };
        let ended = within(left, &what, work).await;
        tracing::trace!(what, took = ?begin.elapsed(), "lvm command");
        ended.map_err(|error| match error {
            HostError::TimedOut { what, .. } => HostError::TimedOut { what, limit },
            other => other,
        })
    }

    fn lane(&self, name: &str) -> Arc<tokio::sync::Mutex<Lane>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(name.to_owned()).or_default())
    }
}

impl Lane {
    async fn run(
        &mut self,
        env: &Environment,
        counts: &CallCounters,
        cmd: Cmd,
    ) -> Result<String, HostError> {
        if let Ok(line) = line(&cmd) {
            while self.deaths < DEATHS {
                let mut shell = self.living_shell(env, counts, &cmd)?;
                match shell.say(&line).await {
                    Ok(report) => {
                        self.deaths = 0;
                        self.shell = Some(shell);
                        return Ok(report);
                    }
                    Err(death) => {
                        self.deaths += 1;
                        let pid = shell.process.id();
                        tracing::warn!(?pid, ?death, command = %cmd, "lvm shell lost");
                        if let Death::HalfWay = death {
                            let what = cmd.to_string();
                            return Err(HostError::Died { what });
                        }
                    }
                }
            }
        }
        counts.add("processes");
        // The limit is the caller's, who waits outside of this lane.
        run_reporting(env, cmd.limit(std::time::Duration::MAX)).await
    }

    /// The shell of before if it waits for a command, else a new one.
    fn living_shell(
        &mut self,
        env: &Environment,
        counts: &CallCounters,
        cmd: &Cmd,
    ) -> Result<Shell, HostError> {
        if let Some(shell) = self.shell.take()
            && shell.is_quiet()
        {
            return Ok(shell);
        }
        counts.add("processes");
        Shell::start(env, &cmd.to_string())
    }
}

/// One `lvm` process that reads commands. Dropped, it reads the end of its input and exits.
#[derive(Debug)]
struct Shell {
    stdin: ChildStdin,
    report: Receiver,
    process: Child,
}

/// How a shell was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// Before it took the command: nothing has happened.
    Before,
    /// After that, anywhere.
    HalfWay,
}

impl Shell {
    fn start(env: &Environment, what: &str) -> Result<Self, HostError> {
        let (mut command, report) = env.reporting_lvm().map_err(system(what))?;
        command.stdin(std::process::Stdio::piped());
        let mut child = start(command, what)?;
        let stdin = child.stdin.take().ok_or_else(|| {
            let source = io::ErrorKind::BrokenPipe.into();
            system(what)(source)
        })?;
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(drain(stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(drain(stderr));
        }
        Ok(Shell { stdin, report: receiver(report).map_err(system(what))?, process: child })
    }

    /// Returns whether it lives and has nothing to say: an unread word would be taken for the next report.
    fn is_quiet(&self) -> bool {
        let mut unread = [0; 4096];
        loop {
            match self.report.try_read(&mut unread) {
                Ok(read) if read > 0 && unread[..read].trim_ascii().is_empty() => {}
                Ok(_) => return false,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    async fn say(&mut self, line: &str) -> Result<String, Death> {
        let sent = self.stdin.write_all(line.as_bytes()).await;
        sent.map_err(|_| Death::Before)?;
        self.hear().await.ok_or(Death::HalfWay)
    }

    /// One whole report, or `None` if the shell ended or says something else.
    async fn hear(&mut self) -> Option<String> {
        let mut end = ObjectEnd::default();
        let mut report = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let read = self.report.read(&mut chunk).await.ok()?;
            if read == 0 || report.len() + read > OUTPUT_LIMIT {
                return None;
            }
            let said = &chunk[..read];
            if let Some(length) = end.feed(said).ok()? {
                report.extend_from_slice(&said[..length]);
                let rest = said[length..].trim_ascii();
                return rest.is_empty().then(|| lossy(&report));
            }
            report.extend_from_slice(said);
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.trim_ascii_start()).into_owned()
}

/// Reads and forget, so that the shell never waits for a reader: the report says all of it again.
async fn drain(mut from: impl AsyncRead + Unpin) {
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
}

#[cfg(test)]
mod tests;
