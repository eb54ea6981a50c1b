//! Claims to create, and their populators. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::{
    PopulatorPod, PvcAutoscaler, PvcSourcePopulator, PvcSourcePopulatorSpec, Quantity, SourcePvcRef,
};
use crate::claims::ORDINAL;
use crate::claims::objects::uid;
use crate::claims::observed::ObservedWorkload;
use crate::cluster::{HELD_BY_POPULATOR, KEPT_BY};
use crate::populators::SELECTED_NODE;

/// Returns the first name of a claim: as a StatefulSet names it, or as pods name it themselves.
pub(super) fn plain_name(seen: &ObservedWorkload, ordinal: i32) -> String {
    let named = seen.workload.as_ref().and_then(|workload| workload.named(ordinal));
    named.cloned().unwrap_or_else(|| format!("{}-{}", seen.volume(), seen.pod_name(ordinal)))
}

/// Number of possible names for a claim of one revision and specification.
const NAMES: u32 = 64;

/// The name of the claim that a pod gets for the specification as it is: it is that of no claim before.
pub(super) fn hashed_name(seen: &ObservedWorkload, ordinal: i32, revision: i64) -> String {
    nth_name(seen, ordinal, revision, 0)
}

/// Returns a name for the new claim of a swap that no existing claim has: one of an earlier attempt
/// may be retained.
pub(super) fn free_name(seen: &ObservedWorkload, ordinal: i32, revision: i64) -> String {
    let mut names = (0..NAMES).map(|number| nth_name(seen, ordinal, revision, number));
    let is_taken = |name: &String| seen.claims.contains_key(name) || seen.taken.contains_key(name);
    names.find(|name| !is_taken(name)).unwrap_or_else(|| hashed_name(seen, ordinal, revision))
}

fn nth_name(seen: &ObservedWorkload, ordinal: i32, revision: i64, number: u32) -> String {
    let number = if number == 0 { String::new() } else { format!("/{number}") };
    let of = format!(
        "{}/{ordinal}/{revision}/{}{number}",
        uid(&seen.autoscaler.metadata),
        seen.generation()
    );
    let digest = Sha256::digest(of);
    format!("{}-{:02x}{:02x}{:x}", plain_name(seen, ordinal), digest[0], digest[1], digest[2] >> 4)
}

/// The claim of a pod, empty.
pub(super) fn claim(
    autoscaler: &PvcAutoscaler,
    ordinal: i32,
    name: &str,
    size: Quantity,
) -> PersistentVolumeClaim {
    typed(json_of(autoscaler, ordinal, name, size))
}

/// Returns the claim of a pod that the source of the same name populates. Its volume is created on
/// `node`, if given: otherwise the scheduler might choose one on which the source cannot be read.
/// It has the finalizer of populators from the start, which saves them a write.
pub(super) fn copy(
    autoscaler: &PvcAutoscaler,
    ordinal: i32,
    name: &str,
    size: Quantity,
    node: Option<&str>,
) -> PersistentVolumeClaim {
    let mut claim = json_of(autoscaler, ordinal, name, size);
    if let Some(node) = node {
        claim["metadata"]["annotations"][SELECTED_NODE] = json!(node);
    }
    claim["metadata"]["finalizers"] = json!([HELD_BY_POPULATOR]);
    claim["spec"]["dataSourceRef"] =
        json!({"apiGroup": "pliant.io", "kind": "PvcSourcePopulator", "name": name});
    typed(claim)
}

fn typed(claim: Value) -> PersistentVolumeClaim {
    serde_json::from_value(claim).expect("a claim")
}

fn json_of(autoscaler: &PvcAutoscaler, ordinal: i32, name: &str, size: Quantity) -> Value {
    let template = &autoscaler.spec.volume_claim_template;
    let mut labels = template.metadata.labels.clone();
    labels.extend(labels_of(autoscaler, ordinal));
    let mut spec = json!(template.spec);
    spec["resources"]["requests"]["storage"] = json!(size);
    json!({
        "metadata": {
            "name": name,
            "namespace": autoscaler.namespace(),
            "labels": labels,
            "annotations": template.metadata.annotations,
        },
        "spec": spec,
    })
}

/// Labels of managed claims.
pub(super) fn labels_of(autoscaler: &PvcAutoscaler, ordinal: i32) -> [(String, String); 2] {
    [(KEPT_BY.to_owned(), autoscaler.name_any()), (ORDINAL.to_owned(), ordinal.to_string())]
}

/// Returns the populator of a new claim: it copies the predecessor as soon as nothing writes to
/// that.
pub(super) fn source(
    autoscaler: &PvcAutoscaler,
    ordinal: i32,
    name: &str,
    from: &str,
    populator_pod: &PopulatorPod,
) -> PvcSourcePopulator {
    let spec = PvcSourcePopulatorSpec {
        source_pvc_ref: SourcePvcRef { name: from.to_owned(), namespace: None },
        allow_in_use_source: false,
        wait_for_consumer: false,
        paused: true, // Until the status assigns the new claim to the next pod.
        pre_copy: autoscaler.spec.pre_copy,
        verification: autoscaler.spec.verification,
        probe: true,
        populator_pod: populator_pod.clone(),
    };
    let mut source = PvcSourcePopulator::new(name, spec);
    source.metadata.namespace = autoscaler.namespace();
    source.metadata.labels = Some(labels_of(autoscaler, ordinal).into());
    source
}
