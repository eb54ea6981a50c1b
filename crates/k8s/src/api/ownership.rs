//! Which of several PvcAutoscalers keeps the claims of a StatefulSet that all of them name.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::PvcAutoscaler;

/// A PvcAutoscaler, as far as it says whether another one keeps the claims in its place.
pub trait Rival {
    /// Its namespace and its name.
    fn names(&self) -> (&str, &str);

    /// The StatefulSet that it names, and the name of its template.
    fn template(&self) -> (Option<&str>, &str);

    /// When it was made.
    fn creation_time(&self) -> Option<Timestamp>;

    /// Whether it is about the same claims as another one of its namespace: of one StatefulSet, by one
    /// template. Of pods that name their claims by themselves that is known only claim by claim.
    fn rivals(&self, other: &impl Rival) -> bool {
        let ((namespace, name), (of, other_name)) = (self.names(), other.names());
        let (set, _) = self.template();
        set.is_some()
            && self.template() == other.template()
            && namespace == of
            && name != other_name
    }

    /// The one that keeps the claims in its place, of all of its namespace: the oldest, and of those of one
    /// second the first by name. `None` if it keeps them itself.
    fn elder<'a, R: Rival>(&self, all: impl IntoIterator<Item = &'a R>) -> Option<&'a R> {
        let own = (self.creation_time(), self.names().1);
        let age = |other: &'a R| (other.creation_time(), other.names().1);
        let elders = all.into_iter().filter(|other| self.rivals(*other) && age(other) < own);
        elders.min_by_key(|other| age(other))
    }
}

impl Rival for PvcAutoscaler {
    fn names(&self) -> (&str, &str) {
        let meta = &self.metadata;
        (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }

    fn template(&self) -> (Option<&str>, &str) {
        (self.spec.stateful_set(), &self.spec.volume_claim_template.metadata.name)
    }

    fn creation_time(&self) -> Option<Timestamp> {
        self.creation_timestamp().map(|time| time.0)
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
        let web = json!({"workload": {"deploymentName": "web"}});
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
