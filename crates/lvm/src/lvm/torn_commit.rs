//! Undo a commit that a power cut has torn: the header of the metadata area has reached the disk, and
//! the text that it names has not. Every reader of such a disk, LVM too, sees no group at all.
//!
//! What was promised is never lost with it: an answer is given only after a flush, and the text of
//! then is still in the ring. LVM's own repair tool writes it back.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::host::{Cmd, Host, HostError};
use crate::lvm::group::Group;
use crate::lvm::metadata::{self, Area, Earlier};
use crate::lvm::scan::{Member, Scan, scan};

/// Areas that this driver makes are below: of 16 MiB, and larger where LVM aligns their end to what a
/// disk likes best. Those beyond are a person's business.
pub const LARGEST_AREA: u64 = 32 << 20;
/// So much of an area is read at a time.
const PIECE: usize = 1 << 20;
/// How long the search on one disk is waited for: nothing is served meanwhile. A disk may be slow,
/// and what stands in its area may be written by anyone.
pub const SEARCH_LIMIT: Duration = Duration::from_secs(5);

/// The volume groups to search for on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchedGroups {
    /// Whatever group was made on it.
    Any,
    /// Those with these names.
    Named(BTreeSet<String>),
}

impl SearchedGroups {
    fn has(&self, group: &str) -> bool {
        match self {
            SearchedGroups::Any => true,
            SearchedGroups::Named(names) => names.contains(group),
        }
    }

    /// Without those that another disk describes: LVM reads that one.
    pub fn undescribed(self, scan: &Scan) -> SearchedGroups {
        match self {
            SearchedGroups::Any => SearchedGroups::Any,
            SearchedGroups::Named(mut names) => {
                names.retain(|name| scan.of(name).next().is_none());
                SearchedGroups::Named(names)
            }
        }
    }

    /// Returns true if no group is searched for.
    pub fn is_nothing(&self) -> bool {
        matches!(self, SearchedGroups::Named(names) if names.is_empty())
    }
}

/// Writes back the newest whole metadata on the disks of `ours` whose last commit was torn, and scan
/// again if there was one. `dir` holds the text meanwhile. A disk on which nothing is `wanted` is not
/// read.
///
/// A group that another of its disks describes is left alone: LVM reads that one.
///
/// # Errors
/// [`HostError`] if the disks cannot be listed; a disk that cannot be mended stays damaged.
pub async fn undo_torn_commits(
    host: &Arc<dyn Host>,
    scan_before: Scan,
    dir: &Path,
    wanted: impl Fn(&Path) -> SearchedGroups,
    ours: impl Fn(&Group, &Path) -> bool,
) -> Result<Scan, HostError> {
    let mut undone = false;
    // One after the other: each holds a whole area in memory.
    for member in scan_before.members.iter().filter(|member| member.damage.is_some()) {
        let disk = &member.disk.path;
        let wanted = wanted(disk).undescribed(&scan_before);
        if wanted.is_nothing() {
            continue;
        }
        let found = tokio::time::timeout(SEARCH_LIMIT, find(host.as_ref(), member, wanted)).await;
        let earlier = match found {
            Ok(Ok(Some(earlier))) if ours(&earlier.group, disk) => earlier,
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => {
                tracing::warn!(disk = %disk.display(), %error, "failed to read the VG metadata");
                continue;
            }
            Err(_) => {
                tracing::warn!(disk = %disk.display(), limit = ?SEARCH_LIMIT, "search for VG metadata timed out");
                continue;
            }
        };
        if scan_before.of(&earlier.group.name).next().is_some() {
            continue;
        }
        let (group, seqno) = (&earlier.group.name, earlier.group.seqno);
        tracing::warn!(disk = %disk.display(), group, seqno, "undoing a VG metadata commit torn by \
                                                              a power failure");
        match write_back(host.as_ref(), disk, &earlier, dir).await {
            Ok(()) => undone = true,
            Err(error) => {
                tracing::error!(disk = %disk.display(), group, %error, "failed to restore torn VG metadata");
            }
        }
    }
    if undone { scan(host, &scan_before.named).await } else { Ok(scan_before) }
}

async fn find(
    host: &dyn Host,
    member: &Member,
    wanted: SearchedGroups,
) -> Result<Option<Earlier>, HostError> {
    for area in member.label.areas.iter().filter(|area| area.size <= LARGEST_AREA) {
        let bytes = read(host, &member.disk.path, *area).await?;
        let Ok(header) = metadata::parse_area(&bytes, area.offset) else {
            continue;
        };
        if !header.ignored {
            let search =
                move || metadata::before_torn_commit(&bytes, &header, |group| wanted.has(group));
            // Not on a thread that serves. A panic in it is logged, and finds nothing.
            return Ok(tokio::task::spawn_blocking(search).await.ok().flatten());
        }
    }
    Ok(None)
}

async fn read(host: &dyn Host, disk: &Path, area: Area) -> Result<Vec<u8>, HostError> {
    let mut bytes = Vec::new();
    for at in (0..area.size).step_by(PIECE) {
        let length = usize::try_from(area.size - at).map_or(PIECE, |left| left.min(PIECE));
        bytes.extend(host.read_at(disk, area.offset.saturating_add(at), length).await?);
    }
    Ok(bytes)
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
