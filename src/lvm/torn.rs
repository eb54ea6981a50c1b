//! Undo a commit that a power cut has torn: the header of the metadata area has reached the disk, and
//! the text that it names has not. Every reader of such a disk, LVM too, sees no group at all.
//!
//! What was promised is never lost with it: an answer is given only after a flush, and the text of
//! then is still in the ring. LVM's own repair tool writes it back.

use std::path::Path;
use std::sync::Arc;

use crate::host::{Cmd, Host, HostError};
use crate::lvm::group::Group;
use crate::lvm::metadata::{self, Earlier};
use crate::lvm::scan::{Member, Scan, scan};

/// Areas are 16 MiB where this driver has made them; larger ones are a person's business.
const LARGEST_AREA: u64 = 64 << 20;

/// Write back the newest whole metadata on the disks of `ours` whose last commit was torn, and scan
/// again if there was one. `dir` holds the text meanwhile.
///
/// A group that another of its disks describes is left alone: LVM reads that one.
///
/// # Errors
/// [`HostError`] if the disks cannot be listed; a disk that cannot be mended stays damaged.
pub async fn undo_torn_commits(
    host: &Arc<dyn Host>,
    scan_before: Scan,
    dir: &Path,
    ours: impl Fn(&Group, &Path) -> bool,
) -> Result<Scan, HostError> {
    let mut undone = false;
    for member in scan_before.members.iter().filter(|member| member.damage.is_some()) {
        let disk = &member.disk.path;
        let earlier = match find(host.as_ref(), member).await {
            Ok(Some(earlier)) if ours(&earlier.group, disk) => earlier,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(disk = %disk.display(), %error, "its metadata could not be read");
                continue;
            }
        };
        if scan_before.of(&earlier.group.name).next().is_some() {
            continue;
        }
        let (group, seqno) = (&earlier.group.name, earlier.group.seqno);
        tracing::warn!(disk = %disk.display(), group, seqno, "undoing a commit torn by a power cut");
        match write_back(host.as_ref(), disk, &earlier, dir).await {
            Ok(()) => undone = true,
            Err(error) => {
                tracing::error!(disk = %disk.display(), group, %error, "it stays torn");
            }
        }
    }
    if undone { scan(host, &scan_before.named).await } else { Ok(scan_before) }
}

async fn find(host: &dyn Host, member: &Member) -> Result<Option<Earlier>, HostError> {
    for area in member.label.areas.iter().filter(|area| area.size <= LARGEST_AREA) {
        let length = usize::try_from(area.size).unwrap_or(usize::MAX);
        let bytes = host.read_at(&member.disk.path, area.offset, length).await?;
        let Ok(header) = metadata::parse_area(&bytes) else {
            continue;
        };
        if !header.ignored {
            return Ok(metadata::before_torn_commit(&bytes, &header));
        }
    }
    Ok(None)
}

async fn write_back(
    host: &dyn Host,
    disk: &Path,
    earlier: &Earlier,
    dir: &Path,
) -> Result<(), HostError> {
    let lane = &earlier.group.name;
    let file = dir.join(format!("{lane}.metadata"));
    let forget = Cmd::new("rm").arg("-f").arg(&file);
    host.pin_devices(lane, &[disk.to_owned()]).await?;
    host.run(forget.clone()).await?;
    let place = format!("metadata_offset={}", earlier.offset);
    let find = Cmd::new("pvck").args(["--dump", "metadata_search", "--settings", &place, "-f"]);
    host.lvm(lane, find.arg(&file).arg(disk)).await?;
    let repair = Cmd::new("pvck").args(["-y", "--repairtype", "metadata", "-f"]);
    host.lvm(lane, repair.arg(&file).arg(disk)).await?;
    host.flush(disk).await?;
    host.run(forget).await.map(drop)
}
