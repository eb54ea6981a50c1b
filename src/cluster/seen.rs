//! What is known of a volume of this driver: what its node tells of it, and has answered when it was asked
//! something. Pure.

use std::fmt;

use k8s_openapi::jiff::Timestamp;

use crate::api::VolumeOnNode;
use crate::bytes::Bytes;
use crate::volume::{Fence, Mode, Reason, VolumeId};

/// A volume of this driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSeen {
    /// Its id.
    pub id: VolumeId,
    /// What workloads see of it, as its node tells; `None` if that tells of no such volume.
    pub mode: Option<Mode>,
    /// Whether its node keeps it from growing, because it was shrunk, or is about to be.
    pub is_limited: bool,
    /// Who may use it, as its node told last; `None` if that tells of no such volume.
    pub fence: Option<Fence>,
    /// What its node was asked last.
    pub asked: Option<Asked>,
}

/// What a node is asked to do to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To tell it who may use it.
    Fence(Fence),
    /// To shrink it, and to keep it from growing.
    Shrink {
        /// The size that it is to have.
        to: Bytes,
        /// When the shrink began: what was answered to one that began at another time does not count.
        begun: Timestamp,
    },
    /// To let it grow again.
    Release,
    /// Only to look at it: who does is there, and tells how full its volumes are.
    Look,
}

/// What a node was asked to do to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What it was asked.
    pub wish: Wish,
    /// What it saw then, or why it was not done; `None` while it is under way.
    pub answer: Option<Result<Look, NotDone>>,
    /// Whether that is so old that it may be different by now.
    pub is_old: bool,
    /// Whether the answer is of the last minute.
    pub is_recent: bool,
}

/// Why a node has not done what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDone {
    /// In one word.
    pub reason: Reason,
    /// In a sentence.
    pub why: String,
}

/// What a node saw of a volume. One that is not there is used by nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The node.
    pub node: String,
    /// The fence that the look came after.
    pub fence: Fence,
    /// How often its device was open, by whomever.
    pub open_count: u32,
}

impl VolumeSeen {
    /// What is known of a volume by what its node tells of it and was asked.
    pub fn of(id: VolumeId, told: Option<&VolumeOnNode>, asked: Option<Asked>) -> VolumeSeen {
        let fence = told.map(|told| told.fence.as_ref().map(Fence::from).unwrap_or_default());
        let is_limited = told.is_some_and(|told| told.max_size.is_some());
        let mode = told.and_then(|told| told.format().parse().ok());
        VolumeSeen { id, mode, is_limited, fence, asked }
    }

    /// Whether its node has it so.
    pub fn is(&self, wanted: &Fence) -> bool {
        self.fence.as_ref() == Some(wanted) || self.look_after(wanted).is_some()
    }

    /// Whether a fence that it was to get can still become its own: nothing is known that came after.
    pub fn takes(&self, fence: &Fence) -> bool {
        self.fence.is_none_or(|now| fence.replaces(&now))
    }

    /// The number of its next fence, which is higher than that of what its node tells, and than `before`.
    pub fn next_generation(&self, before: i64) -> i64 {
        before.max(self.fence.map_or(0, |fence| fence.generation)) + 1
    }

    /// What its node saw when nobody could begin to use it any more whom this fence keeps out.
    pub fn look_after(&self, wanted: &Fence) -> Option<&Look> {
        let look = self.asked.as_ref()?.answer.as_ref()?.as_ref().ok()?;
        (look.fence == *wanted).then_some(look)
    }

    /// What its node has answered to a wish.
    pub fn answer_to(&self, wish: &Wish) -> Option<Result<&Look, &NotDone>> {
        let asked = self.asked.as_ref().filter(|asked| asked.wish == *wish)?;
        Some(asked.answer.as_ref()?.as_ref())
    }

    /// What its node has answered to a wish within the last minute.
    pub fn recent_answer_to(&self, wish: &Wish) -> Option<Result<&Look, &NotDone>> {
        self.asked.as_ref().filter(|asked| asked.is_recent)?;
        self.answer_to(wish)
    }

    /// Why its node has not told it what it is.
    pub fn failure_of(&self, wanted: &Fence) -> Option<&String> {
        Some(&self.answer_to(&Wish::Fence(*wanted))?.err()?.why)
    }

    /// Whether its node is to be asked, for the first time or again.
    pub fn is_to_be_asked(&self, wish: &Wish) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.wish != *wish || asked.is_old)
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::Fence(fence) => fence.fmt(f),
            Wish::Shrink { to, begun } => write!(f, "shrink:{to}:{begun}"),
            Wish::Release => f.write_str("release"),
            Wish::Look => f.write_str("look"),
        }
    }
}
