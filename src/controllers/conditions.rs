//! The conditions of a NodeStorage object. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{DiskState, Health, INVENTORY_COMPLETE, Judged, NodeStorageStatus, READY};

/// Reason of a node that has all programs, modules and privileges that its node plugin needs.
pub(super) const PREREQUISITES_MET: &str = "PrerequisitesMet";

/// All disks and volume groups of the pools are there and can be read.
const DISKS_HEALTHY: &str = "DisksHealthy";

/// What a node lacks.
#[derive(Clone, Copy, Default)]
pub(super) struct Lacking<'a> {
    /// The programs, modules and rights that its node plugin needs and does not have.
    pub prerequisites: &'a [String],
    /// Why the list of volumes may lack some, if it may.
    pub volumes: Option<&'a str>,
}

/// Computes the conditions of a node. A condition that has not changed keeps its transition time.
pub(super) fn conditions(
    status: &NodeStorageStatus,
    lacking: Lacking<'_>,
    before: &[Condition],
    now: &Time,
) -> Vec<Condition> {
    let judged = [
        (READY, ready(status, lacking.prerequisites)),
        (PREREQUISITES_MET, prerequisites(lacking.prerequisites)),
        (DISKS_HEALTHY, disks(status)),
        (INVENTORY_COMPLETE, inventory(status, lacking.volumes)),
    ];
    judged.into_iter().map(|(kind, judged)| judged.condition(kind, before, now)).collect()
}

fn ready(status: &NodeStorageStatus, lacking: &[String]) -> Judged {
    let words = || {
        let unwell = status.pools.iter().filter(|pool| pool.health != Health::Healthy);
        let words: Vec<String> = unwell
            .map(|pool| format!("pool {}: {}", pool.name, pool.problem().unwrap_or_default()))
            .collect();
        words.join("; ")
    };
    let (is_so, reason, message) = match status.health {
        _ if !lacking.is_empty() => {
            (false, "PrerequisitesNotMet", "see the condition PrerequisitesMet".to_owned())
        }
        _ if status.pools.is_empty() => (
            true,
            "PoolNotFound",
            "no StoragePool selects this node; see `kubectl get storagepools`".to_owned(),
        ),
        Health::Unavailable | Health::Unknown => (false, "PoolUnavailable", words()),
        Health::Degraded => (true, "PoolDegraded", words()),
        Health::Healthy => (true, "PoolsUsable", "all pools are healthy".to_owned()),
    };
    Judged { is_so, reason: reason.to_owned(), message }
}

fn prerequisites(lacking: &[String]) -> Judged {
    if lacking.is_empty() {
        let message =
            "all required programs, kernel modules and privileges are available".to_owned();
        return Judged { is_so: true, reason: PREREQUISITES_MET.to_owned(), message };
    }
    Judged { is_so: false, reason: "PrerequisitesNotMet".to_owned(), message: lacking.join("; ") }
}

fn disks(status: &NodeStorageStatus) -> Judged {
    let missing = status.disks.iter().filter(|disk| disk.state == DiskState::Missing);
    let missing: Vec<String> = missing
        .map(|disk| format!("{}: {}", disk.device, disk.message.as_deref().unwrap_or("missing")))
        .collect();
    let groups = status.volume_groups.iter().filter(|group| group.health == Health::Unavailable);
    let groups: Vec<String> = groups
        .map(|group| format!("{}: {}", group.name, group.problem().unwrap_or("unavailable")))
        .collect();
    let (is_so, reason, message) = match (missing.is_empty(), groups.is_empty()) {
        (false, _) => (false, "DiskMissing", missing.join("; ")),
        (true, false) => (false, "VolumeGroupUnavailable", groups.join("; ")),
        (true, true) => (true, DISKS_HEALTHY, "all disks of the pools are present".to_owned()),
    };
    Judged { is_so, reason: reason.to_owned(), message }
}

/// Whether the list of volumes has all of them.
fn inventory(status: &NodeStorageStatus, gap: Option<&str>) -> Judged {
    let (reason, message) = match gap {
        None => ("AllVolumesListed", "the list of volumes is complete"),
        Some(why) if status.left_out() > 0 => ("TooManyVolumes", why),
        Some(why) => ("VolumesUnreadable", why),
    };
    Judged { is_so: gap.is_none(), reason: reason.to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::api::ready_condition;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn told(conditions: &[Condition]) -> Vec<String> {
        let short = |one: &Condition| format!("{}={} {}", one.type_, one.status, one.reason);
        conditions.iter().map(short).collect()
    }

    #[test]
    fn what_a_node_has_and_lacks_becomes_conditions() {
        let ready = |health: &str, why: &str| {
            let health = serde_json::from_value(json!(health)).unwrap();
            ready_condition(health, "PoolIncomplete", why)
        };
        let pool = |health: &str| {
            json!({"health": health, "pools": [{"name": "fast", "configured": true, "capacity": "1Gi",
                   "available": "1Gi", "volumeCount": 0, "health": health, "conditions": [ready(health, "why")]}]})
        };
        let disk =
            json!({"disks": [{"device": "/dev/sdb", "state": "Missing", "message": "gone"}]});
        let group = json!({"volumeGroups": [{"name": "vg0", "pool": "fast", "size": "0", "free": "0",
                                       "health": "Unavailable", "conditions": [ready("Unavailable", "hung")]}]});
        let (met, there) =
            ("PrerequisitesMet=True PrerequisitesMet", "DisksHealthy=True DisksHealthy");
        let (empty, lost) = ("Ready=True PoolNotFound", "Ready=False PoolUnavailable");
        let second = json!({"health": "Degraded", "pools": [
            {"name": "fast", "configured": true, "capacity": "1Gi", "available": "1Gi", "volumeCount": 0,
             "health": "Healthy"},
            {"name": "twice", "configured": true, "capacity": "0", "available": "0", "volumeCount": 0,
             "health": "Unavailable", "conditions": [ready("Unavailable", "no disk")]}]});
        let unmet = [
            "Ready=False PrerequisitesNotMet",
            "PrerequisitesMet=False PrerequisitesNotMet",
            there,
        ];
        for (status, lacking, expected, sentence) in [
            (pool("Healthy"), "", ["Ready=True PoolsUsable", met, there], "all pools are healthy"),
            (pool("Degraded"), "", ["Ready=True PoolDegraded", met, there], "pool fast: why"),
            (pool("Unavailable"), "", [lost, met, there], "pool fast: why"),
            (second, "", ["Ready=True PoolDegraded", met, there], "pool twice: no disk"),
            (json!({}), "", [empty, met, there], "kubectl get storagepools"),
            (pool("Healthy"), "no lvm", unmet, "no lvm"),
            (disk, "", [empty, met, "DisksHealthy=False DiskMissing"], "/dev/sdb: gone"),
            (group, "", [empty, met, "DisksHealthy=False VolumeGroupUnavailable"], "vg0: hung"),
        ] {
            let status: NodeStorageStatus = serde_json::from_value(status).unwrap();
            let lacking: Vec<String> =
                Some(lacking).filter(|it| !it.is_empty()).map(str::to_owned).into_iter().collect();
            let lacking = Lacking { prerequisites: &lacking, volumes: None };
            let conditions = conditions(&status, lacking, &[], &at(1));
            let expected = [&expected[..], &["InventoryComplete=True AllVolumesListed"]].concat();
            assert_eq!(told(&conditions), expected);
            assert!(conditions.iter().any(|one| one.message.contains(sentence)), "{conditions:#?}");
        }
    }

    #[test]
    fn a_condition_that_stays_keeps_its_time() {
        let long = vec!["x".repeat(1025)];
        let nothing = Lacking::default();
        let something = Lacking { prerequisites: &long, volumes: None };
        let status = NodeStorageStatus::default();
        let first = conditions(&status, nothing, &[], &at(1));
        let same = conditions(&status, nothing, &first, &at(2));
        assert_eq!(same, first);
        let other = conditions(&status, something, &same, &at(3));
        let times: Vec<&Time> = other.iter().map(|one| &one.last_transition_time).collect();
        assert_eq!(times, [&at(3), &at(3), &at(1), &at(1)]);
        assert_eq!(other[1].message.len(), 1024);
    }

    #[test]
    fn a_list_that_may_lack_volumes_says_why() {
        let mut status = NodeStorageStatus::default();
        for (count, reason) in [(0, "VolumesUnreadable"), (9, "TooManyVolumes")] {
            status.volume_count = count;
            let lacking = Lacking { volumes: Some("vg0 is missing"), ..Lacking::default() };
            status.conditions = conditions(&status, lacking, &[], &at(1));
            assert_eq!(told(&status.conditions)[3], format!("InventoryComplete=False {reason}"));
            assert_eq!(status.inventory_gap(), Some("vg0 is missing"));
        }
        status.conditions = conditions(&status, Lacking::default(), &[], &at(1));
        assert_eq!(status.inventory_gap(), None);
    }
}
