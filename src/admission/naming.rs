//! Which StatefulSets PvcAutoscalers name, as it is watched.

use std::sync::Arc;

use crate::admission::Workload;
use crate::api::StatefulSetName;
use crate::cluster::{Namespaces, Record};

/// A PvcAutoscaler, of which is kept what names it and which StatefulSet it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    namespace: Arc<str>,
    name: Box<str>,
    uid: Box<str>,
    /// The StatefulSet; `None` for other workloads.
    pub stateful_set: Option<Box<str>>,
}

impl Naming {
    /// The StatefulSet whose claims it keeps. A name that no object can have is that of none: the schema
    /// refuses it, and an older one may have taken it.
    pub fn workload(&self) -> Option<Workload> {
        Workload::parse(&self.namespace, self.stateful_set.as_deref()?)
    }
}

impl Record for Naming {
    type Object = StatefulSetName;

    fn of(one: StatefulSetName) -> Self {
        let stateful_set = one.stateful_set().map(Box::from);
        let text = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
        Naming {
            namespace: one.metadata.namespace.unwrap_or_default().into(),
            name: text(one.metadata.name),
            uid: text(one.metadata.uid),
            stateful_set,
        }
    }

    fn place(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn id(&self) -> &str {
        &self.uid
    }

    fn share(&mut self, _: Option<&Self>, namespaces: &mut Namespaces) {
        self.namespace = namespaces.shared(&self.namespace);
    }
}
