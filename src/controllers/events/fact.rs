//! Facts about the present cluster that events report. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;

use crate::api::{
    DiskState, DiskStatus, GroupStatus, Health, NodeStorage, NodeStorageStatus, Operation, Phase,
    PoolOnNode, VolumeOnNode, VolumeRequest,
};
use crate::bytes::Bytes;
use crate::cluster::PvSummary;
use crate::cluster::audit::{self, UnmatchedVolume, VolumesByHandle};
use crate::controllers::conditions::PREREQUISITES_MET;
use crate::controllers::events::EventReason;

/// Object of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EventObject {
    pub kind: EventObjectKind,
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
}

/// Kind of an object with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum EventObjectKind {
    Node,
    Pv,
    Claim,
}

impl EventObjectKind {
    const ALL: [EventObjectKind; 3] =
        [EventObjectKind::Node, EventObjectKind::Pv, EventObjectKind::Claim];

    /// API version and name of the kind.
    const fn written(self) -> (&'static str, &'static str) {
        match self {
            EventObjectKind::Node => ("pliant.io/v1alpha1", "NodeStorage"),
            EventObjectKind::Pv => ("v1", "PersistentVolume"),
            EventObjectKind::Claim => ("v1", "PersistentVolumeClaim"),
        }
    }
}

/// Something that holds now, or has just happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    pub about: EventObject,
    pub reason: EventReason,
    /// Part of the object: identifies the fact.
    pub subject: String,
    /// A sentence: what, where, how much, what to type.
    pub text: String,
}

/// Inputs of the facts.
pub(super) struct FactInputs<'a> {
    pub nodes: &'a [Arc<NodeStorage>],
    pub pvs: &'a [Arc<PvSummary>],
    pub requests: &'a [Arc<VolumeRequest>],
    /// Lasting differences.
    pub differences: &'a [UnmatchedVolume],
    /// Nodes whose node plugins do not process requests.
    pub away: &'a [String],
}

impl EventObject {
    fn node(node: &NodeStorage) -> EventObject {
        EventObject::of(EventObjectKind::Node, node)
    }

    fn pv(pv: &PvSummary) -> EventObject {
        EventObject::of(EventObjectKind::Pv, pv)
    }

    fn of(kind: EventObjectKind, object: &impl Resource) -> EventObject {
        let metadata = object.meta();
        EventObject {
            kind,
            namespace: None,
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }
    }

    fn claim(pv: &PvSummary) -> Option<EventObject> {
        let claim = pv.spec.claim_ref.as_deref()?.clone();
        let (kind, namespace) = (EventObjectKind::Claim, Some(claim.namespace));
        Some(EventObject { kind, namespace, name: claim.name, uid: claim.uid? })
    }

    /// Parses the object of an event; `None` for another kind.
    pub fn parse(reference: &ObjectReference) -> Option<EventObject> {
        let ObjectReference { kind, namespace, name, uid, .. } = reference.clone();
        let kind = EventObjectKind::ALL
            .into_iter()
            .find(|one| Some(one.written().1) == kind.as_deref())?;
        Some(EventObject { kind, namespace, name: name?, uid: uid? })
    }

    /// As an event names it.
    pub fn reference(&self) -> ObjectReference {
        let (api_version, kind) = self.kind.written();
        ObjectReference {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

/// Visibility of an object with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visibility {
    /// It exists, with all of its state.
    There,
    /// It exists, but nothing reports its volume: its state is unknown.
    Hidden,
    /// It does not exist any more.
    Gone,
}

/// Finds what can be seen of an object.
pub(super) struct Sights<'a> {
    /// The volumes of the PersistentVolumes and claims, by their uid.
    kept: HashMap<&'a str, &'a str>,
    nodes: HashSet<&'a str>,
    listed: HashSet<&'a str>,
}

impl<'a> Sights<'a> {
    pub fn of(seen: &FactInputs<'a>) -> Self {
        let mut kept = HashMap::new();
        for pv in seen.pvs {
            let Some(volume) = pv.handle() else { continue };
            let claim = pv.spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_deref());
            let both = [pv.metadata.uid.as_deref(), claim];
            kept.extend(both.into_iter().flatten().map(|uid| (uid, volume)));
        }
        let statuses = seen.nodes.iter().filter_map(|node| node.status.as_ref());
        let listed =
            statuses.flat_map(|status| &status.volumes).map(|volume| volume.volume_handle.as_str());
        let nodes = seen.nodes.iter().filter_map(|node| node.metadata.uid.as_deref());
        Sights { kept, nodes: nodes.collect(), listed: listed.collect() }
    }

    pub fn sight(&self, about: &EventObject) -> Visibility {
        let uid = about.uid.as_str();
        match (about.kind, self.kept.get(uid)) {
            (EventObjectKind::Node, _) if self.nodes.contains(uid) => Visibility::There,
            (EventObjectKind::Pv | EventObjectKind::Claim, Some(volume))
                if self.listed.contains(volume) =>
            {
                Visibility::There
            }
            (EventObjectKind::Pv | EventObjectKind::Claim, Some(_)) => Visibility::Hidden,
            (EventObjectKind::Node, _) | (_, None) => Visibility::Gone,
        }
    }
}

/// All facts.
pub(super) fn facts(seen: &FactInputs<'_>) -> Vec<Fact> {
    let (pvs, changing) = (VolumesByHandle::of(seen.pvs), audit::changing(seen.requests));
    let nodes = seen.nodes.iter().filter_map(|node| Some((&**node, node.status.as_ref()?)));
    let mut facts: Vec<Fact> = Vec::new();
    for (node, status) in nodes {
        facts.extend(status.pools.iter().filter_map(|pool| of_pool(node, pool)));
        facts.extend(status.disks.iter().filter_map(|disk| of_disk(node, disk)));
        facts.extend(of_volumes(node, status, &pvs));
        facts.extend(unseen(node, status, &pvs, &changing));
        facts.extend(status.conditions.iter().filter_map(|one| of_condition(node, one)));
    }
    facts.extend(seen.away.iter().filter_map(|name| away(seen.nodes, name)));
    facts.extend(differences(seen, seen.differences));
    facts.extend(seen.requests.iter().flat_map(|request| growth(request, &pvs)));
    facts
}

/// Returns the facts of these differences.
pub(super) fn differences(seen: &FactInputs<'_>, found: &[UnmatchedVolume]) -> Vec<Fact> {
    let pvs = VolumesByHandle::of(seen.pvs);
    let named =
        seen.nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, &**node)));
    let nodes: HashMap<&str, &NodeStorage> = named.collect();
    found.iter().flat_map(|one| difference(&nodes, &pvs, one)).collect()
}

fn of_pool(node: &NodeStorage, pool: &PoolOnNode) -> Option<Fact> {
    let (reason, how) = match pool.health {
        _ if pool.only_plans() => return None,
        Health::Healthy | Health::Unknown => return None,
        Health::Degraded => (EventReason::PoolDegraded, "degraded"),
        Health::Unavailable => (EventReason::PoolUnavailable, "unavailable"),
    };
    let about = EventObject::node(node);
    let why = pool.problem().unwrap_or("the node plugin gives no reason");
    let (subject, at) = (format!("pool {}", pool.name), &about.name);
    let text = format!(
        "{subject} on node {at} is {how}: {why}; for details see `kubectl get nodestorage {at} --output yaml`"
    );
    Some(Fact { about, reason, subject, text })
}

fn of_disk(node: &NodeStorage, disk: &DiskStatus) -> Option<Fact> {
    if disk.state != DiskState::Missing {
        return None;
    }
    let about = EventObject::node(node);
    let subject = format!("disk {}", disk.device);
    let group = disk.volume_group.as_ref().map(|group| format!(" of volume group {group}"));
    let why = disk.message.as_deref().unwrap_or("put it back");
    let text =
        format!("{subject}{} on node {} is missing: {why}", group.unwrap_or_default(), about.name);
    Some(Fact { about, reason: EventReason::DiskMissing, subject, text })
}

fn of_condition(node: &NodeStorage, condition: &Condition) -> Option<Fact> {
    if condition.type_ != PREREQUISITES_MET || condition.status == "True" {
        return None;
    }
    let about = EventObject::node(node);
    let text = format!("node {} cannot serve volumes: {}", about.name, condition.message);
    let (reason, subject) = (EventReason::PrerequisitesNotMet, format!("node {}", about.name));
    Some(Fact { about, reason, subject, text })
}

fn of_volumes(node: &NodeStorage, status: &NodeStorageStatus, pvs: &VolumesByHandle) -> Vec<Fact> {
    let ailing = status.volumes.iter().filter(|volume| !volume.health_statuses.is_empty());
    let kept = ailing.filter_map(|volume| Some((volume, pvs.get(&volume.volume_handle)?)));
    kept.flat_map(|(volume, pv)| ailments(node, volume, pv)).collect()
}

fn ailments(node: &NodeStorage, volume: &VolumeOnNode, pv: &PvSummary) -> Vec<Fact> {
    let told = volume.health_statuses.iter().filter_map(|ailment| {
        let reason = EventReason::of_ailment(&ailment.reason)?;
        let subject = format!("volume {}", volume.volume_handle);
        let (node, pool) = (node.metadata.name.as_deref().unwrap_or_default(), &volume.pool);
        let text = format!("{subject} in pool {pool} of node {node}: {}", ailment.message);
        Some(of_both(pv, reason, &subject, &text))
    });
    told.flatten().collect()
}

/// Returns the unlisted volumes of a node that cannot read all of its pools: they may exist.
fn unseen(
    node: &NodeStorage,
    status: &NodeStorageStatus,
    pvs: &VolumesByHandle,
    changing: &HashSet<&str>,
) -> Vec<Fact> {
    // A volume that is only left out because of the size limit is assumed to exist.
    let is_only_left_out = status.left_out() > 0
        && !status.pools.iter().any(|pool| pool.health == Health::Unavailable);
    if audit::is_complete(status) || is_only_left_out {
        return Vec::new();
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let away = status.pools.iter().filter(|pool| pool.health == Health::Unavailable);
    let why = away
        .filter_map(|pool| pool.problem().map(str::to_owned))
        .chain(status.inventory_gap().map(str::to_owned))
        .next();
    let why = why.unwrap_or_else(|| "the node plugin gives no reason".to_owned());
    let not_listed = audit::not_listed(node, status, pvs).into_iter();
    let unseen = not_listed.filter(|(volume, _)| !changing.contains(volume));
    let told = unseen.map(|(volume, pv)| {
        let subject = format!("volume {volume}");
        let text =
            format!("{subject} was not found on node {name}, which cannot read all pools: {why}");
        of_both(pv, EventReason::VolumeStatusUnknown, &subject, &text)
    });
    told.flatten().collect()
}

/// Returns a fact of a PersistentVolume and the same of its claim.
fn of_both(pv: &PvSummary, reason: EventReason, subject: &str, text: &str) -> Vec<Fact> {
    let both = [Some(EventObject::pv(pv)), EventObject::claim(pv)];
    let (subject, text) = (subject.to_owned(), text.to_owned());
    let fact = |about| Fact { about, reason, subject: subject.clone(), text: text.clone() };
    both.into_iter().flatten().map(fact).collect()
}

fn away(nodes: &[Arc<NodeStorage>], name: &str) -> Option<Fact> {
    let node = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))?;
    let text = format!(
        "the node plugin of node {name} is not responding; mounted volumes stay in service, but none can be \
         created, mounted, expanded or deleted; see `kubectl get pods --all-namespaces --field-selector \
         spec.nodeName={name}` and the node itself"
    );
    let subject = format!("the node plugin of node {name}");
    Some(Fact {
        about: EventObject::node(node),
        reason: EventReason::NodePluginNotResponding,
        subject,
        text,
    })
}

fn difference(
    nodes: &HashMap<&str, &NodeStorage>,
    pvs: &VolumesByHandle,
    one: &UnmatchedVolume,
) -> Vec<Fact> {
    let (subject, text) = (format!("volume {}", one.volume()), one.to_string());
    match one {
        UnmatchedVolume::VolumeWithoutPv { node, .. } => {
            let fact = |node: &&NodeStorage| {
                let (about, reason) = (EventObject::node(node), EventReason::OrphanedVolume);
                Fact { about, reason, subject, text }
            };
            nodes.get(node.as_str()).map(fact).into_iter().collect()
        }
        UnmatchedVolume::PvWithoutVolume { volume, .. } => {
            let told = |pv| of_both(pv, EventReason::VolumeMissing, &subject, &text);
            pvs.get(volume).map(told).unwrap_or_default()
        }
    }
}

/// Returns the facts of a long expansion: the node plugin does not report a short one.
fn growth(request: &VolumeRequest, pvs: &VolumesByHandle) -> Vec<Fact> {
    let Operation::Expand(grow) = &request.spec.operation else { return Vec::new() };
    let Some(pv) = pvs.get(&request.spec.volume_handle) else { return Vec::new() };
    let status = request.status.clone().unwrap_or_default();
    let (volume, node, size) =
        (&request.spec.volume_handle, &request.spec.node_name, grow.min_size.0);
    let how = match status.phase {
        Phase::Running => format!("is being expanded to {size} or more"),
        Phase::Resizing => format!("has {size} or more, and its file system is being expanded"),
        Phase::Pending | Phase::Resized | Phase::Succeeded | Phase::Failed | Phase::Unknown => {
            return Vec::new();
        }
    };
    let text = format!(
        "volume {volume} on node {node} {how}; it stays in use meanwhile: for the progress see `kubectl get \
         volumerequests`"
    );
    // Each expansion is reported once, whatever its progress.
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    let subject = format!("growth {uid} {}", request.metadata.generation.unwrap_or_default());
    of_both(pv, EventReason::VolumeExpanding, &subject, &text)
}

/// The sizes of the volume groups, to see which have become larger.
#[derive(Debug, Default)]
pub(super) struct Sizes(HashMap<(String, String), Bytes>);

impl Sizes {
    /// Returns the volume groups that are larger than at the last evaluation.
    pub fn extended(&mut self, nodes: &[Arc<NodeStorage>]) -> Vec<Fact> {
        let mut before = std::mem::take(&mut self.0);
        let mut facts = Vec::new();
        for node in nodes {
            let about = EventObject::node(node);
            for group in node.status.iter().flat_map(|status| &status.volume_groups) {
                let size = group.size.0;
                let key = (about.uid.clone(), group.name.clone());
                let last = before.remove(&key).filter(|last| *last > Bytes::ZERO);
                if let Some(last) = last.filter(|last| size > *last) {
                    facts.push(extension(&about, group, last));
                }
                // A missing one reports no size; it is not larger when it is back.
                let known = if size > Bytes::ZERO { size } else { last.unwrap_or_default() };
                self.0.insert(key, known);
            }
        }
        facts
    }
}

fn extension(about: &EventObject, group: &GroupStatus, last: Bytes) -> Fact {
    let (size, free) = (group.size.0, group.free.0);
    let text = format!(
        "volume group {} of pool {} on node {} has grown by {} to {size}; {free} are free",
        group.name,
        group.pool,
        about.name,
        size.saturating_sub(last),
    );
    let subject = format!("volume group {} of {} bytes", group.name, size.get());
    Fact { about: about.clone(), reason: EventReason::VolumeGroupExtended, subject, text }
}

#[cfg(test)]
mod tests;
