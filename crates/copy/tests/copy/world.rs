//! Trees to copy, made from a seed, and what they hold, read in another way than the copy does.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use pliant_copy::copy::{
    Compare, CopyError, CopyOptions, CopySummary, Dir, Hand, Pass, ProgressReporter, Sockets, copy,
    copy_device, copy_disk, copy_from,
};
use pliant_copy::remote::{RemoteDisk, RemoteTree, Served};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use tempfile::TempDir;

use crate::IS_FAR;
use crate::dice::Dice;
use crate::sender::Sender;

/// What a copy gives its target.
const COPIED: &str = "user.pliant.copied";

/// Two directories, and one that must not be touched.
pub struct World {
    /// Who sends the source, where it is not here.
    sender: OnceLock<Sender>,
    dir: TempDir,
}

impl World {
    pub fn new() -> World {
        let dir = in_memory().unwrap_or_else(|| tempfile::tempdir().expect("a directory"));
        for name in ["source", "target", "outside"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        World { sender: OnceLock::new(), dir }
    }

    pub fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    pub fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    pub fn copy(&self, round: Pass) -> Result<CopySummary, CopyError> {
        self.copy_by(&Hand::default(), round)
    }

    pub fn copy_by(&self, hand: &Hand, round: Pass) -> Result<CopySummary, CopyError> {
        self.copy_telling(hand, round, &mut ProgressReporter::silent())
    }

    pub fn copy_telling(
        &self,
        hand: &Hand,
        round: Pass,
        tell: &mut ProgressReporter,
    ) -> Result<CopySummary, CopyError> {
        self.copy_as(round, Compare::All, hand, tell)
    }

    /// Of what is sent from elsewhere all is compared.
    pub fn copy_as(
        &self,
        round: Pass,
        compare: Compare,
        hand: &Hand,
        tell: &mut ProgressReporter,
    ) -> Result<CopySummary, CopyError> {
        let (source, target) = (self.source(), self.target());
        if rustix::fs::getxattr(&target, COPIED, &mut [0; 16]).is_ok() {
            self.mark_target(); // Nobody lives there, also where an earlier copy was completed.
        }
        if IS_FAR {
            let send = || Sender::of(Served::Tree(Dir::open(&source).expect("a directory")));
            // Both ends have one clock.
            let tree =
                RemoteTree::of(self.sender.get_or_init(send).remote()).with_doubt(Duration::ZERO);
            return copy_from(&tree, &target, (round, Sockets::Skip), hand, tell);
        }
        let sockets = Sockets::Skip;
        let order = CopyOptions { source: &source, target: &target, round, sockets, compare };
        copy(order, hand, tell)
    }

    /// Copy the image of a device.
    pub fn copy_disk(&self, hand: &Hand) -> Result<CopySummary, CopyError> {
        self.copy_disk_telling(hand, Pass::Final, &mut ProgressReporter::silent())
    }

    pub fn copy_disk_telling(
        &self,
        hand: &Hand,
        round: Pass,
        tell: &mut ProgressReporter,
    ) -> Result<CopySummary, CopyError> {
        let (source, target) = (self.source().join("disk"), self.target().join("disk"));
        if IS_FAR {
            let send = || Sender::of(Served::Device(source));
            let disk = RemoteDisk(self.sender.get_or_init(send).remote());
            return copy_disk(&disk, &target, round, hand, tell);
        }
        copy_device(&source, &target, round, hand, tell)
    }

    /// Make two directories that nothing but their names and their content tells from each other.
    pub fn make_twins(&self) {
        for (name, text) in [("a", "one"), ("b", "two")] {
            let dir = self.source().join(name);
            fs::create_dir(&dir).expect("a directory");
            fs::write(dir.join("f"), text).expect("a file");
            set_time(&dir.join("f"), 1_600_000_000, 5);
            set_time(&dir, 1_600_000_000, 5);
        }
    }

    /// Move each of them into the place of the other one.
    pub fn exchange_twins(&self) {
        for (from, to) in [("a", "c"), ("b", "a"), ("c", "b")] {
            fs::rename(self.source().join(from), self.source().join(to)).expect("another name");
        }
    }

    /// Let the target be one that an earlier copy has filled.
    pub fn mark_target(&self) {
        set_attribute(&self.target(), COPIED, b"1");
    }

    /// Empty the target.
    pub fn clear(&self) {
        fs::remove_dir_all(self.target()).expect("a directory");
        fs::create_dir(self.target()).expect("a directory");
    }

    #[track_caller]
    pub fn assert_same(&self) {
        let (source, target) = (snapshot(&self.source()), snapshot(&self.target()));
        for (path, what) in &source {
            assert_eq!(Some(what), target.get(path), "{}", path.display());
        }
        assert_eq!(source.len(), target.len(), "the target has more");
    }
}

/// A directory in memory, if one there takes attributes: each copy flushes all of its file system, and
/// with a disk that is the work of everybody.
fn in_memory() -> Option<TempDir> {
    let dir = tempfile::tempdir_in("/dev/shm").ok()?;
    let taken = ["user.x", "trusted.x"].map(|name| {
        rustix::fs::setxattr(dir.path(), name, b"x", XattrFlags::empty())?;
        rustix::fs::removexattr(dir.path(), name)
    });
    (taken[0].is_ok() && (taken[1].is_ok() || !is_root())).then_some(dir)
}

/// Whether this is root; says what is not tried otherwise.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        not_tried("owners, devices and attributes of the system need root");
    }
    is_root
}

/// Say once what a test leaves out here, and why: also where it passes, of which nobody sees what it prints.
pub fn not_tried(why: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("{}: not tried: {why}", thread::current().name().unwrap_or_default());
    if TOLD.lock().expect("nobody panicked").insert(line.clone()) {
        writeln!(io::stderr(), "{line}").expect("a line of standard error");
    }
}

/// All of a tree that a copy has to keep, as text: read by paths.
pub fn snapshot(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut names: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    let mut paths = Vec::new();
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(top.join(&dir)).expect("a directory") {
            let path = dir.join(entry.expect("a name").file_name());
            if fs::symlink_metadata(top.join(&path)).expect("metadata").is_dir() {
                left.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.push(PathBuf::new());
    paths.sort();
    for path in paths {
        let whole = top.join(&path);
        let meta = fs::symlink_metadata(&whole).expect("metadata");
        if meta.file_type().is_socket() {
            continue;
        }
        let first = names.entry((meta.dev(), meta.ino())).or_insert_with(|| path.clone()).clone();
        let mode = if meta.is_symlink() { 0 } else { meta.mode() };
        let content = if meta.is_file() { digest(&whole) } else { String::new() };
        let link = fs::read_link(&whole).unwrap_or_default();
        let [link, first] = [link, first].map(|path| path.as_os_str().as_bytes().to_vec());
        let size = if meta.is_dir() { 0 } else { meta.size() };
        let owner = (meta.uid(), meta.gid(), meta.rdev());
        let time = (meta.mtime(), meta.mtime_nsec());
        let attributes = attributes(&whole);
        let told = format!(
            "{:?} {mode:o} {owner:?} {time:?} {size} {content} {link:?} {first:?} {attributes:?}",
            meta.file_type()
        );
        seen.insert(path, told);
    }
    seen
}

fn digest(path: &Path) -> String {
    use sha2::{Digest, Sha256};
    format!("{:x}", Sha256::digest(fs::read(path).expect("content")))
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, names.as_mut_slice()).unwrap_or(0);
    // xfs shows each ACL a second time, by a name of its own; and a copy marks its target.
    let is_own = |name: &&[u8]| {
        !name.is_empty() && !name.starts_with(b"trusted.SGI_ACL_") && *name != COPIED.as_bytes()
    };
    let names = names[..length].split(|byte| *byte == 0).filter(is_own);
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).expect("a value");
        value[..length].to_vec()
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

pub fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|error| panic!("{name} of {}: {error}", path.display()));
}

/// An ACL that lets one user more read, as the kernel keeps it.
pub fn acl(user: u32) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    let any = u32::MAX;
    for (tag, may, id) in
        [(1_u16, 6_u16, any), (2, 4, user), (4, 4, any), (0x10, 4, any), (0x20, 0, any)]
    {
        value.extend(tag.to_le_bytes());
        value.extend(may.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

pub fn set_time(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("a time");
}

pub fn make_node(path: &Path, kind: FileType, device: (u32, u32)) {
    let device = rustix::fs::makedev(device.0, device.1);
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device).expect("a node");
}

/// A file of so many bytes, of which every other piece is a hole.
pub fn sparse(path: &Path, size: u64) {
    let file = File::create(path).expect("a file");
    file.set_len(size).expect("a size");
    for at in (0..size).step_by(512 << 10) {
        file.write_all_at(b"data", at.min(size - 4)).expect("data");
    }
}

/// Makes trees from a seed.
pub struct Maker {
    dice: Dice,
    made: usize,
    pub all: Vec<PathBuf>,
}

impl Maker {
    pub fn of(seed: u64) -> Maker {
        Maker { dice: Dice::of(seed), made: 0, all: Vec::new() }
    }

    /// Make so many things below a directory.
    pub fn fill(&mut self, top: &Path, count: usize) {
        let mut dirs = vec![top.to_owned()];
        let mut files = Vec::new();
        for _ in 0..count {
            let dir = dirs[self.below(dirs.len())].clone();
            let path = dir.join(OsStr::from_bytes(&self.name()));
            match self.below(if is_root() { 12 } else { 8 }) {
                0 | 1 => {
                    fs::create_dir(&path).expect("a directory");
                    dirs.push(path.clone());
                }
                2 => symlink(OsStr::from_bytes(&self.name()), &path).expect("a link"),
                3 if !files.is_empty() => {
                    fs::hard_link(&files[self.below(files.len())], &path).expect("a name");
                }
                4 => sparse(&path, 4 + self.dice.next() % (3 << 20)),
                11 => make_node(&path, FileType::Fifo, (0, 0)),
                10 => make_node(&path, FileType::CharacterDevice, (1, 3)),
                _ => {
                    let size = self.dice.one_of(&[0, 1, 100, 4096, 70_000, 1_100_000]);
                    let byte = self.below(256).to_le_bytes()[0];
                    fs::write(&path, vec![byte; size]).expect("a file");
                    files.push(path.clone());
                }
            }
            self.all.push(path);
        }
        for path in self.all.clone().iter().rev() {
            self.dress(path);
        }
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.dice.next() >> 33).expect("31 bits") % count
    }

    fn name(&mut self) -> Vec<u8> {
        self.made += 1;
        let number = self.made.to_string().into_bytes();
        match self.below(8) {
            0 => [number, b"\xff\xfe \n\"'".to_vec()].concat(),
            1 => [number, vec![b'x'; 240]].concat(),
            2 => [b"-rf ".to_vec(), number].concat(),
            _ => number,
        }
    }

    fn dress(&mut self, path: &Path) {
        let meta = fs::symlink_metadata(path).expect("metadata");
        if is_root() {
            let (uid, gid) = (self.dice.one_of(&[0, 1000, 65534]), self.dice.one_of(&[0, 7]));
            lchown(path, Some(uid), Some(gid)).expect("an owner");
        }
        if !meta.is_symlink() {
            let modes = [0o644, 0o600, 0o4755, 0o2775, 0o1777, 0o400];
            let mode = self.dice.one_of(&modes);
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
        }
        if meta.is_dir() || meta.is_file() {
            if self.below(3) == 0 {
                set_attribute(path, "user.note", &vec![b'n'; self.below(300)]);
            }
            if self.below(4) == 0 {
                set_attribute(path, "system.posix_acl_access", &acl(1234));
            }
            if meta.is_dir() && self.below(4) == 0 {
                set_attribute(path, "system.posix_acl_default", &acl(4321));
            }
        }
        if is_root() && self.below(4) == 0 {
            set_attribute(path, "trusted.mark", b"t");
        }
        set_time(path, 1_600_000_000 + i64::from(self.below(1000).to_le_bytes()[0]), 123_456_789);
    }

    /// Change, add and take away some things.
    pub fn stir(&mut self, top: &Path) {
        for path in self.all.clone() {
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            match self.below(6) {
                0 if meta.is_dir() => fs::remove_dir_all(&path).expect("gone"),
                0 => fs::remove_file(&path).expect("gone"),
                1 if meta.is_file() => {
                    let file = File::options().write(true).open(&path).expect("a file");
                    file.write_all_at(b"stirred", 50_000).expect("data");
                }
                2 => self.dress(&path),
                3 if meta.is_file() => {
                    fs::remove_file(&path).expect("gone");
                    fs::create_dir(&path).expect("a directory");
                }
                _ => {}
            }
        }
        self.all.retain(|path| fs::symlink_metadata(path).is_ok());
        self.fill(top, 10);
    }
}

/// Give a file to somebody.
pub fn give(path: &Path, uid: u32, gid: u32) {
    chown(path, Some(uid), Some(gid)).expect("an owner");
}

/// A name that is no text.
pub fn odd(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}
