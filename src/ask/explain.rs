//! Why a claim is as it is, and what to do about it.
//!
//! `gather` asks the API server, `judge` decides, [`print()`] tells: only the first needs a cluster.

use std::str::FromStr;

use kube::Client;
use serde::Serialize;

use crate::ask::{AskError, kind_and_name};
use crate::cluster::{ClaimSizes, UnreadableSize};
use crate::doctor::Level;

mod bound;
mod fit;
mod gather;
mod growth;
mod kept;
mod pending;
mod print;
mod release;
mod room;

use gather::Facts;
pub use print::print;
pub use room::{NodeSays, Verdict};

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A claim, by its name.
    Claim(String),
    /// A PersistentVolume, by its name.
    Volume(String),
}

/// Reads `pvc/NAME`, `pv/NAME`, or `NAME` for a claim.
impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let write = "write pvc/NAME or pv/NAME";
        match kind_and_name(text, write)? {
            ("pvc", name) => Ok(Subject::Claim(name.to_owned())),
            ("pv", name) => Ok(Subject::Volume(name.to_owned())),
            (other, _) => Err(format!("`{other}` is not explained: {write}")),
        }
    }
}

/// How a claim or a PersistentVolume is, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What it is about: `namespace/claim`, or the name of a PersistentVolume.
    pub about: String,
    /// One word for programs.
    pub state: State,
    /// How good or bad that is.
    pub level: Level,
    /// Sentences for people, the first of which goes on after what it is about.
    pub why: String,
    /// What each node says to it, where that matters.
    pub nodes: Vec<NodeSays>,
    /// What to do; any one of them.
    pub todo: Vec<Todo>,
    /// What the caller may not read, so that something may be missing above.
    pub unseen: Vec<String>,
    /// What this version cannot decode, so that something may be missing above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Todo {
    /// What it is.
    pub what: String,
    /// What to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Todo {
    fn hint(what: impl Into<String>) -> Todo {
        Todo { what: what.into(), command: None }
    }

    fn command(what: impl Into<String>, command: impl Into<String>) -> Todo {
        Todo { what: what.into(), command: Some(command.into()) }
    }
}

/// How a claim or a PersistentVolume is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // Each is explained by its sentence.
pub enum State {
    Fine,
    BeingMade,
    BeingFilled,
    Superseded,
    Swapping,
    MakingFailed,
    WaitsForPod,
    WaitsForScheduler,
    PodHeldBack,
    PodNamesNode,
    NoNodeForPod,
    NoRoom,
    NoPool,
    PoolUnavailable,
    NoAgent,
    NoClass,
    ClassMissing,
    ClassInvalid,
    OtherDriver,
    VolumeTaken,
    Growing,
    SizeUnreadable,
    GrowthFailed,
    GrowthRefused,
    GrowthWaitsForPod,
    GrowthWaitsForKubelet,
    VolumeAiling,
    VolumeFenced,
    VolumeGone,
    VolumeUnread,
    Lost,
    BeingDeleted,
    Available,
    Kept,
    DeletionFailed,
    Unseen,
}

impl State {
    fn level(self) -> Level {
        match self {
            State::Fine
            | State::Superseded
            | State::WaitsForPod
            | State::GrowthWaitsForPod
            | State::Available => Level::Good,
            State::BeingMade
            | State::BeingFilled
            | State::Swapping
            | State::WaitsForScheduler
            | State::PodHeldBack
            | State::Growing
            | State::GrowthWaitsForKubelet
            | State::BeingDeleted
            | State::Kept
            | State::OtherDriver
            | State::Unseen => Level::Warning,
            State::MakingFailed
            | State::PodNamesNode
            | State::NoNodeForPod
            | State::NoRoom
            | State::NoPool
            | State::PoolUnavailable
            | State::NoAgent
            | State::NoClass
            | State::ClassMissing
            | State::ClassInvalid
            | State::VolumeTaken
            | State::SizeUnreadable
            | State::GrowthFailed
            | State::GrowthRefused
            | State::VolumeAiling
            | State::VolumeFenced
            | State::VolumeGone
            | State::VolumeUnread
            | State::Lost
            | State::DeletionFailed => Level::Bad,
        }
    }
}

/// Explain a claim or a PersistentVolume; `program` is how the caller calls this program.
///
/// # Errors
/// [`AskError::Refused`] if there is none of this name.
pub async fn explain(
    client: &Client,
    program: &str,
    namespace: Option<&str>,
    subject: &Subject,
) -> Result<Explanation, AskError> {
    Ok(judge(&gather::gather(client, program, namespace, subject).await?))
}

/// Decide: pure.
fn judge(facts: &Facts) -> Explanation {
    let Some(claim) = &facts.claim else { return release::released(facts) };
    if claim.metadata.deletion_timestamp.is_some() {
        return release::being_deleted(facts);
    }
    if let Err(why) = ClaimSizes::of(claim) {
        return unreadable(facts, &why);
    }
    if let Some(told) = kept::on_its_way(facts, claim) {
        return told;
    }
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let told = match phase {
        Some("Bound") => bound::bound(facts),
        Some("Lost") => bound::lost(facts),
        _ => pending::pending(facts),
    };
    kept::by_whom(facts, claim, told)
}

/// That a size of the claim cannot be read: nothing is concluded from it.
fn unreadable(facts: &Facts, why: &UnreadableSize) -> Explanation {
    let place = facts.place();
    let todo = Todo::command(
        "write a size that a volume can have, such as 10Gi; a claim without a volume has to be made again",
        format!("kubectl edit pvc {place}"),
    );
    facts.explain(State::SizeUnreadable, format!("cannot be judged: {why}."), vec![todo])
}

#[cfg(test)]
mod tests;
