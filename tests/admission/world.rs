//! A cluster in memory, replicas of the operator that serve its webhook, and its API server as a client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use pliant::api::PvcAutoscaler;
use pliant::cluster::{StatefulSetVersion, Watched, every};
use pliant::testing::{FakeApi, fake_api};
use pliant::webhook::{CertificatesController, HostClock, Naming, Pairs, Service, Shown, serve};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The name of the Service, the Secret and the configuration.
pub const NAME: &str = "pliant-webhook";
/// The namespace of all workloads here.
pub const SHOP: &str = "shop";

/// Make an object of JSON.
pub fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).expect("an object")
}

pub fn service() -> Service {
    format!("pliant-system/{NAME}").parse().unwrap()
}

/// A cluster in memory as the chart leaves it: an empty Secret and an empty configuration.
pub fn cluster() -> FakeApi {
    let api = fake_api();
    api.put(&object::<Secret>(json!({"metadata": {"name": NAME, "namespace": "pliant-system"}})));
    api.put(&object::<MutatingWebhookConfiguration>(json!({"metadata": {"name": NAME}})));
    api
}

/// Put a StatefulSet there, and a PvcAutoscaler of the same name for its volume `data`.
pub fn workload(api: &FakeApi, name: &str, ordinals: &Value) {
    stateful_set(api, name);
    autoscaler(api, SHOP, name, ordinals);
}

pub fn stateful_set(api: &FakeApi, name: &str) {
    stateful_set_in(api, SHOP, name);
}

pub fn stateful_set_in(api: &FakeApi, namespace: &str, name: &str) {
    let template = json!({"metadata": {}, "spec": {"containers": []}});
    let spec = json!({"selector": {}, "serviceName": name, "template": template});
    let metadata = json!({"name": name, "namespace": namespace});
    api.put(&object::<StatefulSet>(json!({"metadata": metadata, "spec": spec})));
}

/// Put a PvcAutoscaler there that names a StatefulSet of its name.
pub fn autoscaler(api: &FakeApi, namespace: &str, name: &str, ordinals: &Value) {
    let metadata = json!({"name": name, "namespace": namespace});
    let requests = json!({"requests": {"storage": "1Gi"}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": requests});
    let template = json!({"metadata": {"name": "data"}, "spec": claim});
    api.put(&object::<PvcAutoscaler>(json!({
        "apiVersion": "pliant.io/v1alpha1", "kind": "PvcAutoscaler", "metadata": metadata,
        "spec": {"statefulSetName": name, "volumeClaimTemplate": template},
        "status": {"ordinals": ordinals},
    })));
}

pub fn configuration(api: &FakeApi) -> MutatingWebhookConfiguration {
    api.get(NAME).expect("the configuration")
}

/// The authorities that the API server trusts; empty, if it asks nobody.
pub fn trusted(api: &FakeApi) -> String {
    let webhooks = configuration(api).webhooks.unwrap_or_default();
    let bundle = webhooks.into_iter().next().and_then(|one| one.client_config.ca_bundle);
    String::from_utf8(bundle.unwrap_or_default().0).unwrap()
}

/// The certificates of the Secret.
pub fn pairs(api: &FakeApi) -> Option<Pairs> {
    let secret: Secret = api.get(&format!("pliant-system/{NAME}"))?;
    let data = secret.data?.remove("certificates.json")?;
    Some(serde_json::from_slice(&data.0).unwrap())
}

/// A replica of the operator, which dies when this is dropped.
pub struct Replica {
    pub shown: Shown,
    pub autoscalers: Arc<Watched<Naming>>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    client: Client,
    _stop: DropGuard,
}

impl Replica {
    /// One that keeps the certificates and the configuration.
    pub fn start(api: &FakeApi, life: Duration, clock: HostClock) -> Replica {
        Replica::start_with(api, life, clock, None)
    }

    /// The same, with the certificates of a Secret that another program keeps.
    pub fn start_with(
        api: &FakeApi,
        life: Duration,
        clock: HostClock,
        given: Option<&str>,
    ) -> Replica {
        let (client, shown, stop) = (api.client(), Shown::default(), CancellationToken::new());
        let keeper = CertificatesController::new(client.clone(), service(), shown.clone())
            .with_given(given.map(str::to_owned))
            .with_lives(life, clock);
        let mut tasks = JoinSet::new();
        let (stopped, of) = (stop.clone(), client.clone());
        let autoscalers: Arc<Watched<Naming>> =
            Arc::new(Watched::start(Api::all(of.clone()), every(), &stopped));
        let watched = autoscalers.clone();
        tasks.spawn(async move {
            let sets: Watched<StatefulSetVersion> = Watched::start(Api::all(of), every(), &stopped);
            keeper.run(&watched, &sets, stopped).await;
        });
        Replica { shown, autoscalers, tasks, client, _stop: stop.clone().drop_guard(), stop }
    }

    /// Serve on a port of this machine; says where.
    pub async fn serve(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, shown, stop) = (self.client.clone(), self.shown.clone(), self.stop.clone());
        self.tasks.spawn(async move { serve(listener, client, shown, stop).await.unwrap() });
        address
    }
}

/// Connect as an API server does that trusts these authorities, at this time since 1970.
///
/// # Errors
/// Why it does not trust the server.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    authorities: &str,
    now: Duration,
) -> std::io::Result<TlsStream<S>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(At(now)));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let host = ServerName::try_from(service().host()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(host, stream).await
}

#[derive(Debug)]
struct At(Duration);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0))
    }
}
