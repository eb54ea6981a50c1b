//! Asks for contents, some pieces ahead of who writes them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use super::client::{Connection, Remote};
use super::connection::{Frame, take_error, take_io};
use super::message::{MessageReader, MessageWriter, nonsense};
use super::transfer::{Job, word};
use crate::copy::{
    Attributes, Content, ContentPiece, CopyError, Digest, Meta, Opened, PIECE, read_full,
};

/// How many pieces are asked for ahead.
const AHEAD: usize = 8;

/// A connection over which contents are read.
pub(super) struct PrefetchConnection {
    connection: Connection,
    remote: Remote,
    /// Pieces that were asked for and have not come yet: where, and how long.
    asked: VecDeque<(u64, usize)>,
    /// Of what the target has.
    theirs: Vec<u8>,
}

/// What the source said of a file as it opened it.
struct OpenedFile {
    meta: Meta,
    attributes: Attributes,
    /// All of a small one, and whether it was as it was afterwards.
    whole: Option<(Vec<u8>, bool)>,
}

impl PrefetchConnection {
    /// Connects.
    pub(super) fn of(remote: &Remote) -> Result<PrefetchConnection, CopyError> {
        let connection = remote.connect(Job::Read)?;
        let remote = remote.clone();
        Ok(PrefetchConnection { connection, remote, asked: VecDeque::new(), theirs: Vec::new() })
    }

    /// Opens the device.
    pub(super) fn disk(mut self) -> Result<(RemoteBytes, u64), CopyError> {
        let remote = self.remote.clone();
        let opened = self.ask(word::DISK, &MessageWriter::default(), |word, take| match word {
            word::OPENED if take.flag()? => Ok(Ok(take.u64()?)),
            word::OPENED => take_error(take).map(Err),
            _ => Err(nonsense("no answer to the request")),
        });
        let size = opened.map_err(|error| remote.failed(error))??;
        let reading = Rc::new(RefCell::new(self));
        Ok((RemoteBytes { reading, ranges: VecDeque::new(), end: 0 }, size))
    }

    /// Sends a request, and reads the response.
    fn ask<T>(
        &mut self,
        word: u8,
        put: &MessageWriter,
        read: impl FnOnce(u8, &mut MessageReader) -> io::Result<T>,
    ) -> io::Result<T> {
        while self.asked.pop_front().is_some() {
            self.connection.receive()?; // No one wants it any more.
        }
        self.connection.send(word, put)?;
        match self.connection.receive()? {
            Frame { word: word::ERROR, body } => Err(take_io(&mut MessageReader(body))?),
            Frame { word, body } => read(word, &mut MessageReader(body)),
        }
    }

    fn open(&mut self, path: &[u8], id: (u64, u64)) -> io::Result<OpenedFile> {
        let mut put = MessageWriter::default();
        put.bytes(path);
        put.u64(id.0);
        put.u64(id.1);
        self.ask(word::OPEN, &put, |word, take| {
            expect(word, word::OPENED)?;
            let (meta, attributes) = (take.meta()?, take.attributes()?);
            let is_whole = take.flag()?;
            let whole = if is_whole { Some((take.bytes()?.to_vec(), take.flag()?)) } else { None };
            Ok(OpenedFile { meta, attributes, whole })
        })
    }

    fn map(&mut self, from: u64, size: u64) -> io::Result<VecDeque<Range<u64>>> {
        let mut put = MessageWriter::default();
        put.u64(from);
        put.u64(size);
        self.ask(word::MAP, &put, |word, take| {
            expect(word, word::MAPPED)?;
            let (mut ranges, mut least) = (VecDeque::new(), from);
            while !take.0.is_empty() {
                let range = take.u64()?..take.u64()?;
                // They come in order, none is empty but the one that says that there are no more.
                let is_end = range.start == size && range.end == size;
                if range.start < least || range.end > size || range.is_empty() && !is_end {
                    return Err(nonsense("data outside of the requested range"));
                }
                least = range.end;
                ranges.push_back(range);
            }
            if ranges.is_empty() { Err(nonsense("an invalid extent map")) } else { Ok(ranges) }
        })
    }

    fn check_unchanged(&mut self) -> io::Result<bool> {
        self.ask(word::AFTER, &MessageWriter::default(), |word, take| {
            expect(word, word::STATE)?;
            take.flag()
        })
    }

    /// The next piece of a range that ends at `end`; the ones after it are asked for too.
    fn piece(
        &mut self,
        buffer: &mut [u8],
        at: u64,
        end: u64,
        there: (&File, u64),
    ) -> io::Result<ContentPiece> {
        // After a piece that was cut the rest comes from elsewhere.
        while self.asked.front().is_some_and(|asked| *asked != (at, buffer.len())) {
            self.asked.pop_front();
            self.connection.receive()?;
        }
        let mut next = self.asked.back().map_or(at, |(at, length)| at + *length as u64);
        while self.asked.len() < AHEAD && (next < end || self.asked.is_empty()) {
            let left = usize::try_from(end.saturating_sub(next)).unwrap_or(PIECE).min(PIECE);
            let length = if self.asked.is_empty() { buffer.len() } else { left };
            self.ask_for(next, length, there)?;
            next += length as u64;
        }
        self.asked.pop_front();
        let Frame { word, body } = self.connection.receive()?;
        let mut take = MessageReader(body);
        match word {
            word::DATA => {
                let bytes = take.bytes()?;
                let into =
                    buffer.get_mut(..bytes.len()).ok_or_else(|| nonsense("too much data"))?;
                into.copy_from_slice(bytes);
                Ok(ContentPiece::Read(bytes.len()))
            }
            word::SAME => match usize::try_from(take.u32()?) {
                Ok(length) if length <= buffer.len() => Ok(ContentPiece::Same(length)),
                _ => Err(nonsense("more than was requested")),
            },
            word::ERROR => Err(take_io(&mut take)?),
            _ => Err(nonsense("no answer to the request")),
        }
    }

    /// What the target has there need not be sent again.
    fn ask_for(&mut self, at: u64, length: usize, there: (&File, u64)) -> io::Result<()> {
        let mut put = MessageWriter::default();
        put.u64(at);
        put.u32(u32::try_from(length).unwrap_or(u32::MAX));
        let is_there = at + length as u64 <= there.1;
        put.byte(is_there.into());
        if is_there {
            self.theirs.resize(PIECE.max(length), 0);
            let read = read_full(there.0, &mut self.theirs[..length], at)?;
            put.digest(&Digest::of(&self.theirs[..read]));
        }
        self.connection.send(word::PIECE, &put)?;
        self.asked.push_back((at, length));
        Ok(())
    }
}

fn expect(word: u8, wanted: u8) -> io::Result<()> {
    if word == wanted { Ok(()) } else { Err(nonsense("no answer to the request")) }
}

/// The bytes of a device at the source.
pub struct RemoteBytes {
    reading: Rc<RefCell<PrefetchConnection>>,
    /// What is known of where there is data.
    ranges: VecDeque<Range<u64>>,
    /// Where the range ends that is being read.
    end: u64,
}

impl RemoteBytes {
    fn mapped(&mut self, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
        loop {
            while self.ranges.front().is_some_and(|range| range.end <= from && range.end < size) {
                self.ranges.pop_front();
            }
            match self.ranges.front() {
                Some(range) => {
                    let range = from.max(range.start)..range.end;
                    self.end = range.end;
                    return Ok((!range.is_empty()).then_some(range));
                }
                None => self.ranges = self.reading.borrow_mut().map(from, size)?,
            }
        }
    }

    fn all(&mut self, from: u64, size: u64) -> Option<Range<u64>> {
        self.end = size;
        (from < size).then_some(from..size)
    }
}

impl Content for RemoteBytes {
    fn file(&self) -> Option<&File> {
        None
    }

    /// All of it, as of a device of this host.
    fn next_data(&mut self, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
        Ok(self.all(from, size))
    }

    fn piece(
        &mut self,
        buffer: &mut [u8],
        at: u64,
        there: (&File, u64),
    ) -> io::Result<ContentPiece> {
        self.reading.borrow_mut().piece(buffer, at, self.end, there)
    }
}

/// A file at the source: as the walk met it, until its content is wanted.
pub struct RemoteFile {
    bytes: RemoteBytes,
    path: Vec<u8>,
    told: OpenedFile,
    is_open: bool,
}

impl RemoteFile {
    /// Metadata from the walk.
    pub(super) fn met(
        reading: Rc<RefCell<PrefetchConnection>>,
        path: &[u8],
        (meta, attributes): (Meta, Attributes),
    ) -> RemoteFile {
        let bytes = RemoteBytes { reading, ranges: VecDeque::new(), end: 0 };
        let told = OpenedFile { meta, attributes, whole: None };
        RemoteFile { bytes, path: path.to_vec(), told, is_open: false }
    }
}

impl Content for RemoteFile {
    fn file(&self) -> Option<&File> {
        None
    }

    fn next_data(&mut self, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
        // What has no holes need not be asked for them.
        if self.told.whole.is_some() || self.told.meta.allocated >= size {
            return Ok(self.bytes.all(from, size));
        }
        self.bytes.mapped(from, size)
    }

    fn piece(
        &mut self,
        buffer: &mut [u8],
        at: u64,
        there: (&File, u64),
    ) -> io::Result<ContentPiece> {
        let Some((whole, _)) = &self.told.whole else { return self.bytes.piece(buffer, at, there) };
        let rest = usize::try_from(at).ok().and_then(|at| whole.get(at..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(ContentPiece::Read(length))
    }
}

impl Opened for RemoteFile {
    fn begin(&mut self) -> io::Result<()> {
        self.told = self.bytes.reading.borrow_mut().open(&self.path, self.told.meta.id)?;
        self.is_open = true;
        Ok(())
    }

    fn meta(&self) -> &Meta {
        &self.told.meta
    }

    fn attributes(&mut self) -> io::Result<Attributes> {
        Ok(self.told.attributes.clone())
    }

    fn check_unchanged(&mut self) -> io::Result<bool> {
        match &self.told.whole {
            Some((_, is_as_it_was)) => Ok(*is_as_it_was),
            None if self.is_open => self.bytes.reading.borrow_mut().check_unchanged(),
            None => Ok(true), // Nothing of it was read.
        }
    }
}
