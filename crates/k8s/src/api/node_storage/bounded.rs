//! A record that the API server takes.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::api::VolumeOnNode;
use crate::api::longest::{LONGEST_LINE, LONGEST_SENTENCE, cut_at};

use super::{
    DiskState, Health, LONGEST_VERSION, MOST_CONDITIONS, MOST_DISKS, MOST_GROUPS, MOST_LINES,
    MOST_SNAPSHOTS, MOST_UNLISTED, MOST_USAGES, MOST_VOLUMES, NodeStorageStatus,
};

/// How many bytes of JSON a record may have without its conditions, which have some thousand. Etcd takes no object of
/// more than 1.5 MiB.
const MOST_BYTES: usize = 1152 << 10;

/// How many of them the pools may have.
const OF_POOLS: usize = 128 << 10;
/// As [`OF_POOLS`], of the groups.
const OF_GROUPS: usize = 96 << 10;
/// As [`OF_POOLS`], of the disks.
const OF_DISKS: usize = 192 << 10;
/// As [`OF_POOLS`], of the operations.
const OF_OPERATIONS: usize = 64 << 10;
/// As [`OF_POOLS`], of how full the volumes are.
const OF_USAGES: usize = 192 << 10;
/// As [`OF_POOLS`], of the snapshots.
const OF_SNAPSHOTS: usize = 320 << 10;
/// Left for what is said of volumes that are left out.
const OF_WORDS: usize = 8 << 10;

/// How many letters of the key of a volume name one that is left out: enough that no two begin alike.
const UNLISTED: usize = 12;
/// How many bytes one has in the list, with its quotes and a comma.
const OF_UNLISTED: usize = UNLISTED + 3;

/// The longest sentence of what has many, in characters, where there are too many bytes.
const SHORT: usize = 128;

impl NodeStorageStatus {
    /// How many volumes the node has and the record does not list, because it would be too large with them: nothing
    /// is known of them, and least that they are not there.
    pub fn left_out(&self) -> usize {
        usize::try_from(self.volume_count).unwrap_or_default().saturating_sub(self.volumes.len())
    }

    /// Whether the node has snapshots that the record does not list, because it would be too large with them.
    pub fn leaves_out_snapshots(&self) -> bool {
        usize::try_from(self.snapshot_count).unwrap_or_default() > self.snapshots.len()
    }

    /// Whether no volume is left out that ails: those are left out last.
    pub fn lists_all_that_ail(&self) -> bool {
        self.left_out() == 0 || self.volumes.iter().any(|volume| !matters(volume))
    }

    /// Whether the record says that the node has the volume of this key, and does not list it.
    pub fn names_unlisted(&self, key: &str) -> bool {
        let named = key.get(..UNLISTED);
        named.is_some_and(|named| self.unlisted_volumes.iter().any(|one| one == named))
    }

    /// Whether the node has volumes that the record neither lists nor names: any may be one of them.
    pub fn leaves_unnamed(&self) -> bool {
        self.left_out() > self.unlisted_volumes.len()
    }

    /// Cut what is longer than the API server takes: a record that it refuses tells nothing at all.
    ///
    /// Returns besides why the list of volumes may lack some: after `gap`, why it may already, it says how many are
    /// left out. `unlistedVolumes` says which, so that no reader takes one of them for gone. Unhealthy volumes, and those of
    /// a swap or a shrink, are left out last.
    pub fn bounded(mut self, gap: Option<String>) -> (Self, Option<String>) {
        let handles: Vec<String> =
            self.volumes.iter().map(|one| one.volume_handle.clone()).collect();
        let count = handles.len();
        let names = |left_out: usize| left_out.min(MOST_UNLISTED) * OF_UNLISTED;
        self.unlisted_volumes.clear();
        self.cut();
        if bytes_of(&self) + names(count - self.volumes.len()) > MOST_BYTES {
            self.fit(names(count));
        }
        let listed = self.volumes.len();
        let mut gap = gap;
        if listed < count {
            self.unlisted_volumes = self.names_of_others(&handles);
            let words = format!(
                "of {count} volumes {} are not listed: the object would be larger than the API \
                 server takes",
                count - listed
            );
            gap = Some(gap.map_or(words.clone(), |why| format!("{words}; {why}")));
        }
        gap.iter_mut().for_each(cut);
        (self, gap)
    }

    /// The names of those of some volumes, in their order, that are not listed.
    fn names_of_others(&self, handles: &[String]) -> Vec<String> {
        let listed: HashSet<&str> =
            self.volumes.iter().map(|one| one.volume_handle.as_str()).collect();
        let others = handles.iter().filter(|handle| !listed.contains(handle.as_str()));
        let names = others.filter_map(|handle| handle.split_once('-')?.1.get(..UNLISTED));
        names.take(MOST_UNLISTED).map(str::to_owned).collect()
    }

    /// Leave out what makes it larger than [`MOST_BYTES`], with so many bytes left for names.
    fn fit(&mut self, of_names: usize) {
        keep_within(
            &mut self.pools,
            OF_POOLS,
            |_| true,
            |pool| {
                messages(&mut pool.conditions).for_each(shorten);
                for lines in [&mut pool.planned_actions, &mut pool.rejected_disks] {
                    lines.truncate(1);
                    lines.iter_mut().for_each(shorten);
                }
            },
        );
        let is_unwell = |health: Health| health != Health::Healthy;
        keep_within(
            &mut self.volume_groups,
            OF_GROUPS,
            |group| is_unwell(group.health),
            |group| {
                messages(&mut group.conditions).for_each(shorten);
                group.thin_pool = None; // What is wrong with it is in the condition.
            },
        );
        keep_within(
            &mut self.disks,
            OF_DISKS,
            |disk| disk.state != DiskState::Used,
            |disk| {
                disk.message.iter_mut().for_each(shorten);
            },
        );
        keep_within(&mut self.operations, OF_OPERATIONS, |_| true, |_| {});
        keep_within(&mut self.usage, OF_USAGES, |_| true, |_| {});
        keep_within(&mut self.snapshots, OF_SNAPSHOTS, |_| true, |snapshot| snapshot.name.clear());
        let mut volumes = std::mem::take(&mut self.volumes);
        let left = MOST_BYTES.saturating_sub(bytes_of(self) + OF_WORDS + of_names);
        keep_within(&mut volumes, left, matters, |volume| {
            volume.health_statuses.iter_mut().for_each(|one| shorten(&mut one.message));
        });
        self.volumes = volumes;
    }

    fn cut(&mut self) {
        let mut count = 0;
        let mut listed: Vec<bool> = self.volumes.iter().map(matters).collect();
        for is_listed in [true, false] {
            for one in listed.iter_mut().filter(|one| **one == is_listed) {
                *one = count < MOST_VOLUMES;
                count += 1;
            }
        }
        retain(&mut self.volumes, listed);
        self.operations.truncate(MOST_VOLUMES);
        self.snapshots.truncate(MOST_SNAPSHOTS);
        self.usage.truncate(MOST_USAGES);
        self.pools.truncate(MOST_GROUPS);
        self.volume_groups.truncate(MOST_GROUPS);
        self.disks.truncate(MOST_DISKS);
        for lines in self
            .pools
            .iter_mut()
            .flat_map(|pool| [&mut pool.planned_actions, &mut pool.rejected_disks])
        {
            lines.truncate(MOST_LINES);
            lines.iter_mut().for_each(cut);
        }
        let of_pools = self.pools.iter_mut().map(|pool| &mut pool.conditions);
        let of_groups = self.volume_groups.iter_mut().map(|group| &mut group.conditions);
        for conditions in of_pools.chain(of_groups) {
            conditions.truncate(MOST_CONDITIONS);
            messages(conditions).for_each(cut);
        }
        let of_disks = self.disks.iter_mut().filter_map(|disk| disk.message.as_mut());
        of_disks.for_each(cut);
        self.volumes.iter_mut().for_each(VolumeOnNode::bound);
        self.operations.iter_mut().for_each(|one| cut_at(&mut one.progress, LONGEST_LINE));
        self.disks.iter_mut().for_each(|disk| cut_at(&mut disk.device, LONGEST_PATH));
        let versions = self.lvm_version.iter_mut().chain(&mut self.kernel_version);
        versions.for_each(|version| cut_at(version, LONGEST_VERSION));
    }
}

/// The messages of these conditions.
fn messages(conditions: &mut [Condition]) -> impl Iterator<Item = &mut String> {
    conditions.iter_mut().map(|condition| &mut condition.message)
}

/// Whether others wait for what a volume's node tells of it, or an administrator has to see to it.
fn matters(volume: &VolumeOnNode) -> bool {
    volume.fence.is_some() || volume.max_size.is_some() || !volume.health_statuses.is_empty()
}

/// Leave of a list what fits in so many bytes: first what `matters`, and the rest only if all of that fits. Before
/// something is left out, all are shortened.
fn keep_within<T: Serialize>(
    list: &mut Vec<T>,
    most: usize,
    matters: impl Fn(&T) -> bool,
    shorten: impl Fn(&mut T),
) {
    if bytes_of(list) > most {
        list.iter_mut().for_each(shorten);
    }
    let mut left = most;
    let mut kept = vec![false; list.len()];
    let mut lacks_some = false;
    for is_first in [true, false] {
        if lacks_some {
            break;
        }
        for (one, is_kept) in list.iter().zip(&mut kept).filter(|(one, _)| matters(one) == is_first)
        {
            if let Some(rest) = left.checked_sub(bytes_of(one)) {
                (left, *is_kept) = (rest, true);
            } else {
                lacks_some = true;
            }
        }
    }
    retain(list, kept);
}

/// Leave of a list those that are kept.
fn retain<T>(list: &mut Vec<T>, kept: Vec<bool>) {
    let mut kept = kept.into_iter();
    list.retain(|_| kept.next().unwrap_or_default());
}

/// How many bytes something has as JSON, in a list.
fn bytes_of(it: &impl Serialize) -> usize {
    serde_json::to_vec(it).map_or(usize::MAX, |json| json.len().saturating_add(1))
}

fn shorten(sentence: &mut String) {
    cut_at(sentence, SHORT);
}

/// The longest path of a disk, in characters.
const LONGEST_PATH: usize = 4096;

/// Leave as many characters of a sentence as a record takes.
fn cut(sentence: &mut String) {
    cut_at(sentence, LONGEST_SENTENCE);
}
