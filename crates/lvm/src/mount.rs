//! The mount table and what is done to it.
//!
//! Every verb takes the table as its caller has read it, so that one request reads it once. A verb
//! that changes something looks again: by what device it sees, not by what the call returned.

mod table;

pub use table::{MountTable, block_number};

use std::path::{Path, PathBuf};

use nix::libc::EINVAL;

use crate::host::{DeviceNumber, Host, HostError, Mount, NewMount, PathKind};

/// Reason why a mount is not in the expected state.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Something else is there; nothing was changed.
    #[error("{target} shows {found}, not {wanted}; see `findmnt {target}`, and if that is not \
             needed, run `umount {target}`", target = target.display())]
    Occupied {
        /// Mount point.
        target: PathBuf,
        /// What is mounted.
        found: String,
        /// What was expected.
        wanted: String,
    },
    /// Nothing is there, and something has to be.
    #[error("nothing is mounted at {}, not {wanted}", target.display())]
    NotMounted {
        /// Mount point.
        target: PathBuf,
        /// What was expected.
        wanted: String,
    },
    /// It is still mounted after all its layers were unmounted: another process mounts it again.
    #[error("{} was mounted again by another process", target.display())]
    StillMounted {
        /// Mount point.
        target: PathBuf,
    },
    /// A call to the host failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Mount a file system at its target; `true` if that changed anything.
///
/// `device` is the number of the device that must be seen there. Mounted there already with the same
/// right to write is success; other options are not compared.
///
/// # Errors
/// [`MountError::Occupied`] if something else is there, before or after.
pub async fn ensure_mounted(
    host: &dyn Host,
    before: &MountTable,
    new: &NewMount,
    device: DeviceNumber,
) -> Result<bool, MountError> {
    let read_only = new.options.iter().any(|option| option == "ro");
    let wanted = ExpectedMount { target: &new.target, device, root: Path::new("/"), read_only };
    if wanted.is_in(before)? {
        return Ok(false);
    }
    host.mount(new).await?;
    wanted.must_be_in(&MountTable::read(host).await?)?;
    Ok(true)
}

/// Makes what is mounted at a target writable that was mounted read-only there; `true` if that changed
/// anything.
///
/// A file system that the kernel has turned read-only after an error stays so: its mount never was.
///
/// # Errors
/// [`MountError::NotMounted`] if it is read-only afterwards too.
pub async fn ensure_writable(
    host: &dyn Host,
    before: &MountTable,
    target: &Path,
) -> Result<bool, MountError> {
    let Some(mount) = before.at(target).filter(|mount| is_read_only(mount)) else {
        return Ok(false);
    };
    let flags: Vec<String> = mount
        .mount_options
        .iter()
        .chain(&mount.super_options)
        .filter(|one| *one != "ro")
        .cloned()
        .collect();
    host.mount_writable(target, &flags).await?;
    let wanted =
        ExpectedMount { target, device: mount.device, root: &mount.root, read_only: false };
    wanted.must_be_in(&MountTable::read(host).await?)?;
    Ok(true)
}

/// Binds a mounted directory to its target; `true` if that changed anything.
///
/// `source` is a mount point in `before`; what is seen there must be seen at `target`. Bound there
/// already with the same right to write is success; other flags are not compared.
///
/// # Errors
/// [`MountError::Occupied`] if something else is at `target`, before or after,
/// [`MountError::NotMounted`] if nothing is mounted at `source`.
pub async fn ensure_bound(
    host: &dyn Host,
    before: &MountTable,
    source: &Path,
    target: &Path,
    flags: &[String],
) -> Result<bool, MountError> {
    let Some(shown) = before.at(source) else {
        return Err(MountError::NotMounted {
            target: source.to_owned(),
            wanted: format!("the source of {}", target.display()),
        });
    };
    let wanted = ExpectedMount {
        target,
        device: shown.device,
        root: &shown.root,
        read_only: flags.iter().any(|flag| flag == "ro"),
    };
    if wanted.is_in(before)? {
        return Ok(false);
    }
    host.bind(source, target, flags).await?;
    wanted.must_be_in(&MountTable::read(host).await?)?;
    Ok(true)
}

/// Binds a device's node to a file; returns `true` if that changed anything.
///
/// `device` is the expected number. Needs no second look at the table: the node at `target` itself
/// has its number.
///
/// # Errors
/// [`MountError::Occupied`] if something else is at `target`, before or after.
pub async fn ensure_node_bound(
    host: &dyn Host,
    before: &MountTable,
    node: &Path,
    device: DeviceNumber,
    target: &Path,
) -> Result<bool, MountError> {
    let mounted = before.at(target).is_some();
    if !mounted {
        host.bind(node, target, &[]).await?;
    }
    match host.path_kind(target).await? {
        Some(PathKind::Block(number)) if number == device => Ok(!mounted),
        other => Err(MountError::Occupied {
            target: target.to_owned(),
            found: named(other),
            wanted: format!("block device {device}"),
        }),
    }
}

/// Unmounts all layers at `target`; returns `true` if there were any.
///
/// # Errors
/// [`MountError::Host`] with EBUSY while a process uses it, [`MountError::StillMounted`] if another
/// process mounts it at the same time.
pub async fn ensure_unmounted(
    host: &dyn Host,
    before: &MountTable,
    target: &Path,
) -> Result<bool, MountError> {
    let layers = before.layers(target);
    if layers == 0 {
        return Ok(false);
    }
    for _ in 0..layers {
        match host.unmount(target).await {
            // No mount any more: another process was quicker.
            Err(error) if error.errno() == Some(EINVAL) => break,
            answer => answer?,
        }
    }
    if MountTable::read(host).await?.at(target).is_some() {
        return Err(MountError::StillMounted { target: target.to_owned() });
    }
    Ok(true)
}

/// What has to be seen at a target.
struct ExpectedMount<'a> {
    target: &'a Path,
    device: DeviceNumber,
    root: &'a Path,
    read_only: bool,
}

impl ExpectedMount<'_> {
    /// Returns whether the table has it; an error if it has something else there.
    fn is_in(&self, table: &MountTable) -> Result<bool, MountError> {
        match table.at(self.target) {
            None => Ok(false),
            Some(mount) if self.is(mount) => Ok(true),
            Some(mount) => Err(MountError::Occupied {
                target: self.target.to_owned(),
                found: describe(mount),
                wanted: self.in_words(),
            }),
        }
    }

    fn must_be_in(&self, table: &MountTable) -> Result<(), MountError> {
        if self.is_in(table)? {
            return Ok(());
        }
        Err(MountError::NotMounted { target: self.target.to_owned(), wanted: self.in_words() })
    }

    /// A file system that the kernel has turned read-only after an error is still the one wanted.
    fn is(&self, mount: &Mount) -> bool {
        let seen = (mount.device, mount.root.as_path(), is_read_only(mount));
        seen == (self.device, self.root, self.read_only)
    }

    fn in_words(&self) -> String {
        let access = access(self.read_only);
        format!("{} of device {}, {access}", self.root.display(), self.device)
    }
}

/// Returns whether it was mounted so.
fn is_read_only(mount: &Mount) -> bool {
    mount.mount_options.iter().any(|option| option == "ro")
}

fn describe(mount: &Mount) -> String {
    let access = access(is_read_only(mount));
    let (root, device) = (mount.root.display(), mount.device);
    format!("{root} of device {device} ({} {}), {access}", mount.kind, mount.source)
}

fn access(read_only: bool) -> &'static str {
    if read_only { "read-only" } else { "writable" }
}

fn named(kind: Option<PathKind>) -> String {
    match kind {
        Some(PathKind::Block(number)) => format!("block device {number}"),
        Some(PathKind::Directory) => "a directory".to_owned(),
        Some(PathKind::File) => "a file".to_owned(),
        Some(PathKind::Other) => "something that is not a device".to_owned(),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests;
