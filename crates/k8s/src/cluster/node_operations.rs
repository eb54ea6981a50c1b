//! Requests operations and inspections of nodes without waiting for them: a node that does not
//! respond delays nothing else. Requests and answers are in memory only; a restarted replica asks
//! again, and repeated operations do nothing.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::cluster::locked::locked;
use crate::cluster::seen::{NodeOperation, NotDone, ObservedVolume, OperationRequest, VolumeSeen};
use crate::cluster::told_of;
use crate::cluster::writes::OPERATOR;
use crate::error_chain;
use crate::panics::{Panicked, caught};
use crate::volume::{Fence, Reason, Use, VolumeId, Volumes};

/// Minimum and maximum delay between two inspections of a volume: a volume that is open for a moment
/// is noticed soon, and one that is open for hours costs little.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Time for which an answer counts as current.
const RECENT: Duration = Duration::from_secs(60);

/// Time for which an answer is remembered.
const KNOWN: Duration = Duration::from_secs(600);

/// Operations that nodes were asked for.
pub struct Asks {
    cluster: Arc<Cluster>,
    asked: Mutex<All>,
    answers: watch::Sender<()>,
    subscribers: Arc<Mutex<Subscribers>>,
    stop: CancellationToken,
}

/// Requests by volume.
#[derive(Default)]
struct All {
    by_volume: HashMap<VolumeId, Ask>,
    /// Volumes by the object for which something was requested.
    volumes: HashMap<String, BTreeSet<VolumeId>>,
    /// Time of the last sweep of old answers.
    swept: Option<Instant>,
}

impl All {
    fn insert(&mut self, id: VolumeId, ask: Ask) {
        self.remove(&id);
        self.volumes.entry(ask.of.clone()).or_default().insert(id.clone());
        self.by_volume.insert(id, ask);
    }

    fn remove(&mut self, id: &VolumeId) -> Option<Ask> {
        let ask = self.by_volume.remove(id)?;
        if let Some(volumes) = self.volumes.get_mut(&ask.of) {
            volumes.remove(id);
            if volumes.is_empty() {
                self.volumes.remove(&ask.of);
            }
        }
        Some(ask)
    }

    /// Forgets old requests, and returns the objects that they were for.
    fn sweep(&mut self, now: Instant) -> Vec<String> {
        if self.swept.is_some_and(|swept| now - swept < KNOWN / 10) {
            return Vec::new();
        }
        self.swept = Some(now);
        let is_old = |ask: &Ask| !ask.is_under_way && now - ask.last >= KNOWN;
        let old = self.by_volume.iter().filter(|(_, ask)| is_old(ask));
        let old: Vec<VolumeId> = old.map(|(id, _)| id.clone()).collect();
        old.iter().filter_map(|id| Some(self.remove(id)?.of)).collect()
    }
}

/// Objects with changed answers, for each subscriber.
#[derive(Debug, Default)]
struct Subscribers {
    waiting: HashMap<u64, BTreeSet<String>>,
    subscribed: u64,
}

impl Subscribers {
    fn note(&mut self, of: &str) {
        for waiting in self.waiting.values_mut().filter(|waiting| !waiting.contains(of)) {
            waiting.insert(of.to_owned());
        }
    }
}

/// Objects with changed answers since a subscriber's last take: each once.
#[derive(Debug)]
pub struct Answers {
    subscribers: Arc<Mutex<Subscribers>>,
    number: u64,
    told: watch::Receiver<()>,
}

impl Answers {
    /// Takes the objects with changes since the last time.
    pub fn take(&mut self) -> BTreeSet<String> {
        self.told.mark_unchanged();
        let mut subscribers = locked(&self.subscribers);
        subscribers.waiting.insert(self.number, BTreeSet::new()).unwrap_or_default()
    }

    /// Waits until there may be something to take.
    pub async fn changed(&mut self) {
        if self.told.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        locked(&self.subscribers).waiting.remove(&self.number);
    }
}

/// Request for one volume, for one object: a workload, or a claim that is populated.
struct Ask {
    of: String,
    wish: NodeOperation,
    first: Instant,
    last: Instant,
    is_under_way: bool,
    /// Last answer, even while the request is repeated.
    answer: Option<Result<ObservedVolume, NotDone>>,
    answers: u64,
    answered: Option<Instant>,
}

impl Asks {
    /// Starts to watch the custom resources of the cluster, and to ask nodes, until `stop`.
    pub fn start(client: &Client, stop: &CancellationToken) -> Arc<Asks> {
        Arc::new(Asks {
            cluster: Arc::new(Cluster::watch(client, OPERATOR, stop)),
            asked: Mutex::default(),
            answers: watch::Sender::new(()),
            subscribers: Arc::default(),
            stop: stop.clone(),
        })
    }

    /// Returns the cluster through which nodes are asked.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Subscribes to changed answers.
    pub fn subscribe(&self) -> Answers {
        let told = self.answers.subscribe();
        let mut subscribers = locked(&self.subscribers);
        subscribers.subscribed += 1;
        let number = subscribers.subscribed;
        subscribers.waiting.insert(number, BTreeSet::new());
        Answers { subscribers: self.subscribers.clone(), number, told }
    }

    /// Returns the number of answers for `of`, by volume: it changes with each answer.
    pub fn versions(&self, of: &str) -> Vec<String> {
        let asked = self.asked();
        let ours = asked.volumes.get(of).into_iter().flatten();
        let ours = ours.filter_map(|id| Some((id, asked.by_volume.get(id)?)));
        let mut versions: Vec<String> =
            ours.map(|(id, ask)| format!("{id} {} {}", ask.wish, ask.answers)).collect();
        versions.sort_unstable();
        versions
    }

    /// Returns the known state of a volume; of the requests, only those for `of`.
    pub fn see(&self, of: &str, id: VolumeId) -> VolumeSeen {
        let asked = self.asked().by_volume.get(&id).filter(|ask| ask.of == of).map(Ask::seen);
        let node = self.cluster.nodes().record_of(&id);
        let told = told_of(node.iter().map(AsRef::as_ref), &id);
        VolumeSeen::of(id, told, asked)
    }

    /// Has a node apply an operation to a volume and inspect it, for `of`. Does nothing while another
    /// request for the volume is running.
    pub fn ask(self: &Arc<Self>, of: &str, id: VolumeId, wish: NodeOperation) {
        let now = Instant::now();
        let mut asked = self.asked();
        asked.sweep(now).iter().for_each(|of| locked(&self.subscribers).note(of));
        let before = asked.remove(&id);
        let Some(ask) = Ask::after(before.as_ref(), of, wish, now) else {
            if let Some(before) = before {
                asked.insert(id, before);
            }
            return;
        };
        asked.insert(id.clone(), ask);
        drop(asked);
        // What one has asked is no longer known once another one asks something else.
        if let Some(other) = before.filter(|before| before.of != of) {
            locked(&self.subscribers).note(&other.of);
        }
        let (asks, stop) = (self.clone(), self.stop.clone());
        tokio::spawn(async move {
            let asking = async {
                let answer = caught("asks", asks.have_done(&id, wish)).await;
                let panicked = |panicked: Panicked| NotDone {
                    reason: Reason::Failed,
                    why: panicked.to_string(),
                };
                asks.note(&id, answer.map_err(panicked).flatten());
            };
            stop.run_until_cancelled(asking).await;
        });
    }

    async fn have_done(
        &self,
        id: &VolumeId,
        wish: NodeOperation,
    ) -> Result<ObservedVolume, NotDone> {
        let done = async {
            match wish {
                NodeOperation::Fence(fence) if !self.has_seen(id, &fence) => {
                    return self.cluster.fence_and_inspect(id, fence).await;
                }
                // Its pod has ended, and its kubelet unmounts what it had.
                NodeOperation::Fence(fence) if fence.lets() == Use::Read => {
                    return self.cluster.inspect_unused(id).await;
                }
                NodeOperation::Shrink { to, .. } => self.cluster.shrink(id, to).await.map(drop)?,
                NodeOperation::Release => self.cluster.release(id).await?,
                NodeOperation::Fence(_) | NodeOperation::Look => {}
            }
            self.cluster.inspect(id).await
        };
        // A missing volume is not used.
        let fence = if let NodeOperation::Fence(fence) = wish { fence } else { Fence::default() };
        let gone = ObservedVolume { node: String::new(), fence, open_count: 0 };
        match done.await {
            Ok(Some(seen)) => Ok(ObservedVolume {
                node: seen.status.volume.node,
                fence: seen.status.fence,
                open_count: seen.open_count,
            }),
            Ok(None) => Ok(gone),
            Err(error) if error.reason() == Reason::NotFound => Ok(gone),
            Err(error) => {
                Err(NotDone { reason: error.reason(), why: error_chain::in_full(&error) })
            }
        }
    }

    /// Returns true if the volume already has the desired state, so that an inspection is enough.
    fn has_seen(&self, id: &VolumeId, fence: &Fence) -> bool {
        let asked = self.asked();
        let answer = asked.by_volume.get(id).and_then(|ask| ask.answer.as_ref());
        answer.is_some_and(|answer| answer.as_ref().is_ok_and(|look| look.fence == *fence))
    }

    fn note(&self, id: &VolumeId, answer: Result<ObservedVolume, NotDone>) {
        if let Some(ask) = self.asked().by_volume.get_mut(id) {
            locked(&self.subscribers).note(&ask.of);
            let now = Instant::now();
            (ask.is_under_way, ask.last, ask.answered) = (false, now, Some(now));
            if ask.answer.as_ref() != Some(&answer) {
                (ask.answer, ask.answers) = (Some(answer), ask.answers + 1);
            }
        }
        self.answers.send_replace(());
    }

    fn asked(&self) -> MutexGuard<'_, All> {
        locked(&self.asked)
    }
}

impl fmt::Debug for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asks").finish_non_exhaustive()
    }
}

impl Ask {
    /// Returns the next request; `None` while one is running.
    fn after(before: Option<&Ask>, of: &str, wish: NodeOperation, now: Instant) -> Option<Ask> {
        if before.is_some_and(|before| before.is_under_way) {
            return None;
        }
        let same = before.filter(|before| (&*before.of, before.wish) == (of, wish));
        Some(Ask {
            of: of.to_owned(),
            wish,
            first: same.map_or(now, |same| same.first),
            last: now,
            is_under_way: true,
            answer: same.and_then(|same| same.answer.clone()),
            answers: same.map_or(0, |same| same.answers),
            answered: same.and_then(|same| same.answered),
        })
    }

    fn seen(&self) -> OperationRequest {
        let pause = ((self.last - self.first) / 8).clamp(AGAIN.0, AGAIN.1);
        OperationRequest {
            wish: self.wish,
            answer: self.answer.clone(),
            is_old: !self.is_under_way && self.last.elapsed() >= pause,
            is_recent: self.answered.is_some_and(|at| at.elapsed() < RECENT),
        }
    }
}
