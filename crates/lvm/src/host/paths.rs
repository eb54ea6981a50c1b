//! Paths, opened without following any symbolic link: a pod may have put one anywhere below its
//! volume.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, major, minor, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{DeviceNumber, PathKind};
use crate::bytes::Bytes;
use crate::volume::FsUsage;

/// Directories that the driver makes: for root, readable by its group, as kubelet makes its own.
const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o750);
const FILE_MODE: Mode = Mode::from_bits_truncate(0o640);

/// Opens a path; a symbolic link on the way is `ELOOP`.
pub(super) fn open(path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    Ok(open_below(AT_FDCWD, path, flags)?)
}

fn open_below(from: impl std::os::fd::AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let how =
        OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(from, path, how)
}

/// Holds on to what a path is, without access to its content.
pub(super) fn hold(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlag::O_PATH)
}

/// The name under which the kernel finds what we hold, whatever its path leads to by now.
pub(super) fn held(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Returns the type of a path; a link at its end is not followed.
pub(super) fn kind(path: &Path) -> io::Result<Option<PathKind>> {
    let fd = match open_below(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_NOFOLLOW) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
        other => other?,
    };
    let stat = fstat(&fd)?;
    let format = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    Ok(Some(match format {
        SFlag::S_IFDIR => PathKind::Directory,
        SFlag::S_IFREG => PathKind::File,
        SFlag::S_IFBLK => PathKind::Block(number(stat.st_rdev)),
        _ => PathKind::Other,
    }))
}

/// Resolves a path of the administrator; the only call that follows links.
pub(super) fn real(path: &Path) -> io::Result<Option<PathBuf>> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Creates a directory and those above it.
pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    directory(path).map(drop)
}

/// Opens a directory that is made if it is missing.
fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
    match open_below(AT_FDCWD, path, flags) {
        Err(Errno::ENOENT) => {}
        other => return Ok(other?),
    }
    let (above, name) = split(path)?;
    let above = directory(above)?;
    match mkdirat(&above, name, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EEXIST) => Ok(open_below(&above, name, flags)?),
        Err(errno) => Err(errno.into()),
    }
}

/// Creates an empty file; there already is success, a bound device node on it included.
pub(super) fn make_file(path: &Path) -> io::Result<()> {
    let (above, name) = split(path)?;
    let above = hold(above)?;
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    match openat(&above, name, flags, FILE_MODE) {
        Ok(_) => Ok(()),
        Err(Errno::EEXIST) => match kind(path)? {
            Some(PathKind::File | PathKind::Block(_)) => Ok(()),
            _ => Err(Errno::EEXIST.into()),
        },
        Err(errno) => Err(errno.into()),
    }
}

/// Removes what the driver makes, an empty directory or an empty file, or a link; nothing else.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let (above, name) = split(path)?;
    let above = match open_below(AT_FDCWD, above, OFlag::O_PATH) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
        other => other?,
    };
    refuse_content(&above, name)?;
    let removed = match unlinkat(&above, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => unlinkat(&above, name, UnlinkatFlags::RemoveDir),
        other => other,
    };
    match removed {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// An error for a file that holds something, and for a device's node, a socket or a pipe.
fn refuse_content(above: &OwnedFd, name: &Path) -> io::Result<()> {
    let stat = match fstatat(above, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(()),
        other => other?,
    };
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFDIR | SFlag::S_IFLNK => Ok(()),
        SFlag::S_IFREG if stat.st_size == 0 => Ok(()),
        _ => Err(io::Error::other("it is not an empty file, so this driver did not create it")),
    }
}

/// Reads the usage of the file system at a path.
pub(super) fn usage(path: &Path) -> io::Result<FsUsage> {
    let stat = fstatvfs(File::from(hold(path)?))?;
    let bytes = |blocks: u64| Bytes::new(blocks.saturating_mul(stat.fragment_size()));
    Ok(FsUsage {
        total: bytes(stat.blocks()),
        used: bytes(stat.blocks().saturating_sub(stat.blocks_free())),
        available: bytes(stat.blocks_available()),
        inodes: stat.files(),
        inodes_free: stat.files_free(),
    })
}

/// The directory above and the last name.
pub(super) fn split(path: &Path) -> io::Result<(&Path, &Path)> {
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => Ok((above, Path::new(name))),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// A device number as the system calls have it.
pub(super) fn number(device: u64) -> DeviceNumber {
    let part = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    DeviceNumber { major: part(major(device)), minor: part(minor(device)) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<Errno> {
        result.unwrap_err().raw_os_error().map(Errno::from_raw)
    }

    #[test]
    fn what_is_made_is_there_and_what_is_removed_is_gone_twice() {
        let dir = tempfile::tempdir().unwrap();
        let (deep, file) = (dir.path().join("a/b/c"), dir.path().join("a/f"));
        assert_eq!(kind(&deep).unwrap(), None);
        for _ in 0..2 {
            make_dir(&deep).unwrap();
            make_file(&file).unwrap();
        }
        assert_eq!(kind(&deep).unwrap(), Some(PathKind::Directory));
        assert_eq!(kind(&file).unwrap(), Some(PathKind::File));
        assert_eq!(kind(&file.join("x")).unwrap(), None);
        assert_eq!(errno(remove(&dir.path().join("a/b"))), Some(Errno::ENOTEMPTY));
        for _ in 0..2 {
            remove(&deep).unwrap();
            remove(&file).unwrap();
        }
        remove(&dir.path().join("never/was")).unwrap();
        assert_eq!((kind(&deep).unwrap(), kind(&file).unwrap()), (None, None));
    }

    #[test]
    fn a_name_taken_by_another_kind_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, file) = (dir.path().join("d"), dir.path().join("f"));
        make_dir(&directory).unwrap();
        make_file(&file).unwrap();
        assert_eq!(errno(make_file(&directory)), Some(Errno::EEXIST));
        assert_eq!(errno(make_dir(&file)), Some(Errno::ENOTDIR));
    }

    #[test]
    fn what_the_driver_did_not_make_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, pipe) = (dir.path().join("passwd"), dir.path().join("pipe"));
        std::fs::write(&file, "precious").unwrap();
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        for path in [&file, &pipe, dir.path()] {
            remove(path).unwrap_err();
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        assert!(pipe.exists());
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        make_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        assert_eq!(kind(&link).unwrap(), Some(PathKind::Other));
        let behind = link.join("x");
        assert_eq!(errno(kind(&behind)), Some(Errno::ELOOP));
        assert_eq!(errno(make_dir(&behind)), Some(Errno::ELOOP));
        assert_eq!(errno(make_file(&behind)), Some(Errno::ELOOP));
        assert_eq!(errno(remove(&behind)), Some(Errno::ELOOP));
        assert_eq!(errno(usage(&link)), Some(Errno::ELOOP));
        assert_eq!(std::fs::read_dir(&real).unwrap().count(), 0);
        remove(&link).unwrap();
        assert_eq!(kind(&real).unwrap(), Some(PathKind::Directory));
    }

    #[test]
    fn a_disk_is_found_behind_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (disk, link) = (dir.join("sda"), dir.join("by-id"));
        symlink(&disk, &link).unwrap();
        assert_eq!(real(&link).unwrap(), None);
        make_file(&disk).unwrap();
        assert_eq!(real(&link).unwrap(), Some(disk.clone()));
        assert_eq!(real(&disk).unwrap(), Some(disk));
    }

    #[test]
    fn usage_adds_up() {
        let usage = usage(&std::env::temp_dir().canonicalize().unwrap()).unwrap();
        assert!(usage.total >= usage.used && usage.total > Bytes::new(0));
    }
}
