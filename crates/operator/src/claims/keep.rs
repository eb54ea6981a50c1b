//! The claim of a pod without a swap: it is made, grows, shrinks, or a swap begins. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use crate::api::{AutoscalerMode, AutoscalerPhase, Quantity, Workload};
use crate::claims::AutoscalerReason;
use crate::claims::autoscaled_size::decide_size;
use crate::claims::cancel::wait_if_aborted;
use crate::claims::drift::Drift;
use crate::claims::fence::report_superseded;
use crate::claims::metadata_sync::Marks;
use crate::claims::objects::{is_bound, is_copy, is_ending, without_volume};
use crate::claims::pod_plan::PodPlan;
use crate::claims::resize_in_place::{Shrinking, begin_in_place, has_failed_in_place, way_of};
use crate::claims::rollback::wait_if_rolled_back;
use crate::claims::start::begin_swap;
use crate::claims::steps::Step;
use crate::cluster::{ClaimSizes, KEPT_BY, requested};

/// Shrinks a claim that is only too large, in place or by a swap.
fn shrink(
    plan: &mut PodPlan<'_>,
    claim: &PersistentVolumeClaim,
    size: Quantity,
    change: String,
    may_stop: &mut usize,
) {
    match way_of(plan, claim) {
        Some(Shrinking::InPlace) if has_failed_in_place(plan) || plan.failures > 0 => {
            begin_swap(plan, change, may_stop);
        }
        Some(Shrinking::InPlace) => begin_in_place(plan, size, change, may_stop),
        Some(Shrinking::InPlaceWithoutPod) => {
            let (pod, name) = (plan.pod(), claim.name_any());
            let mode = plan.seen.volume_of(&name).and_then(|volume| volume.mode);
            let message = format!(
                "claim {name} is {}, which shrinks only while no pod uses it: stop pod {pod}{}, and it shrinks \
                 to {size}",
                mode.map(|mode| mode.to_string()).unwrap_or_default(),
                how_to_stop(plan)
            );
            plan.says.phase = Some(AutoscalerPhase::Waiting);
            plan.wait(AutoscalerReason::ClaimInUse, message);
        }
        Some(Shrinking::BySwap) => begin_swap(plan, change, may_stop),
        None => {
            plan.says.phase = Some(AutoscalerPhase::Waiting);
            plan.says.progress = Some(format!(
                "claim {} is to shrink ({change}), but its node has not reported its volume yet",
                claim.name_any()
            ));
        }
    }
}

/// Returns the command that stops the pod, if it is known.
fn how_to_stop(plan: &PodPlan<'_>) -> String {
    match plan.seen.autoscaler.spec.workload() {
        Workload::Deployment(name) => {
            format!(", for example with `kubectl scale deployment {name} --replicas=0`")
        }
        Workload::StatefulSet(_) | Workload::Pods(_) => String::new(),
    }
}

/// Without a swap: make the claim, let it grow, or begin a swap.
pub(super) fn keep(plan: &mut PodPlan<'_>, may_stop: &mut usize) {
    if plan.seen.names_claims() && !plan.seen.has_pod(plan.entry.ordinal) {
        return; // Pods no longer name it, and may again.
    }
    let Some(claim) = plan.seen.claim(&plan.entry.active_claim) else {
        return make_claim(plan);
    };
    if is_ending(&claim.metadata) {
        return; // A new one is made as soon as it is gone.
    }
    if wait_if_taken(plan, claim) {
        return;
    }
    if !plan.seen.keeps(claim) {
        let (ordinal, claim) = (plan.entry.ordinal, claim.name_any());
        plan.steps.push(Step::Adopt { ordinal, claim });
    }
    mark(plan, claim);
    if !is_bound(claim) {
        return wait_for_volume(plan, claim);
    }
    if report_superseded(plan, claim) {
        return;
    }
    drop_untrue_notes(plan, &claim.name_any());
    note_template_size(plan, claim);
    decide_size(plan, claim, *may_stop > 0);
    compare(plan, claim, may_stop);
}

/// Waits until a claim has a volume, or says that it never gets what the template describes now.
fn wait_for_volume(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim) {
    plan.says.phase = Some(AutoscalerPhase::Waiting);
    let (name, namespace) = (claim.name_any(), claim.namespace().unwrap_or_default());
    let has_volume = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    let is_outdated = plan.drift_of(claim).is_of_size_or_class();
    let is_ours = !plan.seen.makes_claims() && !plan.seen.names_claims() && !is_copy(claim);
    if has_volume || !is_outdated || !is_ours {
        // One whose pod is not there yet waits for that, as the claim of an earlier pod may explain.
        if plan.seen.pod(plan.entry.ordinal).is_some() {
            plan.says.progress = Some(without_volume(&name));
        }
        return;
    }
    let message = format!(
        "claim {name} has no volume yet, and differs from the template, which has {} of class {}: Kubernetes changes \
         no such claim. Run `kubectl delete pvc {name} --namespace {namespace}`, and it is created again",
        plan.seen.size_of(&plan.entry),
        plan.wanted_class().unwrap_or("(default)"),
    );
    plan.wait(AutoscalerReason::ClaimOutdated, message);
}

/// Removes untrue annotations of a claim, which a backup restores.
fn drop_untrue_notes(plan: &mut PodPlan<'_>, claim: &str) {
    let notes = plan.seen.untrue_notes.get(claim).cloned();
    let notes = notes.filter(|_| plan.seen.autoscaler.spec.mode == AutoscalerMode::Enforce);
    plan.steps.extend(notes.map(|notes| Step::DropNotes { claim: claim.to_owned(), notes }));
}

/// Stores the template size that the claim requests: a later expansion is from another client.
fn note_template_size(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim) {
    let size = plan.seen.template_size();
    if requested(claim) == Ok(size) {
        plan.entry.template_size = Some(size);
        // What was chosen for a former template has ended with it.
        let chosen = plan.entry.autoscaled_size.take();
        plan.entry.autoscaled_size = chosen.filter(|own| own.template_size == size);
    }
}

/// Writes the present labels and annotations of the template to the claim.
fn mark(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim) {
    let spec = &plan.seen.autoscaler.spec;
    if spec.mode == AutoscalerMode::DryRun {
        return;
    }
    let missing = Marks::missing(&spec.volume_claim_template.metadata, &claim.metadata);
    let claim = claim.name_any();
    plan.steps.extend(missing.map(|marks| Step::Mark { claim, marks }));
}

/// Waits, and returns true, if another PvcAutoscaler manages a claim that pods name themselves: two
/// would resize it by turns.
fn wait_if_taken(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim) -> bool {
    let by = claim.labels().get(KEPT_BY).filter(|_| !plan.seen.keeps(claim));
    let Some(by) = by.filter(|_| plan.seen.names_claims()) else { return false };
    let name = claim.name_any();
    let message = format!(
        "claim {name} is managed by PvcAutoscaler {by}: choose other claims, or delete that one and run \
         `kubectl label pvc {name} {KEPT_BY}-`"
    );
    plan.says.phase = Some(AutoscalerPhase::Waiting);
    plan.wait(AutoscalerReason::ClaimConflict, message);
    true
}

fn make_claim(plan: &mut PodPlan<'_>) {
    if !plan.seen.has_pod(plan.entry.ordinal) {
        return;
    }
    plan.says.phase = Some(AutoscalerPhase::Waiting);
    if plan.seen.names_claims() {
        let message = format!(
            "{} names claim {}, which does not exist: create it",
            plan.seen.autoscaler.spec.workload().in_words(),
            plan.entry.active_claim
        );
        return plan.wait(AutoscalerReason::ClaimsNotFound, message);
    }
    if !plan.seen.makes_claims() {
        plan.steps.push(Step::MakeClaim {
            ordinal: plan.entry.ordinal,
            claim: plan.entry.active_claim.clone(),
            size: plan.seen.size_of(&plan.entry),
        });
    }
}

fn compare(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim, may_stop: &mut usize) {
    let size = plan.seen.size_of(&plan.entry);
    let ClaimSizes { requested, capacity } = match ClaimSizes::of(claim) {
        Ok(sizes) => sizes,
        Err(why) => return plan.report_unreadable(&why),
    };
    match plan.drift_of(claim) {
        Drift::Unreadable(why) => plan.report_unreadable(&why),
        Drift::Larger(change) => {
            let (name, has) = (claim.name_any(), requested);
            let message = format!(
                "claim {name} was expanded beyond the template, by another client or by autoscaling, and is \
                 not reduced ({change}): set {has} in the template; lower that again if the claim is to shrink"
            );
            plan.wait(AutoscalerReason::ClaimLarger, message);
        }
        Drift::Unreduced => {
            let message = format!(
                "claim {} requests {requested}, which failed, and its volume has {capacity}, as the template wants; \
                 Kubernetes reduces the request only to more than that: set a larger size in the template, or \
                 leave it, and the request is tried again",
                claim.name_any()
            );
            plan.wait(AutoscalerReason::ExpansionFailed, message);
        }
        Drift::None if requested > capacity => {
            plan.says.phase = Some(AutoscalerPhase::Expanding);
            let name = claim.name_any();
            plan.says.progress = Some(format!("claim {name} grows from {capacity} to {requested}"));
        }
        Drift::None => {}
        Drift::Grow | Drift::Lower => grow(plan, claim, requested, size),
        Drift::Shrink(_) | Drift::Swap(_) if wait_if_rolled_back(plan) || wait_if_aborted(plan) => {
        }
        Drift::Swap(_) if size > requested && grows_before(plan, claim) => {
            grow(plan, claim, requested, size);
        }
        Drift::Shrink(change) => shrink(plan, claim, size, change, may_stop),
        Drift::Swap(change) => begin_swap(plan, change, may_stop),
        Drift::VolumeModeMismatch => {
            let message = format!(
                "claim {} has another volumeMode than the template, and one cannot be copied to the other: \
                 delete this PvcAutoscaler and create it with the volumeMode of its claims",
                claim.name_any()
            );
            plan.wait(AutoscalerReason::VolumeModeMismatch, message);
        }
    }
}

/// Returns true if a claim that retains its name can grow before it gets another volume: later it has
/// the size of that.
fn grows_before(plan: &PodPlan<'_>, claim: &PersistentVolumeClaim) -> bool {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    let can_grow = class.and_then(|class| plan.seen.classes.get(class)) == Some(&true);
    plan.seen.makes_claims() && can_grow
}

fn grow(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim, has: Quantity, size: Quantity) {
    let name = claim.name_any();
    if plan.seen.autoscaler.spec.mode == AutoscalerMode::DryRun {
        plan.says.phase = Some(AutoscalerPhase::DryRun);
        plan.says.planned_action = Some(format!(
            "pod {}: claim {name} would grow, {has} → {size}; the pod continues to run",
            plan.pod()
        ));
        return;
    }
    plan.says.phase = Some(AutoscalerPhase::Expanding);
    plan.note_larger_size(size);
    plan.steps.push(Step::Grow { claim: name, size });
}
