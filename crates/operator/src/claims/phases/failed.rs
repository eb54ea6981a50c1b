//! A failed swap: the pod has its old claim. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{AutoscalerPhase, Swap};
use crate::claims::AutoscalerReason;
use crate::claims::phases::next::Next;
use crate::claims::pod_plan::PodPlan;

/// Reports a failed swap until it is retried, or its template is edited.
pub(super) fn step(plan: &mut PodPlan<'_>, swap: &Swap) -> Next {
    plan.says.phase = Some(AutoscalerPhase::Failed);
    let why = swap.message.clone().unwrap_or_default();
    let again = match &swap.next_retry_time {
        Some(Time(at)) if *at <= plan.seen.now => "a retry is due".to_owned(),
        Some(Time(at)) => {
            format!("it is retried at {at}, and as soon as the template is edited")
        }
        None => "edit the template to retry it".to_owned(),
    };
    let message = format!(
        "the swap of pod {} has failed, and the pod has its old claim: {why}; {again}",
        plan.pod()
    );
    plan.wait(AutoscalerReason::SwapFailed, message);
    Next::Wait
}
