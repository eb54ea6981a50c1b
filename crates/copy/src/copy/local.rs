//! Sources of a copy on this host.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::dir::{Dir, DirNames, EntryKind, Meta, Stamp, meta_of};
use super::index::IndexReader;
use super::manifest::{Manifest, ReadScope, Side};
use super::needs::Needs;
use super::options::{Pass, TreeOptions};
use super::outcome::{At, CopyError};
use super::progress::ProgressReporter;
use super::source::{Content, ContentPiece, Opened, SourceDisk, SourceTree, Steps, Take, Tick};
use super::sum::{Sum, next_data, read_full, sum};
use super::target::OpenEntry;
use super::walk::{Walk, WalkStep};
use super::xattr::{Attributes, attributes, attributes_of};

impl SourceTree for Dir {
    type Steps = Walk;

    fn space_needed(
        &self,
        live: bool,
        block: u64,
        tell: &mut ProgressReporter,
    ) -> Result<Needs, CopyError> {
        Needs::of(self, live, block, &mut || tell.file_done())
    }

    fn steps(&self, how: TreeOptions, _: &Dir) -> Result<Walk, CopyError> {
        Walk::over(self.again().at("reading", b"")?, how.round == Pass::PreCopy)
    }

    fn entries(
        &self,
        index: Option<IndexReader>,
        _: Option<u64>,
        tick: Tick,
        take: Take,
    ) -> Result<(), CopyError> {
        let reading = ReadScope { side: Side::Source, index, before: None };
        let mut manifest = Manifest::of(self, reading, tick)?;
        while let Some(entry) = manifest.next_entry()? {
            take(entry)?;
        }
        Ok(())
    }
}

impl Steps for Walk {
    type File = LocalFile;

    fn next(&mut self) -> Result<Option<WalkStep>, CopyError> {
        self.step()
    }

    fn path(&self) -> &[u8] {
        self.path()
    }

    fn gone(&mut self, theirs: &DirNames) -> Result<Vec<CString>, CopyError> {
        let ours = self.names();
        let gone = theirs.iter().filter(|name| !ours.contains(name));
        Ok(gone.map(std::ffi::CStr::to_owned).collect())
    }

    fn leaving(&mut self) -> io::Result<(Meta, Attributes)> {
        let dir = OpenEntry::open(self.here().again()?);
        Ok((dir.meta()?, attributes(&dir)?))
    }

    fn look(&mut self, found: &WalkStep) -> io::Result<(Attributes, Vec<u8>)> {
        let thing = OpenEntry::bare(self.here(), &found.name)?;
        let is_link = found.meta.kind == EntryKind::Symlink;
        let says = if is_link { self.here().link(&found.name)? } else { Vec::new() };
        Ok((attributes(&thing)?, says))
    }

    fn open(&mut self, found: &WalkStep) -> io::Result<LocalFile> {
        let opened = LocalFile::of(self.here().read(&found.name)?)?;
        if (opened.was.id, opened.was.kind) != (found.meta.id, EntryKind::File) {
            return Err(Errno::STALE.into());
        }
        Ok(opened)
    }

    fn vanished(&self) -> u64 {
        self.vanished
    }

    fn changed(&self) -> CopyError {
        self.changed()
    }

    /// One host, one clock.
    fn as_of(&self, target: Stamp) -> Option<Stamp> {
        Some(target)
    }
}

/// An open file on this host.
#[derive(Debug)]
pub struct LocalFile {
    file: File,
    was: Meta,
}

impl LocalFile {
    /// Wraps a file that is open for reading.
    ///
    /// # Errors
    /// An error of the system on it.
    pub fn of(file: File) -> io::Result<LocalFile> {
        let was = meta_of(&file)?;
        Ok(LocalFile { file, was })
    }
}

impl Content for LocalFile {
    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn next_data(&mut self, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
        // What has no holes need not be asked for them.
        if from == 0 && size > 0 && self.was.allocated >= size {
            return Ok(Some(0..size));
        }
        next_data(&self.file, from, size)
    }

    fn piece(&mut self, buffer: &mut [u8], at: u64, _: (&File, u64)) -> io::Result<ContentPiece> {
        read_full(&self.file, buffer, at).map(ContentPiece::Read)
    }
}

impl Opened for LocalFile {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn meta(&self) -> &Meta {
        &self.was
    }

    fn attributes(&mut self) -> io::Result<Attributes> {
        Ok(attributes_of(self.file.as_fd(), None)?)
    }

    fn check_unchanged(&mut self) -> io::Result<bool> {
        Ok(meta_of(&self.file)?.changed == self.was.changed)
    }
}

/// A block device on this host, or an image of one, by its path.
#[derive(Debug, Clone, Copy)]
pub struct LocalDisk<'a>(pub &'a Path);

/// An open block device on this host.
#[derive(Debug)]
pub struct DiskBytes(File);

impl SourceDisk for LocalDisk<'_> {
    type Bytes = DiskBytes;

    fn open(&self) -> Result<(DiskBytes, u64), CopyError> {
        let (file, size) = open(self.0, OFlags::empty(), false)?;
        Ok((DiskBytes(file), size))
    }

    fn sum(&self, size: u64, _: Option<u64>, tick: Tick) -> Result<Sum, CopyError> {
        let (file, _) = open(self.0, OFlags::empty(), false)?;
        sum((&file, size), self.0.as_os_str().as_bytes(), &mut Vec::new(), tick)
    }

    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

impl Content for DiskBytes {
    fn file(&self) -> Option<&File> {
        Some(&self.0)
    }

    /// All of it: what is no data in an image is zeroes, which are compared.
    fn next_data(&mut self, from: u64, size: u64) -> io::Result<Option<Range<u64>>> {
        Ok((from < size).then_some(from..size))
    }

    fn piece(&mut self, buffer: &mut [u8], at: u64, _: (&File, u64)) -> io::Result<ContentPiece> {
        read_full(&self.0, buffer, at).map(ContentPiece::Read)
    }
}

/// Opens a block device, or an image of one; returns the file and its size.
///
/// # Errors
/// [`CopyError::Refused`] for another kind of thing, and for a device that is in use.
pub fn open(path: &Path, flags: OFlags, write: bool) -> Result<(File, u64), CopyError> {
    let name = path.as_os_str().as_bytes();
    let kind = std::fs::metadata(path).at("opening", name)?.file_type();
    // `O_EXCL` without `O_CREAT` means something for block devices alone: no one else has claimed
    // it.
    let flags = if kind.is_block_device() { flags } else { OFlags::empty() };
    if !kind.is_block_device() && !kind.is_file() {
        return Err(CopyError::Refused(format!(
            "{} is neither a block device nor an image of one; leave --device out to copy a tree",
            path.display()
        )));
    }
    let bits = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).write(write).custom_flags(bits).open(path);
    let mut file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => CopyError::Refused(format!(
            "{} is in use: it is mounted, or part of a volume group or of a device-mapper device",
            path.display()
        )),
        _ => Err::<(), _>(error).at("opening", name).unwrap_err(),
    })?;
    let size = file.seek(SeekFrom::End(0)).at("measuring", name)?;
    Ok((file, size))
}
