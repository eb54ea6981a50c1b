//! The tags of a logical volume: the state of a volume, and its only store.

use std::fmt;

use crate::bytes::Bytes;
use crate::lvm::{Group, Lv, tags};
use crate::node::settings::NodeSettings;
use crate::volume::{
    Class, Fence, MkfsOptions, Mode, NewVolume, NodeKey, Safety, Source, TrimInterval, VolumeId,
    VolumeKey, Wipe,
};

/// Begins the names of our logical volumes.
const PREFIX: &str = "pliant-";

/// Key of the tag with the node of a volume group.
pub const NODE: &str = "node";
/// Key of the tag with the state.
pub(super) const STATE: &str = "state";
const SOURCE: &str = "source";
/// Key of the tag with the id of a snapshot.
pub(super) const SNAPSHOT: &str = "snapshot";
/// Key of the tag of a snapshot that has no content.
pub(super) const EMPTY: &str = "empty";
/// Key of the tag with the time of a snapshot.
pub(super) const TAKEN: &str = "taken-nanoseconds";
const FENCE: &str = "fence";
const LIMIT: &str = "max-size";
const TRIM: &str = "trim-hours";
/// Key of the tag with the progress of a volume's last wipe.
pub const WIPED: &str = "wiped-bytes";

/// State of a volume; the part of [`crate::volume::State`] that LVM stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredState {
    /// Never shown to a workload, so that whatever its extents hold is worth nothing. It is wiped, and formatted,
    /// before it is.
    New,
    /// Being filled with the content of its source. What it has of it is worth nothing before all of it is there.
    Copying,
    /// Filled with the content of its source. It never was shown, and its file system still has the uuid of the source's.
    Restored,
    /// Shown to a workload at least once, or about to be: it may hold data. A file system was made on it, durably.
    Shown,
    /// To be wiped and removed.
    Deleting,
}

impl StoredState {
    pub(super) const ALL: [StoredState; 5] = [
        StoredState::New,
        StoredState::Copying,
        StoredState::Restored,
        StoredState::Shown,
        StoredState::Deleting,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            StoredState::New => "new",
            StoredState::Copying => "copying",
            StoredState::Restored => "restored",
            StoredState::Shown => "shown",
            StoredState::Deleting => "deleting",
        }
    }
}

/// A volume as its tags describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeTags {
    /// Id of the volume.
    pub id: VolumeId,
    /// The caller's name for it.
    pub name: String,
    /// Volume mode, and file system type.
    pub mode: Mode,
    /// State of the volume.
    pub life: StoredState,
    /// The size that its creator asked for; `None` if its tag cannot be read.
    pub requested: Option<Bytes>,
    /// Method of the wipe when it is deleted.
    pub wipe: Wipe,
    /// Whether an offline resize needs a snapshot.
    pub safety: Safety,
    /// Options for making its file system.
    pub mkfs: MkfsOptions,
    /// Progress of the wipe before its first use, or of the one at its deletion, when it was last
    /// saved; `None` if it cannot be read.
    pub wiped: Option<Bytes>,
    /// Allowed use of the volume.
    pub fence: Fence,
    /// The size beyond which it does not grow: that to which it is, or was, shrunk.
    pub limit: Option<Bytes>,
    /// What it was filled with when it was made.
    pub source: Option<Source>,
    /// How often its mounted file system is trimmed; `None` if never, or if its tag cannot be read.
    pub trim: Option<TrimInterval>,
}

/// The name of the logical volume of a key.
pub fn lv_name(key: &VolumeKey) -> String {
    format!("{PREFIX}{}", key.as_str())
}

/// The name of the snapshot of a key.
pub fn snapshot_name(key: &VolumeKey) -> String {
    format!("{PREFIX}{}.snap", key.as_str())
}

/// The name of the copy-on-write snapshot that the logical volume of this name is copied from.
pub fn cut_name(lv: &str) -> String {
    format!("{lv}.cut")
}

/// The name of the logical volume that a copy-on-write snapshot of this name is copied to; `None` for another one.
pub fn target_of_cut(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?;
    name.strip_suffix(".cut")
}

/// The name that stands for the logical volume of this key on another node, where a cut is named after it.
pub fn remote_name(key: &VolumeKey) -> String {
    format!("{PREFIX}{}.send", key.as_str())
}

/// Returns true if a cut is named after a logical volume of another node.
pub fn is_remote(target: &str) -> bool {
    target.strip_suffix(".send").is_some()
}

/// The name of the safety snapshot of a volume.
pub fn safety_name(key: &VolumeKey) -> String {
    format!("{PREFIX}{}.resize", key.as_str())
}

/// The name of the logical volume that holds extents while they are wiped before they join a volume.
pub fn more_name(key: &VolumeKey) -> String {
    format!("{PREFIX}{}.extend", key.as_str())
}

impl VolumeTags {
    /// Returns the record of a volume about to be created on this node.
    pub fn new(node: &NodeKey, want: &NewVolume) -> Self {
        let Class { wipe, safety, trim, ref mkfs_options, .. } = want.class;
        VolumeTags {
            id: VolumeId::new(node.clone(), want.key()),
            name: want.name.clone(),
            mode: want.mode,
            life: StoredState::New,
            requested: Some(want.size.at_least),
            wipe,
            safety,
            mkfs: mkfs_options.clone(),
            wiped: Some(Bytes::ZERO),
            fence: Fence::default(),
            limit: None,
            source: want.source.clone(),
            trim,
        }
    }

    /// Reads the record of a logical volume; `None` if it is not a volume of this driver.
    pub fn read(lv: &Lv) -> Option<VolumeTags> {
        let value = |key| tags::value(&lv.tags, key);
        let id: VolumeId = value("id")?.parse().ok()?;
        if lv.name != lv_name(id.key()) {
            return None;
        }
        let mode: Mode = value("fstype")?.parse().ok()?;
        let word = |key, known: &[&str]| {
            let word = value(key)?;
            known.iter().position(|known| *known == word)
        };
        // Tags can be edited by hand: options are checked again before they reach a command line.
        let mkfs = match (mode, tags::find(&lv.tags, "mkfs")) {
            (Mode::Filesystem(kind), Some(_)) => MkfsOptions::parse(kind, &value("mkfs")?).ok()?,
            _ => MkfsOptions::default(),
        };
        // What cannot be read may forbid the use of it.
        let fence = match tags::find(&lv.tags, FENCE) {
            Some(_) => value(FENCE)?.parse().ok()?,
            None => Fence::default(),
        };
        let limit = match find_limit_tag(lv) {
            Some(_) => Some(bytes(value(LIMIT))?),
            None => None,
        };
        let safety = match word("resize-snapshot", &Safety::ALL.map(Safety::tag_value)) {
            Some(at) => Safety::ALL[at],
            // What cannot be read may want one.
            None if tags::find(&lv.tags, "resize-snapshot").is_some() => Safety::Required,
            None => Safety::BestEffort,
        };
        let source = match tags::find(&lv.tags, SOURCE) {
            Some(_) => Some(value(SOURCE)?.parse().ok()?),
            None => None,
        };
        Some(VolumeTags {
            name: value("name")?,
            mode,
            life: StoredState::ALL[word(STATE, &StoredState::ALL.map(StoredState::as_str))?],
            requested: bytes(value("requested-bytes")),
            wipe: wipe_of(lv),
            safety,
            mkfs,
            wiped: wiped_of(lv),
            fence,
            limit,
            source,
            trim: value(TRIM).and_then(|hours| TrimInterval::of_hours(hours.parse().ok()?)),
            id,
        })
    }

    /// The tags that write it down. What has its default has none: LVM parses all tags of a volume group at
    /// each command.
    pub fn tags(&self) -> Vec<String> {
        let mut tags = vec![
            tags::tag("id", &self.id.to_string()),
            tags::tag("name", &self.name),
            tags::tag("fstype", &self.mode.to_string()),
            self.life.tag(),
        ];
        tags.extend(
            self.requested.map(|size| tags::tag("requested-bytes", &size.get().to_string())),
        );
        if self.wipe != Wipe::Zero {
            tags.push(tags::tag("wipe", self.wipe.tag_value()));
        }
        if self.safety != Safety::BestEffort {
            tags.push(tags::tag("resize-snapshot", self.safety.tag_value()));
        }
        tags.extend(self.source.as_ref().map(|source| tags::tag(SOURCE, &source.to_string())));
        tags.extend(self.trim.map(|every| tags::tag(TRIM, &every.hours().to_string())));
        if !self.mkfs.words().is_empty() {
            tags.push(tags::tag("mkfs", &self.mkfs.words().join(" ")));
        }
        tags
    }

    /// The name of its logical volume.
    pub fn lv_name(&self) -> String {
        lv_name(self.id.key())
    }

    /// Returns whether a workload has, or may have, changed it.
    pub fn was_shown(&self) -> bool {
        matches!(self.life, StoredState::Shown | StoredState::Deleting)
    }

    /// Returns whether it was never published to a workload, and has no content.
    pub fn is_new(&self) -> bool {
        self.life == StoredState::New
    }
}

impl StoredState {
    /// Returns its tag.
    pub fn tag(self) -> String {
        tags::tag(STATE, self.as_str())
    }
}

/// Returns the tag with the fence of the volume.
pub fn fence_tag(fence: Fence) -> String {
    tags::tag(FENCE, &fence.to_string())
}

/// Returns its present fence tag; `None` on a volume that was never swapped.
pub fn find_fence_tag(lv: &Lv) -> Option<&str> {
    tags::find(&lv.tags, FENCE)
}

/// Returns the tag with the maximum size of the volume.
pub fn limit_tag(limit: Bytes) -> String {
    tags::tag(LIMIT, &limit.get().to_string())
}

/// Returns its present maximum-size tag; `None` on a volume that was not shrunk.
pub fn find_limit_tag(lv: &Lv) -> Option<&str> {
    tags::find(&lv.tags, LIMIT)
}

/// Returns the tag with the progress of a wipe.
pub fn wiped_tag(wiped: Bytes) -> String {
    tags::tag(WIPED, &wiped.get().to_string())
}

/// The progress of its wipe; `None` if it cannot be read.
pub(super) fn wiped_of(lv: &Lv) -> Option<Bytes> {
    match tags::find(&lv.tags, WIPED) {
        Some(_) => bytes(tags::value(&lv.tags, WIPED)),
        None => Some(Bytes::ZERO),
    }
}

/// How a logical volume is wiped at its end; with zeroes if its tag cannot be read.
pub(super) fn wipe_of(lv: &Lv) -> Wipe {
    let word = tags::value(&lv.tags, "wipe");
    let known = Wipe::ALL.into_iter().find(|wipe| word.as_deref() == Some(wipe.tag_value()));
    known.unwrap_or(Wipe::Zero)
}

/// A number of bytes; one that cannot be read is none, and not 0.
fn bytes(text: Option<String>) -> Option<Bytes> {
    text?.parse().ok().map(Bytes::new)
}

/// The volumes of ours in a group.
pub fn volumes(group: &Group) -> impl Iterator<Item = (&Lv, VolumeTags)> {
    group.lvs.values().filter_map(|lv| VolumeTags::read(lv).map(|record| (lv, record)))
}

/// A node other than this one, as far as a volume group identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherNode {
    /// By the tag of the volume group.
    Named(String),
    /// By the ids of its volumes.
    Keyed(NodeKey),
    /// Its tag cannot be read, or it has several.
    Unreadable,
}

impl fmt::Display for OtherNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtherNode::Named(name) => f.write_str(name),
            OtherNode::Keyed(key) => {
                write!(f, "{} (the hash in the ids of its volumes)", key.as_str())
            }
            OtherNode::Unreadable => {
                f.write_str("unknown (its pliant.node= tags do not give a single name)")
            }
        }
    }
}

/// The other node that has a group; `None` if this one may use it. Its tag decides, and where it has none
/// the volumes in it.
pub fn other_node(group: &Group, here: &NodeSettings) -> Option<OtherNode> {
    match tags::value(&group.tags, NODE) {
        Some(name) if name == here.name => None,
        Some(name) => Some(OtherNode::Named(name)),
        // Two nodes would each take it for their own.
        None if tags::find(&group.tags, NODE).is_some() => Some(OtherNode::Unreadable),
        None => {
            let mut keys = volumes(group).map(|(_, record)| record.id.node().clone());
            keys.find(|key| *key != here.key).map(OtherNode::Keyed)
        }
    }
}

/// Returns whether a volume in a volume group belongs to this node.
pub fn is_here(group: &Group, record: &VolumeTags, here: &NodeSettings) -> bool {
    *record.id.node() == here.key
        || tags::value(&group.tags, NODE).is_some_and(|name| name == here.name)
}

/// Returns the logical volumes of this driver that cannot be identified, since their tags were
/// changed by hand. What a growth creates for itself is not among them.
pub fn unreadable(group: &Group) -> impl Iterator<Item = &Lv> {
    let volumes = group.lvs.values().filter(|lv| lv.name.starts_with(PREFIX) && is_marked(lv));
    volumes.filter(|lv| !lv.name.contains('.') && VolumeTags::read(lv).is_none())
}

/// Returns whether a volume of this driver is in a volume group, or may be: one whose tags cannot
/// be read counts.
pub fn holds_volumes(group: &Group) -> bool {
    group.lvs.values().any(is_marked)
}

/// Returns whether a logical volume has a tag of this driver.
pub fn is_marked(lv: &Lv) -> bool {
    lv.tags.iter().any(|tag| tag.starts_with("pliant."))
}

/// The message for a logical volume of this driver whose tags do not identify it.
pub fn says_nothing(group: &str, lv: &Lv) -> String {
    format!(
        "the tags of logical volume {group}/{} do not identify it; see `lvs -o+lv_tags`, and \
         restore the tags that were changed, or rename it if it is not a volume of this driver",
        lv.name
    )
}

/// Returns the logical volumes of this driver whose live table an interrupted command may have left
/// partly changed. A thick resize snapshot is not among them: its table is not its own metadata, and the
/// repair of its origin creates it.
pub fn healable(group: &Group) -> impl Iterator<Item = &Lv> {
    let ours = group.lvs.values().filter(|lv| lv.name.starts_with(PREFIX));
    ours.filter(|lv| lv.flags.contains("VISIBLE") && !group.is_snapshot(lv))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lvm::Words;
    use crate::volume::FsKind;
    use crate::volume::RequestedSize;

    #[test]
    fn a_record_comes_back_from_its_tags() {
        let want = NewVolume {
            name: "pvc-1 with, any “name”".to_owned(),
            size: RequestedSize { at_least: Bytes::gib(3), at_most: None },
            mode: Mode::Filesystem(FsKind::Xfs),
            class: Class { wipe: Wipe::Discard, safety: Safety::Required, ..Class::default() },
            nodes: Vec::new(),
            source: None,
        };
        let record = VolumeTags::new(&NodeKey::of("alpha"), &want);
        let written = |record: &VolumeTags| Lv {
            name: record.lv_name(),
            uuid: String::new(),
            flags: Words::default(),
            tags: record.tags().into_iter().collect(),
            segments: Vec::new(),
        };
        for (wipe, safety) in Wipe::ALL.into_iter().zip(Safety::ALL) {
            let record = VolumeTags { wipe, safety, ..record.clone() };
            assert_eq!(VolumeTags::read(&written(&record)), Some(record));
        }
        let lv = written(&record);
        assert_eq!(VolumeTags::read(&lv), Some(record.clone()));

        let by_hand = |tag: &str| {
            let mut lv = lv.clone();
            lv.tags.extend([tag]);
            VolumeTags::read(&lv)
        };
        for doubt in [
            "state=shown",
            "fstype=block",
            "name=other",
            "mkfs=-F",
            "mkfs=!zz",
            "fence=",
            "fence=x:1",
            "max-size=",
            "max-size=small",
        ] {
            assert_eq!(by_hand(&format!("pliant.{doubt}")), None, "{doubt}");
        }
        // What cannot be read is not 0.
        let requested = |tag: &str| by_hand(&format!("pliant.{tag}")).map(|one| one.requested);
        assert_eq!(requested("requested-bytes=small"), Some(None));
        let wiped = |tag: &str| by_hand(&format!("pliant.{tag}")).map(|one| one.wiped);
        assert_eq!(wiped("other=1"), Some(Some(Bytes::ZERO)));
        assert_eq!(wiped("wiped-bytes=4096"), Some(Some(Bytes::new(4096))));
        for far in ["wiped-bytes=", "wiped-bytes=most", "wiped-bytes=-1", "wiped-bytes=!zz"] {
            assert_eq!(wiped(far), Some(None), "{far}");
        }
        let safety = by_hand("pliant.resize-snapshot=best-effort").map(|one| one.safety);
        assert_eq!(safety, Some(Safety::Required), "one of both may be what was wanted");

        let foreign = Lv { name: "data".to_owned(), ..lv };
        assert_eq!(
            VolumeTags::read(&foreign),
            None,
            "the tags of a renamed volume do not make it ours"
        );
    }
}
