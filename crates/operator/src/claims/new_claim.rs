//! Makes the new claim of a swap, and its populator. Pure.

use kube::ResourceExt;

use crate::api::Swap;
use crate::claims::AutoscalerReason;
use crate::claims::objects::{is_copy, uid};
use crate::claims::pod_plan::PodPlan;
use crate::claims::steps::Step;
use crate::cluster::KEPT_BY;

/// Creates what is missing for the copy; returns true if nothing was.
pub(super) fn make_missing(
    plan: &mut PodPlan<'_>,
    swap: &mut Swap,
    name: &str,
    from: &str,
) -> bool {
    let (ordinal, size) = (plan.entry.ordinal, plan.seen.size_of(&plan.entry));
    let claim = name.to_owned();
    let is_known = swap.claim_uid.is_some();
    if is_known && plan.seen.taken.contains_key(name) {
        let message = format!(
            "claim {name} has another uid than the one that was created for the swap of pod {}: another \
             client created it, so it is not used; delete it, or edit the template",
            plan.pod()
        );
        plan.wait(AutoscalerReason::ClaimConflict, message);
        return false;
    }
    if !plan.seen.sources.contains_key(name) {
        let (claim, from) = (claim.clone(), from.to_owned());
        plan.steps.push(Step::MakeSource { ordinal, claim, from });
    }
    let there = plan.seen.claim(name).or_else(|| plan.seen.taken.get(name));
    let Some(there) = there else {
        swap.claim_uid = None;
        let (from, node) = (from.to_owned(), swap.node.clone());
        plan.note_larger_size(size);
        plan.steps.push(Step::MakeCopy { ordinal, claim, size, from, node });
        return false;
    };
    if plan.seen.keeps(there) && is_copy(there) {
        return plan.seen.sources.contains_key(name);
    }
    // It was made for this swap, and only the label was taken off, or changed, by which it is found.
    let is_known = swap.claim_uid.as_deref() == Some(uid(&there.metadata));
    if is_copy(there) && (is_known || !there.labels().contains_key(KEPT_BY)) {
        plan.steps.push(Step::Adopt { ordinal, claim });
        return false;
    }
    let message =
        format!("claim {name} belongs to another client: delete it, or edit the template");
    plan.wait(AutoscalerReason::ClaimConflict, message);
    false
}
