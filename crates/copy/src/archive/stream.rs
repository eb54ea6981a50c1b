//! The bytes of an archive: summed up as they come, unpacked, and bounded.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest as _, Sha256};

use crate::copy::{At, CopyError, Digest};

const BUFFER: usize = 256 << 10;
/// How long the names and attributes of one thing may be together.
const NAMES: u64 = 1 << 20;

/// An archive as it is stored.
pub struct Raw {
    from: Box<dyn Read>,
    hash: Sha256,
    /// Number of bytes read so far, shared with readers that do not own this value.
    pub count: Rc<Cell<u64>>,
    /// Number of bytes in all, if it is known.
    pub length: Option<u64>,
}

impl Raw {
    pub fn new(from: Box<dyn Read>, length: Option<u64>) -> Raw {
        Raw { from, hash: Sha256::new(), count: Rc::default(), length }
    }

    /// Reads what follows the archive, which counts for the sum.
    pub fn drain(&mut self, at_most: u64) -> io::Result<()> {
        let rest = io::copy(&mut self.by_ref().take(at_most + 1), &mut io::sink())?;
        let is_too_long = rest > at_most;
        if is_too_long { Err(hostile("data follows the end of the archive")) } else { Ok(()) }
    }

    pub fn digest(self) -> Digest {
        Digest(self.hash.finalize().into())
    }
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

/// Opens the tar in an archive; its first bytes determine the compression.
pub fn decode(raw: &mut Raw) -> io::Result<Box<dyn Read + '_>> {
    let mut first = Vec::new();
    raw.by_ref().take(4).read_to_end(&mut first)?;
    let is_zstd = matches!(first[..], [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
    let is_gzip = first.starts_with(&[0x1f, 0x8b]);
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(first).chain(raw));
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(whole))
    } else if is_zstd {
        Box::new(Frames { from: whole, decoder: FrameDecoder::new(), begun: false })
    } else {
        Box::new(whole)
    })
}

/// What zstd has packed, one frame after the other.
struct Frames<R> {
    from: R,
    decoder: FrameDecoder,
    begun: bool,
}

impl<R: BufRead> Frames<R> {
    /// Begins with the next frame that holds something; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.from.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.from) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    io::copy(&mut self.from.by_ref().take(length), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.begun && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if !self.begun || self.decoder.is_finished() {
                self.begun = self.next_frame()?;
                if !self.begun {
                    return Ok(0);
                }
            }
            let some = BlockDecodingStrategy::UptoBytes(BUFFER);
            self.decoder
                .decode_blocks(&mut self.from, some)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

/// Bounds the memory for the names of an entry.
pub struct Guard<'a> {
    from: Box<dyn Read + 'a>,
    gate: Gate,
}

/// Switches between reading names and reading content.
#[derive(Clone, Default)]
pub struct Gate(Rc<Cell<Option<u64>>>);

impl Gate {
    /// Marks that names are read from now on.
    pub fn names(&self) {
        self.0.set(Some(NAMES));
    }

    /// Marks that content is read from now on.
    pub fn content(&self) {
        self.0.set(None);
    }
}

impl<'a> Guard<'a> {
    pub fn new(from: Box<dyn Read + 'a>) -> Guard<'a> {
        Guard { from, gate: Gate::default() }
    }

    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }
}

impl Read for Guard<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(left) = self.gate.0.get() else { return self.from.read(buffer) };
        if left == 0 {
            return Err(hostile("the names and attributes of one entry are longer than 1 MiB"));
        }
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.from.read(&mut buffer[..length])?;
        self.gate.0.set(Some(left - read as u64));
        Ok(read)
    }
}

/// What is wrong with an archive, in words of ours.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Hostile(&'static str);

fn hostile(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Hostile(why))
}

/// An error of reading an archive: what is wrong with its bytes stays wrong.
pub fn refused(error: io::Error, doing: &'static str, name: &str) -> CopyError {
    let is_broken = matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other
    ) && error.raw_os_error().is_none();
    if is_broken {
        let why = error.get_ref().and_then(|error| error.downcast_ref::<Hostile>());
        // Words of others quote what they read. That may be no archive but the answer of a server which
        // whoever named the address could not ask himself.
        let why = why.map_or("it is corrupt, or not a tar, tar.gz or tar.zst", |hostile| hostile.0);
        return CopyError::Refused(format!("failed to unpack {name}: {why}"));
    }
    Err::<(), _>(error).at(doing, name.as_bytes()).unwrap_err()
}
