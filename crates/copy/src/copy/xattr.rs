//! Extended attributes, POSIX ACLs among them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::ownership::COPIED;
use super::target::OpenEntry;

/// Extended attributes of an entry by name.
pub type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// The kernel's own limit for one value, and for the list of names.
const LONGEST: usize = 64 << 10;

/// Returns whether an attribute belongs to the entry, and not to the host or the file system on
/// which it is.
///
/// `SELinux` labels are set by the host that runs the pod; xfs shows each ACL twice.
pub fn is_carried(name: &[u8]) -> bool {
    let acl = [b"system.posix_acl_access".as_slice(), b"system.posix_acl_default"].contains(&name);
    let kept = [b"user.".as_slice(), b"security.", b"trusted."];
    let left = [b"security.selinux".as_slice(), b"trusted.SGI_ACL_", b"trusted.overlay.", COPIED];
    acl || kept.iter().any(|start| name.starts_with(start))
        && !left.iter().any(|start| name.starts_with(start))
}

/// Returns whether only `CAP_SYS_ADMIN` may set an attribute: those of security modules, for which
/// the kernel grants access by capabilities only. Pods that copy do not have it.
pub fn is_for_administrators(name: &[u8]) -> bool {
    is_carried(name) && name.starts_with(b"security.") && name != b"security.capability"
}

/// Reads all attributes that are copied; a file system without any has none.
///
/// # Errors
/// An error of the kernel.
pub fn attributes(node: &OpenEntry) -> rustix::io::Result<Attributes> {
    attributes_of(node.as_fd(), node.path())
}

/// Reads the same of an open file, or of what is at a path.
///
/// # Errors
/// An error of the kernel.
pub fn attributes_of(fd: BorrowedFd, path: Option<&str>) -> rustix::io::Result<Attributes> {
    let names = match list(fd, path) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP) => return Ok(Attributes::new()),
        Err(error) => return Err(error),
    };
    let mut found = Attributes::new();
    for name in names.split(|byte| *byte == 0).filter(|name| is_carried(name)) {
        match value(fd, path, name) {
            Ok(value) => drop(found.insert(name.to_vec(), value)),
            Err(Errno::NODATA) => {} // Taken away since.
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn list(fd: BorrowedFd, path: Option<&str>) -> rustix::io::Result<Vec<u8>> {
    // Nearly all have a few short names: one call.
    let mut names = vec![0; 512];
    let read = |names: &mut Vec<u8>| match path {
        None => rustix::fs::flistxattr(fd, names.as_mut_slice()),
        Some(path) => rustix::fs::listxattr(path, names.as_mut_slice()),
    };
    let length = match read(&mut names) {
        Err(Errno::RANGE) => {
            names.resize(LONGEST, 0);
            read(&mut names)?
        }
        other => other?,
    };
    names.truncate(length);
    Ok(names)
}

fn value(fd: BorrowedFd, path: Option<&str>, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; 256];
    let read = |value: &mut Vec<u8>| match path {
        None => rustix::fs::fgetxattr(fd, name, value.as_mut_slice()),
        Some(path) => rustix::fs::getxattr(path, name, value.as_mut_slice()),
    };
    let length = match read(&mut value) {
        Err(Errno::RANGE) => {
            value.resize(LONGEST, 0);
            read(&mut value)?
        }
        other => other?,
    };
    value.truncate(length);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_security_modules_are_for_administrators() {
        for name in ["security.NTACL", "security.ima", "security.capabilities"] {
            assert!(is_for_administrators(name.as_bytes()), "{name}");
        }
        for name in ["security.capability", "security.selinux", "user.security.x", "trusted.x"] {
            assert!(!is_for_administrators(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn labels_and_shadows_are_not_carried() {
        for name in ["user.a", "security.capability", "trusted.x", "system.posix_acl_default"] {
            assert!(is_carried(name.as_bytes()), "{name}");
        }
        for name in
            ["security.selinux", "trusted.SGI_ACL_FILE", "btrfs.compression", "system.x", ""]
        {
            assert!(!is_carried(name.as_bytes()), "{name}");
        }
    }
}
