//! A swap under an unchanged name: the claim that a StatefulSet makes by its own template gets the volume
//! with the copy, and the claim with the copy the old one. Its pod waits behind a scheduling gate. Pure.

use crate::api::Swap;
use crate::claims::pod_plan::PodPlan;
use crate::cluster::requested;

/// Returns why the new claim is or may be larger than the one that is to get its volume: a claim grows only
/// if its class allows it.
pub(super) fn outgrows(plan: &PodPlan<'_>, swap: &Swap) -> Option<String> {
    let (name, from) = (swap.claim.clone(), &plan.entry.active_claim);
    let sizes = (requested(plan.seen.claim(&name)?), requested(plan.seen.claim(from)?));
    let (to, has) = match sizes {
        (Ok(to), Ok(has)) => (to, has),
        (Err(why), _) | (_, Err(why)) => return swap.preserves_name.then(|| why.to_string()),
    };
    (swap.preserves_name && to > has).then(|| {
        format!("the template or claim {name} was edited meanwhile: that has {to}, and claim {from} only \
                 {has}")
    })
}

/// Returns why the new claim can never give its volume to the one that retains its name: the template
/// may name no class, or have named another one when the swap started.
pub(super) fn is_foreign(plan: &PodPlan<'_>, swap: &Swap) -> Option<String> {
    let name = swap.claim.clone();
    let class = plan.seen.claim(&name)?.spec.as_ref()?.storage_class_name.as_ref()?;
    (swap.preserves_name && plan.seen.foreign.contains(class)).then(|| {
        format!(
            "claim {name} has class {class}, whose volumes are another driver's: set a class of this \
             driver in the template"
        )
    })
}
