//! Removes requests that nobody needs any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Phase, VolumeRequest};
use crate::causes;
use crate::cluster::Requests;

/// How long a request that has ended can be read by people.
const READABLE: Duration = Duration::from_secs(30);
/// How long a request waits for its agent. Who still wants it writes it again.
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
}

/// Since when each request stays, by its uid: since it was first seen so. The times in it are of the
/// clocks of others.
#[derive(Debug, Default)]
struct Seen(HashMap<(String, Stays), Instant>);

/// What is due now, and how long it is until the next is.
#[derive(Debug, Default)]
struct Plan {
    /// The phases of those that have ended.
    ended: Vec<Phase>,
    given_up: Vec<Arc<VolumeRequest>>,
    next: Option<Duration>,
}

/// Remove what has ended, and what no agent has taken up for long, until `stop`.
pub async fn run(requests: &Requests, stop: CancellationToken) {
    let cleaned = async {
        let mut seen = Seen::default();
        loop {
            let plan = requests
                .watched()
                .until(|all| {
                    let plan = seen.plan(&all.all(), Instant::now());
                    (plan.next.is_some() || plan.is_due()).then_some(plan)
                })
                .await;
            if plan.is_due()
                && let Err(error) = apply(requests, &plan).await
            {
                tracing::warn!(error = causes::in_full(&error), "ended requests stay for now");
            }
            // Also after a removal: until the watch tells of it, it would be due once more.
            tokio::time::sleep(plan.next.unwrap_or(LOOK).min(LOOK)).await;
        }
    };
    stop.run_until_cancelled(cleaned).await;
}

impl Plan {
    fn is_due(&self) -> bool {
        !self.ended.is_empty() || !self.given_up.is_empty()
    }
}

impl Stays {
    fn of(request: &VolumeRequest) -> Option<Stays> {
        if request.is_waiting() {
            return Some(Stays::Waits);
        }
        request.has_ended().then_some(Stays::Ended)
    }

    fn patience(self) -> Duration {
        match self {
            Stays::Ended => READABLE,
            Stays::Waits => WAITS,
        }
    }
}

impl Seen {
    fn plan(&mut self, requests: &[Arc<VolumeRequest>], now: Instant) -> Plan {
        let before = std::mem::take(&mut self.0);
        let mut plan = Plan::default();
        for request in requests {
            let Some(stays) = Stays::of(request) else { continue };
            let key = (request.metadata.uid.clone().unwrap_or_default(), stays);
            let since = *before.get(&key).unwrap_or(&now);
            self.0.insert(key, since);
            let left = stays.patience().saturating_sub(now - since);
            match stays {
                _ if !left.is_zero() => {
                    plan.next = Some(plan.next.map_or(left, |next| next.min(left)));
                }
                Stays::Ended => {
                    let phase = request.status.clone().unwrap_or_default().phase;
                    if !plan.ended.contains(&phase) {
                        plan.ended.push(phase);
                    }
                }
                Stays::Waits => plan.given_up.push(request.clone()),
            }
        }
        plan
    }
}

async fn apply(requests: &Requests, plan: &Plan) -> Result<(), kube::Error> {
    for phase in &plan.ended {
        requests.clear_ended(*phase).await?;
    }
    for request in &plan.given_up {
        let name = request.metadata.name.as_deref().unwrap_or_default();
        tracing::warn!(request = name, node = request.spec.node, "no agent has taken it up");
        requests.clear(request).await?;
    }
    Ok(())
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
            let plan = seen.plan(requests, start + Duration::from_secs(after));
            (plan.ended.len(), plan.given_up.len(), plan.next.map(|next| next.as_secs()))
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
}
