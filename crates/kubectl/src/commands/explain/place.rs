//! The volume that a claim has.

use super::gather::ClaimFacts;
use crate::api::VolumeOnNode;
use crate::bytes::Bytes;
use crate::cluster;

/// Location and status of the volume of a claim.
pub(super) struct VolumeLocation<'a> {
    pub id: &'a str,
    pub node: &'a str,
    pub volume: Option<&'a VolumeOnNode>,
}

/// The size that a claim has.
pub(super) fn capacity(facts: &ClaimFacts) -> Option<Bytes> {
    let size = cluster::capacity(facts.claim.as_ref()?).ok()?;
    Some(size.0).filter(|size| *size > Bytes::ZERO)
}
