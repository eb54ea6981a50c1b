//! Reads contents for who receives, as it asks for them.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::connection::FramedStream;
use super::message::{
    Name, OpenedFile, Piece, Ranges, Request, SourceFailure, WholeFile, nonsense, sendable,
};
use crate::copy::{
    Attributes, Content, CopyError, Digest, Dir, EntryKind, LocalDisk, LocalFile, Meta, Opened,
    PIECE, SourceDisk, next_data, read_full,
};

/// A file that is no longer than this is sent as it is opened, unless it has holes.
const SMALL: u64 = 128 << 10;
/// How many ranges are reported at a time.
const RANGES: usize = 512;

/// What to send.
#[derive(Debug)]
pub enum Served {
    /// All that is in a directory.
    Tree(Dir),
    /// A block device, or an image of one.
    Device(PathBuf),
}

/// The open file of one connection.
pub struct ContentReader<'a> {
    source: &'a Served,
    file: Option<LocalFile>,
    disk: Option<<LocalDisk<'a> as SourceDisk>::Bytes>,
    /// The directory of the last file: the next one mostly is in the same.
    way: Option<(Vec<u8>, Dir)>,
    piece: Vec<u8>,
}

impl<'a> ContentReader<'a> {
    /// Nothing is open yet.
    pub fn of(source: &'a Served) -> ContentReader<'a> {
        ContentReader { source, file: None, disk: None, way: None, piece: vec![0; PIECE] }
    }

    /// Answers each request until the other side closes the connection.
    ///
    /// # Errors
    /// An error of the connection, and invalid requests.
    pub fn answer_all(mut self, line: &mut FramedStream) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            match line.receive(&mut buffer) {
                Ok(request) => self.answer(request, line)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the answer to a request.
    fn answer(&mut self, request: Request, line: &mut FramedStream) -> io::Result<()> {
        match request {
            Request::OpenDevice => line.send(&sendable(Ok(self.open_device()))),
            Request::Open { path, id } => line.send(&sendable(self.open(path, id))),
            Request::Ranges { from, size } => line.send(&sendable(self.ranges(from, size))),
            Request::Piece { at, length, has } => line.send(&sendable(self.piece(at, length, has))),
            Request::CheckUnchanged => line.send(&sendable(self.check_unchanged())),
        }
    }

    fn open(&mut self, path: &[u8], id: (u64, u64)) -> io::Result<OpenedFile> {
        let mut file = match self.find(path) {
            Ok(file) => file,
            Err(error) => {
                self.way = None; // It may not be where it was.
                return Err(error);
            }
        };
        if (file.meta().id, file.meta().kind) != (id, EntryKind::File) {
            return Err(Errno::STALE.into());
        }
        let meta = file.meta().clone();
        let attributes: Attributes = file.attributes()?;
        let is_small = meta.size <= SMALL && meta.allocated >= meta.size;
        let whole = if is_small { Some(self.read_whole(&mut file, &meta)?) } else { None };
        self.file = Some(file);
        Ok(OpenedFile { meta, attributes, whole })
    }

    fn read_whole(&mut self, file: &mut LocalFile, meta: &Meta) -> io::Result<WholeFile> {
        let length = usize::try_from(meta.size).unwrap_or(PIECE).min(PIECE);
        let read = read_full(bytes_of(file)?, &mut self.piece[..length], 0)?;
        let content = self.piece[..read].to_vec();
        Ok(WholeFile { content, is_unchanged: file.check_unchanged()? })
    }

    /// Go to a file name by name, never by a link.
    fn find(&mut self, path: &[u8]) -> io::Result<LocalFile> {
        let Served::Tree(top) = self.source else {
            return Err(nonsense("a path, but the source is a device"));
        };
        let end = path.iter().rposition(|byte| *byte == b'/');
        let (above, last) = end.map_or((&path[..0], path), |end| (&path[..end], &path[end + 1..]));
        let is_there = self.way.as_ref().is_some_and(|(known, _)| known == above);
        if !is_there {
            let mut dir = top.again()?;
            for part in above.split(|byte| *byte == b'/').filter(|_| !above.is_empty()) {
                dir = dir.enter(Name::parse(part)?.as_c())?;
            }
            self.way = Some((above.to_vec(), dir));
        }
        let (_, dir) = self.way.as_ref().ok_or(Errno::NOENT)?;
        LocalFile::of(dir.read(Name::parse(last)?.as_c())?)
    }

    fn open_device(&mut self) -> Result<u64, SourceFailure> {
        let opened = match self.source {
            Served::Device(path) => LocalDisk(path).open(),
            Served::Tree(_) => Err(CopyError::Refused(
                "the source sends a tree, but the target expects a device; use --device on both or \
                 on neither"
                    .to_owned(),
            )),
        };
        let (bytes, size) = opened.map_err(|error| SourceFailure::from(&error))?;
        self.disk = Some(bytes);
        Ok(size)
    }

    fn bytes(&self) -> io::Result<&File> {
        match (&self.file, &self.disk) {
            (Some(file), _) => bytes_of(file),
            (_, Some(disk)) => bytes_of(disk),
            _ => Err(nonsense("a request for a file that is not open")),
        }
    }

    fn ranges(&self, mut from: u64, size: u64) -> io::Result<Ranges> {
        let file = self.bytes()?;
        let mut ranges = Ranges::new();
        while ranges.len() < RANGES {
            let Some(range) = next_data(file, from, size)? else {
                ranges.push(size..size); // Nothing up to the end.
                break;
            };
            from = range.end;
            ranges.push(range);
        }
        Ok(ranges)
    }

    fn piece(&mut self, at: u64, length: u32, has: Option<Digest>) -> io::Result<Piece<'_>> {
        let length = usize::try_from(length).unwrap_or(PIECE).min(PIECE);
        let mut piece = std::mem::take(&mut self.piece);
        let read = self.bytes().and_then(|file| read_full(file, &mut piece[..length], at));
        self.piece = piece;
        let read = &self.piece[..read?];
        if has.is_some_and(|has| has == Digest::of(read)) {
            return Ok(Piece::Same(u32::try_from(read.len()).unwrap_or_default()));
        }
        Ok(Piece::Data(read))
    }

    fn check_unchanged(&mut self) -> io::Result<bool> {
        self.file.as_mut().ok_or_else(|| nonsense("no open file"))?.check_unchanged()
    }
}

fn bytes_of(content: &impl Content) -> io::Result<&File> {
    content.file().ok_or_else(|| Errno::BADF.into())
}
