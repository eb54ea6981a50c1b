//! Step by which a claim grows. Pure.

use crate::api::{Autoscale, Quantity};
use crate::bytes::Bytes;

/// Sizes are multiples of this.
pub(super) const UNIT: Bytes = Bytes::mib(1);

/// The size after the next step.
pub(super) fn next(policy: &Autoscale, requested: Quantity) -> Quantity {
    unbounded(policy, requested).min(policy.max_size)
}

/// Returns the next step without `maxSize`.
fn unbounded(policy: &Autoscale, requested: Quantity) -> Quantity {
    let by = policy.grow_by.of(requested.0).max(policy.min_step.0);
    let by = policy.max_step.map_or(by, |most| by.min(most.0));
    rounded_up(Bytes::new(requested.0.get().saturating_add(by.get())))
}

/// Describes what makes the next step differ from `growBy`; empty if nothing does.
pub(super) fn because(policy: &Autoscale, requested: Quantity) -> String {
    let by = Quantity(policy.grow_by.of(requested.0));
    let least = policy.min_step;
    if unbounded(policy, requested) > policy.max_size {
        return ", which is maxSize".to_owned();
    }
    match policy.max_step {
        Some(most) if by.max(least) > most => {
            format!(", by maxStep ({most}), which is less than growBy ({})", policy.grow_by)
        }
        _ if least > by => {
            format!(", by minStep ({least}), which is more than growBy ({})", policy.grow_by)
        }
        _ => String::new(),
    }
}

/// Returns the size after half of a step that did not fit; `None` if that is less than half of the
/// smallest step, so that also the smallest one is halved once.
///
/// A claim cannot request what it already has, so the result is always a little more.
pub(super) fn halved(
    policy: &Autoscale,
    capacity: Quantity,
    requested: Quantity,
) -> Option<Quantity> {
    let half = requested.0.saturating_sub(capacity.0).get() / 2 / UNIT.get() * UNIT.get();
    let least = (policy.min_step.0.get() / 2).max(UNIT.get());
    (half >= least).then(|| Quantity(capacity.0 + Bytes::new(half)))
}

/// A size that claims ask for.
pub(super) fn rounded_up(size: Bytes) -> Quantity {
    let most = Bytes::MAX.get() / UNIT.get() * UNIT.get();
    Quantity(Bytes::new(size.get().min(most).next_multiple_of(UNIT.get())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(more: &Value) -> Autoscale {
        let mut all = json!({"maxSize": "100Gi"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn size(text: &str) -> Quantity {
        Quantity(text.parse().unwrap())
    }

    #[test]
    fn a_step_that_is_not_the_one_of_grow_by_says_which_bound_made_it_so() {
        for (more, has, words) in [
            (
                json!({"growBy": "20Mi"}),
                "50Mi",
                ", by minStep (1Gi), which is more than growBy (20Mi)",
            ),
            (json!({}), "2Gi", ", by minStep (1Gi), which is more than growBy (25%)"),
            (json!({"growBy": "20Mi", "minStep": "20Mi"}), "50Mi", ""),
            (json!({}), "4Gi", ""),
            (json!({"growBy": "20Mi", "maxSize": "200Mi"}), "50Mi", ", which is maxSize"),
            (json!({"growBy": "50Gi"}), "90Gi", ", which is maxSize"),
            (json!({"growBy": "10Gi"}), "90Gi", ""),
            (
                json!({"growBy": "50Gi", "maxStep": "20Gi"}),
                "40Gi",
                ", by maxStep (20Gi), which is less than growBy (50Gi)",
            ),
        ] {
            assert_eq!(because(&policy(&more), size(has)), words, "{more} {has}");
        }
    }

    #[test]
    fn a_step_is_percent_or_bytes_and_has_its_bounds() {
        for (by, from, to) in [
            (json!({}), "40Gi", "50Gi"),
            (json!({}), "2Gi", "3Gi"),
            (json!({"growBy": "50%"}), "40Gi", "60Gi"),
            (json!({"growBy": "3Gi"}), "40Gi", "43Gi"),
            (json!({"growBy": "3Gi"}), "2Gi", "5Gi"),
            (json!({"growBy": "1Mi"}), "2Gi", "3Gi"),
            (json!({"growBy": "1Mi", "minStep": "0"}), "2Gi", "2049Mi"),
            (json!({"growBy": "50Gi", "maxStep": "20Gi"}), "40Gi", "60Gi"),
            (json!({"growBy": "50Gi"}), "90Gi", "100Gi"),
            (json!({"growBy": "1M", "minStep": "0"}), "2Gi", "2049Mi"),
            (json!({"growBy": "999%", "maxSize": "7Ei"}), "6Ei", "7Ei"),
        ] {
            assert_eq!(next(&policy(&by), size(from)), size(to), "{by} from {from}");
        }
    }

    #[test]
    fn a_step_is_halved_until_it_is_less_than_half_of_the_smallest() {
        let policy = policy(&json!({}));
        let mut asked = vec![size("125Gi")];
        while let Some(less) = halved(&policy, size("100Gi"), *asked.last().unwrap()) {
            asked.push(less);
        }
        let asked: Vec<String> = asked.iter().map(Quantity::to_string).collect();
        assert_eq!(asked, ["125Gi", "115200Mi", "108800Mi", "105600Mi", "104000Mi", "103200Mi"]);
        assert_eq!(halved(&policy, size("4Gi"), size("5Gi")), Some(size("4608Mi")), "once");
        assert_eq!(halved(&policy, size("4Gi"), size("4608Mi")), None);
        assert_eq!(halved(&policy, size("4Gi"), size("4Gi")), None);
        let tiny = self::policy(&json!({"minStep": "0"}));
        assert_eq!(halved(&tiny, size("4Gi"), size("4097Mi")), None, "never what it has already");
    }
}
