//! An error and its causes as one line: what a person reads, and a log or a record keeps.

use std::error::Error;

/// Returns an error's sentence and those of its causes, the outermost first.
pub fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
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
