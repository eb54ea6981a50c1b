//! LVM's lock on a volume group, taken as LVM takes it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::GroupLock;

/// Directory of LVM's lock files.
pub(super) const LOCK_DIR: &str = "/run/lock/lvm";

/// The lock, held: dropped, the file is unlinked and released, as LVM does.
#[derive(Debug)]
struct HeldLock {
    path: PathBuf,
    _file: File,
}

impl GroupLock for HeldLock {}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the lock of a group, or `None` while an LVM command holds it.
pub(super) fn try_lock(lock_dir: &Path, group: &str) -> io::Result<Option<Box<dyn GroupLock>>> {
    if group.is_empty() || group.contains(['/', '\0']) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(lock_dir)?;
    let path = lock_dir.join(format!("V_{group}"));
    loop {
        let file = File::options().create(true).append(true).read(true).mode(0o600).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Its last holder may have unlinked it while we opened it: then it locks nothing.
        if is_at(&file, &path)? {
            return Ok(Some(Box::new(HeldLock { path, _file: file })));
        }
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_no_file_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let locks = dir.path().join("lvm");
        let held = try_lock(&locks, "vg0").unwrap();
        assert!(held.is_some());
        assert!(try_lock(&locks, "vg0").unwrap().is_none());
        assert!(try_lock(&locks, "vg1").unwrap().is_some());
        drop(held);
        assert_eq!(fs::read_dir(&locks).unwrap().count(), 0);
        assert!(try_lock(&locks, "vg0").unwrap().is_some());
        assert!(try_lock(&locks, "../x").is_err());
    }
}
