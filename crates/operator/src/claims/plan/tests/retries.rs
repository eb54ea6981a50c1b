//! Swaps that have failed and are tried again: when, how often, and what is done meanwhile.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::others::begins_with_another;
use super::world::World;
use crate::api::{PvcAutoscalerStatus, Swap, SwapPhase};

/// How often a swap is tried for one specification.
const AT_MOST: u8 = 4;

/// How swaps came out, as those who watch the status have seen it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Tries {
    /// By the specification: how many tries were begun.
    begun: BTreeMap<i64, u8>,
    /// The specification of a try that has failed, while none has come to a good end since.
    failed: Option<i64>,
}

fn swap_in(status: &PvcAutoscalerStatus) -> Option<&Swap> {
    status.of(0)?.swap.as_ref()
}

impl World {
    /// When the swap that has failed is tried again, if that is not yet.
    pub(super) fn next_try(&self) -> Option<Timestamp> {
        let Time(at) = swap_in(&self.status)?.next_retry_time.as_ref()?;
        Some(*at).filter(|at| *at > self.now())
    }

    /// As many hours pass as are waited for.
    pub(super) fn await_retry(&mut self) -> bool {
        let at = self.next_try();
        self.hours = at.map_or(self.hours, |at| at.as_second() / 3600);
        at.is_some()
    }

    /// Whether a swap that has failed is rightly tried no more.
    pub(super) fn is_given_up(&self) -> bool {
        let generation = swap_in(&self.status).map_or(0, |swap| swap.spec_generation);
        !self.left.differs || self.tries.begun.get(&generation) == Some(&AT_MOST)
    }

    /// Count what the status tells since `before`.
    pub(super) fn count_tries(&mut self, before: &PvcAutoscalerStatus) {
        let Some(swap) = swap_in(&self.status).filter(|_| self.left.differs) else { return };
        let (generation, phase) = (swap.spec_generation, swap.phase);
        let is_under_way = |swap: &Swap| swap.phase != SwapPhase::Failed;
        match phase {
            SwapPhase::RollingBack | SwapPhase::Failed => self.tries.failed = Some(generation),
            SwapPhase::Soaking => self.tries.failed = None,
            _ if swap_in(before).is_some_and(is_under_way) => {}
            _ => *self.tries.begun.entry(generation).or_default() += 1,
        }
        let begun = self.tries.begun.get(&generation);
        assert!(begun.is_none_or(|begun| *begun <= AT_MOST), "it is tried on and on, in {self:#?}");
    }

    /// What an operator sees now does not have it stop another pod after a try that has failed.
    pub(super) fn holds_others_up(&self, n: usize) {
        let has_failed = self.tries.failed.is_some();
        let seen = has_failed.then(|| self.seen_with_another(n, 2));
        let seen = seen.filter(|seen| self.tries.failed == Some(seen.generation()));
        let begins = seen.is_some_and(|seen| begins_with_another(&seen));
        assert!(!begins, "another pod is stopped after a failure, in {self:#?}");
    }
}
