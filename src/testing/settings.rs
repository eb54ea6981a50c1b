//! What a node is told where a test has no wish of its own.

use std::path::PathBuf;
use std::time::Duration;

use crate::node::NodeSettings;
use crate::volume::NodeKey;

/// Return the settings of a node of this name: without limits, in one step, with 20 s for a wipe.
pub fn node_settings(name: &str) -> NodeSettings {
    NodeSettings {
        name: name.to_owned(),
        key: NodeKey::of(name),
        max_volumes_per_node: 0,
        two_step: false,
        guarded_devices: false,
        wipe_rate: None,
        wipe_patience: Duration::from_secs(20),
        state_dir: PathBuf::from("/run/pliant"),
    }
}
