//! Transfers between the node plugins: joins the connections of [`crate::remote`] to the devices of [`crate::node`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::bytes::Bytes;
use crate::copy::{CopyError, Digest};
use crate::error_chain;
use crate::node::{
    Node, PeerAddress, Peers, ReceivingDevice, RemoteContent, SentDevice, may_read, open_send,
};
use crate::remote::{BlockSource, BlockTarget, Peer, PeerKey, PeerServer, SharedBlocks};
use crate::volume::{Reason, VolumeError, VolumeId};

/// The node plugin among those of other nodes: it listens until it is dropped.
#[derive(Debug)]
pub struct Transfers {
    key: Arc<PeerKey>,
    server: PeerServer,
    ended: CancellationToken,
}

impl Transfers {
    /// Makes a key, and lets other nodes read what the node permits, at this address.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    pub fn start(node: &Arc<Node>, address: SocketAddr) -> Result<Arc<Transfers>, CopyError> {
        let key = Arc::new(PeerKey::make()?);
        let ended = CancellationToken::new();
        let calls = Calls { runtime: Handle::current(), ended: ended.clone() };
        let shared = Arc::new(Shared { node: Arc::downgrade(node), calls });
        let tell = |why: &str| tracing::warn!(why, "a transfer to another node failed");
        let server = PeerServer::start(address, &key, shared, tell)?;
        Ok(Arc::new(Transfers { key, server, ended }))
    }

    /// Ends all transfers, and lets no other node read any more.
    pub fn stop(&self) {
        self.server.stop();
        self.ended.cancel();
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Calls of the node from threads of the network, until they are not to wait any more.
#[derive(Clone)]
struct Calls {
    runtime: Handle,
    ended: CancellationToken,
}

impl Calls {
    fn call<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> io::Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        match self.runtime.block_on(self.ended.run_until_cancelled(call)) {
            Some(done) => done.map_err(io::Error::other),
            None => Err(io::Error::other("stopped")),
        }
    }
}

impl Peers for Transfers {
    fn own(&self) -> PeerAddress {
        let address = self.server.address().to_string();
        PeerAddress { address, fingerprint: text_of(self.key.fingerprint()) }
    }

    fn content(&self, from: &PeerAddress, target: &VolumeId) -> Arc<dyn RemoteContent> {
        let (from, target, ended) = (from.clone(), target.clone(), self.ended.clone());
        Arc::new(PeerContent { from, target, key: self.key.clone(), ended })
    }
}

fn text_of(fingerprint: Digest) -> String {
    format!("sha256:{fingerprint}")
}

/// What this node permits others.
struct Shared {
    node: Weak<Node>,
    calls: Calls,
}

impl SharedBlocks for Shared {
    fn is_known(&self, peer: Digest) -> bool {
        self.node.upgrade().is_some_and(|node| may_read(&node, &text_of(peer)))
    }

    fn open(&self, peer: Digest, transfer: &str) -> Result<Box<dyn BlockSource>, CopyError> {
        let not_now =
            |source| CopyError::Failed { doing: "opening", path: transfer.to_owned(), source };
        let node = self.node.upgrade();
        let node = node.ok_or_else(|| not_now(io::Error::other("the node plugin stops")))?;
        let opened = self
            .calls
            .call(async { Ok::<_, VolumeError>(open_send(&node, &text_of(peer), transfer).await) });
        let opened = opened.map_err(not_now)?;
        let device = opened.map_err(|error| match error.reason() {
            // Who reads it gives up what it has.
            Reason::NotFound => CopyError::Refused(error_chain::in_full(&error)),
            _ => not_now(io::Error::other(error_chain::in_full(&error))),
        })?;
        Ok(Box::new(SentBlocks { device, calls: self.calls.clone() }))
    }
}

struct SentBlocks {
    device: Arc<SentDevice>,
    calls: Calls,
}

impl BlockSource for SentBlocks {
    fn size(&self) -> u64 {
        self.device.size().get()
    }

    fn read(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        self.calls.call(self.device.read(at, length))
    }
}

/// What another node plugin has for a volume.
struct PeerContent {
    from: PeerAddress,
    target: VolumeId,
    key: Arc<PeerKey>,
    ended: CancellationToken,
}

impl fmt::Debug for PeerContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the content of {} at {}", self.target, self.from.address)
    }
}

/// Has a thread end when it is dropped: at its next look, and after a call under way.
struct EndsThread(Arc<AtomicBool>);

impl Drop for EndsThread {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl RemoteContent for PeerContent {
    async fn receive(
        &self,
        size: Bytes,
        resumes: bool,
        into: Arc<ReceivingDevice>,
    ) -> Result<(), VolumeError> {
        let failed = |why: String| {
            format!("failed to receive volume {} from {}: {why}", self.target, self.from.address)
        };
        let unavailable = |why| VolumeError::Unavailable { reason: failed(why) };
        let fingerprint = self.from.fingerprint.parse().map_err(unavailable)?;
        // An address, and no name: what a node writes leads to nothing that is looked up.
        let address: Result<SocketAddr, _> = self.from.address.parse();
        address.map_err(|error| unavailable(error.to_string()))?;
        let ends = EndsThread(Arc::default());
        let from = (self.from.address.as_str(), fingerprint);
        let peer = Peer::at(from, &self.target.to_string(), &self.key, ends.0.clone());
        let peer = peer.map_err(|error| unavailable(error_chain::in_full(&error)))?;
        // A write that is under way goes on whatever becomes of its caller: it is waited for until the process ends.
        let calls = Calls { runtime: Handle::current(), ended: self.ended.clone() };
        let mut target = ReceivedBlocks { into: into.clone(), calls };
        let (tell, mut done) = oneshot::channel();
        // It blocks on the network.
        let work = move || {
            let _ = tell.send(peer.receive(size.get(), resumes, &mut target));
        };
        let thread = thread::Builder::new().name("transfer".to_owned()).spawn(work);
        thread.map_err(|error| unavailable(format!("failed to start a thread: {error}")))?;
        let stopped = || unavailable("it was stopped".to_owned());
        let received = tokio::select! {
            received = &mut done => received,
            () = into.stopped() => {
                ends.0.store(true, Ordering::Relaxed);
                done.await
            }
            () = self.ended.cancelled() => return Err(stopped()),
        };
        let received = received.map_err(|_| stopped())?;
        let received = received.map_err(|error| match error {
            // What is permitted next may be something else.
            CopyError::Refused(why) => {
                VolumeError::Reported { reason: Reason::NotFound, message: failed(why) }
            }
            error => unavailable(error_chain::in_full(&error)),
        })?;
        tracing::info!(
            volume = %self.target, from = self.from.address, bytes = received.bytes, digest = %received.digest,
            "received the content of a volume"
        );
        Ok(())
    }
}

struct ReceivedBlocks {
    into: Arc<ReceivingDevice>,
    calls: Calls,
}

impl BlockTarget for ReceivedBlocks {
    fn read(&mut self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let read = self.calls.call(self.into.read(range))?;
        if read.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.calls.call(self.into.write(at, bytes.to_vec()))
    }

    fn write_zeroes(&mut self, range: Range<u64>) -> io::Result<()> {
        self.calls.call(self.into.write_zeroes(range))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.calls.call(self.into.flush())
    }

    fn goes_on(&mut self, bytes: u64) -> bool {
        self.into.count(bytes);
        !self.into.is_stopped()
    }
}
