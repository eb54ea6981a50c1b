//! The commands that change a volume group. Each reads the volume group afterwards: the result is
//! what the metadata shows, not what the command reports.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::host::{Cmd, at_least, version_in};
use crate::lvm::command_stats::code_of;
use crate::lvm::group::{ExtentRun, Group, Lv};
use crate::lvm::recovery::{remove_from_other_disks, remove_layers};
use crate::lvm::report::{self, CommandFailure, CommandOutcome};
use crate::lvm::thin_transactions::send_what_waits;
use crate::lvm::volume_group::look::read_changed;
use crate::lvm::volume_group::{VgGuard, failed, impediment, is_uneven, pin};
use crate::lvm::{LvmError, THIN_POOL};
use crate::volume::Layout;

/// Where the metadata area ends that LVM is asked for, which begins behind the label.
const METADATA_END: u64 = (16 << 20) + 4096;
/// What LVM aligns the first extent to, unless a disk asks for something else.
const ALIGNMENT: u64 = 1 << 20;

/// Returns the space that a disk loses to its label and metadata when it becomes a physical volume,
/// by its preferred write size. LVM puts the first extent behind them at a multiple of that size,
/// or at the next MiB if a MiB is such a multiple.
///
/// # Source
/// `set_pe_align` in LVM2's `lib/metadata/metadata.c`.
pub fn before_extents(optimal_io: Bytes) -> Bytes {
    let alignment = match optimal_io.get() {
        0 => ALIGNMENT,
        preferred if ALIGNMENT.is_multiple_of(preferred) => ALIGNMENT,
        preferred => preferred,
    };
    METADATA_END.checked_next_multiple_of(alignment).map_or(Bytes::MAX, Bytes::new)
}

/// The size of an extent in a group that was made here: LVM's default.
pub const EXTENT: Bytes = Bytes::mib(4);

/// From this version on LVM looks at the file system on a volume before it makes it smaller, and has options for that.
///
/// # Source
/// `WHATS_NEW` of LVM2: 2.03.17 came with `--fs`.
const LOOKS_AT_CONTENTS: [u32; 3] = [2, 3, 17];

/// A logical volume to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLv {
    /// Name of the logical volume.
    pub name: String,
    /// Layout of the logical volume.
    pub layout: Layout,
    /// Size in extents.
    pub extents: u64,
    /// Tags, committed together with it.
    pub tags: Vec<String>,
}

impl VgGuard {
    /// Reads the group as its disks have it now.
    pub async fn read(&self) -> Result<Arc<Group>, LvmError> {
        let group = self.group.read().await?;
        self.note_looked();
        Ok(group)
    }

    /// Returns the volume group as this turn read it last: after its last command, or now if this
    /// is the first call. Nothing else in this driver changes it meanwhile.
    pub async fn seen(&self) -> Result<Arc<Group>, LvmError> {
        match self.group.remembered().filter(|_| self.has_looked()) {
            Some(group) => Ok(group),
            None => self.read().await,
        }
    }

    /// Creates a logical volume, inactive and **not wiped**: its tags must record that.
    pub async fn create(&self, new: &NewLv) -> Result<Lv, LvmError> {
        let cmd = Cmd::new("lvcreate").args(["-y", "-an", "-Wn"]);
        let cmd = match new.layout {
            Layout::Linear => {
                cmd.args(["-Zn", "--setautoactivation", "n", "-l", &new.extents.to_string()])
            }
            // LVM takes the other way to keep hosts from activating it for this layout only.
            Layout::Thin => {
                let size = self.seen().await?.size_of(new.extents).get();
                cmd.args(["-ky", "-V", &format!("{size}b"), "--thinpool", THIN_POOL])
            }
        };
        let cmd = cmd
            .args(["-n", &new.name])
            .args(new.tags.iter().flat_map(|tag| ["--addtag", tag]))
            .arg(self.group.name());
        let said = self.command(cmd).await?;
        // One of that name which was there before has other tags, and what is on it is not ours.
        let as_asked = |lv: &Lv| new.tags.iter().all(|tag| lv.tags.contains(tag));
        self.expect(&new.name, said, |lv| lv.extents() == new.extents && as_asked(lv)).await
    }

    /// Takes a snapshot of a logical volume: of a thin one in its pool, else into `extents` extents of its own.
    pub async fn snapshot(&self, origin: &str, new: &NewLv) -> Result<Lv, LvmError> {
        heal_before(self, origin).await?;
        let cmd = Cmd::new("lvcreate").args(["-y", "-s"]);
        let cmd = match new.layout {
            Layout::Linear => cmd.args(["-l", &new.extents.to_string()]),
            Layout::Thin => cmd.arg("-ky"),
        };
        let cmd = cmd
            .args(["-n", &new.name])
            .args(new.tags.iter().flat_map(|tag| ["--addtag", tag]))
            .arg(self.path(origin));
        let said = self.command(cmd).await?;
        // One of that name which was there before has other tags.
        let as_asked = |lv: &Lv| new.tags.iter().all(|tag| lv.tags.contains(tag));
        self.expect(&new.name, said, as_asked).await
    }

    /// Grows a logical volume to `extents` extents in all, onto `pieces` if any are named.
    pub async fn extend(
        &self,
        lv: &str,
        extents: u64,
        pieces: &[ExtentRun],
    ) -> Result<Lv, LvmError> {
        heal_before(self, lv).await?;
        let on = match pieces {
            [] => Vec::new(),
            _ => places(&*self.seen().await?, pieces),
        };
        let cmd = Cmd::new("lvextend")
            .args(["-y", "-l", &extents.to_string()])
            .arg(self.path(lv))
            .args(on);
        let said = self.command(cmd).await?;
        self.expect(lv, said, |lv| lv.extents() >= extents).await
    }

    /// Removes the extents of a logical volume beyond its first `extents` extents, which must not
    /// be in use.
    pub async fn reduce(&self, lv: &str, extents: u64) -> Result<Lv, LvmError> {
        heal_before(self, lv).await?;
        // What the file system needs was looked at. LVM would look again, by a path that only udev makes, and refuse
        // what it does not know.
        let unseen: &[&str] =
            if looks_at_contents(self).await? { &["--fs", "ignore"] } else { &[] };
        let cmd = Cmd::new("lvreduce")
            .arg("-y")
            .args(unseen)
            .args(["-l", &extents.to_string()])
            .arg(self.path(lv));
        let said = self.command(cmd).await?;
        self.expect(lv, said, |lv| lv.extents() == extents).await
    }

    /// Replaces tags of a logical volume in one commit.
    ///
    /// # Errors
    /// [`LvmError::Unusable`] while a disk is missing. LVM itself refuses all other changes then,
    /// but makes this one, and marks the disk: it would still be missing when it is back.
    pub async fn retag(&self, lv: &str, gone: &[&str], new: &[String]) -> Result<Lv, LvmError> {
        if let Some(reason) = self.read().await?.frozen() {
            return Err(LvmError::Unusable { group: self.group.name().to_owned(), reason });
        }
        let cmd = Cmd::new("lvchange")
            .arg("-y")
            .args(gone.iter().flat_map(|tag| ["--deltag", tag]))
            .args(new.iter().flat_map(|tag| ["--addtag", tag.as_str()]))
            .arg(self.path(lv));
        let said = self.command(cmd).await?;
        self.expect(lv, said, |lv| {
            new.iter().all(|tag| lv.tags.contains(tag))
                && !gone.iter().any(|tag| lv.tags.contains(tag) && !new.iter().any(|n| n == tag))
        })
        .await
    }

    /// Activates a logical volume; active already is success.
    pub async fn activate(&self, lv: &str) -> Result<(), LvmError> {
        // A thin volume has the flag that lets LVM skip its activation.
        let cmd = Cmd::new("lvchange").args(["-y", "-ay", "-K", "--poll", "n"]).arg(self.path(lv));
        self.must(cmd).await
    }

    /// Deactivates a logical volume; inactive already is success.
    pub async fn deactivate(&self, lv: &str) -> Result<(), LvmError> {
        self.must(Cmd::new("lvchange").args(["-y", "-an"]).arg(self.path(lv))).await
    }

    /// Merges a snapshot back into its origin, which must not be open: it is then as it was when
    /// the snapshot was taken. Returns when all is copied, after `limit` at the latest.
    pub async fn merge(&self, snapshot: &str, limit: Duration) -> Result<(), LvmError> {
        heal_before(self, snapshot).await?;
        let cmd = Cmd::new("lvconvert").args(["-y", "--merge", "-i", "1"]);
        let said = self.command(cmd.arg(self.path(snapshot)).limit(limit)).await?;
        if self.read().await?.lvs.contains_key(snapshot) {
            return Err(refused(self, said).await);
        }
        Ok(())
    }

    /// Loads the table that the metadata describes.
    pub async fn refresh(&self, lv: &str) -> Result<(), LvmError> {
        self.must(Cmd::new("lvchange").args(["-y", "--refresh"]).arg(self.path(lv))).await
    }

    /// Removes a logical volume; already gone is success.
    pub async fn remove(&self, lv: &str) -> Result<(), LvmError> {
        heal_before(self, lv).await?;
        let group = self.read().await?;
        let uuid = group.lvs.get(lv).map(|lv| group.dm_uuid(lv));
        let cmd = Cmd::new("lvremove").args(["-y", "-f"]).arg(self.path(lv));
        let said = self.command(cmd).await?;
        if read_after_change(self).await?.lvs.contains_key(lv) {
            return Err(refused(self, said).await);
        }
        match uuid {
            Some(uuid) => remove_layers(self, &uuid).await,
            None => Ok(()),
        }
    }

    /// Creates the group on one disk.
    pub async fn create_group(&self, device: &Path, tags: &[String]) -> Result<(), LvmError> {
        make_physical_volume(self, device).await?;
        let cmd = Cmd::new("vgcreate")
            .arg("-y")
            .args(tags.iter().flat_map(|tag| ["--addtag", tag]))
            .arg(self.group.name())
            .arg(device);
        let said = self.command(cmd).await?;
        match self.read().await {
            Ok(_) => Ok(()),
            Err(_) => Err(refused(self, said).await),
        }
    }

    /// Adds a disk to the group.
    pub async fn extend_group(&self, device: &Path) -> Result<(), LvmError> {
        make_physical_volume(self, device).await?;
        self.must(Cmd::new("vgextend").args(["-y", self.group.name()]).arg(device)).await?;
        self.read().await.map(|_| ()) // Learns of the new disk, which has to be flushed too.
    }

    /// Brings all disks to the newest state, where a commit was interrupted between two of them: a
    /// state on one disk alone would be lost with that disk. Does nothing if they agree, or if a
    /// disk is missing.
    pub async fn level(&self) -> Result<(), LvmError> {
        let group = self.read().await?;
        if !is_uneven(&self.group) || !group.changeable() {
            return Ok(());
        }
        tracing::warn!(group = group.name, "updating outdated VG metadata on some disks");
        self.must(Cmd::new("vgck").args(["--updatemetadata", &group.name])).await?;
        self.read().await.map(|_| ())
    }

    pub(super) fn path(&self, lv: &str) -> String {
        format!("{}/{lv}", self.group.name())
    }

    /// Runs a command and believe its own word, where nothing in the metadata would show it.
    pub(super) async fn must(&self, cmd: Cmd) -> Result<(), LvmError> {
        let said = self.command(cmd).await?;
        match said.outcome {
            CommandOutcome::Success => Ok(()),
            CommandOutcome::Failure(_) => Err(refused(self, said).await),
        }
    }

    /// Runs a command in the group's shell; once more, if what an earlier one left was in its way and is not any more.
    pub(super) async fn command(&self, cmd: Cmd) -> Result<CommandResult, LvmError> {
        let said = self.command_once(cmd.clone()).await?;
        match &said.outcome {
            CommandOutcome::Failure(refusal) if send_what_waits(self, &refusal.words).await? => {
                self.command_once(cmd).await
            }
            CommandOutcome::Failure(_) | CommandOutcome::Success => Ok(said),
        }
    }

    async fn command_once(&self, cmd: Cmd) -> Result<CommandResult, LvmError> {
        let command = cmd.to_string();
        tracing::debug!(group = self.group.name(), command);
        pin(&self.group, None).await?;
        let (program, begin) = (cmd.program, Instant::now());
        let json = self.group.host.lvm(self.group.name(), cmd).await;
        let took = begin.elapsed();
        let outcome = json.map(|json| {
            report::parse(&json).unwrap_or_else(|error| {
                let words = format!("failed to parse its report: {error}");
                CommandOutcome::Failure(CommandFailure { code: "unread", words })
            })
        });
        let code = match &outcome {
            Ok(CommandOutcome::Success) => None,
            Ok(CommandOutcome::Failure(refusal)) => Some(refusal.code),
            Err(error) => Some(code_of(error)),
        };
        self.group.count_spent(program, took, code);
        self.group.count_change(); // After it: a flush that ran meanwhile may have missed it.
        let outcome = outcome.map_err(|error| failed(&self.group, error))?;
        Ok(CommandResult { command, outcome })
    }

    /// The logical volume as it is now, if it is as it should be; else what the command said.
    pub(super) async fn expect(
        &self,
        lv: &str,
        said: CommandResult,
        as_it_should_be: impl Fn(&Lv) -> bool,
    ) -> Result<Lv, LvmError> {
        match read_after_change(self).await?.lvs.get(lv) {
            Some(lv) if as_it_should_be(lv) => Ok(lv.clone()),
            _ => Err(refused(self, said).await),
        }
    }
}

/// Reads the group after a command of this turn has changed it.
pub(super) async fn read_after_change(turn: &VgGuard) -> Result<Arc<Group>, LvmError> {
    let group = read_changed(&turn.group).await?;
    turn.note_looked();
    Ok(group)
}

/// Returns whether LVM looks at what is on a volume before it makes it smaller, unless it is asked not to.
async fn looks_at_contents(turn: &VgGuard) -> Result<bool, LvmError> {
    let told = turn.group.host.run(Cmd::new("lvm").arg("version")).await;
    let told = told.map_err(|error| failed(&turn.group, error))?;
    Ok(version_in(&told.stdout).is_none_or(|version| at_least(version, LOOKS_AT_CONTENTS)))
}

/// Makes a disk a physical volume, durably, with space for the metadata of thousands of volumes:
/// the area cannot be enlarged later.
///
/// Before a group names it: LVM sends no flush between the two, and a power cut could leave a
/// group that misses a disk for ever.
async fn make_physical_volume(turn: &VgGuard, device: &Path) -> Result<(), LvmError> {
    pin(&turn.group, Some(device)).await?;
    turn.must(Cmd::new("pvcreate").args(["-y", "--metadatasize", "16m"]).arg(device)).await?;
    turn.group.host.flush(device).await.map_err(|error| failed(&turn.group, error))
}

/// A command on a volume that a killed one left suspended would wait for ever, and one on a volume in
/// use on another disk would put it on the disks that the group has.
pub(super) async fn heal_before(turn: &VgGuard, lv: &str) -> Result<(), LvmError> {
    let group = turn.seen().await?;
    match group.lvs.get(lv) {
        // Its device is as large as its origin; LVM loads both when it changes one, and suspends both.
        Some(lv) if group.is_snapshot(lv) => {
            if let Some(origin) = group.origin_of(lv) {
                turn.heal(origin).await?;
            }
            remove_from_other_disks(turn, &group, lv).await
        }
        Some(lv) => turn.heal(lv).await,
        None => Ok(false),
    }
    .map(drop)
}

/// What a refusal means: where the disks explain it, it will pass with their trouble.
async fn refused(turn: &VgGuard, said: CommandResult) -> LvmError {
    let error = said.into_error();
    match impediment(&turn.group).await {
        Some(reason) => LvmError::Unusable {
            group: turn.group.name().to_owned(),
            reason: format!("{reason}; {error}"),
        },
        None => error,
    }
}

/// Pieces of disks as LVM's command line names them.
fn places(group: &Group, pieces: &[ExtentRun]) -> Vec<String> {
    let place = |piece: &ExtentRun| {
        let device = group.pvs.get(&piece.pv)?.device.as_ref()?;
        Some(format!("{}:{}-{}", device.display(), piece.range.start, piece.range.end - 1))
    };
    pieces.iter().filter_map(place).collect()
}

/// The result that a command reported.
pub(super) struct CommandResult {
    command: String,
    outcome: CommandOutcome,
}

impl CommandResult {
    fn into_error(self) -> LvmError {
        let words = match self.outcome {
            CommandOutcome::Success => {
                "it reported success, but the volume group does not show the \
                                 change"
                    .into()
            }
            CommandOutcome::Failure(refusal) => refusal.words,
        };
        LvmError::Refused { command: self.command, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_extent_is_where_a_disk_likes_it() {
        let mib = Bytes::mib(17).get();
        for (optimal_io, before) in [
            (0, mib),
            (512, mib),
            (64 << 10, mib),
            (1 << 20, mib),
            (2 << 20, 18 << 20),
            (3 << 19, 33 << 19),
            (33_553_920, 33_553_920), // Of many USB bridges.
        ] {
            assert_eq!(before_extents(Bytes::new(optimal_io)), Bytes::new(before), "{optimal_io}");
        }
    }
}
