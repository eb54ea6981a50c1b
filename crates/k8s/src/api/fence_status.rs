//! Who can use a volume.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Fence of a volume: who can use it. The node writes it to the tags of the logical volume, where a PVC swap
/// reads it again.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceStatus {
    /// State of the fence. In a PvcAutoscaler, the one that was requested; elsewhere, the one that the node has set. `Incomplete`: it is being populated, and
    /// only the populator pod can use it. `Active`: pods can use it. `Superseded`: another volume replaces it, and no pod of
    /// a workload can use it. During a swap that other volume may still be incomplete, so do not delete this one.
    pub state: FenceState,
    /// Generation of the fence, 1 or more. Each new fence of a volume has a higher one. The node rejects a lower generation
    /// than that of the volume; with the same one, a state may only follow in the order `Incomplete`, `Active`,
    /// `Superseded`.
    #[schemars(range(min = 1))]
    pub generation: i64,
    /// True from the request of the fence until the copy is verified, also before the copy starts. The populator pod, which
    /// copies the data, can then write to an incomplete volume, and read a superseded one. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy_in_progress: bool,
}

/// What a volume is to its claim, in this order within one generation.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub enum FenceState {
    /// It is being populated, and only the populator pod can use it.
    Incomplete,
    /// Pods can use it.
    Active,
    /// Another volume has replaced it, and no pod can use it.
    Superseded,
    /// A word of another version, which this one does not know. It is never written.
    #[serde(other, rename = "(unknown)")]
    #[schemars(skip)]
    Unknown,
}

impl FenceState {
    /// The words for it in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            FenceState::Incomplete => "incomplete",
            FenceState::Active => "active",
            FenceState::Superseded => "superseded",
            FenceState::Unknown => "of a state that this version does not know",
        }
    }
}
