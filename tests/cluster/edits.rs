//! Templates of PvcAutoscalers, as a person at a terminal reads and edits them.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use pliant::api::PvcAutoscaler;
use pliant::testing::FakeApi;
use serde_json::{Value, json};

use crate::commands::Desk;
use crate::people::typed;

/// A claim of 8 GiB that a PvcAutoscaler keeps, and one that nobody keeps.
async fn desk() -> Desk {
    let desk = Desk::new().await;
    for name in ["data-db-0", "plain"] {
        desk.world.api.put::<PersistentVolumeClaim>(&typed(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "8Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": "8Gi"}},
        })));
    }
    desk.world.api.put::<PvcAutoscaler>(&typed(json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"statefulSetName": "db", "volumeClaimTemplate": {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                     "resources": {"requests": {"storage": "8Gi"}}}}},
        "status": {"observedGeneration": 1, "phase": "InSync", "claimCount": 1, "readyClaimCount": 1,
                   "ordinals": [{"ordinal": 0, "activeClaim": "data-db-0"}]},
    })));
    desk
}

fn autoscaler(api: &FakeApi) -> PvcAutoscaler {
    api.get("default/db").expect("the PvcAutoscaler")
}

fn size(api: &FakeApi) -> String {
    autoscaler(api).spec.volume_claim_template.spec.resources.requests.storage.to_string()
}

#[tokio::test(start_paused = true)]
async fn without_yes_a_template_is_not_edited() {
    let desk = desk().await;
    let (code, text, errors) = desk.types(&["shrink", "data-db-0", "2Gi"]).await;
    insta::assert_snapshot!(text, @r"
    This edits the size in the template of PvcAutoscaler default/db, and so all
    claims that it manages for StatefulSet db:
      POD   CLAIM      CURRENT   DESIRED   ACTION
      db-0  data-db-0  8Gi fast  2Gi fast  swap
    Pod db-0 is stopped while its claim is copied; the old claim is retained for
    168h.
    The usage of data-db-0 is not known: if its data does not fit, the pod gets its
    old claim again.
    Nothing was changed. Run again with --yes to apply.
    ");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for whose in ["data-db-0", "pvc/data-db-0", "sts/db", "StatefulSet/db", "pvcas/db"] {
        for command in ["expand", "grow"] {
            let (code, text, errors) = desk.types(&[command, whose, "16Gi", "--wait"]).await;
            assert_eq!((code, errors.as_str()), (Some(0), ""), "{whose}");
            let last = "Nothing was changed. Run again with --yes to apply.";
            assert_eq!(text.lines().last(), Some(last), "{whose}: {text}");
        }
    }
    assert_eq!(size(&desk.world.api), "8Gi");
    let claim: PersistentVolumeClaim = desk.world.api.get("default/data-db-0").unwrap();
    let requests = claim.spec.unwrap().resources.unwrap().requests.unwrap();
    assert_eq!(requests["storage"].0, "8Gi", "by hand it would be undone");
}

#[tokio::test(start_paused = true)]
async fn on_a_terminal_it_is_asked_whether_a_change_is_applied() {
    let desk = desk().await;
    let shrink = ["shrink", "sts/db", "2Gi"];
    for answer in ["n\n", "\n", "\u{4}"] {
        let (code, text) = desk.answers(&shrink, answer).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("Apply this change? [y/N] "), "{text}");
        let last = "Nothing was changed. Run again with --yes to apply.\n";
        assert!(text.ends_with(last), "{answer:?}: {text}");
        assert_eq!(size(&desk.world.api), "8Gi");
    }
    let (code, text) = desk.answers(&shrink, "y\n").await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("[y/N] template    edited\n"), "{text}");
    assert_eq!(size(&desk.world.api), "2Gi");
    let (code, text) = desk.answers(&["shrink", "sts/db", "1Gi", "-y"], "").await;
    assert_eq!((code, text.contains("[y/N]")), (Some(0), false), "{text}");
    assert_eq!(size(&desk.world.api), "1Gi");
}

#[tokio::test(start_paused = true)]
async fn lists_are_printed_without_headers_and_as_names() {
    let desk = desk().await;
    let (_, with, _) = desk.types(&["status"]).await;
    let (code, without, errors) = desk.types(&["status", "--no-headers"]).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(with.contains("NODE ") && with.contains("PVCAUTOSCALER"), "{with}");
    assert!(!without.contains("NODE ") && !without.contains("PVCAUTOSCALER"), "{without}");
    assert_eq!(without.lines().count() + 2, with.lines().count(), "{without}");
    let (_, text, _) = desk.types(&["status", "-A", "-o", "name"]).await;
    let nodes = "nodestorage.pliant.io/alpha\nnodestorage.pliant.io/beta\n";
    assert_eq!(text, format!("{nodes}pvcautoscaler.pliant.io/db\n"));
    let (_, text, _) = desk.types(&["status", "-n", "other", "-o", "name"]).await;
    assert_eq!(text, nodes);
    let (_, text, _) = desk.types(&["plan", "-o", "name"]).await;
    assert_eq!(text, "pvcautoscaler.pliant.io/db\n");
    let (_, text, _) = desk.types(&["plan", "--no-headers"]).await;
    assert!(text.contains("\n  db-0  data-db-0") && !text.contains("DESIRED"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_found_by_the_name_of_whatever_it_is_about() {
    let desk = desk().await;
    let (_, whole, _) = desk.types(&["plan", "db"]).await;
    for address in ["pvcas/db", "sts/db", "pvc/data-db-0"] {
        let (code, text, errors) = desk.types(&["plan", address]).await;
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{address}");
        assert_eq!(text, whole, "{address}");
    }
    for (address, whose) in
        [("sts/x", "StatefulSet x"), ("deploy/db", "Deployment db"), ("pvc/plain", "claim plain")]
    {
        let (code, _, errors) = desk.types(&["plan", address]).await;
        let words = format!("no PvcAutoscaler in namespace default manages {whose}");
        assert_eq!((code, errors.contains(&words)), (Some(1), true), "{address}: {errors}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_made_and_followed_to_its_end() {
    let desk = desk().await;
    let typed = desk.types(&["shrink", "sts/db", "2Gi", "-y", "--wait", "--timeout", "60s"]);
    let operator = async {
        let api = &desk.world.api;
        api.until("the template is edited", |api: &FakeApi| size(api) == "2Gi").await;
        let mut edited = autoscaler(api);
        let status = edited.status.as_mut().unwrap();
        status.observed_generation = edited.metadata.generation.unwrap();
        api.put(&edited);
    };
    let ((code, text, errors), ()) = tokio::join!(typed, operator);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{text}");
    assert!(text.contains("\ntemplate    edited\nclaims      1/1 up to date, after "), "{text}");
    let (code, text, _) =
        desk.types(&["migrate", "data-db-0", "--storage-class", "fast", "--yes"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("see         pliant plan db --namespace default\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_keeps_gets_objects_to_apply() {
    let desk = desk().await;
    let (code, text, errors) = desk.types(&["shrink", "plain", "2Gi", "--yes"]).await;
    assert_eq!(code, Some(1));
    let kinds = text.split("---\n").skip(1).map(|one| {
        let object: Value = serde_saphyr::from_str(one).unwrap();
        object["kind"].as_str().unwrap().to_owned()
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["PvcSourcePopulator", "PersistentVolumeClaim"]);
    assert!(errors.starts_with("pliant: no PvcAutoscaler manages claim plain"), "{errors}");
    assert!(desk.world.api.get::<PersistentVolumeClaim>("default/plain-copy").is_none());
}

#[tokio::test(start_paused = true)]
async fn plans_are_shown_and_status_has_their_section() {
    let desk = desk().await;
    let (code, text, errors) = desk.types(&["plan"]).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    insta::assert_snapshot!(text, @r"
    default/db manages the claims of StatefulSet db: InSync, 1/1 up to date.
      POD   CLAIM      CURRENT   DESIRED   ACTION
      db-0  data-db-0  8Gi fast  8Gi fast  –
    ");
    for form in ["json", "yaml"] {
        let (_, text, _) = desk.types(&["plan", "db", "-o", form]).await;
        let told: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(told[0]["pods"][0]["action"], "None", "{text}");
        let (_, text, _) = desk.types(&["status", "-o", form]).await;
        let told: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(told[2]["kind"], "PvcAutoscaler", "{text}");
    }
    let (_, text, _) = desk.types(&["status"]).await;
    insta::assert_snapshot!(text, @r"
    NODE   POOL     SIZE  USED                       FREE  VOLUMES  VERSION  HEALTH
    alpha  fast  880 MiB  ░░░░░░░░░░░░░░░░   0 %  880 MiB        0  0.1.0    ok
    beta   fast  880 MiB  ░░░░░░░░░░░░░░░░   0 %  880 MiB        0  0.1.0    ok

    NAMESPACE  PVCAUTOSCALER  WORKLOAD        CLAIMS  PHASE   MESSAGE
    default    db             StatefulSet/db     1/1  InSync  –
    ");
    let (code, _, errors) = desk.types(&["plan", "none"]).await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("there is no PvcAutoscaler none in namespace default"), "{errors}");
    let (code, text, _) = desk.types(&["plan", "--namespace", "other"]).await;
    assert_eq!((code, text.as_str()), (Some(0), "No PvcAutoscaler exists in this namespace.\n"));
    let mut elsewhere = autoscaler(&desk.world.api);
    elsewhere.metadata.namespace = Some("shop".to_owned());
    desk.world.api.put(&elsewhere);
    let (_, text, _) = desk.types(&["plan", "-A"]).await;
    insta::assert_snapshot!(text, @r"
    default/db manages the claims of StatefulSet db: InSync, 1/1 up to date.
      POD   CLAIM      CURRENT   DESIRED   ACTION
      db-0  data-db-0  8Gi fast  8Gi fast  –

    shop/db manages the claims of StatefulSet db: InSync, 1/1 up to date.
      POD   CLAIM      CURRENT  DESIRED   ACTION
      db-0  data-db-0  –        8Gi fast  create
    ");
    let (_, text, _) = desk.types(&["status", "--namespace", "shop", "-o", "wide"]).await;
    let words = |begin: &str| {
        let line = text.lines().find(|line| line.starts_with(begin)).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let head = "NODE POOL SIZE USED FREE LARGEST GROUPS VOLUMES VERSION HEALTH";
    assert_eq!(words("NODE"), head, "{text}");
    assert!(words("alpha").contains(" 880 MiB 880 MiB linear"), "{text}");
    let head = "NAMESPACE PVCAUTOSCALER WORKLOAD CLAIMS TEMPLATE MODE POLICY PHASE MESSAGE";
    assert_eq!(words("NAMESPACE"), head, "{text}");
    let row = "shop db StatefulSet/db 1/1 8Gi fast Enforce – InSync –";
    assert_eq!((words("shop").as_str(), words("default").as_str()), (row, ""), "{text}");
    let (code, _, errors) = desk.types(&["plan", "db", "-A"]).await;
    assert_eq!((code, errors.contains("cannot be used with")), (Some(2), true), "{errors}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_and_what_it_decided_are_shown_wherever_a_claim_is() {
    let desk = desk().await;
    let mut autoscaler = autoscaler(&desk.world.api);
    autoscaler.spec.autoscale =
        Some(typed(json!({"maxSize": "1Ti", "growBy": "10Gi", "shrink": {"belowPercent": 30}})));
    let entry = &mut autoscaler.status.as_mut().unwrap().ordinals[0];
    entry.last_decision = Some("41 % of its bytes are used; it grows at 80 %".to_owned());
    desk.world.api.put(&autoscaler);
    let (_, text, _) = desk.types(&["plan"]).await;
    insta::assert_snapshot!(text, @r"
    default/db manages the claims of StatefulSet db: InSync. Each of them
    automatically grows by 10Gi at 80 %, by at least 1Gi, up to 1Ti; shrinks after
    24h below 30 %, every day, by UTC. The operator has not seen its last edit yet.
      POD   CLAIM      CURRENT   DESIRED   ACTION
      db-0  data-db-0  8Gi fast  8Gi fast  –
    Decided:
      db-0: 41 % of its bytes are used; it grows at 80 %
    ");
    let (_, text, _) = desk.types(&["status"]).await;
    assert!(text.ends_with("InSync  41 % of its bytes are used; it grows at 80 %\n"), "{text}");
    let (_, text, _) = desk.types(&["explain", "data-db-0"]).await;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Last sizing decision: 41 % of its bytes"), "{text}");
    let (_, text, _) = desk.types(&["plan", "db", "-o", "json"]).await;
    let told: Value = serde_saphyr::from_str(&text).unwrap();
    assert!(told[0]["policy"].as_str().unwrap().starts_with("grows by 10Gi at 80 %"), "{text}");
}
