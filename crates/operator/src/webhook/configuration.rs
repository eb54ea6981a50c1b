//! Pods for which the API server calls the webhook.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
    ServiceReference, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::Service;
use crate::api::DnsName;

/// The label that every namespace has, with its name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// Maximum size of the names in one match condition, in bytes. An expression has at most 100,000
/// characters.
///
/// # Source
/// cel-go, `parser.ExpressionSizeCodePointLimit`, whose default Kubernetes uses.
const MOST_NAMES: usize = 80_000;

/// Timeout of a call of the API server, in seconds.
const PATIENCE: i32 = 5;

/// Match condition for a pod, up to the list of names.
const BEFORE_NAMES: &str = "has(object.metadata.ownerReferences) && \
    object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && \
    o.kind == 'StatefulSet' && o.apiVersion.startsWith('apps/') && \
    (request.namespace + '/' + o.name) in [";

/// Match condition after the list of names.
const AFTER_NAMES: &str = "])";

/// Separator of two names.
const BETWEEN_NAMES: &str = ", ";

/// A StatefulSet by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatefulSetRef {
    /// Namespace of the StatefulSet.
    pub namespace: DnsName,
    /// Name of the StatefulSet.
    pub name: DnsName,
}

impl StatefulSetRef {
    /// Returns the StatefulSet of these names; `None` if no StatefulSet can have them.
    pub fn parse(namespace: &str, name: &str) -> Option<StatefulSetRef> {
        Some(StatefulSetRef { namespace: namespace.parse().ok()?, name: name.parse().ok()? })
    }

    /// Formats the name as a CEL string. Names have no character that would end one.
    fn literal(&self) -> String {
        format!("'{self}'")
    }

    fn of_literal(text: &str) -> Option<StatefulSetRef> {
        let (namespace, name) = text.strip_prefix('\'')?.strip_suffix('\'')?.split_once('/')?;
        StatefulSetRef::parse(namespace, name)
    }
}

impl fmt::Display for StatefulSetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Returns the webhooks for the pods of these StatefulSets only: none without a StatefulSet,
/// usually one, more for very many. They include all defaults of the API server, so that they can
/// be compared with the existing ones.
pub fn webhooks(
    service: &Service,
    workloads: &BTreeSet<StatefulSetRef>,
    authorities: &str,
) -> Vec<MutatingWebhook> {
    let client = WebhookClientConfig {
        ca_bundle: Some(ByteString(authorities.as_bytes().to_vec())),
        service: Some(ServiceReference {
            name: service.name.clone(),
            namespace: service.namespace.clone(),
            path: Some("/pods".to_owned()),
            port: Some(443),
        }),
        url: None,
    };
    let parts = parts(workloads).into_iter().enumerate();
    parts.map(|(number, part)| webhook(number, &part, client.clone())).collect()
}

/// Returns true if the API server calls the webhook for the pods of a StatefulSet. A pod that is
/// created earlier lacks its claim. A condition in a foreign format covers none.
pub fn covers(configuration: &MutatingWebhookConfiguration, workload: &StatefulSetRef) -> bool {
    configuration.webhooks.iter().flatten().any(|webhook| {
        let selector = webhook.namespace_selector.as_ref();
        let mut namespaces = selector
            .into_iter()
            .flat_map(|one| one.match_expressions.iter().flatten())
            .flat_map(|one| one.values.iter().flatten());
        let is_selected = namespaces.any(|one| one == workload.namespace.as_str());
        let [condition] = webhook.match_conditions.as_deref().unwrap_or_default() else {
            return false;
        };
        let named = names_in(&condition.expression);
        is_selected && named.is_some_and(|named| named.contains(workload))
    })
}

/// The StatefulSets that a condition names; `None` for one that is not exactly as we write it.
pub fn names_in(expression: &str) -> Option<BTreeSet<StatefulSetRef>> {
    let list = expression.strip_prefix(BEFORE_NAMES)?.strip_suffix(AFTER_NAMES)?;
    list.split(BETWEEN_NAMES).map(StatefulSetRef::of_literal).collect()
}

/// The StatefulSets that a configuration names.
pub(super) fn named(
    configuration: Option<&MutatingWebhookConfiguration>,
) -> BTreeSet<StatefulSetRef> {
    let webhooks = configuration.into_iter().flat_map(|one| one.webhooks.iter().flatten());
    let conditions = webhooks.flat_map(|one| one.match_conditions.iter().flatten());
    conditions.filter_map(|one| names_in(&one.expression)).flatten().collect()
}

/// The StatefulSets by as many as one condition holds.
fn parts(workloads: &BTreeSet<StatefulSetRef>) -> Vec<Vec<&StatefulSetRef>> {
    let mut parts: Vec<Vec<&StatefulSetRef>> = Vec::new();
    let mut length = 0;
    for workload in workloads {
        let more = workload.literal().len() + BETWEEN_NAMES.len();
        length += more;
        match parts.last_mut() {
            Some(part) if length <= MOST_NAMES => part.push(workload),
            _ => {
                parts.push(vec![workload]);
                length = more;
            }
        }
    }
    parts
}

fn webhook(
    number: usize,
    part: &[&StatefulSetRef],
    client: WebhookClientConfig,
) -> MutatingWebhook {
    let namespaces: BTreeSet<&str> = part.iter().map(|one| one.namespace.as_str()).collect();
    let of_names = LabelSelectorRequirement {
        key: NAMESPACE_LABEL.to_owned(),
        operator: "In".to_owned(),
        values: Some(namespaces.into_iter().map(str::to_owned).collect()),
    };
    MutatingWebhook {
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client,
        failure_policy: Some("Fail".to_owned()), // A pod without its claim would be refused all the same.
        match_conditions: Some(vec![MatchCondition {
            name: "stateful-sets-of-pvc-autoscalers".to_owned(),
            expression: expression(part),
        }]),
        match_policy: Some("Equivalent".to_owned()),
        name: format!("pods-{number}.webhook.pliant.io"),
        namespace_selector: Some(LabelSelector {
            match_expressions: Some(vec![of_names]),
            match_labels: None,
        }),
        object_selector: Some(LabelSelector::default()),
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(vec![RuleWithOperations {
            api_groups: Some(vec![String::new()]),
            api_versions: Some(vec!["v1".to_owned()]),
            operations: Some(vec!["CREATE".to_owned()]),
            resources: Some(vec!["pods".to_owned()]),
            scope: Some("Namespaced".to_owned()),
        }]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(PATIENCE),
    }
}

fn expression(part: &[&StatefulSetRef]) -> String {
    let names: Vec<String> = part.iter().map(|one| one.literal()).collect();
    format!("{BEFORE_NAMES}{}{AFTER_NAMES}", names.join(BETWEEN_NAMES))
}

#[cfg(test)]
mod tests;
