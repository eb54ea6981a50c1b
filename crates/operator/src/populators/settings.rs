//! What the population of claims is told.

use crate::populators::PodSettings;

/// Settings of the population of claims.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PopulationSettings {
    /// Image of the populator pods, which is that of this program.
    pub image: String,
    /// Namespace of prime claims and populator pods that need nothing in the claim's namespace;
    /// `None` is the namespace of the claim.
    pub namespace: Option<String>,
    /// Names of the Secrets with which their image is pulled; without any, those of the ServiceAccount `default`
    /// of the namespace are used, as Kubernetes has it.
    pub pull_secrets: Vec<String>,
    /// Settings of all these pods.
    pub pod: PodSettings,
    /// Variables, by their names, of the pods that fetch an archive: proxies, and authorities that are believed.
    pub fetching: Vec<(String, String)>,
    /// Ranges of addresses that are not public and that a pod of that namespace may fetch from.
    pub allowed: Vec<String>,
    /// Hosts that a pod of that namespace may have a proxy fetch from.
    pub allowed_hosts: Vec<String>,
}
