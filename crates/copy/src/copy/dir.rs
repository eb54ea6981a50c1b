//! Directories and their entries, accessed by one name at a time and never through a link.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::num::ParseIntError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Deserializer, Serialize};

/// Bytes that are asked of the kernel at a time for the names of a directory.
const NAMES_AT_ONCE: usize = 64 << 10;

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// Type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A character device.
    Character,
    /// A block device.
    Block,
    /// A socket, which means nothing without the process that listens on it.
    Socket,
}

/// A time of a file, to the nanosecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "(i64, u32)", into = "(i64, u32)")]
pub struct Stamp {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds, below a thousand million.
    pub nanos: u32,
}

impl From<Stamp> for (i64, u32) {
    fn from(Stamp { seconds, nanos }: Stamp) -> (i64, u32) {
        (seconds, nanos)
    }
}

impl TryFrom<(i64, u32)> for Stamp {
    type Error = &'static str;

    fn try_from((seconds, nanos): (i64, u32)) -> Result<Stamp, Self::Error> {
        if nanos < 1_000_000_000 { Ok(Stamp { seconds, nanos }) } else { Err("an invalid time") }
    }
}

/// Metadata of an entry, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Type of the entry.
    pub kind: EntryKind,
    /// The twelve bits of its mode.
    #[serde(deserialize_with = "twelve_bits")]
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Bytes from its beginning to its end.
    pub size: u64,
    /// Bytes that its file system holds for it.
    pub allocated: u64,
    /// Number of hard links.
    pub links: u32,
    /// Device and inode, which identify the entry under any name.
    pub id: (u64, u64),
    /// The device that it stands for.
    pub device: (u32, u32),
    /// Time of the last read access.
    pub read: Stamp,
    /// Time of the last change of the content, which anyone may set.
    pub modified: Stamp,
    /// Time of the last change of content or metadata, which no one can set.
    pub changed: Stamp,
    /// True if another file system is mounted there.
    pub is_mount: bool,
}

fn twelve_bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    u32::deserialize(deserializer).map(|mode| mode & 0o7777)
}

impl Meta {
    /// Bytes of a file that are more than holes, about.
    pub fn stored(&self) -> u64 {
        self.size.min(self.allocated)
    }
}

impl Dir {
    /// Opens the top of a tree. The path is the caller's own, so links in it count.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Dir(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens a directory in this one; a link is refused.
    pub fn enter(&self, name: &CStr) -> rustix::io::Result<Dir> {
        self.open_quietly(name, OFlags::RDONLY | OFlags::DIRECTORY).map(Dir)
    }

    /// Opens the same directory once more.
    pub fn again(&self) -> rustix::io::Result<Dir> {
        self.enter(c".")
    }

    /// Opens a regular file for reading. Never waits, whatever the entry is.
    pub fn read(&self, name: &CStr) -> rustix::io::Result<File> {
        self.open_quietly(name, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
    }

    /// Opens a file to read and change it.
    pub fn change(&self, name: &CStr) -> rustix::io::Result<File> {
        self.open_at(name, OFlags::RDWR | OFlags::NONBLOCK).map(File::from)
    }

    /// Opens the entry itself, not its content: enough to name it to the kernel.
    pub fn point(&self, name: &CStr) -> rustix::io::Result<OwnedFd> {
        self.open_at(name, OFlags::PATH)
    }

    /// Reading leaves no trace in the source where the kernel lets us.
    fn open_quietly(&self, name: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match self.open_at(name, flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.open_at(name, flags),
            other => other,
        }
    }

    fn open_at(&self, name: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty())
    }

    /// Reads the metadata of a name here. A link is not followed.
    pub fn meta(&self, name: &CStr) -> rustix::io::Result<Meta> {
        meta(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The same, where absence is no error.
    pub fn find(&self, name: &CStr) -> rustix::io::Result<Option<Meta>> {
        match self.meta(name) {
            Ok(meta) => Ok(Some(meta)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the metadata of this directory.
    pub fn own_meta(&self) -> rustix::io::Result<Meta> {
        meta_of(&self.0)
    }

    /// Reads the target of a link.
    pub fn link(&self, name: &CStr) -> rustix::io::Result<Vec<u8>> {
        rustix::fs::readlinkat(&self.0, name, Vec::new()).map(std::ffi::CString::into_bytes)
    }

    /// All names but `.` and `..`, sorted by their bytes.
    pub fn names(&self) -> rustix::io::Result<DirNames> {
        // A descriptor of its own: where the kernel is in a directory belongs to the descriptor.
        let dir = self.again()?;
        let mut buffer = Vec::with_capacity(NAMES_AT_ONCE);
        let mut entries = RawDir::new(&dir.0, buffer.spare_capacity_mut());
        let mut names = DirNames::default();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The names at the top of a tree. An empty `lost+found` does not count: `mkfs` makes it, and what
    /// a repair finds is what it holds.
    pub fn names_at_the_top(&self) -> rustix::io::Result<DirNames> {
        let mut names = self.names()?;
        if let Some(place) = names.place(LOST_AND_FOUND)
            && self.find(LOST_AND_FOUND)?.is_some_and(|meta| meta.kind == EntryKind::Directory)
            && self.enter(LOST_AND_FOUND)?.names()?.is_empty()
        {
            names.starts.remove(place);
        }
        Ok(names)
    }
}

/// Directory that `mkfs` creates at the top of some file systems, for a repair.
pub const LOST_AND_FOUND: &CStr = c"lost+found";

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> OwnedFd {
        dir.0
    }
}

/// Reads the metadata of an open file.
pub fn meta_of(fd: impl AsFd) -> rustix::io::Result<Meta> {
    meta(fd, c"", AtFlags::EMPTY_PATH)
}

fn meta(fd: impl AsFd, name: &CStr, flags: AtFlags) -> rustix::io::Result<Meta> {
    let seen = rustix::fs::statx(fd, name, flags, StatxFlags::BASIC_STATS)?;
    let stamp = |at: rustix::fs::StatxTimestamp| Stamp { seconds: at.tv_sec, nanos: at.tv_nsec };
    let device = rustix::fs::makedev(seen.stx_dev_major, seen.stx_dev_minor);
    Ok(Meta {
        kind: kind(FileType::from_raw_mode(seen.stx_mode.into())),
        mode: u32::from(seen.stx_mode) & 0o7777,
        uid: seen.stx_uid,
        gid: seen.stx_gid,
        size: seen.stx_size,
        allocated: seen.stx_blocks * 512,
        links: seen.stx_nlink,
        id: (device, seen.stx_ino),
        device: (seen.stx_rdev_major, seen.stx_rdev_minor),
        read: stamp(seen.stx_atime),
        modified: stamp(seen.stx_mtime),
        changed: stamp(seen.stx_ctime),
        is_mount: seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    })
}

fn kind(seen: FileType) -> EntryKind {
    match seen {
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        FileType::Fifo => EntryKind::Fifo,
        FileType::CharacterDevice => EntryKind::Character,
        FileType::BlockDevice => EntryKind::Block,
        FileType::Socket => EntryKind::Socket,
        FileType::RegularFile | FileType::Unknown => EntryKind::File,
    }
}

/// The names of a directory, packed: a million of them take some thirty megabytes.
#[derive(Debug, Default)]
pub struct DirNames {
    /// Each with the zero at its end.
    text: Vec<u8>,
    starts: Vec<usize>,
    at: usize,
}

impl DirNames {
    fn push(&mut self, name: &CStr) {
        self.starts.push(self.text.len());
        self.text.extend_from_slice(name.to_bytes_with_nul());
    }

    fn sort(&mut self) {
        let text = &self.text;
        self.starts.sort_unstable_by_key(|start| name_at(text, *start));
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns whether this name is among them.
    pub fn contains(&self, name: &CStr) -> bool {
        self.place(name).is_some()
    }

    fn place(&self, name: &CStr) -> Option<usize> {
        self.starts.binary_search_by(|start| name_at(&self.text, *start).cmp(name)).ok()
    }

    /// The next one that has not been taken.
    pub fn take(&mut self) -> Option<&CStr> {
        let start = *self.starts.get(self.at)?;
        self.at += 1;
        Some(name_at(&self.text, start))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &CStr> {
        self.starts.iter().map(|start| name_at(&self.text, *start))
    }
}

fn name_at(text: &[u8], start: usize) -> &CStr {
    CStr::from_bytes_until_nul(&text[start..]).unwrap_or_default()
}

impl Stamp {
    /// This moment, by the clock of the kernel that sets the times of files; it is never before those.
    pub fn now() -> Stamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        Stamp { seconds, nanos: since.subsec_nanos() }
    }

    /// The time that was so long before, to the second.
    pub fn earlier(self, by: Duration) -> Stamp {
        let by = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        Stamp { seconds: self.seconds.saturating_sub(by), nanos: self.nanos }
    }
}

/// As it is displayed.
impl FromStr for Stamp {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Stamp, ParseIntError> {
        let (seconds, nanos) = text.split_once('.').unwrap_or((text, ""));
        Ok(Stamp { seconds: seconds.parse()?, nanos: nanos.parse()? })
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanos)
    }
}

impl EntryKind {
    /// Name of the type.
    pub fn word(self) -> &'static str {
        match self {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Symlink => "link",
            EntryKind::Fifo => "fifo",
            EntryKind::Character => "character-device",
            EntryKind::Block => "block-device",
            EntryKind::Socket => "socket",
        }
    }
}
