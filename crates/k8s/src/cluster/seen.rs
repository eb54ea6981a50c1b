//! Known state of a volume of this driver: the report of its node, and its answers to requests. Pure.

use std::fmt;

use k8s_openapi::jiff::Timestamp;

use crate::api::VolumeOnNode;
use crate::bytes::Bytes;
use crate::volume::{Fence, Mode, Reason, VolumeId};

/// A volume of this driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSeen {
    /// Volume id.
    pub id: VolumeId,
    /// Volume mode and file system that its node reports; `None` if it reports no such volume.
    pub mode: Option<Mode>,
    /// True if its node limits its size, because it was shrunk, or is about to be.
    pub is_limited: bool,
    /// Fence that its node reported last; `None` if it reports no such volume.
    pub fence: Option<Fence>,
    /// Last request to its node.
    pub asked: Option<OperationRequest>,
}

/// Operation that a node is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeOperation {
    /// Set the fence.
    Fence(Fence),
    /// Shrink the volume, and limit its size.
    Shrink {
        /// The size that it is to have.
        to: Bytes,
        /// Start of the shrink: answers to one with another start do not count.
        begun: Timestamp,
    },
    /// To let it grow again.
    Release,
    /// Only inspect it: this shows that the node plugin responds, and updates the usage.
    Look,
}

/// Request to a node about a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRequest {
    /// Requested operation.
    pub wish: NodeOperation,
    /// Observation of the volume, or the error; `None` while the request is running.
    pub answer: Option<Result<ObservedVolume, NotDone>>,
    /// True if the answer is so old that the state may differ.
    pub is_old: bool,
    /// True if the answer is from the last minute.
    pub is_recent: bool,
}

/// Reason why a node has not completed a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDone {
    /// Reason, in one word.
    pub reason: Reason,
    /// Reason, in a sentence.
    pub why: String,
}

/// Observation of a volume by its node. A missing volume is unused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedVolume {
    /// The node.
    pub node: String,
    /// The fence that the look came after.
    pub fence: Fence,
    /// Number of times that its device was open, by any process.
    pub open_count: u32,
}

impl VolumeSeen {
    /// Combines the report of a node and the last request.
    pub fn of(
        id: VolumeId,
        told: Option<&VolumeOnNode>,
        asked: Option<OperationRequest>,
    ) -> VolumeSeen {
        let fence = told.map(|told| told.fence.as_ref().map(Fence::from).unwrap_or_default());
        let is_limited = told.is_some_and(|told| told.max_size.is_some());
        let mode = told.and_then(|told| told.format().parse().ok());
        VolumeSeen { id, mode, is_limited, fence, asked }
    }

    /// Returns true if its node reports this fence.
    pub fn is(&self, wanted: &Fence) -> bool {
        self.fence.as_ref() == Some(wanted) || self.look_after(wanted).is_some()
    }

    /// Returns true if a requested fence can still be set: no later one is known.
    pub fn takes(&self, fence: &Fence) -> bool {
        self.fence.is_none_or(|now| fence.replaces(&now))
    }

    /// Returns the number of its next fence, which is higher than the reported one and `before`.
    pub fn next_generation(&self, before: i64) -> i64 {
        before.max(self.fence.map_or(0, |fence| fence.generation)) + 1
    }

    /// Returns the observation from after the fence excluded all new users.
    pub fn look_after(&self, wanted: &Fence) -> Option<&ObservedVolume> {
        let look = self.asked.as_ref()?.answer.as_ref()?.as_ref().ok()?;
        (look.fence == *wanted).then_some(look)
    }

    /// Returns the answer to an operation.
    pub fn answer_to(&self, wish: &NodeOperation) -> Option<Result<&ObservedVolume, &NotDone>> {
        let asked = self.asked.as_ref().filter(|asked| asked.wish == *wish)?;
        Some(asked.answer.as_ref()?.as_ref())
    }

    /// Returns the answer to an operation within the last minute.
    pub fn recent_answer_to(
        &self,
        wish: &NodeOperation,
    ) -> Option<Result<&ObservedVolume, &NotDone>> {
        self.asked.as_ref().filter(|asked| asked.is_recent)?;
        self.answer_to(wish)
    }

    /// Returns why its node has not set the fence.
    pub fn failure_of(&self, wanted: &Fence) -> Option<&String> {
        Some(&self.answer_to(&NodeOperation::Fence(*wanted))?.err()?.why)
    }

    /// Returns true if its node is to be asked, for the first time or again.
    pub fn is_to_be_asked(&self, wish: &NodeOperation) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.wish != *wish || asked.is_old)
    }
}

impl fmt::Display for NodeOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeOperation::Fence(fence) => fence.fmt(f),
            NodeOperation::Shrink { to, begun } => write!(f, "shrink:{to}:{begun}"),
            NodeOperation::Release => f.write_str("release"),
            NodeOperation::Look => f.write_str("look"),
        }
    }
}
