//! The labels and annotations of the template that a claim is to have. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::api::TemplateMetadata;

/// Domains of keys that belong to the creation and the volume of a claim: they are written at its
/// creation, and by other programs.
const OF_OTHERS: [&str; 4] =
    ["pliant.io/", "pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/"];

/// Labels and annotations.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Marks {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Marks {
    /// Returns the labels and annotations of the template that a claim lacks or has with other values;
    /// `None` if it has all. Keys that were removed from the template stay: others may depend on them.
    pub fn missing(template: &TemplateMetadata, claim: &ObjectMeta) -> Option<Marks> {
        let marks = Marks {
            labels: differing(&template.labels, claim.labels.as_ref()),
            annotations: differing(&template.annotations, claim.annotations.as_ref()),
        };
        (marks != Marks::default()).then_some(marks)
    }
}

fn differing(
    wanted: &BTreeMap<String, String>,
    has: Option<&BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let is_ours = |key: &str| !OF_OTHERS.iter().any(|domain| key.starts_with(domain));
    let differs = |key: &String, value: &String| has.and_then(|has| has.get(key)) != Some(value);
    let all = wanted.iter().filter(|(key, value)| is_ours(key) && differs(key, value));
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_claim_gets_what_it_lacks_of_the_template_and_keeps_what_others_put() {
        let missing = |template: Value, claim: Value| {
            let mut whole = json!({"name": "data"});
            whole.as_object_mut().unwrap().extend(template.as_object().unwrap().clone());
            let template: TemplateMetadata = serde_json::from_value(whole).unwrap();
            let claim: ObjectMeta = serde_json::from_value(claim).unwrap();
            Marks::missing(&template, &claim).map(|marks| json!(marks))
        };
        let wants = json!({"labels": {"app.kubernetes.io/name": "db", "tier": "gold"},
                           "annotations": {"backup": "daily"}});
        let has = json!({"labels": {"app.kubernetes.io/name": "db", "tier": "silver", "x": "y"}});
        let lacks = json!({"labels": {"tier": "gold"}, "annotations": {"backup": "daily"}});
        assert_eq!(missing(wants.clone(), has), Some(lacks));
        assert_eq!(missing(wants.clone(), wants), None);
        assert_eq!(missing(json!({}), json!({"labels": {"x": "y"}})), None);
        let of_others = json!({"labels": {"pliant.io/ordinal": "7"},
                               "annotations": {"volume.kubernetes.io/selected-node": "alpha"}});
        assert_eq!(missing(of_others, json!({})), None);
    }
}
