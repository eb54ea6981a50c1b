//! Which of several PvcAutoscalers keeps the claims of a StatefulSet that all of them name.

use kube::{Resource, ResourceExt};

use crate::api::PvcAutoscaler;

impl PvcAutoscaler {
    /// Whether it is about the same claims as another one of its namespace: of one StatefulSet, by one
    /// template. Of pods that name their claims by themselves that is known only claim by claim.
    pub fn rivals(&self, other: &PvcAutoscaler) -> bool {
        let name = |one: &PvcAutoscaler| one.spec.volume_claim_template.metadata.name.clone();
        self.spec.stateful_set().is_some()
            && self.spec.stateful_set() == other.spec.stateful_set()
            && name(self) == name(other)
            && self.namespace() == other.namespace()
            && self.name_any() != other.name_any()
    }

    /// The one that keeps the claims in its place, of all of its namespace: the oldest, and of those of one
    /// second the first by name. `None` if it keeps them itself.
    pub fn elder<'a>(&self, all: &'a [PvcAutoscaler]) -> Option<&'a PvcAutoscaler> {
        let age = |one: &PvcAutoscaler| {
            let made = one.meta().creation_timestamp.as_ref().map(|at| at.0);
            (made, one.name_any())
        };
        let elders = all.iter().filter(|other| self.rivals(other) && age(other) < age(self));
        elders.min_by_key(|other| age(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn one(name: &str, second: u8, spec: &Value) -> PvcAutoscaler {
        let metadata = json!({"name": name, "namespace": "shop",
                              "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")});
        let mut all = json!({"volumeClaimTemplate": {
            "metadata": {"name": "data"},
            "spec": {"accessModes": [], "resources": {"requests": {"storage": "1Gi"}}}}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let whole = json!({"apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
                           "metadata": metadata, "spec": all});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn the_oldest_of_one_stateful_set_and_template_keeps_its_claims() {
        let db = json!({"statefulSetName": "db"});
        let web = json!({"workload": {"deployment": "web"}});
        let all = [
            one("young", 9, &db),
            one("old", 1, &db),
            one("also-old", 1, &db),
            one("other", 0, &json!({"statefulSetName": "other"})),
            one("web", 5, &web),
            one("web-too", 6, &web),
        ];
        for (name, elder) in [
            ("young", Some("also-old")),
            ("old", Some("also-old")),
            ("also-old", None),
            ("other", None),
            ("web-too", None), // By its claims, which it may share with nobody.
        ] {
            let one = all.iter().find(|one| one.name_any() == name).unwrap();
            assert_eq!(one.elder(&all).map(ResourceExt::name_any).as_deref(), elder, "{name}");
        }
    }
}
