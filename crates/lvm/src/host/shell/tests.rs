//! Against the real `lvm`, whose `version` needs neither devices nor rights.

use std::io::Write;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// A door with a private configuration; `None`, with the reason printed, where `lvm` is missing.
fn shells() -> Option<(tempfile::TempDir, Shells)> {
    let found =
        ["/usr/sbin/lvm", "/sbin/lvm"].iter().any(|path| std::path::Path::new(path).exists());
    if !found {
        // Past the capture of the test, which passes.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "skipped: lvm is not installed").unwrap();
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let state = StateDirectory::make(&dir.path().join("state"), &dir.path().join("lock")).unwrap();
    Some((dir, Shells::new(state, Arc::default())))
}

fn version() -> Cmd {
    Cmd::new("version")
}

/// The return code in the last row of a report.
fn code(report: &str) -> i64 {
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    let last = report["log"].as_array().unwrap().last().unwrap();
    assert_eq!(last["log_type"], "status");
    let code = &last["log_ret_code"];
    code.as_i64().unwrap_or_else(|| code.as_str().unwrap().parse().unwrap())
}

fn spent(shells: &Shells) -> (u64, u64) {
    let counts = shells.counts.read();
    (counts["lvm_commands"], counts["processes"])
}

async fn kill_shell(shells: &Shells, lane: &str) {
    let lane = shells.lane(lane);
    let mut lane = lane.lock().await;
    let shell = lane.shell.as_mut().unwrap();
    let pid = i32::try_from(shell.process.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    shell.process.wait().await.unwrap();
}

#[tokio::test]
async fn commands_of_a_lane_share_one_process() {
    let Some((_dir, shells)) = shells() else {
        return;
    };
    for _ in 0..3 {
        assert_eq!(code(&shells.run("x", version()).await.unwrap()), 1);
    }
    let unknown = shells.run("x", Cmd::new("nosuchcommand")).await.unwrap();
    assert_eq!(code(&unknown), 2);
    assert_eq!(spent(&shells), (4, 1));
    assert_eq!(code(&shells.run("y", version()).await.unwrap()), 1);
    assert_eq!(spent(&shells), (5, 2));
}

#[tokio::test]
async fn a_shell_that_died_idle_is_replaced() {
    let Some((_dir, shells)) = shells() else {
        return;
    };
    shells.run("x", version()).await.unwrap();
    kill_shell(&shells, "x").await;
    assert_eq!(code(&shells.run("x", version()).await.unwrap()), 1);
    assert_eq!(spent(&shells), (2, 2));
}

#[tokio::test]
async fn a_dropped_shell_exits_by_itself() {
    let Some((_dir, shells)) = shells() else {
        return;
    };
    shells.run("x", version()).await.unwrap();
    let shell = shells.lane("x").lock().await.shell.take().unwrap();
    let Shell { stdin, mut process, .. } = shell;
    drop(stdin);
    assert!(process.wait().await.unwrap().success());
}

#[tokio::test]
async fn what_cannot_be_said_runs_as_its_own_process_with_the_same_report() {
    let Some((_dir, shells)) = shells() else {
        return;
    };
    shells.run("x", version()).await.unwrap();
    let report = shells.run("x", Cmd::new("lvs").arg("it's \"so\"")).await.unwrap();
    assert_ne!(code(&report), 1);
    assert_eq!(spent(&shells), (2, 2));
}

#[tokio::test]
async fn two_deaths_in_a_row_end_the_shells_of_a_lane() {
    let Some((_dir, shells)) = shells() else {
        return;
    };
    shells.lane("x").lock().await.deaths = DEATHS;
    for commands in 1..3 {
        assert_eq!(code(&shells.run("x", version()).await.unwrap()), 1);
        assert_eq!(spent(&shells), (commands, commands));
    }
    assert!(shells.lane("x").lock().await.shell.is_none());
}

#[tokio::test]
async fn a_shell_that_dies_over_a_command_says_so_and_nothing_is_repeated() {
    let Some((_dir, shells)) = shells() else {
        return;
    };
    shells.run("x", version()).await.unwrap();
    let lane = shells.lane("x");
    let mut lane = lane.lock_owned().await;
    let shell = lane.shell.as_ref().unwrap().process.id().unwrap();
    let shell = Pid::from_raw(i32::try_from(shell).unwrap());
    kill(shell, Signal::SIGSTOP).unwrap();
    let env = Environment { lvm_dir: shells.state.lane("x").lvm_dir };
    let (ended, ()) = tokio::join!(
        biased;
        lane.run(&env, &shells.counts, version()),
        async { kill(shell, Signal::SIGKILL).unwrap() }, // The line has been written by now.
    );
    assert!(matches!(ended, Err(HostError::Died { what }) if what == "version"));
    assert_eq!((spent(&shells), lane.deaths), ((1, 1), 1));
    drop(lane);
    assert_eq!(code(&shells.run("x", version()).await.unwrap()), 1);
    assert_eq!(shells.lane("x").lock().await.deaths, 0);
}

#[tokio::test]
async fn a_taken_lane_is_waited_for_and_nothing_is_sent() {
    let Some((_dir, shells)) = shells() else {
        return;
    };
    let lane = shells.lane("x");
    let taken = lane.lock().await;
    let error = shells.run("x", version().limit(Duration::ZERO)).await.unwrap_err();
    assert!(matches!(error, HostError::TimedOut { limit: Duration::ZERO, .. }));
    assert!(taken.shell.is_none());
    drop(taken);
    assert_eq!(code(&shells.run("x", version()).await.unwrap()), 1);
}

#[tokio::test]
async fn a_command_goes_on_when_its_caller_leaves() {
    let Some((_dir, shells)) = shells() else {
        return;
    };
    let error = shells.run("x", version().limit(Duration::from_nanos(1))).await.unwrap_err();
    assert!(matches!(error, HostError::TimedOut { .. }));
    assert_eq!(code(&shells.run("x", version()).await.unwrap()), 1);
    assert_eq!(spent(&shells), (2, 1));
}
