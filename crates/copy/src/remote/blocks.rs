//! Receives a block device from another node plugin, and compares what it has then.
//!
//! All of it is asked for piece by piece, some ahead, each with the digest of what is at its place already: that need not
//! be sent. So zeroes are not sent to a new volume, and a copy that was interrupted goes on. In the end each piece is read
//! back past the cache, and its digest is compared with that of the source's.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::client::{Connection, Remote};
use super::message::{Piece, Request, SourceFailure};
use super::peer_key::PeerKey;
use super::peer_server::Asked;
use crate::copy::{CopyError, Difference, Digest, PIECE};

/// How many pieces are asked for ahead.
const AHEAD: usize = 8;

/// The node plugin of another node.
#[derive(Debug)]
pub struct Peer {
    remote: Remote,
    transfer: String,
}

/// The block device that receives.
pub trait BlockTarget {
    /// Reads from it past the page cache.
    ///
    /// # Errors
    /// Errors of the system, and fewer bytes than are asked for.
    fn read(&mut self, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// Writes to it.
    ///
    /// # Errors
    /// Errors of the system.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes a part of it zeroes.
    ///
    /// # Errors
    /// Errors of the system.
    fn write_zeroes(&mut self, range: Range<u64>) -> io::Result<()>;

    /// Makes all of it durable.
    ///
    /// # Errors
    /// Errors of the system.
    fn flush(&mut self) -> io::Result<()>;

    /// Hears that so many bytes more were received, or compared; false if it is to end.
    fn goes_on(&mut self, bytes: u64) -> bool;
}

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes that came over the network.
    pub bytes: u64,
    /// A SHA-256 over the digests of all pieces.
    pub digest: Digest,
}

/// What a piece has of the target.
#[derive(Clone, Copy)]
enum Has {
    /// It is new: only zeroes are worth not to be sent.
    Nothing,
    /// A part of what is to be there, from before.
    Some,
    /// All, or it has failed.
    All,
}

/// A piece that was asked for.
struct PieceAsked {
    range: Range<u64>,
    has: Digest,
}

impl Peer {
    /// Creates the client of the node plugin at this address, host and port, with this fingerprint, for one transfer;
    /// until `stop` is set.
    ///
    /// # Errors
    /// Keys that are not usable.
    pub fn at(
        (address, fingerprint): (&str, Digest),
        transfer: &str,
        key: &PeerKey,
        stop: Arc<AtomicBool>,
    ) -> Result<Peer, CopyError> {
        let remote = Remote::with(address, key.client(fingerprint)?, stop);
        Ok(Peer { remote, transfer: transfer.to_owned() })
    }

    /// Makes the first `size` bytes of the target those of the source, durably, and compares them. `resumes`: some may be
    /// there already.
    ///
    /// # Errors
    /// [`CopyError::Refused`] if the source does not allow it, or has another size; [`CopyError::Mismatch`] if the target
    /// does not read back what the source has; [`CopyError::Stopped`]; errors of the system and of the connection.
    pub fn receive(
        &self,
        size: u64,
        resumes: bool,
        target: &mut dyn BlockTarget,
    ) -> Result<Received, CopyError> {
        let asked = Asked { transfer: self.transfer.clone() };
        let mut line = self.remote.connect(asked)?;
        let source = self.open(&mut line)?;
        if source != size {
            return Err(CopyError::Refused(format!(
                "the source at {} has {source} bytes, and {size} are expected",
                self.remote.address
            )));
        }
        let has = if resumes { Has::Some } else { Has::Nothing };
        let received = self.pass(&mut line, size, has, target)?;
        target.flush().map_err(|error| here("flushing", error))?;
        let compared = self.pass(&mut line, size, Has::All, target)?;
        if compared.digest != received.digest {
            return Err(CopyError::Changed {
                path: format!("the source at {}", self.remote.address),
            });
        }
        Ok(received)
    }

    fn open(&self, line: &mut Connection) -> Result<u64, CopyError> {
        let opened = line.send(&Request::OpenDevice).and_then(|()| line.answer());
        let opened: Result<u64, SourceFailure> =
            opened.map_err(|error| self.remote.failed(error))?;
        opened.map_err(CopyError::from)
    }

    /// Goes through all of it once.
    fn pass(
        &self,
        line: &mut Connection,
        size: u64,
        has: Has,
        target: &mut dyn BlockTarget,
    ) -> Result<Received, CopyError> {
        let (mut asked, mut next) = (VecDeque::new(), 0);
        let (mut bytes, mut digests) = (0, Vec::new());
        let mut whole = Digest::of(&size.to_le_bytes());
        loop {
            while asked.len() < AHEAD && next < size {
                let range = next..size.min(next + PIECE as u64);
                next = range.end;
                asked.push_back(self.ask(line, range, has, target)?);
            }
            let Some(piece) = asked.pop_front() else { break };
            let length = piece.range.end - piece.range.start;
            let digest = match line.answer().map_err(|error| self.remote.failed(error))? {
                Piece::Same(same) if u64::from(same) == length => {
                    if matches!(has, Has::Nothing) {
                        let zeroed = target.write_zeroes(piece.range);
                        zeroed.map_err(|error| here("writing zeroes", error))?;
                    }
                    piece.has
                }
                Piece::Data(data) if data.len() as u64 == length => {
                    if matches!(has, Has::All) {
                        return Err(differs(&piece.range));
                    }
                    bytes += length;
                    take(target, piece.range.clone(), data)?;
                    Digest::of(data)
                }
                _ => return Err(line.refuse("another number of bytes than was requested")),
            };
            // As a chain, so that it takes no memory.
            digests.clear();
            digests.extend_from_slice(&whole.0);
            digests.extend_from_slice(&digest.0);
            whole = Digest::of(&digests);
            if !target.goes_on(length) {
                return Err(CopyError::Stopped);
            }
        }
        Ok(Received { bytes, digest: whole })
    }

    fn ask(
        &self,
        line: &mut Connection,
        range: Range<u64>,
        has: Has,
        target: &mut dyn BlockTarget,
    ) -> Result<PieceAsked, CopyError> {
        static ZEROES: [u8; PIECE] = [0; PIECE];
        let length = usize::try_from(range.end - range.start).unwrap_or(PIECE);
        let has = match has {
            Has::Nothing => Digest::of(&ZEROES[..length]),
            Has::Some | Has::All => {
                let read = target.read(range.clone());
                Digest::of(&read.map_err(|error| here("reading", error))?)
            }
        };
        let request = Request::Piece {
            at: range.start,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            has: Some(has),
        };
        line.send(&request).map_err(|error| self.remote.failed(error))?;
        Ok(PieceAsked { range, has })
    }
}

/// Writes what has come.
fn take(target: &mut dyn BlockTarget, range: Range<u64>, data: &[u8]) -> Result<(), CopyError> {
    let written = if data.iter().all(|byte| *byte == 0) {
        target.write_zeroes(range)
    } else {
        target.write(range.start, data)
    };
    written.map_err(|error| here("writing", error))
}

fn here(doing: &'static str, source: io::Error) -> CopyError {
    CopyError::Failed { doing, path: "the target".to_owned(), source }
}

fn differs(range: &Range<u64>) -> CopyError {
    let what =
        format!("it differs from the source between bytes {} and {}", range.start, range.end);
    let first = vec![Difference { path: "the target".to_owned(), what }];
    CopyError::Mismatch { count: 1, first }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.remote.address)
    }
}
