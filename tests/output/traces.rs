//! The program that sends its spans to a collector of OpenTelemetry.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::*;

/// Longer than anything takes that waits for no collector; one is waited for 30 s, and more.
const LONG: Duration = Duration::from_secs(20);

/// A collector that keeps what it is sent.
struct Collector(Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).ok();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector, to the end of the tests, and what it is sent.
fn collector() -> (SocketAddr, Receiver<ExportTraceServiceRequest>) {
    collector_as(Server::builder())
}

fn collector_as(mut server: Server) -> (SocketAddr, Receiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let service = TraceServiceServer::new(Collector(sender));
            let server = server.add_service(service);
            server.serve_with_incoming(TcpIncoming::from(listener)).await.unwrap();
        });
    });
    (address, received)
}

/// A driver that is to send its spans there, with other variables beside.
fn told_to_send(to: SocketAddr, variables: &[(&str, &str)], errors: Stdio) -> Option<Served> {
    let mut command = Command::new(cargo_bin("pliant"));
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{to}"));
    Served::start_as(command.envs(variables.iter().copied()).stderr(errors))
}

fn value(of: &[KeyValue], key: &str) -> Option<String> {
    let found = of.iter().find(|one| one.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

fn spans(of: &ExportTraceServiceRequest) -> impl Iterator<Item = &Span> {
    let scopes = of.resource_spans.iter().flat_map(|one| &one.scope_spans);
    scopes.flat_map(|one| &one.spans)
}

impl Served {
    /// Tell it to end; how long that takes, and whether it ends well.
    fn end(&mut self) -> (Duration, bool) {
        let begun = Instant::now();
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        let ended = self.child.wait().unwrap();
        (begun.elapsed(), ended.success())
    }

    /// What it answers to a caller that says in which span it calls.
    fn answers_in(&self, parent: &str) -> Code {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut request = Request::new(pb::ProbeRequest {});
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        request.metadata_mut().insert("tracestate", "theirs=1".parse().unwrap());
        runtime.block_on(async {
            let answer = IdentityClient::new(self.channel().await).probe(request).await;
            answer.map_or_else(|error| error.code(), |_| Code::Ok)
        })
    }
}

#[test]
fn a_call_is_a_span_with_its_method_request_volume_and_answer() {
    let (address, received) = collector();
    let variables =
        [("OTEL_BSP_SCHEDULE_DELAY", "10"), ("OTEL_RESOURCE_ATTRIBUTES", "k8s.node.name=alpha")];
    let Some(served) = told_to_send(address, &variables, Stdio::null()) else { return };
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    let is_made = |span: &Span| {
        let method = value(&span.attributes, "method");
        method.is_some_and(|method| method == "Controller/CreateVolume")
    };
    let (resource, span) = loop {
        let batch = received.recv_timeout(LONG).expect("a batch with the call");
        let resource = batch.resource_spans[0].resource.clone().unwrap();
        if let Some(span) = spans(&batch).find(|span| is_made(span)) {
            break (resource.attributes, span.clone());
        }
    };
    assert_eq!(span.name, "rpc");
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    assert_eq!(value(&span.attributes, "request").as_deref(), Some("2"));
    assert_eq!(value(&span.attributes, "volume").as_deref(), Some("a"));
    let answered = &span.events.last().expect("a line of the log").attributes;
    assert_eq!(value(answered, "code").as_deref(), Some("INVALID_ARGUMENT"));
    assert_eq!(value(&resource, "service.name").as_deref(), Some("pliant-standalone"));
    assert_eq!(value(&resource, "service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(value(&resource, "k8s.node.name").as_deref(), Some("alpha"));
}

#[test]
fn a_call_is_part_of_the_trace_of_its_caller_unless_that_is_malformed() {
    let (address, received) = collector();
    let Some(mut served) = told_to_send(address, &[], Stdio::null()) else { return };
    let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();
    for parent in [
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333x-01",
    ] {
        assert_eq!(served.answers_in(parent), Code::Ok);
    }
    assert!(served.end().1);
    let batches: Vec<_> = received.try_iter().collect();
    let all: Vec<&Span> = batches.iter().flat_map(spans).collect();
    let [part, own] = all[..] else { panic!("{all:?}") };
    assert_eq!(part.trace_id, trace);
    assert_eq!(part.parent_span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
    assert_eq!(part.trace_state, "theirs=1");
    assert_ne!(own.trace_id, trace);
    assert!(own.parent_span_id.is_empty() || own.parent_span_id == [0; 8], "{own:?}");
    assert_eq!(own.trace_state, "");
}

#[test]
fn a_variable_says_which_spans_are_sent() {
    let (address, received) = collector();
    let none = ("OTEL_TRACES_SAMPLER", "always_off");
    let Some(mut served) = told_to_send(address, &[none], Stdio::null()) else { return };
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    assert!(served.end().1);
    assert!(received.try_recv().is_err());
}

#[test]
fn a_collector_with_tls_has_to_be_who_its_authority_says() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(&pem, key));
    let (address, received) = collector_as(Server::builder().tls_config(tls).unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let endpoint = format!("https://localhost:{}", address.port());
    let variables = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", file.path().to_str().unwrap()),
    ];
    for (count, is_believed) in [(2, true), (1, false)] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let errors = log.reopen().unwrap().into();
        let Some(mut served) = told_to_send(address, &variables[..count], errors) else { return };
        assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
        assert!(served.end().1);
        assert_eq!(received.try_recv().is_ok(), is_believed);
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.contains("failed to export spans"), !is_believed, "{text}");
    }
}

#[test]
fn spans_of_the_last_calls_are_sent_at_the_end_and_only_our_own() {
    let (address, received) = collector();
    let rarely = ("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let Some(mut served) = told_to_send(address, &[rarely], Stdio::null()) else { return };
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    assert!(received.try_recv().is_err(), "it is sent with others, or at the end");
    let (took, is_well) = served.end();
    assert!(is_well && took < LONG, "{took:?}");
    let all: Vec<String> = received
        .try_iter()
        .flat_map(|batch| spans(&batch).cloned().collect::<Vec<_>>())
        .map(|span| {
            format!("{} {}", span.name, value(&span.attributes, "method").unwrap_or_default())
        })
        .collect();
    assert_eq!(all, ["rpc Identity/Probe", "rpc Controller/CreateVolume"]);
}

#[test]
fn a_collector_that_never_answers_delays_no_answer_and_not_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap(); // The kernel accepts for it.
    let variables = [
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "2"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"),
    ];
    let to = silent.local_addr().unwrap();
    let Some(mut served) = told_to_send(to, &variables, Stdio::null()) else { return };
    let begun = Instant::now();
    for _ in 0..50 {
        assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    }
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    let (took, is_well) = served.end();
    assert!(is_well && took < LONG, "{took:?}");
}

#[test]
fn a_collector_that_is_away_costs_one_line() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let variables = [
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "50"),
        ("PLIANT_LOG_LEVEL", "trace"),
    ];
    let (to, (reader, writer)) = (silent.local_addr().unwrap(), std::io::pipe().unwrap());
    let Some(mut served) = told_to_send(to, &variables, writer.into()) else { return };
    let is_told = |line: &String| line.contains("failed to export spans");
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    // Each of these is in a batch that is lost after the one before.
    for _ in 0..3 {
        assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    }
    lines.find(is_told).expect("a line that says so");
    for _ in 0..3 {
        assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    }
    assert!(served.end().1);
    let more: Vec<String> = lines.filter(is_told).collect();
    assert!(more.is_empty(), "{more:?}");
}

#[test]
fn a_variable_that_is_wrong_costs_a_warning_and_no_answer() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let (address, received) = collector();
    let other = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let errors = log.reopen().unwrap().into();
    let Some(mut served) = told_to_send(address, &[other], errors) else { return };
    assert_eq!(served.answers(), (Code::Ok, Code::InvalidArgument));
    assert!(served.end().1);
    let text = std::fs::read_to_string(log.path()).unwrap();
    let told = text.lines().filter(|line| line.contains("sending no spans")).count();
    assert!(told == 1 && text.contains("OTEL_EXPORTER_OTLP_PROTOCOL is `http/protobuf`"), "{text}");
    assert!(received.try_recv().is_err());
}
