//! What a test lets go wrong, and how it waits.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use serde_json::Value;

use crate::FakeApi;
use crate::Lost;
use crate::server::{Guard, Outage};

/// How long [`FakeApi::until`] waits: far longer than any test that passes.
const PATIENCE: Duration = Duration::from_secs(60);

impl FakeApi {
    /// Count the requests so far, refused and lost ones too.
    pub fn calls(&self) -> usize {
        self.lock().calls
    }

    /// List the changing requests so far, in order, with the field manager or else the user agent:
    /// `PATCH storagepools/nvme/status by pliant`. The first is number 1. What never reached the server in
    /// an outage is not there; what it refused, and what [`FakeApi::fail_at`] lost, is.
    pub fn writes(&self) -> Vec<String> {
        self.lock().writes.clone()
    }

    /// List the users and groups that requests so far said to act as.
    pub fn acted_as(&self) -> Vec<(String, Vec<String>)> {
        self.lock().acted_as.clone()
    }

    /// Forget the changing requests so far, so that the next one is number 1.
    pub fn forget_writes(&self) {
        self.lock().writes.clear();
    }

    /// Break the connection of the `n`-th changing request, counted from 1: before it is carried
    /// out, or after, so that its answer is lost.
    pub fn fail_at(&self, n: usize, lost: Lost) {
        self.lock().fault = Some((n, lost));
    }

    /// Find what is applied invalid from now on, or no longer; other patches are taken.
    pub fn refuse_applies(&self, refuses: bool) {
        self.lock().refuses_applies = refuses;
    }

    /// Look at each new object of a kind, such as `pods`, before it is kept, in a dry run too:
    /// a quota, a policy. What is said is why it is refused, with code 403; beside the object stand those that
    /// are there of its kind in its namespace.
    pub fn guard(
        &self,
        plural: &str,
        guard: impl Fn(&Value, &[Value]) -> Option<String> + Send + 'static,
    ) {
        let guard = Guard(Box::new(guard));
        self.act(|server| server.guards.push((plural.to_owned(), guard)));
    }

    /// Look at new objects of a kind no more.
    pub fn unguard(&self, plural: &str) {
        self.act(|server| server.guards.retain(|(guarded, _)| guarded != plural));
    }

    /// List the dry runs so far, in order, as [`FakeApi::writes`] lists what changes something.
    pub fn rehearsals(&self) -> Vec<String> {
        self.lock().rehearsals.clone()
    }

    /// Be unreachable: running watches end, and no connection comes about.
    pub fn go_down(&self) {
        self.set_outage(Outage::Unreachable);
    }

    /// Answer every request with this code, such as 503, 429 or 403; running watches end.
    pub fn refuse_all(&self, code: u16) {
        self.set_outage(Outage::Refusing(code));
    }

    /// Refuse to the user behind [`FakeApi::client_of`] all that is about these kinds, named by their
    /// plurals, as where no role allows it.
    pub fn forbid(&self, user: &str, plurals: &[&str]) {
        let plurals = plurals.iter().map(|plural| (*plural).to_owned()).collect();
        self.act(|server| server.forbidden.insert(user.to_owned(), plurals));
    }

    fn set_outage(&self, outage: Outage) {
        self.act(|server| {
            server.outage = Some(outage);
            server.store.watches.clear();
        });
    }

    /// Answer again, after [`FakeApi::go_down`] or [`FakeApi::refuse_all`].
    pub fn come_back(&self) {
        self.act(|server| server.outage = None);
    }

    /// Have a clock that is so much ahead of this machine's, or behind, if that is negative.
    pub fn set_ahead(&self, by: SignedDuration) {
        self.lock().store.ahead = by;
    }

    /// Let each request for what is in a namespace take so long, as where a webhook of its tenant hangs.
    pub fn slow_down(&self, namespace: &str, each: Duration) {
        self.lock().slow.insert(namespace.to_owned(), each);
    }

    /// Have whoever makes a call whose line of the log contains this end in a panic; `None` has nobody.
    pub fn panic_at(&self, part: Option<&str>) {
        self.lock().panics = part.map(str::to_owned);
    }

    /// End all running watches, as a load balancer does.
    pub fn cut_watches(&self) {
        self.act(|server| server.store.watches.clear());
    }

    /// Count the running watches.
    pub fn watches(&self) -> usize {
        let mut server = self.lock();
        server.store.drop_ended_watches();
        server.store.watches.len()
    }

    /// Forget the history. A watch from any version given out so far gets the event ERROR with code
    /// 410, as does a running one that has not been told all; the next page of a list is refused with
    /// 410.
    pub fn compact(&self) {
        self.act(|server| server.store.compact());
    }

    /// Send every running watch that wants bookmarks the version up to which it was told.
    pub fn bookmark(&self) {
        self.act(|server| server.store.bookmark());
    }

    /// Let watches, and reads of any version (`resourceVersion=0`), not see what changes from now on.
    pub fn hold_events(&self) {
        self.act(|server| server.store.held = Some(server.store.visible()));
    }

    /// Let watches see everything again, and at first what was held back, in order.
    pub fn release_events(&self) {
        self.act(|server| {
            server.store.held = None;
            server.store.deliver();
        });
    }

    /// Tell watches everything twice from now on, or no longer.
    pub fn duplicate_events(&self, twice: bool) {
        self.act(|server| server.store.twice = twice);
    }

    /// Wait for the next request, write or switch after this call, not after the first poll: so none
    /// is missed between a look and the wait.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut moved = self.moved.subscribe();
        async move {
            let _ = moved.changed().await; // An error says that the server is gone: so is the wait.
        }
    }

    /// Wait until a condition holds.
    ///
    /// # Panics
    /// If it does not for a minute of tokio's time.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&FakeApi) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        assert!(waited.is_ok(), "waited in vain until {what}; writes so far: {:#?}", self.writes());
    }
}
