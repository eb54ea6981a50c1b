//! An error and its causes as one line, where an API server may be among them.

use std::error::Error;

use crate::volume::error_chain;

/// Returns an error's sentence and those of its causes, the outermost first, each once. Of what an API server
/// refused it is the server's own sentence.
pub fn in_full(error: &(dyn Error + 'static)) -> String {
    error_chain::in_full_with(error, refusal)
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
}
