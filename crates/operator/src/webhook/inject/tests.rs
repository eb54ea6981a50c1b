use json_patch::patch;
use serde_json::{Value, json};

use super::*;
use crate::api::PvcAutoscalerStatus;
use crate::api::controlling_stateful_set;

fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, volumes: &Value) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "1",
                       "controller": true});
    let mut pod = json!({"metadata": {"name": name, "ownerReferences": [owner]},
                         "spec": {"containers": []}});
    if !volumes.is_null() {
        pod["spec"]["volumes"] = volumes.clone();
    }
    pod
}

fn workload(own: &[&str]) -> StatefulSet {
    let templates: Vec<Value> =
        own.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    read(json!({"metadata": {"name": "db"},
                "spec": {"selector": {}, "template": {}, "volumeClaimTemplates": templates}}))
}

/// A PvcAutoscaler `name` of StatefulSet `db` with this template.
fn autoscaler(name: &str, template: &str, ordinals: &Value) -> PvcAutoscaler {
    let template = json!({"metadata": {"name": template}, "spec": {"accessModes": ["ReadWriteOnce"],
                          "resources": {"requests": {"storage": "1Gi"}}}});
    let mut one: PvcAutoscaler = read(json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler", "metadata": {"name": name},
        "spec": {"statefulSetName": "db", "volumeClaimTemplate": template},
    }));
    let ordinals = read(ordinals.clone());
    one.status = Some(PvcAutoscalerStatus { ordinals, ..PvcAutoscalerStatus::default() });
    one
}

fn data(ordinals: &Value) -> PvcAutoscaler {
    autoscaler("sizes", "data", ordinals)
}

fn volume(name: &str, claim: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
}

/// The volumes of the pod that is made, or why none is.
fn made(
    pod: &Value,
    workload: &StatefulSet,
    autoscalers: &[PvcAutoscaler],
) -> Result<Value, String> {
    let mut pod = pod.clone();
    match decide(&read(pod.clone()), workload, autoscalers, false) {
        PodVerdict::AsItIs => {}
        PodVerdict::With(change) => {
            patch(&mut pod, &change).unwrap();
            let again = decide(&read(pod.clone()), workload, autoscalers, false);
            assert_eq!(again, PodVerdict::AsItIs, "what is asked again changes nothing");
        }
        PodVerdict::Not(why) => return Err(why),
    }
    Ok(pod["spec"]["volumes"].clone())
}

#[test]
fn a_pod_gets_the_claim_of_its_ordinal_beside_what_it_has() {
    let sizes = [data(&json!([{"ordinal": 1, "activeClaim": "data-1-aa"},
                              {"ordinal": 11, "activeClaim": "data-11-bb"}]))];
    let none = workload(&[]);
    let given = |name: &str, had: &Value| made(&pod(name, had), &none, &sizes);
    assert_eq!(given("db-1", &Value::Null), Ok(json!([volume("data", "data-1-aa")])));
    assert_eq!(given("db-11", &json!([])), Ok(json!([volume("data", "data-11-bb")])));
    let token = json!({"name": "token", "projected": {}});
    let both = json!([token, volume("data", "data-1-aa")]);
    assert_eq!(given("db-1", &json!([token])), Ok(both));
}

#[test]
fn each_phase_of_a_swap_has_one_claim() {
    let taken = json!({"state": "Superseded", "generation": 1, "copyInProgress": true});
    for (phase, fence, claim) in [
        ("Pending", &Value::Null, "old"),
        ("PreCopy", &Value::Null, "old"), // Its pod goes on.
        ("Draining", &Value::Null, "new"),
        ("Fenced", &taken, "new"),
        ("FinalCopy", &taken, "new"),
        ("Soaking", &Value::Null, "old"), // By then the active one is the new one.
        ("RollingBack", &taken, "new"),   // Its volume may still be mounted read-only.
        ("RollingBack", &Value::Null, "old"), // It was never taken from its pod.
        ("Failed", &Value::Null, "old"),
    ] {
        let swap = json!({"phase": phase, "claim": "new", "specGeneration": 1, "fence": fence});
        let sizes = [data(&json!([{"ordinal": 0, "activeClaim": "old", "swap": swap}]))];
        let given = made(&pod("db-0", &Value::Null), &workload(&[]), &sizes);
        assert_eq!(given, Ok(json!([volume("data", claim)])), "{phase}");
    }
}

/// The gates of the pod that is made, or why none is.
fn gates(pod: &Value, own: &[&str], sizes: &PvcAutoscaler) -> Result<Value, String> {
    let mut pod = pod.clone();
    let sizes = [sizes.clone()];
    match decide(&read(pod.clone()), &workload(own), &sizes, false) {
        PodVerdict::AsItIs => {}
        PodVerdict::With(change) => {
            patch(&mut pod, &change).unwrap();
            let again = decide(&read(pod.clone()), &workload(own), &sizes, false);
            assert_eq!(again, PodVerdict::AsItIs);
            let is_gated = !pod["spec"]["schedulingGates"].is_null();
            let label = &pod["metadata"]["labels"][GATE];
            assert_eq!(label == "true", is_gated, "it is found by that");
        }
        PodVerdict::Not(why) => return Err(why),
    }
    Ok(pod["spec"]["schedulingGates"].clone())
}

#[test]
fn a_pod_is_not_scheduled_while_its_claim_gets_another_volume() {
    let fence = json!({"state": "Superseded", "generation": 1});
    let ours = json!([{ "name": GATE }]);
    for (phase, fence, is_held) in [
        ("Pending", &Value::Null, false),
        ("PreCopy", &Value::Null, false),
        ("Draining", &Value::Null, true),
        ("Fenced", &fence, true),
        ("FinalCopy", &fence, true),
        ("Rebinding", &fence, true),
        ("Soaking", &Value::Null, false),
        ("RollingBack", &fence, true),
        ("RollingBack", &Value::Null, false),
        ("Failed", &fence, false),
    ] {
        let swap = json!({"phase": phase, "claim": "new", "specGeneration": 1, "fence": fence,
                          "preservesName": true});
        let sizes = data(&json!([{"ordinal": 0, "activeClaim": "data-db-0", "swap": swap}]));
        let expected = if is_held { ours.clone() } else { Value::Null };
        for own in [&["data"][..], &[]] {
            let given = gates(&pod("db-0", &Value::Null), own, &sizes);
            assert_eq!(given, Ok(expected.clone()), "{phase} {own:?}");
        }
        // The claim is the one that it names, whoever names it.
        let given = made(&pod("db-0", &Value::Null), &workload(&[]), std::slice::from_ref(&sizes));
        assert_eq!(given, Ok(json!([volume("data", "data-db-0")])), "{phase}");
        assert_eq!(gates(&pod("db-1", &Value::Null), &["data"], &sizes), Ok(Value::Null));
    }
    let swap =
        json!({"phase": "Draining", "claim": "new", "specGeneration": 1, "preservesName": true});
    let sizes = data(&json!([{"ordinal": 0, "activeClaim": "data-db-0", "swap": swap}]));
    let mut gated = pod("db-0", &Value::Null);
    gated["spec"]["schedulingGates"] = json!([{"name": "theirs"}]);
    gated["metadata"]["labels"] = json!({"app": "db"});
    let both = json!([{"name": "theirs"}, { "name": GATE }]);
    assert_eq!(gates(&gated, &["data"], &sizes), Ok(both));
    let mut placed = pod("db-0", &Value::Null);
    placed["spec"]["nodeName"] = json!("alpha");
    let why = gates(&placed, &["data"], &sizes).unwrap_err();
    assert!(why.contains("sets its node alpha itself"), "{why}");
}

#[test]
fn a_pod_is_not_scheduled_with_a_new_claim_before_the_old_volume_is_proved_unused() {
    let fence = json!({"state": "Superseded", "generation": 1, "copyInProgress": true});
    let proved = json!("2026-01-01T00:00:00Z");
    for (phase, detached_time, is_held) in [
        ("Pending", &Value::Null, false), // It has the old claim.
        ("Draining", &Value::Null, true),
        ("Draining", &proved, false), // Another pod has come to the old claim since.
        ("Fenced", &Value::Null, true),
        ("FinalCopy", &Value::Null, false), // Written by a version before fences.
        ("FinalCopy", &proved, false),
        ("RollingBack", &Value::Null, true),
        ("RollingBack", &proved, false),
        ("Soaking", &Value::Null, false),
    ] {
        let swap = json!({"phase": phase, "claim": "new", "claimUID": "made", "specGeneration": 1,
                          "fence": fence, "detachedTime": detached_time});
        let sizes = data(&json!([{"ordinal": 0, "activeClaim": "old", "swap": swap}]));
        let expected = if is_held { json!([{ "name": GATE }]) } else { Value::Null };
        let given = gates(&pod("db-0", &Value::Null), &[], &sizes);
        assert_eq!(given, Ok(expected), "{phase} {detached_time}");
    }
}

#[test]
fn several_templates_are_several_volumes_and_the_own_ones_of_a_stateful_set_are_its_own() {
    let ordinal = |claim: &str| json!([{"ordinal": 0, "activeClaim": claim}]);
    let all = [
        autoscaler("a", "data", &ordinal("data-0")),
        autoscaler("b", "logs", &ordinal("logs-0")),
        autoscaler("c", "own", &json!([])),
    ];
    let given = made(&pod("db-0", &Value::Null), &workload(&["own"]), &all);
    assert_eq!(given, Ok(json!([volume("data", "data-0"), volume("logs", "logs-0")])));
    let mut other = all[0].clone();
    other.spec.stateful_set_name = Some("web".to_owned());
    assert_eq!(made(&pod("db-0", &Value::Null), &workload(&[]), &[other]), Ok(Value::Null));
}

#[test]
fn a_pod_whose_claim_is_not_there_yet_is_not_made_yet() {
    let why = "the claim data of pod db-0 does not exist yet; it is created within seconds";
    for ordinals in [
        json!([]),
        json!([{"ordinal": 1, "activeClaim": "data-1"}]),
        json!([{"ordinal": 0, "activeClaim": ""}]),
    ] {
        let given = made(&pod("db-0", &Value::Null), &workload(&[]), &[data(&ordinals)]);
        assert_eq!(given, Err(why.to_owned()), "{ordinals}");
    }
    // What is waited for is no matter of seconds.
    let progress = "the volume of claim data-0 may only be read: it is given back as soon as nobody has it open";
    let of = |phase: AutoscalerPhase, message: Option<&str>| {
        let mut sizes = data(&json!([]));
        let status = sizes.status.as_mut().unwrap();
        (status.phase, status.message) = (phase, message.map(str::to_owned));
        status.progress = Some(progress.to_owned());
        made(&pod("db-0", &Value::Null), &workload(&[]), &[sizes])
    };
    let says = |why: &str| {
        Err(format!("pod db-0 has no claim data yet: PvcAutoscaler sizes reports: {why}"))
    };
    assert_eq!(of(AutoscalerPhase::Waiting, None), says(progress));
    assert_eq!(of(AutoscalerPhase::Waiting, Some("two of them")), says("two of them"));
    assert_eq!(of(AutoscalerPhase::Swapping, None), Err(why.to_owned()), "that of another pod");
    let mut untold = data(&json!([]));
    untold.status = None;
    let given = made(&pod("db-0", &Value::Null), &workload(&[]), &[untold]);
    assert_eq!(given, Err(why.to_owned()));
}

#[test]
fn only_a_volume_that_stands_for_the_claim_is_replaced() {
    let ordinal = json!([{"ordinal": 0, "activeClaim": "data-0"}]);
    let given = |had: Value| made(&pod("db-0", &json!([had])), &workload(&[]), &[data(&ordinal)]);
    assert_eq!(given(volume("data", "data-0")), Ok(json!([volume("data", "data-0")])));
    assert_eq!(given(volume("data", "data")), Ok(json!([volume("data", "data-0")])));
    let why = "pod db-0 has a volume data that is not the claim data-0, which PvcAutoscaler sizes assigns to it; remove that volume from the pod template, have it name the placeholder claim data, or delete the PvcAutoscaler";
    assert_eq!(given(volume("data", "other")), Err(why.to_owned()));
    assert_eq!(given(json!({"name": "data", "emptyDir": {}})), Err(why.to_owned()));
}

/// The other stands back, and has no claims: it would keep every pod from being made.
#[test]
fn of_two_with_one_template_the_older_gives_the_claim() {
    let old = data(&json!([{"ordinal": 0, "activeClaim": "data-0"}]));
    for (young, claims) in
        [("twin", json!([])), ("twin", json!([{"ordinal": 0, "activeClaim": "x"}]))]
    {
        let both = [autoscaler(young, "data", &claims), old.clone()];
        let given = made(&pod("db-0", &Value::Null), &workload(&[]), &both);
        assert_eq!(given, Ok(json!([volume("data", "data-0")])));
    }
}

#[test]
fn only_a_name_of_a_stateful_set_has_an_ordinal() {
    for (name, expected) in [
        ("db-0", Some(0)),
        ("db-10", Some(10)),
        ("db-2147483647", Some(i32::MAX)),
        ("db-2147483648", None),
        ("db-00", None),
        ("db-+1", None),
        ("db--1", None),
        ("db-", None),
        ("db", None),
        ("db-1-0", None),
        ("web-0", None),
    ] {
        assert_eq!(ordinal_of(name, "db"), expected, "{name}");
    }
    let why = "pod debug has no ordinal of StatefulSet db in its name, so its claims are unknown: name it db-N, or remove StatefulSet db from its owners";
    let given = made(&pod("debug", &Value::Null), &workload(&[]), &[data(&json!([]))]);
    assert_eq!(given, Err(why.to_owned()));
}

#[test]
fn the_stateful_set_of_a_pod_is_the_one_that_controls_it() {
    let name_of = |owner: Value| -> Option<String> {
        let pod: Pod = read(json!({"metadata": {"name": "db-0", "ownerReferences": [owner]}}));
        controlling_stateful_set(&pod).map(|owner| owner.name.clone())
    };
    let owner = |group: &str, kind: &str, controller: Value| {
        json!({"apiVersion": group,
        "kind": kind, "name": "db", "uid": "1", "controller": controller})
    };
    assert_eq!(name_of(owner("apps/v1", "StatefulSet", json!(true))).as_deref(), Some("db"));
    assert_eq!(name_of(owner("apps/v1", "StatefulSet", json!(false))), None);
    assert_eq!(name_of(owner("apps/v1", "StatefulSet", Value::Null)), None);
    assert_eq!(name_of(owner("apps/v1", "ReplicaSet", json!(true))), None);
    assert_eq!(name_of(owner("example.com/v1", "StatefulSet", json!(true))), None);
}
