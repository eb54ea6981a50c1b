//! Block devices that are held open.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use nix::sys::stat::{major, minor};

use super::blocking_pool::BlockedCalls;
use super::counters::CallCounters;
use super::{DeviceNumber, HeldDevice, HeldFor, HostError, block};

/// Opens the device node, if it is that of the device with this number.
pub(super) fn open(path: &Path, number: DeviceNumber, held_for: HeldFor) -> io::Result<File> {
    let file = File::options().read(true).write(held_for == HeldFor::Writing).open(path)?;
    let found = file.metadata()?;
    let same = (u64::from(number.major), u64::from(number.minor))
        == (major(found.rdev()), minor(found.rdev()));
    if found.file_type().is_block_device() && same {
        return Ok(file);
    }
    Err(io::Error::other(format!("it is not the device {number}")))
}

/// The devices that are held open, by their paths.
#[derive(Debug, Default)]
pub(super) struct AllHeld(Mutex<Vec<(PathBuf, Weak<File>)>>);

impl AllHeld {
    pub(super) fn add(&self, path: &Path, file: &Arc<File>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, file)| file.strong_count() > 0);
        all.push((path.to_owned(), Arc::downgrade(file)));
    }

    /// Returns those that are among the arguments of a program. It holds them too, as it may
    /// outlive the other holders.
    ///
    /// # Errors
    /// Too many open files.
    pub(super) fn among(&self, args: &[OsString]) -> io::Result<Vec<OwnedFd>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let given = all.iter().filter(|(path, _)| args.iter().any(|arg| arg == path.as_os_str()));
        let files = given.filter_map(|(_, file)| file.upgrade());
        files.map(|file| Ok(file.try_clone()?.into())).collect()
    }
}

/// An open device, and what its calls are counted and waited for with.
#[derive(Debug)]
pub(super) struct OpenDevice {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) limit: Duration,
    pub(super) waiting: Arc<BlockedCalls>,
    pub(super) counts: Arc<CallCounters>,
}

impl OpenDevice {
    async fn call(
        &self,
        count: &'static str,
        name: &str,
        call: impl FnOnce(&File) -> io::Result<()> + Send + 'static,
    ) -> Result<(), HostError> {
        self.counts.add(count);
        let what = format!("{name} {}", self.path.display());
        let file = Arc::clone(&self.file);
        self.waiting.call(what, &self.path, self.limit, move || call(&file)).await
    }
}

#[async_trait]
impl HeldDevice for OpenDevice {
    async fn write_zeroes(&self, range: Range<u64>) -> Result<(), HostError> {
        let write = move |file: &File| block::write_zeroes_to(file, &range);
        self.call("zero_writes", "BLKZEROOUT", write).await
    }

    async fn discard(&self, range: Range<u64>) -> Result<(), HostError> {
        let discard = move |file: &File| block::discard_of(file, &range);
        self.call("discards", "BLKDISCARD", discard).await
    }

    async fn flush(&self) -> Result<(), HostError> {
        self.call("fsyncs", "fsync", File::sync_all).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_given_what_is_held_of_its_arguments() {
        let (all, file) = (AllHeld::default(), Arc::new(tempfile::tempfile().unwrap()));
        all.add(Path::new("/dev/dm-3"), &file);
        let given = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            all.among(&args).unwrap().len()
        };
        assert_eq!(given(&["-f", "/dev/dm-3"]), 1);
        assert_eq!(given(&["-f", "/dev/dm-31"]), 0);
        drop(file);
        assert_eq!(given(&["-f", "/dev/dm-3"]), 0);
    }

    #[test]
    fn what_is_not_the_device_of_the_number_is_not_held() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let number = DeviceNumber { major: 0, minor: 0 };
        for held_for in [HeldFor::Writing, HeldFor::Programs] {
            let error = open(file.path(), number, held_for).unwrap_err();
            assert!(error.to_string().contains("not the device 0:0"), "{error}");
        }
    }
}
