//! Certificates that the replicas share, in a time that passes when all wait.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use pliant::testing::{FakeApi, Lost};
use pliant::webhook::{CertificatePair, HostClock, LIFE, Shown, StatefulSetRef, covers};
use rustls::ServerConfig;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use crate::world::{
    NAME, Replica, SHOP, cluster, configuration, connect, object, pairs, service, trusted, workload,
};

/// A clock that goes as tokio's does.
fn clock() -> HostClock {
    let start = Instant::now();
    Arc::new(move || Duration::from_millis(1_800_000_000_250) + start.elapsed())
}

fn shop() -> FakeApi {
    let api = cluster();
    workload(&api, "db", &json!([]));
    api
}

/// Connect to a replica that shows this, as an API server that trusts these authorities; the certificate
/// that was shown.
async fn meet(shown: &Shown, authorities: &str, now: Duration) -> io::Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_cert_resolver(Arc::new(shown.clone()))));
    let (near, far) = tokio::io::duplex(1 << 14);
    let (accepted, met) = tokio::join!(acceptor.accept(far), connect(near, authorities, now));
    drop(accepted);
    Ok(met?.get_ref().1.peer_certificates().unwrap()[0].to_vec())
}

async fn asked(api: &FakeApi) {
    api.until("the webhook is asked", |api| !trusted(api).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn through_all_renewals_no_call_is_refused() {
    const SECOND: Duration = Duration::from_secs(1);
    let (api, clock) = (shop(), clock());
    let replicas = [(); 2].map(|()| Replica::start(&api, 90 * SECOND, clock.clone()));
    asked(&api).await;
    sleep(SECOND).await;
    let (mut seen, mut known) = (BTreeSet::new(), trusted(&api));
    for second in 0..330 {
        // An API server that has not yet heard of the last second.
        for replica in &replicas {
            let met = meet(&replica.shown, &known, clock()).await;
            seen.insert(met.unwrap_or_else(|error| panic!("after {second} s: {error}")));
        }
        known = trusted(&api);
        sleep(SECOND).await;
    }
    assert_eq!(seen.len(), 6, "60 s each");
    let writes = api.writes().into_iter().filter(|line| line.contains("secrets")).count();
    assert!(writes <= 12, "each replica tries once a renewal at most: {writes}");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_at_once_show_the_same() {
    for count in 2..6 {
        let (api, clock) = (shop(), clock());
        let replicas: Vec<_> =
            (0..count).map(|_| Replica::start(&api, LIFE, clock.clone())).collect();
        asked(&api).await;
        sleep(Duration::from_secs(60)).await;
        let mut met = BTreeSet::new();
        for replica in &replicas {
            met.insert(meet(&replica.shown, &trusted(&api), clock()).await.unwrap());
        }
        assert_eq!(met.len(), 1);
        assert_eq!(trusted(&api), pairs(&api).unwrap().authorities());
        assert_eq!(trusted(&api).matches("BEGIN").count(), 1);
        api.forget_writes();
        sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(api.writes(), [""; 0], "nothing is written while nothing changes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_lost_is_made_up_for() {
    for (n, lost) in (1..=4).flat_map(|n| Lost::BOTH.map(|lost| (n, lost))) {
        let (api, clock) = (shop(), clock());
        api.fail_at(n, lost);
        let replicas = [(); 2].map(|()| Replica::start(&api, LIFE, clock.clone()));
        asked(&api).await;
        sleep(Duration::from_secs(60)).await;
        for replica in &replicas {
            let met = meet(&replica.shown, &trusted(&api), clock()).await;
            met.unwrap_or_else(|error| panic!("{n} {lost:?}: {error}"));
        }
        assert_eq!(trusted(&api), pairs(&api).unwrap().authorities(), "{n} {lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_emptied_spoilt_or_gone_is_filled_again() {
    let (api, clock) = (shop(), clock());
    let replica = Replica::start(&api, LIFE, clock.clone());
    let place = format!("pliant-system/{NAME}");
    let metadata = json!({"name": NAME, "namespace": "pliant-system"});
    for data in [Some(json!({})), Some(json!({"certificates.json": "e30="})), None] {
        asked(&api).await;
        sleep(Duration::from_secs(60)).await;
        let before = trusted(&api);
        match data {
            Some(data) => {
                api.put(&object::<Secret>(json!({"metadata": metadata, "data": data})));
            }
            None => api.delete::<Secret>(&place),
        }
        api.until("there is another authority", |api| trusted(api) != before).await;
        sleep(Duration::from_secs(60)).await;
        meet(&replica.shown, &trusted(&api), clock()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_starts_later_shows_what_the_others_show() {
    let (api, clock) = (shop(), clock());
    let first = Replica::start(&api, LIFE, clock.clone());
    asked(&api).await;
    sleep(Duration::from_secs(60)).await;
    api.forget_writes();
    let second = Replica::start(&api, LIFE, clock.clone());
    sleep(Duration::from_secs(60)).await;
    let of = async |replica: &Replica| meet(&replica.shown, &trusted(&api), clock()).await.unwrap();
    assert_eq!(of(&first).await, of(&second).await);
    assert_eq!(api.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_though_the_names_are_refused() {
    const SECOND: Duration = Duration::from_secs(1);
    let (api, clock) = (shop(), clock());
    let replica = Replica::start(&api, 90 * SECOND, clock.clone());
    asked(&api).await;
    api.refuse_applies(true);
    workload(&api, "web", &json!([]));
    for second in 0..330 {
        let met = meet(&replica.shown, &trusted(&api), clock()).await;
        met.unwrap_or_else(|error| panic!("after {second} s: {error}"));
        sleep(SECOND).await;
    }
    let db = StatefulSetRef::parse(SHOP, "db").unwrap();
    let web = StatefulSetRef::parse(SHOP, "web").unwrap();
    assert!(covers(&configuration(&api), &db) && !covers(&configuration(&api), &web));
    api.refuse_applies(false);
    api.until("web is named", |api| covers(&configuration(api), &web)).await;
}

/// A Secret as cert-manager keeps it.
fn given(api: &FakeApi, pair: &CertificatePair) {
    let data: serde_json::Map<String, serde_json::Value> =
        [("ca.crt", &pair.authority), ("tls.crt", &pair.certificate), ("tls.key", &pair.key)]
            .map(|(key, text)| (key.to_owned(), json!(ByteString(text.clone().into_bytes()))))
            .into_iter()
            .collect();
    let metadata = json!({"name": "tls", "namespace": "pliant-system"});
    let secret = json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": data});
    api.put(&object::<Secret>(secret));
}

#[tokio::test(start_paused = true)]
async fn certificates_of_another_program_are_shown_and_never_written() {
    let (api, clock) = (shop(), clock());
    let replica = Replica::start_with(&api, LIFE, clock.clone(), Some("tls"));
    sleep(Duration::from_secs(7200)).await;
    assert_eq!(trusted(&api), "", "nothing is asked by an authority that is not known");

    for _ in 0..2 {
        let pair = CertificatePair::make(&service().host(), LIFE, clock()).unwrap();
        given(&api, &pair);
        let authority = pair.authority.clone();
        api.until("the authority is trusted", |api| trusted(api) == authority).await;
        sleep(Duration::from_secs(10)).await;
        meet(&replica.shown, &trusted(&api), clock()).await.unwrap();
        assert_eq!(replica.shown.expires(), None, "who keeps it says when it ends");
    }
    api.forget_writes();
    sleep(LIFE).await;
    assert_eq!(api.writes(), [""; 0], "it is renewed by who keeps it");
    assert_eq!(pairs(&api), None, "none is made beside it");
}
