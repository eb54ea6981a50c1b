//! Statuses that the API server takes: one that it refuses stops all that is done for its object.

use super::pool::{MOST_LINES, MOST_NODES};
use super::{
    Filling, InPlace, OrdinalStatus, PvcAutoscalerStatus, StoragePoolStatus, Swap, VolumeOnNode,
    VolumeRequestStatus,
};
use crate::api::longest::{LONGEST_LINE, LONGEST_SENTENCE, cut_at};

/// The longest sentence of why a piece of work has failed, in characters.
const LONGEST_FAILURE: usize = 4096;

/// The longest digest of what was written.
const LONGEST_DIGEST: usize = 128;

/// The longest word for machines, in characters.
const LONGEST_WORD: usize = 64;

/// The most things that are wrong with one volume that are listed.
const MOST_AILMENTS: usize = 16;

/// How many bytes the plans and refusals of all nodes may take in the status of a pool: etcd takes no object of more
/// than 1.5 MiB, and each node has a place in it.
const MOST_OF_NODES: usize = 256 << 10;

impl PvcAutoscalerStatus {
    /// Cut each text for people that is longer than the API server takes. Names are never longer.
    pub fn bound(&mut self) {
        cut(&mut self.progress, LONGEST_LINE);
        for sentence in [&mut self.workload, &mut self.planned_action, &mut self.message] {
            cut(sentence, LONGEST_SENTENCE);
        }
        self.ordinals.iter_mut().for_each(OrdinalStatus::bound);
    }
}

impl OrdinalStatus {
    fn bound(&mut self) {
        cut(&mut self.last_decision, LONGEST_SENTENCE);
        if let Some(Swap { summary, progress, message, pre_copy_skipped_reason, .. }) =
            &mut self.swap
        {
            cut([summary], LONGEST_LINE);
            cut(progress, LONGEST_LINE);
            cut(message, LONGEST_SENTENCE);
            cut(pre_copy_skipped_reason, LONGEST_SENTENCE);
        }
        if let Some(InPlace { summary, message, .. }) = &mut self.shrink {
            cut([summary], LONGEST_LINE);
            cut(message, LONGEST_SENTENCE);
        }
    }
}

impl VolumeRequestStatus {
    /// As [`PvcAutoscalerStatus::bound`].
    pub fn bound(&mut self) {
        cut(&mut self.progress, LONGEST_LINE);
        if let Some(failure) = &mut self.error {
            cut([&mut failure.reason], LONGEST_WORD);
            cut([&mut failure.message], LONGEST_FAILURE);
        }
        let inspection = self.inspection.as_deref_mut();
        let volume = inspection.and_then(|inspection| inspection.volume.as_mut());
        volume.into_iter().for_each(VolumeOnNode::bound);
    }
}

impl VolumeOnNode {
    /// As [`PvcAutoscalerStatus::bound`].
    pub fn bound(&mut self) {
        self.health_statuses.truncate(MOST_AILMENTS);
        cut(self.health_statuses.iter_mut().map(|one| &mut one.message), LONGEST_SENTENCE);
    }
}

impl Filling {
    /// As [`PvcAutoscalerStatus::bound`].
    pub fn bound(&mut self) {
        cut(&mut self.reason, LONGEST_WORD);
        cut(&mut self.message, LONGEST_SENTENCE);
        cut(&mut self.progress, LONGEST_LINE);
        cut(&mut self.checksum, LONGEST_DIGEST);
    }
}

impl StoragePoolStatus {
    /// Cut what all nodes say of a pool to what one object may have. No node is left out of as many as Kubernetes
    /// supports: a node plugin makes of a pool what is for the nodes that are listed. The records of the nodes have all of it.
    pub fn bound(&mut self) {
        self.nodes.truncate(MOST_NODES);
        let mut left = MOST_OF_NODES;
        for node in &mut self.nodes {
            for lines in [&mut node.rejected_disks, &mut node.planned_actions] {
                lines.truncate(MOST_LINES);
                cut(lines.iter_mut(), LONGEST_SENTENCE);
                lines.retain(|line| {
                    let rest = left.checked_sub(line.len());
                    left = rest.unwrap_or(0); // What comes after it is left out, too.
                    rest.is_some()
                });
            }
        }
    }
}

fn cut<'a>(texts: impl IntoIterator<Item = &'a mut String>, most: usize) {
    texts.into_iter().for_each(|text| cut_at(text, most));
}
