//! Applies the CRDs to a cluster, as an upgrade needs it: Helm creates them once, and never updates them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};

use crate::api::{DEFINITION_VERSION, definitions};
use crate::commands::{AskError, asked};

/// Field manager of the CRDs.
const WRITER: &str = "pliant-crds";

/// Applies the CRDs of this version over older ones; returns their names.
///
/// # Errors
/// [`AskError::Refused`] if the cluster has CRDs of a newer version, whose fields older ones would drop from
/// every object that is written; nothing is changed then. [`AskError::Api`].
pub async fn apply_definitions(client: &Client) -> Result<Vec<String>, AskError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let ours = definitions();
    for definition in &ours {
        let name = definition.name_any();
        let there = api.get_opt(&name).await.map_err(asked("a CustomResourceDefinition"))?;
        let version = there.as_ref().and_then(|there| there.annotations().get(DEFINITION_VERSION));
        if let Some(newer) = version.filter(|there| is_newer(there, env!("CARGO_PKG_VERSION"))) {
            let reason = format!(
                "the CustomResourceDefinition {name} has version {newer}, and this program {}: an older \
                 definition would drop fields of the objects, so nothing was changed; use {newer}, or leave \
                 the CRDs unchanged with --set crds.enabled=false",
                env!("CARGO_PKG_VERSION")
            );
            return Err(AskError::Refused { reason });
        }
    }
    let params = PatchParams::apply(WRITER).force();
    for definition in &ours {
        let written = api.patch(&definition.name_any(), &params, &Patch::Apply(definition)).await;
        written.map_err(asked("a CustomResourceDefinition"))?;
    }
    Ok(ours.iter().map(ResourceExt::name_any).collect())
}

/// True if a version is newer than another one, by the numbers before any suffix.
fn is_newer(version: &str, than: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        let numbers = version.split(['-', '+']).next().unwrap_or_default().split('.');
        numbers.map(|number| number.parse().unwrap_or(0)).collect()
    };
    numbers(version) > numbers(than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (newer, older) in [("0.2.0", "0.1.9"), ("0.10.0", "0.9.0"), ("1.0.0", "0.99.99")] {
            assert!(is_newer(newer, older) && !is_newer(older, newer), "{newer} {older}");
        }
        assert!(!is_newer("0.1.0", "0.1.0") && !is_newer("0.1.0-rc.1", "0.1.0"));
        assert!(!is_newer("nonsense", "0.1.0"));
    }
}
