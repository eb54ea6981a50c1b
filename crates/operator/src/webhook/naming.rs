//! StatefulSets that watched PvcAutoscalers name.

use crate::api::StatefulSetName;
use crate::cluster::{ObjectNames, Record};
use crate::webhook::StatefulSetRef;

/// A PvcAutoscaler, reduced to its metadata and its StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    names: ObjectNames,
    /// The StatefulSet; `None` for other workloads.
    pub stateful_set: Option<Box<str>>,
}

impl Naming {
    /// Returns the StatefulSet whose claims it manages. A name that no object can have counts as none:
    /// the schema rejects it, but an older schema may have accepted it.
    pub fn workload(&self) -> Option<StatefulSetRef> {
        StatefulSetRef::parse(&self.names.namespace, self.stateful_set.as_deref()?)
    }
}

impl Record for Naming {
    type Object = StatefulSetName;
    type ObjectIdentity = ObjectNames;

    fn of(one: StatefulSetName) -> Self {
        let stateful_set = one.stateful_set().map(Box::from);
        // Versions differ in much that is nothing to this.
        let names = ObjectNames { resource_version: Box::default(), ..one.metadata.into() };
        Naming { names, stateful_set }
    }

    fn identity(&self) -> &ObjectNames {
        &self.names
    }

    fn identity_mut(&mut self) -> &mut ObjectNames {
        &mut self.names
    }
}
