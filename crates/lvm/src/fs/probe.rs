//! Detects the content of a device. The result decides whether a volume group may be created on it,
//! so in doubt a device is not blank.

use std::path::Path;

use crate::fs::run::failed;
use crate::fs::{FsError, Superblock, superblock_of};
use crate::host::{Cmd, Host};

/// How much of the device must be zeroes before it counts as blank.
const MUST_BE_ZERO: u64 = 1 << 20;

/// Content of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// Nothing.
    Blank,
    /// A file system that this driver knows.
    Known(Superblock),
    /// Other content, as far as it can be named; it must not be overwritten.
    Foreign(String),
}

/// Detects the content of a device.
///
/// Reads the device itself, past every cache. [`Probe::Blank`] needs three witnesses: no superblock
/// known here, no signature known to `blkid`, and zeroes in the first MiB.
///
/// # Errors
/// [`FsError::Host`] if the device is missing or cannot be read; that is never taken for blank.
///
/// # Source
/// blkid(8): exit code 2 means both "nothing found" and "no such device", 8 "ambivalent".
pub async fn probe(host: &dyn Host, device: &Path) -> Result<Probe, FsError> {
    host.device_size(device).await?;
    if let Some(superblock) = superblock_of(host, device).await? {
        return Ok(if superblock.half_made() {
            Probe::Foreign(format!("{} whose formatting did not complete", superblock.kind))
        } else {
            Probe::Known(superblock)
        });
    }
    if let Some(found) = signature(host, device).await? {
        return Ok(Probe::Foreign(found));
    }
    if !host.is_zero(device, 0..MUST_BE_ZERO).await? {
        let unexplained = "data without a known signature".to_owned();
        return Ok(Probe::Foreign(unexplained));
    }
    Ok(Probe::Blank)
}

/// What `blkid` recognises; `None` if nothing.
async fn signature(host: &dyn Host, device: &Path) -> Result<Option<String>, FsError> {
    let cmd = Cmd::new("blkid").args(["-p", "-o", "export"]).arg(device);
    let command = cmd.to_string();
    let output = host.run(cmd).await?;
    match output.code {
        0 => Ok(Some(named(&output.stdout))),
        2 => Ok(None),
        8 => Ok(Some("contradictory signatures".to_owned())),
        _ => Err(failed(command, &output)),
    }
}

/// The type that `blkid -o export` prints, or all of what it prints if it names no type.
fn named(export: &str) -> String {
    let value =
        |key: &str| export.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => kind.to_owned(),
        (None, Some(table)) => format!("a partition table ({table})"),
        (None, None) => export.trim().replace('\n', ", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_blkid_prints() {
        let swap = "DEVNAME=/dev/dm-3\nUUID=0f8e419a\nVERSION=1\nTYPE=swap\nUSAGE=other\n";
        assert_eq!(named(swap), "swap");
        let gpt = "DEVNAME=/dev/dm-3\nPTUUID=d7586605\nPTTYPE=gpt\n";
        assert_eq!(named(gpt), "a partition table (gpt)");
        assert_eq!(named("DEVNAME=/dev/dm-3\nUSAGE=raid\n"), "DEVNAME=/dev/dm-3, USAGE=raid");
    }
}
