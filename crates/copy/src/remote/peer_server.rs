//! Lets other node plugins read block devices of this one: each only what was allowed to its key, by the name of the
//! transfer.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustls::{ServerConfig, ServerConnection};
use serde::{Deserialize, Serialize};

use super::callers::Caller;
use super::connection::{FramedStream, Tls};
use super::message::{Piece, Request, SourceFailure, nonsense, now, sendable};
use super::peer_key::PeerKey;
use super::server::{GREETING, accept_all};
use crate::copy::{CopyError, Digest, PIECE};

/// The longest name of a transfer, in bytes.
const LONGEST_NAME: usize = 128;

/// The first message of who connects: the transfer that it is for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    pub transfer: String,
}

/// A block device that is read by another node.
pub trait BlockSource {
    /// Its size, in bytes; the same as long as it is open.
    fn size(&self) -> u64;

    /// Reads from it past the page cache; less than `length` only at its end.
    ///
    /// # Errors
    /// Errors of the system, and the end of the permission to read it.
    fn read(&self, at: u64, length: usize) -> io::Result<Vec<u8>>;
}

/// What this node lets others read.
pub trait SharedBlocks: Send + Sync + 'static {
    /// Returns whether the node plugin with this fingerprint may read anything now.
    fn is_known(&self, peer: Digest) -> bool;

    /// Opens what the node plugin with this fingerprint may read for a transfer.
    ///
    /// # Errors
    /// [`CopyError::Refused`] if there is nothing to read any more, and any other error for what may be different later.
    fn open(&self, peer: Digest, transfer: &str) -> Result<Box<dyn BlockSource>, CopyError>;
}

/// A listening node plugin, until it is dropped.
pub struct PeerServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for PeerServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerServer").field(&self.address).finish()
    }
}

impl PeerServer {
    /// Listens on an address, and answers in threads of its own; `tell` is called for connections that failed.
    ///
    /// # Errors
    /// Keys that are not usable, and an address that cannot be listened on.
    pub fn start(
        address: SocketAddr,
        key: &PeerKey,
        shared: Arc<dyn SharedBlocks>,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<PeerServer, CopyError> {
        let failed = |doing, source| CopyError::Failed { doing, path: address.to_string(), source };
        let known = shared.clone();
        let config = Arc::new(key.server(move |peer| known.is_known(peer))?);
        let listener = TcpListener::bind(address).map_err(|error| failed("listening on", error))?;
        let bound = listener.local_addr().map_err(|error| failed("listening on", error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let listen = move || {
            let answer = |tcp: TcpStream, caller: &Caller| {
                serve_one(tcp, config.clone(), &*shared, caller, &stopped)
            };
            if let Err(error) = accept_all(&listener, &stopped, &tell, &answer) {
                tell(&error.to_string());
            }
        };
        let listen = thread::Builder::new().name("transfers".to_owned()).spawn(listen);
        listen.map_err(|error| failed("starting a thread for", error))?;
        Ok(PeerServer { address: bound, stop })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl PeerServer {
    /// Ends all connections soon, and takes no more.
    pub fn stop(&self) {
        if !self.stop.swap(true, Ordering::Relaxed) {
            let _ = TcpStream::connect(self.address); // It looks when one has come.
        }
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Answers one connection to its end.
fn serve_one(
    tcp: TcpStream,
    config: Arc<ServerConfig>,
    shared: &dyn SharedBlocks,
    caller: &Caller,
    stop: &Arc<AtomicBool>,
) -> io::Result<()> {
    let tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let tls = Tls::Server(Box::new(tls));
    let mut line = FramedStream::over(tcp, tls, stop.clone(), GREETING)?;
    let mut buffer = Vec::new();
    // It was read with the key of one who is known.
    let Asked { transfer } = line.receive(&mut buffer)?;
    let peer = line.peer().ok_or_else(|| nonsense("no certificate"))?;
    if transfer.len() > LONGEST_NAME {
        return Err(nonsense("a name that is too long"));
    }
    caller.known_by(peer)?;
    line.send(&now())?;
    let mut open: Option<Box<dyn BlockSource>> = None;
    loop {
        let request = match line.receive(&mut buffer) {
            Ok(request) => request,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        match request {
            Request::OpenDevice => {
                line.known(); // What it asks for may take its time.
                let opened = shared.open(peer, &transfer);
                let size = opened.map(|opened| open.insert(opened).size());
                let size = size.map_err(|error| SourceFailure::from(&error));
                line.send(&sendable(Ok(size)))?;
            }
            Request::Piece { at, length, has } => {
                let source =
                    open.as_deref().ok_or_else(|| nonsense("a request before it opened"))?;
                let length = usize::try_from(length).unwrap_or(PIECE).min(PIECE);
                let read = sendable(source.read(at, length));
                let piece = read.as_deref().map(|bytes| match has {
                    Some(has) if has == Digest::of(bytes) => {
                        Piece::Same(u32::try_from(bytes.len()).unwrap_or_default())
                    }
                    _ => Piece::Data(bytes),
                });
                line.send(&piece)?;
            }
            Request::Open { .. } | Request::Ranges { .. } | Request::CheckUnchanged => {
                return Err(nonsense("a request for files, but the source is a device"));
            }
        }
    }
}
