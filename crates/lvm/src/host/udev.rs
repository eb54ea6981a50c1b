//! Rules for the udev of the host, so that none of its tools reads what a tenant writes to a
//! volume.
//!
//! LVM's own settings cannot do that. With `udev_rules=0` a logical volume is excluded from the
//! rules of device-mapper and LVM, but not from those of mdadm, btrfs and LVM's event activation. A
//! loop device over a volume is excluded from none.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::state;

/// The rules.
pub const UDEV_RULES: &str = include_str!("12-pliant.rules");

/// The name of their file: behind the rules of device-mapper and LVM (10 and 11) that are before it where
/// distributions have not renamed them, and before all that read what is on a device (from 13 on).
pub const UDEV_RULES_FILE: &str = "12-pliant.rules";

/// Writes the rules into a directory of the host that udev reads. A repeated call changes nothing.
///
/// A running udevd checks the time of the directory before it handles an event, at most every 3 s,
/// and reads its rules again when that has changed: it needs no notification.
///
/// # Errors
/// An error of the system.
pub fn write_udev_rules(dir: &Path) -> io::Result<()> {
    let file = dir.join(UDEV_RULES_FILE);
    if fs::read(&file).is_ok_and(|has| has == UDEV_RULES.as_bytes()) {
        return Ok(());
    }
    state::replace(&file, UDEV_RULES.as_bytes())?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_rules_are_written_once_and_again_when_they_differ() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(UDEV_RULES_FILE);
        write_udev_rules(dir.path()).unwrap();
        let first = fs::metadata(&file).unwrap();
        assert_eq!(first.mode() & 0o777, 0o644);
        write_udev_rules(dir.path()).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().ino(), first.ino());
        fs::write(&file, "edited").unwrap();
        write_udev_rules(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), UDEV_RULES);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write_udev_rules(&dir.path().join("missing")).is_err());
    }
}
