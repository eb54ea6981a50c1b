//! Conditions of a PvcAutoscaler, for `kubectl wait` and deployment tools. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{AutoscalerPhase, Judged, PvcAutoscalerStatus, READY};

/// Something prevents the claims from reaching the desired state.
const STALLED: &str = "Stalled";

/// Returns the conditions of a status; an unchanged condition retains its time.
pub(super) fn conditions(status: &PvcAutoscalerStatus, now: &Time) -> Vec<Condition> {
    let judged = [(READY, ready(status)), (STALLED, stalled(status))];
    let told = judged.into_iter().map(|(kind, judged)| Condition {
        observed_generation: Some(status.observed_generation),
        ..judged.condition(kind, &status.conditions, now)
    });
    told.collect()
}

fn ready(status: &PvcAutoscalerStatus) -> Judged {
    if status.phase == AutoscalerPhase::InSync {
        let message = format!("{} claims match the template", status.claims);
        return Judged { is_so: true, reason: "InSync".to_owned(), message };
    }
    let phase = format!("{:?}", status.phase);
    let told = [&status.progress, &status.message, &status.next].into_iter().flatten().next();
    let message = told.cloned().unwrap_or_else(|| {
        format!("{} claims match the template, the others do not yet", status.claims)
    });
    Judged { is_so: false, reason: phase, message }
}

fn stalled(status: &PvcAutoscalerStatus) -> Judged {
    match (&status.reason, &status.message) {
        (Some(reason), message) => Judged {
            is_so: true,
            reason: reason.clone(),
            message: message.clone().unwrap_or_default(),
        },
        (None, _) => Judged {
            is_so: false,
            reason: "NotStalled".to_owned(),
            message: "nothing prevents the claims from reaching the desired state".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn short(one: &Condition) -> String {
        format!("{}={} {}: {}", one.type_, one.status, one.reason, one.message)
    }

    #[test]
    fn claims_are_ready_when_they_are_settled_and_stalled_when_something_is_in_the_way() {
        let told = |text: &str| Some(text.to_owned());
        let free =
            "Stalled=False NotStalled: nothing prevents the claims from reaching the desired state";
        let settled = PvcAutoscalerStatus {
            phase: AutoscalerPhase::InSync,
            claims: "3/3".to_owned(),
            ..PvcAutoscalerStatus::default()
        };
        let grows = PvcAutoscalerStatus {
            phase: AutoscalerPhase::Growing,
            progress: told("claim data-db-0 grows from 1Gi to 2Gi"),
            ..settled.clone()
        };
        let waits = PvcAutoscalerStatus {
            phase: AutoscalerPhase::Waiting,
            reason: told("PodNotReady"),
            message: told("pod db-1 is not ready"),
            next: told("pod db-0 is stopped"),
            ..settled.clone()
        };
        for (status, ready, stalled) in [
            (settled, "Ready=True InSync: 3/3 claims match the template", free),
            (grows, "Ready=False Growing: claim data-db-0 grows from 1Gi to 2Gi", free),
            (
                waits,
                "Ready=False Waiting: pod db-1 is not ready",
                "Stalled=True PodNotReady: pod db-1 is not ready",
            ),
        ] {
            let told: Vec<String> = conditions(&status, &at(1)).iter().map(short).collect();
            assert_eq!(told, [ready, stalled]);
        }
    }

    #[test]
    fn a_condition_that_stays_keeps_its_time_and_tells_of_what_it_is() {
        let mut status = PvcAutoscalerStatus { observed_generation: 1, ..Default::default() };
        status.conditions = conditions(&status, &at(1));
        status.observed_generation = 2;
        status.reason = Some("StorageClassNotFound".to_owned());
        status.conditions = conditions(&status, &at(2));
        let times: Vec<i64> =
            status.conditions.iter().map(|one| one.last_transition_time.0.as_second()).collect();
        assert_eq!(times, [1, 2]);
        assert!(status.conditions.iter().all(|one| one.observed_generation == Some(2)));
        assert_eq!(conditions(&status, &at(3)), status.conditions, "again changes nothing");
    }
}
