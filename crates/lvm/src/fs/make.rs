//! Make a file system.

use std::io;
use std::path::Path;

use crate::bytes::Bytes;
use crate::fs::read::known;
use crate::fs::run::{reason, run_to_success};
use crate::fs::{FsError, Switch, tools};
use crate::host::{Host, HostError};
use crate::volume::{FsKind, MkfsOptions};

/// A uuid for what is not made.
const NO_UUID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

/// What [`known_of`] tries on: every kind can be made on it.
const SMALL: Bytes = Bytes::gib(1);

/// Result of a test of mkfs options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// mkfs accepts them.
    Taken,
    /// mkfs rejects them, with this message.
    Refused(String),
}

/// Tests options of mkfs on an image of this size, in memory.
///
/// # Errors
/// [`HostError`] if it could not be run, which says nothing about the options.
pub async fn tried(
    host: &dyn Host,
    kind: FsKind,
    options: &MkfsOptions,
    switches: &[Switch],
    size: Bytes,
) -> Result<Tried, HostError> {
    let cmd = tools::try_mkfs(kind, options, switches, NO_UUID);
    let what = cmd.to_string();
    let output = host.run_on_image(cmd, size).await?;
    if output.code == 0 {
        return Ok(Tried::Taken);
    }
    if output.code >= 128 {
        return Err(HostError::Died { what }); // Whoever killed it, it was not for its options.
    }
    let said = reason(&output.stderr);
    let line = said.lines().next().unwrap_or_default().trim();
    Ok(Tried::Refused(if line.is_empty() {
        format!("mkfs exited with {}", output.code)
    } else {
        line.to_owned()
    }))
}

/// Checks that mkfs accepts a device of this size without options.
///
/// # Errors
/// [`HostError`] if it does not, in which case a rejection of options says nothing about them.
pub async fn taken_without(
    host: &dyn Host,
    kind: FsKind,
    switches: &[Switch],
    size: Bytes,
) -> Result<(), HostError> {
    match tried(host, kind, &MkfsOptions::default(), switches, size).await? {
        Tried::Taken => Ok(()),
        Tried::Refused(why) => {
            let source = io::Error::other(why);
            Err(HostError::System { what: format!("try mkfs.{kind}"), source })
        }
    }
}

/// Returns those switches that the mkfs of this host knows: an older one has nothing to switch off.
///
/// # Errors
/// As of [`tried`].
pub async fn known_of(
    host: &dyn Host,
    kind: FsKind,
    switches: Vec<Switch>,
) -> Result<Vec<Switch>, HostError> {
    let mut known = Vec::new();
    if !switches.is_empty() {
        // What refuses everything says nothing of a switch.
        taken_without(host, kind, &[], SMALL).await?;
    }
    for switch in switches {
        let alone = std::slice::from_ref(&switch);
        if tried(host, kind, &MkfsOptions::default(), alone, SMALL).await? == Tried::Taken {
            known.push(switch);
        }
    }
    Ok(known)
}

/// Creates a file system of this uuid over whatever the device carries, without what is switched off, durable when this
/// returns; a second look has seen it whole.
///
/// # Errors
/// [`FsError::TooSmall`] before anything is written, [`FsError::Failed`] if mkfs fails,
/// [`FsError::Unexpected`] or [`FsError::NotFilled`] if what it made is not what was wanted.
pub async fn make(
    host: &dyn Host,
    device: &Path,
    kind: FsKind,
    options: &MkfsOptions,
    switches: &[Switch],
    uuid: &str,
) -> Result<(), FsError> {
    let size = host.device_size(device).await?;
    if size < kind.smallest() {
        return Err(FsError::TooSmall {
            device: device.to_owned(),
            kind,
            size,
            smallest: kind.smallest(),
        });
    }
    run_to_success(host, tools::mkfs(kind, options, switches, uuid).arg(device)).await?;
    let made = known(host, device, kind).await?;
    if made.uuid != uuid {
        let (device, found) = (device.to_owned(), format!("uuid {} instead of {uuid}", made.uuid));
        return Err(FsError::Unexpected { device, found, wanted: kind });
    }
    if made.half_made() || made.covers > size || !made.fills(size) {
        return Err(FsError::NotFilled { device: device.to_owned(), covers: made.covers, size });
    }
    // mkfs.ext4 and mkfs.btrfs flush, but that is nowhere promised.
    Ok(host.flush(device).await?)
}
