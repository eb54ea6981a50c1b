//! Reads contents for who receives, as it asks for them.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::connection::{Frame, FramedStream, put_error, put_io};
use super::message::{MessageReader, MessageWriter, name, nonsense};
use super::transfer::word;
use crate::copy::{
    Attributes, Content, CopyError, Digest, Dir, EntryKind, LocalDisk, LocalFile, Opened, PIECE,
    SourceDisk, next_data, read_full,
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
        let mut put = MessageWriter::default();
        loop {
            let Frame { word, body } = match line.receive(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                other => other?,
            };
            put.0.clear();
            let word = self.answer(word, &mut MessageReader(body), &mut put)?;
            line.send(word, &put.0)?;
        }
    }

    /// Writes the answer to a request down, and say what it is.
    fn answer(
        &mut self,
        word: u8,
        take: &mut MessageReader,
        put: &mut MessageWriter,
    ) -> io::Result<u8> {
        let (answer, done) = match word {
            word::OPEN => {
                let (path, id) = (take.bytes()?.to_vec(), (take.u64()?, take.u64()?));
                (word::OPENED, self.open(&path, id, put))
            }
            word::DISK => return Ok(self.open_disk(put)),
            word::MAP => {
                let (from, size) = (take.u64()?, take.u64()?);
                (word::MAPPED, self.map(from, size, put))
            }
            word::PIECE => {
                let (at, length) = (take.u64()?, take.u32()?);
                let has = if take.flag()? { Some(take.digest()?) } else { None };
                match self.piece(at, length, has, put) {
                    Ok(word) => return Ok(word),
                    Err(error) => (word::DATA, Err(error)),
                }
            }
            word::AFTER => (word::STATE, self.after(put)),
            _ => return Err(nonsense("an invalid request")),
        };
        Ok(match done {
            Ok(()) => answer,
            Err(error) => {
                put.0.clear();
                put_io(put, &error);
                word::ERROR
            }
        })
    }

    fn open(&mut self, path: &[u8], id: (u64, u64), put: &mut MessageWriter) -> io::Result<()> {
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
        put.meta(&meta);
        put.attributes(&attributes);
        let is_small = meta.size <= SMALL && meta.allocated >= meta.size;
        put.byte(is_small.into());
        if is_small {
            let length = usize::try_from(meta.size).unwrap_or(PIECE).min(PIECE);
            let read = read_full(bytes_of(&file)?, &mut self.piece[..length], 0)?;
            put.bytes(&self.piece[..read]);
            put.byte(file.check_unchanged()?.into());
        }
        self.file = Some(file);
        Ok(())
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
                dir = dir.enter(&name(part)?)?;
            }
            self.way = Some((above.to_vec(), dir));
        }
        let (_, dir) = self.way.as_ref().ok_or(Errno::NOENT)?;
        let last: CString = name(last)?;
        LocalFile::of(dir.read(&last)?)
    }

    fn open_disk(&mut self, put: &mut MessageWriter) -> u8 {
        let opened = match self.source {
            Served::Device(path) => LocalDisk(path).open(),
            Served::Tree(_) => Err(CopyError::Refused(
                "the source sends a tree, but the target expects a device; use --device on both or \
                 on neither"
                    .to_owned(),
            )),
        };
        match opened {
            Ok((bytes, size)) => {
                self.disk = Some(bytes);
                put.byte(1);
                put.u64(size);
            }
            Err(error) => {
                put.byte(0);
                put_error(put, &error);
            }
        }
        word::OPENED
    }

    fn bytes(&self) -> io::Result<&File> {
        match (&self.file, &self.disk) {
            (Some(file), _) => bytes_of(file),
            (_, Some(disk)) => bytes_of(disk),
            _ => Err(nonsense("a request for a file that is not open")),
        }
    }

    fn map(&self, mut from: u64, size: u64, put: &mut MessageWriter) -> io::Result<()> {
        let file = self.bytes()?;
        for _ in 0..RANGES {
            let Some(range) = next_data(file, from, size)? else {
                put.u64(size); // Nothing up to the end.
                put.u64(size);
                break;
            };
            put.u64(range.start);
            put.u64(range.end);
            from = range.end;
        }
        Ok(())
    }

    fn piece(
        &mut self,
        at: u64,
        length: u32,
        has: Option<Digest>,
        put: &mut MessageWriter,
    ) -> io::Result<u8> {
        let length = usize::try_from(length).unwrap_or(PIECE).min(PIECE);
        let mut piece = std::mem::take(&mut self.piece);
        let read = self.bytes().and_then(|file| read_full(file, &mut piece[..length], at));
        self.piece = piece;
        let read = &self.piece[..read?];
        if has.is_some_and(|has| has == Digest::of(read)) {
            put.u32(u32::try_from(read.len()).unwrap_or_default());
            return Ok(word::SAME);
        }
        put.bytes(read);
        Ok(word::DATA)
    }

    fn after(&mut self, put: &mut MessageWriter) -> io::Result<()> {
        let file = self.file.as_mut().ok_or_else(|| nonsense("no open file"))?;
        put.byte(file.check_unchanged()?.into());
        Ok(())
    }
}

fn bytes_of(content: &impl Content) -> io::Result<&File> {
    content.file().ok_or_else(|| Errno::BADF.into())
}
