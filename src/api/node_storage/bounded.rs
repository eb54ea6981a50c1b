//! A record that the API server takes.

use crate::api::VolumeOnNode;
use crate::api::status_bounds::{LONGEST_LINE, cut_at};

use super::{
    LONGEST_SENTENCE, LONGEST_VERSION, MOST_DISKS, MOST_GROUPS, MOST_LINES, MOST_USAGES,
    MOST_VOLUMES, NodeStorageStatus,
};

impl NodeStorageStatus {
    /// Cut what is longer than the API server takes: a record that it refuses tells nothing at all.
    ///
    /// That volumes are left out is told as what could not be read.
    pub fn bounded(mut self) -> Self {
        if self.volumes.len() > MOST_VOLUMES {
            let count = self.volumes.len();
            let words =
                format!("of {count} volumes only {MOST_VOLUMES} are listed, which is the most");
            self.unread.get_or_insert(words);
        }
        self.volumes.truncate(MOST_VOLUMES);
        self.work.truncate(MOST_VOLUMES);
        self.usage.truncate(MOST_USAGES);
        self.pools.truncate(MOST_GROUPS);
        self.groups.truncate(MOST_GROUPS);
        self.disks.truncate(MOST_DISKS);
        for lines in self.pools.iter_mut().flat_map(|pool| [&mut pool.plan, &mut pool.refused]) {
            lines.truncate(MOST_LINES);
            lines.iter_mut().for_each(cut);
        }
        let of_pools = self.pools.iter_mut().filter_map(|pool| pool.message.as_mut());
        let of_groups = self.groups.iter_mut().filter_map(|group| group.message.as_mut());
        let of_disks = self.disks.iter_mut().filter_map(|disk| disk.message.as_mut());
        of_pools.chain(of_groups).chain(of_disks).for_each(cut);
        self.volumes.iter_mut().for_each(VolumeOnNode::bound);
        self.work.iter_mut().for_each(|work| cut_at(&mut work.progress, LONGEST_LINE));
        self.disks.iter_mut().for_each(|disk| cut_at(&mut disk.device, LONGEST_PATH));
        self.unread.iter_mut().for_each(cut);
        let versions = self.lvm_version.iter_mut().chain(&mut self.kernel_version);
        versions.for_each(|version| cut_at(version, LONGEST_VERSION));
        self
    }
}

/// The longest path of a disk, in characters.
const LONGEST_PATH: usize = 4096;

/// Leave as many characters of a sentence as a record takes.
fn cut(sentence: &mut String) {
    cut_at(sentence, LONGEST_SENTENCE);
}
