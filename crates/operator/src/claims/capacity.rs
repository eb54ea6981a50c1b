//! Checks that the content of a claim fits into a smaller one, by its reported usage. Pure.

use crate::api::Quantity;
use crate::autoscaler::usage::SampledUsage;
use crate::bytes::Bytes;
use crate::claims::pod_plan::PodPlan;
use crate::cluster::requested;

/// A node reports usage again after a change by this part of a file system. The overhead of a file
/// system is less.
const UNTOLD_PART: u64 = 10;

/// Overhead of a copy, as a part of the copied size.
const MARGIN_PART: u64 = 64;

fn too_small(from: &str, usage: SampledUsage, to: Quantity) -> Option<String> {
    let least = usage.used.saturating_sub(Bytes::new(usage.size.get() / UNTOLD_PART));
    let needs = least.get().saturating_add(least.get() / MARGIN_PART);
    (needs > to.0.get()).then(|| {
        let (used, size, at) = (usage.used, usage.size, usage.at);
        let count = match usage.inodes {
            0 => String::new(),
            _ => format!(" in {} inodes", usage.inodes_used),
        };
        format!(
            "the target is too small: claim {from} holds {used}{count} of {size}, as its node reported at \
             {at}, and that does not fit into {to}; request more, or remove what is not needed"
        )
    })
}

/// Returns why the content does not fit into the new claim: its pod is not stopped for a copy that
/// would be refused. Only certain cases count; the copy itself checks again before it writes.
pub(super) fn does_not_fit(plan: &PodPlan<'_>, new: Option<&str>) -> Option<String> {
    let from = &plan.entry.active_claim;
    let to = match new.and_then(|new| plan.seen.claim(new)) {
        Some(new) => requested(new).ok()?,
        None => plan.seen.size_of(&plan.entry),
    };
    too_small(from, *plan.seen.usage.get(from)?, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_never_fit_is_refused() {
        let usage = |used| SampledUsage { size: Bytes::gib(10), used, ..SampledUsage::default() };
        let to = Quantity(Bytes::gib(2));
        for (used, fits) in [
            (Bytes::gib(1), true),
            (Bytes::gib(2), true),
            (Bytes::mib(2900), true), // Nearly a tenth of it may have gone since.
            (Bytes::gib(3), false),   // There is no room for a margin.
            (Bytes::gib(9), false),
        ] {
            assert_eq!(too_small("db", usage(used), to).is_none(), fits, "{used}");
        }
        let full = SampledUsage { inodes: 9, inodes_used: 7, ..usage(Bytes::gib(9)) };
        let said = too_small("db", full, to).unwrap();
        assert!(said.contains("claim db holds 9 GiB in 7 inodes of 10 GiB"), "{said}");
        assert!(said.contains("and that does not fit into 2Gi"), "{said}");
    }
}
