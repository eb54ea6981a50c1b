//! Block devices between node plugins, who know each other by the digests of their certificates.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pliant_copy::copy::{CopyError, Digest, PIECE};
use pliant_copy::remote::{
    BlockSource, BlockTarget, Peer, PeerKey, PeerServer, Received, SharedBlocks,
};

/// What a node lets others read: by their key and the name of the transfer.
#[derive(Default)]
struct Shared {
    known: Mutex<BTreeMap<(Digest, String), Arc<Device>>>,
    opened: AtomicUsize,
}

/// A device in memory, which may end to be readable, or read back something else.
struct Device {
    bytes: Vec<u8>,
    reads: AtomicUsize,
    most: usize,
}

impl SharedBlocks for Shared {
    fn is_known(&self, peer: Digest) -> bool {
        self.known.lock().unwrap().keys().any(|(key, _)| *key == peer)
    }

    fn open(&self, peer: Digest, transfer: &str) -> Result<Box<dyn BlockSource>, CopyError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let known = self.known.lock().unwrap();
        let device = known.get(&(peer, transfer.to_owned())).cloned();
        device
            .map(|device| Box::new(Opened(device)) as _)
            .ok_or_else(|| CopyError::Refused("not permitted".to_owned()))
    }
}

struct Opened(Arc<Device>);

impl BlockSource for Opened {
    fn size(&self) -> u64 {
        self.0.bytes.len() as u64
    }

    fn read(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        if self.0.reads.fetch_add(1, Ordering::Relaxed) >= self.0.most {
            return Err(io::Error::other("not permitted any more"));
        }
        let at = usize::try_from(at).unwrap();
        Ok(self.0.bytes.get(at..self.0.bytes.len().min(at + length)).unwrap_or_default().to_vec())
    }
}

/// A device in memory that receives.
struct Target {
    bytes: Vec<u8>,
    written: u64,
    flushed: bool,
    /// Byte that the disk loses as soon as it is flushed.
    loses: Option<usize>,
    stops_after: u64,
}

impl Target {
    fn of(bytes: Vec<u8>) -> Target {
        Target { bytes, written: 0, flushed: false, loses: None, stops_after: u64::MAX }
    }
}

fn within(range: &Range<u64>) -> Range<usize> {
    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
}

impl BlockTarget for Target {
    fn read(&mut self, range: Range<u64>) -> io::Result<Vec<u8>> {
        Ok(self.bytes[within(&range)].to_vec())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.bytes[within(&(at..at + bytes.len() as u64))].copy_from_slice(bytes);
        Ok(())
    }

    fn write_zeroes(&mut self, range: Range<u64>) -> io::Result<()> {
        self.bytes[within(&range)].fill(0);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushed = true;
        if let Some(at) = self.loses {
            self.bytes[at] ^= 1;
        }
        Ok(())
    }

    fn goes_on(&mut self, bytes: u64) -> bool {
        self.stops_after = self.stops_after.saturating_sub(bytes);
        self.stops_after > 0
    }
}

/// Two node plugins, of which one sends.
struct Two {
    server: PeerServer,
    shared: Arc<Shared>,
    source: PeerKey,
    target: PeerKey,
    said: Arc<Mutex<Vec<String>>>,
}

const NAME: &str = "aaaaaaaa-bbbbbbbbbbbbbbbbbbbbbbbbbb";

impl Two {
    fn sending(bytes: &[u8], most: usize) -> Two {
        let (source, target) = (PeerKey::make().unwrap(), PeerKey::make().unwrap());
        let shared = Arc::new(Shared::default());
        let device = Device { bytes: bytes.to_vec(), reads: AtomicUsize::new(0), most };
        let permit = (target.fingerprint(), NAME.to_owned());
        shared.known.lock().unwrap().insert(permit, Arc::new(device));
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let tell = said.clone();
        let tell = move |why: &str| tell.lock().unwrap().push(why.to_owned());
        let at = (Ipv4Addr::LOCALHOST, 0).into();
        let server = PeerServer::start(at, &source, shared.clone(), tell).unwrap();
        Two { server, shared, source, target, said }
    }

    fn peer(&self, transfer: &str, key: &PeerKey, server: Digest) -> Peer {
        let at = self.server.address().to_string();
        Peer::at((&at, server), transfer, key, Arc::new(AtomicBool::new(false))).unwrap()
    }

    fn receive(
        &self,
        size: u64,
        resumes: bool,
        target: &mut Target,
    ) -> Result<Received, CopyError> {
        let peer = self.peer(NAME, &self.target, self.source.fingerprint());
        peer.receive(size, resumes, target)
    }
}

/// Some pieces, the last of them short, with zeroes between.
fn content() -> Vec<u8> {
    let byte = |at: usize| u8::try_from(at / 7 % 251).unwrap() | 1;
    let mut bytes: Vec<u8> = (0..5 * PIECE + 512).map(byte).collect();
    bytes[PIECE..3 * PIECE].fill(0);
    bytes
}

#[test]
fn all_is_received_but_zeroes_and_read_back() {
    let bytes = content();
    let two = Two::sending(&bytes, usize::MAX);
    let mut target = Target::of(vec![7; bytes.len() + 512]);
    let size = bytes.len() as u64;
    let received = two.receive(size, false, &mut target).unwrap();
    assert!(target.bytes[..bytes.len()] == bytes && target.flushed);
    assert_eq!(target.bytes[bytes.len()..], [7; 512], "nothing behind it");
    assert_eq!((received.bytes, target.written), (size - 2 * PIECE as u64, received.bytes));
    // The same content has the same digest, whatever had to be sent.
    let again = two.receive(size, true, &mut target).unwrap();
    assert_eq!((again.bytes, again.digest), (0, received.digest));
}

#[test]
fn a_copy_that_was_interrupted_goes_on() {
    let bytes = content();
    let two = Two::sending(&bytes, usize::MAX);
    let size = bytes.len() as u64;
    let mut target = Target { stops_after: 4 * PIECE as u64, ..Target::of(vec![7; bytes.len()]) };
    let stopped = two.receive(size, false, &mut target).unwrap_err();
    assert!(matches!(stopped, CopyError::Stopped), "{stopped}");
    let mut target = Target::of(target.bytes);
    let received = two.receive(size, true, &mut target).unwrap();
    assert!(target.bytes == bytes);
    assert!(received.bytes < 3 * PIECE as u64, "{} bytes", received.bytes);
}

/// A byte that the disk does not have is found, wherever it is.
#[test]
fn what_does_not_read_back_is_not_accepted() {
    let bytes = content();
    let two = Two::sending(&bytes, usize::MAX);
    for at in [0, 2 * PIECE, bytes.len() - 1] {
        let mut target = Target { loses: Some(at), ..Target::of(vec![0; bytes.len()]) };
        let error = two.receive(bytes.len() as u64, false, &mut target).unwrap_err();
        assert!(matches!(error, CopyError::Mismatch { .. }), "{at}: {error}");
    }
}

#[test]
fn another_size_and_a_permit_that_ends_are_errors() {
    let bytes = content();
    let two = Two::sending(&bytes, 3);
    let mut target = Target::of(vec![0; bytes.len()]);
    let error = two.receive(512, false, &mut target).unwrap_err();
    assert!(matches!(error, CopyError::Refused(_)), "{error}");
    let error = two.receive(bytes.len() as u64, false, &mut target).unwrap_err();
    let said = format!("{error}: {:?}", std::error::Error::source(&error));
    assert!(said.contains("not permitted any more"), "{said}");
}

#[test]
fn another_key_another_server_and_another_volume_get_nothing() {
    let bytes = content();
    let two = Two::sending(&bytes, usize::MAX);
    let (source, size) = (two.source.fingerprint(), bytes.len() as u64);
    let stranger = PeerKey::make().unwrap();
    let mut target = Target::of(vec![0; bytes.len()]);
    // A key that is not permitted anything is not even asked what it wants.
    let of_stranger = two.peer(NAME, &stranger, source);
    of_stranger.receive(size, false, &mut target).unwrap_err();
    // Another one answers at the address.
    let mistaken = two.peer(NAME, &two.target, stranger.fingerprint());
    mistaken.receive(size, false, &mut target).unwrap_err();
    assert_eq!(two.shared.opened.load(Ordering::Relaxed), 0);
    // The right key, and another volume than its own.
    for name in ["", "aaaaaaaa-cccccccccccccccccccccccccc", &"a".repeat(129)] {
        let error = two.peer(name, &two.target, source).receive(size, false, &mut target);
        let error = error.unwrap_err().to_string();
        let is_refused = error.contains("not permitted") || error.contains("receiving from");
        assert!(is_refused, "{name}: {error}");
    }
    // The key of one volume, for that of another key.
    let other = PeerKey::make().unwrap();
    let device = two.shared.known.lock().unwrap().values().next().cloned().unwrap();
    let permit = (other.fingerprint(), "other".to_owned());
    two.shared.known.lock().unwrap().insert(permit, device);
    let error = two.peer(NAME, &other, source).receive(size, false, &mut target).unwrap_err();
    assert!(error.to_string().contains("not permitted"), "{error}");
    assert!(target.bytes.iter().all(|byte| *byte == 0), "nothing was written");
    let said = two.said.lock().unwrap().join("; ");
    assert!(said.contains("invalid peer certificate"), "{said}");
    two.receive(size, false, &mut target).unwrap();
}

/// Whoever reaches the port, and shows no key, does not keep the right one out.
#[test]
fn strangers_do_not_keep_the_right_one_out() {
    let bytes = content();
    let two = Two::sending(&bytes, usize::MAX);
    let strangers: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(two.server.address()).unwrap()).collect();
    let mut target = Target::of(vec![0; bytes.len()]);
    two.receive(bytes.len() as u64, false, &mut target).unwrap();
    assert!(target.bytes == bytes);
    drop(strangers);
}

#[test]
fn a_server_that_has_stopped_ends_its_connections() {
    let bytes = content();
    let two = Two::sending(&bytes, usize::MAX);
    two.server.stop();
    let mut target = Target::of(vec![0; bytes.len()]);
    two.receive(bytes.len() as u64, false, &mut target).unwrap_err();
}
