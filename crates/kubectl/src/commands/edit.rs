//! Edits the PvcAutoscaler that manages a claim: the claims of all its pods follow its template, or a pod is
//! rolled back, or a swap is aborted.
//!
//! [`observe`] asks the API server, [`judge`] decides, [`apply`] writes, [`follow`] waits: only the second
//! needs no cluster.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::api::{PvcAutoscaler, Quantity, Rollback};
use crate::bytes::Bytes;
use crate::commands::plan::{Around, Plan};
use crate::commands::read::ListReader;
use crate::commands::{AskError, CLAIMS, CLASSES, EDITOR, PODS, PVC_AUTOSCALERS, managed};

mod abort;
mod back;
mod follow;
mod judge;
mod space;
#[cfg(test)]
mod tests;
mod unkept;

pub use super::address::Whose;
pub use abort::Aborts;
pub use follow::follow;
pub use judge::judge;

/// Change of claims that is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedChange {
    /// Expand them to this size.
    Grow(Bytes),
    /// Shrink them to this size.
    Shrink(Bytes),
    /// Migrate them to this StorageClass.
    Move(String),
    /// Roll back to the claims from before the last swap.
    RollBack,
    /// Abort the swaps in progress.
    Abort,
}

/// Pods that a rollback or an abort selects.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Chosen {
    back: Vec<Rollback>,
    aborts: Aborts,
}

impl RequestedChange {
    /// Requested size.
    fn size(&self) -> Option<Bytes> {
        match self {
            RequestedChange::Grow(size) | RequestedChange::Shrink(size) => Some(*size),
            RequestedChange::Move(_) | RequestedChange::RollBack | RequestedChange::Abort => None,
        }
    }

    /// Patch of the specification for the selected pods.
    fn patch(&self, chosen: &Chosen) -> Value {
        let of_template = |spec: Value| json!({"volumeClaimTemplate": {"spec": spec}});
        match self {
            RequestedChange::Grow(size) | RequestedChange::Shrink(size) => {
                of_template(json!({"resources": {"requests": {"storage": Quantity(*size)}}}))
            }
            RequestedChange::Move(class) => of_template(json!({ "storageClassName": class })),
            RequestedChange::RollBack => json!({ "rollback": chosen.back }),
            RequestedChange::Abort => {
                let Aborts { abort, roll_back } = &chosen.aborts;
                json!({ "abort": abort, "rollback": roll_back })
            }
        }
    }
}

/// Decision about a requested change.
#[derive(Debug, Clone, PartialEq)]
pub enum EditDecision {
    /// This edit makes the change.
    Edit(Box<Edit>),
    /// No PvcAutoscaler manages the claim.
    Unkept(Unkept),
}

/// An edit of a PvcAutoscaler.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// PvcAutoscaler as it was read.
    pub autoscaler: PvcAutoscaler,
    /// Patch of its `spec`.
    pub patch: Value,
    /// Effect of the edit on each claim.
    pub plan: Plan,
    /// Notes to read before the edit is applied.
    pub notes: Vec<String>,
}

/// A claim that no PvcAutoscaler manages; it is not changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Unkept {
    /// Reason, and commands to run.
    pub why: String,
    /// Objects that would make the change, ready to be applied.
    pub objects: Vec<Value>,
}

/// Objects on which the decision depends.
#[derive(Debug, Default)]
pub struct ObservedAutoscaler {
    pub(super) program: String,
    pub(super) around: Around,
    pub(super) pods: Vec<Pod>,
}

/// Reads the objects on which the decision depends; `program` is the name by which the caller runs this
/// program.
///
/// # Errors
/// [`AskError::Api`].
pub async fn observe(
    client: &Client,
    program: &str,
    namespace: Option<&str>,
) -> Result<ObservedAutoscaler, AskError> {
    let mut around = Around::observe(client, namespace).await?;
    let mut ask = ListReader::new(client);
    let pods = Api::namespaced(client.clone(), &around.namespace);
    let pods = ask.list(pods, ListParams::default(), PODS).await?;
    around.unseen.extend(ask.unseen);
    around.unreadable.extend(ask.unreadable);
    around.partial.extend(ask.partial);
    Ok(ObservedAutoscaler { program: program.to_owned(), around, pods })
}

/// Applies an edit to the PvcAutoscaler as it was read; returns it as edited.
///
/// # Errors
/// [`AskError::Refused`] if it was changed in the meantime, and with the message of the API server.
pub async fn apply(client: &Client, edit: &Edit) -> Result<PvcAutoscaler, AskError> {
    let metadata = &edit.autoscaler.metadata;
    let (namespace, name) =
        (metadata.namespace.clone().unwrap_or_default(), edit.autoscaler.name_any());
    let patch = json!({
        "metadata": {"resourceVersion": metadata.resource_version, "uid": metadata.uid},
        "spec": edit.patch,
    });
    let api: Api<PvcAutoscaler> = Api::namespaced(client.clone(), &namespace);
    let params = PatchParams { field_manager: Some(EDITOR.to_owned()), ..PatchParams::default() };
    let edited = api.patch(&name, &params, &Patch::Merge(patch)).await;
    edited.map_err(|error| match &error {
        kube::Error::Api(status) if status.is_conflict() => AskError::Refused {
            reason: format!(
                "PvcAutoscaler {name} was changed in the meantime: nothing was edited; run the command again"
            ),
        },
        kube::Error::Api(status) => AskError::Refused { reason: status.message.clone() },
        _ => super::asked("the PvcAutoscaler")(error),
    })
}

impl ObservedAutoscaler {
    fn has_class(&self, class: &str) -> bool {
        self.around.sees(CLASSES).is_err()
            || self.around.classes.iter().any(|one| one.name_any() == class)
    }
}

/// Tests whether a PvcAutoscaler manages a claim; false if the claim does not exist.
///
/// # Errors
/// [`AskError::Refused`] if the label of the claim names a PvcAutoscaler that may not be read: it would
/// revert an edit of the claim.
pub async fn is_kept(
    client: &Client,
    namespace: Option<&str>,
    claim: &str,
) -> Result<bool, AskError> {
    let namespace = namespace.unwrap_or(client.default_namespace());
    let mut ask = ListReader::new(client);
    let claims = Api::namespaced(client.clone(), namespace);
    let found: Option<PersistentVolumeClaim> = ask.get(claims, claim, CLAIMS).await?;
    if let Some(unreadable) = ask.unreadable.first() {
        let reason = format!("{unreadable}; it is not known whether it is managed");
        return Err(AskError::Refused { reason });
    }
    let Some(found) = found else { return Ok(false) };
    let all = Api::namespaced(client.clone(), namespace);
    let all: Vec<PvcAutoscaler> = ask.list(all, ListParams::default(), PVC_AUTOSCALERS).await?;
    if let Some(unreadable) = ask.unreadable.first() {
        let reason = format!("{unreadable}; it is not known whether it manages claim {claim}");
        return Err(AskError::Refused { reason });
    }
    match managed::label(&found) {
        Some(by) if ask.unseen.contains(&PVC_AUTOSCALERS) => Err(AskError::Refused {
            reason: format!(
                "claim {claim} is managed by PvcAutoscaler {by}, which you may not read; nothing was \
                 changed: ask an administrator to edit its template"
            ),
        }),
        _ => Ok(managed::ManagedClaim::find(&all, &found).is_some()),
    }
}
