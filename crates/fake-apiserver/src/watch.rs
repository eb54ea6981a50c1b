//! A running watch, and what it is told.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Sleep;
use tokio_stream::Stream;

use crate::history::Change;
use crate::resources::Resource;
use crate::selector::Selector;

/// A running watch.
#[derive(Debug)]
pub(crate) struct Watch {
    pub resource: Arc<Resource>,
    pub namespace: String,
    pub selector: Selector,
    pub bookmarks: bool,
    /// The version up to which it was told.
    pub position: u64,
    pub lines: UnboundedSender<String>,
}

/// What a watch sends, one event a line, until it is cut or its time is over.
pub(crate) struct Lines {
    pub lines: UnboundedReceiver<String>,
    pub end: Option<Pin<Box<Sleep>>>,
}

impl Stream for Lines {
    type Item = Result<String, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(line) = self.lines.poll_recv(context) {
            return Poll::Ready(line.map(Ok));
        }
        match self.end.as_mut().map(|end| end.as_mut().poll(context)) {
            Some(Poll::Ready(())) => Poll::Ready(None),
            _ => Poll::Pending,
        }
    }
}

impl Watch {
    /// Tell of a change as it looks through the selector: what stops to match is deleted.
    pub fn tell(&self, change: &Change) {
        if !change.key.is_in(&self.resource, &self.namespace) {
            return;
        }
        let selected = |object: &&Value| self.selector.matches(object);
        let before = change.before.as_ref().filter(selected);
        let after = change.after.as_ref().filter(selected);
        match (before, after) {
            (None, Some(after)) => self.send("ADDED", after),
            (Some(_), Some(after)) => self.send("MODIFIED", after),
            (Some(before), None) => {
                let mut last = before.clone();
                last["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                self.send("DELETED", &last);
            }
            (None, None) => {}
        }
    }

    /// Send an event of this type.
    pub fn send(&self, kind: &str, object: &Value) {
        // A client that has hung up is told nothing.
        let _ = self.lines.send(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"));
    }
}
