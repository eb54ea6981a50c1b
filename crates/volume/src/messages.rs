//! Lists and suggestions for messages.

use std::fmt::Display;

/// How many names are reported before the rest is counted.
const NAMED: usize = 3;

/// Names in one line, and how many more there are where they are many: `a`, `a and b`,
/// `a, b, c and 2 more`.
pub fn few<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    let mut names = names.into_iter().map(|name| name.to_string());
    let mut told: Vec<String> = names.by_ref().take(NAMED).collect();
    let more = names.count();
    let last = if more > 0 { Some(format!("{more} more")) } else { told.pop() };
    match (told.join(", "), last.unwrap_or_default()) {
        (before, last) if before.is_empty() => last,
        (before, last) => format!("{before} and {last}"),
    }
}

/// Words of which one is to be chosen: `a, b or c`.
pub fn either(words: &[&str]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// The known word that `word` was probably meant to be, or `None` if none is near.
///
/// Near is: a third of its letters, rounded up, are wrong, missing, too many or swapped.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(word, known), *known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(3))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_ends_with_or() {
        for (words, told) in
            [(&["a"][..], "a"), (&["a", "b"], "a or b"), (&["a", "b", "c"], "a, b or c")]
        {
            assert_eq!(either(words), told);
        }
    }

    #[test]
    fn a_few_names_are_told_and_many_are_counted() {
        for (names, told) in [
            (&[][..], ""),
            (&["a"], "a"),
            (&["a", "b"], "a and b"),
            (&["a", "b", "c"], "a, b and c"),
            (&["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
        ] {
            assert_eq!(few(names), told);
        }
    }
}
