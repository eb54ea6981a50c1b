//! Conditions of a populator, for `kubectl wait` and deployment tools. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{Filling, FillingPhase, Judged, PopulatorStatus, READY, STALLED};
use crate::populators::status::in_words;

/// Returns a status with all that follows from its claims, at a generation of the spec. Again it changes nothing.
pub(super) fn judged(status: PopulatorStatus, generation: i64, now: &Time) -> PopulatorStatus {
    let claims = &status.claims;
    let judged = [(READY, ready(claims, generation)), (STALLED, stalled(claims, generation))];
    let conditions = judged.into_iter().map(|(kind, judged)| Condition {
        observed_generation: Some(generation),
        ..judged.condition(kind, &status.conditions, now)
    });
    PopulatorStatus {
        observed_generation: generation,
        claim_count: i32::try_from(claims.len()).unwrap_or(i32::MAX),
        conditions: conditions.collect(),
        ..status
    }
}

/// Returns true if a claim has failed for good: a newer generation retries it.
pub(super) fn has_failed(claim: &Filling, generation: i64) -> bool {
    claim.phase == FillingPhase::Failed && claim.observed_generation == generation
}

fn ready(claims: &[Filling], generation: i64) -> Judged {
    let is_open = |one: &&Filling| one.phase != FillingPhase::Succeeded;
    let open = claims.iter().find(is_open);
    let (is_so, reason, message) = match (claims, first_failed(claims, generation).or(open)) {
        ([], _) => (true, "NoClaims", "no claim names this object".to_owned()),
        ([_], None) => (true, "Populated", "the claim is populated".to_owned()),
        (all, None) => (true, "Populated", format!("all {} claims are populated", all.len())),
        (all, Some(one)) => {
            let has_failed = has_failed(one, generation);
            let reason = if has_failed { "PopulationFailed" } else { "Populating" };
            let done = all.len() - all.iter().filter(is_open).count();
            (
                false,
                reason,
                describe(one, all.len(), &format!("{done} of {} claims are populated", all.len())),
            )
        }
    };
    Judged { is_so, reason: reason.to_owned(), message }
}

fn stalled(claims: &[Filling], generation: i64) -> Judged {
    let Some(one) = first_failed(claims, generation) else {
        let message = "no claim has finally failed".to_owned();
        return Judged { is_so: false, reason: "NotStalled".to_owned(), message };
    };
    let failed = claims.iter().filter(|one| has_failed(one, generation)).count();
    let count = format!("{failed} of {} claims have failed", claims.len());
    Judged {
        is_so: true,
        reason: one.reason.clone().unwrap_or_else(|| "PopulationFailed".to_owned()),
        message: describe(one, claims.len(), &count),
    }
}

fn first_failed(claims: &[Filling], generation: i64) -> Option<&Filling> {
    claims.iter().find(|one| has_failed(one, generation))
}

/// What is said of one claim, after the count if there are others.
fn describe(one: &Filling, of: usize, count: &str) -> String {
    let said = format!("claim {}: {}", one.name, in_words(one));
    if of > 1 { format!("{count}; {said}") } else { said }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn filling(name: &str, phase: FillingPhase, reason: &str) -> Filling {
        let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let message = said(reason).map(|_| "why".to_owned());
        Filling {
            name: name.to_owned(),
            phase,
            reason: said(reason),
            message,
            observed_generation: 2,
            ..Filling::default()
        }
    }

    fn of(claims: Vec<Filling>) -> PopulatorStatus {
        PopulatorStatus { claims, ..PopulatorStatus::default() }
    }

    fn short(status: &PopulatorStatus) -> Vec<String> {
        let short = |one: &Condition| {
            format!("{}={} {}: {}", one.type_, one.status, one.reason, one.message)
        };
        status.conditions.iter().map(short).collect()
    }

    #[test]
    fn a_populator_is_ready_unless_a_claim_is_in_progress_or_has_failed() {
        use FillingPhase::{Failed, Populating, Succeeded, Waiting};
        let free = "Stalled=False NotStalled: no claim has finally failed";
        let done = || filling("a", Succeeded, "");
        let mismatch = || filling("b", Failed, "ChecksumMismatch");
        let retried = || Filling { observed_generation: 1, ..mismatch() };
        for (claims, ready, stalled) in [
            (vec![], "Ready=True NoClaims: no claim names this object", free),
            (vec![done()], "Ready=True Populated: the claim is populated", free),
            (vec![done(), done()], "Ready=True Populated: all 2 claims are populated", free),
            (
                vec![filling("b", Populating, "")],
                "Ready=False Populating: claim b: Populating",
                free,
            ),
            (
                vec![done(), filling("b", Waiting, "PopulatorRetrying")],
                "Ready=False Populating: 1 of 2 claims are populated; claim b: Waiting: PopulatorRetrying: why",
                free,
            ),
            (
                vec![mismatch()],
                "Ready=False PopulationFailed: claim b: Failed: ChecksumMismatch: why",
                "Stalled=True ChecksumMismatch: claim b: Failed: ChecksumMismatch: why",
            ),
            (
                vec![filling("c", Waiting, ""), done(), mismatch()],
                "Ready=False PopulationFailed: 1 of 3 claims are populated; claim b: Failed: ChecksumMismatch: why",
                "Stalled=True ChecksumMismatch: 1 of 3 claims have failed; claim b: Failed: ChecksumMismatch: why",
            ),
            (
                vec![retried()],
                "Ready=False Populating: claim b: Failed: ChecksumMismatch: why",
                free,
            ),
        ] {
            let count = i32::try_from(claims.len()).unwrap();
            let status = judged(of(claims), 2, &at(1));
            assert_eq!(short(&status), [ready, stalled]);
            assert_eq!((status.observed_generation, status.claim_count), (2, count));
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let first = judged(of(vec![filling("b", FillingPhase::Populating, "")]), 2, &at(1));
        assert_eq!(judged(first.clone(), 2, &at(2)), first, "again changes nothing");
        let failed = filling("b", FillingPhase::Failed, "ContentRejected");
        let second = judged(PopulatorStatus { claims: vec![failed], ..first }, 2, &at(3));
        let times = second.conditions.iter().map(|one| one.last_transition_time.0.as_second());
        assert_eq!(times.collect::<Vec<_>>(), [1, 3], "Ready stays False");
        assert!(second.conditions.iter().all(|one| one.observed_generation == Some(2)));
    }
}
