//! What an edit of a template would do, and what is refused.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as KubeQuantity;
use serde_json::json;

use super::follow::{EditProgress, news, too_late};
use super::*;
use crate::api::FsType;
use crate::commands::plan::tests::{around, autoscaler, claim, swapping, typed};

const IDLE: &str = r#"{"phase": "InSync", "claimCount": 2, "readyClaimCount": 2, "ordinals": [
    {"ordinal": 0, "activeClaim": "data-db-0"},
    {"ordinal": 1, "activeClaim": "data-db-1", "autoscaledSize": {"size": "8Gi", "templateSize": "6Gi"}}]}"#;

/// Two claims of 8 GiB of class hdd whose template has 6 GiB: one of them has grown by itself.
fn seen() -> ObservedAutoscaler {
    let template = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
        "resources": {"requests": {"storage": "6Gi"}}}});
    let spec = json!({ "volumeClaimTemplate": template });
    let autoscaler = autoscaler(spec, serde_json::from_str(IDLE).unwrap());
    let mut around = around(autoscaler);
    around.claims.push(claim("plain", "8Gi", "hdd"));
    around.claims.push(claim("log-db-0", "8Gi", "hdd"));
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
        {"name": "log", "persistentVolumeClaim": {"claimName": "log-db-0"}}]);
    let pod = json!({
        "metadata": {"name": "db-0", "namespace": "default", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u"}]},
        "spec": {"containers": [], "volumes": volumes},
    });
    ObservedAutoscaler { program: "pliant".to_owned(), around, pods: vec![typed(pod)] }
}

/// The same, with so much in a claim.
fn with_usage(mut seen: ObservedAutoscaler, claim: &str, gib: u64) -> ObservedAutoscaler {
    let used = Quantity(Bytes::gib(gib));
    let node = json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage",
        "metadata": {"name": "alpha"}, "spec": {"nodeHash": "k"},
        "status": {
            "volumes": [{"volumeHandle": "k-1", "name": format!("pvc-{claim}"), "pool": "fast", "size": "8Gi",
                         "requestedSize": "8Gi", "volumeMode": "Filesystem", "fsType": "ext4", "state": "Ready"}],
            "usage": [{"volumeHandle": "k-1", "observedTime": "2026-11-01T10:00:00Z", "used": used, "capacity": "8Gi",
                       "available": "1Gi"}],
        },
    });
    seen.around.storages.push(typed(node));
    seen
}

fn whose(text: &str) -> Whose {
    text.parse().unwrap()
}

fn edit(seen: &ObservedAutoscaler, whom: &str, wish: &RequestedChange) -> Edit {
    match judge(seen, &whose(whom), wish).unwrap() {
        EditDecision::Edit(edit) => *edit,
        EditDecision::Unkept(unkept) => panic!("{unkept:?}"),
    }
}

fn refusal(seen: &ObservedAutoscaler, whom: &str, wish: &RequestedChange) -> String {
    judge(seen, &whose(whom), wish).unwrap_err().to_string()
}

#[test]
fn who_is_named_is_a_claim_or_a_workload() {
    assert_eq!(whose("pvc/a"), Whose::Claim("a".to_owned()));
    assert_eq!(whose("a"), Whose::Claim("a".to_owned()));
    assert_eq!(whose("sts/a"), Whose::StatefulSet("a".to_owned()));
    assert_eq!(whose("deploy/a"), Whose::Deployment("a".to_owned()));
    for wrong in ["sts/", "a/b/c", "pod/a"] {
        assert!(wrong.parse::<Whose>().is_err(), "{wrong}");
    }
}

#[test]
fn the_claim_of_a_deployment_grows_and_keeps_its_name() {
    let mut of_web = seen();
    let spec = &mut of_web.around.autoscalers[0].spec;
    spec.stateful_set_name = None;
    spec.workload = Some(serde_json::from_value(json!({"deploymentName": "web"})).unwrap());
    let wish = RequestedChange::Grow(Bytes::gib(9));
    insta::assert_snapshot!(edit(&of_web, "deploy/web", &wish).in_words(&wish), @r"
    This edits the size in the template of PvcAutoscaler default/db, and so all
    claims that it manages for Deployment web:
      POD           CLAIM      CURRENT  DESIRED  ACTION
      of data-db-0  data-db-0  8Gi hdd  9Gi hdd  expand
      of data-db-1  data-db-1  8Gi hdd  9Gi hdd  expand
    ");
    let other = refusal(&of_web, "deploy/web", &RequestedChange::Shrink(Bytes::gib(4)));
    assert!(other.contains("Deployment web names its claims in its pod template"), "{other}");
    let none = refusal(&of_web, "sts/web", &wish);
    assert!(none.contains("manages the claims of StatefulSet web"), "{none}");
}

#[test]
fn a_shrink_tells_of_all_claims_that_it_concerns() {
    let wish = RequestedChange::Shrink(Bytes::gib(4));
    let seen = with_usage(seen(), "data-db-0", 3);
    let edit = edit(&seen, "data-db-0", &wish);
    let spec = json!({"resources": {"requests": {"storage": "4Gi"}}});
    assert_eq!(edit.patch, json!({"volumeClaimTemplate": { "spec": spec }}));
    insta::assert_snapshot!(edit.in_words(&wish), @r"
    This edits the size in the template of PvcAutoscaler default/db, and so all
    claims that it manages for StatefulSet db:
      POD   CLAIM      CURRENT  DESIRED  ACTION
      db-0  data-db-0  8Gi hdd  4Gi hdd  swap
      db-1  data-db-1  8Gi hdd  4Gi hdd  swap
    Pods db-0 and db-1 are stopped while their claims are copied, one after the
    other, the highest ordinal first; the old claims are retained for 168h.
    The usage of data-db-1 is not known: if its data does not fit, the pod gets its
    old claim again.
    ");
    assert_eq!(self::edit(&seen, "sts/db", &wish), edit);
}

#[test]
fn claims_that_shrink_where_they_lie_stop_no_pod() {
    let wish = RequestedChange::Shrink(Bytes::gib(4));
    let with_mode = |mode| {
        let mut seen = with_usage(with_usage(seen(), "data-db-0", 3), "data-db-1", 1);
        for node in &mut seen.around.storages {
            let volumes = &mut node.status.as_mut().unwrap().volumes;
            for volume in volumes {
                volume.fs_type = Some(mode);
            }
        }
        seen
    };
    insta::assert_snapshot!(edit(&with_mode(FsType::Btrfs), "data-db-0", &wish).in_words(&wish), @r"
    This edits the size in the template of PvcAutoscaler default/db, and so all
    claims that it manages for StatefulSet db:
      POD   CLAIM      CURRENT  DESIRED  ACTION
      db-0  data-db-0  8Gi hdd  4Gi hdd  shrink
      db-1  data-db-1  8Gi hdd  4Gi hdd  shrink
    ");
    let mut unknown = with_mode(FsType::Btrfs);
    unknown.around.storages[1].status.as_mut().unwrap().usage.clear();
    let notes = edit(&unknown, "data-db-0", &wish).notes;
    let note = "The usage of data-db-1 is not known: if its data does not fit, its file system does not \
                shrink, and its pod is stopped for a copy instead.";
    assert_eq!(notes, [note]);
}

#[test]
fn a_growth_and_a_move_tell_it_too() {
    let grow = RequestedChange::Grow(Bytes::gib(10));
    insta::assert_snapshot!(edit(&seen(), "data-db-0", &grow).in_words(&grow), @r"
    This edits the size in the template of PvcAutoscaler default/db, and so all
    claims that it manages for StatefulSet db:
      POD   CLAIM      CURRENT  DESIRED   ACTION
      db-0  data-db-0  8Gi hdd  10Gi hdd  expand
      db-1  data-db-1  8Gi hdd  10Gi hdd  expand
    ");
    let mut full = with_usage(with_usage(seen(), "data-db-0", 3), "data-db-1", 1);
    let pool = json!({"name": "fast", "configured": true, "capacity": "20Gi", "available": "3Gi",
                      "volumeCount": 2, "health": "Healthy"});
    for node in &mut full.around.storages {
        node.status.as_mut().unwrap().pools = vec![serde_json::from_value(pool.clone()).unwrap()];
    }
    let note = "Pool fast of node alpha has 3Gi free, and the claims there need 4Gi more. What does not fit \
                stays at its size, in use, until space is free.";
    assert_eq!(edit(&full, "data-db-0", &grow).notes, [note]);
    let fits = RequestedChange::Grow(Bytes::gib(9));
    assert_eq!(edit(&full, "data-db-0", &fits).notes, Vec::<String>::new());
    let class = RequestedChange::Move("ssd".to_owned());
    let edit = edit(&seen(), "data-db-0", &class);
    let spec = json!({"storageClassName": "ssd"});
    assert_eq!(edit.patch, json!({"volumeClaimTemplate": { "spec": spec }}));
    assert_eq!(edit.plan.pods[0].change.as_deref(), Some("8Gi → 6Gi, class hdd → ssd"));
    assert_eq!(edit.plan.pods[1].change.as_deref(), Some("class hdd → ssd"));
}

#[test]
fn what_cannot_be_is_refused_with_what_to_type() {
    let shrink = |gib| RequestedChange::Shrink(Bytes::gib(gib));
    let full = with_usage(seen(), "data-db-1", 5);
    let swapping = ObservedAutoscaler { around: around(swapping()), ..seen() };
    let mut smaller = seen();
    smaller.around.claims[0] = claim("data-db-0", "4Gi", "hdd");
    // What did not get its size may ask for less, but for more than it has.
    let mut refused = seen();
    refused.around.claims[0].status.as_mut().unwrap().capacity =
        Some([("storage".to_owned(), KubeQuantity("2Gi".to_owned()))].into());
    assert_eq!(
        edit(&refused, "data-db-0", &RequestedChange::Grow(Bytes::gib(4))).patch["volumeClaimTemplate"]
            ["spec"],
        json!({"resources": {"requests": {"storage": "4Gi"}}})
    );
    for (seen, whom, wish, says) in [
        (refused, "data-db-0", RequestedChange::Grow(Bytes::gib(2)), "is less: to shrink it"),
        (seen(), "gone", shrink(4), "there is no claim gone in namespace default"),
        (seen(), "sts/gone", shrink(4), "no PvcAutoscaler in namespace default manages"),
        (seen(), "data-db-0", shrink(8), "`pliant expand pvc/data-db-0 --namespace default 8Gi`"),
        (seen(), "data-db-1", shrink(6), "was expanded to 8Gi automatically"),
        (
            seen(),
            "data-db-0",
            RequestedChange::Grow(Bytes::gib(4)),
            "`pliant shrink pvc/data-db-0 --namespace default 4Gi`",
        ),
        (
            seen(),
            "data-db-0",
            RequestedChange::Move("tape".to_owned()),
            "there is no StorageClass tape",
        ),
        (
            smaller,
            "data-db-0",
            RequestedChange::Grow(Bytes::gib(6)),
            "was shrunk to 4Gi automatically since",
        ),
        (
            full,
            "data-db-0",
            shrink(4),
            "4 GiB cannot hold the data of the claims: data-db-1 has 5 GiB of data on node alpha (1 GiB too",
        ),
        (with_usage(seen(), "plain", 5), "plain", shrink(4), "plain has 5 GiB of data on node"),
        (
            ObservedAutoscaler {
                around: around(crate::commands::plan::tests::swapping()),
                ..ObservedAutoscaler::default()
            },
            "data-db-2",
            shrink(1),
            "the claim of pod db-2 is data-db-2-1c0ff now",
        ),
    ] {
        let said = refusal(&seen, whom, &wish);
        assert!(said.contains(says), "{said}");
    }
    let mut coming = swapping;
    coming.around.claims.push(claim("data-db-1-ba51f", "2Gi", "ssd"));
    assert!(refusal(&coming, "data-db-1-ba51f", &shrink(1)).contains("is being populated"));
}

#[test]
fn a_claim_that_nobody_keeps_is_left_alone_and_the_way_is_shown() {
    let wish = RequestedChange::Shrink(Bytes::gib(4));
    let unkept = |name: &str| match judge(&seen(), &whose(name), &wish).unwrap() {
        EditDecision::Unkept(unkept) => unkept,
        EditDecision::Edit(edit) => panic!("{edit:?}"),
    };
    let of_a_set = unkept("log-db-0");
    assert_eq!(
        of_a_set.objects,
        [json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
            "metadata": {"name": "db-log", "namespace": "default"},
            "spec": {"statefulSetName": "db", "volumeClaimTemplate": {
                "metadata": {"name": "log"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
                         "resources": {"requests": {"storage": "4Gi"}}}}},
        })]
    );
    typed::<PvcAutoscaler>(of_a_set.objects[0].clone());
    assert!(of_a_set.why.contains("nothing was changed"), "{}", of_a_set.why);
    let of_nobody = unkept("plain");
    assert_eq!(of_nobody.objects[0]["spec"]["sourcePvcRef"]["name"], "plain");
    assert_eq!(of_nobody.objects[1]["spec"]["dataSourceRef"]["name"], "plain-copy");
    typed::<crate::api::PvcSourcePopulator>(of_nobody.objects[0].clone());
}

#[test]
fn an_edit_is_followed_from_the_moment_the_operator_has_seen_it() {
    let said = |status| news(&autoscaler(json!({}), status), 3);
    assert_eq!(said(json!({"observedGeneration": 2, "phase": "InSync"})), EditProgress::None);
    assert_eq!(
        said(json!({"phase": "InSync", "claimCount": 2, "readyClaimCount": 2})),
        EditProgress::Done("claims      2/2 up to date".to_owned())
    );
    assert_eq!(
        said(json!({"phase": "Swapping", "progress": "pod db-1: 62 %"})),
        EditProgress::Line("swapping    pod db-1: 62 %".to_owned())
    );
    assert_eq!(
        said(json!({"phase": "Failed", "message": "too small"})),
        EditProgress::Stopped("too small".to_owned())
    );
    let stalled = |ordinal: Value| {
        said(json!({
            "phase": "Waiting", "message": "delete it", "ordinals": [ordinal],
            "conditions": [{"type": "Stalled", "status": "True", "reason": "ClaimOutdated", "message": "",
                            "lastTransitionTime": "2026-11-26T10:00:00Z"}],
        }))
    };
    let idle = json!({"ordinal": 0, "activeClaim": "a"});
    assert_eq!(stalled(idle), EditProgress::Stopped("delete it".to_owned()));
    let shrinking = swapping_at("Draining").around.autoscalers.remove(0).status.unwrap();
    let goes_on = stalled(json!(shrinking.of(1)));
    assert!(matches!(goes_on, EditProgress::Line(_)), "{goes_on:?}");
    assert_eq!(said(json!({"phase": "Swapping"})), EditProgress::None, "nothing to read");
    let recommends = said(json!({"phase": "DryRun", "plannedAction": "pod db-0 is stopped"}));
    assert!(matches!(recommends, EditProgress::Stopped(why) if why.contains("mode is DryRun")));
}

#[test]
fn what_a_roll_back_leaves_behind_is_told() {
    let mut swapped = seen();
    let old = json!({"name": "data-db-0-0a1b2", "uid": "u", "replacementReadyTime": "2026-11-01T10:00:00Z"});
    let status = json!({"phase": "InSync", "claimCount": 2, "readyClaimCount": 2, "ordinals": [
        {"ordinal": 0, "activeClaim": "data-db-0", "claimRevision": 3, "retainedClaims": [old],
         "lastSwap": {"claim": "data-db-0", "completionTime": "2026-11-01T10:00:00Z"}},
        {"ordinal": 1, "activeClaim": "data-db-1"}]});
    swapped.around.autoscalers[0].status = serde_json::from_value(status).unwrap();
    swapped.around.claims.push(claim("data-db-0-0a1b2", "12Gi", "ssd"));
    let edit = edit(&swapped, "sts/db", &RequestedChange::RollBack);
    assert_eq!(edit.patch, json!({"rollback": [{"ordinal": 0, "claimRevision": 3}]}));
    insta::assert_snapshot!(edit.in_words(&RequestedChange::RollBack), @r"
    This rolls back pods of StatefulSet db to the claims from before their last PVC
    swap, by PvcAutoscaler default/db:
      POD   CLAIM      CURRENT  DESIRED   ACTION
      db-0  data-db-0  8Gi hdd  12Gi ssd  roll back
      db-1  data-db-1  8Gi hdd  6Gi hdd   swap
    Pod db-0 is stopped, and restarts without what it has written since
    2026-11-01T10:00:00Z, which is retained for 168h.
    The template is unchanged. These pods are not changed until you edit it: write
    the size and class that they have then, or the ones that you want. Until then no
    other pod is swapped.
    ");
    assert_eq!(self::edit(&swapped, "data-db-0", &RequestedChange::RollBack), edit);
    let mut waiting = swapped.around.autoscalers[0].clone();
    waiting.spec.rollback =
        typed(json!([{"ordinal": 1, "claimRevision": 2}, {"ordinal": 4, "claimRevision": 1}]));
    waiting.status.as_mut().unwrap().ordinals[1].claim_revision = 2;
    let mut others = seen();
    others.around.autoscalers[0] = waiting;
    let both = json!([{"ordinal": 0, "claimRevision": 3}, {"ordinal": 1, "claimRevision": 2}]);
    assert_eq!(
        self::edit(&others, "data-db-0", &RequestedChange::RollBack).patch,
        json!({"rollback": both})
    );
    let none = refusal(&swapped, "data-db-1", &RequestedChange::RollBack);
    assert!(none.contains("no claim from before a PVC swap of pod db-1 is retained"), "{none}");
    let unkept = refusal(&swapped, "plain", &RequestedChange::RollBack);
    assert!(unkept.contains("no PvcAutoscaler manages claim plain"), "{unkept}");
}

/// A swap of the second pod goes on, as far as this; the first pod has had one before.
fn swapping_at(phase: &str) -> ObservedAutoscaler {
    let mut seen = seen();
    let old = json!({"name": "data-db-0-0a1b2", "uid": "u"});
    let swap = json!({"phase": phase, "claim": "data-db-1-0c0de", "specGeneration": 7,
                      "summary": "8Gi → 6Gi", "podStopTime": "2026-11-01T10:00:00Z"});
    let retained = json!([{"name": "data-db-1-0a1b2", "uid": "v"}]);
    let status = json!({"phase": "Swapping", "claimCount": 2, "readyClaimCount": 1, "observedGeneration": 7, "ordinals": [
        {"ordinal": 0, "activeClaim": "data-db-0", "claimRevision": 3, "retainedClaims": [old]},
        {"ordinal": 1, "activeClaim": "data-db-1", "claimRevision": 1, "swap": swap,
         "retainedClaims": retained}]});
    seen.around.autoscalers[0].status = serde_json::from_value(status).unwrap();
    seen.around.claims.push(claim("data-db-1-0c0de", "6Gi", "hdd"));
    seen
}

#[test]
fn to_give_a_swap_up_says_what_the_pod_keeps_and_does_nothing_else() {
    let seen = swapping_at("FinalCopy");
    let edit = edit(&seen, "sts/db", &RequestedChange::Abort);
    let expected = json!({"abort": [{"ordinal": 1, "specGeneration": 7}], "rollback": []});
    assert_eq!(edit.patch, expected);
    insta::assert_snapshot!(edit.in_words(&RequestedChange::Abort), @r"
    This aborts PVC swaps of pods of StatefulSet db and does nothing else, by
    PvcAutoscaler default/db:
      POD   CLAIM      CURRENT  DESIRED  ACTION
      db-0  data-db-0  8Gi hdd  6Gi hdd  swap
      db-1  data-db-1  8Gi hdd  6Gi hdd  swap: FinalCopy, to be aborted
    Pod db-1 starts again with claim data-db-1 and all its data, unless the copy
    ends before the operator sees the request: the swap is then completed.
    Nothing else is done: claims retained from earlier swaps stay. The template is
    unchanged. These pods are not changed until you edit it: write the size and
    class that they have, or the ones that you want. Until then no other pod is
    swapped.
    ");
    for named in ["data-db-1", "data-db-1-0c0de"] {
        assert_eq!(self::edit(&seen, named, &RequestedChange::Abort).patch, expected, "{named}");
    }
    let mut waiting = swapping_at("Failed");
    let spec = &mut waiting.around.autoscalers[0].spec;
    spec.rollback =
        typed(json!([{"ordinal": 0, "claimRevision": 3}, {"ordinal": 1, "claimRevision": 1}]));
    let expected = json!({"abort": [{"ordinal": 1, "specGeneration": 7}],
                          "rollback": [{"ordinal": 0, "claimRevision": 3}]});
    assert_eq!(self::edit(&waiting, "data-db-1", &RequestedChange::Abort).patch, expected);
    for (seen, whom, says) in [
        (swapping_at("FinalCopy"), "data-db-0", "no PVC swap of pod db-0 is in progress"),
        (swapping_at("Soaking"), "sts/db", "the PVC swap of pod db-1 has copied everything"),
        (swapping_at("Rebinding"), "data-db-1", "`pliant rollback` reverts it"),
        (swapping_at("FinalCopy"), "plain", "no PvcAutoscaler manages claim plain"),
    ] {
        let said = refusal(&seen, whom, &RequestedChange::Abort);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn nothing_is_rolled_back_in_the_middle_of_a_swap() {
    for phase in ["Pending", "Draining", "FinalCopy", "Rebinding", "RollingBack"] {
        let said = refusal(&swapping_at(phase), "sts/db", &RequestedChange::RollBack);
        let expected =
            format!("a PVC swap of pod db-1 ({phase}) is in progress, and prevents the rollback");
        assert!(said.contains(&expected), "{said}");
        assert!(said.contains("`pliant abort sts/db --namespace default`"), "{said}");
    }
    // That of another pod does not matter.
    edit(&swapping_at("FinalCopy"), "data-db-0", &RequestedChange::RollBack);
    for phase in ["Soaking", "Failed"] {
        edit(&swapping_at(phase), "sts/db", &RequestedChange::RollBack);
    }
}

#[test]
fn an_abort_that_comes_too_late_is_no_success() {
    let asked = |phase: &str| {
        let mut one = swapping_at(phase).around.autoscalers.remove(0);
        one.spec.abort = typed(json!([{"ordinal": 1, "specGeneration": 7}]));
        one
    };
    let edited = asked("FinalCopy");
    assert_eq!(too_late(&edited, &edited, "pliant"), None, "it is still possible");
    let mut done = edited.clone();
    let entry = &mut done.status.as_mut().unwrap().ordinals[1];
    (entry.swap, entry.claim_revision) = (None, entry.claim_revision + 1);
    let said = too_late(&edited, &done, "pliant").expect("the pod has the new claim");
    assert!(said.contains("pod db-1 has the new claim") && said.contains("paused"), "{said}");
    assert!(too_late(&asked("Soaking"), &asked("Soaking"), "pliant").is_some());
    // What was asked for in an earlier swap says nothing about this one.
    let mut earlier = edited.clone();
    earlier.spec.abort[0].spec_generation = 6;
    assert_eq!(too_late(&earlier, &done, "pliant"), None);
    let mut aborted = edited.clone();
    aborted.status.as_mut().unwrap().ordinals[1].swap = None;
    assert_eq!(too_late(&edited, &aborted, "pliant"), None);
}

#[test]
fn a_swap_that_was_given_up_is_no_end_while_something_is_asked_for_besides() {
    let told = |phase: &str, reason: &str, spec: Value| {
        let mut one = swapping_at("Failed").around.autoscalers.remove(0);
        let mut with = serde_json::to_value(&one.spec).unwrap();
        with.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        one.spec = typed(with);
        let status = one.status.as_mut().unwrap();
        status.phase = typed(json!(phase));
        (status.reason, status.message) = (Some(reason.to_owned()), Some("it failed".to_owned()));
        if reason != "SwapFailed" {
            status.ordinals[1].swap = None;
        }
        news(&one, 7)
    };
    let failed = EditProgress::Stopped("it failed".to_owned());
    assert_eq!(told("Failed", "SwapFailed", json!({})), failed);
    let back = json!({"rollback": [{"ordinal": 1, "claimRevision": 1}]});
    assert!(matches!(told("Failed", "SwapFailed", back), EditProgress::Line(_)));
    let abort = json!({"abort": [{"ordinal": 1, "specGeneration": 7}]});
    assert!(matches!(told("Failed", "SwapFailed", abort.clone()), EditProgress::Line(_)));
    let done = EditProgress::Done("claims      as before; 1/2 match the template".to_owned());
    assert_eq!(told("Waiting", "SwapAborted", abort), done);
}
