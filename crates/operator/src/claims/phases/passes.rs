//! Words for the passes of a pre-copy. Pure.

/// Returns how often a claim was pre-copied.
pub(super) fn in_rounds(rounds: i32) -> String {
    let word = if rounds == 1 { "pass" } else { "passes" };
    format!("its claim was pre-copied in {rounds} {word}")
}
