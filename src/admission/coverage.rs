//! Whether the webhook is asked for the pods of a StatefulSet, and else why not.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{Api, Client};

use super::configuration::named;
use super::names::{FullShare, full_share};
use super::{Service, Workload, covers};

/// Whether the API server asks the webhook for the pods of a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// It does.
    Covered,
    /// Not now: it does once the webhook names the StatefulSet.
    NotNamed,
    /// Not as long as so many others are named.
    ShareIsFull(FullShare),
}

/// Look up whether the API server asks the webhook of this Service for the pods of a StatefulSet.
///
/// # Errors
/// What the API server says; a configuration that is not there is none.
pub async fn coverage(
    client: &Client,
    service: &Service,
    workload: &Workload,
) -> Result<Coverage, kube::Error> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let there = api.get_opt(&service.name).await?;
    if there.as_ref().is_some_and(|configuration| covers(configuration, workload)) {
        return Ok(Coverage::Covered);
    }
    let full = full_share(&named(there.as_ref()), workload);
    Ok(full.map_or(Coverage::NotNamed, Coverage::ShareIsFull))
}
