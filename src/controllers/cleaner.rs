//! Removes requests that nobody needs any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Phase, VolumeRequest};
use crate::cluster::{Nodes, Requests, begun_again};
use crate::controllers::is_done;

/// What panics are counted under.
const LOOP: &str = "volumerequests";

/// How long a request that has ended can be read by people.
const READABLE: Duration = Duration::from_secs(30);
/// How long a request waits for its agent, and one that was begun for a node that is not there any more.
/// Who still wants it writes it again.
const WAITS: Duration = Duration::from_secs(600);
/// How often it is looked what is due, as long as there is something to wait for.
const LOOK: Duration = Duration::from_secs(10);

/// Why a request stays for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stays {
    /// It has ended.
    Ended,
    /// No agent has taken it up.
    Waits,
    /// Its node has no record: an agent that lives writes that within a minute.
    Orphaned,
}

/// Since when each request stays, by its uid: since it was first seen so. The times in it are of the
/// clocks of others.
#[derive(Debug, Default)]
struct Seen(HashMap<(String, Stays), Instant>);

/// What is due now, and how long it is until the next is.
#[derive(Debug, Default)]
struct Plan {
    /// The phases of those that have ended: all of one go by one call.
    ended: Vec<Phase>,
    /// Those of a phase that one has which is wanted again: it is not to go with them.
    singly: Vec<Arc<VolumeRequest>>,
    given_up: Vec<Arc<VolumeRequest>>,
    next: Option<Duration>,
}

/// Remove what has ended, and what no agent will carry out, until `stop`.
pub async fn run(requests: &Requests, nodes: &Nodes, stop: CancellationToken) {
    let cleaned = begun_again(LOOP, async || {
        let mut seen = Seen::default();
        let mut changes = [requests.watched().changes(), nodes.watched().changes()];
        loop {
            let has_node = |name: &str| nodes.watched().get(name).is_some();
            let plan = seen.plan(&requests.watched().all(), has_node, Instant::now());
            apply(requests, &plan).await;
            if plan.is_due() || plan.next.is_some() {
                // Also after a removal: until the watch tells of it, it would be due once more.
                tokio::time::sleep(plan.next.unwrap_or(LOOK).min(LOOK)).await;
                continue;
            }
            let [of_requests, of_nodes] = &mut changes;
            tokio::select! {
                _ = of_requests.changed() => {}
                _ = of_nodes.changed() => {}
            }
        }
    });
    stop.run_until_cancelled(cleaned).await;
}

impl Plan {
    fn is_due(&self) -> bool {
        !(self.ended.is_empty() && self.singly.is_empty() && self.given_up.is_empty())
    }
}

impl Stays {
    fn of(request: &VolumeRequest, has_node: bool) -> Option<Stays> {
        if request.is_waiting() {
            return Some(Stays::Waits);
        }
        if request.has_ended() {
            return Some(Stays::Ended);
        }
        (!has_node).then_some(Stays::Orphaned)
    }

    fn patience(self) -> Duration {
        match self {
            Stays::Ended => READABLE,
            Stays::Waits | Stays::Orphaned => WAITS,
        }
    }
}

impl Seen {
    fn plan(
        &mut self,
        requests: &[Arc<VolumeRequest>],
        has_node: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Plan {
        let before = std::mem::take(&mut self.0);
        let mut plan = Plan::default();
        for request in requests {
            let has_node = has_node(&request.spec.node);
            let Some(stays) = Stays::of(request, has_node) else { continue };
            let key = (request.metadata.uid.clone().unwrap_or_default(), stays);
            let since = *before.get(&key).unwrap_or(&now);
            self.0.insert(key, since);
            let left = stays.patience().saturating_sub(now - since);
            match stays {
                _ if !left.is_zero() => {
                    plan.next = Some(plan.next.map_or(left, |next| next.min(left)));
                }
                Stays::Ended => {
                    let phase = request.status.as_ref().map(|status| status.phase);
                    let Some(phase) = phase else { continue };
                    if requests.iter().any(|one| is_renewed(one, phase)) {
                        plan.singly.push(request.clone());
                    } else if !plan.ended.contains(&phase) {
                        plan.ended.push(phase);
                    }
                }
                Stays::Waits | Stays::Orphaned => plan.given_up.push(request.clone()),
            }
        }
        plan
    }
}

/// Whether a request has ended in this phase for an earlier wish, and is wanted again: a growth that was
/// renewed tells its earlier end until its agent has something to tell.
fn is_renewed(request: &VolumeRequest, phase: Phase) -> bool {
    let told = request.status.as_ref().map(|status| status.phase);
    told == Some(phase) && !request.has_ended()
}

/// What is not done now is due at the next look.
async fn apply(requests: &Requests, plan: &Plan) {
    for phase in &plan.ended {
        is_done(LOOP, phase.as_str(), requests.clear_ended(*phase)).await;
    }
    for request in &plan.singly {
        is_done(LOOP, name(request), requests.clear(request)).await;
    }
    for request in &plan.given_up {
        let name = name(request);
        tracing::warn!(request = name, node = request.spec.node, "no agent carries it out");
        is_done(LOOP, name, requests.clear(request)).await;
    }
}

fn name(request: &VolumeRequest) -> &str {
    request.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Remove, VolumeRequestSpec, VolumeRequestStatus, Work};

    fn request(uid: &str, generation: i64, told: Option<(Phase, i64)>) -> Arc<VolumeRequest> {
        let (node, volume) = ("a".to_owned(), "v".to_owned());
        let work = Work::Remove(Remove {});
        let mut request = VolumeRequest::new("r", VolumeRequestSpec { node, volume, work });
        request.metadata.uid = Some(uid.to_owned());
        request.metadata.generation = Some(generation);
        request.status = told.map(|(phase, observed_generation)| VolumeRequestStatus {
            observed_generation,
            phase,
            ..Default::default()
        });
        Arc::new(request)
    }

    #[test]
    fn a_request_stays_readable_and_an_unanswered_one_waits() {
        let (done, waits) = (Some((Phase::Done, 1)), None);
        let (mut seen, start) = (Seen::default(), Instant::now());
        let mut planned = |after: u64, requests: &[Arc<VolumeRequest>]| {
            let plan = seen.plan(requests, |_| true, start + Duration::from_secs(after));
            let ended = plan.ended.len() + plan.singly.len();
            (ended, plan.given_up.len(), plan.next.map(|next| next.as_secs()))
        };
        let failed = Some((Phase::Failed, 1));
        for (after, requests, expected) in [
            (0, vec![], (0, 0, None)),
            (0, vec![request("a", 1, waits)], (0, 0, Some(600))),
            (9, vec![request("a", 1, waits), request("b", 1, done)], (0, 0, Some(30))),
            (38, vec![request("a", 1, waits), request("b", 1, failed)], (0, 0, Some(1))),
            (39, vec![request("a", 1, waits), request("b", 1, done)], (1, 0, Some(561))),
            // Another one of the same name begins anew, and so does one that was renewed.
            (40, vec![request("a", 1, waits), request("c", 1, done)], (0, 0, Some(30))),
            (70, vec![request("a", 1, waits), request("c", 2, done)], (0, 0, Some(530))),
            (71, vec![request("a", 1, waits), request("c", 2, done)], (0, 0, Some(529))),
            (599, vec![request("a", 1, Some((Phase::Running, 1)))], (0, 0, None)),
            (600, vec![request("a", 1, waits)], (0, 0, Some(600))),
            (1200, vec![request("a", 1, waits)], (0, 1, None)),
        ] {
            assert_eq!(planned(after, &requests), expected, "after {after} s");
        }
    }

    #[test]
    fn one_that_is_wanted_again_does_not_go_with_those_of_its_earlier_phase() {
        let done = Some((Phase::Done, 1));
        let (mut seen, start) = (Seen::default(), Instant::now());
        let both = [request("a", 1, done), request("b", 2, done)];
        seen.plan(&both, |_| true, start);
        let plan = seen.plan(&both, |_| true, start + READABLE);
        let singly: Vec<_> = plan.singly.iter().map(|one| one.metadata.uid.clone()).collect();
        assert_eq!((plan.ended, singly), (vec![], vec![Some("a".to_owned())]));
    }

    #[test]
    fn what_was_begun_on_a_node_that_is_gone_is_given_up() {
        let running = [request("a", 1, Some((Phase::Running, 1)))];
        let (mut seen, start) = (Seen::default(), Instant::now());
        for (after, has_node, given_up, next) in [
            (0, true, 0, None),
            (1, false, 0, Some(600)),
            (600, false, 0, Some(1)),
            (601, false, 1, None),
            (602, true, 0, None),
            (1300, false, 0, Some(600)), // It has begun anew.
        ] {
            let plan = seen.plan(&running, |_| has_node, start + Duration::from_secs(after));
            let told = (plan.given_up.len(), plan.next.map(|next| next.as_secs()));
            assert_eq!(told, (given_up, next), "after {after} s");
        }
    }
}
