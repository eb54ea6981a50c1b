//! Gives the pods of StatefulSets their claims as they are made: a mutating webhook of the API server.
//!
//! [`decide`] says what a pod gets; [`serve`] asks it for each pod, from what the API server says at that
//! moment, and answers over TLS. The [`Keeper`] keeps the certificates, which all replicas share in a
//! Secret, and the MutatingWebhookConfiguration. That one names no StatefulSets but those that
//! PvcAutoscalers name and that exist, so no other pod of the cluster depends on the webhook; [`covers`] says
//! whether it names one.
//!
//! There is no leader: every replica does all of it, and each write names what it was decided from, so
//! that who comes second writes nothing.

mod configuration;
mod coverage;
mod guests;
mod inject;
mod keeper;
mod names;
mod naming;
mod pairs;
mod review;
mod serve;
mod shown;

use std::fmt;
use std::str::FromStr;

pub use configuration::{Workload, covers, names_in, webhooks};
pub use coverage::{Coverage, coverage};
pub use inject::{Verdict, decide};
pub use keeper::{Clock, Keeper};
pub use names::FullShare;
pub use naming::Naming;
pub use pairs::{LIFE, Pair, Pairs};
pub use serve::serve;
pub use shown::Shown;

/// Who writes, for the API server.
const WRITER: &str = "pliant-webhook";

/// The Service by which the API server reaches the webhook. The Secret with the certificates, in its
/// namespace, and the MutatingWebhookConfiguration have its name too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
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
            _ => Err(format!("`{text}` is no Service: write NAMESPACE/NAME")),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
