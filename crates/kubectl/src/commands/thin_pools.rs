//! The thin pools of nodes, in figures.

use crate::api::{GroupStatus, NodeStorage, Quantity, ThinPoolStatus};
use crate::commands::columns::columns;

/// Prints a table with a line for each thin pool of each node; empty if there is none.
pub(super) fn thin_pools(nodes: &[NodeStorage], headers: bool) -> String {
    let head =
        ["NODE", "VG", "THIN-SIZE", "MAXIMUM", "USED", "METADATA", "PROVISIONED", "REMAINING"];
    let mut rows = vec![head.map(str::to_owned)];
    for node in nodes {
        let name = node.metadata.name.clone().unwrap_or_default();
        rows.extend(groups(node).map(|(group, pool)| row(name.clone(), group, pool)));
    }
    if rows.len() == 1 {
        return String::new();
    }
    let to_the_right = [false, false, true, true, true, true, true, false];
    format!("\n{}", columns(&rows, to_the_right, headers))
}

/// What the thin pools of a pool on a node have promised, in words; `None` without one.
pub(super) fn provisioned(node: &NodeStorage, pool: &str) -> Option<String> {
    let ours = groups(node).filter(|(group, _)| group.pool == pool);
    let words = ours.map(|(group, thin)| {
        let (all, most) = (thin.provisioned.0, thin.maximum_provisioned.0);
        format!("the thin pool of {} has {all} of at most {most} provisioned", group.name)
    });
    let all: Vec<String> = words.collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn groups(node: &NodeStorage) -> impl Iterator<Item = (&GroupStatus, &ThinPoolStatus)> {
    let groups = node.status.iter().flat_map(|status| &status.volume_groups);
    groups.filter_map(|group| Some((group, group.thin_pool.as_ref()?)))
}

fn row(node: String, group: &GroupStatus, pool: &ThinPoolStatus) -> [String; 8] {
    let left = pool.maximum_provisioned.0.saturating_sub(pool.provisioned.0);
    [
        node,
        group.name.clone(),
        pool.size.0.to_string(),
        pool.maximum_size.0.to_string(),
        percent(pool.used, pool.maximum_size),
        percent(pool.metadata_used, pool.maximum_metadata_size),
        pool.provisioned.0.to_string(),
        left.to_string(),
    ]
}

/// What is in use of the most that there can be.
fn percent(used: Option<Quantity>, most: Quantity) -> String {
    let percent = used
        .and_then(|used| (u128::from(used.0.get()) * 100).checked_div(u128::from(most.0.get())));
    percent.map_or_else(|| "–".to_owned(), |percent| format!("{percent} %"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, groups: &serde_json::Value) -> NodeStorage {
        serde_json::from_value(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": name},
            "spec": {"nodeHash": "abcdefgh"}, "status": {"volumeGroups": groups},
        }))
        .unwrap()
    }

    fn group(name: &str, pool: &str, thin: &serde_json::Value) -> serde_json::Value {
        json!({"name": name, "pool": pool, "size": "100Gi", "free": "10Gi", "health": "Healthy",
            "thinPool": thin})
    }

    #[test]
    fn each_thin_pool_has_a_line_and_what_is_left_of_its_limits() {
        let active = json!({"size": "22Gi", "maximumSize": "90Gi", "used": "45Gi", "metadataSize": "100Mi",
            "maximumMetadataSize": "4Gi", "metadataUsed": "128Mi", "provisioned": "120Gi",
            "maximumProvisioned": "180Gi"});
        let inactive = json!({"size": "1Gi", "maximumSize": "1Gi", "metadataSize": "4Mi",
            "maximumMetadataSize": "4Mi", "provisioned": "2Gi", "maximumProvisioned": "1Gi"});
        let nodes = [
            node(
                "alpha",
                &json!([group("vg0", "fast", &active), group("vg1", "slow", &json!(null))]),
            ),
            node("beta", &json!([group("vg0", "fast", &inactive)])),
        ];
        insta::assert_snapshot!(thin_pools(&nodes, true), @r"

        NODE   VG   THIN-SIZE  MAXIMUM  USED  METADATA  PROVISIONED  REMAINING
        alpha  vg0     22 GiB   90 GiB  50 %       3 %      120 GiB  60 GiB
        beta   vg0      1 GiB    1 GiB     –         –        2 GiB  0 B
        ");
        assert_eq!(thin_pools(&[], true), "");
        let words = provisioned(&nodes[0], "fast");
        let all = "the thin pool of vg0 has 120 GiB of at most 180 GiB provisioned";
        assert_eq!(words.as_deref(), Some(all));
        assert_eq!(provisioned(&nodes[0], "slow"), None);
    }
}
