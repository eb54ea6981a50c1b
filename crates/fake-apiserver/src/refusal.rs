//! What the server says when it does not do what it is asked.

use serde_json::{Value, json};

use crate::resources::Resource;

/// An error of the server: the `Status` object that a client gets.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub code: u16,
    reason: &'static str,
    message: String,
}

impl Refusal {
    pub fn status(&self) -> Value {
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        })
    }

    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, reason, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(400, "BadRequest", message)
    }

    pub fn not_found(resource: &Resource, name: &str) -> Refusal {
        let message = format!("{} \"{name}\" not found", resource.full_name());
        Refusal::new(404, "NotFound", message)
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Refusal {
        let message = format!("{} \"{name}\" already exists", resource.full_name());
        Refusal::new(409, "AlreadyExists", message)
    }

    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Refusal {
        let full_name = resource.full_name();
        let message = format!("Operation cannot be fulfilled on {full_name} \"{name}\": {why}");
        Refusal::new(409, "Conflict", message)
    }

    /// The object was changed since the caller read it.
    pub fn stale(resource: &Resource, name: &str) -> Refusal {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Refusal::conflict(resource, name, why)
    }

    pub fn apply_conflict(owner: &str, field: &str) -> Refusal {
        let message = format!("Apply failed with 1 conflict: conflict with \"{owner}\": .{field}");
        Refusal::new(409, "Conflict", message)
    }

    pub fn invalid(resource: &Resource, name: &str, why: &str) -> Refusal {
        let (kind, group) = (&resource.kind, &resource.group);
        let full_kind = if group.is_empty() { kind.clone() } else { format!("{kind}.{group}") };
        Refusal::new(422, "Invalid", format!("{full_kind} \"{name}\" is invalid: {why}"))
    }

    /// Who guards the kind does not let it be made: a quota, a policy.
    pub fn not_admitted(resource: &Resource, name: &str, why: &str) -> Refusal {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.full_name());
        Refusal::new(403, "Forbidden", message)
    }

    pub fn unsupported_media_type(given: &str) -> Refusal {
        let message = format!("the body of the request was in an unknown format: {given:?}");
        Refusal::new(415, "UnsupportedMediaType", message)
    }

    /// The history does not reach back so far.
    pub fn expired(asked: u64, oldest: u64) -> Refusal {
        Refusal::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// The server was asked for a future that it has not seen.
    pub fn too_new(asked: u64, current: u64) -> Refusal {
        let message = format!("Too large resource version: {asked}, current: {current}");
        Refusal::new(504, "Timeout", message)
    }

    pub fn internal(message: &str) -> Refusal {
        Refusal::new(500, "InternalError", message)
    }

    /// What a switch of the test makes the server say.
    pub fn outage(code: u16) -> Refusal {
        let reason = match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Refusal::new(code, reason, "the server is currently unable to handle the request")
    }
}
