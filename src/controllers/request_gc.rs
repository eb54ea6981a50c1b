//! Deletes VolumeRequests that are no longer needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{NodeStorage, Operation, Phase, VolumeRequest};
use crate::cluster::{
    Change, Changed, Nodes, Requests, Timers, Turnover, begun_again, has_sends, is_send_in_use,
    leaves_unnamed, may_have_made, send_of,
};
use crate::controllers::{is_done, until};

/// What panics are counted under.
const LOOP: &str = "volumerequests";

/// How long a request that has ended can be read by people.
const READABLE: Duration = Duration::from_secs(30);
/// How long a request waits for its node plugin, and one that was begun for a node that is not
/// there any more. Who still wants it writes it again.
const WAITS: Duration = Duration::from_secs(600);
/// After this it is due once more, unless the watch has told by then that it is gone.
const AGAIN: Duration = Duration::from_secs(10);
/// Between two looks: many end together, and go by one call.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a request stays for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stays {
    /// It has ended.
    Ended,
    /// No node plugin has taken it up.
    Waits,
    /// Its node has no record: a node plugin that lives writes that within a minute.
    Orphaned,
    /// It has ended, and no record tells of the volume that it may have made: only by it is known where that is.
    Witness,
    /// It permits another node to read what a volume begins with that is being created.
    Permits,
    /// It permits that, and no such volume is being created.
    PermitsNothing,
}

/// Which requests stay, and when each is due: so long after it was first seen so. The times in it are of the clocks
/// of others.
#[derive(Debug, Default)]
struct ObservedRequests {
    /// By uid.
    known: HashMap<String, (Arc<VolumeRequest>, Stays)>,
    due: Timers<String>,
}

/// What is due now.
#[derive(Debug, Default)]
struct DueWork {
    /// The phases of those that have ended: all of one go by one call.
    ended: Vec<Phase>,
    /// Those of a phase in which one may have to stay: it is not to go with them.
    singly: Vec<Arc<VolumeRequest>>,
    given_up: Vec<Arc<VolumeRequest>>,
    /// The uids of all of them.
    uids: Vec<String>,
}

/// Deletes VolumeRequests that have finished, and those that no node plugin will execute, until
/// `stop`.
pub async fn run(requests: &Requests, nodes: &Nodes, stop: CancellationToken) {
    let cleaned = begun_again(LOOP, async || {
        let mut seen = ObservedRequests::default();
        let mut of_requests = requests.watched().subscribe();
        let mut of_nodes = nodes.watched().subscribe();
        let stays = |request: &VolumeRequest| Stays::of(request, nodes, requests);
        loop {
            let now = Instant::now();
            for request in of_changed(of_nodes.take(), requests) {
                seen.note(&request, stays, now);
            }
            let changed = of_requests.take();
            let sends = of_created(&changed, requests);
            seen.take(changed, stays, now);
            for request in sends {
                seen.note(&request, stays, now);
            }
            // One that was just told as done may be the only witness of its volume, or a permit.
            let may_stay =
                |phase| requests.has_renewed(phase) || nodes.has_unnamed() || has_sends(requests);
            let plan = seen.plan(may_stay, now);
            apply(requests, &plan).await;
            seen.put_off(plan.uids, Instant::now() + AGAIN);
            let next = seen.due.next();
            let next = next.map(|at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = of_requests.changed() => {}
                () = of_nodes.changed() => {}
                () = until(next) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    stop.run_until_cancelled(cleaned).await;
}

/// The requests to nodes whose record has come or gone, or does not name all volumes.
fn of_changed(changed: Changed<NodeStorage>, requests: &Requests) -> Vec<Arc<VolumeRequest>> {
    match changed {
        Changed::Everything(_) => requests.watched().all(),
        Changed::These(these) => {
            let is_one = |one: &&Change<NodeStorage>| {
                one.before.is_some() != one.now.is_some()
                    || one.both().any(|record| leaves_unnamed(record))
            };
            these.iter().filter(is_one).flat_map(|one| requests.on(&one.place.1)).collect()
        }
    }
}

/// The requests that permit to read what changed requests create volumes with.
fn of_created(changed: &Changed<VolumeRequest>, requests: &Requests) -> Vec<Arc<VolumeRequest>> {
    let Changed::These(these) = changed else { return Vec::new() };
    let created = these.iter().flat_map(Change::both);
    created.filter_map(|request| send_of(requests, request)).collect()
}

impl Stays {
    fn of(request: &VolumeRequest, nodes: &Nodes, requests: &Requests) -> Option<Stays> {
        let permits = matches!(request.spec.operation, Operation::Send(_))
            && request.status_or_default().phase == Phase::Succeeded;
        if permits {
            let is_used = is_send_in_use(requests, request);
            return Some(if is_used { Stays::Permits } else { Stays::PermitsNothing });
        }
        let is_untold = |request: &VolumeRequest| {
            let volume = request.spec.volume_handle.parse().ok();
            volume.is_some_and(|volume| nodes.may_leave_unnamed(&volume))
        };
        if may_have_made(request) && is_untold(request) {
            return Some(Stays::Witness);
        }
        Stays::of_one_that_is_told(request, nodes.watched().get(&request.spec.node_name).is_some())
    }

    fn of_one_that_is_told(request: &VolumeRequest, has_node: bool) -> Option<Stays> {
        if request.is_waiting() {
            return Some(Stays::Waits);
        }
        if request.has_ended() {
            return Some(Stays::Ended);
        }
        (!has_node).then_some(Stays::Orphaned)
    }

    /// After how long it is due; `None` is never, as long as it stays so.
    fn patience(self) -> Option<Duration> {
        match self {
            Stays::Ended => Some(READABLE),
            // Longer than the provisioner pauses before it asks again.
            Stays::Waits | Stays::Orphaned | Stays::PermitsNothing => Some(WAITS),
            Stays::Witness | Stays::Permits => None,
        }
    }
}

impl ObservedRequests {
    /// Takes what has changed of the requests.
    fn take(
        &mut self,
        changed: Changed<VolumeRequest>,
        stays: impl Fn(&VolumeRequest) -> Option<Stays>,
        now: Instant,
    ) {
        let Turnover { gone, there } = changed.turnover(self.known.keys(), |_| true);
        for uid in &gone {
            self.forget(uid);
        }
        for one in &there {
            self.note(one, &stays, now);
        }
    }

    /// Notes how a request is now; as long as it stays for the same reason it is due when it was.
    fn note(
        &mut self,
        request: &Arc<VolumeRequest>,
        stays: impl Fn(&VolumeRequest) -> Option<Stays>,
        now: Instant,
    ) {
        let uid = uid(request);
        let Some(stays) = stays(request) else {
            return self.forget(uid);
        };
        let before = self.known.insert(uid.to_owned(), (request.clone(), stays));
        if before.is_some_and(|(_, before)| before == stays) {
            return;
        }
        match stays.patience() {
            Some(patience) => self.due.set(uid.to_owned(), now + patience),
            None => drop(self.due.remove(&uid.to_owned())),
        }
    }

    fn forget(&mut self, uid: &str) {
        self.known.remove(uid);
        self.due.remove(&uid.to_owned());
    }

    /// Takes what is due; `may_stay` tells whether a request that has ended in a phase may have to stay.
    fn plan(&mut self, may_stay: impl Fn(Phase) -> bool, now: Instant) -> DueWork {
        let mut plan = DueWork::default();
        while let Some((uid, _)) = self.due.take_due(now) {
            let Some((request, stays)) = self.known.get(&uid) else { continue };
            plan.uids.push(uid);
            let phase = request.status.as_ref().map(|status| status.phase);
            match (stays, phase) {
                (Stays::Ended, Some(phase)) if may_stay(phase) => {
                    plan.singly.push(request.clone());
                }
                (Stays::Ended, Some(phase)) if plan.ended.contains(&phase) => {}
                (Stays::Ended, Some(phase)) => plan.ended.push(phase),
                (Stays::PermitsNothing, _) => plan.singly.push(request.clone()),
                (Stays::Ended, None) | (Stays::Witness | Stays::Permits, _) => {}
                (Stays::Waits | Stays::Orphaned, _) => plan.given_up.push(request.clone()),
            }
        }
        plan
    }

    /// Have those that are still there then be due at that time.
    fn put_off(&mut self, uids: Vec<String>, at: Instant) {
        let known = uids.into_iter().filter(|uid| self.known.contains_key(uid));
        known.for_each(|uid| self.due.set(uid, at));
    }
}

/// What is not done now is due once more.
async fn apply(requests: &Requests, plan: &DueWork) {
    for phase in &plan.ended {
        is_done(LOOP, phase.as_str(), requests.clear_ended(*phase)).await;
    }
    for request in &plan.singly {
        is_done(LOOP, name(request), requests.clear(request)).await;
    }
    for request in &plan.given_up {
        let name = name(request);
        tracing::warn!(
            request = name,
            node = request.spec.node_name,
            "deleting a VolumeRequest that no \
                                                                  node plugin processes"
        );
        is_done(LOOP, name, requests.clear(request)).await;
    }
}

fn uid(request: &VolumeRequest) -> &str {
    request.metadata.uid.as_deref().unwrap_or_default()
}

fn name(request: &VolumeRequest) -> &str {
    request.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Delete, Operation, VolumeRequestSpec, VolumeRequestStatus};

    fn request(uid: &str, generation: i64, told: Option<(Phase, i64)>) -> Arc<VolumeRequest> {
        let (node, volume) = ("a".to_owned(), "v".to_owned());
        let work = Operation::Delete(Delete {});
        let mut request = VolumeRequest::new(
            "r",
            VolumeRequestSpec { node_name: node, volume_handle: volume, operation: work },
        );
        request.metadata.uid = Some(uid.to_owned());
        request.metadata.generation = Some(generation);
        request.status = told.map(|(phase, observed_generation)| VolumeRequestStatus {
            observed_generation,
            phase,
            ..Default::default()
        });
        Arc::new(request)
    }

    /// What is due of these, and how many seconds it is until another one is.
    fn look(
        seen: &mut ObservedRequests,
        all: &[Arc<VolumeRequest>],
        has_node: bool,
        now: Instant,
    ) -> (DueWork, Option<u64>) {
        let stays = |one: &VolumeRequest| Stays::of_one_that_is_told(one, has_node);
        seen.take(Changed::Everything(all.to_vec()), stays, now);
        let ended = |one: &VolumeRequest| one.status.as_ref().map(|status| status.phase);
        let is_renewed =
            |phase| all.iter().any(|one| ended(one) == Some(phase) && !one.has_ended());
        let plan = seen.plan(is_renewed, now);
        (plan, seen.due.next().map(|at| (at - now).as_secs()))
    }

    #[test]
    fn a_request_stays_readable_and_an_unanswered_one_waits() {
        let (done, waits) = (Some((Phase::Succeeded, 1)), None);
        let (mut seen, start) = (ObservedRequests::default(), Instant::now());
        let mut planned = |after: u64, requests: &[Arc<VolumeRequest>]| {
            let (plan, next) = look(&mut seen, requests, true, start + Duration::from_secs(after));
            (plan.ended.len() + plan.singly.len(), plan.given_up.len(), next)
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
        let done = Some((Phase::Succeeded, 1));
        let (mut seen, start) = (ObservedRequests::default(), Instant::now());
        let both = [request("a", 1, done), request("b", 2, done)];
        look(&mut seen, &both, true, start);
        let (plan, _) = look(&mut seen, &both, true, start + READABLE);
        let singly: Vec<_> = plan.singly.iter().map(|one| one.metadata.uid.clone()).collect();
        assert_eq!((plan.ended, singly), (vec![], vec![Some("a".to_owned())]));
    }

    #[test]
    fn what_was_begun_on_a_node_that_is_gone_is_given_up() {
        let running = [request("a", 1, Some((Phase::Running, 1)))];
        let (mut seen, start) = (ObservedRequests::default(), Instant::now());
        for (after, has_node, given_up, next) in [
            (0, true, 0, None),
            (1, false, 0, Some(600)),
            (600, false, 0, Some(1)),
            (601, false, 1, None),
            (602, true, 0, None),
            (1300, false, 0, Some(600)), // It has begun anew.
        ] {
            let now = start + Duration::from_secs(after);
            let (plan, left) = look(&mut seen, &running, has_node, now);
            assert_eq!((plan.given_up.len(), left), (given_up, next), "after {after} s");
        }
    }
}
