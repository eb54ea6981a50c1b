//! Begins, tells and ends the watches of a store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;

use crate::call::Call;
use crate::history::version;
use crate::refusal::Refusal;
use crate::store::Store;
use crate::watch::{Lines, Watch};

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
