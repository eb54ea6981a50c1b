//! Archives are fetched by https from a server whose authority the chart names, and by a proxy that it names; by pods
//! whose image comes from a registry that wants a password. No other test may run: the chart is upgraded for it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use pliant::api::ArchivePopulator;
use pliant::certificates::{Authority, CertificateUsage, Validity};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::calls::install;
use crate::populators::tar;
use crate::registry;
use crate::upgrade::roll_back;
use crate::world::{World, run};

/// Where pods reach the network in which this runs; the API server is there too.
pub const HERE: &str = "192.168.77.1";

/// A name that the proxy alone knows.
const HIDDEN: &str = "files.invalid";

/// Serves an archive by https, as this host, for as long as the test runs; its port.
fn serve(authority: &Authority, host: &str, archive: &[u8]) -> u16 {
    let (certificate, key) = authority.sign(host, "server", CertificateUsage::Server).unwrap();
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(chain.collect(), key).unwrap());
    let length = archive.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let answer = [head.as_bytes(), archive].concat();
    listen(0, move |stream| {
        let connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, stream);
        head_of(&mut stream)?;
        stream.write_all(&answer)?;
        stream.conn.send_close_notify();
        stream.flush()
    })
}

/// A proxy behind which all that is asked for is at this port; its own, and what it was asked for.
fn proxy(to: u16) -> (u16, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = asked.clone();
    let port = listen(0, move |mut stream| {
        let head = head_of(&mut stream)?;
        notes.lock().unwrap().push(head.lines().next().unwrap_or_default().to_owned());
        let target = TcpStream::connect((HERE, to))?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let carry = |mut from: &TcpStream, mut to: &TcpStream| {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        };
        thread::scope(|scope| {
            scope.spawn(|| carry(&stream, &target));
            carry(&target, &stream);
        });
        Ok(())
    });
    (port, asked)
}

/// Serve on a port, or on any one for 0; which one that is.
pub fn listen(
    port: u16,
    answer: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> u16 {
    let listener = TcpListener::bind((HERE, port)).expect("run by e2e/cluster/with");
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // Who does not believe a certificate leaves.
            thread::spawn(move || answer(stream));
        }
    });
    port
}

/// Read the head of a request.
pub fn head_of(stream: &mut impl Read) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    String::from_utf8(head).map_err(io::Error::other)
}

impl World {
    async fn fetched_archive(&self, name: &str, url: &str, archive: &[u8]) {
        let populator = json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "ArchivePopulator",
            "metadata": {"name": name},
            "spec": {"url": url, "sha256": format!("{:x}", Sha256::digest(archive))},
        });
        let populator: ArchivePopulator = serde_json::from_value(populator).unwrap();
        self.api::<ArchivePopulator>().create(&PostParams::default(), &populator).await.unwrap();
    }
}

impl World {
    /// Have the pods of a namespace be able to pull from the registry.
    async fn allow_pulls(&self, namespace: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": registry::credentials()},
        });
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let params = PatchParams::apply("pliant-test");
        secrets.patch("registry", &params, &Patch::Apply(secret)).await.unwrap();
    }
}

#[test]
fn an_archive_is_fetched_from_a_server_of_the_authority_that_the_chart_names() {
    run("fetches", |world| async move {
        let archive = tar("hello", b"kept\n");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let tomorrow = now + Duration::from_secs(86_400);
        let lasting = Validity { begins: Duration::ZERO, expires: tomorrow };
        let authority = Authority::make("of the test", lasting).unwrap();
        let direct = serve(&authority, HERE, &archive);
        let (by, asked) = proxy(serve(&authority, HIDDEN, &archive));
        let class = world.class_that_binds_at_once(json!({"pool": "fast"})).await;

        let url = format!("https://{HERE}:{direct}/a.tar");
        world.fetched_archive("direct", &url, &archive).await;
        world.claim_from("refused", &class, "64Mi", "ArchivePopulator", "direct").await;
        world.until_told("refused", "PopulatorRetrying", 1).await;
        let told = world.events("refused").await;
        let said = told.iter().find(|(reason, _)| reason == "PopulatorRetrying").unwrap();
        assert!(said.1.contains("in the chart value populator.caBundle"), "{said:?}");
        // The image knows the authorities of the public Internet, of which ours is none.
        assert!(!said.1.contains("no certificate authority is configured"), "{said:?}");
        let claims = world.api::<PersistentVolumeClaim>();
        claims.delete("refused", &DeleteParams::default()).await.unwrap();

        let bundle = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(bundle.path(), authority.pem()).unwrap();
        let bundle = format!("populator.caBundle={}", bundle.path().display());
        let proxy = format!("populator.proxy.httpsProxy=http://{HERE}:{by}");
        let direct = format!("populator.proxy.noProxy={HERE}/32");
        let labels = "populator.labels.team=storage";
        registry::serve();
        world.allow_pulls("pliant-system").await;
        let image = format!("image.repository={}", registry::image());
        let values = [&proxy, &direct, labels, &image, "imagePullSecrets[0].name=registry"];
        let values = values.into_iter().flat_map(|value| ["--set", value]);
        install(&["--set-file", &bundle].into_iter().chain(values).collect::<Vec<_>>()).await;
        world.allow_pulls(&world.name).await;
        // The nodes have the image by then. Their kubelets (KEP-2535) let no pod have it who may not pull it.
        let other = world.beside("other").await;
        other.fetched_archive("direct", &url, &archive).await;
        other.claim_from("waits", &class, "64Mi", "ArchivePopulator", "direct").await;
        world.fetched_archive("hidden", &format!("https://{HIDDEN}/b.tar"), &archive).await;
        for source in ["direct", "hidden"] {
            world.claim_from(source, &class, "64Mi", "ArchivePopulator", source).await;
            world.filled(source).await;
            world.pod(&format!("app-{source}"), source, "sleep 9999", json!({})).await;
            let read = world.exec(&format!("app-{source}"), "cat /data/hello").await;
            assert_eq!(read, "kept", "{source}");
        }
        other.until_told("waits", "PopulatorPodPending", 1).await;
        let told = other.events("waits").await;
        let said = told.iter().find(|(reason, _)| reason == "PopulatorPodPending").unwrap();
        assert!(said.1.contains("Image") && said.1.contains("kubectl get secret -n"), "{said:?}");
        let claims = other.api::<PersistentVolumeClaim>();
        claims.delete("waits", &DeleteParams::default()).await.unwrap();
        assert_eq!(*asked.lock().unwrap(), [format!("CONNECT {HIDDEN}:443 HTTP/1.1")]);
        roll_back().await;
    });
}
