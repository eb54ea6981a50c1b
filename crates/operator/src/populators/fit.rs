//! Resources of Pliant's pods, adjusted to the limits of their namespace. Pure.
//!
//! A LimitRange with a smaller limit, or a quota that demands a limit of each pod, would reject them. If they
//! still do not fit, the API server rejects them, which is reported.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use serde_json::{Value, json};

use crate::api::Quantity;
use crate::bytes::Bytes;

/// Memory limit of a pod: cached files do not count, and no list is in memory.
const MEMORY: Bytes = Bytes::mib(512);

/// Memory request, and the minimum with which it works.
const LEAST: Bytes = Bytes::mib(64);

/// CPU limit where each pod must have one.
const CPU: &str = "1";

/// Resources of pods in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fit {
    memory: Bytes,
    least: Bytes,
    has_cpu_limit: bool,
}

impl Default for Fit {
    fn default() -> Self {
        Fit { memory: MEMORY, least: LEAST, has_cpu_limit: false }
    }
}

impl Fit {
    /// Returns the resources for a namespace with these quotas and ranges.
    pub fn of(quotas: &[ResourceQuota], ranges: &[LimitRange]) -> Fit {
        let items =
            || ranges.iter().flat_map(|range| range.spec.iter().flat_map(|spec| &spec.limits));
        let of_pods = || items().filter(|item| ["Container", "Pod"].contains(&item.type_.as_str()));
        let most = of_pods().filter_map(|item| memory(item.max.as_ref()?)).min();
        let least = of_pods().filter_map(|item| memory(item.min.as_ref()?)).max();
        let memory = most.map_or(MEMORY, |most| MEMORY.min(most)).max(LEAST);
        let wants_cpu = quotas.iter().any(|quota| {
            let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
            hard.is_some_and(|hard| hard.contains_key("limits.cpu"))
        });
        Fit {
            memory: memory.max(least.unwrap_or(LEAST)),
            least: LEAST.max(least.unwrap_or(LEAST)),
            has_cpu_limit: wants_cpu && !items().any(gives_cpu_limit),
        }
    }

    /// As a container has it.
    pub fn resources(&self) -> Value {
        let mut limits = json!({"memory": Quantity(self.memory)});
        if self.has_cpu_limit {
            limits["cpu"] = json!(CPU);
        }
        json!({"requests": {"cpu": "50m", "memory": Quantity(self.least)}, "limits": limits})
    }
}

fn memory(sizes: &BTreeMap<String, Written>) -> Option<Bytes> {
    let size = Bytes::parse_capped(&sizes.get("memory")?.0);
    // Then the API server applies it, and its rejection is reported.
    size.inspect_err(|error| tracing::warn!(%error, "ignoring a LimitRange")).ok()
}

/// Returns true if a container without a limit of its own gets one; one with a maximum has that.
fn gives_cpu_limit(item: &LimitRangeItem) -> bool {
    let has = |sizes: &Option<BTreeMap<String, Written>>| {
        sizes.as_ref().is_some_and(|sizes| sizes.contains_key("cpu"))
    };
    item.type_ == "Container" && (has(&item.default) || has(&item.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(hard: &Value) -> ResourceQuota {
        serde_json::from_value(json!({"metadata": {}, "spec": {"hard": hard}})).unwrap()
    }

    fn range(item: &Value) -> LimitRange {
        serde_json::from_value(json!({"metadata": {}, "spec": {"limits": [item]}})).unwrap()
    }

    #[test]
    fn pods_ask_for_no_more_and_no_less_than_a_namespace_lets_them() {
        let usual =
            json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}});
        let with = |least: &str, most: &str| json!({"requests": {"cpu": "50m", "memory": least}, "limits": {"memory": most}});
        let mut with_cpu = usual.clone();
        with_cpu["limits"]["cpu"] = json!("1");
        let cpu = quota(&json!({"limits.cpu": "4", "pods": "9"}));
        let of = |kind: &str, what: &str, key: &str, size: &str| {
            range(&json!({"type": kind, (what): {(key): size}}))
        };
        for (quotas, ranges, expected) in [
            (vec![], vec![], usual.clone()),
            (vec![quota(&json!({"pods": "1"}))], vec![], usual.clone()),
            (vec![], vec![of("Container", "max", "memory", "256Mi")], with("64Mi", "256Mi")),
            (vec![], vec![of("Pod", "max", "memory", "128Mi")], with("64Mi", "128Mi")),
            (vec![], vec![of("Pod", "max", "memory", "4Gi")], usual.clone()),
            (vec![], vec![of("Pod", "max", "memory", "134217728000m")], with("64Mi", "128Mi")),
            (vec![], vec![of("Pod", "max", "memory", "1e30")], usual.clone()),
            (vec![], vec![of("Pod", "max", "memory", "1e50")], usual.clone()),
            (vec![], vec![of("Container", "min", "memory", "100Mi")], with("100Mi", "512Mi")),
            (vec![], vec![of("PersistentVolumeClaim", "max", "storage", "1Gi")], usual.clone()),
            // It is refused then, and told.
            (vec![], vec![of("Container", "max", "memory", "32Mi")], with("64Mi", "64Mi")),
            (vec![cpu.clone()], vec![], with_cpu),
            (vec![cpu.clone()], vec![of("Container", "default", "cpu", "500m")], usual.clone()),
            (vec![cpu], vec![of("Container", "max", "cpu", "2")], usual),
        ] {
            assert_eq!(Fit::of(&quotas, &ranges).resources(), expected, "{quotas:?} {ranges:?}");
        }
    }
}
