//! An API server in memory, behind a real `kube::Client`.
//!
//! It knows no kinds, only what is served: those of the CustomResourceDefinitions that it is made with, and some of
//! Kubernetes ([`Kinds`]). What it does with JSON objects is what a real server does; a path that it does
//! not serve is a panic that names it.
//!
//! What bites in a cluster is switched on by the test: a history that is forgotten
//! ([`FakeApi::compact`]), watches that end ([`FakeApi::cut_watches`]), events that come late or twice
//! ([`FakeApi::hold_events`], [`FakeApi::duplicate_events`]), a server that is away
//! ([`FakeApi::go_down`]), a request whose answer is lost ([`FakeApi::fail_at`]), and a clock that is not that of
//! its clients ([`FakeApi::set_ahead`]).

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch::Sender;

mod apply;
mod call;
mod history;
mod lost;
mod objects;
mod refusal;
mod resources;
mod rules;
mod selector;
mod server;
mod store;
mod switches;
mod watch;
mod watches;
mod write;

use call::Call;
use resources::Resource;
use server::Server;

pub use lost::Lost;
pub use resources::Kinds;

/// A handle to an API server in memory; clones are handles to the same server.
#[derive(Clone)]
pub struct FakeApi {
    server: Arc<Mutex<Server>>,
    resources: Arc<[Arc<Resource>]>,
    moved: Sender<u64>,
}

impl std::fmt::Debug for FakeApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeApi").finish_non_exhaustive()
    }
}

/// The user and the groups as which a caller wants to be answered.
fn acted_as(headers: &HeaderMap) -> Option<(String, Vec<String>)> {
    let said = |name: &str| {
        let values = headers.get_all(name).iter();
        values.filter_map(|value| Some(value.to_str().ok()?.to_owned())).collect::<Vec<_>>()
    };
    Some((said("impersonate-user").pop()?, said("impersonate-group")))
}

impl FakeApi {
    /// Make a server of these kinds, without objects.
    pub fn new(kinds: &Kinds) -> Self {
        FakeApi { server: Arc::default(), resources: kinds.0.clone(), moved: Sender::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Do something with the server, and let those look who wait for it.
    fn act<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        let result = act(&mut self.lock());
        self.moved.send_modify(|moves| *moves += 1);
        result
    }

    /// Make a client without a name; it needs a runtime.
    pub fn client(&self) -> Client {
        self.client_of("")
    }

    /// Make a client with this user agent, which the log of [`FakeApi::writes`] names.
    pub fn client_of(&self, user_agent: &str) -> Client {
        let (api, agent) = (self.clone(), HeaderValue::from_str(user_agent).expect("a plain name"));
        let service = tower::service_fn(move |mut request: Request<kube::client::Body>| {
            let (api, agent) = (api.clone(), agent.clone());
            async move {
                request.headers_mut().entry(header::USER_AGENT).or_insert(agent);
                api.answer(request).await
            }
        });
        Client::new(service, "default")
    }

    async fn answer(
        &self,
        request: Request<kube::client::Body>,
    ) -> Result<Response<axum::body::Body>, tower::BoxError> {
        if request.uri().path() == "/version" {
            tokio::task::yield_now().await;
            return self.act(Server::say_version);
        }
        if let Some(whom) = acted_as(request.headers()) {
            self.lock().acted_as.push(whom);
        }
        let call = Call::read(&self.resources, request).await;
        tokio::task::yield_now().await; // Others go first, as over a real connection.
        let panics = self.lock().panics.clone();
        if let Some(part) = panics.filter(|part| call.line().contains(part)) {
            panic!("a call of {part}");
        }
        let slow = self.lock().slow.get(&call.namespace).copied();
        if let Some(slow) = slow {
            tokio::time::sleep(slow).await;
        }
        self.act(|server| server.answer(&call))
    }

    /// Serve on a port of this machine, for clients in other processes, until the runtime ends; says
    /// where.
    ///
    /// # Errors
    /// What the system says of the port.
    pub async fn serve(&self) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, api) = (listener.local_addr()?, self.clone());
        let answer = move |request: Request<axum::body::Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(|_| StatusCode::BAD_REQUEST)?.to_bytes();
                let request = Request::from_parts(parts, kube::client::Body::from(body));
                api.answer(request).await.map_err(|_| StatusCode::BAD_GATEWAY)
            }
        };
        let app = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(address)
    }
}
