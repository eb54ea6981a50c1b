//! The arithmetic of each layout: how large a volume a volume group can still hold. Pure.
//!
//! A new layout is a variant of [`Layout`], an arm in each of these functions, and a change in
//! three places that handle linear extents only: `recovery.rs` compares live tables, `VgGuard::extend`
//! names the disks that a growth uses, and `node/grow.rs` wipes extents apart from the volume that
//! they join. The free space of a thin pool comes from device-mapper's status, which no [`Group`]
//! has: its arithmetic needs that as one more argument.

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
/// Zero for a group that LVM would refuse to change, or whose allocation policy does not give all that is
/// free.
pub fn largest(group: &Group, layout: Layout) -> u64 {
    if !group.changeable() || group.allocates_narrowly() {
        return 0;
    }
    match layout {
        Layout::Linear => group.free_extents(),
    }
}

/// The most extents that one new volume of this layout could have in the group now.
pub fn largest_new(group: &Group, layout: Layout) -> u64 {
    if group.hindrance().is_some() { 0 } else { largest(group, layout) }
}
