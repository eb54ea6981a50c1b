//! Whose claims a PvcAutoscaler keeps.

use std::collections::BTreeMap;
use std::fmt;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::claim_template::as_label_values;
use crate::api::dns_name::{DNS_NAME, DNS_NAMES};

/// The most labels by which pods are selected.
const MOST_SELECTED: usize = 16;

/// Pods that no StatefulSet creates, and that name their claims.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.deploymentName) != has(self.podSelector)").message("write either deploymentName or podSelector"),
    validation = Rule::new("has(self.podSelector) == has(self.claimNamePattern)").message("podSelector and claimNamePattern go together: which pods, and which of their claims")
)]
pub struct PodsOf {
    /// Name of the Deployment in this namespace. Its pods share one claim. Give either this or
    /// `podSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub deployment_name: Option<String>,
    /// Selector of the pods, whichever controller creates them. Needs `claimNamePattern`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<PodSelector>,
    /// Names of the claims of these pods; `*` stands for any characters, as in `data-db-*`. Needs `podSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAMES))]
    pub claim_name_pattern: Option<String>,
}

/// Selector of pods by their labels.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSelector {
    /// Labels that a pod must have, all of them; 1 to 16.
    #[schemars(
        extend("minProperties" = 1, "maxProperties" = MOST_SELECTED),
        transform = as_label_values
    )]
    pub match_labels: BTreeMap<String, String>,
}

impl PodsOf {
    /// Whose claims these are.
    pub fn workload(&self) -> Workload<'_> {
        self.deployment_name.as_deref().map_or(Workload::Pods(self), Workload::Deployment)
    }

    /// Whether a pod with these labels is one of them.
    pub fn has_pod(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut wanted = self.match_labels().peekable();
        wanted.peek().is_some() && wanted.all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Returns the labels that its pods have, none for a Deployment.
    fn match_labels(&self) -> impl Iterator<Item = (&String, &String)> {
        self.pod_selector.iter().flat_map(|selector| &selector.match_labels)
    }

    /// Whether a claim of this name is one of them.
    pub fn has_claim(&self, name: &str) -> bool {
        self.claim_name_pattern.as_deref().is_some_and(|pattern| matches(pattern, name))
    }
}

/// Whose claims a PvcAutoscaler keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workload<'a> {
    /// Those of a StatefulSet: each pod has its own, whose name is made of the name of the pod.
    StatefulSet(&'a str),
    /// The one that the pods of a Deployment name.
    Deployment(&'a str),
    /// Those that pods with these labels name.
    Pods(&'a PodsOf),
}

impl Workload<'_> {
    /// It for people, such as `StatefulSet db`.
    pub fn in_words(&self) -> String {
        match self {
            Workload::StatefulSet(name) => format!("StatefulSet {name}"),
            Workload::Deployment(name) => format!("Deployment {name}"),
            Workload::Pods(pods) => format!("the pods with {}", labels(pods)),
        }
    }
}

/// It for machines, such as `StatefulSet/db`.
impl fmt::Display for Workload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::StatefulSet(name) => write!(f, "StatefulSet/{name}"),
            Workload::Deployment(name) => write!(f, "Deployment/{name}"),
            Workload::Pods(pods) => write!(f, "Pods/{}", labels(pods)),
        }
    }
}

fn labels(pods: &PodsOf) -> String {
    pods.match_labels().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Whether a name is as a pattern has it.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_chosen_by_a_pattern() {
        for (pattern, name, expected) in [
            ("data", "data", true),
            ("data", "data-0", false),
            ("data-*", "data-0", true),
            ("data-*", "data-", true),
            ("data-*", "log-data-0", false),
            ("*-data", "log-data", true),
            ("*-data", "log-data-0", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false), // What is before a star is not what is behind it.
            ("*", "anything", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn pods_are_chosen_by_all_labels_and_none_by_none() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let of = |pairs| PodsOf {
            pod_selector: Some(PodSelector { match_labels: labels(pairs) }),
            ..PodsOf::default()
        };
        assert!(of(&[("app", "a")]).has_pod(&labels(&[("app", "a"), ("x", "y")])));
        assert!(!of(&[("app", "a"), ("x", "y")]).has_pod(&labels(&[("app", "a")])));
        assert!(!of(&[("app", "a")]).has_pod(&labels(&[("app", "b")])));
        assert!(!of(&[]).has_pod(&labels(&[("app", "a")])));
        assert!(!PodsOf::default().has_pod(&labels(&[])));
    }
}
