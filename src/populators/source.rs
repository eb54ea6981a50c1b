//! What is particular of a kind of objects that claims are filled from.

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

/// A kind of objects that claims are filled from.
#[async_trait]
pub trait Source:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Whether each try needs an empty volume; without it a try goes on where the one before ended.
    const ANEW: bool;

    /// Whether a pod may have to send it from its node to the one of the volume.
    const IS_SENT: bool = false;

    /// Whether the pod has to be in the namespace of the claim, as it is if it mounts something of it.
    fn is_near(&self) -> bool;

    /// Whether the filling begins before a pod uses the claim, if the source has one node only.
    fn starts_early(&self) -> bool {
        false
    }

    /// What is told of its claims.
    fn status(&self) -> Option<&PopulatorStatus>;

    /// Look at what this claim is to be filled from, as it is at this moment.
    ///
    /// # Errors
    /// What the API server says; what is missing is an answer.
    async fn look(
        &self,
        client: &Client,
        claim: &PersistentVolumeClaim,
    ) -> Result<Sight, kube::Error>;
}

/// What a source is at this moment.
#[derive(Debug, Clone, PartialEq)]
pub enum Sight {
    /// The claim can be filled like this.
    Ready(Box<Fill>),
    /// Not now.
    Waits(PopulatorReason, String),
    /// Not this claim from this source.
    Never(PopulatorReason, String),
}

/// What a fill pod needs. The volume to be filled is at `/target`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fill {
    /// Arguments of `pliant`.
    pub args: Vec<String>,
    /// What else it mounts.
    pub volumes: Vec<Volume>,
    /// Where.
    pub mounts: Vec<VolumeMount>,
    /// Where, of raw devices.
    pub devices: Vec<VolumeDevice>,
    /// The nodes on which it can run; `None` is every node.
    pub nodes: Option<BTreeSet<String>>,
    /// How the volume is filled on another node than these, if that can be.
    pub far: Option<Far>,
    /// Whether it fetches from an address that the owner of the source has named.
    pub fetches: bool,
    /// Whether a pod may write to what it reads.
    pub is_live: bool,
    /// What its pod waits for; the volume is got meanwhile.
    pub held: Option<(PopulatorReason, String)>,
    /// It only copies ahead, in rounds: what the rest waits for.
    pub ahead_of: Option<(PopulatorReason, String)>,
    /// What it will be when it is held no more, if that is to be tried before.
    pub rehearsal: Option<Box<Fill>>,
    /// What its pods have besides.
    pub pod: PopulatorPod,
}

/// How a volume is filled from another node: a pod there sends what the one here would have mounted.
/// Where they meet, and by which keys, is added to the arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Far {
    /// Arguments of the `pliant` that sends; it has the volumes of the [`Fill`].
    pub send: Vec<String>,
    /// Arguments of the one that fills; it has none of them.
    pub receive: Vec<String>,
}
