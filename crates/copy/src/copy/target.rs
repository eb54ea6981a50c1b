//! The hand: every call that changes the target is one of these, so that tests can cut the world
//! before each of them.

use std::cell::Cell;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    Uid, XattrFlags,
};
use rustix::io::Errno;

use super::dir::{Dir, EntryKind, Meta, Stamp, meta_of};

/// Changes a target, one call at a time.
#[derive(Debug, Default)]
pub struct Hand {
    done: Cell<u64>,
    dies_after: Option<u64>,
}

/// One entry in the target or in the source: an open file or directory, or a bare name where
/// opening it would have another meaning.
#[derive(Debug)]
pub struct OpenEntry {
    fd: OwnedFd,
    /// How the kernel is asked about a thing that is not open: by the name of our own descriptor.
    path: Option<String>,
}

impl OpenEntry {
    /// An open file or directory.
    pub fn open(fd: impl Into<OwnedFd>) -> OpenEntry {
        OpenEntry { fd: fd.into(), path: None }
    }

    /// A link, a fifo or a device, which is not opened.
    ///
    /// # Errors
    /// An error of the kernel on the name.
    pub fn bare(dir: &Dir, name: &CStr) -> io::Result<OpenEntry> {
        let fd = dir.point(name)?;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(OpenEntry { fd, path: Some(path) })
    }

    /// Path to access it, if it cannot be accessed by its descriptor.
    pub(super) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Reads its metadata.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn meta(&self) -> rustix::io::Result<Meta> {
        meta_of(&self.fd)
    }
}

impl AsFd for OpenEntry {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

type Done<T = ()> = rustix::io::Result<T>;

impl Hand {
    /// A hand that fails at every call after the first so many, as a process that has died: for tests.
    pub fn dying_after(calls: u64) -> Hand {
        Hand { done: Cell::new(0), dies_after: Some(calls) }
    }

    /// Number of calls that have changed something.
    pub fn calls(&self) -> u64 {
        self.done.get()
    }

    fn stroke(&self) -> Done {
        if self.dies_after == Some(self.done.get()) {
            return Err(Errno::IO);
        }
        self.done.set(self.done.get() + 1);
        Ok(())
    }

    /// Creates a directory that no one else may access yet.
    pub fn make_dir(&self, dir: &Dir, name: &CStr) -> Done {
        self.stroke()?;
        rustix::fs::mkdirat(dir, name, Mode::RWXU)
    }

    /// Creates a file that no one else may access yet. An existing one is an error.
    pub fn make_file(&self, dir: &Dir, name: &CStr) -> Done<File> {
        self.stroke()?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Creates a link.
    pub fn make_link(&self, dir: &Dir, name: &CStr, says: &[u8]) -> Done {
        self.stroke()?;
        rustix::fs::symlinkat(says, dir, name)
    }

    /// Creates a fifo or a device.
    pub fn make_node(&self, dir: &Dir, name: &CStr, meta: &Meta) -> Done {
        self.stroke()?;
        let kind = match meta.kind {
            EntryKind::Fifo => FileType::Fifo,
            EntryKind::Character => FileType::CharacterDevice,
            EntryKind::Block => FileType::BlockDevice,
            _ => return Err(Errno::INVAL),
        };
        let device = rustix::fs::makedev(meta.device.0, meta.device.1);
        rustix::fs::mknodat(dir, name, kind, Mode::RUSR | Mode::WUSR, device)
    }

    /// Adds a hard link to an entry.
    pub fn add_name(&self, from: (&Dir, &CStr), to: (&Dir, &CStr)) -> Done {
        self.stroke()?;
        rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty())
    }

    /// Moves a name to another directory; a name that is there already is an error.
    pub fn rename(&self, from: (&Dir, &CStr), to: (&Dir, &CStr)) -> Done {
        self.stroke()?;
        rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE)
    }

    /// Removes a name that is not a directory.
    pub fn remove(&self, dir: &Dir, name: &CStr) -> Done {
        self.stroke()?;
        rustix::fs::unlinkat(dir, name, AtFlags::empty())
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, dir: &Dir, name: &CStr) -> Done {
        self.stroke()?;
        rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
    }

    /// Writes bytes.
    pub fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        self.stroke()?;
        file.write_all_at(bytes, at)
    }

    /// Have the kernel copy bytes between two files; how many it copied.
    pub fn copy(&self, from: &File, to: &File, at: u64, length: usize) -> Done<usize> {
        self.stroke()?;
        let (mut read, mut written) = (at, at);
        rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), length)
    }

    /// Punches a hole.
    pub fn punch(&self, file: &File, at: u64, length: u64) -> Done {
        self.stroke()?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, flags, at, length)
    }

    /// Sets the size of a file.
    pub fn set_size(&self, file: &File, size: u64) -> Done {
        self.stroke()?;
        rustix::fs::ftruncate(file, size)
    }

    /// Sets the owner of an entry.
    pub fn set_owner(&self, node: &OpenEntry, uid: u32, gid: u32) -> Done {
        self.stroke()?;
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match node.path() {
            None => rustix::fs::fchown(node, uid, gid),
            Some(path) => rustix::fs::chownat(CWD, path, uid, gid, AtFlags::empty()),
        }
    }

    /// Sets the mode of an entry.
    pub fn set_mode(&self, node: &OpenEntry, mode: u32) -> Done {
        self.stroke()?;
        let mode = Mode::from_raw_mode(mode);
        match node.path() {
            None => rustix::fs::fchmod(node, mode),
            Some(path) => rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()),
        }
    }

    /// Sets access and modification time of an entry.
    pub fn set_times(&self, node: &OpenEntry, read: Stamp, modified: Stamp) -> Done {
        self.stroke()?;
        let times =
            Timestamps { last_access: timespec(read), last_modification: timespec(modified) };
        match node.path() {
            None => rustix::fs::futimens(node, &times),
            Some(path) => rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()),
        }
    }

    /// Sets an extended attribute of an entry.
    pub fn set_attribute(&self, node: &OpenEntry, name: &[u8], value: &[u8]) -> Done {
        self.stroke()?;
        match node.path() {
            None => rustix::fs::fsetxattr(node, name, value, XattrFlags::empty()),
            Some(path) => rustix::fs::setxattr(path, name, value, XattrFlags::empty()),
        }
    }

    /// Removes an extended attribute.
    pub fn remove_attribute(&self, node: &OpenEntry, name: &[u8]) -> Done {
        self.stroke()?;
        match node.path() {
            None => rustix::fs::fremovexattr(node, name),
            Some(path) => rustix::fs::removexattr(path, name),
        }
    }

    /// Makes a whole file system durable.
    pub fn flush_all(&self, dir: &Dir) -> Done {
        self.stroke()?;
        rustix::fs::syncfs(dir)
    }

    /// Makes a file or a device durable.
    pub fn flush(&self, file: &File) -> io::Result<()> {
        self.stroke()?;
        file.sync_all()
    }
}

fn timespec(stamp: Stamp) -> Timespec {
    Timespec { tv_sec: stamp.seconds, tv_nsec: stamp.nanos.into() }
}
