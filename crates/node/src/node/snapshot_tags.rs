//! The tags of the logical volume of a snapshot: all that is stored about it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::bytes::Bytes;
use crate::lvm::{Group, Lv, tags};
use crate::node::found::{Found, FoundVolume};
use crate::node::lv_tags::{self, EMPTY, SNAPSHOT, STATE, StoredState, TAKEN};
use crate::volume::{Mode, NewSnapshot, SnapshotId, Wipe};

/// A snapshot as its tags describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotTags {
    /// Id of the snapshot.
    pub id: SnapshotId,
    /// The caller's name for it.
    pub name: String,
    /// Volume mode, and file system type.
    pub mode: Mode,
    /// `Copying` until it has the content of its volume, then `Shown`, and `Deleting` at its end.
    pub life: StoredState,
    /// True if its volume was never shown to a workload until the cut: then there is nothing to restore.
    pub empty: bool,
    /// The size that the creator of its volume asked for.
    pub requested: Bytes,
    /// Method of the wipe when it is deleted.
    pub wipe: Wipe,
    /// Time of the cut.
    pub taken: SystemTime,
}

/// A snapshot that was found.
pub(super) type FoundSnapshot = Found<SnapshotTags>;

impl SnapshotTags {
    /// Returns the record of a snapshot that is taken now.
    pub(super) fn new(want: &NewSnapshot, source: &FoundVolume) -> Self {
        let record = &source.record;
        SnapshotTags {
            id: want.id(),
            name: want.name.clone(),
            mode: record.mode,
            life: StoredState::Shown,
            empty: record.is_new(),
            requested: smallest_request(source),
            wipe: record.wipe,
            taken: SystemTime::now(),
        }
    }

    /// Reads the record of a logical volume; `None` if it is not a snapshot of this driver.
    pub fn read(lv: &Lv) -> Option<SnapshotTags> {
        let value = |key| tags::value(&lv.tags, key);
        let id: SnapshotId = value(SNAPSHOT)?.parse().ok()?;
        if lv.name != lv_tags::snapshot_name(id.key()) {
            return None;
        }
        let state = value(STATE)?;
        let nanoseconds: u64 = value(TAKEN)?.parse().ok()?;
        Some(SnapshotTags {
            name: value("name")?,
            mode: value("fstype")?.parse().ok()?,
            life: StoredState::ALL.into_iter().find(|life| life.as_str() == state)?,
            empty: tags::find(&lv.tags, EMPTY).is_some(),
            requested: Bytes::new(value("requested-bytes")?.parse().ok()?),
            wipe: lv_tags::wipe_of(lv),
            taken: UNIX_EPOCH + Duration::from_nanos(nanoseconds),
            id,
        })
    }

    /// The tags that write it down.
    pub fn tags(&self) -> Vec<String> {
        let mut all = vec![
            tags::tag(SNAPSHOT, &self.id.to_string()),
            tags::tag("name", &self.name),
            tags::tag("fstype", &self.mode.to_string()),
            tags::tag("requested-bytes", &self.requested.get().to_string()),
            taken_tag(self.taken),
            self.life.tag(),
        ];
        if self.empty {
            all.push(tags::tag(EMPTY, "true"));
        }
        if self.wipe != Wipe::Zero {
            all.push(tags::tag("wipe", self.wipe.tag_value()));
        }
        all
    }

    /// The name of its logical volume.
    pub fn lv_name(&self) -> String {
        lv_tags::snapshot_name(self.id.key())
    }

    /// Returns whether a volume can be restored from it.
    pub fn is_ready(&self) -> bool {
        self.life == StoredState::Shown
    }
}

/// The smallest request that leads to a volume of this size: that of its creator, unless it has another size since.
fn smallest_request(source: &FoundVolume) -> Bytes {
    let (extents, extent) = (source.lv.extents(), source.seen.extent_size);
    let recorded = source.record.requested.filter(|size| size.div_ceil(extent) == extents);
    recorded.unwrap_or_else(|| source.seen.size_of(extents.saturating_sub(1)) + Bytes::new(1))
}

/// Returns the tag with the time of a cut.
fn taken_tag(taken: SystemTime) -> String {
    let since = taken.duration_since(UNIX_EPOCH).unwrap_or_default();
    tags::tag(TAKEN, &since.as_nanos().to_string())
}

/// The snapshots of ours in a group.
pub fn snapshots(group: &Group) -> impl Iterator<Item = (&Lv, SnapshotTags)> {
    group.lvs.values().filter_map(|lv| SnapshotTags::read(lv).map(|record| (lv, record)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lvm::Words;
    use crate::volume::{FsKind, NodeKey, VolumeId, VolumeKey};

    #[test]
    fn a_record_comes_back_from_its_tags() {
        let source = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"));
        let name = "snapshot-1 with, any “name”".to_owned();
        let record = SnapshotTags {
            id: NewSnapshot { name: name.clone(), source }.id(),
            name,
            mode: Mode::Filesystem(FsKind::Xfs),
            life: StoredState::Shown,
            empty: false,
            requested: Bytes::gib(1),
            wipe: Wipe::Zero,
            taken: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789),
        };
        let written = |record: &SnapshotTags| Lv {
            name: record.lv_name(),
            uuid: String::new(),
            flags: Words::default(),
            tags: record.tags().into_iter().collect(),
            segments: Vec::new(),
        };
        let lives = [StoredState::Copying, StoredState::Shown, StoredState::Deleting];
        for (life, wipe) in lives.into_iter().zip(Wipe::ALL) {
            let empty = life == StoredState::Shown;
            let record = SnapshotTags { life, empty, wipe, ..record.clone() };
            assert_eq!(SnapshotTags::read(&written(&record)), Some(record));
        }
        let lv = written(&record);
        for doubt in ["snapshot=x", "state=shown2", "taken-nanoseconds=1", "name=other"] {
            let mut lv = lv.clone();
            lv.tags.extend([format!("pliant.{doubt}")]);
            assert_eq!(SnapshotTags::read(&lv), None, "{doubt}");
        }
        let renamed = Lv { name: "data".to_owned(), ..lv };
        assert_eq!(SnapshotTags::read(&renamed), None);
    }
}
