//! Plans the next steps for a claim that is to be populated. Pure; a plan after its own application
//! is empty.

mod again;
mod probing;
mod sending;
mod waiting;

use crate::populators::fence::{fence, is_half_copied};
use crate::populators::ownership::{is_changed, meet_strange_pod, meet_stranger, unrecorded_pod};
use crate::populators::pre_copy::{end_round, stay_ahead};
use crate::populators::status::{
    backs_off, copies_nothing, counted, fail, filling, progress, report_stall, reschedule, say,
    seconds, wait, wait_for_source,
};
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use again::{again, anew, drop_pods, drop_prime};

use crate::api::{FenceState, FillingPhase};
use crate::cluster::{Binding, requested};
use crate::populators::observed::{
    ObservedPopulation, SourceSeen, is_ending, is_held, selected_node, uid,
};
use crate::populators::steps::PopulationStep;
use crate::populators::{Fill, PopulationOutcome, PopulatorReason, SourceState, conditions, prime};

/// Plans the next steps.
pub(super) fn plan(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    if seen.is_rebound() {
        return settle(seen);
    }
    // Deleted, or a user bound it to a volume.
    if is_ending(&seen.claim.metadata) || Binding::of(&seen.claim) != Binding::Pending {
        return clear(seen);
    }
    let Some(source) = seen.source.as_ref().filter(|source| !source.is_ending) else {
        return [without_source(seen), clear(seen)].concat();
    };
    if source.has_failed() {
        return clear(seen);
    }
    match &seen.pod {
        Some(pod) => watch(seen, source, pod),
        None if seen.strange_pod.is_some() => {
            seen.strange_pod.as_ref().map(|pod| meet_strange_pod(seen, pod)).unwrap_or_default()
        }
        None if seen.sender.is_some() && !sending::is_wanted(seen) => drop_pods(seen),
        None => prepare(seen, source),
    }
}

impl SourceSeen {
    /// Returns true if it has failed for good.
    fn has_failed(&self) -> bool {
        self.told.as_ref().is_some_and(|told| conditions::has_failed(told, self.generation))
    }

    /// Returns who uses the source again, although it was copied while unused.
    fn is_used_again(&self) -> Option<&str> {
        match self.sight.as_ref()? {
            SourceState::Waits(PopulatorReason::SourceInUse, why) => Some(why),
            SourceState::Ready(fill) if fill.is_live => {
                fill.ahead_of.is_some().then_some("a pod uses the source again")
            }
            _ => None,
        }
    }
}

fn without_source(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    let named = seen.claim.spec.as_ref().and_then(|spec| spec.data_source_ref.clone());
    let (kind, name) = named.map(|named| (named.kind, named.name)).unwrap_or_default();
    wait_for_source(
        seen,
        &format!(
            "there is no {kind} {name} in this namespace, so the claim waits for it; create it, or delete the \
         claim"
        ),
    )
}

/// Plans before there is a pod: wait until the source can be read, choose a node, create a volume.
fn prepare(seen: &ObservedPopulation, source: &SourceSeen) -> Vec<PopulationStep> {
    let fill = match &source.sight {
        Some(SourceState::Ready(fill)) => fill,
        Some(SourceState::Waits(reason, message)) => return wait(seen, *reason, message),
        Some(SourceState::Never(reason, message)) => {
            return [fail(seen, *reason, message), clear(seen)].concat();
        }
        None => return Vec::new(),
    };
    if let Some(waits) = fill.ahead_of.as_ref().filter(|_| seen.is_ahead()) {
        return stay_ahead(seen, waits);
    }
    if let Some(told) = seen.status_entry()
        && (told.phase, told.observed_generation) == (FillingPhase::Populating, source.generation)
        && told.pod_uid.is_some()
    {
        let message = "its pod is gone, and its outcome is unknown";
        return again(seen, source, told.pod_uid.as_deref(), message);
    }
    if seen.waits_for_consumer {
        match selected_node(&seen.claim) {
            None => return choose(seen, source),
            Some(node) if is_out_of_reach(fill, &BTreeSet::from([node.to_owned()])) => {
                return elsewhere(seen, node);
            }
            Some(node) if seen.is_moved(node) => return move_on(seen),
            Some(_) => {}
        }
    }
    provision(seen, source)
}

/// Returns true if the source can neither be read on these nodes nor be sent to them.
fn is_out_of_reach(fill: &Fill, nodes: &BTreeSet<String>) -> bool {
    let Some(readable) = &fill.nodes else { return false };
    readable.is_disjoint(nodes) && (fill.far.is_none() || readable.is_empty())
}

impl ObservedPopulation {
    fn has_pods(&self) -> bool {
        self.pod.is_some() || self.sender.is_some() || unrecorded_pod(self).is_some()
    }

    /// Returns true if the volume must be on this node: the source cannot be sent, or no pod uses the
    /// claim yet, so that no scheduler would choose another one.
    fn stays_on(&self, node: &str) -> bool {
        let is_early = self.source.as_ref().is_some_and(|source| source.early);
        let fill = self.fill().filter(|fill| fill.far.is_none() || is_early);
        let nodes = fill.and_then(|fill| fill.nodes.as_ref());
        nodes.is_some_and(|nodes| nodes.len() == 1 && nodes.contains(node))
    }

    /// Returns true if the prime claim is for another node than the claim.
    fn is_moved(&self, node: &str) -> bool {
        self.prime.as_ref().is_some_and(|prime| selected_node(prime) != Some(node))
    }
}

/// Without a node nothing can begin: choose the only one of the source, or wait for the scheduler.
fn choose(seen: &ObservedPopulation, source: &SourceSeen) -> Vec<PopulationStep> {
    if seen.prime.is_some() {
        return discard(seen); // It is for a node that is no longer chosen.
    }
    let nodes = seen.fill().and_then(|fill| fill.nodes.as_ref());
    let only = nodes.filter(|nodes| nodes.len() == 1).and_then(|nodes| nodes.first());
    match only.filter(|_| source.early) {
        Some(_) if backs_off(seen).is_some() => Vec::new(),
        Some(node) => vec![PopulationStep::Pin(node.clone())],
        None => wait(
            seen,
            PopulatorReason::WaitForFirstConsumer,
            "its class waits for a pod that uses the claim; this is normal",
        ),
    }
}

fn elsewhere(seen: &ObservedPopulation, node: &str) -> Vec<PopulationStep> {
    let nodes = seen.fill().and_then(|fill| fill.nodes.clone()).unwrap_or_default();
    let nodes: Vec<String> = nodes.into_iter().collect();
    let message = format!(
        "its pod is to run on node {node}, but the source can only be read on {}; delete the claim and create \
         it again, with a pod that may run there",
        if nodes.is_empty() { "a node that no longer exists".to_owned() } else { nodes.join(", ") }
    );
    [fail(seen, PopulatorReason::SourceNodeNotFound, &message), clear(seen)].concat()
}

/// The prime claim has another node than the claim: it was rescheduled, or the claim was.
fn move_on(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    let node = selected_node(&seen.claim).unwrap_or_default();
    let is_refused = |prime: &PersistentVolumeClaim| {
        selected_node(prime).is_none()
            && prime::node_of(prime) == Some(node)
            && !is_ending(&prime.metadata)
    };
    if !seen.prime.as_ref().is_some_and(is_refused) {
        return discard(seen);
    }
    // Its provisioner found too little free space and removed the node.
    if seen.stays_on(node) {
        let message = format!(
            "no volume could be created on node {node}, and the source of the claim can only be read there: \
             free some space on it; this is retried"
        );
        return [reschedule(seen, &message), discard(seen)].concat();
    }
    // The scheduler looks at the claim only, so the node must be removed from there; otherwise no
    // other one would ever be chosen.
    let message = format!("no volume could be created on node {node}, so another node is chosen");
    [reschedule(seen, &message), vec![PopulationStep::Unpin], discard(seen)].concat()
}

/// Creates a prime claim with a volume, and then a pod.
fn provision(seen: &ObservedPopulation, source: &SourceSeen) -> Vec<PopulationStep> {
    let Some(prime) = &seen.prime else {
        if let Some(stranger) = &seen.stranger {
            return meet_stranger(seen, stranger);
        }
        if backs_off(seen).is_some() {
            return Vec::new();
        }
        if let Err(why) = requested(&seen.claim) {
            let message =
                format!("{why}; delete the claim and create it again with a size such as 10Gi");
            return fail(seen, PopulatorReason::InvalidSize, &message);
        }
        let mut filling = filling(seen, FillingPhase::Provisioning);
        filling.start_time = filling.start_time.or(Some(Time(seen.now)));
        (filling.next_retry_time, filling.pod_uid) = (None, None);
        // Those of another volume.
        (filling.pre_copy, filling.fence, filling.probe_time) = (None, None, None);
        filling.prime_claim_uid = None;
        let held = (!is_held(&seen.claim.metadata)).then_some(PopulationStep::Hold);
        let source_held = (!source.is_held).then_some(PopulationStep::HoldSource);
        let held = held.into_iter().chain(source_held);
        return held.chain(say(seen, filling)).chain([PopulationStep::MakePrime]).collect();
    };
    if is_ending(&prime.metadata) {
        return Vec::new(); // Until it is gone.
    }
    if seen.is_unrecorded && source.anew && Binding::of(prime) == Binding::Bound {
        return drop_prime(seen); // Whether its volume is empty is not known.
    }
    if seen.is_unrecorded {
        let mut filling = filling(seen, FillingPhase::Provisioning);
        (filling.pre_copy, filling.fence, filling.pod_uid) = (None, None, None); // Those of another volume.
        filling.prime_claim_uid = Some(uid(&prime.metadata).to_owned());
        return say(seen, filling);
    }
    if let Some(why) = is_changed(seen) {
        return anew(seen, None, &why);
    }
    if source.anew && seen.status_entry().is_some_and(|told| told.next_retry_time.is_some()) {
        return drop_prime(seen); // What the try before has left in it.
    }
    match Binding::of(prime) {
        Binding::Pending => keep_provisioning(seen),
        Binding::Lost => again(seen, source, None, "the volume of the prime claim is gone"),
        Binding::Bound => start(seen, source),
    }
}

fn keep_provisioning(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    let told = seen.status_entry().filter(|told| told.phase == FillingPhase::Provisioning);
    match told.filter(|told| told.reason.is_none()) {
        Some(_) => Vec::new(),
        None => say(seen, filling(seen, FillingPhase::Provisioning)),
    }
}

fn start(seen: &ObservedPopulation, source: &SourceSeen) -> Vec<PopulationStep> {
    if let (Some(fill), Some(usable)) = (seen.fill(), &seen.pv_nodes)
        && is_out_of_reach(fill, usable)
    {
        let node = usable.first().map_or("(none left)", String::as_str);
        return elsewhere(seen, node);
    }
    if backs_off(seen).is_some() || !seen.is_of_prime() {
        return Vec::new();
    }
    // Also while it waits: a pod that is to be stopped for it is stopped only when all else is done.
    let half_copied =
        fence(seen, FenceState::Incomplete, filling(seen, FillingPhase::Provisioning));
    if let Some(steps) = half_copied {
        return steps;
    }
    let waits = seen.fill().and_then(|fill| fill.held.as_ref());
    if let Some((reason, message)) = waits.filter(|_| !probing::is_wanted(seen)) {
        return wait(seen, *reason, message);
    }
    // Again, in case a user has removed it: created objects must not outlive the claim.
    let held = (!is_held(&seen.claim.metadata)).then_some(PopulationStep::Hold);
    let source_held = (!source.is_held).then_some(PopulationStep::HoldSource);
    let next = match waits {
        Some(_) => probing::begin(seen),
        None if seen.is_far() => sending::next(seen, source),
        None => vec![PopulationStep::MakePod],
    };
    held.into_iter().chain(source_held).chain(next).collect()
}

/// While there is a pod: see how far it is, and what has become of it.
fn watch(seen: &ObservedPopulation, source: &SourceSeen, pod: &Pod) -> Vec<PopulationStep> {
    let moved = selected_node(&seen.claim).is_none_or(|node| seen.is_moved(node));
    let is_outdated = prime::generation_of(pod) != Some(source.generation);
    if is_ending(&pod.metadata) {
        let why = waiting::why_silent(seen.now, pod, "populates the volume");
        return why.map_or_else(Vec::new, |why| report_stall(seen, pod, &why));
    }
    // What was copied for an earlier edit may have been copied too early.
    let is_of_use =
        !matches!(PopulationOutcome::of(pod), None | Some(PopulationOutcome::Done { .. }));
    if seen.waits_for_consumer && moved || is_outdated && !is_of_use {
        return call_off(seen, source);
    }
    if prime::is_probe(pod) {
        return probing::watch(seen, source, pod);
    }
    let id = uid(&pod.metadata);
    match PopulationOutcome::of(pod) {
        // A pod that started after the read may have written what is not in the copy.
        Some(PopulationOutcome::Done { digest, bytes }) => match source.is_used_again() {
            Some(why) => anew(seen, Some(id), &format!("the copy is outdated: {why}")),
            None => bind(seen, id, digest, bytes),
        },
        // Only a pod of Pliant that is marked as a probe can have ended so.
        Some(PopulationOutcome::Probed) => drop_pods(seen),
        Some(PopulationOutcome::Ahead(round)) => {
            [end_round(seen, id, round), drop_pods(seen)].concat()
        }
        Some(PopulationOutcome::Never(PopulatorReason::ChecksumMismatch, message))
            if seen.is_live() =>
        {
            let message = format!("a pod writes to the source while it is copied: {message}");
            again(seen, source, Some(id), &message)
        }
        Some(PopulationOutcome::Never(reason, message)) => {
            [fail(seen, reason, &message), clear(seen)].concat()
        }
        Some(PopulationOutcome::Failed(message)) => again(seen, source, Some(id), &message),
        None => {
            let why = waiting::held_up(seen.now, pod, "populates the volume")
                .or_else(|| {
                    // Whose log can be read goes on, whatever is not ready beside it.
                    let is_heard = seen.progress.is_some();
                    waiting::why_silent(seen.now, pod, "populates the volume").filter(|_| !is_heard)
                })
                .or_else(|| copies_nothing(seen, pod));
            match why {
                Some(why) => report_stall(seen, pod, &why),
                None => progress(seen, id, seen.progress.as_ref()),
            }
        }
    }
}

/// Cancels a pod whose volume or content is no longer wanted, which is no failure.
fn call_off(seen: &ObservedPopulation, source: &SourceSeen) -> Vec<PopulationStep> {
    let mut filling = filling(seen, FillingPhase::Waiting);
    filling.pod_uid = None;
    let mut steps = say(seen, filling);
    if source.anew {
        steps.extend(drop_prime(seen));
    }
    steps.extend(drop_pods(seen));
    steps
}

/// Retains the populated volume, then rebinds it to the claim.
fn bind(
    seen: &ObservedPopulation,
    pod: &str,
    digest: Option<String>,
    bytes: u64,
) -> Vec<PopulationStep> {
    if let Some(why) = is_changed(seen) {
        return anew(seen, Some(pod), &why);
    }
    let mut filling = filling(seen, FillingPhase::Binding);
    (filling.pod_uid, filling.checksum) = (Some(pod.to_owned()), digest);
    filling.next_retry_time = None;
    filling.written_bytes = Some(counted(bytes));
    if !seen.is_of_prime() {
        return say(seen, filling); // It is not known to be bound yet.
    }
    let told = fence(seen, FenceState::Active, filling.clone());
    let is_active = told.is_none();
    let mut steps = told.unwrap_or_else(|| say(seen, filling));
    // One after the other: retaining it lets others write it too, and the binding is decided again.
    let next = if seen.is_retained() {
        is_active.then_some(PopulationStep::Rebind)
    } else {
        Some(PopulationStep::Retain)
    };
    steps.extend(next);
    steps
}

/// The volume is the claim's: wait until both claims know it, then clean up.
fn settle(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    let is_ending_claim = is_ending(&seen.claim.metadata);
    let is_bound = is_ending_claim || Binding::of(&seen.claim) == Binding::Bound;
    // A prime claim is held by pods that have ended, too.
    let mut steps = drop_pods(seen);
    match &seen.prime {
        Some(prime) if is_ending(&prime.metadata) => return steps,
        // Not before: a prime claim that is deleted while it has the volume may take that along.
        Some(prime) if is_bound && Binding::of(prime) == Binding::Lost => {
            steps.push(PopulationStep::DropPrime);
            return steps;
        }
        Some(_) => {
            steps.extend((!seen.is_nudged()).then_some(PopulationStep::Nudge));
            return steps;
        }
        None if !is_bound => return steps,
        None => {}
    }
    if seen.is_retained() {
        steps.push(PopulationStep::Restore);
    }
    if seen.has_pods() {
        return steps;
    }
    // A replica of a version that knew of no fence has handed it over.
    if !is_ending_claim
        && is_half_copied(seen)
        && let Some(told) = fence(seen, FenceState::Active, filling(seen, FillingPhase::Binding))
    {
        return [steps, told].concat();
    }
    steps.extend(if is_ending_claim { forget(seen) } else { done(seen) });
    steps.extend(is_held(&seen.claim.metadata).then_some(PopulationStep::Release));
    steps
}

fn done(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    if !is_held(&seen.claim.metadata) {
        return Vec::new(); // It was reported before the finalizer was removed.
    }
    let pv = seen.pv.as_ref().map(ResourceExt::name_any).unwrap_or_default();
    let text = format!("the claim is populated: its volume is {pv}");
    let tell = PopulationStep::Tell(PopulatorReason::PopulatorFinished, text);
    if seen.source.is_none()
        || seen.status_entry().is_some_and(|told| told.phase == FillingPhase::Succeeded)
    {
        return vec![tell];
    }
    let mut filling = filling(seen, FillingPhase::Succeeded);
    filling.written_bytes = seen.status_entry().and_then(|told| told.written_bytes);
    filling.completion_time = Some(Time(seen.now));
    filling.next_retry_time = None;
    vec![
        tell,
        PopulationStep::Note(Box::new(filling)),
        PopulationStep::Count("success", seconds(seen)),
    ]
}

/// Deletes everything: pod, prime claim, its volume, and at last the finalizer.
fn clear(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    let mut steps = discard(seen);
    let is_clear = !seen.has_pods() && seen.prime.is_none() && !seen.is_retained();
    if is_clear && is_ending(&seen.claim.metadata) {
        steps.extend(forget(seen));
    }
    steps.extend((is_clear && is_held(&seen.claim.metadata)).then_some(PopulationStep::Release));
    steps
}

/// Removes the status of a claim that is being deleted.
fn forget(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    seen.status_entry().map(|_| PopulationStep::Forget).into_iter().collect()
}

/// Deletes the prime claim with its volume, after the pod that writes to it.
fn discard(seen: &ObservedPopulation) -> Vec<PopulationStep> {
    if seen.has_pods() {
        return drop_pods(seen);
    }
    drop_prime(seen)
}

#[cfg(test)]
mod tests;
