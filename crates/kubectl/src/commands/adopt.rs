//! Recovers orphaned volumes, which no PersistentVolume names.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use crate::commands::read::ListReader;
use crate::commands::{AskError, EDITOR, asked};

mod adoption;
mod plan;

pub use adoption::Adoption;
use plan::ObservedClaim;
pub(super) use plan::fitting;
pub use plan::{RecoveryOptions, all, plan};

/// Reads the objects on which a recovery depends.
///
/// # Errors
/// [`AskError::Api`], and [`AskError::Refused`] if the caller may not read all of them.
pub async fn observe(client: &Client) -> Result<ObservedClaim, AskError> {
    let mut ask = ListReader::new(client);
    let every = ListParams::default;
    let seen = ObservedClaim {
        nodes: ask.storages().await?,
        volumes: ask.list(ask.all(), every(), "persistent volumes").await?,
        claims: ask.list(ask.all(), every(), "claims of all namespaces").await?,
        requests: ask.list(ask.all(), every(), "volumerequests").await?,
        classes: ask.list(ask.all(), every(), "storage classes").await?,
    };
    if let Some(unreadable) = ask.unreadable.first() {
        // It might be the PersistentVolume of a volume.
        let reason = format!("{unreadable}; nothing is recovered until it can be decoded");
        return Err(AskError::Refused { reason });
    }
    if ask.unseen.is_empty() {
        return Ok(seen);
    }
    // What is not seen might be the PersistentVolume of a volume.
    let reason =
        format!("you may not read {}; an administrator can do this", ask.unseen.join(", "));
    Err(AskError::Refused { reason })
}

/// Creates the PersistentVolume, then the claim.
///
/// The PersistentVolume names its claim, so no other claim is bound to it in between.
///
/// # Errors
/// [`AskError::Api`]. If the claim cannot be made, the PersistentVolume stays and waits for it.
pub async fn adopt(client: &Client, adoption: &Adoption) -> Result<(), AskError> {
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let params = PostParams { field_manager: Some(EDITOR.to_owned()), ..PostParams::default() };
    let made = api.create(&params, &adoption.volume).await;
    made.map_err(asked("a new PersistentVolume"))?;
    if let Some(claim) = &adoption.claim {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        let made = api.create(&params, claim).await;
        made.map_err(asked("a new claim; its PersistentVolume was created and waits for it"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
