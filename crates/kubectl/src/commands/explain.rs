//! Why a claim is as it is, and what to do about it.
//!
//! `gather` reads from the API server, `judge` decides, [`print()`] formats: only the first needs a cluster.

use std::collections::BTreeSet;
use std::str::FromStr;

use kube::Client;
use serde::Serialize;

use crate::cluster::{ClaimSizes, UnreadableSize};
use crate::commands::address::{AddressKind, Whose, address};
use crate::commands::{AskError, checkup};
use crate::doctor::Finding;

mod bound;
mod capacity;
mod explanation;
mod fit;
mod gather;
mod growth;
mod managed;
mod pending;
mod place;
mod print;
mod release;
mod verdict;
mod workload;

pub use explanation::{ClaimOrVolume, ClaimState, Explanation, Remediation};
use gather::ClaimFacts;
pub use print::{print, print_answer};
pub use verdict::{NodeSays, NodeVerdict};

/// Object that can be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// One claim or PersistentVolume.
    Volume(ClaimOrVolume),
    /// The claims of a workload or of a PvcAutoscaler.
    Claims(Whose),
    /// The claims of a pod, by its name.
    Pod(String),
    /// A node, by its name.
    Node(String),
    /// A pool, by its name.
    Pool(String),
}

/// Reads `pvc/NAME` or `NAME` for a claim, `pv/NAME`, `pod/NAME`, `sts/NAME`, `deploy/NAME`, `pvcas/NAME`,
/// `node/NAME` or `pool/NAME`.
impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = [
            AddressKind::Claim,
            AddressKind::Volume,
            AddressKind::Pod,
            AddressKind::StatefulSet,
            AddressKind::Deployment,
            AddressKind::Autoscaler,
            AddressKind::Node,
            AddressKind::Pool,
        ];
        let (kind, name) = address(text, &kinds)?;
        Ok(match kind {
            AddressKind::Claim => Subject::Volume(ClaimOrVolume::Claim(name)),
            AddressKind::Volume => Subject::Volume(ClaimOrVolume::Volume(name)),
            AddressKind::Pod => Subject::Pod(name),
            AddressKind::StatefulSet => Subject::Claims(Whose::StatefulSet(name)),
            AddressKind::Deployment => Subject::Claims(Whose::Deployment(name)),
            AddressKind::Autoscaler => Subject::Claims(Whose::Autoscaler(name)),
            AddressKind::Node => Subject::Node(name),
            AddressKind::Pool => Subject::Pool(name),
        })
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
            let claims = workload::claims_of(client, namespace, whose).await?;
            explain_each(client, program, namespace, &claims).await?
        }
        Subject::Pod(name) => {
            let claims = workload::claims_of_pod(client, namespace, name).await?;
            explain_each(client, program, namespace, &claims).await?
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

async fn explain_each(
    client: &Client,
    program: &str,
    namespace: Option<&str>,
    claims: &BTreeSet<String>,
) -> Result<Answer, AskError> {
    let namespace = namespace.unwrap_or(client.default_namespace());
    let mut gatherer = gather::Gatherer::new(client, program);
    let mut each = Vec::new();
    for claim in claims {
        each.push(judge(Box::pin(gatherer.read_claim(namespace, claim)).await?));
    }
    Ok(Answer::Each(each))
}

/// Explains a claim or a PersistentVolume; `program` is the name by which the caller runs this program.
///
/// # Errors
/// [`AskError::Refused`] if there is none of this name.
pub async fn explain(
    client: &Client,
    program: &str,
    namespace: Option<&str>,
    about: &ClaimOrVolume,
) -> Result<Explanation, AskError> {
    Ok(judge(&gather::gather(client, program, namespace, about).await?))
}

/// Decide: pure.
fn judge(facts: &ClaimFacts) -> Explanation {
    let Some(claim) = &facts.claim else { return release::released(facts) };
    if claim.metadata.deletion_timestamp.is_some() {
        return release::being_deleted(facts);
    }
    if let Err(why) = ClaimSizes::of(claim) {
        return unreadable(facts, &why);
    }
    if let Some(told) = managed::on_its_way(facts, claim) {
        return told;
    }
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let told = match phase {
        Some("Bound") => bound::bound(facts),
        Some("Lost") => bound::lost(facts),
        _ => pending::pending(facts),
    };
    managed::by_whom(facts, claim, told)
}

/// Explains that a size of the claim is invalid; nothing is concluded from it.
fn unreadable(facts: &ClaimFacts, why: &UnreadableSize) -> Explanation {
    let place = facts.place();
    let todo = Remediation::command(
        "write a size that a volume can have, such as 10Gi; a claim without a volume has to be made again",
        format!("kubectl edit pvc {place}"),
    );
    facts.explain(ClaimState::InvalidSize, format!("cannot be judged: {why}."), vec![todo])
}

#[cfg(test)]
mod tests;
