//! Which objects a caller asks for.

use std::borrow::Cow;

use serde_json::Value;

use crate::refusal::Refusal;
use crate::resources::Resource;

/// Terms that must all hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Term>,
    fields: Vec<Term>,
}

/// What one key must be.
#[derive(Debug, Clone)]
struct Term {
    key: String,
    wanted: Wanted,
}

#[derive(Debug, Clone)]
enum Wanted {
    Is(String),
    IsNot(String),
    Present,
    Absent,
}

impl Selector {
    /// Read both selectors of a request; empty ones select all.
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let selector = Selector { labels: terms(labels)?, fields: terms(fields)? };
        let known = |term: &Term| {
            matches!(term.key.as_str(), "metadata.name" | "metadata.namespace")
                || resource.selectable.contains(&term.key)
        };
        match selector.fields.iter().find(|term| !known(term)) {
            Some(term) => {
                Err(Refusal::bad_request(format!("field label not supported: {}", term.key)))
            }
            None => Ok(selector),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        // An absent label is none; an absent field is the empty text.
        let label = |term: &Term| object["metadata"]["labels"].get(&term.key).map(text);
        let field =
            |term: &Term| Some(text(term.key.split('.').fold(object, |value, name| &value[name])));
        self.labels.iter().all(|term| term.wanted.holds(label(term).as_deref()))
            && self.fields.iter().all(|term| term.wanted.holds(field(term).as_deref()))
    }
}

impl Wanted {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Wanted::Is(wanted) => value == Some(wanted.as_str()),
            Wanted::IsNot(unwanted) => value != Some(unwanted.as_str()),
            Wanted::Present => value.is_some(),
            Wanted::Absent => value.is_none(),
        }
    }
}

fn terms(selector: &str) -> Result<Vec<Term>, Refusal> {
    if selector.contains('(') {
        return Err(Refusal::bad_request(format!("sets are not modelled: {selector}")));
    }
    let parts = selector.split(',').map(str::trim).filter(|part| !part.is_empty());
    Ok(parts.map(term).collect())
}

fn term(part: &str) -> Term {
    let (key, wanted) = if let Some((key, value)) = part.split_once("!=") {
        (key, Wanted::IsNot(value.trim().to_owned()))
    } else if let Some((key, value)) = part.split_once('=') {
        (key, Wanted::Is(value.trim_start_matches('=').trim().to_owned()))
    } else if let Some(key) = part.strip_prefix('!') {
        (key, Wanted::Absent)
    } else {
        (part, Wanted::Present)
    };
    Term { key: key.trim().to_owned(), wanted }
}

fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => "".into(),
        Value::String(text) => text.into(),
        other => other.to_string().into(),
    }
}
