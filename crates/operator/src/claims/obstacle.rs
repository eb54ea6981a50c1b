//! What makes a swap of a claim impossible, before anything is stopped. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::api::MOST_RETAINED;
use crate::claims::AutoscalerReason;
use crate::claims::pod_plan::PodPlan;
use crate::cluster::requested;

/// Returns why a claim cannot get another volume under its name, before anything is stopped.
fn obstacle_to_same_name(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let (seen, name) = (plan.seen, &plan.entry.active_claim);
    let claim = seen.claim(name)?;
    let fixed = |why: String| Some((AutoscalerReason::SwapUnsupported, why));
    if let Some(field) = unchangeable(plan, claim) {
        return fixed(format!(
            "claim {name} retains its name, but Kubernetes does not allow changes of the {field} of a \
             claim: set the template to what it has"
        ));
    }
    if matches!(seen.volumes.get(name), Some(None)) {
        return fixed(format!(
            "claim {name} retains its name, but its volume is another driver's: only a volume of this \
             driver can be exchanged under it"
        ));
    }
    let class = seen.autoscaler.spec.volume_claim_template.spec.storage_class_name.as_ref();
    if let Some(class) = class.filter(|class| seen.foreign.contains(*class)) {
        return fixed(format!(
            "claim {name} retains its name, but volumes of class {class} are another driver's: choose a \
             class of this driver"
        ));
    }
    let (has, wants) = match requested(claim) {
        Ok(has) => (has, seen.size_of(&plan.entry)),
        Err(why) => return Some((AutoscalerReason::InvalidSize, why.to_string())),
    };
    if wants > has {
        return fixed(format!(
            "claim {name} retains its name, but its class does not allow expansion from {has} to {wants}: \
             set allowVolumeExpansion of that class, or request no more than {has}"
        ));
    }
    let why = seen.coverage.lacks()?;
    let message = format!(
        "the start of pods of {} cannot be delayed yet while a claim gets another volume: {why}",
        seen.autoscaler.spec.workload().in_words()
    );
    Some((AutoscalerReason::WebhookNotReady, message))
}

/// The field of a claim that differs from the template and never changes.
fn unchangeable(plan: &PodPlan<'_>, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let (template, spec) =
        (&plan.seen.autoscaler.spec.volume_claim_template.spec, claim.spec.as_ref()?);
    let sorted = |modes: &[String]| {
        let mut modes = modes.to_vec();
        modes.sort();
        modes
    };
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if sorted(modes) != sorted(&template.access_modes) {
        return Some("accessModes");
    }
    let attributes = &template.volume_attributes_class_name;
    let differs = attributes.is_some() && spec.volume_attributes_class_name != *attributes;
    differs.then_some("volumeAttributesClassName")
}

/// Returns what makes a swap impossible, before anything is stopped.
pub(super) fn obstacle(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let spec = &plan.seen.autoscaler.spec;
    if plan.seen.names_claims() {
        let (whose, claim) = (spec.workload().in_words(), &plan.entry.active_claim);
        let message = format!(
            "{whose} names claim {claim} itself, so that can only grow, or shrink in place: stop its pods, \
             create the claim that you want, which a PvcSourcePopulator populates from {claim}, and name \
             that one there"
        );
        return Some((AutoscalerReason::SwapUnsupported, message));
    }
    let class = spec.volume_claim_template.spec.storage_class_name.as_ref();
    if let Some(class) = class.filter(|class| !plan.seen.classes.contains_key(*class)) {
        let message = format!(
            "there is no StorageClass {class}: create it, or choose one of `kubectl get storageclass`"
        );
        return Some((AutoscalerReason::StorageClassNotFound, message));
    }
    let too_many = retains_too_many(plan);
    too_many.or_else(|| obstacle_to_same_name(plan).filter(|_| plan.seen.makes_claims()))
}

/// Returns the reason if one more retained claim would be the last that the status takes. Old claims are
/// retained for their time, so a swap that the status could not list does not start.
fn retains_too_many(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let retained = &plan.entry.retained_claims;
    let oldest = retained.first().filter(|_| retained.len() >= MOST_RETAINED - 1)?;
    let message = format!(
        "pod {} has {} retained claims, and no swap starts with so many: lower spec.retention of the \
         PvcAutoscaler, or delete those that are not needed, for example `kubectl delete pvc {}`",
        plan.pod(),
        retained.len(),
        oldest.name
    );
    Some((AutoscalerReason::TooManyRetainedClaims, message))
}
