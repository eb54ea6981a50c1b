//! The way to a collector, by OTLP over gRPC.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{SpanExporter, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter as Export};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;

use super::handle::{Spans, Traces};
use super::variables::{ENDPOINTS, Variable, first};

/// How long a collector may take for what it is sent, with all that comes before; the library bounds the call, and
/// neither the connection nor the keys of TLS.
const LONGEST_EXPORT: Duration = Duration::from_secs(30);

/// How long the end of a role waits for the collector. With all else at the end it stays below the usual 60 s until
/// SIGKILL.
const FAREWELL: Duration = Duration::from_secs(3);

/// Say how a collector is spoken to; the first wins.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

/// Name a file with the authority of its certificate; the first wins.
const CERTIFICATES: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];

/// Who sends the spans.
fn resource(role: &str, variable: Variable) -> Resource {
    let ours = [
        KeyValue::new("service.name", format!("pliant-{role}")),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    // What comes later wins.
    let resource = Resource::builder_empty().with_attributes(ours).with_detectors(&[
        Box::new(TelemetryResourceDetector),
        Box::new(EnvResourceDetector::new()),
    ]);
    match variable("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}

/// Which authorities are believed: the one that is given, or else those of the system. `None` without TLS.
///
/// # Errors
/// Why the one that is given cannot be read.
fn authorities(variable: Variable) -> Result<Option<ClientTlsConfig>, String> {
    let is_plain = |(_, endpoint): (_, String)| endpoint.starts_with("http:");
    if first(ENDPOINTS, variable).is_none_or(is_plain) {
        return Ok(None);
    }
    let tls = ClientTlsConfig::new();
    let Some((name, file)) = first(CERTIFICATES, variable) else {
        return Ok(Some(tls.with_enabled_roots()));
    };
    let pem = std::fs::read(&file).map_err(|error| format!("{name} is `{file}`: {error}"))?;
    Ok(Some(tls.ca_certificate(Certificate::from_pem(pem))))
}

/// The way to the collector that the variables name.
///
/// # Errors
/// What is wrong with the variables.
fn way(variable: Variable) -> Result<SpanExporter, String> {
    match first(PROTOCOLS, variable) {
        Some((name, other)) if other != "grpc" => {
            let said =
                format!("{name} is `{other}`, but only `grpc` is supported, usually on port 4317");
            return Err(said);
        }
        _ => {}
    }
    let way = SpanExporter::builder().with_tonic();
    let way = match authorities(variable)? {
        Some(tls) => way.with_tls_config(tls),
        None => way,
    };
    way.build().map_err(|error| error.to_string())
}

/// Sends the spans of a role to the collector that the variables name, a batch at a time.
///
/// # Errors
/// What is wrong with the variables.
pub fn sent(role: &str, variable: Variable) -> Result<(Spans, Traces), String> {
    let (inner, resource) = (way(variable)?, resource(role, variable));
    let runtime = Handle::current();
    let exporter = Exporter { inner: Arc::new(inner), runtime, is_away: AtomicBool::new(false) };
    // A queue that is bounded, and a thread that empties it.
    let provider =
        SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    // The libraries have spans too: those of the way to the collector would never end.
    let ours = Targets::new().with_target("pliant", LevelFilter::INFO);
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("pliant"))
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false);
    let spans = PanicSafeLayer(layer).with_filter(ours);
    let end = move || {
        // What did not arrive was reported when it did not.
        let _ = provider.shutdown_with_timeout(FAREWELL);
    };
    Ok((spans.boxed(), Traces { end: Some(Box::new(end)) }))
}

/// Sends in the runtime, for so long and no longer, and says in the log when a collector goes away and comes back.
#[derive(Debug)]
struct Exporter<E> {
    inner: Arc<E>,
    runtime: Handle,
    is_away: AtomicBool,
}

impl<E: Export + 'static> Export for Exporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let inner = self.inner.clone();
        let work = async move { timeout(LONGEST_EXPORT, inner.export(batch)).await };
        let sent = match self.runtime.spawn(work).await {
            Ok(Ok(sent)) => sent,
            Ok(Err(_)) => Err(OTelSdkError::Timeout(LONGEST_EXPORT)),
            Err(ended) => Err(OTelSdkError::InternalFailure(ended.to_string())),
        };
        let was_away = self.is_away.swap(sent.is_err(), Ordering::Relaxed);
        match &sent {
            Err(error) if !was_away => {
                tracing::warn!(%error, "failed to export spans to the OpenTelemetry collector; \
                                        dropping them");
            }
            Ok(()) if was_away => {
                tracing::info!("the OpenTelemetry collector accepts spans again");
            }
            _ => {}
        }
        sent
    }

    fn set_resource(&mut self, resource: &Resource) {
        // Before the first batch no one else has it.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.set_resource(resource);
        }
    }
}

/// A layer that a panic of what is formatted does not leave, as in the log, which counts it.
struct PanicSafeLayer<L>(L);

impl<S: Subscriber, L: Layer<S>> Layer<S> for PanicSafeLayer<L> {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        guard(|| self.0.on_record(id, values, context));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        guard(|| self.0.on_event(event, context));
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.0.on_enter(id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.0.on_exit(id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.0.on_close(id, context);
    }
}

fn guard(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::future::pending;

    use opentelemetry::Key;
    use tokio::time::Instant;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::registry;

    use super::*;

    struct LayerPanics;

    impl fmt::Debug for LayerPanics {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("the formatter")
        }
    }

    #[test]
    fn what_cannot_be_formatted_ends_no_work() {
        let provider = SdkTracerProvider::default();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let mut is_done = false;
        tracing::subscriber::with_default(registry().with(PanicSafeLayer(layer)), || {
            let span = tracing::info_span!("call", volume = tracing::field::Empty);
            let _entered = span.enter();
            tracing::info!(what = ?LayerPanics, "a line");
            span.record("volume", tracing::field::debug(LayerPanics));
            tracing::info!("another one");
            is_done = true;
        });
        assert!(is_done);
    }

    /// A collector that accepts a connection and then says nothing.
    #[derive(Debug)]
    struct Silent;

    impl Export for Silent {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_collector_that_says_nothing_holds_no_batch_for_longer() {
        let exporter = Exporter {
            inner: Arc::new(Silent),
            runtime: Handle::current(),
            is_away: AtomicBool::new(false),
        };
        let before = Instant::now();
        let sent = exporter.export(Vec::new()).await;
        assert!(matches!(sent, Err(OTelSdkError::Timeout(LONGEST_EXPORT))), "{sent:?}");
        assert_eq!(before.elapsed().as_secs(), LONGEST_EXPORT.as_secs());
        assert!(exporter.is_away.load(Ordering::Relaxed));
    }

    #[test]
    fn a_role_is_a_service_unless_a_variable_names_another() {
        let of = |resource: &Resource, key| resource.get(&Key::new(key)).unwrap().to_string();
        let plain = resource("node", &|_| None);
        assert_eq!(of(&plain, "service.name"), "pliant-node");
        assert_eq!(of(&plain, "service.version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(of(&plain, "telemetry.sdk.language"), "rust");
        let name = |name: &str| (name == "OTEL_SERVICE_NAME").then(|| "disks".to_owned());
        assert_eq!(of(&resource("node", &name), "service.name"), "disks");
    }
}
