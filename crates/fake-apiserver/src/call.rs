//! What a client asks, read from its request.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use crate::apply::Manager;
use crate::history::Key;
use crate::refusal::Refusal;
use crate::resources::Resource;
use crate::selector::Selector;

/// The content type of a server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A request for objects of one kind.
#[derive(Debug)]
pub(crate) struct Call {
    pub method: Method,
    pub resource: Arc<Resource>,
    /// Empty for all namespaces, and for kinds without.
    pub namespace: String,
    /// Empty for the collection.
    pub name: String,
    /// Whether it is about the subresource `status`.
    pub status: bool,
    /// Whether it is about the subresource `log`.
    pub log: bool,
    /// Whether it is about the subresource `eviction`.
    pub eviction: bool,
    query: BTreeMap<String, String>,
    pub content_type: String,
    user_agent: String,
    body: Vec<u8>,
}

impl Call {
    /// Read a request.
    ///
    /// # Panics
    /// If the path is none that the server has: a test must not go on with a kind that it forgot.
    pub async fn read(resources: &[Arc<Resource>], request: Request<Body>) -> Call {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let place = place(resources, path)
            .unwrap_or_else(|| panic!("FakeApi does not serve {} {path}", parts.method));
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        Call {
            method: parts.method.clone(),
            query: form_urlencoded::parse(query).into_owned().collect(),
            content_type: text(header::CONTENT_TYPE).unwrap_or_default().to_owned(),
            user_agent: text(header::USER_AGENT).unwrap_or_default().to_owned(),
            body: body.collect().await.expect("a body in memory").to_bytes().to_vec(),
            ..place
        }
    }

    /// A parameter of the query; empty where there is none.
    pub fn param(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    pub fn is_set(&self, name: &str) -> bool {
        matches!(self.param(name), "true" | "1")
    }

    /// The body as JSON; `null` where there is none.
    pub fn body(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Refusal::bad_request(format!("the body is not JSON: {error}")))
    }

    pub fn selector(&self) -> Result<Selector, Refusal> {
        let (labels, fields) = (self.param("labelSelector"), self.param("fieldSelector"));
        Selector::parse(&self.resource, labels, fields)
    }

    /// Where the object of this call is.
    pub fn key(&self) -> Key {
        Key::new(&self.resource, &self.namespace, &self.name)
    }

    pub fn changes_something(&self) -> bool {
        self.method != Method::GET
    }

    /// What an authoriser says to a user who may not do this.
    pub fn forbidden(&self) -> Refusal {
        let Call { resource, namespace, name, .. } = self;
        let (what, user, verb) = (resource.full_name(), self.user(), self.verb());
        let named = if name.is_empty() { what } else { format!("{what} \"{name}\"") };
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let (plural, group) = (&resource.plural, &resource.group);
        let message = format!(
            "{named} is forbidden: User \"{user}\" cannot {verb} resource \"{plural}\" in API group \
             \"{group}\" {place}"
        );
        Refusal::new(403, "Forbidden", message)
    }

    /// The line of the log: `PATCH storagepools/nvme/status by pliant`.
    pub fn line(&self) -> String {
        let part = match (self.status, self.eviction) {
            (true, _) => "status",
            (_, true) => "eviction",
            _ => "",
        };
        let parts = [&self.resource.plural, &self.namespace, &self.name, part];
        let path: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let by = self.who().map_or(String::new(), |who| format!(" by {who}"));
        format!("{} {}{by}", self.method, path.join("/"))
    }

    /// Who asks.
    pub fn user(&self) -> &str {
        &self.user_agent
    }

    /// What is asked, as a role has it.
    pub fn verb(&self) -> &'static str {
        let is_one = !self.name.is_empty();
        match (&self.method, is_one) {
            (&Method::GET, _) if self.is_set("watch") => "watch",
            (&Method::GET, true) => "get",
            (&Method::GET, false) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (_, true) => "delete",
            (_, false) => "deletecollection",
        }
    }

    /// The field manager, or else the user agent.
    fn who(&self) -> Option<&str> {
        [self.param("fieldManager"), &self.user_agent].into_iter().find(|name| !name.is_empty())
    }

    /// Who owns what this call writes.
    pub fn manager(&self) -> Manager {
        Manager {
            name: self.who().unwrap_or("unknown").to_owned(),
            applies: self.content_type == APPLY,
            status: self.status,
        }
    }
}

/// What a path names; the rest of the call is still empty.
fn place(resources: &[Arc<Resource>], path: &str) -> Option<Call> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, part) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, part @ "status"] | [plural @ "pods", name, part @ ("log" | "eviction")] => {
            (*plural, *name, *part)
        }
        _ => return None,
    };
    let (status, log, eviction) = (part == "status", part == "log", part == "eviction");
    let found = resources.iter().find(|resource| {
        (resource.group.as_str(), resource.version.as_str(), resource.plural.as_str())
            == (group, version, plural)
            && (resource.status || !status)
            && (resource.namespaced != namespace.is_empty()
                || (resource.namespaced && name.is_empty()))
    })?;
    Some(Call {
        method: Method::GET,
        resource: Arc::clone(found),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        status,
        log,
        eviction,
        query: BTreeMap::new(),
        content_type: String::new(),
        user_agent: String::new(),
        body: Vec::new(),
    })
}
