//! A copy beside `cp -a` and rsync, on the machine itself: `make bench`.
//!
//! Between two file systems on loop devices, whose files lie in memory, so that no disk is measured. Each way
//! ends when the target is durable. Ours is measured as a round, which does what the others do, and as a
//! final round, which compares both sides besides; for rsync that is a second run with `--checksum`.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // The plain way is to run programs.

#[path = "../tests/tally/dice.rs"]
mod dice;

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Instant, UNIX_EPOCH};

use dice::Dice;
use pliant::remote::TransferKeys;
use tempfile::TempDir;

/// How often each thing is done; the median counts.
const REPEATS: usize = 5;
const ROOM: u64 = 1 << 30;

/// An ext4 in memory, mounted; gone when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(dir: &Path, name: &str) -> Result<Mounted, String> {
        let (file, at) = (dir.join(format!("{name}.img")), dir.join(name));
        File::create(&file).and_then(|file| file.set_len(ROOM)).map_err(|e| e.to_string())?;
        said(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard"]).arg(&file))?;
        fs::create_dir(&at).map_err(|error| error.to_string())?;
        said(Command::new("mount").args(["-o", "loop"]).args([&file, &at]))?;
        Ok(Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = said(Command::new("umount").arg(&self.0));
    }
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The source and the target, and where they lie.
struct Bench {
    source: Mounted,
    target: Mounted,
    _dir: TempDir,
}

impl Bench {
    fn start() -> Result<Bench, String> {
        let dir = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        let source = Mounted::new(dir.path(), "source")?;
        let target = Mounted::new(dir.path(), "target")?;
        Ok(Bench { source, target, _dir: dir })
    }

    fn clear(dir: &Path) {
        for entry in fs::read_dir(dir).expect("names") {
            let path = entry.expect("a name").path();
            let is_dir = path.is_dir();
            let gone = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            gone.expect("gone");
        }
        // Without the mark of a copy that was completed: the next one is the first again.
        let _ = rustix::fs::removexattr(dir, "user.pliant.copied");
        said(Command::new("sync").arg("--file-system").arg(dir)).expect("sync");
    }

    /// The same with a source that is sent to who copies, over this machine's own network.
    fn median_sent(&self, pliant: &str) -> Result<f64, String> {
        let sender = Sender::start(pliant, &self.source.0);
        let keys = sender.keys.path().join("target");
        let (from, keys) = (&sender.address, keys.display());
        self.median(&format!("{pliant} copy --pre-copy --from {from} --cert-dir {keys} $2"))
    }

    /// Seconds that a way takes into an empty target: the median.
    fn median(&self, way: &str) -> Result<f64, String> {
        let mut times = Vec::new();
        for _ in 0..REPEATS {
            Bench::clear(&self.target.0);
            let start = Instant::now();
            said(
                Command::new("sh").args(["-euc", way, "sh"]).args([&self.source.0, &self.target.0]),
            )?;
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok(times[REPEATS / 2])
    }
}

/// Who sends the source, and the keys of both sides.
struct Sender {
    child: Child,
    address: String,
    keys: TempDir,
}

impl Sender {
    fn start(pliant: &str, source: &Path) -> Sender {
        let made = TransferKeys::make(UNIX_EPOCH.elapsed().expect("after 1970")).expect("keys");
        let keys = tempfile::tempdir().expect("a directory");
        for (side, pair) in [("source", &made.source), ("target", &made.target)] {
            let dir = keys.path().join(side);
            fs::create_dir(&dir).expect("a directory");
            for (name, pem) in [("ca.crt", &made.ca), ("tls.crt", &pair.0), ("tls.key", &pair.1)] {
                fs::write(dir.join(name), pem).expect("a key");
            }
        }
        let mut child = Command::new(pliant)
            .args(["send", "--listen=127.0.0.1:0", "--cert-dir"])
            .args([&keys.path().join("source"), source])
            .stderr(Stdio::piped())
            .spawn()
            .expect("who sends");
        let mut said = String::new();
        let stderr = child.stderr.take().expect("what it says");
        BufReader::new(stderr).read_line(&mut said).expect("its address");
        let address = said.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        Sender { child, address, keys }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Files of the sizes that a home directory has, below a hundred directories.
fn fill_tree(top: &Path) {
    let mut dice = Dice::of(1);
    for number in 0..2000 {
        let dir = top.join(format!("d{}/e{}", number % 10, number / 10 % 10));
        fs::create_dir_all(&dir).expect("a directory");
        let size = dice.one_of(&[100, 1000, 4000, 4000, 16_000, 60_000, 200_000, 1_000_000]);
        let bytes: Vec<u8> = (0..=size / 8).flat_map(|_| dice.next().to_le_bytes()).collect();
        fs::write(dir.join(format!("f{number}")), &bytes[..size]).expect("a file");
    }
}

fn fill_large(top: &Path) {
    let mut dice = Dice::of(2);
    let bytes: Vec<u8> = (0..400 << 17).flat_map(|_| dice.next().to_le_bytes()).collect();
    fs::write(top.join("large"), bytes).expect("a file");
}

#[test]
#[ignore = "needs root and loop devices of this machine: make bench"]
fn copies_beside_cp_and_rsync() {
    let bench = match Bench::start() {
        Ok(bench) => bench,
        Err(reason) => return println!("copies: not measured: {reason}"),
    };
    let pliant = env!("CARGO_BIN_EXE_pliant");
    let (round, last) = (format!("{pliant} copy --pre-copy $1 $2"), format!("{pliant} copy $1 $2"));
    let cp = "cp -a $1/. $2/; sync --file-system $2";
    let rsync = "rsync -aHAXS --numeric-ids --exclude=/lost+found $1/ $2/; sync --file-system $2";
    let twice = format!("{rsync}; rsync -aHAXS --checksum --numeric-ids $1/ $2/");
    let mut figures = String::new();
    println!("\n{:<40}{:>9}{:>9}{:>9}", "copies, this machine", "plain s", "ours s", "ratio");
    for (end, what, fill) in
        [("", "2,000 files", fill_tree as fn(&Path)), ("_large", "one file of 400 MiB", fill_large)]
    {
        Bench::clear(&bench.source.0);
        fill(&bench.source.0);
        let ours = bench.median(&round).expect("a round");
        let ours_compared = bench.median(&last).expect("a final round");
        let sent = bench.median_sent(pliant).expect("a round from a sender");
        let ratio = ours / sent;
        let row = format!("{what}, sent by TLS, beside here");
        println!("{row:<40}{ours:>9.3}{sent:>9.3}{ratio:>8.2}×");
        writeln!(figures, "copy_rate_ratio_sent{end} {ratio:.3}").expect("a string takes all");
        for (name, way, ours) in [
            ("copy_rate_ratio_cp", cp, ours),
            ("copy_rate_ratio_rsync", rsync, ours),
            ("copy_rate_ratio_rsync_compared", &twice, ours_compared),
        ] {
            let plain = match bench.median(way) {
                Ok(plain) => plain,
                Err(reason) => {
                    println!("{name}{end}: not measured: {}", reason.trim());
                    continue;
                }
            };
            let ratio = plain / ours;
            let row = format!("{what}, {}", name.trim_start_matches("copy_rate_ratio_"));
            println!("{row:<40}{plain:>9.3}{ours:>9.3}{ratio:>8.2}×");
            writeln!(figures, "{name}{end} {ratio:.3}").expect("a string takes all");
        }
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/figures.d");
    fs::create_dir_all(&directory).expect("figures");
    fs::write(directory.join("bench_copy.txt"), figures).expect("figures");
}
