//! Removes requests that nobody needs any more.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::api::VolumeRequest;
use crate::causes;
use crate::cluster::Requests;

/// How long a request that has ended can be read by people.
const READABLE: Duration = Duration::from_secs(30);
/// How long a request waits for its agent. Who still wants it writes it again.
const WAITS: Duration = Duration::from_secs(600);
/// After an API server that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// What is due now, and when the next is.
#[derive(Debug, PartialEq)]
struct Plan {
    ended: bool,
    given_up: Vec<Arc<VolumeRequest>>,
    next: Option<Duration>,
}

/// Remove what has ended, and what no agent has taken up for long, until `stop`.
pub async fn run(requests: &Requests, stop: CancellationToken) {
    let cleaned = async {
        loop {
            let plan = requests
                .watched()
                .until(|all| {
                    let plan = plan(&all.all(), Timestamp::now());
                    (plan.next.is_some() || plan.is_due()).then_some(plan)
                })
                .await;
            if !plan.is_due() {
                tokio::time::sleep(plan.next.unwrap_or(AGAIN)).await;
            } else if let Err(error) = apply(requests, &plan).await {
                tracing::warn!(error = causes::in_full(&error), "ended requests stay for now");
                tokio::time::sleep(AGAIN).await;
            } else {
                // What was removed is told by the watch; until then it would be due once more.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    };
    stop.run_until_cancelled(cleaned).await;
}

impl Plan {
    fn is_due(&self) -> bool {
        self.ended || !self.given_up.is_empty()
    }
}

fn plan(requests: &[Arc<VolumeRequest>], now: Timestamp) -> Plan {
    let mut plan = Plan { ended: false, given_up: Vec::new(), next: None };
    for request in requests {
        let status = request.status.clone().unwrap_or_default();
        let (since, wait) = match status.finished_at {
            Some(ended) if status.phase.is_final() => (Some(ended.0), READABLE),
            _ if status.observed_generation == 0 => {
                (request.metadata.creation_timestamp.as_ref().map(|made| made.0), WAITS)
            }
            _ => continue,
        };
        // A clock that is ahead is taken for one that has just struck.
        let age = since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
        let age = Duration::try_from(age).unwrap_or_default();
        match wait.checked_sub(age).filter(|left| !left.is_zero()) {
            Some(left) => plan.next = Some(plan.next.map_or(left, |next| next.min(left))),
            None if status.phase.is_final() => plan.ended = true,
            None => plan.given_up.push(request.clone()),
        }
    }
    plan
}

async fn apply(requests: &Requests, plan: &Plan) -> Result<(), kube::Error> {
    if plan.ended {
        requests.clear_ended().await?;
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::{Phase, Remove, VolumeRequestSpec, VolumeRequestStatus, Work};

    fn request(age: u64, status: Option<(Phase, Option<u64>)>) -> Arc<VolumeRequest> {
        let ago =
            |seconds: u64| Time(Timestamp::UNIX_EPOCH + Duration::from_secs(10_000 - seconds));
        let (node, volume) = ("a".to_owned(), "v".to_owned());
        let work = Work::Remove(Remove {});
        let mut request = VolumeRequest::new("r", VolumeRequestSpec { node, volume, work });
        request.metadata.creation_timestamp = Some(ago(age));
        request.status = status.map(|(phase, ended)| VolumeRequestStatus {
            phase,
            observed_generation: 1,
            finished_at: ended.map(ago),
            ..Default::default()
        });
        Arc::new(request)
    }

    fn planned(requests: &[Arc<VolumeRequest>]) -> (bool, usize, Option<u64>) {
        let plan = plan(requests, Timestamp::UNIX_EPOCH + Duration::from_secs(10_000));
        (plan.ended, plan.given_up.len(), plan.next.map(|next| next.as_secs()))
    }

    #[test]
    fn what_has_ended_stays_a_while_and_what_runs_stays() {
        assert_eq!(planned(&[]), (false, 0, None));
        assert_eq!(planned(&[request(900, Some((Phase::Running, None)))]), (false, 0, None));
        let fresh = request(900, Some((Phase::Done, Some(10))));
        let old = request(900, Some((Phase::Failed, Some(31))));
        assert_eq!(planned(std::slice::from_ref(&fresh)), (false, 0, Some(20)));
        assert_eq!(planned(&[fresh, old]), (true, 0, Some(20)));
    }

    #[test]
    fn what_no_agent_takes_up_is_given_up() {
        assert_eq!(planned(&[request(100, None)]), (false, 0, Some(500)));
        assert_eq!(planned(&[request(601, None)]), (false, 1, None));
    }
}
