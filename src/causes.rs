//! An error and its causes as one line: what a person reads, and a log or a record keeps.

use std::error::Error;

/// Returns an error's sentence and those of its causes, the outermost first, each once. Of what an API server
/// refused it is the server's own sentence.
pub fn in_full(error: &(dyn Error + 'static)) -> String {
    let mut text = sentence(error);
    let mut last = error;
    while let Some(cause) = last.source().filter(|_| refusal(last).is_none()) {
        match text.strip_suffix(&cause.to_string()) {
            Some(before) => text = format!("{before}{}", sentence(cause)),
            None => text = format!("{text}: {}", sentence(cause)),
        }
        last = cause;
    }
    text
}

fn sentence(error: &(dyn Error + 'static)) -> String {
    refusal(error).unwrap_or_else(|| error.to_string())
}

/// What an API server said; the client writes it twice, and its fields behind it.
fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref::<kube::Error>()? {
        kube::Error::Api(status) if status.message.is_empty() => {
            Some(format!("{} ({})", status.reason, status.code))
        }
        kube::Error::Api(status) => Some(status.message.clone()),
        _ => None,
    }
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
    fn what_an_api_server_says_is_its_sentence_alone() {
        let status = || {
            let status = kube::core::Status {
                message: "pods is forbidden: User \"a\" cannot list resource \"pods\"".to_owned(),
                reason: "Forbidden".to_owned(),
                code: 403,
                ..kube::core::Status::default()
            };
            kube::Error::Api(Box::new(status))
        };
        let sentence = "pods is forbidden: User \"a\" cannot list resource \"pods\"";
        assert_eq!(in_full(&status()), sentence);
        let watched = kube::runtime::watcher::Error::InitialListFailed(status());
        assert_eq!(in_full(&watched), format!("failed to perform initial object list: {sentence}"));
    }

    #[test]
    fn the_causes_stand_after_what_they_caused() {
        let read = Failed { what: "read sda: EIO", source: None };
        let group = Failed { what: "the group could not be read", source: Some(Box::new(read)) };
        let error = Failed { what: "no list", source: Some(Box::new(group)) };
        assert_eq!(in_full(&error), "no list: the group could not be read: read sda: EIO");
    }
}
