//! Those who watch, and what they are told.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Sleep;
use tokio_stream::Stream;

use super::call::Call;
use super::refusal::Refusal;
use super::resources::Resource;
use super::selector::Selector;
use super::store::{Change, Store, version};

/// A running watch.
#[derive(Debug)]
pub(super) struct Watch {
    resource: Arc<Resource>,
    namespace: String,
    selector: Selector,
    bookmarks: bool,
    /// The version up to which it was told.
    position: u64,
    lines: UnboundedSender<String>,
}

/// What a watch sends, one event a line, until it is cut or its time is over.
pub(super) struct Lines {
    lines: UnboundedReceiver<String>,
    end: Option<Pin<Box<Sleep>>>,
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

impl Store {
    /// Begin a watch. What is wrong with its version is told as its first event, as a real server
    /// does once it has understood the request.
    pub fn watch(&mut self, call: &Call) -> Result<Lines, Refusal> {
        let selector = call.selector()?;
        if call.is_set("sendInitialEvents") {
            let why = "sendInitialEvents: Forbidden: the watch list is not modelled";
            return Err(Refusal::invalid(&call.resource, "", why));
        }
        let (sender, receiver) = unbounded_channel();
        let mut watch = Watch {
            resource: Arc::clone(&call.resource),
            namespace: call.namespace.clone(),
            selector,
            bookmarks: call.is_set("allowWatchBookmarks"),
            position: 0,
            lines: sender,
        };
        match self.start_of(&mut watch, call.param("resourceVersion"))? {
            Ok(position) => {
                watch.position = position;
                self.watches.push(watch);
                self.deliver();
            }
            Err(refusal) => watch.send("ERROR", &refusal.status()),
        }
        let seconds = call.param("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
        let end = seconds.map(|s| Box::pin(tokio::time::sleep(Duration::from_secs(s))));
        Ok(Lines { lines: receiver, end })
    }

    /// From where a watch is told; without a version it is first told of all that there is.
    fn start_of(&self, watch: &mut Watch, asked: &str) -> Result<Result<u64, Refusal>, Refusal> {
        let now = match asked {
            "" => self.revision,
            "0" => self.visible(),
            asked => {
                let asked = version(asked)?;
                if asked > self.revision {
                    return Ok(Err(Refusal::too_new(asked, self.revision)));
                }
                return Ok(self.in_history(asked));
            }
        };
        let all = self.at(now, &watch.resource, &watch.namespace);
        for object in all.into_values().filter(|object| watch.selector.matches(object)) {
            watch.send("ADDED", object);
        }
        Ok(Ok(now))
    }

    /// Tell all watches what they may see and have not been told.
    pub fn deliver(&mut self) {
        let visible = self.visible();
        let end = self.history.partition_point(|change| change.revision <= visible);
        for watch in &mut self.watches {
            let seen = self.history.partition_point(|change| change.revision <= watch.position);
            for change in self.history.get(seen..end).unwrap_or_default() {
                for _ in 0..=u8::from(self.twice) {
                    watch.tell(change);
                }
            }
            watch.position = watch.position.max(visible);
        }
        self.drop_ended_watches();
    }

    /// End the watches that have not been told of all changes, as a compaction ends them.
    pub fn expire_late_watches(&mut self) {
        let newest = self.history.last().map_or(0, |change| change.revision);
        for late in self.watches.extract_if(.., |watch| watch.position < newest) {
            late.send("ERROR", &Refusal::expired(late.position, newest).status());
        }
    }

    /// Tell all watches that want bookmarks how far they are.
    pub fn bookmark(&mut self) {
        for watch in self.watches.iter().filter(|watch| watch.bookmarks) {
            let object = json!({
                "kind": watch.resource.kind,
                "apiVersion": watch.resource.api_version(),
                "metadata": { "resourceVersion": watch.position.to_string() },
            });
            watch.send("BOOKMARK", &object);
        }
    }

    pub fn drop_ended_watches(&mut self) {
        self.watches.retain(|watch| !watch.lines.is_closed());
    }
}

impl Watch {
    /// Tell of a change as it looks through the selector: what stops to match is deleted.
    fn tell(&self, change: &Change) {
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

    fn send(&self, kind: &str, object: &Value) {
        // A client that has hung up is told nothing.
        let _ = self.lines.send(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"));
    }
}
