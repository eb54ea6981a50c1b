//! Adopts claims that another PvcAutoscaler managed for the same pods, and manages no more: it was
//! deleted, or yields to this one. They have the content.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::ListParams;

use crate::api::{PvcAutoscaler, Rival};
use crate::claims::context::ClaimsController;
use crate::claims::observed::ObservedWorkload;
use crate::claims::{ORDINAL, manifests};
use crate::cluster::KEPT_BY;

/// Page size for lists of claims.
const PAGE: u32 = 200;

/// Length of the digest in the name of a claim, in characters.
const DIGEST: usize = 5;

/// Finds them for pods without a status.
///
/// # Errors
/// An error of the API server.
pub(super) async fn observe_left(
    ctx: &ClaimsController,
    seen: &mut ObservedWorkload,
) -> Result<(), kube::Error> {
    let new = seen.new_ordinals();
    if new.is_empty() || seen.names_claims() || seen.elder.is_some() {
        return Ok(());
    }
    let names: BTreeMap<i32, String> =
        new.into_iter().map(|one| (one, manifests::plain_name(seen, one))).collect();
    let api = ctx.of::<PersistentVolumeClaim>(&seen.autoscaler.namespace().unwrap_or_default());
    // A namespace may have ten thousand, of which hardly ever one is left.
    let mut page = ListParams::default().labels(KEPT_BY).limit(PAGE);
    loop {
        let read = api.list_metadata(&page).await?;
        for found in read.items.iter().filter(|claim| is_of_any(*claim, &names)) {
            let Some(claim) = api.get_opt(&found.name_any()).await? else { continue };
            if is_of_any(&claim, &names) && is_left(ctx, seen, &claim).await? {
                seen.left.insert(claim.name_any());
                seen.claims.insert(claim.name_any(), claim);
            }
        }
        match read.metadata.continue_.filter(|rest| !rest.is_empty()) {
            Some(rest) => page.continue_token = Some(rest),
            None => return Ok(()),
        }
    }
}

async fn is_left(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    Ok(!seen.keeps(claim) && is_let_go(ctx, seen, claim).await?)
}

/// Returns true if the previous manager of a claim manages it no more.
async fn is_let_go(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    claim: &PersistentVolumeClaim,
) -> Result<bool, kube::Error> {
    let Some(keeper) = claim.labels().get(KEPT_BY) else { return Ok(false) };
    let namespace = claim.namespace().unwrap_or_default();
    let keeper = ctx.of::<PvcAutoscaler>(&namespace).get_opt(keeper).await?;
    Ok(keeper.is_none_or(|keeper| keeper.elder(std::slice::from_ref(&seen.autoscaler)).is_some()))
}

/// Returns true if a claim was created for one of these pods.
fn is_of_any(claim: &impl ResourceExt, names: &BTreeMap<i32, String>) -> bool {
    let ordinal = claim.labels().get(ORDINAL).and_then(|ordinal| ordinal.parse().ok());
    let its = ordinal.and_then(|ordinal| Some((ordinal, names.get(&ordinal)?)));
    its.is_some_and(|(ordinal, plain)| is_of(claim, plain, ordinal))
}

/// Returns true if a name is that of a claim created for the pod whose first claim is `plain`.
pub(super) fn is_made_for(name: &str, plain: &str) -> bool {
    let digest = name.strip_prefix(plain).and_then(|rest| rest.strip_prefix('-'));
    digest.is_some_and(|digest| {
        digest.len() == DIGEST && digest.bytes().all(|one| one.is_ascii_hexdigit())
    })
}

/// Returns true if a claim was created for the pod whose first claim is `plain`.
fn is_of(claim: &impl ResourceExt, plain: &str, ordinal: i32) -> bool {
    let name = claim.name_any();
    let is_named = name == plain || is_made_for(&name, plain);
    is_named && claim.labels().get(ORDINAL) == Some(&ordinal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::SUPERSEDED_BY;
    use serde_json::{Value, json};

    #[test]
    fn a_claim_of_a_pod_is_known_by_its_name_and_its_ordinal() {
        let claim = |name: &str, ordinal: &str, annotations: Value| -> PersistentVolumeClaim {
            let labels = json!({KEPT_BY: "gone", ORDINAL: ordinal});
            serde_json::from_value(json!({"metadata": {
                "name": name, "labels": labels, "annotations": annotations}}))
            .unwrap()
        };
        let is =
            |name: &str, ordinal: &str| is_of(&claim(name, ordinal, json!({})), "data-db-0", 0);
        assert!(is("data-db-0", "0") && is("data-db-0-0a1b2", "0"));
        for (name, ordinal) in [
            ("data-db-0-0a1b2", "1"),
            ("data-db-0-12345", "12345"), // That of a StatefulSet db-0.
            ("data-db-0-0a1b2c", "0"),
            ("data-db-0-mine!", "0"),
            ("data-db-01", "0"),
            ("log-db-0", "0"),
        ] {
            assert!(!is(name, ordinal), "{name} {ordinal}");
        }
        // Whether what it says is so depends on what else is there.
        let old = claim("data-db-0", "0", json!({SUPERSEDED_BY: "data-db-0-0a1b2"}));
        assert!(is_of(&old, "data-db-0", 0));
    }
}
