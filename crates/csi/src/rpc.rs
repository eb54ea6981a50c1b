//! Middleware of every call: a number, a span, one line in the log, one observation, and a reply
//! even if the handler panics.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tonic::body::Body;
use tonic::codegen::http;
use tonic::{Code, Request, Status};
use tower::{Layer, Service};
use tracing::Instrument;

use crate::panics::caught;
use crate::{pb, status};

/// Longest name or id in a log line, in characters.
const LONGEST_NAME: usize = 128;

/// Observes the end of every call.
pub trait RpcObserver: Send + Sync + 'static {
    /// Records one call.
    ///
    /// `method` is `Service/Method`, or `unserved` where the driver does not have it, so that a
    /// caller cannot make up new ones; `code` is the name of the gRPC code, e.g. `NOT_FOUND`.
    fn observe(&self, method: &str, code: &'static str, took: Duration);
}

/// Opens a request: note the volume that it is about for the call's log line, take the message.
pub(super) fn open<T: AboutVolume>(request: Request<T>) -> T {
    let message = request.into_inner();
    let volume: String = message.volume().chars().take(LONGEST_NAME).collect();
    tracing::Span::current().record("volume", volume.as_str());
    message
}

/// A message that names a volume. Of all its fields only the name or id is ever logged.
pub(super) trait AboutVolume {
    /// The volume's id, or the name of one to be made.
    fn volume(&self) -> &str;
}

macro_rules! about_volume {
    ($($message:ident: $field:ident),* $(,)?) => {
        $(impl AboutVolume for pb::$message {
            fn volume(&self) -> &str {
                &self.$field
            }
        })*
    };
}

about_volume! {
    CreateVolumeRequest: name,
    DeleteVolumeRequest: volume_id,
    ValidateVolumeCapabilitiesRequest: volume_id,
    ControllerGetVolumeRequest: volume_id,
    ControllerGetVolumeHealthRequest: volume_id,
    ControllerExpandVolumeRequest: volume_id,
    CreateSnapshotRequest: source_volume_id,
    DeleteSnapshotRequest: snapshot_id,
    GetSnapshotRequest: snapshot_id,
    NodeStageVolumeRequest: volume_id,
    NodeUnstageVolumeRequest: volume_id,
    NodePublishVolumeRequest: volume_id,
    NodeUnpublishVolumeRequest: volume_id,
    NodeGetVolumeStatsRequest: volume_id,
    NodeGetVolumeHealthRequest: volume_id,
    NodeExpandVolumeRequest: volume_id,
}

/// Puts an [`RpcService`] round the services.
#[derive(Clone)]
pub(super) struct RpcLayer {
    observer: Arc<dyn RpcObserver>,
    calls: Arc<AtomicU64>,
}

impl RpcLayer {
    pub(super) fn new(observer: Arc<dyn RpcObserver>) -> Self {
        RpcLayer { observer, calls: Arc::default() }
    }
}

impl<S> Layer<S> for RpcLayer {
    type Service = RpcService<S>;

    fn layer(&self, inner: S) -> RpcService<S> {
        RpcService { inner, layer: self.clone() }
    }
}

/// Numbers, times, logs and catches each call.
#[derive(Clone)]
pub(super) struct RpcService<S> {
    inner: S,
    layer: RpcLayer,
}

impl<S> Service<http::Request<Body>> for RpcService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call = Call::begin(&self.layer, &request);
        let span = call.span.clone();
        let reply = span.in_scope(|| self.inner.call(request));
        let answered = async move {
            let reply = caught("calls", reply).await.unwrap_or_else(|panicked| {
                tracing::error!(%panicked, "the handler panicked");
                Ok(status::fault().into_http())
            });
            let reply = reply.map(|reply| {
                if is_unserved(&reply) { status::unserved(&call.method).into_http() } else { reply }
            });
            match &reply {
                Ok(reply) => call.end(code_of(reply), message_of(reply)),
                Err(_) => call.end(Code::Internal, String::new()),
            }
            reply
        };
        Box::pin(answered.instrument(span))
    }
}

/// One call under way. It is over when this is dropped: also if the caller leaves before the reply.
struct Call {
    method: String,
    begun: Instant,
    code: Code,
    error: String,
    span: tracing::Span,
    observer: Arc<dyn RpcObserver>,
}

impl Call {
    fn begin(layer: &RpcLayer, asked: &http::Request<Body>) -> Self {
        let path = asked.uri().path().trim_start_matches('/');
        let method: String = path.chars().take(LONGEST_NAME).collect();
        let method = method.trim_start_matches("csi.v1.").to_owned();
        let request = layer.calls.fetch_add(1, Ordering::Relaxed) + 1;
        #[cfg(feature = "otlp")]
        let _part_of = crate::parent::of(asked.headers()).attach();
        // At the highest level, so that no filter separates a line from its call.
        let span = tracing::error_span!("rpc", method, request, volume = tracing::field::Empty);
        Call {
            method,
            begun: Instant::now(),
            code: Code::Cancelled,
            error: "the caller cancelled the call".to_owned(),
            span,
            observer: layer.observer.clone(),
        }
    }

    fn end(mut self, code: Code, error: String) {
        self.code = code;
        self.error = error;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        let code = status::name(self.code);
        let ms = (took.as_secs_f64() * 1e4).round() / 10.0;
        let error = self.error.as_str();
        let _in = self.span.enter();
        match self.code {
            // Asked every few seconds for ever.
            Code::Ok if self.method == "Identity/Probe" => tracing::debug!(code, ms, "answered"),
            Code::Ok => tracing::info!(code, ms, "answered"),
            Code::Internal | Code::Unknown => tracing::error!(code, ms, error, "answered"),
            _ => tracing::warn!(code, ms, error, "answered"),
        }
        let served = self.code != Code::Unimplemented;
        let method = if served { self.method.as_str() } else { "unserved" };
        self.observer.observe(method, code, took);
    }
}

/// The code of a reply. One without the header is a message, whose trailers say OK.
fn code_of(reply: &http::Response<Body>) -> Code {
    let header = reply.headers().get("grpc-status");
    header.map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()))
}

/// The error that the caller got; empty without one.
fn message_of(reply: &http::Response<Body>) -> String {
    let status = Status::from_header_map(reply.headers());
    status.map_or_else(String::new, |status| status.message().to_owned())
}

/// Returns whether a method was asked for that no one serves: the words are those of the generated stubs,
/// and none for a method of another protocol.
fn is_unserved(reply: &http::Response<Body>) -> bool {
    let unimplemented = code_of(reply) == Code::Unimplemented;
    unimplemented && matches!(message_of(reply).as_str(), "" | "Not yet implemented")
}
