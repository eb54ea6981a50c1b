//! Coverage of a StatefulSet by the webhook, with the reason if there is none.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{Api, Client};

use super::configuration::named;
use super::names::{FullShare, full_share};
use super::{Service, StatefulSetRef, covers};

/// Coverage of the pods of a StatefulSet by the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// The webhook covers the pods.
    Covered,
    /// Not now: it does once the webhook names the StatefulSet.
    NotNamed,
    /// Not as long as so many others are named.
    ShareIsFull(FullShare),
}

/// Looks up whether the API server calls the webhook of this Service for the pods of a StatefulSet.
///
/// # Errors
/// An error of the API server; a missing configuration is not an error.
pub async fn coverage(
    client: &Client,
    service: &Service,
    workload: &StatefulSetRef,
) -> Result<Coverage, kube::Error> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let there = api.get_opt(&service.name).await?;
    if there.as_ref().is_some_and(|configuration| covers(configuration, workload)) {
        return Ok(Coverage::Covered);
    }
    let full = full_share(&named(there.as_ref()), workload);
    Ok(full.map_or(Coverage::NotNamed, Coverage::ShareIsFull))
}
