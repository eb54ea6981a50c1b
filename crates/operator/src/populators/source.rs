//! Differences between the kinds of objects that populate claims.

use std::collections::BTreeSet;
use std::fmt::Debug;

use async_trait::async_trait;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Volume, VolumeDevice, VolumeMount};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{PopulatorPod, PopulatorStatus};
use crate::populators::PopulatorReason;

/// Kind of objects that populate claims.
#[async_trait]
pub trait PopulationSource:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// True if each attempt needs an empty volume; otherwise it continues the previous one.
    const ANEW: bool;

    /// True if a pod may have to send it to the node of the volume.
    const IS_SENT: bool = false;

    /// Returns true if the pod must be in the namespace of the claim, for example because it mounts an
    /// object there.
    fn is_near(&self) -> bool;

    /// Returns true if the population starts before a pod uses the claim, if the source has one
    /// node only.
    fn starts_early(&self) -> bool {
        false
    }

    /// Returns the population status of its claims.
    fn status(&self) -> Option<&PopulatorStatus>;

    /// Observes the source of this claim.
    ///
    /// # Errors
    /// An error of the API server; a missing object is not an error.
    async fn look(
        &self,
        client: &Client,
        claim: &PersistentVolumeClaim,
    ) -> Result<SourceState, kube::Error>;
}

/// State of a source.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceState {
    /// The claim can be populated like this.
    Ready(Box<Fill>),
    /// Not now.
    Waits(PopulatorReason, String),
    /// Not this claim from this source.
    Never(PopulatorReason, String),
}

/// Requirements of a populator pod. The volume to populate is at `/target`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fill {
    /// Arguments of `pliant`.
    pub args: Vec<String>,
    /// Additional volumes.
    pub volumes: Vec<Volume>,
    /// Mount paths of these.
    pub mounts: Vec<VolumeMount>,
    /// Device paths of raw block volumes.
    pub devices: Vec<VolumeDevice>,
    /// The nodes on which it can run; `None` is every node.
    pub nodes: Option<BTreeSet<String>>,
    /// Transfer to another node than these, if possible.
    pub far: Option<Far>,
    /// True if it downloads from an address that the owner of the source has named.
    pub fetches: bool,
    /// True if a pod may write to what it reads.
    pub is_live: bool,
    /// What its pod waits for; the volume is created meanwhile.
    pub held: Option<(PopulatorReason, String)>,
    /// What the final copy waits for; until then there is only a pre-copy.
    pub ahead_of: Option<(PopulatorReason, String)>,
    /// What it will be after the wait, if that is to be probed before.
    pub rehearsal: Option<Box<Fill>>,
    /// Additional fields of its pods.
    pub pod: PopulatorPod,
}

/// Transfer from another node: a sender there mounts the source in place of the populator pod.
/// Address and keys are added to the arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Far {
    /// Arguments of the sender; it has the volumes of the [`Fill`].
    pub send: Vec<String>,
    /// Arguments of the populator; it has none of them.
    pub receive: Vec<String>,
}
