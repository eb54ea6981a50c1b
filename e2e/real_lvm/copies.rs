//! Copies between real file systems and real devices: what arrives is there after an unmount too, and the
//! tools of the file system find nothing wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pliant::copy::{ChangeTimes, Compare, CopyOptions, Hand, Pass, ProgressReporter, Sockets};
use serde_json::Value;

use crate::machine::{Disk, run, sha256};
use crate::world::{Maker, acl, set_attribute, snapshot, sparse};

/// A file system on a disk of its own, mounted; unmounted when dropped.
struct Mounted {
    disk: Disk,
    dir: PathBuf,
}

impl Mounted {
    fn new(name: &str, mib: u64, mkfs: &[&str]) -> Mounted {
        let disk = Disk::of(mib << 20);
        run(mkfs[0], &[&mkfs[1..], &[disk.device()]].concat());
        let dir = Path::new("/run/copies").join(name);
        fs::create_dir_all(&dir).expect("directory");
        let mounted = Mounted { disk, dir };
        mounted.mount();
        mounted
    }

    fn mount(&self) {
        run("mount", &[self.disk.device(), &self.dir.to_string_lossy()]);
    }

    fn unmount(&self) {
        run("umount", &[&self.dir.to_string_lossy()]);
    }

    fn check(&self, tool: &[&str]) {
        self.unmount();
        run(tool[0], &[&tool[1..], &[self.disk.device()]].concat());
        self.mount();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = crate::machine::attempt("umount", &[&self.dir.to_string_lossy()]);
    }
}

/// The exit code of a copy, and how it ended.
fn copy(source: &Path, target: &Path, flags: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_pliant"))
        .arg("copy")
        .args([source, target])
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .expect("pliant");
    let text = String::from_utf8(output.stdout).expect("text");
    let end = serde_json::from_str(text.lines().last().expect("an end")).expect("JSON");
    (output.status.code(), end)
}

const EXT4: &[&str] = &["mkfs.ext4", "-q"];
const XFS: &[&str] = &["mkfs.xfs", "-q"];
const BTRFS: &[&str] = &["mkfs.btrfs", "-q"];
const CHECK_EXT4: &[&str] = &["e2fsck", "-f", "-n"];
const CHECK_XFS: &[&str] = &["xfs_repair", "-n"];
const CHECK_BTRFS: &[&str] = &["btrfs", "check", "--readonly"];

/// A round, changes, a final round, and a look at what lies on the disk.
fn carried(source: &Mounted, target: &Mounted, check: &[&str]) {
    let mut maker = Maker::of(11);
    maker.fill(&source.dir, 80);
    sparse(&source.dir.join("holes"), 64 << 20);
    set_attribute(&source.dir.join("holes"), "system.posix_acl_access", &acl(5));
    set_attribute(&source.dir, "system.posix_acl_default", &acl(6));
    fs::hard_link(source.dir.join("holes"), source.dir.join("again")).expect("a name");
    let (code, end) = copy(&source.dir, &target.dir, &["--pre-copy"]);
    assert_eq!((code, &end["digest"]), (Some(0), &Value::Null), "{end}");
    maker.stir(&source.dir);
    let (code, end) = copy(&source.dir, &target.dir, &[]);
    assert_eq!((code, &end["outcome"]), (Some(0), &"done".into()), "{end}");
    assert!(end["digest"].as_str().is_some_and(|digest| digest.len() == 71), "{end}");

    target.check(check);
    let wanted = without_lost_and_found(&source.dir);
    let found = without_lost_and_found(&target.dir);
    for (path, what) in &wanted {
        assert_eq!(Some(what), found.get(path), "{}", path.display());
    }
    assert_eq!(wanted.len(), found.len(), "the target has more");

    let digest = end["digest"].clone();
    let (code, end) = copy(&source.dir, &target.dir, &[]);
    assert_eq!((code, &end["digest"]), (Some(0), &digest), "{end}");
    // Whoever lives on the target since keeps what he has done.
    set_attribute(&target.dir.join("holes"), "user.more", b"x");
    let before = snapshot(&target.dir);
    let (code, end) = copy(&source.dir, &target.dir, &[]);
    assert_eq!((code, &end["reason"]), (Some(2), &"refused".into()), "{end}");
    assert_eq!(snapshot(&target.dir), before);
}

fn without_lost_and_found(top: &Path) -> std::collections::BTreeMap<PathBuf, String> {
    let mut seen = snapshot(top);
    seen.remove(Path::new("lost+found"));
    seen
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn ext4_becomes_xfs() {
    let (source, target) = (Mounted::new("a", 320, EXT4), Mounted::new("b", 320, XFS));
    carried(&source, &target, CHECK_XFS);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn ext4_becomes_btrfs() {
    let (source, target) = (Mounted::new("a", 320, EXT4), Mounted::new("b", 320, BTRFS));
    carried(&source, &target, CHECK_BTRFS);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn xfs_becomes_a_smaller_ext4() {
    let (source, target) = (Mounted::new("a", 512, XFS), Mounted::new("b", 128, EXT4));
    carried(&source, &target, CHECK_EXT4);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn ext4_becomes_an_ext4_of_other_blocks() {
    let small_blocks = &["mkfs.ext4", "-q", "-b", "1024"];
    let (source, target) = (Mounted::new("a", 320, small_blocks), Mounted::new("b", 320, EXT4));
    carried(&source, &target, CHECK_EXT4);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_has_no_room_is_refused_before_a_byte_is_written() {
    let source = Mounted::new("a", 320, XFS);
    fs::write(source.dir.join("large"), vec![1; 100 << 20]).expect("a file");
    let small = Mounted::new("b", 64, EXT4);
    let (code, end) = copy(&source.dir, &small.dir, &[]);
    assert_eq!((code, &end["reason"]), (Some(2), &"refused".into()), "{end}");
    let said = end["message"].as_str().expect("a message");
    assert!(said.starts_with("the target is too small: the source has 100 MiB"), "{said}");
    assert_eq!(fs::read_dir(&small.dir).expect("names").count(), 1, "lost+found alone");
    fs::remove_file(source.dir.join("large")).expect("gone");
    for number in 0..100 {
        fs::write(source.dir.join(number.to_string()), "x").expect("a file");
    }
    drop(small);
    let few = Mounted::new("b", 64, &["mkfs.ext4", "-q", "-N", "32"]);
    let (code, end) = copy(&source.dir, &few.dir, &[]);
    let said = end["message"].as_str().expect("a message");
    assert!(said.contains("too few inodes: the source needs 101 "), "{said}");
    assert_eq!(code, Some(2));
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_device_becomes_a_larger_device() {
    let (source, target) = (Disk::of(48 << 20), Disk::of(64 << 20));
    run("mkfs.ext4", &["-q", source.device()]);
    run("dd", &["if=/dev/urandom", &format!("of={}", target.device()), "bs=1M", "count=64"]);
    let (from, to) = (Path::new(source.device()), Path::new(target.device()));
    let (code, end) = copy(from, to, &["--device"]);
    assert_eq!((code, &end["bytes"]), (Some(0), &(48 << 20).into()), "{end}");
    let cut = format!("head -c {} {} | sha256sum | cut -d' ' -f1", 48 << 20, target.device());
    assert_eq!(run("sh", &["-c", &cut]).trim(), sha256(from));
    let (code, end) = copy(from, to, &["--device"]);
    assert_eq!((code, &end["bytes"]), (Some(0), &0.into()), "{end}");

    let (code, end) = copy(to, from, &["--device"]);
    let said = end["message"].as_str().expect("a message");
    assert!(said.contains("is too small: it has 48 MiB and the source has 64 MiB"), "{said}");
    assert_eq!(code, Some(2));
    let used = Mounted::new("used", 64, EXT4);
    let (code, end) = copy(from, Path::new(used.disk.device()), &["--device"]);
    let said = end["message"].as_str().expect("a message");
    assert!(said.contains("is in use: it is mounted"), "{said}");
    assert_eq!(code, Some(2));
}

/// A program that writes through a page which it has mapped: the kernel sets the time of change at the first
/// store to a clean page, and not again until that is flushed.
#[expect(unsafe_code, reason = "nobody else cuts the file")]
fn mapped(mkfs: &[&str]) {
    let (source, target) = (Mounted::new("a", 320, mkfs), Mounted::new("b", 320, EXT4));
    let path = source.dir.join("mapped");
    fs::write(&path, vec![1; 1 << 20]).expect("a file");
    fs::write(source.dir.join("still"), vec![2; 1 << 20]).expect("a file");
    run("sync", &[]);
    let file = fs::File::options().read(true).write(true).open(&path).expect("a file");
    let mut map = unsafe { memmap2::MmapMut::map_mut(&file) }.expect("a map");
    map[5000] = 3;
    let copied = |round| {
        let compare = Compare::Changed(ChangeTimes { still_for: Duration::ZERO, anywhere: false });
        let (source, target, sockets) = (&source.dir, &target.dir, Sockets::Skip);
        let order = CopyOptions { source, target, round, sockets, compare };
        pliant::copy::copy(order, &Hand::default(), &mut ProgressReporter::silent())
            .expect("a copy")
    };
    copied(Pass::PreCopy);
    map[5001] = 4;
    let last = copied(Pass::Final);
    assert_eq!(last.known, 1, "the one that nobody has written to");
    let found = fs::read(target.dir.join("mapped")).expect("a file");
    assert_eq!((found[5000], found[5001]), (3, 4));
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_store_to_a_mapped_page_of_ext4_is_seen() {
    mapped(EXT4);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_store_to_a_mapped_page_of_xfs_is_seen() {
    mapped(XFS);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_store_to_a_mapped_page_of_btrfs_is_seen() {
    mapped(BTRFS);
}
