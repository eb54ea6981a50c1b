//! Decides which objects a recovery creates, or why it is not possible. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeSpec, VolumeNodeAffinity, VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;
use kube::api::ObjectMeta;

use super::adoption::Adoption;
use crate::api::{
    FenceState, NodeStorage, Operation, Quantity, VolumeMode, VolumeOnNode, VolumeRequest,
    VolumeState,
};
use crate::cluster::audit::{UnmatchedVolume, audit};
use crate::cluster::{self, PvSummary, volume_name};
use crate::volume::{Class, DRIVER, FsKind, TOPOLOGY, few};

/// Objects on which a recovery depends.
#[derive(Debug, Default)]
pub struct ObservedClaim {
    pub(super) nodes: Vec<NodeStorage>,
    pub(super) volumes: Vec<PvSummary>,
    pub(super) claims: Vec<PersistentVolumeClaim>,
    pub(super) requests: Vec<VolumeRequest>,
    pub(super) classes: Vec<StorageClass>,
}

/// Options of the caller for the claim.
#[derive(Debug, Clone, Default)]
pub struct RecoveryOptions {
    /// Namespace of the claim; not needed for a claim that has lost its PersistentVolume.
    pub namespace: Option<String>,
    /// Name of the claim; `None` for the name of the volume.
    pub claim: Option<String>,
    /// StorageClass of the claim; `None` for the only one of this driver that uses the volume's pool.
    pub class: Option<String>,
}

/// Lists the IDs of all volumes without a PersistentVolume and without an operation in progress.
pub fn all(seen: &ObservedClaim) -> Vec<String> {
    let found = audit(&seen.nodes, &seen.volumes, &seen.requests);
    let without_pv =
        |one: &&UnmatchedVolume| matches!(one, UnmatchedVolume::VolumeWithoutPv { .. });
    found.iter().filter(without_pv).map(|one| one.volume().to_owned()).collect()
}

/// Decides which objects to create for a volume.
///
/// # Errors
/// Why there can be none: a sentence.
pub fn plan(seen: &ObservedClaim, id: &str, wish: &RecoveryOptions) -> Result<Adoption, String> {
    let (node, volume) = find(seen, id)?;
    refuse_if_named(seen, id)?;
    refuse_if_changing(seen, volume)?;
    let lost = lost_claim(seen, volume, wish);
    if lost.is_none() && wish.claim.is_none() {
        refuse_if_a_lost_claim_names(seen, volume)?;
    }
    let class = class_of(seen, volume, wish, lost)?;
    let is_it = |one: &&StorageClass| one.metadata.name.as_ref() == Some(&class);
    let mount_options = seen.classes.iter().find(is_it).and_then(|one| one.mount_options.clone());
    let (reference, claim) = if let Some(claim) = lost {
        (reference_to(claim), None)
    } else {
        let claim = new_claim(seen, volume, wish, &class)?;
        (reference_to(&claim), Some(claim))
    };
    // A claim that has got another volume under its own name has another one's PersistentVolume.
    let had = lost.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref());
    let name = had.unwrap_or(object_name(volume));
    if seen.volumes.iter().any(|pv| pv.metadata.name.as_deref() == Some(name)) {
        return Err(format!(
            "PersistentVolume {name} exists already, for another volume; see `kubectl \
             get pv {name} --output yaml`"
        ));
    }
    let mut pv = new_volume(name, node, volume, &class, reference);
    if let Some(spec) = &mut pv.spec {
        spec.mount_options = mount_options;
        let modes = lost.and_then(|claim| claim.spec.as_ref()?.access_modes.clone());
        spec.access_modes = modes.or(spec.access_modes.take());
    }
    Ok(Adoption { volume: pv, claim })
}

fn find<'a>(seen: &'a ObservedClaim, id: &str) -> Result<(&'a str, &'a VolumeOnNode), String> {
    for node in &seen.nodes {
        let volumes = node.status.iter().flat_map(|status| &status.volumes);
        if let Some(volume) = volumes.into_iter().find(|volume| volume.volume_handle == id) {
            return Ok((node.metadata.name.as_deref().unwrap_or_default(), volume));
        }
    }
    Err(format!(
        "no node reports volume {id}; `kubectl get nodestorages --output yaml` lists what the nodes \
         have"
    ))
}

fn refuse_if_named(seen: &ObservedClaim, id: &str) -> Result<(), String> {
    match seen.volumes.iter().find(|pv| pv.handle() == Some(id)) {
        None => Ok(()),
        Some(pv) => {
            let name = pv.metadata.name.as_deref().unwrap_or_default();
            Err(format!(
                "volume {id} is not orphaned: it has PersistentVolume {name}; see `kubectl describe pv {name}`"
            ))
        }
    }
}

fn refuse_if_changing(seen: &ObservedClaim, volume: &VolumeOnNode) -> Result<(), String> {
    let id = &volume.volume_handle;
    if !matches!(volume.state, VolumeState::Ready | VolumeState::Resizing | VolumeState::Resized) {
        return Err(format!("volume {id} is {}: there is nothing to recover", volume.state));
    }
    if let Some(fence) = volume.fence.filter(|fence| fence.state != FenceState::Active) {
        let so = match fence.state {
            FenceState::Incomplete => "its content is incomplete",
            FenceState::Active | FenceState::Superseded | FenceState::Unknown => {
                "no pod could use it"
            }
        };
        let (is, generation) = (fence.state.words(), fence.generation);
        return Err(format!("volume {id} is {is} since generation {generation}, so {so}"));
    }
    let changes = |one: &&VolumeRequest| {
        let work = &one.spec.operation;
        let makes_or_deletes = work.creates().is_some() || matches!(work, Operation::Delete(_));
        one.spec.volume_handle == *id && makes_or_deletes
    };
    match seen.requests.iter().find(changes) {
        None => Ok(()),
        Some(request) => Err(format!(
            "volume {id} is being created or deleted; see `kubectl describe volumerequest {}`",
            request.metadata.name.as_deref().unwrap_or_default()
        )),
    }
}

/// The claim that had the volume, if its PersistentVolume was deleted.
///
/// A tenant can write the annotations and the volume of a claim. So it has to be the claim that the volume was created
/// for, by its uid, or one that the caller names: it may have got the volume by a population, a rebind or a recovery.
fn lost_claim<'a>(
    seen: &'a ObservedClaim,
    volume: &VolumeOnNode,
    wish: &RecoveryOptions,
) -> Option<&'a PersistentVolumeClaim> {
    seen.claims.iter().find(|claim| {
        let metadata = &claim.metadata;
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_made_for =
            metadata.uid.is_some() && metadata.uid.as_deref() == volume.name.strip_prefix("pvc-");
        let is_named = wish.claim.is_some()
            && wish.claim == metadata.name
            && wish.namespace == metadata.namespace;
        phase == Some("Lost")
            && volume_name(claim) == Some(&volume.name)
            && (is_made_for || is_named)
    })
}

/// Leaves it to the caller whether a claim gets a volume that was not created for it.
fn refuse_if_a_lost_claim_names(seen: &ObservedClaim, volume: &VolumeOnNode) -> Result<(), String> {
    let is_lost = |claim: &&PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost")
            && volume_name(claim) == Some(&volume.name)
    };
    let Some(claim) = seen.claims.iter().find(is_lost) else { return Ok(()) };
    let (namespace, name) = (claim.metadata.namespace.as_deref(), claim.metadata.name.as_deref());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    Err(format!(
        "claim {name} of namespace {namespace} is Lost and names volume {}, which was not created for it: \
         it may have got it by a population or a swap, or its owner may have written that name; only if \
         you know that the data is its own, add --namespace {namespace} --claim {name}",
        volume.volume_handle
    ))
}

fn class_of(
    seen: &ObservedClaim,
    volume: &VolumeOnNode,
    wish: &RecoveryOptions,
    lost: Option<&PersistentVolumeClaim>,
) -> Result<String, String> {
    if let Some(claim) = lost {
        return Ok(cluster::class_of(claim).cloned().unwrap_or_default());
    }
    let ours = || seen.classes.iter().filter(|class| class.provisioner == DRIVER);
    let names = |classes: Vec<&StorageClass>| -> Vec<String> {
        classes.into_iter().filter_map(|class| class.metadata.name.clone()).collect()
    };
    if let Some(name) = &wish.class {
        let known = names(ours().collect());
        return if known.contains(name) {
            Ok(name.clone())
        } else {
            Err(format!("{name} is not a StorageClass of this driver, which has: {}", few(&known)))
        };
    }
    let fitting = fitting(&seen.classes, &volume.pool);
    match fitting.as_slice() {
        [only] => Ok(only.clone()),
        [] => {
            Err(format!("no StorageClass uses pool {}: name one with --storage-class", volume.pool))
        }
        several => Err(format!(
            "several StorageClasses use pool {}: name one with --storage-class: {}",
            volume.pool,
            few(several)
        )),
    }
}

/// The classes of this driver whose volumes may be in this pool.
pub(in crate::commands) fn fitting(classes: &[StorageClass], pool: &str) -> Vec<String> {
    let fitting = classes.iter().filter(|class| class.provisioner == DRIVER && takes(class, pool));
    fitting.filter_map(|class| class.metadata.name.clone()).collect()
}

/// True if volumes of a class may be in this pool; a class without a pool allows any.
fn takes(class: &StorageClass, pool: &str) -> bool {
    let parameters = class.parameters.clone().unwrap_or_default();
    Class::parse(&parameters, None, FsKind::Ext4)
        .is_ok_and(|class| class.pool.is_none_or(|named| named.as_str() == pool))
}

/// The name of the PersistentVolume: that of the volume, if Kubernetes takes it, else its id.
fn object_name(volume: &VolumeOnNode) -> &str {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let name = volume.name.as_bytes();
    let ends = name.first().is_some_and(|b| letter(*b)) && name.last().is_some_and(|b| letter(*b));
    if ends && name.iter().all(|byte| letter(*byte) || *byte == b'-') {
        &volume.name
    } else {
        &volume.volume_handle
    }
}

fn new_claim(
    seen: &ObservedClaim,
    volume: &VolumeOnNode,
    wish: &RecoveryOptions,
    class: &str,
) -> Result<PersistentVolumeClaim, String> {
    let Some(namespace) = &wish.namespace else {
        return Err(format!(
            "the claim that had volume {} ({}) is not known: name one with --namespace and --claim",
            volume.volume_handle, volume.name
        ));
    };
    let name = wish.claim.as_deref().unwrap_or(object_name(volume));
    let is_it = |claim: &&PersistentVolumeClaim| {
        claim.metadata.namespace.as_ref() == Some(namespace)
            && claim.metadata.name.as_deref() == Some(name)
    };
    if seen.claims.iter().any(|claim| is_it(&claim)) {
        return Err(format!(
            "claim {name} exists already in namespace {namespace}: name another one with --claim"
        ));
    }
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.clone()),
        ..ObjectMeta::default()
    };
    Ok(PersistentVolumeClaim { metadata, spec: Some(claim_spec(volume, class)), status: None })
}

fn claim_spec(volume: &VolumeOnNode, class: &str) -> PersistentVolumeClaimSpec {
    let resources = VolumeResourceRequirements {
        requests: Some(storage(volume)),
        ..VolumeResourceRequirements::default()
    };
    PersistentVolumeClaimSpec {
        access_modes: Some(vec![ACCESS.to_owned()]),
        resources: Some(resources),
        storage_class_name: Some(class.to_owned()),
        volume_mode: Some(volume_mode(volume).to_owned()),
        volume_name: Some(object_name(volume).to_owned()),
        ..PersistentVolumeClaimSpec::default()
    }
}

/// One node has a volume, so more can never be had.
const ACCESS: &str = "ReadWriteOnce";

fn storage(volume: &VolumeOnNode) -> BTreeMap<String, KubeQuantity> {
    BTreeMap::from([("storage".to_owned(), KubeQuantity(Quantity(volume.size.0).to_string()))])
}

fn volume_mode(volume: &VolumeOnNode) -> &'static str {
    if volume.volume_mode == VolumeMode::Block { "Block" } else { "Filesystem" }
}

/// Refers to a claim by name: one that does not exist yet has no uid.
fn reference_to(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The PersistentVolume as the provisioner would have written it, but with the policy Retain.
fn new_volume(
    name: &str,
    node: &str,
    volume: &VolumeOnNode,
    class: &str,
    claim: ObjectReference,
) -> PersistentVolume {
    let csi = CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: volume.volume_handle.clone(),
        fs_type: volume.fs_type.map(|kind| kind.as_str().to_owned()),
        volume_attributes: Some(BTreeMap::from([("pool".to_owned(), volume.pool.clone())])),
        ..CSIPersistentVolumeSource::default()
    };
    let here = NodeSelectorRequirement {
        key: TOPOLOGY.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![here]), match_fields: None };
    let required = Some(NodeSelector { node_selector_terms: vec![term] });
    let spec = PersistentVolumeSpec {
        access_modes: Some(vec![ACCESS.to_owned()]),
        capacity: Some(storage(volume)),
        claim_ref: Some(claim),
        csi: Some(csi),
        node_affinity: Some(VolumeNodeAffinity { required }),
        persistent_volume_reclaim_policy: Some("Retain".to_owned()),
        storage_class_name: Some(class.to_owned()),
        volume_mode: Some(volume_mode(volume).to_owned()),
        ..PersistentVolumeSpec::default()
    };
    // Without it the provisioner would not remove the volume when one day its policy is Delete.
    let provisioned = ("pv.kubernetes.io/provisioned-by".to_owned(), DRIVER.to_owned());
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        annotations: Some(BTreeMap::from([provisioned])),
        ..ObjectMeta::default()
    };
    PersistentVolume { metadata, spec: Some(spec), status: None }
}
