//! What a node is told about itself.

use std::path::PathBuf;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::volume::NodeKey;

/// Settings of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// The node's name.
    pub name: String,
    /// Its short stable hash, derived from the name.
    pub key: NodeKey,
    /// Maximum number of volumes; 0: the caller decides.
    pub max_volumes_per_node: u32,
    /// True if only the node step expands file systems, and not the growth of a volume.
    pub two_step: bool,
    /// True if the caller enforces read-only access to raw block volumes. A read-only bind mount
    /// does not. The kubelet does, by the container's rules for devices.
    pub guarded_devices: bool,
    /// Bytes a second that all copies of volumes and snapshots together may read; `None`: no limit.
    pub copy_rate: Option<Bytes>,
    /// Bytes a second that a wipe may write; `None`: no limit.
    pub wipe_rate: Option<Bytes>,
    /// Time that a call waits for a wipe before it returns an error and its caller retries.
    pub wipe_patience: Duration,
    /// Directory for what does not outlive a reboot.
    pub state_dir: PathBuf,
}

impl NodeSettings {
    /// Returns the settings of a node of this name: without limits, file systems grown in one step, and 20 s of patience
    /// with a wipe.
    pub fn new(name: &str) -> NodeSettings {
        NodeSettings {
            name: name.to_owned(),
            key: NodeKey::of(name),
            max_volumes_per_node: 0,
            two_step: false,
            guarded_devices: false,
            copy_rate: None,
            wipe_rate: None,
            wipe_patience: Duration::from_secs(20),
            state_dir: PathBuf::from("/run/pliant"),
        }
    }

    /// Directory in which unmounted file systems are mounted while they are resized.
    pub fn private_mounts(&self) -> PathBuf {
        self.state_dir.join("grow")
    }
}
