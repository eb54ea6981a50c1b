//! Objects and commands for a claim that no PvcAutoscaler manages. Pure.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{ObservedAutoscaler, RequestedChange, Unkept};
use crate::api::Quantity;

/// Objects that would make the change: a PvcAutoscaler if a pod of a StatefulSet uses the claim, else a copy.
pub(super) fn unkept(
    seen: &ObservedAutoscaler,
    claim: &PersistentVolumeClaim,
    wish: &RequestedChange,
) -> Unkept {
    let name = claim.name_any();
    let user = seen.pods.iter().find_map(|pod| Some((workload(pod)?, volume(pod, &name)?)));
    let Some((set, volume)) = user else { return by_copy(claim, wish) };
    let why = format!(
        "no PvcAutoscaler manages claim {name}; nothing was changed. The one printed here would do it for \
         the claims of all pods of StatefulSet {set}, each pod stopped while its claim is copied. \
         See \"Resize and migrate StatefulSet volumes\" in the documentation."
    );
    let autoscaler = json!({
        "apiVersion": "pliant.io/v1alpha1",
        "kind": "PvcAutoscaler",
        "metadata": {"name": format!("{set}-{volume}"), "namespace": claim.namespace()},
        "spec": {
            "statefulSetName": set,
            "volumeClaimTemplate": {
                "metadata": {"name": volume},
                "spec": spec(claim, wish),
            },
        },
    });
    Unkept { why, objects: vec![autoscaler] }
}

/// A copy of the claim, which a workload then names in place of it.
fn by_copy(claim: &PersistentVolumeClaim, wish: &RequestedChange) -> Unkept {
    let (name, namespace) = (claim.name_any(), claim.namespace());
    let copy = format!("{name}-copy");
    let why = format!(
        "no PvcAutoscaler manages claim {name}, and no pod of a StatefulSet that could have one uses it; \
         nothing was changed. The objects printed here copy it to claim {copy}: stop its pods, apply the \
         objects, and use {copy} in the pods. See \"Populate a volume\" in the documentation."
    );
    let source = json!({
        "apiVersion": "pliant.io/v1alpha1",
        "kind": "PvcSourcePopulator",
        "metadata": {"name": copy, "namespace": namespace},
        "spec": {"sourcePvcRef": {"name": name}},
    });
    let mut spec = spec(claim, wish);
    spec["dataSourceRef"] =
        json!({"apiGroup": "pliant.io", "kind": "PvcSourcePopulator", "name": copy});
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": copy, "namespace": namespace},
        "spec": spec,
    });
    Unkept { why, objects: vec![source, claim] }
}

/// Specification of a claim with the requested change.
fn spec(claim: &PersistentVolumeClaim, wish: &RequestedChange) -> Value {
    let has = claim.spec.clone().unwrap_or_default();
    let asked = has.resources.and_then(|all| all.requests?.remove("storage"));
    let size = match wish.size() {
        Some(size) => json!(Quantity(size)),
        None => json!(asked), // As it is written, whatever it is.
    };
    let class = match wish {
        RequestedChange::Move(class) => Some(class.clone()),
        _ => has.storage_class_name,
    };
    let mut spec = json!({
        "accessModes": has.access_modes.unwrap_or_default(),
        "resources": {"requests": {"storage": size}},
    });
    if let Some(class) = class {
        spec["storageClassName"] = json!(class);
    }
    if let Some(mode) = has.volume_mode {
        spec["volumeMode"] = json!(mode);
    }
    spec
}

/// The StatefulSet of a pod.
fn workload(pod: &Pod) -> Option<String> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut sets = owners.filter(|owner| owner.kind == "StatefulSet");
    sets.next().map(|owner| owner.name.clone())
}

/// The volume by which a pod uses a claim, if the name of the claim is that of a template; others are not
/// adopted.
fn volume(pod: &Pod, claim: &str) -> Option<String> {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let has_it = volumes.find(|volume| {
        let named = volume.persistent_volume_claim.as_ref();
        named.is_some_and(|named| named.claim_name == claim)
    });
    let volume = has_it?.name.clone();
    (claim == format!("{volume}-{}", pod.name_any())).then_some(volume)
}
