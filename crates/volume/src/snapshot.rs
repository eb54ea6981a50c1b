//! Snapshots: what one is, its id, and the operations on them.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use async_trait::async_trait;

use crate::bytes::Bytes;
use crate::{ForeignId, Mode, PoolName, VolumeError, VolumeId, VolumeKey};

/// A snapshot's id on the wire: `<volume id>.<key>`, 62 characters of `[a-z2-7.-]`.
///
/// It begins with the id of the volume that it was taken of, so whoever has it knows which node to ask first. That is a
/// hint: the id stays when the volume, or the snapshot, is on another node, or when the volume is gone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId {
    source: VolumeId,
    key: VolumeKey,
}

impl SnapshotId {
    /// The id of the snapshot of a volume with this key of its name.
    pub fn new(source: VolumeId, key: VolumeKey) -> Self {
        SnapshotId { source, key }
    }

    /// The volume that it was taken of; it may be gone.
    pub fn source(&self) -> &VolumeId {
        &self.source
    }

    /// The key of its name.
    pub fn key(&self) -> &VolumeKey {
        &self.key
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.source, self.key.as_str())
    }
}

impl fmt::Debug for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for SnapshotId {
    type Err = ForeignId;

    fn from_str(text: &str) -> Result<Self, ForeignId> {
        let (source, key) = text.split_once('.').ok_or(ForeignId)?;
        Ok(SnapshotId { source: source.parse()?, key: VolumeKey::parse(key)? })
    }
}

/// A snapshot to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSnapshot {
    /// The caller's name for it, 1 to 128 characters of any script.
    pub name: String,
    /// The volume to take it of.
    pub source: VolumeId,
}

impl NewSnapshot {
    /// The id that it gets.
    pub fn id(&self) -> SnapshotId {
        SnapshotId::new(self.source.clone(), VolumeKey::of(&self.name))
    }
}

/// A snapshot as it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Id of the snapshot.
    pub id: SnapshotId,
    /// The name that its creator gave.
    pub name: String,
    /// The node that has it.
    pub node: String,
    /// Pool of the snapshot.
    pub pool: PoolName,
    /// Size of the volume when it was taken, in whole extents.
    pub size: Bytes,
    /// The smallest size of a volume that is restored from it: what was asked for when its volume was made, and not the
    /// whole extents that this became. A claim of the same request would be refused else.
    pub restore_size: Bytes,
    /// Volume mode, and file system type.
    pub mode: Mode,
    /// Time of the cut; the same for ever.
    pub taken: SystemTime,
    /// True once a volume can be restored from it.
    pub ready: bool,
}

/// The part of a list of snapshots that is asked for, in the order of their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotPage {
    /// The last id of the page before.
    pub after: Option<SnapshotId>,
    /// Maximum number of entries.
    pub most: Option<usize>,
    /// Only those of this volume.
    pub source: Option<VolumeId>,
}

/// One page of a list of snapshots, in the order of their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotListing {
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
    /// The value of [`after`](SnapshotPage::after) for the next page; `None` on the last one.
    pub next: Option<SnapshotId>,
}

impl SnapshotPage {
    /// Cuts the page out of all snapshots, in any order.
    pub fn cut(&self, all: Vec<Snapshot>) -> SnapshotListing {
        let asked = |one: &Snapshot| {
            self.after.as_ref().is_none_or(|after| one.id > *after)
                && self.source.as_ref().is_none_or(|source| one.id.source() == source)
        };
        let mut snapshots: Vec<Snapshot> = all.into_iter().filter(asked).collect();
        snapshots.sort_by(|one, other| one.id.cmp(&other.id));
        let most = self.most.unwrap_or(usize::MAX);
        let more = snapshots.len() > most;
        snapshots.truncate(most);
        let last = snapshots.last().filter(|_| more);
        SnapshotListing { next: last.map(|last| last.id.clone()), snapshots }
    }
}

/// Takes, deletes and reports snapshots: on this host, or anywhere in a cluster.
///
/// An operation that changes something runs to its end even if its caller leaves.
///
/// # Errors
/// [`VolumeError`]; its variants define what a caller can do.
#[async_trait]
pub trait Snapshots: Send + Sync + 'static {
    /// Takes the snapshot, durably; a repeated call changes nothing and returns the same snapshot.
    async fn ensure_snapshot(&self, want: &NewSnapshot) -> Result<Snapshot, VolumeError>;

    /// Deletes the snapshot and makes its bytes unreadable; success if it does not exist. Its volume, and volumes that were
    /// restored from it, stay.
    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError>;

    /// Finds one snapshot; `None` only if it really is gone.
    async fn find_snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, VolumeError>;

    /// Lists snapshots in the order of their ids.
    async fn list_snapshots(&self, page: &SnapshotPage) -> Result<SnapshotListing, VolumeError>;
}

/// What a new volume begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The content of a snapshot.
    Snapshot(SnapshotId),
    /// The content that a volume has when the new one is made.
    Volume(VolumeId),
}

impl Source {
    /// The volume that the content is, or was, in.
    pub fn volume(&self) -> &VolumeId {
        match self {
            Source::Snapshot(id) => id.source(),
            Source::Volume(id) => id,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Snapshot(id) => id.fmt(f),
            Source::Volume(id) => id.fmt(f),
        }
    }
}

impl FromStr for Source {
    type Err = ForeignId;

    fn from_str(text: &str) -> Result<Self, ForeignId> {
        // The shapes exclude each other: only the id of a snapshot has a full stop.
        text.parse().map(Source::Volume).or_else(|_| text.parse().map(Source::Snapshot))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::NodeKey;

    fn snapshot(volume: &str, name: &str) -> Snapshot {
        let source = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of(volume));
        let want = NewSnapshot { name: name.to_owned(), source };
        Snapshot {
            id: want.id(),
            name: want.name,
            node: "alpha".to_owned(),
            pool: "fast".parse().unwrap(),
            size: Bytes::gib(1),
            restore_size: Bytes::gib(1),
            mode: Mode::Block,
            taken: UNIX_EPOCH + Duration::from_secs(1),
            ready: true,
        }
    }

    #[test]
    fn an_id_is_read_as_it_is_written_and_names_its_volume() {
        let one = snapshot("pvc-1", "snapshot-1");
        let text = one.id.to_string();
        assert_eq!((text.len(), text.parse()), (62, Ok(one.id.clone())));
        assert!(text.starts_with(&format!("{}.", one.id.source())));
        let source = Source::Snapshot(one.id.clone());
        assert_eq!((text.parse(), source.volume()), (Ok(source.clone()), one.id.source()));
        let volume = one.id.source().to_string();
        assert_eq!(volume.parse(), Ok(Source::Volume(one.id.source().clone())));
        for foreign in ["", ".", &volume, &format!("{text}."), &text[1..], &text.replace('.', "-")]
        {
            assert_eq!(foreign.parse::<SnapshotId>(), Err(ForeignId), "{foreign:?}");
        }
    }

    #[test]
    fn a_page_goes_on_behind_an_id_and_may_be_of_one_volume() {
        let all: Vec<Snapshot> =
            [("a", "1"), ("a", "2"), ("b", "3")].map(|(of, name)| snapshot(of, name)).into();
        let whole = SnapshotPage::default().cut(all.clone());
        assert_eq!((whole.snapshots.len(), &whole.next), (3, &None));
        let first = SnapshotPage { most: Some(2), ..SnapshotPage::default() }.cut(all.clone());
        assert_eq!(first.snapshots, whole.snapshots[..2]);
        let rest = SnapshotPage { after: first.next, ..SnapshotPage::default() }.cut(all.clone());
        assert_eq!(rest.snapshots, whole.snapshots[2..]);
        let source = Some(all[0].id.source().clone());
        let of_a = SnapshotPage { source, ..SnapshotPage::default() }.cut(all.clone());
        let mut names: Vec<String> = of_a.snapshots.into_iter().map(|one| one.name).collect();
        names.sort();
        assert_eq!(names, ["1", "2"]);
    }
}
