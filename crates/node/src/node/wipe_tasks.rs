//! The wipes of a volume: before its first use, and when it is deleted.

use crate::node::Node;
use crate::node::found::FoundVolume;
use crate::node::wipe::Task;
use crate::volume::{Layout, Mode, VolumeError, Wipe};

/// Returns whether the bytes of a volume go before the volume does: they are wiped, or its thin pool takes them back.
pub(super) fn loses_its_bytes_first(found: &FoundVolume) -> bool {
    found.record.wipe != Wipe::None || found.lv.layout() == Layout::Thin
}

/// Begins to wipe a new volume where that takes long; one whose wipe is under way goes on. That of a file
/// system is 2 MiB, and is wiped where it is made: before, it would be made active for that alone.
pub(super) fn start_first_wipe(node: &Node, found: &FoundVolume) {
    if found.record.mode == Mode::Block {
        node.wipes.start(Task::before_first_use(found));
    }
}

/// The wipe at a volume's end, from where it stopped.
///
/// That the volume goes is durable before its first byte does: a power cut would leave a volume
/// that is in use and half empty.
pub(super) async fn last_wipe(found: &FoundVolume) -> Result<Task, VolumeError> {
    found.group.flush().await?;
    Ok(Task { how: found.record.wipe, ..Task::whole(found) })
}
