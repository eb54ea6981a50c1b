//! The claims of a workload.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::api::{PvcAutoscaler, Workload};
use crate::commands::address::{Whose, not_found};
use crate::commands::read::ListReader;
use crate::commands::{AskError, CLAIMS, PVC_AUTOSCALERS, asked, in_namespace, may_not_list};
use crate::volume::few;

/// Lists the names of the existing claims of a workload.
///
/// # Errors
/// [`AskError::Refused`] if there is no such workload, or if it has no claims.
pub(super) async fn claims_of(
    client: &Client,
    namespace: Option<&str>,
    whose: &Whose,
) -> Result<BTreeSet<String>, AskError> {
    let namespace = namespace.unwrap_or(client.default_namespace());
    let mut ask = ListReader::new(client);
    let all: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claims = ask.list(all, ListParams::default(), CLAIMS).await?;
    let all: Api<PvcAutoscaler> = Api::namespaced(client.clone(), namespace);
    let autoscalers = ask.list(all, ListParams::default(), PVC_AUTOSCALERS).await?;
    if ask.unseen.contains(&CLAIMS) {
        return Err(may_not_list(CLAIMS, &in_namespace(namespace)));
    }
    let (named, workload) = match whose {
        Whose::Claim(name) => return Ok(BTreeSet::from([name.clone()])),
        Whose::StatefulSet(name) => {
            let set = found(client, namespace, name, "StatefulSet", "statefulsets").await?;
            (of_set(&set, &claims), Some(Workload::StatefulSet(name)))
        }
        Whose::Deployment(name) => {
            let one: Deployment =
                found(client, namespace, name, "Deployment", "deployments").await?;
            let named = one.spec.map(|spec| of_pods(&spec.template)).unwrap_or_default();
            (named, Some(Workload::Deployment(name)))
        }
        Whose::Autoscaler(name) => {
            if !autoscalers.iter().any(|one| one.name_any() == *name) {
                return Err(not_found("PvcAutoscaler", name, namespace, "pvcautoscalers"));
            }
            (BTreeSet::new(), None)
        }
    };
    let is_its = |one: &&PvcAutoscaler| match whose {
        Whose::Autoscaler(name) => one.name_any() == *name,
        _ => workload == Some(one.spec.workload()),
    };
    let its: Vec<&PvcAutoscaler> = autoscalers.iter().filter(is_its).collect();
    let active = its.iter().filter_map(|one| one.status.as_ref());
    let active = active.flat_map(|status| &status.ordinals).map(|one| one.active_claim.clone());
    let wanted: BTreeSet<String> = named.into_iter().chain(active).collect();
    let found: BTreeSet<String> =
        claims.iter().map(ResourceExt::name_any).filter(|name| wanted.contains(name)).collect();
    if found.is_empty() {
        let (kind, name) = match whose {
            Whose::Claim(name) => ("claim", name),
            Whose::StatefulSet(name) => ("StatefulSet", name),
            Whose::Deployment(name) => ("Deployment", name),
            Whose::Autoscaler(name) => ("PvcAutoscaler", name),
        };
        let why = why_none(&wanted, its.is_empty() && !ask.unseen.contains(&PVC_AUTOSCALERS));
        let problem = its.iter().find_map(|one| one.status.as_ref()?.message.as_deref());
        let problem = problem.map(|message| format!("; its PvcAutoscaler: {message}"));
        let problem = problem.unwrap_or_default();
        let reason =
            format!("{kind} {name} in namespace {namespace} has no claims: {why}{problem}");
        return Err(AskError::Refused { reason });
    }
    Ok(found)
}

/// Lists the names of the claims of a pod, whether they exist or not.
///
/// # Errors
/// [`AskError::Refused`] if there is no such pod, or if it uses no claims.
pub(super) async fn claims_of_pod(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
) -> Result<BTreeSet<String>, AskError> {
    let namespace = namespace.unwrap_or(client.default_namespace());
    let pod: Pod = found(client, namespace, name, "pod", "pods").await?;
    let claims = of_pod(&pod);
    if claims.is_empty() {
        let reason = format!("pod {name} in namespace {namespace} uses no claims");
        return Err(AskError::Refused { reason });
    }
    Ok(claims)
}

/// The claims of a pod, those of its ephemeral volumes included.
fn of_pod(pod: &Pod) -> BTreeSet<String> {
    let name = pod.name_any();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(claim.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| format!("{name}-{}", volume.name)),
    });
    claims.collect()
}

/// Returns why a workload has no claims.
fn why_none(wanted: &BTreeSet<String>, is_unmanaged: bool) -> String {
    if !wanted.is_empty() {
        let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
        return format!("there is no {}", few(&names));
    }
    let unmanaged = if is_unmanaged { ", and no PvcAutoscaler manages it" } else { "" };
    format!("its pod template names none, no claim has a name of its claim templates{unmanaged}")
}

async fn found<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    kind: &'static str,
    plural: &str,
) -> Result<K, AskError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(asked(kind))?;
    found.ok_or_else(|| not_found(kind, name, namespace, plural))
}

/// Claims that its templates create for any ordinal, and those that its pods name.
fn of_set(set: &StatefulSet, claims: &[PersistentVolumeClaim]) -> BTreeSet<String> {
    let Some(spec) = &set.spec else { return BTreeSet::new() };
    let templates = spec.volume_claim_templates.iter().flatten();
    let starts: Vec<String> =
        templates.map(|one| format!("{}-{}-", one.name_any(), set.name_any())).collect();
    let is_made = |name: &String| {
        let ordinals = starts.iter().filter_map(|start| name.strip_prefix(start));
        ordinals.into_iter().any(|ordinal| ordinal.parse::<u32>().is_ok())
    };
    let made = claims.iter().map(ResourceExt::name_any).filter(is_made);
    made.chain(of_pods(&spec.template)).collect()
}

fn of_pods(template: &PodTemplateSpec) -> BTreeSet<String> {
    let volumes = template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_the_claims_that_it_names_and_those_of_its_ephemeral_volumes() {
        let volumes = serde_json::json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
            {"name": "scratch", "ephemeral": {}},
            {"name": "conf", "emptyDir": {}}]);
        let pod = serde_json::json!({"metadata": {"name": "db-0"}, "spec": {"containers": [], "volumes": volumes}});
        let claims = of_pod(&serde_json::from_value(pod).unwrap());
        assert_eq!(claims, BTreeSet::from(["data-db-0".to_owned(), "db-0-scratch".to_owned()]));
    }

    #[test]
    fn a_workload_without_claims_is_told_why() {
        let none = BTreeSet::new();
        let is_unmanaged = why_none(&none, true);
        assert!(
            is_unmanaged.ends_with("claim templates, and no PvcAutoscaler manages it"),
            "{is_unmanaged}"
        );
        assert!(why_none(&none, false).ends_with("of its claim templates"));
        let named = BTreeSet::from(["data-db-0".to_owned()]);
        assert_eq!(why_none(&named, true), "there is no data-db-0");
    }
}
