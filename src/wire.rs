//! Sends a volume to the pod of another node that copies it: who sends never writes and keeps nothing, who
//! receives decides what it needs.
//!
//! Both ends show a certificate of an authority that was made for this one copy, over TLS 1.3. A connection
//! does one job. Of a walk, a manifest, a count and a sum all is streamed as it is found, as fast as it
//! is taken; contents are sent piece by piece, as they are asked for.

mod ask;
mod callers;
mod client;
mod content;
mod job;
mod keys;
mod line;
mod server;
mod tree;
mod words;

pub use client::{Remote, RemoteDisk, RemoteTree};
pub use keys::{Credentials, Keys};
pub use server::{Served, serve};

/// Where a pod that sends listens.
pub const PORT: u16 = 9815;

/// What both sides have to speak.
const PROTOCOL: &[u8] = b"pliant-copy/1";
