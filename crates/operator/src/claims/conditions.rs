//! Conditions of a PvcAutoscaler, for `kubectl wait` and deployment tools. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::reason::AutoscalerReason;
use crate::api::{AutoscalerPhase, Judged, PvcAutoscalerStatus, READY, STALLED};

/// A change is in progress, or waits for what comes without anyone's help.
const RECONCILING: &str = "Reconciling";

/// Returns the conditions of a status; an unchanged condition retains its time.
pub(super) fn conditions(status: &PvcAutoscalerStatus, now: &Time) -> Vec<Condition> {
    let judged =
        [(READY, ready(status)), (RECONCILING, reconciling(status)), (STALLED, stalled(status))];
    let told = judged.into_iter().map(|(kind, judged)| Condition {
        observed_generation: Some(status.observed_generation),
        ..judged.condition(kind, &status.conditions, now)
    });
    told.collect()
}

fn ready(status: &PvcAutoscalerStatus) -> Judged {
    if status.phase == AutoscalerPhase::InSync {
        let message = format!("{} claims match the template", status.ready_claims());
        return Judged { is_so: true, reason: "InSync".to_owned(), message };
    }
    let phase = format!("{:?}", status.phase);
    let told =
        [&status.progress, &status.message, &status.planned_action].into_iter().flatten().next();
    let message = told.cloned().unwrap_or_else(|| {
        format!("{} claims match the template, the others do not yet", status.ready_claims())
    });
    Judged { is_so: false, reason: phase, message }
}

fn reconciling(status: &PvcAutoscalerStatus) -> Judged {
    let rests = matches!(status.phase, AutoscalerPhase::InSync | AutoscalerPhase::DryRun);
    if rests || needs_action(status) {
        let message = "nothing is in progress".to_owned();
        return Judged { is_so: false, reason: "NotReconciling".to_owned(), message };
    }
    let Judged { reason, message, .. } = ready(status);
    Judged {
        is_so: true,
        reason: status.reason.clone().unwrap_or(reason),
        message: status.message.clone().unwrap_or(message),
    }
}

fn stalled(status: &PvcAutoscalerStatus) -> Judged {
    match &status.reason {
        Some(reason) if needs_action(status) => Judged {
            is_so: true,
            reason: reason.clone(),
            message: status.message.clone().unwrap_or_default(),
        },
        _ => Judged {
            is_so: false,
            reason: "NotStalled".to_owned(),
            message: "nothing prevents the claims from reaching the desired state".to_owned(),
        },
    }
}

/// Returns true if a status has a reason that only a person can end, or one that is not known here.
fn needs_action(status: &PvcAutoscalerStatus) -> bool {
    let Some(told) = &status.reason else { return false };
    let known = AutoscalerReason::ALL.into_iter().find(|reason| reason.to_string() == *told);
    known.is_none_or(AutoscalerReason::needs_action)
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
        let rests = "Reconciling=False NotReconciling: nothing is in progress";
        let settled = PvcAutoscalerStatus {
            phase: AutoscalerPhase::InSync,
            claim_count: 3,
            ready_claim_count: 3,
            ..PvcAutoscalerStatus::default()
        };
        let grows = PvcAutoscalerStatus {
            phase: AutoscalerPhase::Expanding,
            progress: told("claim data-db-0 grows from 1Gi to 2Gi"),
            ..settled.clone()
        };
        let waits = PvcAutoscalerStatus {
            phase: AutoscalerPhase::Waiting,
            reason: told("PodNotReady"),
            message: told("pod db-1 is not ready"),
            planned_action: told("pod db-0 is stopped"),
            ..settled.clone()
        };
        let lacks = PvcAutoscalerStatus {
            reason: told("InsufficientCapacity"),
            message: told("1Gi is missing"),
            ..waits.clone()
        };
        let would = PvcAutoscalerStatus { phase: AutoscalerPhase::DryRun, ..grows.clone() };
        let foreign = PvcAutoscalerStatus { reason: told("OfAnotherVersion"), ..lacks.clone() };
        for (status, expected) in [
            (settled, ["Ready=True InSync: 3/3 claims match the template", rests, free]),
            (
                grows,
                [
                    "Ready=False Expanding: claim data-db-0 grows from 1Gi to 2Gi",
                    "Reconciling=True Expanding: claim data-db-0 grows from 1Gi to 2Gi",
                    free,
                ],
            ),
            (
                waits,
                [
                    "Ready=False Waiting: pod db-1 is not ready",
                    "Reconciling=True PodNotReady: pod db-1 is not ready",
                    free,
                ],
            ),
            (
                lacks,
                [
                    "Ready=False Waiting: 1Gi is missing",
                    rests,
                    "Stalled=True InsufficientCapacity: 1Gi is missing",
                ],
            ),
            (would, ["Ready=False DryRun: claim data-db-0 grows from 1Gi to 2Gi", rests, free]),
            (
                foreign,
                [
                    "Ready=False Waiting: 1Gi is missing",
                    rests,
                    "Stalled=True OfAnotherVersion: 1Gi is missing",
                ],
            ),
        ] {
            let told: Vec<String> = conditions(&status, &at(1)).iter().map(short).collect();
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn a_condition_that_stays_keeps_its_time_and_tells_of_what_it_is() {
        let mut status = PvcAutoscalerStatus { observed_generation: 1, ..Default::default() };
        status.conditions = conditions(&status, &at(1));
        status.observed_generation = 2;
        status.reason = Some("InsufficientCapacity".to_owned());
        status.conditions = conditions(&status, &at(2));
        let times: Vec<i64> =
            status.conditions.iter().map(|one| one.last_transition_time.0.as_second()).collect();
        assert_eq!(times, [1, 2, 2]);
        assert!(status.conditions.iter().all(|one| one.observed_generation == Some(2)));
        assert_eq!(conditions(&status, &at(3)), status.conditions, "again changes nothing");
    }
}
