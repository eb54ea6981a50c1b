//! Checks what a swap needs besides its claims, before anything is created or stopped: a node for both, free
//! space there, quotas, permission to stop the pod, and no other writer. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use crate::api::Quantity;
use crate::bytes::{Bytes, ParseBytesError};
use crate::claims::AutoscalerReason;
use crate::claims::capacity::does_not_fit;
use crate::claims::node_capacity::lacks_place;
use crate::claims::objects::uid;
use crate::claims::pause::{would_copy_cold, would_pause};
use crate::claims::pod_plan::PodPlan;
use crate::claims::readiness::ready_since;
use crate::claims::swap_context::NodeFreeSpace;
use crate::claims::topology::AlternativeNode;
use crate::claims::users::writers;
use crate::cluster::PodSummary;
use crate::volume::few;

/// Number of claims of its size that a swap adds temporarily: the new one, and the temporary one that
/// populates it.
const CLAIMS_OF_A_SWAP: u64 = 2;

/// Remaining quota of one resource.
#[derive(Debug, PartialEq)]
struct Left {
    /// Name of the resource in the quota.
    key: String,
    count: Result<u64, UnreadableQuota>,
}

/// A count of a quota that cannot be read: how much it leaves is not known.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{field} of {key} in ResourceQuota {quota} is invalid, so no swap starts: {why}")]
struct UnreadableQuota {
    quota: String,
    field: &'static str,
    key: String,
    why: ParseBytesError,
}

/// Returns the remaining quota of all resources that count claims of a class.
fn left_of<'a>(
    quota: &'a ResourceQuota,
    class: Option<&str>,
) -> impl Iterator<Item = Left> + use<'a> {
    let spec = quota.spec.as_ref();
    // One with a scope counts some claims only, and which those are is known when they are made.
    let is_scoped = spec.is_some_and(|spec| spec.scopes.is_some() || spec.scope_selector.is_some());
    let of_all = ["requests.storage", "persistentvolumeclaims"].map(str::to_owned);
    let of_class = class.into_iter().flat_map(|class| {
        ["requests.storage", "persistentvolumeclaims"]
            .map(|key| format!("{class}.storageclass.storage.k8s.io/{key}"))
    });
    let keys: Vec<String> = of_all.into_iter().chain(of_class).filter(|_| !is_scoped).collect();
    let status = quota.status.as_ref();
    let count = move |field, all: &BTreeMap<String, Written>, key: &str| {
        let Written(text) = all.get(key)?;
        let unreadable =
            |why| UnreadableQuota { quota: quota.name_any(), field, key: key.to_owned(), why };
        // Kubernetes counts further than any volume is large.
        Some(Bytes::parse_capped(text).map(Bytes::get).map_err(unreadable))
    };
    keys.into_iter().filter_map(move |key| {
        let (hard, used) = (status?.hard.as_ref()?, status?.used.as_ref()?);
        let hard = count("status.hard", hard, &key)?;
        let used = count("status.used", used, &key)?;
        let count = hard.and_then(|hard| Ok(hard.saturating_sub(used?)));
        Some(Left { key, count })
    })
}

fn counts_claims(key: &str) -> bool {
    key.ends_with("persistentvolumeclaims")
}

/// Returns the quota that a swap to a claim of this size needs.
fn needed_of(key: &str, size: Quantity) -> u64 {
    let of_one = if counts_claims(key) { 1 } else { size.0.get() };
    CLAIMS_OF_A_SWAP.saturating_mul(of_one)
}

fn in_words(key: &str, count: u64) -> String {
    if counts_claims(key) { count.to_string() } else { Quantity(Bytes::new(count)).to_string() }
}

/// The budgets that protect a pod.
fn budgets_of<'a>(
    budgets: &'a [PodDisruptionBudget],
    pod: &'a PodSummary,
) -> impl Iterator<Item = &'a PodDisruptionBudget> {
    budgets.iter().filter(|budget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        selector.is_some_and(|selector| selector.matches(pod.labels()))
    })
}

/// Returns how many pods may be stopped now, if the status of the budget is up to date.
fn allowed_by(budget: &PodDisruptionBudget) -> Option<i32> {
    let status = budget.status.as_ref()?;
    let is_told = status.observed_generation >= budget.metadata.generation;
    is_told.then_some(status.disruptions_allowed)
}

/// Returns what a swap of this pod's claim lacks, and would be refused for midway.
fn lacks(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    lacks_place(plan)
        .or_else(|| lacks_room(plan))
        .or_else(|| lacks_quota(plan))
        .or_else(|| lacks_leave(plan))
        .or_else(|| lacks_peace(plan))
}

/// Returns what a swap lacks, with an event if that is new.
pub(super) fn tell_of_what_lacks(plan: &mut PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let (reason, message) = lacks(plan)?;
    plan.tell_of_lack(reason, &message);
    Some((reason, message))
}

/// Describes what a swap of this pod's claim would find and do.
pub(super) fn would_find(plan: &PodPlan<'_>) -> Vec<String> {
    let (seen, claim) = (plan.seen, &plan.entry.active_claim);
    let mut found = Vec::new();
    found.extend(seen.usage.get(claim).map(|usage| format!("{} will be copied", usage.used)));
    found.extend(would_pause(plan));
    found.extend(would_copy_cold(plan));
    let habits = seen.workload.iter().flat_map(|workload| &workload.habits);
    found.extend(habits.map(|habit| (*habit).to_owned()));
    found.extend(does_not_fit(plan, None).map(|why| format!("that would fail: {why}")));
    found.extend(match plan.elsewhere() {
        Some(AlternativeNode { node, largest }) => Some(format!(
            "the claim goes to node {node}, which has free space for a volume of {largest}, and the pod \
             starts there: the class creates no volume on its own node"
        )),
        None => room(plan).and_then(|room| {
            let largest = room.largest?;
            Some(format!("node {} has free space for a volume of {largest}", room.node))
        }),
    });
    let (class, around) = (plan.wanted_class(), &seen.around);
    found.extend(around.quotas.iter().filter_map(|quota| {
        let left = left_of(quota, class).find(|one| one.key.ends_with("requests.storage"))?;
        Some(match left.count {
            Ok(left) => {
                format!("ResourceQuota {} leaves {}", quota.name_any(), Quantity(Bytes::new(left)))
            }
            Err(why) => why.to_string(),
        })
    }));
    let pod = seen.pod(plan.entry.ordinal);
    found.extend(pod.into_iter().flat_map(|pod| budgets_of(&around.budgets, pod)).map(|budget| {
        let allowed = allowed_by(budget).unwrap_or_default();
        format!("PodDisruptionBudget {} allows disruptions: {allowed}", budget.name_any())
    }));
    found
}

fn room<'a>(plan: &PodPlan<'a>) -> Option<&'a NodeFreeSpace> {
    plan.seen.around.room.get(&plan.entry.active_claim)
}

fn lacks_room(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let (room, size) = (room(plan)?, plan.seen.size_of(&plan.entry));
    let (node, largest, retained) = match plan.elsewhere() {
        Some(AlternativeNode { node, largest }) => (node, Some(*largest), &[][..]),
        None => (&room.node, room.largest, &room.retained[..]),
    };
    let class = plan.wanted_class().unwrap_or_default();
    let lacks = match largest {
        Some(largest) if largest >= size.0 => return None,
        Some(largest) => format!(
            "has free space for {largest} only: remove what is not needed there, or add a disk{}",
            retained_there(retained)
        ),
        None => format!(
            "has no pool for class {class}, and neither has another node on which its pod could run: \
             choose another class, or create the pool there"
        ),
    };
    let message = format!(
        "claim {} needs a volume of {size} of class {class} next to its present one, and node {node} \
         {lacks}; see `kubectl get nodestorage {node}`",
        plan.entry.active_claim,
    );
    Some((AutoscalerReason::InsufficientCapacity, message))
}

/// What earlier swaps retain on a node, with the command that frees its space.
fn retained_there(claims: &[String]) -> String {
    let Some(first) = claims.first() else { return String::new() };
    let all = few(claims);
    format!(
        ". Retained there for rollbacks: {all}; `kubectl delete pvc {first}` frees the space of one"
    )
}

fn lacks_quota(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let size = plan.seen.size_of(&plan.entry);
    let class = plan.wanted_class();
    plan.seen.around.quotas.iter().find_map(|quota| {
        let is_short =
            |one: &Left| one.count.as_ref().is_ok_and(|left| *left >= needed_of(&one.key, size));
        let Left { key, count } = left_of(quota, class).find(|one| !is_short(one))?;
        let (left, name) = match count {
            Ok(left) => (left, quota.name_any()),
            Err(why) => {
                let message = format!(
                    "{why}; correct it with `kubectl edit resourcequota {}`, or lower the requests of its \
                     claims",
                    quota.name_any()
                );
                return Some((AutoscalerReason::InvalidSize, message));
            }
        };
        let message = format!(
            "ResourceQuota {name} leaves {} of {key}, but a swap of claim {} needs {}: the new claim, and \
             as much for the prime claim that populates it; raise it with `kubectl edit resourcequota \
             {name}`, or delete claims that are not needed",
            in_words(&key, left),
            plan.entry.active_claim,
            in_words(&key, needed_of(&key, size)),
        );
        Some((AutoscalerReason::ExceedsQuota, message))
    })
}

/// Returns the PodDisruptionBudget that prevents an eviction, if the pod is ready.
fn lacks_leave(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let seen = plan.seen;
    ready_since(seen, plan.entry.ordinal, &plan.entry.active_claim)?;
    let pod = seen.pod(plan.entry.ordinal)?;
    let budget = budgets_of(&seen.around.budgets, pod).find(|one| allowed_by(one) == Some(0))?;
    let (name, status) = (budget.name_any(), budget.status.clone().unwrap_or_default());
    let message = format!(
        "PodDisruptionBudget {name} allows no disruption now, so pod {} is not stopped: {} of its pods are \
         healthy, and {} must be; see `kubectl describe poddisruptionbudget {name}`",
        pod.name_any(),
        status.current_healthy,
        status.desired_healthy,
    );
    Some((AutoscalerReason::EvictionBlocked, message))
}

/// Returns another writer of the claim: the swap would wait for it with the pod stopped.
fn lacks_peace(plan: &PodPlan<'_>) -> Option<(AutoscalerReason, String)> {
    let (pod, claim) = (plan.pod(), &plan.entry.active_claim);
    let ours = plan.seen.pod(plan.entry.ordinal).map(|pod| uid(&pod.metadata));
    let mut writers = writers(plan.seen, claim).into_iter();
    let other = writers.find(|one| Some(uid(&one.metadata)) != ours)?;
    let message = format!(
        "pod {} also writes to claim {claim}, which is to be copied, so pod {pod} is not stopped: stop it, \
         or wait until it ends",
        other.name_any()
    );
    Some((AutoscalerReason::ClaimInUse, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn quota(spec: &Value, hard: &Value, used: &Value) -> ResourceQuota {
        let quota = json!({"metadata": {"name": "storage"}, "spec": spec,
                           "status": {"hard": hard, "used": used}});
        serde_json::from_value(quota).unwrap()
    }

    #[test]
    fn a_quota_leaves_what_is_not_used_of_what_counts_for_the_class() {
        let hard = json!({
            "requests.storage": "10Gi", "persistentvolumeclaims": "5", "pods": "3",
            "fast.storageclass.storage.k8s.io/requests.storage": "2Gi",
            "slow.storageclass.storage.k8s.io/requests.storage": "1Gi",
        });
        let used = json!({
            "requests.storage": "4Gi", "persistentvolumeclaims": "6", "pods": "1",
            "fast.storageclass.storage.k8s.io/requests.storage": "512Mi",
            "slow.storageclass.storage.k8s.io/requests.storage": "0",
        });
        let of = |spec: Value, class| -> Vec<(String, u64)> {
            let quota = quota(&spec, &hard, &used);
            left_of(&quota, class).map(|one| (one.key, one.count.unwrap())).collect()
        };
        let all = [
            ("requests.storage".to_owned(), 6 << 30),
            ("persistentvolumeclaims".to_owned(), 0),
            ("fast.storageclass.storage.k8s.io/requests.storage".to_owned(), 1536 << 20),
        ];
        assert_eq!(of(json!({}), Some("fast")), all);
        assert_eq!(of(json!({}), None), all[..2]);
        assert_eq!(of(json!({"scopes": ["BestEffort"]}), Some("fast")), [], "it counts pods");
        let untold = quota(&json!({}), &hard, &json!({}));
        assert_eq!(left_of(&untold, None).next(), None, "what is used is not counted yet");
    }

    #[test]
    fn a_quota_is_counted_as_kubernetes_writes_it() {
        let left = |hard: &str, used: &str| {
            let [hard, used] = [hard, used].map(|size| json!({"requests.storage": size}));
            let quota = quota(&json!({}), &hard, &used);
            let left = left_of(&quota, None).next().map(|one| one.count);
            left.unwrap().map_err(|why| why.to_string())
        };
        assert_eq!(left("20Gi", "11918534246400m"), Ok((20 << 30) - 11_918_534_247));
        assert_eq!(left("2e9", "1E9"), Ok(1_000_000_000));
        assert_eq!(left("1e30", "4Gi"), Ok(Bytes::MAX.get() - (4 << 30)), "nobody can use it up");
        assert_eq!(left("20Gi", "1e20"), Ok(0), "a claim asks for more than any volume has");
        assert_eq!(
            left("20Gi", "1e50").unwrap_err(),
            "status.used of requests.storage in ResourceQuota storage is invalid, so no swap starts: `1e50` is \
             not a size: its exponent is larger than 40"
        );
    }

    #[test]
    fn a_swap_takes_its_claim_and_the_one_through_which_that_is_filled() {
        let size = Quantity(Bytes::gib(3));
        assert_eq!(needed_of("requests.storage", size), 6 << 30);
        assert_eq!(needed_of("a.storageclass.storage.k8s.io/persistentvolumeclaims", size), 2);
        assert_eq!(in_words("requests.storage", 6 << 30), "6Gi");
        assert_eq!(in_words("persistentvolumeclaims", 2), "2");
    }

    #[test]
    fn a_budget_protects_the_pods_that_it_selects() {
        let budget = |selector: Value, observed: i64| -> PodDisruptionBudget {
            serde_json::from_value(json!({
                "metadata": {"name": "db", "generation": 2}, "spec": {"selector": selector},
                "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
                           "expectedPods": 1, "observedGeneration": observed},
            }))
            .unwrap()
        };
        let pod: PodSummary =
            serde_json::from_value(json!({"metadata": {"labels": {"app": "db"}}})).unwrap();
        for (selector, protects) in [
            (json!({"matchLabels": {"app": "db"}}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), true),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), false),
            (json!(null), false),
        ] {
            let budgets = [budget(selector.clone(), 2)];
            assert_eq!(budgets_of(&budgets, &pod).count() == 1, protects, "{selector}");
        }
        assert_eq!(allowed_by(&budget(json!({}), 2)), Some(0));
        assert_eq!(allowed_by(&budget(json!({}), 1)), None, "it is told of the one before");
    }
}
