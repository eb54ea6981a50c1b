//! Fences of the volumes of old claims, which their nodes store. Pure.
//!
//! Only volumes of this driver can be fenced. Each fence has a higher number than all before it, and is
//! in the status before a node gets it: a late request of a replica changes nothing.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{FenceState, FenceStatus, Retained, Swap};
use crate::claims::AutoscalerReason;
use crate::claims::attempt::attempt;
use crate::claims::objects::{bounded, is_ending, is_fillable};
use crate::claims::pod_plan::PodPlan;
use crate::claims::stopped::wait_if_may_still_run;
use crate::claims::users::{is_read_by_us, pods_with};
use crate::cluster::{NodeOperation, ObservedVolume, VolumeSeen};
use crate::volume::{Fence, VolumeId};

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Proves that nothing writes to the old volume, now or later; true once that is so. Until then its node is
/// asked. For a volume of another driver the state in Kubernetes must do: the pod object is gone, and its node
/// does not run the pod.
pub(super) fn prove_unused(plan: &mut PodPlan<'_>, swap: &mut Swap, from: &str) -> bool {
    let seen = plan.seen;
    let Some(looked_up) = seen.volumes.get(from) else { return false };
    if swap.is_proved_unused() {
        return true;
    }
    let Some(volume) = looked_up else {
        let is_proved = !wait_if_may_still_run(plan, swap);
        note_detached(plan, swap, is_proved);
        return is_proved;
    };
    let fence = match swap.fence {
        Some(fence) => renumbered(plan, volume, fence),
        None => next_fence(plan, volume, FenceState::Superseded, true),
    };
    swap.fence = Some(fence);
    let is_proved = ensure_unused(plan, swap, from, volume, fence);
    note_detached(plan, swap, is_proved);
    is_proved
}

/// Stores whether the old volume is unused as of now.
fn note_detached(plan: &PodPlan<'_>, swap: &mut Swap, is_proved: bool) {
    swap.detached_time = is_proved.then_some(Time(plan.seen.now));
}

/// Starts to return the old volume to its pod, if it was fenced. The fence has a new number, so
/// that no observation from before the copy counts as proof.
pub(super) fn call_back(plan: &mut PodPlan<'_>, swap: &mut Swap) {
    let (seen, from) = (plan.seen, plan.entry.active_claim.clone());
    let is_taken = swap.fence.is_some();
    if let Some(volume) = seen.volume_of(&from).filter(|_| is_taken) {
        let fence = next_fence(plan, volume, FenceState::Superseded, true);
        swap.fence = Some(fence);
    }
}

/// Requests that the node of the old volume admits the pod again; returns true once it does. It is not asked
/// before the copy has released the volume: a copy mounts it read-only, and its pod would find it so.
pub(super) fn ensure_given_back(plan: &mut PodPlan<'_>, swap: &mut Swap) -> bool {
    let (seen, from) = (plan.seen, plan.entry.active_claim.clone());
    let (told, was_detached) = (swap.fence, swap.detached_time.is_some());
    let (Some(told), Some(volume)) = (told, seen.volume_of(&from)) else { return true };
    if told.state == FenceState::Active {
        let still = still_to_be(plan, volume, told);
        swap.fence = still.or(Some(told));
        return still.is_none();
    }
    let fence = renumbered(plan, volume, told);
    swap.fence = Some(fence);
    let is_copied = seen.claim(&swap.claim).is_some_and(is_fillable);
    let is_let_go = !is_copied && !is_read_by_us(seen, &from);
    // Before a copy it had no other mounts than before, and those do not block the pod.
    let is_ending = seen.claim(&from).is_some_and(|claim| is_ending(&claim.metadata));
    let is_looked_at = is_ending || was_detached;
    if is_let_go && (!is_looked_at || ensure_unused(plan, swap, &from, volume, fence)) {
        let fence = next_fence(plan, volume, FenceState::Active, false);
        swap.fence = Some(fence);
        ask(plan, volume, fence);
    }
    false
}

/// Asks the node of a fenced volume who has it open; returns true if no process has had it open since the
/// fence.
fn ensure_unused(
    plan: &mut PodPlan<'_>,
    swap: &Swap,
    claim: &str,
    volume: &VolumeSeen,
    fence: FenceStatus,
) -> bool {
    match volume.look_after(&Fence::from(&fence)) {
        Some(look) if look.open_count == 0 => return true,
        Some(look) => wait_for_holder(plan, swap, claim, &volume.id, look),
        None => {}
    }
    ask(plan, volume, fence);
    false
}

/// Returns the fence for the volume of a claim that was replaced: nothing can access it any more,
/// not even to read.
pub(super) fn last_fence(plan: &mut PodPlan<'_>, from: &str) -> Option<FenceStatus> {
    let volume = plan.seen.volume_of(from)?;
    Some(next_fence(plan, volume, FenceState::Superseded, false))
}

/// Ensures the last fences of the volumes of the previous claims.
pub(super) fn close_retained(plan: &mut PodPlan<'_>) {
    let mut retained = std::mem::take(&mut plan.entry.retained_claims);
    for old in &mut retained {
        old.fence = still_to_close(plan, old);
    }
    plan.entry.retained_claims = retained;
}

fn still_to_close(plan: &mut PodPlan<'_>, old: &Retained) -> Option<FenceStatus> {
    let told = old.fence?;
    match plan.seen.volumes.get(&old.name) {
        Some(Some(volume)) => still_to_be(plan, volume, told),
        Some(None) => None,
        None => Some(told),
    }
}

/// Returns the fence that a volume does not have yet; its node is asked for it.
fn still_to_be(
    plan: &mut PodPlan<'_>,
    volume: &VolumeSeen,
    told: FenceStatus,
) -> Option<FenceStatus> {
    if volume.is(&Fence::from(&told)) {
        return None;
    }
    let fence = renumbered(plan, volume, told);
    ask(plan, volume, fence);
    Some(fence)
}

/// Reports that the node of the pod's volume admits no pod, because another volume replaced it that no
/// status refers to. If the generation of its fence is in the specification, the pod gets it as it is.
pub(super) fn report_superseded(plan: &mut PodPlan<'_>, claim: &PersistentVolumeClaim) -> bool {
    let (seen, name) = (plan.seen, claim.name_any());
    if let (Some(told), Some(volume)) = (plan.entry.reactivated_volume, seen.volume_of(&name)) {
        plan.entry.reactivated_volume = still_to_be(plan, volume, told);
        return plan.entry.reactivated_volume.is_some();
    }
    let Some(since) = seen.superseded.get(&name).copied() else { return false };
    let ordinal = plan.entry.ordinal;
    let mut asked = seen.autoscaler.spec.reactivate.iter();
    if asked.any(|one| (one.ordinal, one.fence_generation) == (ordinal, since))
        && let Some(volume) = seen.volume_of(&name)
    {
        let fence = next_fence(plan, volume, FenceState::Active, false);
        plan.entry.reactivated_volume = Some(fence);
        ask(plan, volume, fence);
        return true;
    }
    let message = format!(
        "the volume of claim {name} of pod {} is superseded since generation {since}: another volume \
         replaced it, and no status refers to that, for example after a restore of the API server. Look \
         for newer claims and PersistentVolumes; if there are none, let the pod use this volume as it is: {}",
        plan.pod(),
        how_to_reactivate(plan, since)
    );
    plan.wait(AutoscalerReason::VolumeSuperseded, message);
    true
}

/// Returns the command that gives a pod its superseded volume. The field is for a StatefulSet: who names a claim
/// in other pods may have named an old one by mistake, so its node has to be asked by hand.
fn how_to_reactivate(plan: &PodPlan<'_>, since: i64) -> String {
    let autoscaler = &plan.seen.autoscaler;
    if autoscaler.spec.stateful_set().is_none() {
        return "run the command that `kubectl describe pod` shows for that pod".to_owned();
    }
    let ordinal = plan.entry.ordinal;
    format!(
        "`kubectl patch pvcautoscaler {} --namespace {} --type=merge -p \
         '{{\"spec\":{{\"reactivate\":[{{\"ordinal\":{ordinal},\"fenceGeneration\":{since}}}]}}}}'`",
        autoscaler.name_any(),
        autoscaler.namespace().unwrap_or_default()
    )
}

/// Has the node set a fence of a volume, and inspect it.
pub(super) fn ask(plan: &mut PodPlan<'_>, volume: &VolumeSeen, fence: FenceStatus) {
    let wanted = Fence::from(&fence);
    if let Some(why) = volume.failure_of(&wanted) {
        let message = format!(
            "volume {} of pod {} is to be {}, but its node has not confirmed that yet: {why}",
            volume.id,
            plan.pod(),
            fence.state.words()
        );
        plan.wait(AutoscalerReason::VolumeNotFenced, message);
    }
    plan.ask_for(volume, NodeOperation::Fence(wanted));
}

/// Returns the same fence under a higher number, if the volume has another fence by now.
pub(super) fn renumbered(
    plan: &mut PodPlan<'_>,
    volume: &VolumeSeen,
    told: FenceStatus,
) -> FenceStatus {
    let is_up_to_date = volume.takes(&Fence::from(&told));
    if is_up_to_date { told } else { next_fence(plan, volume, told.state, told.copy_in_progress) }
}

pub(super) fn next_fence(
    plan: &mut PodPlan<'_>,
    volume: &VolumeSeen,
    state: FenceState,
    copying: bool,
) -> FenceStatus {
    let generation = volume.next_generation(plan.entry.fence_generation);
    plan.entry.fence_generation = generation;
    FenceStatus { state, generation, copy_in_progress: copying }
}

fn wait_for_holder(
    plan: &mut PodPlan<'_>,
    swap: &Swap,
    from: &str,
    volume: &VolumeId,
    look: &ObservedVolume,
) {
    let key = volume.key().as_str();
    let pods: Vec<String> = pods_with(plan.seen, from).map(ResourceExt::name_any).collect();
    let what_to_do = if pods.is_empty() {
        format!(
            "no pod uses it; on that node, `fuser -v /dev/mapper/*{key}` lists the processes that do, and \
             `findmnt /dev/mapper/*{key}` the mounts; stop them"
        )
    } else {
        format!("stop {}, or wait until it ends", pods.join(", "))
    };
    let message = format!(
        "claim {from} is still in use, so pod {} waits: the device of its volume {volume} is open on \
         node {} ({}); {what_to_do}",
        plan.pod(),
        look.node,
        times(look.open_count)
    );
    let before = plan.seen.autoscaler.status.as_ref().and_then(|status| status.message.as_ref());
    if before != Some(&bounded(&message)) {
        plan.add_event(AutoscalerReason::ClaimInUse, &attempt(swap), message.clone());
    }
    plan.wait(AutoscalerReason::ClaimInUse, message);
}
