//! Asks for contents, some pieces ahead of who writes them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use serde::de::DeserializeOwned;

use super::client::{Connection, Remote};
use super::message::{Job, OpenedFile, Piece, Ranges, Request, SourceFailure, WholeFile, nonsense};
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
        let opened: Result<u64, SourceFailure> =
            self.ask(&Request::OpenDevice).map_err(|error| remote.failed(error))?;
        let size = opened.map_err(CopyError::from)?;
        let reading = Rc::new(RefCell::new(self));
        Ok((RemoteBytes { reading, ranges: VecDeque::new(), end: 0 }, size))
    }

    /// Sends a request, and returns the answer.
    fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> io::Result<T> {
        while self.asked.pop_front().is_some() {
            self.connection.skip_answer()?;
        }
        self.connection.send(request)?;
        self.connection.answer()
    }

    fn ranges(&mut self, from: u64, size: u64) -> io::Result<VecDeque<Range<u64>>> {
        let ranges: Ranges = self.ask(&Request::Ranges { from, size })?;
        let mut least = from;
        for range in &ranges {
            // They come in order, none is empty but the one that says that there are no more.
            let is_end = range.start == size && range.end == size;
            if range.start < least || range.end > size || range.is_empty() && !is_end {
                return Err(nonsense("data outside of the requested range"));
            }
            least = range.end;
        }
        if ranges.is_empty() { Err(nonsense("an invalid extent map")) } else { Ok(ranges.into()) }
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
            self.connection.skip_answer()?;
        }
        let mut next = self.asked.back().map_or(at, |(at, length)| at + *length as u64);
        while self.asked.len() < AHEAD && (next < end || self.asked.is_empty()) {
            let left = usize::try_from(end.saturating_sub(next)).unwrap_or(PIECE).min(PIECE);
            let length = if self.asked.is_empty() { buffer.len() } else { left };
            self.ask_for(next, length, there)?;
            next += length as u64;
        }
        self.asked.pop_front();
        match self.connection.answer()? {
            Piece::Data(bytes) => {
                let into =
                    buffer.get_mut(..bytes.len()).ok_or_else(|| nonsense("too much data"))?;
                into.copy_from_slice(bytes);
                Ok(ContentPiece::Read(bytes.len()))
            }
            Piece::Same(length) => match usize::try_from(length) {
                Ok(length) if length <= buffer.len() => Ok(ContentPiece::Same(length)),
                _ => Err(nonsense("more than was requested")),
            },
        }
    }

    /// What the target has there need not be sent again.
    fn ask_for(&mut self, at: u64, length: usize, there: (&File, u64)) -> io::Result<()> {
        let is_there = at + length as u64 <= there.1;
        let has = if is_there {
            self.theirs.resize(PIECE.max(length), 0);
            let read = read_full(there.0, &mut self.theirs[..length], at)?;
            Some(Digest::of(&self.theirs[..read]))
        } else {
            None
        };
        let request = Request::Piece { at, length: u32::try_from(length).unwrap_or(u32::MAX), has };
        self.connection.send(&request)?;
        self.asked.push_back((at, length));
        Ok(())
    }
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
                None => self.ranges = self.reading.borrow_mut().ranges(from, size)?,
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
        let Some(WholeFile { content, .. }) = &self.told.whole else {
            return self.bytes.piece(buffer, at, there);
        };
        let rest = usize::try_from(at).ok().and_then(|at| content.get(at..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(ContentPiece::Read(length))
    }
}

impl Opened for RemoteFile {
    fn begin(&mut self) -> io::Result<()> {
        let request = Request::Open { path: &self.path, id: self.told.meta.id };
        self.told = self.bytes.reading.borrow_mut().ask(&request)?;
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
            Some(whole) => Ok(whole.is_unchanged),
            None if self.is_open => self.bytes.reading.borrow_mut().ask(&Request::CheckUnchanged),
            None => Ok(true), // Nothing of it was read.
        }
    }
}
