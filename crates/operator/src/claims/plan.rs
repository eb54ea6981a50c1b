//! Plans the next steps for the claims of a workload. Pure; a plan after its own application is
//! empty.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use crate::api::{
    AutoscalerMode, AutoscalerPhase, FillingPhase, LONGEST_LINE, MOST_RETAINED, OrdinalStatus,
    PvcAutoscalerStatus, Retained, SwapPhase,
};
use crate::claims::drift::Drift;
use crate::claims::objects::{
    bounded, drop_as_seen, has_ended, is_bound, is_copy, is_ending, is_fillable, retained_from_now,
    uses,
};
use crate::claims::observed::{ClockSeen, ObservedWorkload, PodController};
use crate::claims::ordinal::plan_pod;
use crate::claims::pod_plan::Says;
use crate::claims::siblings::{busy_elsewhere, is_busy};
use crate::claims::steps::Step;
use crate::claims::workload::{may_begin, of_the_whole};
use crate::claims::{AutoscalerReason, ORDINAL, SUPERSEDED_BY, is_wanted_aborted, manifests};
use crate::cluster::{ClaimSizes, ClockSkew};
use crate::volume::Use;

/// New status and the steps that follow it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkloadPlan {
    pub status: PvcAutoscalerStatus,
    pub steps: Vec<Step>,
}

/// Plans the next steps.
pub(super) fn plan(seen: &ObservedWorkload) -> WorkloadPlan {
    if let Some(elder) = &seen.elder {
        return stand_back(seen, elder);
    }
    let mut status = seen.autoscaler.status.clone().unwrap_or_default();
    let (entries, mut says) = entries(seen, &status.ordinals);
    let mut may_stop = may_stop(seen, &entries);
    let others_wait = entries.iter().any(|one| holds_others_up(seen, one));
    let mut steps = Vec::new();
    let mut told: Vec<OrdinalStatus> = Vec::new();
    for entry in entries.into_iter().rev() {
        let turn = plan_pod(seen, entry, &mut may_stop, others_wait);
        steps.extend(turn.steps);
        says.push(turn.says);
        told.push(turn.entry);
    }
    told.reverse();
    steps.extend(sweep(seen, &told));
    steps.extend(untrue_ends(seen, &told));
    if let ClockSeen::Differs(skew) = seen.clock {
        steps.push(tell_of_skew(seen, skew));
    }
    let refused = seen
        .refusal
        .as_ref()
        .filter(|refusal| steps.iter().any(|step| step.claim_asked_for() == Some(&refusal.claim)));
    if let Some(refused) = refused {
        let problem = Some((AutoscalerReason::ClaimForbidden, refused.to_string()));
        says.push(Says { problem, ..Says::default() });
    }
    if let Some(problem) = of_the_whole(seen) {
        says.push(Says { problem: Some(problem), ..Says::default() });
    }
    status.ordinals = told;
    status.observed_generation = seen.generation();
    summarize(&mut status, seen, &says);
    WorkloadPlan { status, steps }
}

/// Each replica has its own clock, so this is no matter of the status, which all of them write.
fn tell_of_skew(seen: &ObservedWorkload, skew: ClockSkew) -> Step {
    let text = format!(
        "the clock of an operator is {skew}, so it deletes no retained claim: synchronize the clock of its \
         node, for example by NTP, and restart the operator"
    );
    Step::Tell { reason: AutoscalerReason::ClockSkew, subject: seen.generation().to_string(), text }
}

/// Leaves the claims to an older PvcAutoscaler, as if this one were deleted: unfinished swaps are
/// reverted, and their objects deleted.
fn stand_back(seen: &ObservedWorkload, elder: &str) -> WorkloadPlan {
    let mut status = seen.autoscaler.status.clone().unwrap_or_default();
    let message = format!(
        "PvcAutoscaler {elder}, which is older, already manages the claims {} of {}, so this one does nothing: \
         delete one of the two; if you delete {elder}, this one adopts its claims",
        seen.volume(),
        seen.autoscaler.spec.workload().in_words()
    );
    let problem = Some((AutoscalerReason::ClaimConflict, message));
    status.ordinals = Vec::new();
    status.observed_generation = seen.generation();
    summarize(&mut status, seen, &[Says { problem, ..Says::default() }]);
    WorkloadPlan { status, steps: sweep(seen, &[]) }
}

/// Deletes what a replica has created from an outdated plan: no status refers to it. A claim with a
/// volume is never deleted.
fn sweep(seen: &ObservedWorkload, told: &[OrdinalStatus]) -> Vec<Step> {
    let swaps = told.iter().filter_map(|one| one.swap.as_ref());
    let swaps = swaps.filter(|swap| swap.phase != SwapPhase::Failed);
    let swaps: BTreeSet<&String> = swaps.map(|swap| &swap.claim).collect();
    let is_active = |name: &String| told.iter().any(|one| one.active_claim == *name);
    let claims = seen.claims.iter().filter(|(name, claim)| {
        !seen.names_claims() // Their populators belong to other clients.
            && !swaps.contains(name)
            && !is_active(name)
            && seen.keeps(claim)
            && is_copy(claim)
            && is_fillable(claim)
    });
    // One that another replica has made late, after the one that the status knows was deleted.
    let late = seen.taken.values();
    let late = late.filter(|claim| seen.keeps(claim) && is_copy(claim) && is_fillable(claim));
    let sources = seen.sources.keys().filter(|name| !swaps.contains(name));
    let claims = claims.map(|(_, claim)| claim).chain(late).map(drop_as_seen);
    claims.chain(sources.map(|name| Step::DropSource { claim: name.clone() })).collect()
}

/// Returns an entry for each desired pod, and for each claim that a pod had before the workload was
/// scaled down. A new entry names the existing claim, or the one to create.
fn entries(seen: &ObservedWorkload, told: &[OrdinalStatus]) -> (Vec<OrdinalStatus>, Vec<Says>) {
    let (mut entries, mut says): (Vec<OrdinalStatus>, Vec<Says>) = (told.to_vec(), Vec::new());
    let is_of_use = |one: &OrdinalStatus| {
        seen.has_pod(one.ordinal)
            || one.swap.is_some()
            || one.is_shrinking()
            || !one.retained_claims.is_empty()
            // Also of a claim that pods no longer name: they may again, and what it has grown to is known.
            || seen
                .claim(&one.active_claim)
                .is_some_and(|claim| !seen.names_claims() || seen.keeps(claim))
    };
    entries.retain(is_of_use);
    let kept: BTreeSet<i32> = entries.iter().map(|one| one.ordinal).collect();
    // Of those beyond the window nothing was read.
    let seen_now: BTreeSet<i32> =
        told.iter().map(|one| one.ordinal).chain(seen.new_ordinals()).collect();
    for ordinal in seen.workload.iter().flat_map(PodController::ordinals) {
        if kept.contains(&ordinal) || !seen_now.contains(&ordinal) {
            continue;
        }
        if let Some(name) = claim_in_the_making(seen, ordinal) {
            let progress =
                Some(format!("claim {name} was created for a swap that no longer exists"));
            says.push(Says { phase: Some(AutoscalerPhase::Waiting), progress, ..Says::default() });
            continue;
        }
        match active_claim(seen, ordinal) {
            Ok(name) if is_kept_for_a_copy(seen, &name) => {
                let progress = format!(
                    "the volume of claim {name} is read-only for a swap that no longer exists: it becomes \
                     writable as soon as no process has it open"
                );
                let (phase, progress) = (Some(AutoscalerPhase::Waiting), Some(progress));
                says.push(Says { phase, progress, ..Says::default() });
            }
            Ok(active_claim) => {
                let retained = superseded_by(seen, ordinal, &active_claim);
                entries.push(OrdinalStatus {
                    ordinal,
                    active_claim,
                    retained_claims: retained,
                    ..OrdinalStatus::default()
                });
            }
            Err(problem) => says.push(Says { problem: Some(problem), ..Says::default() }),
        }
    }
    for one in &mut entries {
        let spare = spare_copies(seen, one);
        one.retained_claims.extend(spare);
    }
    entries.sort_by_key(|one| one.ordinal);
    (entries, says)
}

/// Returns claims with copies without a status, for a pod that names its own claim and so never gets one of them,
/// or that were populated too early: a PvcAutoscaler that was deleted midway created them. They are retained for
/// their time, like old claims.
fn spare_copies(seen: &ObservedWorkload, one: &OrdinalStatus) -> Vec<Retained> {
    if one.swap.is_some() || one.is_shrinking() {
        return Vec::new();
    }
    let number = one.ordinal.to_string();
    let is_in_status = |name: String| {
        one.active_claim == name || one.retained_claims.iter().any(|old| old.name == name)
    };
    let is_spare = |claim: &&PersistentVolumeClaim| {
        seen.keeps(claim)
            && claim.labels().get(ORDINAL) == Some(&number)
            && is_copy(claim)
            && is_bound(claim)
            && !is_ending(&claim.metadata)
            && !is_in_status(claim.name_any())
            && (seen.makes_claims() || is_early_copy(seen, &claim.name_any()))
    };
    let most = (MOST_RETAINED - 1).saturating_sub(one.retained_claims.len());
    let spare = seen.claims.values().filter(is_spare).take(most).map(retained_from_now);
    spare.map(|one| Retained { never_used: true, ..one }).collect()
}

/// Returns the claims that name this one as their replacement: a deleted PvcAutoscaler created them, and their
/// retention starts again.
fn superseded_by(seen: &ObservedWorkload, ordinal: i32, active: &str) -> Vec<Retained> {
    let number = ordinal.to_string();
    let is_old = |claim: &&PersistentVolumeClaim| {
        seen.keeps(claim)
            && claim.labels().get(ORDINAL) == Some(&number)
            && claim.annotations().get(SUPERSEDED_BY).map(String::as_str) == Some(active)
            && is_bound(claim)
            && claim.name_any() != active
    };
    seen.claims.values().filter(is_old).take(MOST_RETAINED - 1).map(retained_from_now).collect()
}

/// Returns a claim of a pod without a status that is still being populated: a pod may start with it at
/// any moment, so it is deleted first, or else is one of the candidates.
fn claim_in_the_making(seen: &ObservedWorkload, ordinal: i32) -> Option<&String> {
    if seen.names_claims() {
        return None; // Their populators belong to other clients.
    }
    let ordinal = ordinal.to_string();
    let is_its = |claim: &PersistentVolumeClaim| {
        seen.keeps(claim) && claim.labels().get(ORDINAL) == Some(&ordinal)
    };
    let mut made = seen.claims.iter().filter(|(_, claim)| is_its(claim) && is_copy(claim));
    made.find(|(_, claim)| is_fillable(claim)).map(|(name, _)| name)
}

/// Returns the claim of a pod without a status: the existing one, or a new one.
fn active_claim(
    seen: &ObservedWorkload,
    ordinal: i32,
) -> Result<String, (AutoscalerReason, String)> {
    let plain = manifests::plain_name(seen, ordinal);
    if seen.claims_are_fixed() {
        return Ok(plain);
    }
    let number = ordinal.to_string();
    let is_its = |claim: &&PersistentVolumeClaim| {
        let is_kept = seen.keeps(claim) || seen.left.contains(&claim.name_any());
        is_kept && claim.labels().get(ORDINAL) == Some(&number) && is_bound(claim)
    };
    let all: Vec<&PersistentVolumeClaim> = seen.claims.values().filter(is_its).collect();
    let mut its: Vec<String> = all.iter().map(|claim| claim.name_any()).collect();
    // Among existing claims, one replaces another. An annotation that names none of them, as on a claim that was
    // restored without its successors, or several that name each other, do not show where the data is.
    let superseded = |name: &String| {
        let claim = all.iter().find(|claim| claim.name_any() == *name);
        let by = claim.and_then(|claim| claim.annotations().get(SUPERSEDED_BY));
        by.is_some_and(|by| by != name && its.contains(by))
    };
    let newest: Vec<String> = its.iter().filter(|name| !superseded(name)).cloned().collect();
    if !newest.is_empty() {
        its = newest;
    }
    // The source of another one is the older of the two. One that was populated before its source
    // was proved unused may lack writes, and is not newer.
    let mut copied: Vec<String> = Vec::new();
    for copy in &its {
        let is_filled =
            seen.filling(copy).is_some_and(|told| told.phase == FillingPhase::Succeeded);
        let source = seen.sources.get(copy).filter(|_| is_filled);
        let from = source.map(|source| &source.spec.source_pvc_ref.name);
        let Some(from) = from.filter(|from| *from != copy && its.contains(from)) else { continue };
        copied.push(if is_early_copy(seen, copy) { copy.clone() } else { from.clone() });
    }
    // What a pod has on its node, it writes to.
    let pod = seen.pod(ordinal).filter(|pod| !has_ended(pod));
    let pod = pod.filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    let of_pod = pod.and_then(|pod| its.iter().find(|name| uses(pod, name))).cloned();
    match of_pod {
        Some(name) => its = vec![name],
        None => its.retain(|name| !copied.contains(name)),
    }
    match its.as_slice() {
        [only] => Ok(only.clone()),
        [] if seen.claim(&plain).is_some() => Ok(plain),
        [] => Ok(manifests::hashed_name(seen, ordinal, 0)),
        several => {
            let message = format!(
                "each of the claims {} could be that of pod {}: annotate all but one with \
                 {SUPERSEDED_BY}=NAME, where NAME is the claim to use",
                several.join(", "),
                seen.pod_name(ordinal)
            );
            Err((AutoscalerReason::AmbiguousClaimName, message))
        }
    }
}

/// Returns true if a new claim of an unfinished swap was populated without proof that its source was unused before:
/// a user started that.
fn is_early_copy(seen: &ObservedWorkload, name: &str) -> bool {
    let claim = seen.claim(name).filter(|claim| is_copy(claim) && is_bound(claim));
    claim.is_some_and(|claim| seen.sources.contains_key(name) && !seen.is_proved_complete(claim))
}

/// Removes annotations that name a replacement that does not exist: the claims would be mistaken for old ones.
fn untrue_ends(seen: &ObservedWorkload, told: &[OrdinalStatus]) -> Vec<Step> {
    let is_at_rest = |one: &&OrdinalStatus| one.swap.is_none() && !one.is_shrinking();
    let claims = told.iter().filter(is_at_rest).filter_map(|one| {
        let claim = seen.claim(&one.active_claim)?;
        let by = claim.annotations().get(SUPERSEDED_BY)?;
        let is_closed = seen.superseded.contains_key(&one.active_claim);
        (seen.keeps(claim) && seen.claim(by).is_none() && !is_closed).then(|| claim.name_any())
    });
    if seen.autoscaler.spec.mode != AutoscalerMode::Enforce || seen.names_claims() {
        return Vec::new();
    }
    claims.map(|claim| Step::Reinstate { claim }).collect()
}

/// Returns how many more pods may be stopped.
fn may_stop(seen: &ObservedWorkload, entries: &[OrdinalStatus]) -> usize {
    let spec = &seen.autoscaler.spec;
    let busy = entries.iter().filter(|one| is_busy(one)).map(|one| one.ordinal);
    let busy = busy.chain(busy_elsewhere(seen)).collect::<BTreeSet<i32>>().len();
    if may_begin(seen) { spec.max_unavailable().saturating_sub(busy) } else { 0 }
}

/// Returns true if no other pod may be stopped: its swap has failed without a later success, or a person
/// rejected what it got or was to get.
fn holds_others_up(seen: &ObservedWorkload, one: &OrdinalStatus) -> bool {
    if seen.is_rolled_back(one)
        || seen.is_wanted_back(one)
        || seen.is_aborted(one)
        || is_wanted_aborted(&seen.autoscaler.spec, one)
    {
        return true;
    }
    let swap = one.swap.as_ref().filter(|swap| swap.spec_generation == seen.generation());
    swap.is_some_and(|swap| match swap.phase {
        SwapPhase::RollingBack | SwapPhase::Failed => true,
        SwapPhase::Soaking => false,
        _ => swap.failures > 0,
    })
}

/// Summarizes the contributions in the status.
fn summarize(status: &mut PvcAutoscalerStatus, seen: &ObservedWorkload, says: &[Says]) {
    let phases: BTreeSet<u8> = says.iter().filter_map(|one| one.phase).map(weight).collect();
    let problem = says.iter().find_map(|one| one.problem.clone());
    let heaviest = phases.last().map_or(AutoscalerPhase::InSync, |weight| of_weight(*weight));
    let is_idle = matches!(
        heaviest,
        AutoscalerPhase::InSync | AutoscalerPhase::Expanding | AutoscalerPhase::Shrinking
    );
    status.phase = if is_idle && problem.is_some() { AutoscalerPhase::Waiting } else { heaviest };
    status.workload = Some(bounded(&seen.autoscaler.spec.workload().to_string()));
    let wanted = seen.workload.as_ref().map_or(0, |set| set.ordinals().len());
    let settled = status.ordinals.iter().filter(|one| is_settled(seen, one)).count();
    status.ready_claim_count = i32::try_from(settled).unwrap_or(i32::MAX);
    status.claim_count = i32::try_from(wanted).unwrap_or(i32::MAX);
    let progress = says.iter().find_map(|one| one.progress.clone());
    status.progress = progress.map(|text| text.chars().take(LONGEST_LINE).collect());
    let planned = says.iter().find_map(|one| one.planned_action.clone());
    status.planned_action = planned.map(|text| bounded(&text));
    status.reason = problem.as_ref().map(|(reason, _)| reason.to_string());
    status.message = problem.map(|(_, message)| bounded(&message));
    status.bound();
}

/// Returns true if a pod has its claim as the template demands.
fn is_settled(seen: &ObservedWorkload, entry: &OrdinalStatus) -> bool {
    let claim = seen.claim(&entry.active_claim).filter(|claim| is_bound(claim));
    let is_usable =
        !seen.superseded.contains_key(&entry.active_claim) && entry.reactivated_volume.is_none();
    seen.has_pod(entry.ordinal)
        && entry.swap.is_none()
        && is_usable
        // It is to have what it had before, which it may wait for.
        && !seen.is_wanted_back(entry)
        && !entry.is_shrinking()
        && claim.is_some_and(|claim| {
            ClaimSizes::of(claim).is_ok_and(|sizes| !sizes.wants_more())
                && seen.drift_of(entry, claim) == Drift::None
        })
}

/// Returns the rank of a phase, if there are several.
fn weight(phase: AutoscalerPhase) -> u8 {
    match phase {
        AutoscalerPhase::InSync => 0,
        AutoscalerPhase::Expanding => 1,
        AutoscalerPhase::Shrinking => 2,
        AutoscalerPhase::DryRun => 3,
        AutoscalerPhase::Waiting | AutoscalerPhase::Unknown => 4,
        AutoscalerPhase::Failed => 5,
        AutoscalerPhase::Swapping => 6,
    }
}

fn of_weight(heavy: u8) -> AutoscalerPhase {
    let all = [
        AutoscalerPhase::InSync,
        AutoscalerPhase::Expanding,
        AutoscalerPhase::Shrinking,
        AutoscalerPhase::DryRun,
        AutoscalerPhase::Waiting,
        AutoscalerPhase::Failed,
        AutoscalerPhase::Swapping,
    ];
    all.into_iter().find(|phase| weight(*phase) == heavy).unwrap_or_default()
}

/// Returns true if only a copy may read the volume of a claim.
fn is_kept_for_a_copy(seen: &ObservedWorkload, claim: &str) -> bool {
    let fence = seen.volume_of(claim).and_then(|volume| volume.fence);
    fence.is_some_and(|fence| fence.lets() == Use::Read)
}

#[cfg(test)]
mod tests;
