//! `/metrics` and `/healthz` on an address of choice.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{FigureSource, Metrics};

/// With this type Prometheus reads it as OpenMetrics, where help and types of counters are right.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type SharedMetrics = (Metrics, Arc<dyn FigureSource>);

/// Serves until `stop`; `/healthz` returns `ok` as long as the process can respond at all.
///
/// # Errors
/// An error of the listener when it can no longer accept connections.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    source: Arc<dyn FigureSource>,
    stop: CancellationToken,
) -> io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(answer))
        .route("/healthz", get(async || "ok\n"))
        .with_state((metrics, source));
    axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn answer(State((metrics, source)): State<SharedMetrics>) -> Response {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match metrics.text(&source.figures().await, now) {
        Ok(text) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
