//! Sends a volume to the pod of another node that copies it: who sends never writes and keeps nothing, who
//! receives decides what it needs.
//!
//! Both ends show a certificate of an authority that was made for this one copy, over TLS 1.3.

mod keys;
mod line;
mod words;

pub use keys::{Credentials, Keys, SOURCE, TARGET};
pub use line::{Frame, LONGEST_FRAME, Line, Tls, put_error, put_io, take_error, take_io};
pub use words::{Put, Take, nonsense};
