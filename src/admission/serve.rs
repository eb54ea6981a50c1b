//! The API server's way to the webhook: HTTP over TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::serve::Listener;
use kube::Client;
use rustls::ServerConfig;
use rustls::crypto::ring;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::{Shown, review};

/// How long a client has to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How many may do so at the same time; others wait.
const MOST_HANDSHAKES: usize = 256;

/// The longest question in bytes. The API server takes no objects of more than 3 MiB.
const LONGEST_REVIEW: usize = 4 << 20;

/// Answer the API server on `/pods` until `stop`, from the moment on at which there is a certificate;
/// `/healthz` says `ok`.
///
/// # Errors
/// What the listener says when it can no longer accept.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    shown: Shown,
    stop: CancellationToken,
) -> io::Result<()> {
    if stop.run_until_cancelled(shown.first()).await.is_none() {
        return Ok(());
    }
    let routes = Router::new()
        .route("/pods", post(review::pods))
        .route("/healthz", get(async || "ok\n"))
        .layer(DefaultBodyLimit::max(LONGEST_REVIEW))
        .with_state(client);
    let listener = Tls { listener, acceptor: acceptor(shown)?, handshakes: JoinSet::new() };
    axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn acceptor(shown: Shown) -> io::Result<TlsAcceptor> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections on which keys have been agreed on; who is slow in that keeps nobody waiting.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let has_room = self.handshakes.len() < MOST_HANDSHAKES;
            tokio::select! {
                (stream, address) = Listener::accept(&mut self.listener), if has_room => {
                    let handshake = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream));
                    self.handshakes.spawn(async move { Some((handshake.await.ok()?.ok()?, address)) });
                }
                agreed = self.handshakes.join_next(), if !self.handshakes.is_empty() => {
                    if let Some(Ok(Some(connection))) = agreed {
                        return connection;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
