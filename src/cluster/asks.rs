//! Has nodes do something to volumes, and look at them, without waiting for them: a node that is
//! away holds up nothing else. What was asked and answered is kept in memory only; a replica that
//! starts anew asks again, and what is done already is done.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::VolumeOnNode;
use crate::causes;
use crate::cluster::seen::{Asked, Look, NotDone, VolumeSeen, Wish};
use crate::cluster::{Cluster, is_on};
use crate::volume::{Fence, Reason, Use, VolumeId, Volumes};

/// How soon a volume is looked at again at the earliest, and at the latest: whoever has it open for a
/// moment is not waited for long, and who has it for hours costs little.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// For how long an answer is one of this moment.
const RECENT: Duration = Duration::from_secs(60);

/// How long it is known what a node answered.
const KNOWN: Duration = Duration::from_secs(600);

/// Who asks, for the API server.
const WRITER: &str = "pliant-operator";

/// What nodes were asked, and the way to them.
pub struct Asks {
    cluster: Arc<Cluster>,
    asked: Mutex<HashMap<VolumeId, Ask>>,
    answers: watch::Sender<()>,
    stop: CancellationToken,
}

/// What was asked of one volume, for one object: a workload, or a claim that is filled.
struct Ask {
    of: String,
    wish: Wish,
    first: Instant,
    last: Instant,
    is_under_way: bool,
    /// The last one, also while it is asked again.
    answer: Option<Result<Look, NotDone>>,
    answers: u64,
    answered: Option<Instant>,
}

impl Asks {
    /// Begin to watch the records of the cluster, and ask nodes, until `stop`.
    pub fn start(client: &Client, stop: &CancellationToken) -> Arc<Asks> {
        Arc::new(Asks {
            cluster: Arc::new(Cluster::watch(client, WRITER, stop)),
            asked: Mutex::default(),
            answers: watch::Sender::new(()),
            stop: stop.clone(),
        })
    }

    /// The records by which nodes are asked and tell.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Tells of every answer from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.answers.subscribe()
    }

    /// How many answers there were to what was asked for `of`, by volume: they change with each.
    pub(crate) fn versions(&self, of: &str) -> Vec<String> {
        let asked = self.asked();
        let ours = asked.iter().filter(|(_, ask)| ask.of == of);
        let mut versions: Vec<String> =
            ours.map(|(id, ask)| format!("{id} {} {}", ask.wish, ask.answers)).collect();
        versions.sort_unstable();
        versions
    }

    /// What is known of a volume; of what was asked only what was for `of`.
    pub(crate) fn see(&self, of: &str, id: VolumeId) -> VolumeSeen {
        let asked = self.asked().get(&id).filter(|ask| ask.of == of).map(Ask::seen);
        let told = self.told(&id);
        let fence =
            told.as_ref().map(|told| told.fence.as_ref().map(Fence::from).unwrap_or_default());
        let is_limited = told.as_ref().is_some_and(|told| told.limit.is_some());
        let mode = told.and_then(|told| told.mode.parse().ok());
        VolumeSeen { id, mode, is_limited, fence, asked }
    }

    /// What the node of a volume told of it last.
    fn told(&self, id: &VolumeId) -> Option<VolumeOnNode> {
        let nodes = self.cluster.nodes().watched().all();
        let node = nodes.iter().find(|node| is_on(node, id))?;
        let id = id.to_string();
        node.status.as_ref()?.volumes.iter().find(|one| one.id == id).cloned()
    }

    /// Have a node do something to a volume, and look at it then, for `of`. While something else is under
    /// way for the volume, nothing is asked.
    pub(crate) fn ask(self: &Arc<Self>, of: &str, id: VolumeId, wish: Wish) {
        let now = Instant::now();
        let mut asked = self.asked();
        asked.retain(|_, ask| ask.is_under_way || now - ask.last < KNOWN);
        let before = asked.remove(&id);
        let Some(ask) = Ask::after(before.as_ref(), of, wish, now) else {
            asked.extend(before.map(|before| (id, before)));
            return;
        };
        asked.insert(id.clone(), ask);
        drop(asked);
        let (asks, stop) = (self.clone(), self.stop.clone());
        tokio::spawn(async move {
            let asking = async {
                let answer = asks.have_done(&id, wish).await;
                asks.note(&id, answer);
            };
            stop.run_until_cancelled(asking).await;
        });
    }

    async fn have_done(&self, id: &VolumeId, wish: Wish) -> Result<Look, NotDone> {
        let done = async {
            match wish {
                Wish::Fence(fence) if self.has_seen(id, &fence) => {}
                Wish::Fence(fence) => self.cluster.fence(id, fence).await?,
                Wish::Shrink { to, .. } => self.cluster.shrink(id, to).await.map(drop)?,
                Wish::Release => self.cluster.release(id).await?,
                Wish::Look => {}
            }
            match wish {
                // Its pod has ended, and its kubelet unmounts what it had.
                Wish::Fence(fence) if fence.lets() == Use::Read => {
                    self.cluster.inspect_unused(id).await
                }
                _ => self.cluster.inspect(id).await,
            }
        };
        // Nobody uses a volume that is not there.
        let fence = if let Wish::Fence(fence) = wish { fence } else { Fence::default() };
        let gone = Look { node: String::new(), fence, open_count: 0 };
        match done.await {
            Ok(Some(seen)) => Ok(Look {
                node: seen.status.volume.node,
                fence: seen.status.fence,
                open_count: seen.open_count,
            }),
            Ok(None) => Ok(gone),
            Err(error) if error.reason() == Reason::NotFound => Ok(gone),
            Err(error) => Err(NotDone { reason: error.reason(), why: causes::in_full(&error) }),
        }
    }

    /// Whether the volume is as it is to be, so that it is only to be looked at again.
    fn has_seen(&self, id: &VolumeId, fence: &Fence) -> bool {
        let asked = self.asked();
        let answer = asked.get(id).and_then(|ask| ask.answer.as_ref());
        answer.is_some_and(|answer| answer.as_ref().is_ok_and(|look| look.fence == *fence))
    }

    fn note(&self, id: &VolumeId, answer: Result<Look, NotDone>) {
        if let Some(ask) = self.asked().get_mut(id) {
            let now = Instant::now();
            (ask.is_under_way, ask.last, ask.answered) = (false, now, Some(now));
            if ask.answer.as_ref() != Some(&answer) {
                (ask.answer, ask.answers) = (Some(answer), ask.answers + 1);
            }
        }
        self.answers.send_replace(());
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<VolumeId, Ask>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asks").finish_non_exhaustive()
    }
}

impl Ask {
    /// What is asked now; `None` while something is under way.
    fn after(before: Option<&Ask>, of: &str, wish: Wish, now: Instant) -> Option<Ask> {
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

    fn seen(&self) -> Asked {
        let pause = ((self.last - self.first) / 8).clamp(AGAIN.0, AGAIN.1);
        Asked {
            wish: self.wish,
            answer: self.answer.clone(),
            is_old: !self.is_under_way && self.last.elapsed() >= pause,
            is_recent: self.answered.is_some_and(|at| at.elapsed() < RECENT),
        }
    }
}
