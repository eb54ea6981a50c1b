//! What people ask of a cluster: how it is, and that a claim grow. A client of the API server, as
//! `kubectl` is one; called `kubectl-pliant` the program is its plugin.

mod grow;
mod status;

pub use grow::grow;
pub use status::{status, table};

/// Why an answer cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The API server, or the way to it.
    #[error("the API server could not be asked for {what}")]
    Api {
        /// For what.
        what: &'static str,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// What is asked for is not there, or cannot be had.
    #[error("{reason}")]
    Refused {
        /// A sentence: what, where, what to type.
        reason: String,
    },
}

fn asked(what: &'static str) -> impl Fn(kube::Error) -> AskError {
    move |source| AskError::Api { what, source: Box::new(source) }
}
