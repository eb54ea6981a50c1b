//! Passes of a pre-copy while pods use the source, and when they are enough. Pure.

use crate::api::{Filling, FillingPhase, PreCopy};
use crate::bytes::Bytes;
use crate::populators::PopulatorReason;
use crate::populators::observed::ObservedPopulation;
use crate::populators::outcome::PassReport;
use crate::populators::status::{counted, filling, say, with_reason};
use crate::populators::steps::PopulationStep;

/// Maximum number of passes.
const MOST_PASSES: i32 = 8;

/// Size that is small enough to be left to the final copy.
const LITTLE: Bytes = Bytes::mib(64);

/// Returns the state of a pre-copy after one more pass.
fn after(before: Option<&PreCopy>, round: PassReport, pod: &str) -> PreCopy {
    PreCopy {
        passes: before.map_or(0, |before| before.passes) + 1,
        written_bytes: counted(round.bytes),
        changed_files: counted(round.changing),
        duration_seconds: counted(round.seconds),
        pod_uid: pod.to_owned(),
    }
}

/// Returns true if a further pass would hardly reduce the final copy: this one wrote little, or at
/// least half of the one before, because as much is written meanwhile.
fn is_enough(now: &PreCopy, before: Option<&PreCopy>) -> bool {
    now.passes >= MOST_PASSES
        || now.written_bytes <= counted(LITTLE.get())
        || before.is_some_and(|before| now.written_bytes >= before.written_bytes / 2)
}

/// Reports the end of a pass, once.
pub fn end_round(seen: &ObservedPopulation, pod: &str, round: PassReport) -> Vec<PopulationStep> {
    let before = seen.status_entry().and_then(|told| told.pre_copy.as_ref());
    if before.is_some_and(|before| before.pod_uid == pod) {
        return Vec::new();
    }
    let ahead = after(before, round, pod);
    let waits = seen.fill().and_then(|fill| fill.ahead_of.as_ref());
    let waits = waits.filter(|_| is_enough(&ahead, before));
    let phase = if waits.is_some() { FillingPhase::PreCopied } else { FillingPhase::Populating };
    let filling = filling(seen, phase);
    let filling = Filling {
        pre_copy: Some(ahead),
        pod_uid: None,
        next_retry_time: None,
        failures: 0,
        ..filling
    };
    say(
        seen,
        match waits {
            Some((reason, message)) => with_reason(filling, *reason, message),
            None => filling,
        },
    )
}

/// Reports what the final copy waits for, after the pre-copy.
pub fn stay_ahead(
    seen: &ObservedPopulation,
    (reason, message): &(PopulatorReason, String),
) -> Vec<PopulationStep> {
    say(seen, with_reason(filling(seen, FillingPhase::PreCopied), *reason, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_made_for_as_long_as_they_help() {
        let ahead = |passes, mib| PreCopy {
            passes,
            written_bytes: counted(Bytes::mib(mib).get()),
            ..PreCopy::default()
        };
        for (passes, mib, before, expected) in [
            (1, 1000, None, false),
            (1, 64, None, true),
            (2, 499, Some(1000), false),
            (2, 500, Some(1000), true),
            (3, 2000, Some(1000), true),
            (3, 64, Some(1000), true),
            (7, 65, Some(1000), false),
            (8, 65, Some(1000), true),
        ] {
            let before = before.map(|mib| ahead(passes - 1, mib));
            let enough = is_enough(&ahead(passes, mib), before.as_ref());
            assert_eq!(enough, expected, "pass {passes} with {mib} MiB");
        }
    }
}
