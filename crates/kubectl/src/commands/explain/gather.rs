//! Reads from the API server what an explanation needs.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::ListParams;
use kube::{Api, Client};

use super::explanation::{ClaimOrVolume, ClaimState, Explanation, Remediation};
use crate::api::{NodeStorage, PvcAutoscaler, StoragePool, VolumeRequest};
use crate::bytes::Bytes;
use crate::cluster::{Unreadable, own_words, requested};
use crate::commands::read::ListReader;
use crate::commands::{
    AskError, CLAIMS, CLASSES, CONTROLLERS, NODE_PLUGINS, PODS, PVC_AUTOSCALERS, asked, is_ready,
    no_claim,
};
pub(super) use crate::commands::{NODES, STORAGES, VOLUMES};
use crate::volume::DRIVER;

/// Objects on which an explanation depends, as the API server returns them.
#[derive(Debug, Default)]
pub(super) struct ClaimFacts {
    /// Name by which the caller runs this program.
    pub program: String,
    /// The claim; `None` for a PersistentVolume that no claim has.
    pub claim: Option<PersistentVolumeClaim>,
    /// The PersistentVolume of the claim, or the one that is asked about.
    pub volume: Option<PersistentVolume>,
    pub classes: Vec<StorageClass>,
    /// The pods that use the claim and have not ended.
    pub pods: Vec<Pod>,
    /// The PersistentVolumes of the other claims of the first of them.
    pub companions: Vec<PersistentVolume>,
    pub nodes: Vec<Node>,
    /// Drivers that the kubelets have registered.
    pub kubelets: Vec<CSINode>,
    pub storages: Vec<NodeStorage>,
    pub pools: Vec<StoragePool>,
    /// The pods of the node plugin.
    pub node_plugins: Vec<Pod>,
    pub requests: Vec<VolumeRequest>,
    /// The PvcAutoscalers in the namespace of the claim.
    pub autoscalers: Vec<PvcAutoscaler>,
    /// Events of the claim or the PersistentVolume, the newest first.
    pub events: Vec<Event>,
    /// Kinds that the caller may not read.
    pub unseen: Vec<&'static str>,
    /// Objects that this version cannot decode.
    pub unreadable: Vec<Unreadable>,
    /// Kinds with objects that this version cannot decode.
    pub partial: Vec<&'static str>,
}

pub(super) const KUBELETS: &str = "csinodes";
pub(super) const POOLS: &str = "storagepools";
pub(super) const NODE_PLUGIN_PODS: &str = "the pods of the driver";

impl ClaimFacts {
    /// True if all objects of this kind were read.
    pub fn sees(&self, what: &str) -> bool {
        !self.unseen.contains(&what) && !self.partial.contains(&what)
    }

    /// Describes what is not known, and why: `you may not read nodes`.
    pub fn unknown(&self) -> String {
        let hidden = self.unseen.join(", ");
        let partial: Vec<String> = self.unreadable.iter().map(ToString::to_string).collect();
        match (hidden.as_str(), partial.as_slice()) {
            ("", undecoded) => undecoded.join("; "),
            (hidden, []) => format!("you may not read what that depends on: {hidden}"),
            (hidden, undecoded) => format!(
                "you may not read what that depends on: {hidden}; and {}",
                undecoded.join("; ")
            ),
        }
    }

    /// Name and namespace of the claim as kubectl arguments: `db --namespace default`.
    pub fn place(&self) -> String {
        let (namespace, name) = self.claim.as_ref().map(names).unwrap_or_default();
        format!("{name} --namespace {namespace}")
    }

    /// The volume that the claim's PersistentVolume names, if that is one of this driver.
    pub fn handle(&self) -> Option<&str> {
        let source = self.volume.as_ref()?.spec.as_ref()?.csi.as_ref()?;
        (source.driver == DRIVER).then_some(source.volume_handle.as_str())
    }

    /// Requested size of the claim; `None` if it is invalid.
    pub fn wish(&self) -> Option<Bytes> {
        requested(self.claim.as_ref()?).ok().map(|size| size.0)
    }

    /// The NodeStorage of the node with this name.
    pub fn storage(&self, node: &str) -> Option<&NodeStorage> {
        self.storages.iter().find(|one| one.metadata.name.as_deref() == Some(node))
    }

    /// Reason why the node plugin of a node is unavailable; `None` if it is ready, or if that is not known.
    pub fn node_plugin_trouble(&self, node: &str) -> Option<String> {
        if !self.sees(NODE_PLUGIN_PODS) {
            return None;
        }
        let runs_there =
            |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        let mut there = self.node_plugins.iter().filter(runs_there).peekable();
        let Some(first) = there.peek().copied() else {
            return Some("no node plugin runs there".to_owned());
        };
        let name = first.metadata.name.clone().unwrap_or_default();
        (!there.any(is_ready)).then(|| format!("its node plugin {name} is not ready"))
    }

    /// Message of the driver in the newest event with this reason.
    pub fn event_message(&self, reason: &str) -> Option<String> {
        let event = self.events.iter().find(|event| event.reason.as_deref() == Some(reason))?;
        Some(own_words(event.note.as_deref()?).to_owned())
    }

    /// The name of the PersistentVolume; empty where there is none.
    pub fn volume_name(&self) -> String {
        self.volume.as_ref().and_then(|pv| pv.metadata.name.clone()).unwrap_or_default()
    }

    /// Command that prints the log of a sidecar of the controller plugin.
    pub fn log_of(&self, sidecar: &str) -> Remediation {
        let namespace = self.node_plugins.iter().find_map(|pod| pod.metadata.namespace.as_deref());
        let namespace = namespace.unwrap_or("NAMESPACE");
        Remediation::command(
            format!("if it stays so, read the log of the {sidecar}"),
            format!(
                "kubectl logs --namespace {namespace} --selector {CONTROLLERS} --container {sidecar}"
            ),
        )
    }

    /// Make the explanation.
    pub fn explain(
        &self,
        state: ClaimState,
        why: impl Into<String>,
        todo: Vec<Remediation>,
    ) -> Explanation {
        let about = match &self.claim {
            Some(claim) => format!("{}/{}", names(claim).0, names(claim).1),
            None => self.volume_name(),
        };
        Explanation {
            about,
            state,
            severity: state.severity(),
            why: why.into(),
            nodes: Vec::new(),
            remediation: todo,
            unseen: self.unseen.iter().map(|what| (*what).to_owned()).collect(),
            unreadable: self.unreadable.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Namespace and name.
fn names(claim: &PersistentVolumeClaim) -> (&str, &str) {
    let metadata = &claim.metadata;
    (
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

async fn events(
    ask: &mut ListReader<'_>,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Vec<Event>, AskError> {
    let api = Api::namespaced(ask.client.clone(), namespace);
    let about = format!("regarding.kind={kind},regarding.name={name}");
    let about = ListParams::default().fields(&about);
    let mut events: Vec<Event> = ask.list(api, about, "events").await?;
    events.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
    Ok(events)
}

/// Time of the last occurrence of an event; those of the older API group have other fields for it.
fn last_seen(event: &Event) -> Option<k8s_openapi::jiff::Timestamp> {
    let series = event.series.as_ref().map(|series| series.last_observed_time.0);
    let older = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    let made = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    series.or(older).or(event.event_time.as_ref().map(|time| time.0)).or(made)
}

/// Reads what an explanation of one subject needs.
pub(super) async fn gather(
    client: &Client,
    program: &str,
    namespace: Option<&str>,
    about: &ClaimOrVolume,
) -> Result<ClaimFacts, AskError> {
    let mut gatherer = Gatherer::new(client, program);
    match about {
        ClaimOrVolume::Claim(name) => {
            let namespace = namespace.unwrap_or(client.default_namespace());
            gatherer.read_claim(namespace, name).await?;
        }
        ClaimOrVolume::Volume(name) => gatherer.read_volume(name).await?,
    }
    Ok(gatherer.facts)
}

/// Reads what explanations need: once what the claims of a namespace share, then claim by claim.
pub(super) struct Gatherer<'a> {
    ask: ListReader<'a>,
    facts: ClaimFacts,
    /// What the claims share; `None` until it has been read.
    shared: Option<NamespaceFacts>,
}

/// What the claims of a namespace share, beside what is in [`Facts`] already.
struct NamespaceFacts {
    pods: Vec<Pod>,
    /// What could not be read of it, see [`Reader`].
    unseen: Vec<&'static str>,
    unreadable: Vec<Unreadable>,
    partial: Vec<&'static str>,
}

impl<'a> Gatherer<'a> {
    pub fn new(client: &'a Client, program: &str) -> Self {
        let facts = ClaimFacts { program: program.to_owned(), ..ClaimFacts::default() };
        Gatherer { ask: ListReader::new(client), facts, shared: None }
    }

    /// Reads one claim after another, all of one namespace.
    ///
    /// # Errors
    /// [`AskError::Refused`] if there is no such claim.
    pub async fn read_claim(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<&ClaimFacts, AskError> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.ask.client.clone(), namespace);
        let claim = api.get(name).await.map_err(|error| no_claim(error, namespace, name))?;
        self.read_shared(Some(namespace)).await?;
        self.facts.volume = match claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref()) {
            Some(volume) => self.ask.get(self.ask.all(), volume, VOLUMES).await?,
            None => None,
        };
        self.facts.claim = Some(claim);
        self.read_surroundings().await?;
        Ok(&self.facts)
    }

    async fn read_volume(&mut self, name: &str) -> Result<(), AskError> {
        let volume = self.ask.all().get_opt(name).await.map_err(asked("the PersistentVolume"))?;
        let volume: PersistentVolume = volume.ok_or_else(|| AskError::Refused {
            reason: format!("there is no PersistentVolume {name}; `kubectl get pv` lists them"),
        })?;
        let claim = claim_of(self.ask.client, &volume).await?;
        let namespace = claim.as_ref().and_then(|claim| claim.metadata.namespace.as_deref());
        self.read_shared(namespace).await?;
        (self.facts.claim, self.facts.volume) = (claim, Some(volume));
        self.read_surroundings().await
    }

    /// Reads what the claims of a namespace share, the first time; forgets what could not be read of the last claim.
    async fn read_shared(&mut self, namespace: Option<&str>) -> Result<(), AskError> {
        let ask = &mut self.ask;
        if let Some(shared) = &self.shared {
            ask.unseen.clone_from(&shared.unseen);
            ask.unreadable.clone_from(&shared.unreadable);
            ask.partial.clone_from(&shared.partial);
            return Ok(());
        }
        let pods = read_shared(ask, &mut self.facts, namespace).await?;
        let (unseen, unreadable) = (ask.unseen.clone(), ask.unreadable.clone());
        self.shared =
            Some(NamespaceFacts { pods, unseen, unreadable, partial: ask.partial.clone() });
        Ok(())
    }

    /// Reads what the claim or volume depends on.
    async fn read_surroundings(&mut self) -> Result<(), AskError> {
        let (ask, facts) = (&mut self.ask, &mut self.facts);
        let place = facts.claim.as_ref().map(names);
        if let Some((namespace, name)) = place {
            facts.events = events(ask, "PersistentVolumeClaim", namespace, name).await?;
            let pods = self.shared.iter().flat_map(|shared| &shared.pods);
            let pods = pods.filter(|pod| has_not_ended(pod) && uses(pod, name));
            facts.pods = pods.cloned().collect();
            facts.companions = match facts.pods.first() {
                Some(pod) => companions(ask, pod, namespace, name).await?,
                None => Vec::new(),
            };
        } else {
            // Events of what has no namespace are in this one.
            facts.events = events(ask, "PersistentVolume", "default", &facts.volume_name()).await?;
        }
        facts.unseen.clone_from(&ask.unseen);
        facts.unreadable.clone_from(&ask.unreadable);
        facts.partial.clone_from(&ask.partial);
        Ok(())
    }
}

/// Reads what all claims of a namespace share; returns its pods, none without a namespace.
async fn read_shared(
    ask: &mut ListReader<'_>,
    facts: &mut ClaimFacts,
    namespace: Option<&str>,
) -> Result<Vec<Pod>, AskError> {
    let all = ListParams::default;
    facts.classes = ask.list(ask.all(), all(), CLASSES).await?;
    facts.nodes = ask.list(ask.all(), all(), NODES).await?;
    facts.kubelets = ask.list(ask.all(), all(), KUBELETS).await?;
    facts.storages = ask.storages().await?;
    facts.pools = ask.list(ask.all(), all(), POOLS).await?;
    facts.requests = ask.list(ask.all(), all(), "volumerequests").await?;
    facts.node_plugins = ask.list(ask.all(), all().labels(NODE_PLUGINS), NODE_PLUGIN_PODS).await?;
    let Some(namespace) = namespace else { return Ok(Vec::new()) };
    let ours = Api::namespaced(ask.client.clone(), namespace);
    facts.autoscalers = ask.list(ours, all(), PVC_AUTOSCALERS).await?;
    ask.list(Api::namespaced(ask.client.clone(), namespace), all(), PODS).await
}

/// The claim that a PersistentVolume is bound to, if it is still that one.
async fn claim_of(
    client: &Client,
    volume: &PersistentVolume,
) -> Result<Option<PersistentVolumeClaim>, AskError> {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let Some((reference, namespace, name)) =
        reference.and_then(|one| Some((one, one.namespace.as_deref()?, one.name.as_deref()?)))
    else {
        return Ok(None);
    };
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claim = api.get_opt(name).await.map_err(asked("the claim"))?;
    Ok(claim.filter(|claim| reference.uid == claim.metadata.uid))
}

/// The PersistentVolumes that a pod uses beside that of this claim.
async fn companions(
    ask: &mut ListReader<'_>,
    pod: &Pod,
    namespace: &str,
    claim: &str,
) -> Result<Vec<PersistentVolume>, AskError> {
    let mut found = Vec::new();
    for name in claims(pod).filter(|name| name != claim) {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(ask.client.clone(), namespace);
        let other = ask.get(api, &name, CLAIMS).await?;
        let Some(volume) = other.and_then(|claim| claim.spec?.volume_name) else { continue };
        found.extend(ask.get(ask.all(), &volume, VOLUMES).await?);
    }
    Ok(found)
}

fn has_not_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

fn uses(pod: &Pod, claim: &str) -> bool {
    claims(pod).any(|name| name == claim)
}

/// The claims of a pod, also those that are made for its ephemeral volumes.
fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(claim.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| format!("{name}-{}", volume.name)),
    })
}

/// True if the kubelet of a node has registered the driver; `None` if that is not known.
pub(super) fn is_registered(facts: &ClaimFacts, node: &str) -> Option<bool> {
    if !facts.sees(KUBELETS) {
        return None;
    }
    let known = facts.kubelets.iter().find(|one| one.metadata.name.as_deref() == Some(node));
    Some(known.is_some_and(|known| known.spec.drivers.iter().any(|one| one.name == DRIVER)))
}
