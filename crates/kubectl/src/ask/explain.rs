//! Why a claim is as it is, and what to do about it.
//!
//! `gather` reads from the API server, `judge` decides, [`print()`] formats: only the first needs a cluster.

use std::str::FromStr;

use kube::Client;
use serde::Serialize;

use crate::ask::address::{Kind, Whose, address};
use crate::ask::{AskError, checkup};
use crate::cluster::{ClaimSizes, UnreadableSize};
use crate::doctor::{Finding, Severity};

mod bound;
mod fit;
mod gather;
mod growth;
mod kept;
mod pending;
mod print;
mod release;
mod room;
mod workload;

use gather::Facts;
pub use print::{print, print_answer};
pub use room::{NodeSays, Verdict};

/// Object that can be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// One claim or PersistentVolume.
    Volume(About),
    /// The claims of a workload or of a PvcAutoscaler.
    Claims(Whose),
    /// A node, by its name.
    Node(String),
    /// A pool, by its name.
    Pool(String),
}

/// A claim or a PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A claim, by its name.
    Claim(String),
    /// A PersistentVolume, by its name.
    Volume(String),
}

/// Reads `pvc/NAME` or `NAME` for a claim, `pv/NAME`, `sts/NAME`, `deploy/NAME`, `pvcas/NAME`, `node/NAME` or
/// `pool/NAME`.
impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = [
            Kind::Claim,
            Kind::Volume,
            Kind::StatefulSet,
            Kind::Deployment,
            Kind::Autoscaler,
            Kind::Node,
            Kind::Pool,
        ];
        let (kind, name) = address(text, &kinds)?;
        Ok(match kind {
            Kind::Claim => Subject::Volume(About::Claim(name)),
            Kind::Volume => Subject::Volume(About::Volume(name)),
            Kind::StatefulSet => Subject::Claims(Whose::StatefulSet(name)),
            Kind::Deployment => Subject::Claims(Whose::Deployment(name)),
            Kind::Autoscaler => Subject::Claims(Whose::Autoscaler(name)),
            Kind::Node => Subject::Node(name),
            Kind::Pool => Subject::Pool(name),
        })
    }
}

/// Reads `pvc/NAME` or `NAME` for a claim, or `pv/NAME`.
impl FromStr for About {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = address(text, &[Kind::Claim, Kind::Volume])?;
        Ok(if kind == Kind::Volume { About::Volume(name) } else { About::Claim(name) })
    }
}

/// The explanation of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Explanation of a claim or a PersistentVolume.
    One(Box<Explanation>),
    /// Explanation of each claim of a workload.
    Each(Vec<Explanation>),
    /// Findings about a node or a pool.
    Findings(Vec<Finding>),
}

/// State of a claim or a PersistentVolume, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Explained object: `namespace/claim`, or the name of a PersistentVolume.
    #[serde(rename = "subject")]
    pub about: String,
    /// State, for programs.
    pub state: State,
    /// Severity of the state.
    pub severity: Severity,
    /// Sentences for people, the first of which continues the subject.
    #[serde(rename = "message")]
    pub why: String,
    /// Verdict of each node, if the answer depends on it.
    pub nodes: Vec<NodeSays>,
    /// Alternative actions.
    pub remediation: Vec<Remediation>,
    /// Kinds that the caller may not read, so the answer may be incomplete.
    #[serde(rename = "forbidden")]
    pub unseen: Vec<String>,
    /// Objects that this version cannot decode, so the answer may be incomplete.
    #[serde(rename = "undecodable")]
    pub unreadable: Vec<String>,
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remediation {
    /// Description of the action.
    #[serde(rename = "description")]
    pub what: String,
    /// Command to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Remediation {
    fn hint(what: impl Into<String>) -> Remediation {
        Remediation { what: what.into(), command: None }
    }

    fn command(what: impl Into<String>, command: impl Into<String>) -> Remediation {
        Remediation { what: what.into(), command: Some(command.into()) }
    }
}

/// State of a claim or a PersistentVolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // Each is explained by its sentence.
pub enum State {
    Healthy,
    Provisioning,
    Populating,
    Superseded,
    Swapping,
    ProvisioningFailed,
    WaitForFirstConsumer,
    WaitForPodScheduled,
    PodSchedulingGated,
    PodNodeNameSet,
    PodUnschedulable,
    InsufficientCapacity,
    PoolNotFound,
    PoolUnavailable,
    NodePluginUnavailable,
    StorageClassNotSet,
    StorageClassNotFound,
    StorageClassInvalid,
    OtherDriver,
    VolumeConflict,
    Expanding,
    InvalidSize,
    ExpansionRetrying,
    ExpansionFailed,
    OfflineExpansionPending,
    NodeExpansionPending,
    VolumeUnhealthy,
    VolumeFenced,
    VolumeNotFound,
    VolumeStatusUnknown,
    Lost,
    Deleting,
    Available,
    Retained,
    DeletionFailed,
    Forbidden,
}

impl State {
    fn severity(self) -> Severity {
        match self {
            State::Healthy
            | State::Superseded
            | State::WaitForFirstConsumer
            | State::OfflineExpansionPending
            | State::Available => Severity::Ok,
            State::Provisioning
            | State::Populating
            | State::Swapping
            | State::WaitForPodScheduled
            | State::PodSchedulingGated
            | State::Expanding
            | State::NodeExpansionPending
            | State::Deleting
            | State::Retained
            | State::OtherDriver
            | State::Forbidden => Severity::Warning,
            State::ProvisioningFailed
            | State::PodNodeNameSet
            | State::PodUnschedulable
            | State::InsufficientCapacity
            | State::PoolNotFound
            | State::PoolUnavailable
            | State::NodePluginUnavailable
            | State::StorageClassNotSet
            | State::StorageClassNotFound
            | State::StorageClassInvalid
            | State::VolumeConflict
            | State::InvalidSize
            | State::ExpansionRetrying
            | State::ExpansionFailed
            | State::VolumeUnhealthy
            | State::VolumeFenced
            | State::VolumeNotFound
            | State::VolumeStatusUnknown
            | State::Lost
            | State::DeletionFailed => Severity::Error,
        }
    }
}

/// Explains a subject; `program` is the name by which the caller runs this program.
///
/// # Errors
/// [`AskError::Refused`] if there is none of this name.
pub async fn answer(
    client: &Client,
    program: &str,
    namespace: Option<&str>,
    subject: &Subject,
) -> Result<Answer, AskError> {
    Ok(match subject {
        Subject::Volume(about) => {
            let told = Box::pin(explain(client, program, namespace, about)).await?;
            Answer::One(Box::new(told))
        }
        Subject::Claims(whose) => {
            let place = namespace.unwrap_or(client.default_namespace());
            let mut gatherer = gather::Gatherer::new(client, program);
            let mut each = Vec::new();
            for claim in workload::claims_of(client, namespace, whose).await? {
                each.push(judge(Box::pin(gatherer.read_claim(place, &claim)).await?));
            }
            Answer::Each(each)
        }
        Subject::Node(name) => {
            let seen = checkup::observe(client).await?;
            Answer::Findings(checkup::judge(&seen, program, Some(name))?)
        }
        Subject::Pool(name) => {
            let seen = checkup::observe(client).await?;
            Answer::Findings(checkup::judge_pool(&seen, program, name)?)
        }
    })
}

/// Explains a claim or a PersistentVolume; `program` is the name by which the caller runs this program.
///
/// # Errors
/// [`AskError::Refused`] if there is none of this name.
pub async fn explain(
    client: &Client,
    program: &str,
    namespace: Option<&str>,
    about: &About,
) -> Result<Explanation, AskError> {
    Ok(judge(&gather::gather(client, program, namespace, about).await?))
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

/// Explains that a size of the claim is invalid; nothing is concluded from it.
fn unreadable(facts: &Facts, why: &UnreadableSize) -> Explanation {
    let place = facts.place();
    let todo = Remediation::command(
        "write a size that a volume can have, such as 10Gi; a claim without a volume has to be made again",
        format!("kubectl edit pvc {place}"),
    );
    facts.explain(State::InvalidSize, format!("cannot be judged: {why}."), vec![todo])
}

#[cfg(test)]
mod tests;
