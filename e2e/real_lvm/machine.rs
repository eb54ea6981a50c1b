//! The machine that the tests run on: a guest of User-Mode Linux with disks in memory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sha2::{Digest, Sha256};

/// How long a driver may take until it serves. Generous: the guest has one processor.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Panics anywhere but in the throw-away kernel, where nobody's disks can be hurt.
fn only_in_the_guest() {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    assert!(
        processor.contains("User Mode Linux"),
        "these tests change disks and run in the throw-away kernel only; type: e2e/real-lvm"
    );
}

/// Runs one plain command and returns its standard output.
///
/// # Panics
///
/// When it cannot be started or fails; the message is its standard error.
pub fn run(program: &str, args: &[&str]) -> String {
    let said = attempt(program, args);
    said.unwrap_or_else(|stderr| panic!("{program} {}: {stderr}", args.join(" ")))
}

/// Runs one plain command: its standard output, or its standard error if it failed.
pub fn attempt(program: &str, args: &[&str]) -> Result<String, String> {
    only_in_the_guest();
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Returns the SHA-256 of everything in a file or a device, in hexadecimal.
pub fn sha256(path: &Path) -> String {
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut block).expect("read");
        if read == 0 {
            return format!("{:x}", hash.finalize());
        }
        hash.update(&block[..read]);
    }
}

/// Writes one figure for `target/figures.json`, in a file of its own.
///
/// Again with the same name: the newer value is the one.
pub fn figure(name: &str, value: f64) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/figures.d");
    fs::write(directory.join(format!("{name}.txt")), format!("{name} {value}\n")).expect("figure");
    println!("{name} {value}");
}

/// A blank disk in memory; gone, with what lies on it, when dropped.
pub struct Disk {
    device: String,
    file: PathBuf,
}

impl Disk {
    /// Makes a disk of so many bytes.
    pub fn of(bytes: u64) -> Disk {
        let maker = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/uml/disk");
        let device = run(&maker.to_string_lossy(), &[&bytes.to_string()]).trim().to_string();
        let file = run("losetup", &["--noheadings", "--output", "BACK-FILE", &device]);
        Disk { device, file: PathBuf::from(file.trim()) }
    }

    /// The path of its device, `/dev/loop3`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The file in memory that holds its bytes.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Takes the disk away; what lies on it stays.
    pub fn detach(&self) {
        run("losetup", &["--detach", &self.device]);
    }

    /// Puts it back under the same path.
    pub fn attach(&self) {
        // Where udev runs, it may still read what was detached, which goes once that has ended.
        let _ = attempt("udevadm", &["settle", "--timeout=30"]);
        run("losetup", &[&self.device, &self.file.to_string_lossy()]);
    }

    /// Pulls the disk out of whatever uses it and puts it back under another number. The device that it was
    /// fails from now on, and keeps its number while something holds it.
    pub fn come_back_elsewhere(&mut self) {
        let (device, file) = (self.device.clone(), self.file.with_extension("moved"));
        run("blockdev", &["--flushbufs", &device]);
        run("cp", &["--sparse=always", &self.file.to_string_lossy(), &file.to_string_lossy()]);
        self.device = run("losetup", &["--find", "--show", &file.to_string_lossy()]).trim().into();
        File::options().write(true).open(&self.file).expect("its file").set_len(0).expect("cut");
        run("losetup", &["--set-capacity", &device]);
        run("losetup", &["--detach", &device]); // Once nothing holds it.
        fs::remove_file(&self.file).expect("remove");
        self.file = file;
    }

    /// Its device number, as tables of device-mapper have it.
    pub fn number(&self) -> String {
        let number =
            run("lsblk", &["--noheadings", "--nodeps", "--output", "MAJ:MIN", &self.device]);
        number.trim().to_owned()
    }

    /// Removes the device-mapper devices that lie on this disk, the uppermost first.
    fn take_device_mapper_away(&self) {
        let tree = attempt("lsblk", &["--noheadings", "--list", "--output", "NAME", &self.device]);
        let names = tree.unwrap_or_default();
        for name in names.lines().skip(1).collect::<Vec<_>>().into_iter().rev() {
            let _ = attempt("dmsetup", &["remove", "--force", "--noudevsync", name.trim()]);
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.take_device_mapper_away();
        // A test that has failed already must show its own panic, not one of the clearing up.
        // Read-only belongs to the device, and the next disk may have the same.
        let _ = attempt("blockdev", &["--setrw", &self.device]);
        let _ = attempt("losetup", &["--detach", &self.device]);
        let _ = fs::remove_file(&self.file);
    }
}

/// A running `pliant`; killed when dropped.
pub struct Driver {
    child: Child,
    socket: PathBuf,
}

impl Driver {
    /// Starts `pliant standalone` on a socket and returns when it takes connections.
    ///
    /// `args` follow the endpoint: `["--node-id", "n1", "--pool", "default=vg0"]`.
    ///
    /// # Panics
    ///
    /// When it ends before, or does not serve within [`START_LIMIT`].
    pub fn standalone(socket: &Path, args: &[&str]) -> Driver {
        only_in_the_guest();
        let directory = socket.parent().expect("a socket lies in a directory");
        fs::create_dir_all(directory).expect("directory of the socket");
        let changes =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).expect("inotify");
        changes.add_watch(directory, AddWatchFlags::IN_CREATE).expect("watch");

        let mut pliant = Command::new(env!("CARGO_BIN_EXE_pliant"));
        if Path::new("/run/udev/control").exists() {
            pliant.env_remove("DM_DISABLE_UDEV"); // As on a host, where udev is told what LVM makes.
        }
        let child = pliant
            .arg("standalone")
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .args(args)
            .stdin(Stdio::null())
            .spawn()
            .expect("pliant");
        let mut driver = Driver { child, socket: socket.to_path_buf() };
        driver.wait_until_it_serves(&changes);
        driver
    }

    fn wait_until_it_serves(&mut self, changes: &Inotify) {
        let start = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            if let Some(status) = self.child.try_wait().expect("wait") {
                panic!("pliant ended before it served: {status}");
            }
            assert!(start.elapsed() < START_LIMIT, "pliant does not serve after {START_LIMIT:?}");
            // The file of the socket is there a moment before it listens: so not for ever.
            let mut watched = [PollFd::new(changes.as_fd(), PollFlags::POLLIN)];
            poll(&mut watched, PollTimeout::from(100u8)).expect("poll");
            let _ = changes.read_events();
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Asks it to end (SIGTERM) and returns how it did.
    pub fn stop(mut self) -> io::Result<ExitStatus> {
        kill(self.pid(), Signal::SIGTERM)?;
        self.child.wait()
    }

    /// Ends it as the kernel does when memory is out (SIGKILL).
    pub fn kill(mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // After `stop` and `kill` the process is known to be gone and neither does anything.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
