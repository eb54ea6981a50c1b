//! LVM's own part of the work at its real speed, on the machine itself: `make bench`.
//!
//! In User-Mode Linux a process takes tens of milliseconds to start and a system call takes
//! microseconds, so the ratios of the bench there say little of hardware. Here the same commands change
//! metadata only (`--driverloaded n`: no device appears) in a file behind a loop device; once as a
//! process each with the settings of the distribution, once as the driver gives them. No disk of the
//! machine is written, and no setting of it is changed.

#![allow(clippy::disallowed_methods)] // The plain way is to run programs.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pliant::host::{Cmd, Host, RealHost};
use pliant::lvm::VolumeGroup;
use tempfile::TempDir;

const GROUP: &str = "pliant-native-bench";
/// No device appears; LVM changes the metadata alone.
const METADATA_ONLY: [&str; 2] = ["--driverloaded", "n"];
/// How often each thing is done; the median counts.
const REPEATS: usize = 21;

/// A group on a file behind a loop device, and the directories of both ways; gone when dropped.
struct Bench {
    dir: TempDir,
    device: PathBuf,
    host: Arc<RealHost>,
    group: Arc<VolumeGroup>,
    made: usize,
}

#[tokio::test]
#[ignore = "needs root and a loop device of this machine: make bench"]
async fn commands_through_the_shell_beside_processes() {
    let mut bench = match Bench::start().await {
        Ok(bench) => bench,
        Err(reason) => return println!("LVM at its real speed: not measured: {reason}"),
    };
    println!(
        "\n{:<52}{:>9}{:>9}{:>9}",
        "metadata only, this machine", "plain ms", "ours ms", "ratio"
    );
    let mut figures = String::new();
    for volumes in [1, 500] {
        bench.fill(volumes).await;
        for step in ["create", "tag", "extend", "remove", "list"] {
            let (plain, ours) = bench.measure(step).await;
            let ratio = plain / ours;
            let what = format!("{step} among {volumes}");
            println!("{what:<52}{plain:>9.2}{ours:>9.2}{ratio:>8.1}×");
            for (name, value) in [("plain_ms", plain), ("ms", ours), ("ratio", ratio)] {
                let name = format!("bench_native_{step}_{volumes}_{name}");
                writeln!(figures, "{name} {value:.3}").expect("a string takes all");
            }
        }
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/figures.d");
    std::fs::create_dir_all(&directory).expect("figures");
    std::fs::write(directory.join("bench_native.txt"), figures).expect("figures");
}

impl Bench {
    async fn start() -> Result<Bench, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let file = dir.path().join("disk");
        File::create(&file).and_then(|file| file.set_len(64 << 30)).expect("a sparse file");
        let found = said(Command::new("losetup").args(["--find", "--show"]).arg(&file))?;
        let device = PathBuf::from(found.trim());
        // A copy of the distribution's settings: LVM keeps its backups beside them.
        let settings = dir.path().join("lvm");
        said(Command::new("cp").args(["-r", "/etc/lvm"]).arg(&settings))?;
        let host = Arc::new(RealHost::new(dir.path().join("state")).map_err(|e| e.to_string())?);
        let group = VolumeGroup::new(host.clone(), GROUP);
        let bench = Bench { dir, device, host, group, made: 0 };
        let device = bench.device.display().to_string();
        bench.plain(&["vgcreate", "--metadatasize", "16m", GROUP, &device])?;
        bench.host.pin_devices(GROUP, std::slice::from_ref(&bench.device)).await.expect("pin");
        Ok(bench)
    }

    /// Makes volumes until there are so many.
    async fn fill(&mut self, volumes: usize) {
        while self.made < volumes {
            self.ours(&create(&format!("volume-{}", self.made))).await;
            self.made += 1;
        }
    }

    /// How long one step takes in both ways, in milliseconds.
    async fn measure(&self, step: &str) -> (f64, f64) {
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        for number in 0..REPEATS {
            let volume = format!("{GROUP}/one");
            if !matches!(step, "create" | "list") {
                self.ours(&create("one")).await;
            }
            let extents = "8".to_owned();
            let words: Vec<String> = match step {
                "create" => create("one"),
                "tag" => own(&["lvchange", "-y", "--addtag", "pliant.state=shown", &volume]),
                "extend" => own(&["lvextend", "-y", "-l", &extents, &volume]),
                "remove" => own(&["lvremove", "-y", "-f", &volume]),
                _ => own(&[
                    "lvs",
                    "-o",
                    "lv_uuid,lv_name,lv_size,lv_tags",
                    "--reportformat",
                    "json",
                    GROUP,
                ]),
            };
            let begin = Instant::now();
            if number % 2 == 0 {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.plain(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
                plain.push(begin.elapsed());
            } else if step == "list" {
                let read = self.group.read().await.expect("the group");
                assert!(read.lvs.len() >= self.made);
                ours.push(begin.elapsed());
            } else {
                self.ours(&words).await;
                ours.push(begin.elapsed());
            }
            if !matches!(step, "remove" | "list") {
                self.ours(&own(&["lvremove", "-y", "-f", &volume])).await;
            }
        }
        (median(plain), median(ours))
    }

    /// A process of its own, as anybody would start it.
    fn plain(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(words[0]);
        command.env("LVM_SYSTEM_DIR", self.dir.path().join("lvm"));
        command.env("LVM_SUPPRESS_FD_WARNINGS", "1");
        said(command.args(&words[1..]).args(METADATA_ONLY))
    }

    /// A line of the group's shell.
    async fn ours(&self, words: &[String]) {
        let program: &'static str = match words[0].as_str() {
            "lvcreate" => "lvcreate",
            "lvchange" => "lvchange",
            "lvextend" => "lvextend",
            "lvremove" => "lvremove",
            other => panic!("{other} is not measured"),
        };
        let cmd = Cmd::new(program).args(&words[1..]).args(METADATA_ONLY);
        let report = self.host.lvm(GROUP, cmd).await.expect("lvm");
        assert!(report.contains(r#""log_ret_code":"1""#), "{words:?}: {report}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = said(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

fn create(name: &str) -> Vec<String> {
    let words = ["lvcreate", "-y", "-an", "-Wn", "-Zn", "--addtag", "pliant.state=new"];
    [own(&words), own(&["-l", "4", "-n", name, GROUP])].concat()
}

fn own(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs a command and returns what it printed, or why it failed.
fn said(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = command.output().map_err(|error| error.to_string())?;
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&stderr).trim().to_owned())
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}
