//! What the API server is answered, over a real socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use pliant::api::PvcAutoscaler;
use pliant::testing::{FakeApi, Lines};
use pliant::webhook::{HostClock, LIFE, StatefulSetRef, covers};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::world::{Replica, SHOP, cluster, configuration, connect, trusted, workload};

/// A clock that stands where it is put.
#[derive(Clone)]
pub struct Hand(Arc<AtomicU64>);

impl Hand {
    fn new() -> Self {
        Hand(Arc::new(AtomicU64::new(1_800_000_000)))
    }

    pub fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    fn move_on(&self, days: u64) {
        self.0.fetch_add(days * 24 * 3600, Ordering::Relaxed);
    }

    fn clock(&self) -> HostClock {
        let hand = self.clone();
        Arc::new(move || hand.now())
    }
}

/// A cluster with one replica that serves, and its hand.
pub struct Site {
    pub api: FakeApi,
    pub hand: Hand,
    replica: Replica,
    pub address: SocketAddr,
}

impl Site {
    pub async fn start() -> Site {
        let (api, hand) = (cluster(), Hand::new());
        workload(&api, "db", &json!([{"ordinal": 0, "activeClaim": "data-0-aa"}]));
        let mut replica = Replica::start(&api, LIFE, hand.clock());
        let address = replica.serve().await;
        let db = StatefulSetRef::parse(SHOP, "db").unwrap();
        api.until("the webhook covers it", |api| covers(&configuration(api), &db)).await;
        Site { api, hand, replica, address }
    }

    /// Send a body on a new connection; the certificate that was shown stands before the answer.
    async fn send(&self, path: &str, body: Vec<u8>) -> (Vec<u8>, StatusCode, Bytes) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let stream = connect(stream, &trusted(&self.api), self.hand.now()).await.unwrap();
        let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post(path).header("content-type", "application/json");
        let answer = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await;
        let answer = answer.unwrap();
        let code = answer.status();
        (certificate, code, answer.into_body().collect().await.unwrap().to_bytes())
    }

    /// Let the API server ask about a pod; the answer without what is the same in all.
    async fn ask(&self, pod: &str, operation: &str) -> Value {
        let review = serde_json::to_vec(&review(pod, operation)).unwrap();
        let (_, code, answer) = self.send("/pods", review).await;
        assert_eq!(code, StatusCode::OK);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["response"]["uid"], "0c9a8d74");
        answer["response"].clone()
    }

    /// The claim that a pod gets as its volume `data`.
    pub async fn claim_of(&self, pod: &str) -> Value {
        let made = self.made(pod).await;
        assert_eq!(made["spec"]["volumes"][0]["name"], "data");
        made["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"].clone()
    }

    /// A pod as it is made.
    async fn made(&self, pod: &str) -> Value {
        let response = self.ask(pod, "CREATE").await;
        assert_eq!(
            (&response["allowed"], &response["patchType"]),
            (&json!(true), &json!("JSONPatch"))
        );
        let patch: Vec<u8> = serde_json::from_value(response["patch"].clone()).unwrap_or_default();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut made = review(pod, "CREATE")["request"]["object"].clone();
        json_patch::patch(&mut made, &patch).unwrap();
        made
    }
}

pub fn review(pod: &str, operation: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "1",
                       "controller": true, "blockOwnerDeletion": true});
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "namespace": SHOP, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "db", "image": "db", "volumeMounts": mounts}]},
    });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": pod["metadata"]["name"], "namespace": SHOP, "operation": operation,
            "userInfo": {"username": "system:serviceaccount:kube-system:statefulset-controller"},
            "object": if operation == "DELETE" { Value::Null } else { pod.clone() },
            "oldObject": null, "dryRun": false, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

#[tokio::test]
async fn a_pod_gets_the_claim_that_is_its_own_at_that_moment() {
    let site = Site::start().await;
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
    // No watch and no cache tells of the swap.
    site.api.hold_events();
    let swap = json!({"phase": "Draining", "claim": "data-0-bb", "specGeneration": 2});
    workload(&site.api, "db", &json!([{"ordinal": 0, "activeClaim": "data-0-aa", "swap": swap}]));
    assert_eq!(site.claim_of("db-0").await, "data-0-bb");
}

#[tokio::test]
async fn a_refusal_is_logged_with_the_pod_and_the_question() {
    let (lines, site) = (Lines::begin(), Site::start().await);
    let swap = json!({"phase": "FromTheFuture", "claim": "data-0-bb", "specGeneration": 2});
    workload(&site.api, "db", &json!([{"ordinal": 0, "activeClaim": "data-0-aa", "swap": swap}]));
    assert_eq!(site.ask("db-0", "CREATE").await["allowed"], false);
    let said = lines.with("rejecting a pod for now");
    let [one] = said.as_slice() else { panic!("{said:?}") };
    let span = json!({"name": "admission", "uid": "0c9a8d74", "pod": format!("{SHOP}/db-0")});
    assert_eq!(one["span"], span);
}

#[tokio::test]
async fn a_pod_whose_claim_gets_another_volume_waits_behind_a_gate() {
    let site = Site::start().await;
    site.api.hold_events();
    let swap = json!({"phase": "Draining", "claim": "data-0-bb", "specGeneration": 2, "preservesName": true});
    workload(&site.api, "db", &json!([{"ordinal": 0, "activeClaim": "data-0-aa", "swap": swap}]));
    let made = site.made("db-0").await;
    assert_eq!(made["spec"]["schedulingGates"], json!([{"name": "pliant.io/volume-rebind"}]));
    assert_eq!(made["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-0-aa");
}

/// The claim of a name, as it is there with this uid.
fn put_claim(api: &FakeApi, name: &str, uid: &str) {
    let claim = json!({"metadata": {"name": name, "namespace": SHOP, "uid": uid}, "spec": {},
                       "status": {"phase": "Bound"}});
    api.put(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap());
}

#[tokio::test]
async fn a_pod_waits_behind_a_gate_while_another_claim_has_the_name_of_its_own() {
    let site = Site::start().await;
    let swap = |phase: &str, claim: &str, uid: &str| {
        json!({"phase": phase, "claim": claim, "claimUID": uid, "specGeneration": 2,
               "detachedTime": "2026-01-01T00:00:00Z"})
    };
    let returns = json!({"phase": "Pending", "claim": "data-0-aa", "claimUID": "old", "isRollback": true,
                         "activeClaimUID": "made", "specGeneration": 2});
    let unknown = json!({"phase": "FinalCopy", "claim": "data-0-bb", "specGeneration": 2});
    put_claim(&site.api, "data-0-aa", "old");
    for (active, swap, is_known) in [
        ("data-0-aa", swap("FinalCopy", "data-0-bb", "made"), true),
        ("data-0-aa", swap("Draining", "data-0-bb", "made"), true),
        ("data-0-bb", swap("Soaking", "data-0-bb", "made"), true),
        ("data-0-bb", returns, true),
        ("data-0-aa", unknown, false), // It is made again at this moment, and whoever is first has the name.
    ] {
        workload(&site.api, "db", &json!([{"ordinal": 0, "activeClaim": active, "swap": swap}]));
        for (there, waits) in [(Some("another"), true), (None, true), (Some("made"), !is_known)] {
            site.api.delete::<PersistentVolumeClaim>("shop/data-0-bb");
            if let Some(uid) = there {
                put_claim(&site.api, "data-0-bb", uid);
            }
            let gates = site.made("db-0").await["spec"]["schedulingGates"].clone();
            let expected = json!([{"name": "pliant.io/volume-rebind"}]);
            assert_eq!(gates == expected, waits, "{swap} {there:?}: {gates}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_answered_is_refused_with_a_sentence() {
    let site = Site::start().await;
    let refused = async |pod: &str, why: &str| {
        let response = site.ask(pod, "CREATE").await;
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(false), &json!(403))
        );
        let said = response["status"]["message"].as_str().unwrap();
        assert!(said.starts_with(why), "{said}");
    };
    refused("db-1", "the claim data of pod db-1 does not exist yet; it is created within seconds")
        .await;
    site.api.delete::<k8s_openapi::api::apps::v1::StatefulSet>("shop/db");
    refused("db-0", "StatefulSet db of pod db-0 is gone: create it again").await;
    site.api.refuse_all(403);
    refused("db-0", "the claims of pod db-0 could not be looked up: ").await;
}

/// What the API server is answered that is refused.
async fn refusal(site: &Site, pod: &str) -> String {
    let response = site.ask(pod, "CREATE").await;
    assert_eq!(response["allowed"], json!(false));
    response["status"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_refusal_says_what_its_reader_can_do() {
    let site = Site::start().await;
    // What keeps the claim from being made, in place of that it is made within seconds.
    let mut sizes: PvcAutoscaler = site.api.get("shop/db").unwrap();
    let why = "each of the claims a, b could be that of pod db-1: annotate all but one";
    let status = sizes.status.as_mut().unwrap();
    (status.reason, status.message) = (Some("AmbiguousClaimName".to_owned()), Some(why.to_owned()));
    site.api.put(&sizes);
    let said = refusal(&site, "db-1").await;
    assert_eq!(said, format!("pod db-1 has no claim data yet: PvcAutoscaler db reports: {why}"));
    let said = refusal(&site, "debug").await;
    assert!(said.ends_with("name it db-N, or remove StatefulSet db from its owners"), "{said}");
    // A phase that another version has written.
    let swap = json!({"phase": "FromTheFuture", "claim": "data-0-bb", "specGeneration": 2});
    workload(&site.api, "db", &json!([{"ordinal": 0, "activeClaim": "data-0-aa", "swap": swap}]));
    let said = refusal(&site, "db-0").await;
    assert!(said.ends_with("has a phase of another version; upgrade the operator"), "{said}");
    site.api.refuse_all(403);
    let said = refusal(&site, "db-0").await;
    assert!(
        said.ends_with("this is retried; if it persists, see the log of the operator"),
        "{said}"
    );
}

#[tokio::test]
async fn a_pod_waits_while_its_pvc_autoscaler_cannot_be_decoded_and_those_of_others_are_made() {
    let site = Site::start().await;
    let undecodable = |name: &str, stateful_set: &str| {
        let spec = json!({"statefulSetName": stateful_set, "volumeClaimTemplate": 7});
        let metadata = json!({"name": name, "namespace": SHOP});
        site.api.put_json::<PvcAutoscaler>(json!({"metadata": metadata, "spec": spec}));
    };
    undecodable("odd", "web");
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
    undecodable("logs", "db");
    let said = refusal(&site, "db-0").await;
    assert!(said.starts_with("PvcAutoscaler shop/logs cannot be decoded: "), "{said}");
    assert!(said.ends_with("; upgrade the operator, or correct it"), "{said}");
    site.api.delete::<PvcAutoscaler>("shop/logs");
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
}

#[tokio::test]
async fn what_is_no_new_pod_is_let_be() {
    let site = Site::start().await;
    for operation in ["UPDATE", "DELETE"] {
        let response = site.ask("db-0", operation).await;
        assert_eq!(
            (&response["allowed"], &response["patch"]),
            (&json!(true), &Value::Null),
            "{operation}"
        );
    }
}

#[tokio::test]
async fn nonsense_is_refused_and_the_next_question_is_answered() {
    let site = Site::start().await;
    for body in [
        &b"nonsense"[..],
        b"{}",
        br#"{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}"#,
    ] {
        let (_, code, answer) = site.send("/pods", body.to_vec()).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((code, &answer["response"]["allowed"]), (StatusCode::OK, &json!(false)));
    }
    let (_, code, _) = site.send("/pods", vec![b' '; 5 << 20]).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
}

#[tokio::test]
async fn who_does_not_speak_keeps_nobody_waiting() {
    let site = Site::start().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(site.address).await.unwrap());
    }
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart() {
    let site = Site::start().await;
    let review = || serde_json::to_vec(&review("db-0", "CREATE")).unwrap();
    let (before, ..) = site.send("/pods", review()).await;
    let (expired, authority) = (site.replica.shown.expires().unwrap(), trusted(&site.api));
    site.hand.move_on(61);
    workload(&site.api, "web", &json!([])); // So that it looks at the clock.
    let both = |api: &FakeApi| trusted(api).ends_with(&authority) && trusted(api) != authority;
    site.api.until("two authorities are trusted", both).await;
    let (still, ..) = site.send("/pods", review()).await;
    assert_eq!(still, before, "not all API servers know the new one yet");
    site.hand.move_on(4);
    workload(&site.api, "cache", &json!([]));
    let shows = |_: &FakeApi| site.replica.shown.expires().unwrap() > expired;
    site.api.until("the new one is shown", shows).await;
    let (after, code, _) = site.send("/pods", review()).await;
    assert!(after != before && code == StatusCode::OK);
    assert!(both(&site.api), "who still knows only the old one is no reason to fail");
}
