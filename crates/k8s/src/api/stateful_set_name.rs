//! Which StatefulSet a PvcAutoscaler names, whatever else it says.

use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::api::PvcAutoscaler;

/// A PvcAutoscaler without all but the StatefulSet that it names.
///
/// Whether the pods of a StatefulSet are shown to the webhook must not depend on the rest, which a newer version may
/// have written.
#[derive(Resource, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[resource(inherit = PvcAutoscaler)]
pub struct StatefulSetName {
    /// Its name and namespace.
    pub metadata: ObjectMeta,
    /// What it names.
    #[serde(default)]
    pub spec: NamesStatefulSet,
}

/// What a PvcAutoscaler names.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct NamesStatefulSet {
    /// The StatefulSet; `None` for other workloads.
    pub stateful_set_name: Option<String>,
}

impl StatefulSetName {
    /// The StatefulSet whose claims it keeps.
    pub fn stateful_set(&self) -> Option<&str> {
        self.spec.stateful_set_name.as_deref().filter(|name| !name.is_empty())
    }
}
