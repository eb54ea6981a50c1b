//! Checks that the nodes of a swap can have both volumes, and respond, before anything is stopped. Pure.

use kube::ResourceExt;

use crate::autoscaler::AutoscalerReason;
use crate::autoscaler::places::{Elsewhere, Place, tolerates};
use crate::autoscaler::turn::Turn;
use crate::cluster::{NotDone, Wish};
use crate::volume::few;

impl Turn<'_> {
    /// The node for the new volume, if it is another one than that of the old one.
    pub(super) fn elsewhere(&self) -> Option<&Elsewhere> {
        self.seen.around.elsewhere.get(&self.entry.active_claim)
    }

    fn places(&self) -> &[Place] {
        let places = self.seen.around.places.get(&self.entry.active_claim);
        places.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns why no usable node can have both volumes, if so.
    pub(super) fn lacks_place(&self) -> Option<(AutoscalerReason, String)> {
        let places = self.places();
        if places.is_empty() {
            return None; // It can be read everywhere, or its nodes are unknown.
        }
        let allowed: Vec<&Place> = places.iter().filter(|place| place.is_allowed).collect();
        if self.elsewhere().is_some() {
            return None;
        }
        let Some(first) = allowed.first() else { return Some(self.is_elsewhere(places)) };
        let tolerates = self.seen.pod(self.entry.ordinal).is_some_and(tolerates);
        let is_fit = |place: &&Place| place.is_ready && (place.takes_pods || tolerates);
        (!allowed.iter().any(is_fit)).then(|| self.is_unavailable(first))
    }

    fn is_elsewhere(&self, places: &[Place]) -> (AutoscalerReason, String) {
        let (nodes, claim) = (few(places.iter().map(|one| &one.node)), &self.entry.active_claim);
        let class = self.wanted_class().unwrap_or_default();
        let message = format!(
            "claim {claim} can be read on node {nodes} only, and the allowedTopologies of class {class} \
             exclude it: set another class with `kubectl edit pvcautoscaler {}`, or add that node with \
             `kubectl edit storageclass {class}`",
            self.seen.autoscaler.name_any(),
        );
        (AutoscalerReason::StorageClassTopologyMismatch, message)
    }

    fn is_unavailable(&self, place: &Place) -> (AutoscalerReason, String) {
        let (node, claim, pod) = (&place.node, &self.entry.active_claim, self.pod());
        let message = if place.is_ready {
            format!(
                "node {node}, which has the volume of claim {claim}, is unschedulable, so pod {pod} could not \
                 start there again: run `kubectl uncordon {node}`"
            )
        } else {
            format!(
                "node {node}, which has the volume of claim {claim}, is not ready, so pod {pod} is not \
                 stopped: see `kubectl describe node {node}`"
            )
        };
        (AutoscalerReason::NodeUnavailable, message)
    }

    /// Asks the node plugin of the volume's node whether it responds; returns true if it has just answered.
    /// Until then no other pod is started in its place; if it is not responding, others are.
    pub(super) fn ensure_node_responds(&mut self, may_stop: &mut usize) -> bool {
        let seen = self.seen;
        // For a volume without a node, no node is asked.
        let is_placed = !self.places().is_empty();
        let volume = seen.volume_of(&self.entry.active_claim).filter(|_| is_placed);
        let Some(volume) = volume else { return true };
        match volume.recent_answer_to(&Wish::Look) {
            Some(Ok(_)) => return true,
            Some(Err(NotDone { why, .. })) => {
                let message = format!(
                    "the node of claim {} does not respond, so pod {} is not stopped: {why}",
                    self.entry.active_claim,
                    self.pod()
                );
                self.tell_of_lack(AutoscalerReason::NodeUnavailable, &message);
                self.wait(AutoscalerReason::NodeUnavailable, message);
            }
            None => *may_stop -= 1,
        }
        self.ask_for(volume, Wish::Look);
        false
    }
}
