//! The arithmetic of each layout: how large a volume a volume group can still hold. Pure.
//!
//! A new layout is a variant of [`Layout`], an arm in each of these functions, and a change in
//! three places that handle linear extents only: `recovery.rs` compares live tables, `VgGuard::extend`
//! names the disks that a growth uses, and `node/grow.rs` wipes extents apart from the volume that
//! they join.

use crate::lvm::{Group, ThinUsage, thin, thin_usage};
use crate::volume::{Layout, Terms};

/// The most extents that one volume of this layout could grow by in the group now.
///
/// Zero for a group that LVM would refuse to change, or whose allocation policy does not give all that is
/// free. `usage` is how full its thin pool is, if that is known: see [`thin_usage::room`].
pub fn largest(group: &Group, layout: Layout, terms: &Terms, usage: Option<&ThinUsage>) -> u64 {
    if !group.changeable() || group.allocates_narrowly() {
        return 0;
    }
    match (layout, &terms.thin) {
        (Layout::Linear, _) => available(group, terms),
        (Layout::Thin, Some(settings)) => thin_usage::room(group, settings, terms.reserve, usage),
        (Layout::Thin, None) => 0,
    }
}

/// The most extents that one new volume of this layout could have in the group now.
pub fn largest_new(group: &Group, layout: Layout, terms: &Terms, usage: Option<&ThinUsage>) -> u64 {
    if group.hindrance().is_some() { 0 } else { largest(group, layout, terms, usage) }
}

/// The free extents that are neither reserved nor promised to thin volumes.
pub fn available(group: &Group, terms: &Terms) -> u64 {
    let owed = thin::owed(group, terms.thin.as_ref());
    let reserved = terms.reserve.div_ceil(group.extent_size);
    group.free_extents().saturating_sub(owed).saturating_sub(reserved)
}
