//! Decides what an edit does, and whether it is possible. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use super::abort::{aborts, in_the_way};
use super::back::back;
use super::space::lacks_of_space;
use super::unkept::unkept;
use super::{Chosen, Edit, EditDecision, ObservedAutoscaler, RequestedChange, Whose};
use crate::api::{NodeStorage, PvcAutoscaler, Quantity, VolumeUsage, Workload};
use crate::bytes::Bytes;
use crate::cluster::{ClaimSizes, requested};
use crate::commands::address::not_found;
use crate::commands::managed::{ClaimRole, ManagedClaim};
use crate::commands::plan::{Plan, PodRow, Procedure, plan_of};
use crate::commands::{AskError, CLAIMS, PODS, PVC_AUTOSCALERS};
use crate::volume::{Shrinks, few};

/// Reported usage of a claim.
struct ReportedUsage<'a> {
    claim: String,
    node: String,
    told: &'a VolumeUsage,
}

/// Decides how a requested change is made.
///
/// # Errors
/// [`AskError::Forbidden`] if the objects may not be read. [`AskError::Refused`] if no such claims exist, or
/// if the change is not possible: what, how much, which command to run instead.
pub fn judge(
    seen: &ObservedAutoscaler,
    whose: &Whose,
    wish: &RequestedChange,
) -> Result<EditDecision, AskError> {
    seen.around.sees(PVC_AUTOSCALERS)?;
    if *wish == RequestedChange::Abort {
        return abort(seen, whose);
    }
    let (autoscaler, claim) = match whose {
        Whose::Claim(name) => {
            seen.around.sees(CLAIMS)?;
            let claim = find_claim(seen, name)?;
            let Some(kept) = ManagedClaim::find(&seen.around.autoscalers, claim) else {
                if *wish == RequestedChange::RollBack {
                    return refused(format!(
                        "no PvcAutoscaler manages claim {name}: there is nothing to roll back to"
                    ));
                }
                fits_one(seen, claim, wish)?;
                seen.around.sees(PODS)?; // Whose pods use it decides what would do it.
                return Ok(EditDecision::Unkept(unkept(seen, claim, wish)));
            };
            (kept.by, Some(active(&kept, name)?))
        }
        Whose::StatefulSet(name) => (of_workload(seen, Workload::StatefulSet(name))?, None),
        Whose::Deployment(name) => (of_workload(seen, Workload::Deployment(name))?, None),
        Whose::Autoscaler(name) => (of_name(seen, name)?, None),
    };
    let back =
        if *wish == RequestedChange::RollBack { back(autoscaler, claim)? } else { Vec::new() };
    if let Some(pods) = in_the_way(autoscaler, &back) {
        let name = addressed(autoscaler, claim);
        return refused(format!(
            "a PVC swap of pod {pods} is in progress, and prevents the rollback: abort it with `{} abort \
             {name} --namespace {}`, and the pod continues with its claim; then roll it back if you want the \
             claim from before",
            seen.program, seen.around.namespace
        ));
    }
    let chosen = Chosen { back, ..Chosen::default() };
    let edited = edited(autoscaler, wish, &chosen);
    let plan = plan_of(&seen.around, &edited);
    goes_the_right_way(seen, autoscaler, claim, wish)?;
    can_be_swapped(seen, autoscaler, &plan, wish)?;
    fits(seen, &plan, wish)?;
    let notes = match wish {
        RequestedChange::RollBack => super::back::notes(autoscaler, &chosen.back),
        _ => notes(seen, autoscaler, &plan, wish),
    };
    let autoscaler = autoscaler.clone();
    Ok(EditDecision::Edit(Box::new(Edit { autoscaler, patch: wish.patch(&chosen), plan, notes })))
}

/// Decides which swaps are aborted.
fn abort(seen: &ObservedAutoscaler, whose: &Whose) -> Result<EditDecision, AskError> {
    let (autoscaler, ordinal) = match whose {
        Whose::Claim(name) => {
            seen.around.sees(CLAIMS)?;
            let claim = find_claim(seen, name)?;
            let Some(kept) = ManagedClaim::find(&seen.around.autoscalers, claim) else {
                return refused(format!(
                    "no PvcAutoscaler manages claim {name}: no PVC swap of it is in progress"
                ));
            };
            (kept.by, Some(kept.ordinal))
        }
        Whose::StatefulSet(name) => (of_workload(seen, Workload::StatefulSet(name))?, None),
        Whose::Deployment(name) => (of_workload(seen, Workload::Deployment(name))?, None),
        Whose::Autoscaler(name) => (of_name(seen, name)?, None),
    };
    let aborts = aborts(autoscaler, ordinal, &seen.program)?;
    let notes = super::abort::notes(autoscaler, &aborts);
    let chosen = Chosen { aborts, ..Chosen::default() };
    let plan = plan_of(&seen.around, &edited(autoscaler, &RequestedChange::Abort, &chosen));
    let (autoscaler, patch) = (autoscaler.clone(), RequestedChange::Abort.patch(&chosen));
    Ok(EditDecision::Edit(Box::new(Edit { autoscaler, patch, plan, notes })))
}

fn refused<T>(reason: impl Into<String>) -> Result<T, AskError> {
    Err(AskError::Refused { reason: reason.into() })
}

fn find_claim<'a>(
    seen: &'a ObservedAutoscaler,
    name: &str,
) -> Result<&'a PersistentVolumeClaim, AskError> {
    let namespace = &seen.around.namespace;
    let there = seen.around.claim(name);
    there.ok_or_else(|| AskError::Refused {
        reason: format!(
            "there is no claim {name} in namespace {namespace}; `kubectl get pvc --all-namespaces` \
             lists them"
        ),
    })
}

/// Returns the claim if it is the active one of its pod.
fn active<'a>(kept: &ManagedClaim<'_>, claim: &'a str) -> Result<&'a str, AskError> {
    match kept.part {
        ClaimRole::Active | ClaimRole::Untold => Ok(claim),
        ClaimRole::Next(_) => refused(format!(
            "claim {claim} is being populated, to become that of pod {}: name the workload of the PvcAutoscaler, {}",
            kept.pod(),
            called(kept.by)
        )),
        ClaimRole::Before(_, entry) => refused(format!(
            "claim {claim} is retained from before a PVC swap: the claim of pod {} is {} now; name that one",
            kept.pod(),
            entry.active_claim
        )),
    }
}

/// Address of the claim, or of the workload of the PvcAutoscaler.
fn addressed(autoscaler: &PvcAutoscaler, claim: Option<&str>) -> String {
    claim.map_or_else(|| called(autoscaler), |claim| format!("pvc/{claim}"))
}

/// Address of the workload.
fn called(autoscaler: &PvcAutoscaler) -> String {
    match autoscaler.spec.workload() {
        Workload::StatefulSet(name) => format!("sts/{name}"),
        Workload::Deployment(name) => format!("deploy/{name}"),
        Workload::Pods(_) => format!("pvcas/{}", autoscaler.name_any()),
    }
}

fn of_name<'a>(seen: &'a ObservedAutoscaler, name: &str) -> Result<&'a PvcAutoscaler, AskError> {
    let mut all = seen.around.autoscalers.iter();
    let found = all.find(|one| one.name_any() == name);
    let namespace = &seen.around.namespace;
    found.ok_or_else(|| not_found("PvcAutoscaler", name, namespace, "pvcautoscalers"))
}

fn of_workload<'a>(
    seen: &'a ObservedAutoscaler,
    whose: Workload<'_>,
) -> Result<&'a PvcAutoscaler, AskError> {
    let its = |one: &&PvcAutoscaler| one.spec.workload() == whose;
    let its: Vec<&PvcAutoscaler> = seen.around.autoscalers.iter().filter(its).collect();
    match its.as_slice() {
        [only] => Ok(only),
        [] => refused(format!(
            "no PvcAutoscaler in namespace {} manages the claims of {}: name one of its claims to see the \
             commands to run",
            seen.around.namespace,
            whose.in_words()
        )),
        several => refused(format!(
            "PvcAutoscalers {} manage claims of {}: name one of the claims",
            few(several.iter().map(|one| one.name_any())),
            whose.in_words()
        )),
    }
}

/// The PvcAutoscaler with the requested change.
fn edited(autoscaler: &PvcAutoscaler, wish: &RequestedChange, chosen: &Chosen) -> PvcAutoscaler {
    let mut edited = autoscaler.clone();
    let template = &mut edited.spec.volume_claim_template.spec;
    match wish {
        RequestedChange::Grow(size) | RequestedChange::Shrink(size) => {
            template.resources.requests.storage = Quantity(*size);
        }
        RequestedChange::Move(class) => template.storage_class_name = Some(class.clone()),
        RequestedChange::RollBack => edited.spec.rollback.clone_from(&chosen.back),
        RequestedChange::Abort => edited.spec.abort.clone_from(&chosen.aborts.abort),
    }
    edited
}

/// Rejects a change in the wrong direction: `shrink` must not expand.
fn goes_the_right_way(
    seen: &ObservedAutoscaler,
    autoscaler: &PvcAutoscaler,
    claim: Option<&str>,
    wish: &RequestedChange,
) -> Result<(), AskError> {
    let template = autoscaler.spec.volume_claim_template.spec.resources.requests.storage;
    let has = match claim.and_then(|name| seen.around.claim(name)).map(requested) {
        Some(Ok(has)) => has,
        Some(Err(why)) => return refused(why.to_string()),
        None => template,
    };
    let capacity = claim.and_then(|name| seen.around.claim(name));
    let capacity =
        capacity.and_then(|claim| ClaimSizes::of(claim).ok()).map(|sizes| sizes.capacity);
    let name = addressed(autoscaler, claim);
    let place = format!("{name} --namespace {}", seen.around.namespace);
    match wish {
        RequestedChange::Shrink(size) if *size == has.0 && has == template => {
            refused(format!("{name} has {has} already: give a smaller size"))
        }
        RequestedChange::Shrink(size) if *size >= has.0 => refused(format!(
            "{name} has {has}, and {} is not less: to expand it, `{} expand {place} {}`",
            Quantity(*size),
            seen.program,
            Quantity(*size)
        )),
        RequestedChange::Shrink(size) if *size == template.0 => refused(format!(
            "the template of PvcAutoscaler {} has {template} already, and {name} was expanded to {has} \
             automatically since: give another size",
            autoscaler.name_any()
        )),
        RequestedChange::Grow(size) if *size == template.0 && has < template => refused(format!(
            "the template of PvcAutoscaler {} has {template} already, and {name} was shrunk to {has} \
             automatically since: raise spec.autoscale.shrink.minSize, or give another size",
            autoscaler.name_any()
        )),
        // What could not be expanded may ask for less, but for more than it has.
        RequestedChange::Grow(size)
            if *size < has.0 && capacity.is_none_or(|capacity| *size <= capacity.0) =>
        {
            refused(format!(
                "{name} has {has}, and {} is less: to shrink it, `{} shrink {place} {}`",
                Quantity(*size),
                seen.program,
                Quantity(*size)
            ))
        }
        RequestedChange::Move(class) if !seen.has_class(class) => refused(format!(
            "there is no StorageClass {class}: choose one of `kubectl get storageclass`"
        )),
        _ => Ok(()),
    }
}

/// Rejects a swap of claims that a pod template names: no other claim can replace them.
fn can_be_swapped(
    seen: &ObservedAutoscaler,
    autoscaler: &PvcAutoscaler,
    plan: &Plan,
    wish: &RequestedChange,
) -> Result<(), AskError> {
    // The operator reports claims that shrink only while no pod uses them.
    let must_swap = |pod: &&PodRow| {
        let shrinks = seen.around.claim(&pod.claim).map(|claim| seen.around.shrinks(claim));
        let can_shrink = shrinks.is_some_and(|shrinks| shrinks != Shrinks::Never);
        pod.by == Procedure::Swap && !(can_shrink && matches!(wish, RequestedChange::Shrink(_)))
    };
    let swaps = plan.pods.iter().any(|pod| must_swap(&pod));
    if !swaps && !matches!(wish, RequestedChange::Move(_)) {
        return Ok(());
    }
    if autoscaler.spec.stateful_set().is_some() {
        return Ok(());
    }
    refused(format!(
        "{} names its claims in its pod template, so they can only expand, or shrink in place: stop its \
         pods, create the new claim, populate it from the present one by a PvcSourcePopulator, and name \
         the new one in the pod template",
        autoscaler.spec.workload().in_words()
    ))
}

/// Rejects a size below the usage that the nodes report.
fn fits(seen: &ObservedAutoscaler, plan: &Plan, wish: &RequestedChange) -> Result<(), AskError> {
    let RequestedChange::Shrink(size) = wish else { return Ok(()) };
    let usages = plan.pods.iter().filter_map(|pod| usage(seen, &pod.claim));
    let too_full = usages.filter(|usage| usage.told.usage.used.0 > *size);
    refuse_full(&too_full.collect::<Vec<_>>(), *size)
}

fn fits_one(
    seen: &ObservedAutoscaler,
    claim: &PersistentVolumeClaim,
    wish: &RequestedChange,
) -> Result<(), AskError> {
    let RequestedChange::Shrink(size) = wish else { return Ok(()) };
    let too_full = usage(seen, &claim.name_any()).filter(|one| one.told.usage.used.0 > *size);
    refuse_full(too_full.as_slice(), *size)
}

fn refuse_full(too_full: &[ReportedUsage<'_>], size: Bytes) -> Result<(), AskError> {
    if too_full.is_empty() {
        return Ok(());
    }
    let full = too_full.iter().map(|one| {
        let used = one.told.usage.used.0;
        format!("{} has {used} of data on node {} ({} too much)", one.claim, one.node, {
            used.saturating_sub(size)
        })
    });
    refused(format!(
        "{size} cannot hold the data of the claims: {}. Nothing was changed; delete data, or request more",
        few(full)
    ))
}

/// Usage of a claim that its node reported last.
fn usage<'a>(seen: &'a ObservedAutoscaler, claim: &str) -> Option<ReportedUsage<'a>> {
    let there = seen.around.claim(claim)?;
    let of_node = |node: &'a NodeStorage| {
        let id = &seen.around.volume_on(node, there)?.volume_handle;
        let told = node.status.as_ref()?.usage.iter().find(|one| one.volume_handle == *id)?;
        Some(ReportedUsage { claim: claim.to_owned(), node: node.name_any(), told })
    };
    seen.around.storages.iter().find_map(of_node)
}

/// Notes to read before the edit is applied.
fn notes(
    seen: &ObservedAutoscaler,
    autoscaler: &PvcAutoscaler,
    plan: &Plan,
    wish: &RequestedChange,
) -> Vec<String> {
    let mut notes = Vec::new();
    let swaps: Vec<&str> = plan
        .pods
        .iter()
        .filter(|pod| pod.by == Procedure::Swap)
        .map(|pod| pod.pod.as_str())
        .collect();
    let ahead = if autoscaler.spec.pre_copy {
        " What is there before is copied while the pod runs, and then what has changed."
    } else {
        ""
    };
    if let [only] = swaps.as_slice() {
        notes.push(format!(
            "Pod {only} is stopped while its claim is copied; the old claim is retained for {}.{ahead}",
            autoscaler.spec.retention
        ));
    } else if !swaps.is_empty() {
        notes.push(format!(
            "Pods {} are stopped while their claims are copied, one after the other, the highest ordinal \
             first; the old claims are retained for {}.{ahead}",
            few(&swaps),
            autoscaler.spec.retention
        ));
    }
    let outdated = plan.pods.iter().filter(|pod| pod.by == Procedure::Recreate);
    let outdated: Vec<&str> = outdated.map(|pod| pod.claim.as_str()).collect();
    if !outdated.is_empty() {
        notes.push(format!(
            "Kubernetes does not change claims without a volume. Delete them, and they are created again: `kubectl \
             delete pvc {} --namespace {}`.",
            outdated.join(" "),
            plan.namespace
        ));
    }
    if matches!(wish, RequestedChange::Shrink(_)) {
        let unknown = |by: Procedure| {
            let pods = plan.pods.iter().filter(move |pod| pod.by == by);
            let unknown = pods.filter(|pod| usage(seen, &pod.claim).is_none());
            let claims: Vec<&str> = unknown.map(|pod| pod.claim.as_str()).collect();
            (!claims.is_empty()).then(|| format!("The usage of {} is not known", few(&claims)))
        };
        let of_swaps = unknown(Procedure::Swap)
            .map(|it| it + ": if its data does not fit, the pod gets its old claim again.");
        let can_swap = matches!(autoscaler.spec.workload(), Workload::StatefulSet(_));
        let then =
            if can_swap { "its pod is stopped for a copy instead" } else { "nothing changes" };
        let in_place = unknown(Procedure::Shrink).map(|it| {
            format!("{it}: if its data does not fit, its file system does not shrink, and {then}.")
        });
        notes.extend(of_swaps.into_iter().chain(in_place));
    }
    if let RequestedChange::Grow(size) = wish {
        notes.extend(lacks_of_space(seen, plan, *size));
    }
    if plan.pods.iter().any(|pod| pod.held.is_some()) {
        notes.push("Lines with `not yet` wait for what they name.".to_owned());
    }
    notes
}

impl Edit {
    /// Describes for people the effect on each claim, and the notes.
    pub fn in_words(&self, wish: &RequestedChange) -> String {
        use crate::doctor::{WIDTH, wrapped};
        let what = match wish {
            RequestedChange::Grow(_) | RequestedChange::Shrink(_) => "the size",
            RequestedChange::Move(_) => "the class",
            RequestedChange::RollBack | RequestedChange::Abort => "",
        };
        let (namespace, name, whose) = (&self.plan.namespace, &self.plan.name, &self.plan.workload);
        let head = match wish {
            RequestedChange::RollBack => format!(
                "This rolls back pods of {whose} to the claims from before their last PVC swap, by \
                 PvcAutoscaler {namespace}/{name}:"
            ),
            RequestedChange::Abort => format!(
                "This aborts PVC swaps of pods of {whose} and does nothing else, by PvcAutoscaler {namespace}/{name}:"
            ),
            _ => format!(
                "This edits {what} in the template of PvcAutoscaler {namespace}/{name}, and so all claims \
                 that it manages for {whose}:"
            ),
        };
        let notes = self.notes.iter().map(|note| wrapped(note, "", WIDTH));
        wrapped(&head, "", WIDTH)
            + &crate::commands::plan::table(&self.plan)
            + &notes.collect::<String>()
    }
}
