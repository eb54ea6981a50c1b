//! What people read of a plan.

use serde_json::{Value, json};

use super::*;
use crate::bytes::Bytes;
use crate::commands::TableOptions;

pub fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub fn claim(name: &str, size: &str, class: &str) -> PersistentVolumeClaim {
    typed(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                 "volumeName": format!("pvc-{name}"),
                 "resources": {"requests": {"storage": size}}},
        "status": {"phase": "Bound", "capacity": {"storage": size}},
    }))
}

/// A PvcAutoscaler that wants 2 GiB of class ssd, with this besides in its specification and status.
pub fn autoscaler(spec: Value, status: Value) -> PvcAutoscaler {
    let mut whole = json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
        "metadata": {"name": "db", "namespace": "default", "generation": 3},
        "spec": {
            "statefulSetName": "db",
            "volumeClaimTemplate": {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "ssd",
                         "resources": {"requests": {"storage": "2Gi"}}},
            },
        },
        "status": {"observedGeneration": 3},
    });
    for (at, more) in [("spec", spec), ("status", status)] {
        whole[at].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    typed(whole)
}

/// Three claims of 8 GiB of class hdd, the last of which was swapped and the one before is.
pub fn swapping() -> PvcAutoscaler {
    let swap = json!({"phase": "FinalCopy", "claim": "data-db-1-ba51f", "specGeneration": 3,
                      "summary": "8Gi → 2Gi, class hdd → ssd",
                      "progress": "62 % (4.96 GiB of 8 GiB), 180 MiB/s, 17 s left"});
    let old =
        json!({"name": "data-db-2", "uid": "u", "replacementReadyTime": "2026-11-24T10:00:00Z"});
    let status = json!({
        "phase": "Swapping", "claimCount": 3, "readyClaimCount": 1,
        "progress": "pod db-1: 62 % (4.96 GiB of 8 GiB), 180 MiB/s, 17 s left",
        "plannedAction": "pod db-0 will be stopped, and its claim data-db-0 copied to a new one (8Gi → 2Gi, class hdd → \
                 ssd) and retained for 7d",
        "ordinals": [
            {"ordinal": 0, "activeClaim": "data-db-0", "claimRevision": 0,
             "lastDecision": "41 % of its bytes are used; it grows at 80 %"},
            {"ordinal": 1, "activeClaim": "data-db-1", "claimRevision": 0, "swap": swap},
            {"ordinal": 2, "activeClaim": "data-db-2-1c0ff", "claimRevision": 1, "retainedClaims": [old]},
        ],
    });
    autoscaler(json!({}), status)
}

pub fn around(autoscaler: PvcAutoscaler) -> Around {
    let class = |name: &str| {
        typed(json!({"metadata": {"name": name}, "provisioner": "lvm.csi.pliant.io",
                     "allowVolumeExpansion": true}))
    };
    Around {
        namespace: "default".to_owned(),
        autoscalers: vec![autoscaler],
        claims: vec![
            claim("data-db-0", "8Gi", "hdd"),
            claim("data-db-1", "8Gi", "hdd"),
            claim("data-db-2", "8Gi", "hdd"),
            claim("data-db-2-1c0ff", "2Gi", "ssd"),
        ],
        classes: vec![class("hdd"), class("ssd")],
        storages: Vec::new(),
        ids: BTreeMap::new(),
        unseen: Vec::new(),
        unreadable: Vec::new(),
        partial: Vec::new(),
    }
}

pub fn said(around: &Around, in_full: bool) -> String {
    let plans: Vec<Plan> = around.autoscalers.iter().map(|one| plan_of(around, one)).collect();
    print(&plans, in_full, true)
}

#[test]
fn a_rollout_under_way_is_told_pod_by_pod() {
    insta::assert_snapshot!(said(&around(swapping()), true), @r"
    default/db manages the claims of StatefulSet db: Swapping, 1/3 up to date.
      POD   CLAIM            CURRENT  DESIRED  ACTION
      db-0  data-db-0        8Gi hdd  2Gi ssd  swap
      db-1  data-db-1        8Gi hdd  2Gi ssd  swap: FinalCopy
      db-2  data-db-2-1c0ff  2Gi ssd  2Gi ssd  –
    Progress:
      pod db-1: 62 % (4.96 GiB of 8 GiB), 180 MiB/s, 17 s left
    Planned:
      pod db-0 will be stopped, and its claim data-db-0 copied to a new one (8Gi →
      2Gi, class hdd → ssd) and retained for 7d
    db-0:
      gets another claim: 8Gi → 2Gi, class hdd → ssd
      41 % of its bytes are used; it grows at 80 %
    db-1:
      FinalCopy to claim data-db-1-ba51f: 8Gi → 2Gi, class hdd → ssd; 62 % (4.96 GiB
      of 8 GiB), 180 MiB/s, 17 s left
    db-2:
      claim data-db-2 is retained at least until 2026-12-01T10:00:00Z
    ");
}

#[test]
fn for_programs_no_field_is_null_and_no_list_is_missing() {
    let around = around(swapping());
    let plan = serde_json::to_value(plan_of(&around, &around.autoscalers[0])).unwrap();
    let of_fields = |value: &Value| {
        let fields = value.as_object().unwrap().iter();
        fields.filter(|(_, value)| value.is_null()).map(|(name, _)| name.clone()).collect()
    };
    let empty: Vec<String> = of_fields(&plan);
    assert_eq!(empty, Vec::<String>::new());
    for pod in plan["pods"].as_array().unwrap() {
        let empty: Vec<String> = of_fields(pod);
        assert_eq!(empty, Vec::<String>::new());
        assert!(pod["retained"].is_array(), "{pod}");
    }
    assert_eq!([&plan["forbidden"], &plan["undecodable"]], [&json!([]), &json!([])]);
}

#[test]
fn what_holds_a_plan_back_stands_beside_it() {
    let status = json!({
        "observedGeneration": 2, "phase": "DryRun", "claimCount": 1, "readyClaimCount": 0, "reason": "StorageClassNotFound",
        "message": "there is no StorageClass ssd: create it, or choose one of `kubectl get storageclass`",
        "plannedAction": "pod db-0 is stopped",
        "ordinals": [{"ordinal": 0, "activeClaim": "data-db-0"}],
    });
    let mut around = around(autoscaler(json!({"mode": "DryRun"}), status));
    around.unseen = vec![CLASSES];
    insta::assert_snapshot!(said(&around, false), @r"
    default/db manages the claims of StatefulSet db: DryRun. Its mode is DryRun:
    only claims that are missing are made. The operator has not seen its last edit
    yet.
      POD   CLAIM      CURRENT  DESIRED  ACTION
      db-0  data-db-0  8Gi hdd  2Gi ssd  swap, not yet: mode is DryRun
    Blocked by:
      StorageClassNotFound: there is no StorageClass ssd: create it, or choose one
      of `kubectl get storageclass`
    After that:
      pod db-0 is stopped
    You may not read: storage classes. The answer may be incomplete.
    ");
}

/// Three claims that size themselves: of two the same was decided.
fn sizing() -> PvcAutoscaler {
    let decided = |ordinal: i32, decision: &str| {
        json!({"ordinal": ordinal, "activeClaim": format!("data-db-{ordinal}"), "lastDecision": decision,
               "autoscaledSize": {"size": "8Gi", "templateSize": "2Gi"}})
    };
    let rests = "12 % of its bytes are used; it grows at 80 %; it was 18 % at most since \
                 2026-12-01T10:00:00Z, and shrinks if that stays below 40 % until 2026-12-02T10:00:00Z";
    let unknown = "no decision: its node has not reported its usage";
    let ordinals = [decided(0, rests), decided(1, unknown), decided(2, rests)];
    let shrink = json!({"minSize": "1Gi", "maintenanceWindow": {"start": "01:00", "end": "05:00", "days": ["Sat", "Sun"]}});
    let policy = json!({"growBy": "10Gi", "growBeforeFull": "6h", "maxStep": "20Gi", "maxSize": "1Ti",
                        "shrink": shrink});
    let status =
        json!({"phase": "InSync", "claimCount": 3, "readyClaimCount": 3, "ordinals": ordinals});
    let template = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    autoscaler(json!({"autoscale": policy, "volumeClaimTemplate": template}), status)
}

#[test]
fn a_policy_and_what_it_decided_are_told() {
    insta::assert_snapshot!(said(&around(sizing()), false), @r"
    default/db manages the claims of StatefulSet db: InSync, 3/3 up to date. Each of
    them automatically grows by 10Gi at 80 %, or 6h before it would be full, by at
    least 1Gi and at most 20Gi, up to 1Ti; shrinks after 24h below 40 %, down to
    1Gi, Sat, Sun 01:00-05:00 UTC.
      POD   CLAIM      CURRENT  DESIRED  ACTION
      db-0  data-db-0  8Gi hdd  8Gi hdd  –
      db-1  data-db-1  8Gi hdd  8Gi hdd  –
      db-2  data-db-2  8Gi hdd  8Gi hdd  –
    Decided:
      db-0 and db-2: 12 % of its bytes are used; it grows at 80 %; it was 18 % at
      most since 2026-12-01T10:00:00Z, and shrinks if that stays below 40 % until
      2026-12-02T10:00:00Z
      db-1: no decision: its node has not reported its usage
    ");
    let one = &plan_of(&around(sizing()), &sizing()).pods[0];
    assert!(one.decision.as_ref().unwrap().starts_with("12 %"));
    let status = claims_of(&[sizing()], TableOptions::default());
    let says = "db-0: 12 % of its bytes are used; it grows at 80 %; it was 18 % at most since";
    assert!(
        status.contains(says) && status.ends_with("; other decisions for 1 more\n"),
        "{status}"
    );
}

#[test]
fn each_procedure_has_its_word() {
    let grown = json!({"size": "4Gi", "templateSize": "2Gi"});
    for (name, size, class, entry, spec, by) in [
        ("a", "2Gi", "ssd", json!({}), json!({}), Procedure::Nothing),
        ("a", "1Gi", "ssd", json!({}), json!({}), Procedure::Grow),
        ("a", "2Gi", "ssd", json!({ "autoscaledSize": grown }), json!({}), Procedure::Grow),
        ("a", "4Gi", "ssd", json!({ "autoscaledSize": grown }), json!({}), Procedure::Nothing),
        ("a", "4Gi", "ssd", json!({}), json!({}), Procedure::Swap),
        ("a", "2Gi", "hdd", json!({}), json!({}), Procedure::Swap),
        ("b", "2Gi", "ssd", json!({}), json!({}), Procedure::Make),
    ] {
        let mut ordinal = json!({"ordinal": 0, "activeClaim": "a"});
        ordinal.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
        let mut around = around(autoscaler(spec, json!({"ordinals": [ordinal]})));
        around.claims = vec![claim(name, size, class)];
        let plan = plan_of(&around, &around.autoscalers[0]);
        assert_eq!(plan.pods[0].by, by, "{name} {size} {class} {ordinal}");
    }
}

#[test]
fn a_claim_without_a_volume_is_never_changed_but_created_again() {
    for (size, by) in
        [("1Gi", Procedure::Recreate), ("4Gi", Procedure::Recreate), ("2Gi", Procedure::Make)]
    {
        let ordinal = json!({"ordinal": 0, "activeClaim": "a"});
        let mut around = around(autoscaler(json!({}), json!({"ordinals": [ordinal]})));
        let mut unbound = claim("a", size, "ssd");
        unbound.status = None;
        around.claims = vec![unbound];
        assert_eq!(plan_of(&around, &around.autoscalers[0]).pods[0].by, by, "{size}");
    }
}

#[test]
fn the_volume_of_a_claim_is_the_one_with_its_id() {
    let node = |name: &str, id: &str, mode: &str| {
        typed(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": name},
            "spec": {"nodeHash": "k"},
            "status": {"volumes": [{"volumeHandle": id, "name": "pvc-data-db-0", "pool": "p", "size": "8Gi",
                                    "requestedSize": "8Gi", "volumeMode": "Filesystem", "fsType": mode, "state": "Ready"}]},
        }))
    };
    let mut around = around(swapping());
    around.storages = vec![node("beta", "of-another", "xfs"), node("alpha", "its", "ext4")];
    assert_eq!(around.shrinks(&around.claims[0]), Shrinks::Never, "by its name the first one");
    around.ids.insert("data-db-0".to_owned(), "its".to_owned());
    assert_eq!(around.shrinks(&around.claims[0]), Shrinks::Unmounted);
}

#[test]
fn a_swap_that_waits_says_why_beside_how_far_it_is() {
    let swap = json!({"phase": "FinalCopy", "claim": "new", "specGeneration": 3, "summary": "8Gi → 2Gi",
                      "progress": "62 %", "message": "its node does not respond"});
    let status = json!({"phase": "Swapping", "claimCount": 1, "readyClaimCount": 0, "ordinals": [
        {"ordinal": 0, "activeClaim": "data-db-0", "claimRevision": 0, "swap": swap}]});
    let text = said(&around(autoscaler(json!({}), status)), true);
    assert!(text.contains("8Gi → 2Gi; 62 %; its node does not respond"), "{text}");
}

#[test]
fn what_is_held_says_by_what() {
    for (spec, says) in [
        (json!({"rollout": {"paused": true}}), Some("rollout.paused is true")),
        (json!({"rollout": {"partition": 1}}), Some("rollout.partition is 1")),
        (json!({"mode": "DryRun"}), Some("mode is DryRun")),
        (json!({"rollout": {"partition": 0}}), None),
    ] {
        let ordinals = json!([{"ordinal": 0, "activeClaim": "data-db-0"}]);
        let around = around(autoscaler(spec, json!({ "ordinals": ordinals })));
        let plan = plan_of(&around, &around.autoscalers[0]);
        assert_eq!(plan.pods[0].held.as_deref(), says);
    }
}

#[test]
fn a_cluster_without_autoscalers_has_no_such_section() {
    assert_eq!(claims_of(&[], TableOptions::default()), "");
    insta::assert_snapshot!(claims_of(&[swapping()], TableOptions::default()).trim_start(), @r"
    NAMESPACE  PVCAUTOSCALER  WORKLOAD        CLAIMS  PHASE     MESSAGE
    default    db             StatefulSet/db     1/3  Swapping  pod db-1: 62 % (4.96 GiB of 8 GiB), 180 MiB/s, 17 s left
    ");
}

#[test]
fn a_claim_that_may_not_be_read_is_not_shown_as_one_that_is_made() {
    let mut around = around(swapping());
    around.claims.clear();
    around.unseen = vec!["persistentvolumeclaims"];
    let plan = plan_of(&around, &around.autoscalers[0]);
    let text = print(&[plan], false, true);
    assert!(!text.contains("create"), "{text}");
    assert!(text.contains("not known: you may not read its claim"), "{text}");
    assert!(text.contains("You may not read: persistentvolumeclaims."), "{text}");
}

#[test]
fn nothing_is_planned_for_a_claim_whose_size_cannot_be_read() {
    let mut seen = around(swapping());
    seen.claims[0] = claim("data-db-0", "8589934592000m", "hdd");
    let plan = plan_of(&seen, &seen.autoscalers[0]);
    assert_eq!(
        (plan.pods[0].has, plan.pods[0].by),
        (Some(Quantity(Bytes::gib(8))), Procedure::Swap)
    );
    seen.claims[0] = claim("data-db-0", "1e50", "hdd");
    let plan = plan_of(&seen, &seen.autoscalers[0]);
    assert_eq!((plan.pods[0].has, plan.pods[0].by), (None, Procedure::Unreadable));
    let why = plan.pods[0].change.as_deref().unwrap();
    assert!(why.contains("`1e50` is not a size"), "{why}");
}
