//! The arithmetic of each layout: how many extents a size takes, and how large a volume a group
//! can still hold. A new layout is a new arm in each of these functions.

use crate::lvm::Group;
use crate::volume::Layout;

/// The arguments of `lvcreate` that ask for this layout.
pub fn arguments(layout: Layout) -> &'static [&'static str] {
    match layout {
        Layout::Linear => &[],
    }
}

/// The most extents that one volume of this layout could grow by in the group now.
///
/// Zero for a group that LVM would refuse to change.
pub fn largest(group: &Group, layout: Layout) -> u64 {
    if !group.changeable() {
        return 0;
    }
    match layout {
        Layout::Linear => group.free_extents(),
    }
}

/// The most extents that one new volume of this layout could have in the group now.
pub fn largest_new(group: &Group, layout: Layout) -> u64 {
    if group.metadata_full { 0 } else { largest(group, layout) }
}

/// The extents of the group's disks that a volume of this many extents takes.
pub fn taken(layout: Layout, extents: u64) -> u64 {
    match layout {
        Layout::Linear => extents,
    }
}
