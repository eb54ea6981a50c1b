//! From a request to its answer, and what a test lets go wrong on the way.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Method, Response, StatusCode, header};
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::Value;
use tower::BoxError;

use crate::Lost;
use crate::call::{APPLY, Call};
use crate::refusal::Refusal;
use crate::store::Store;
use crate::watch::Lines;

/// The server behind all clients.
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub store: Store,
    /// How many requests came, also in an outage.
    pub calls: usize,
    /// The changing requests that were not lost before they came.
    pub writes: Vec<String>,
    pub outage: Option<Outage>,
    pub fault: Option<(usize, Lost)>,
    /// The kinds that a user may not even read, by their plurals.
    pub forbidden: BTreeMap<String, Vec<String>>,
    /// Whether what is applied is found invalid.
    pub refuses_applies: bool,
    /// How long each request for a namespace takes.
    pub slow: BTreeMap<String, Duration>,
    /// Whose callers end in a panic: a part of the lines of their calls.
    pub panics: Option<String>,
    /// What containers said, by `namespace/pod/container`.
    pub logs: BTreeMap<String, String>,
    /// Who looks at new objects of a kind before they are kept.
    pub guards: Vec<(String, Guard)>,
    /// As whom requests were to be answered, in other names than their callers': a user and groups.
    pub acted_as: Vec<(String, Vec<String>)>,
    /// The dry runs that came, as the log of the changing requests has them.
    pub rehearsals: Vec<String>,
}

/// Says why a new object is refused, if it is; what is there of its kind in its namespace stands beside it.
pub(crate) struct Guard(pub Box<Judge>);

/// What a [`Guard`] calls.
pub(crate) type Judge = dyn Fn(&Value, &[Value]) -> Option<String> + Send;

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// How the server is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outage {
    /// No connection comes about.
    Unreachable,
    /// Every request gets this code.
    Refusing(u16),
}

enum Answer {
    Object(StatusCode, String),
    Events(Lines),
    Log(String),
}

impl Server {
    /// Answer a request; an error is a connection that broke.
    pub fn answer(&mut self, call: &Call) -> Result<Response<Body>, BoxError> {
        self.calls += 1;
        match self.outage {
            Some(Outage::Unreachable) => return Err(broken(io::ErrorKind::ConnectionRefused)),
            Some(Outage::Refusing(code)) => return Ok(self.say(Err(Refusal::outage(code)))),
            None => {}
        }
        let forbidden = self.forbidden.get(call.user());
        if forbidden.is_some_and(|all| all.contains(&call.resource.plural)) {
            return Ok(self.say(Err(call.forbidden())));
        }
        if !call.changes_something() {
            let read = self.read(call);
            return Ok(self.say(read));
        }
        if !call.param("dryRun").is_empty() {
            self.rehearsals.push(call.line());
            return Ok(response(self.rehearse(call)));
        }
        self.writes.push(call.line());
        let number = self.writes.len();
        let lost = self.fault.take_if(|(n, _)| *n == number).map(|(_, lost)| lost);
        if lost == Some(Lost::Request) {
            return Err(broken(io::ErrorKind::ConnectionReset));
        }
        let answer = self.write(call);
        if lost == Some(Lost::Answer) {
            return Err(broken(io::ErrorKind::ConnectionReset));
        }
        Ok(self.say(answer))
    }

    /// Say which server it is, to whoever asks.
    pub fn say_version(&mut self) -> Result<Response<Body>, BoxError> {
        self.calls += 1;
        match self.outage {
            Some(Outage::Unreachable) => Err(broken(io::ErrorKind::ConnectionRefused)),
            Some(Outage::Refusing(code)) => Ok(self.say(Err(Refusal::outage(code)))),
            None => {
                let version =
                    serde_json::json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"});
                Ok(self.say(Ok(Answer::Object(StatusCode::OK, version.to_string()))))
            }
        }
    }

    /// An answer, with the hour as the server has it.
    fn say(&self, answer: Result<Answer, Refusal>) -> Response<Body> {
        let mut response = response(answer);
        let hour = self.store.hour();
        let date =
            DateTimePrinter::new().timestamp_to_rfc9110_string(&hour).expect("a year of ours");
        let date = HeaderValue::from_str(&date).expect("plain letters");
        response.headers_mut().insert(header::DATE, date);
        response
    }

    fn read(&mut self, call: &Call) -> Result<Answer, Refusal> {
        if call.is_set("watch") {
            return self.store.watch(call).map(Answer::Events);
        }
        if call.log {
            let container = call.param("container");
            let place = format!("{}/{}/{container}", call.namespace, call.name);
            let said = self.logs.get(&place).cloned();
            let none = || Refusal::bad_request(format!("container {container} has not started"));
            return said.map(Answer::Log).ok_or_else(none);
        }
        let read = if call.name.is_empty() { Store::list } else { Store::get };
        read(&self.store, call).map(|object| Answer::Object(StatusCode::OK, object))
    }

    fn write(&mut self, call: &Call) -> Result<Answer, Refusal> {
        self.admit(call)?;
        if self.refuses_applies && call.content_type == APPLY {
            return Err(Refusal::invalid(&call.resource, &call.name, "it is refused by the test"));
        }
        let store = &mut self.store;
        let is_collection = call.name.is_empty();
        let is_somewhere = call.resource.namespaced != call.namespace.is_empty();
        if (&call.method, is_collection) == (&Method::DELETE, true) {
            return store.delete_all(call).map(|list| Answer::Object(StatusCode::OK, list));
        }
        let (is_new, object) = match (&call.method, is_collection, call.status) {
            (&Method::POST, true, _) if is_somewhere => (true, store.create(call)?),
            (&Method::POST, false, _) if call.eviction => (true, store.evict(call)?),
            (&Method::PUT, false, _) => (false, store.replace(call)?),
            (&Method::PATCH, false, _) if call.content_type == APPLY => store.apply(call)?,
            (&Method::PATCH, false, _) => (false, store.patch(call)?),
            (&Method::DELETE, false, false) => (false, store.delete(call)?),
            _ => panic!("FakeApi does not serve {}", call.line()),
        };
        let code = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        Ok(Answer::Object(code, object.to_string()))
    }
}

impl Server {
    /// Make an object as far as that keeps nothing: who guards its kind is asked.
    fn rehearse(&mut self, call: &Call) -> Result<Answer, Refusal> {
        let is_made = call.method == Method::POST && call.name.is_empty();
        if !is_made || call.param("dryRun") != "All" {
            return Err(Refusal::bad_request("only the dry run of a creation is modelled"));
        }
        self.admit(call)?;
        self.store
            .rehearse(call)
            .map(|object| Answer::Object(StatusCode::CREATED, object.to_string()))
    }

    /// Ask those who guard the kind of a new object.
    fn admit(&self, call: &Call) -> Result<(), Refusal> {
        if call.method != Method::POST || !call.name.is_empty() {
            return Ok(());
        }
        let guards = self.guards.iter().filter(|(plural, _)| *plural == call.resource.plural);
        let mut guards = guards.peekable();
        if guards.peek().is_none() {
            return Ok(());
        }
        let object = call.body()?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let there = self.store.all_of(&call.resource, &call.namespace);
        match guards.find_map(|(_, guard)| (guard.0)(&object, &there)) {
            Some(why) => Err(Refusal::not_admitted(&call.resource, name, &why)),
            None => Ok(()),
        }
    }
}

fn broken(kind: io::ErrorKind) -> BoxError {
    io::Error::from(kind).into()
}

fn response(answer: Result<Answer, Refusal>) -> Response<Body> {
    let (code, body) = match answer {
        Ok(Answer::Object(code, object)) => (code, Body::from(object)),
        Ok(Answer::Log(text)) => (StatusCode::OK, Body::from(text)),
        Ok(Answer::Events(lines)) => (StatusCode::OK, Body::from_stream(lines)),
        Err(refusal) => {
            let code = StatusCode::from_u16(refusal.code).expect("a code of HTTP");
            (code, Body::from(refusal.status().to_string()))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}
