//! An error and its causes as one line: what a person reads, and a log or an API object has.

use std::error::Error;

/// Returns an error's sentence and those of its causes, the outermost first, each once.
pub fn in_full(error: &(dyn Error + 'static)) -> String {
    in_full_with(error, |_| None)
}

/// Like [`in_full`], where some errors are a sentence of their own: `whole` returns it, and their causes add nothing.
pub fn in_full_with(
    error: &(dyn Error + 'static),
    whole: impl Fn(&(dyn Error + 'static)) -> Option<String>,
) -> String {
    let sentence =
        |error: &(dyn Error + 'static)| whole(error).unwrap_or_else(|| error.to_string());
    let mut text = sentence(error);
    let mut last = error;
    while let Some(cause) = last.source().filter(|_| whole(last).is_none()) {
        match text.strip_suffix(&cause.to_string()) {
            Some(before) => text = format!("{before}{}", sentence(cause)),
            None => text = format!("{text}: {}", sentence(cause)),
        }
        last = cause;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{what}")]
    struct Failed {
        what: &'static str,
        source: Option<Box<Failed>>,
    }

    #[test]
    fn the_causes_stand_after_what_they_caused() {
        let read = Failed { what: "read sda: EIO", source: None };
        let group = Failed { what: "the group could not be read", source: Some(Box::new(read)) };
        let error = Failed { what: "no list", source: Some(Box::new(group)) };
        assert_eq!(in_full(&error), "no list: the group could not be read: read sda: EIO");
    }
}
