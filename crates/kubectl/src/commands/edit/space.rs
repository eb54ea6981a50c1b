//! Whether the pools have the space for an expansion, as their nodes report it. Pure.

use std::collections::BTreeMap;

use super::ObservedAutoscaler;
use crate::api::{NodeStorage, Quantity};
use crate::bytes::Bytes;
use crate::commands::plan::{Plan, Procedure};

/// Returns a note for each pool of a node that is too full for the expansions of a plan.
///
/// Space may become free before it is needed, so this does not reject the edit.
pub(super) fn lacks_of_space(seen: &ObservedAutoscaler, plan: &Plan, size: Bytes) -> Vec<String> {
    let mut growth: BTreeMap<(String, String), NeededSpace> = BTreeMap::new();
    for pod in plan.pods.iter().filter(|pod| pod.by == Procedure::Grow) {
        let Some((place, one)) = seen.growth_of(&pod.claim, size) else { continue };
        let all = growth.entry(place).or_insert(NeededSpace { by: Bytes::ZERO, ..one });
        all.by = Bytes::new(all.by.get().saturating_add(one.by.get()));
    }
    let lacks = growth.into_iter().filter(|(_, growth)| growth.by > growth.available);
    let note = |((node, pool), growth): ((String, String), NeededSpace)| {
        format!(
            "Pool {pool} of node {node} has {} free, and the claims there need {} more. What does not fit stays \
             at its size, in use, until space is free.",
            Quantity(growth.available),
            Quantity(growth.by)
        )
    };
    lacks.map(note).collect()
}

/// Space that claims need beside their present sizes, and what their pool has.
#[derive(Clone, Copy)]
struct NeededSpace {
    by: Bytes,
    available: Bytes,
}

impl ObservedAutoscaler {
    /// Node and pool of the volume of a claim, and the space that `size` needs there.
    fn growth_of(&self, claim: &str, size: Bytes) -> Option<((String, String), NeededSpace)> {
        let claim = self.around.claim(claim)?;
        let on_node = |node: &NodeStorage| {
            let volume = self.around.volume_on(node, claim)?;
            let mut pools = node.status.as_ref()?.pools.iter();
            let pool = pools.find(|pool| pool.name == volume.pool)?;
            let place = (node.metadata.name.clone()?, pool.name.clone());
            let by = size.saturating_sub(volume.size.0);
            Some((place, NeededSpace { by, available: pool.available.0 }))
        };
        self.around.storages.iter().find_map(on_node)
    }
}
