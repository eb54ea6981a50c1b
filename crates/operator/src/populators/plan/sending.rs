//! Plans the transfer of a source to another node.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{again, waiting};
use crate::api::FillingPhase;
use crate::populators::observed::{ObservedPopulation, SourceSeen, is_ending, uid};
use crate::populators::status::{backs_off, filling, say, with_reason};
use crate::populators::steps::PopulationStep;
use crate::populators::{PopulatorReason, sender};

/// Returns true if a sender has something to do: otherwise it only blocks the source for others.
pub(super) fn is_wanted(seen: &ObservedPopulation) -> bool {
    let fills_now = seen.fill().is_some_and(|fill| {
        let is_at_rest = fill.ahead_of.is_some() && seen.is_ahead();
        fill.far.is_some() && fill.held.is_none() && !is_at_rest
    });
    fills_now && seen.is_far() && seen.is_of_prime() && backs_off(seen).is_none()
}

/// Plans for a volume whose source is on another node: start a sender, then the populator.
pub(super) fn next(seen: &ObservedPopulation, source: &SourceSeen) -> Vec<PopulationStep> {
    let Some(pod) = &seen.sender else {
        return vec![PopulationStep::MakeKeys, PopulationStep::MakeSender];
    };
    if is_ending(&pod.metadata) {
        return Vec::new(); // Until it is gone.
    }
    if sender::address(pod).is_some() {
        return vec![PopulationStep::MakePod];
    }
    if let Some(why) = has_ended(pod) {
        return again(seen, source, Some(uid(&pod.metadata)), &why);
    }
    match waiting::held_up(seen.now, pod, "sends the source from another node") {
        Some(why) => {
            let filling = filling(seen, FillingPhase::Provisioning);
            say(seen, with_reason(filling, PopulatorReason::PopulatorPodPending, &why))
        }
        None => Vec::new(),
    }
}

/// Describes a sender that has ended: it should send until it is deleted.
fn has_ended(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let phase = status.phase.as_deref().filter(|phase| ["Succeeded", "Failed"].contains(phase))?;
    let ended = status.container_statuses.iter().flatten().find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        ended.message.clone().or_else(|| ended.reason.clone())
    });
    let why = ended.or_else(|| status.message.clone()).unwrap_or_else(|| phase.to_owned());
    Some(format!(
        "pod {}, which sends the source from another node, has ended: {why}",
        pod.name_any()
    ))
}
