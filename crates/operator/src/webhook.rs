//! Mutating webhook that adds the claims of PvcAutoscalers to the pods of StatefulSets.
//!
//! [`decide`] computes the change of a pod; [`serve`] runs it for each pod, on live reads of the API server,
//! and answers over TLS. The [`CertificatesController`] manages the certificates, which all replicas share in a Secret, and
//! the MutatingWebhookConfiguration. The configuration names only StatefulSets that exist and that
//! PvcAutoscalers name, so no other pod of the cluster depends on the webhook; [`covers`] tests whether it
//! names one.
//!
//! There is no leader: every replica does everything, and each write carries the version that it was decided
//! from, so a late replica writes nothing.

mod certificates;
mod certificates_controller;
mod configuration;
mod connections;
mod coverage;
mod inject;
mod names;
mod naming;
mod review;
mod serve;
mod served_certificate;

use std::fmt;
use std::str::FromStr;

pub use certificates::{CertificatePair, LIFE, Pairs};
pub use certificates_controller::{CertificatesController, HostClock};
pub use configuration::{StatefulSetRef, covers, names_in, webhooks};
pub use coverage::{Coverage, coverage};
pub use inject::{PodVerdict, decide};
pub use names::FullShare;
pub use naming::Naming;
pub use serve::serve;
pub use served_certificate::Shown;

/// Name of the field manager for the API server.
const WRITER: &str = "pliant-webhook";

/// The Service by which the API server reaches the webhook. The Secret with the certificates, in its
/// namespace, and the MutatingWebhookConfiguration have its name too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
}

impl Service {
    /// Returns the name that the API server expects in a certificate.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                Ok(Service { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("`{text}` is not a Service: use NAMESPACE/NAME")),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
