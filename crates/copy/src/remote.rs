//! Sends a volume to the pod of another node that copies it: the sender never writes and stores
//! nothing, the receiver decides what it needs.
//!
//! Both ends show a certificate of an authority that was created for this one copy, over TLS 1.3. A
//! connection does one job. A walk, a manifest, a count and a checksum are streamed as they are
//! computed, as fast as they are read; contents are sent piece by piece, on request.
//!
//! Between node plugins, each end makes its own key, and a third one that both trust says whose it is: see
//! [`PeerKey`], [`PeerServer`] and [`Peer`].

mod blocks;
mod callers;
mod client;
mod connection;
mod content;
mod disk;
mod message;
mod peer_key;
mod peer_server;
mod prefetch;
mod server;
mod tls;
mod tree;

pub use blocks::{BlockTarget, Peer, Received};
pub use client::{Remote, RemoteTree};
pub use content::Served;
pub use disk::RemoteDisk;
pub use peer_key::PeerKey;
pub use peer_server::{BlockSource, PeerServer, SharedBlocks};
pub use server::serve;
pub use tls::{Credentials, TransferKeys};

/// Port on which a sender listens.
pub const PORT: u16 = 9815;

/// What both sides have to speak.
const PROTOCOL: &[u8] = b"pliant-copy/1";
