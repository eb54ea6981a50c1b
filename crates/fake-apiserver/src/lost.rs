//! What a broken connection takes with it.

/// What is lost of a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The request: nothing is carried out.
    Request,
    /// The answer: the request is carried out, and who sent it does not know.
    Answer,
}

impl Lost {
    /// Both of them.
    pub const BOTH: [Lost; 2] = [Lost::Request, Lost::Answer];
}
