//! Identity of an attempt of a swap: each has its own events. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::Swap;

/// Returns the identity of an attempt.
pub(super) fn attempt(swap: &Swap) -> String {
    let begun = swap.start_time.as_ref().map_or(0, |Time(at)| at.as_second());
    format!("{}/{begun}", swap.claim)
}
