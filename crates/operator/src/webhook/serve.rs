//! The API server's way to the webhook: HTTP over TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use axum::serve::Listener;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use rustls::ServerConfig;
use rustls::crypto::ring;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::connections::{Guest, Guests};
use super::{Shown, review};

/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Timeout of an idle client, or of incomplete headers: longer than an API server holds an unused connection, so
/// that none ends during a request.
const IDLE: Duration = Duration::from_secs(120);

/// The most bytes before a question.
const LONGEST_HEAD: usize = 32 << 10;

/// Grace period for running requests when the server stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves the API server on `/pods` until `stop`, as soon as there is a certificate; `/healthz`
/// answers `ok`. Any client may connect: their total memory is bounded.
///
/// # Errors
/// The certificate is unusable.
pub async fn serve(
    mut listener: TcpListener,
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
        .with_state(Arc::new(review::Desk::new(client)));
    let (acceptor, guests, mut connections) = (acceptor(shown)?, Guests::default(), JoinSet::new());
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            (stream, address) = Listener::accept(&mut listener) => {
                let guest = guests.enter(address.ip());
                let (acceptor, routes, stop) = (acceptor.clone(), routes.clone(), stop.clone());
                connections.spawn(async move {
                    let ended = guest.ended.clone();
                    ended.run_until_cancelled(serve_connection(stream, acceptor, guest, routes, stop)).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FAREWELL, all).await;
    Ok(())
}

/// Serves one connection, until either side ends it.
async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    guest: Guest,
    routes: Router,
    stop: CancellationToken,
) {
    let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream));
    let Ok(Ok(stream)) = handshake.await else { return };
    let guest = Arc::new(guest);
    let answer = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(guest.clone());
        routes.clone().oneshot(request)
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(LONGEST_HEAD);
    let mut connection = std::pin::pin!(server.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await; // A client that was disconnected midway calls again.
        }
    }
}

fn acceptor(shown: Shown) -> io::Result<TlsAcceptor> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
