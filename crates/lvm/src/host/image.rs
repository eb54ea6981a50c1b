//! An image of a device, in memory, for programs that only look how they would do; and the kernel that would read it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

use super::Kernel;
use crate::bytes::Bytes;

/// An image. Nothing has its name, so that it is gone when this is dropped, and with this process.
#[derive(Debug)]
pub(super) struct Image(OwnedFd);

/// Creates an image that holds nothing but zeroes, and takes no memory for them.
pub(super) fn make(size: Bytes) -> io::Result<Image> {
    let file = memfd_create(c"pliant", MFdFlags::MFD_CLOEXEC)?;
    let size = i64::try_from(size.get()).map_err(|_| io::ErrorKind::InvalidInput)?;
    ftruncate(&file, size)?;
    Ok(Image(file))
}

impl Image {
    /// Path at which a program that inherits it finds it: no other file, whatever this process
    /// opens meanwhile.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

impl From<Image> for OwnedFd {
    fn from(image: Image) -> OwnedFd {
        image.0
    }
}

/// The kernel that runs.
pub(super) fn kernel() -> Kernel {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Kernel { release: release.trim().to_owned(), page_size: Bytes::new(procfs::page_size()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_its_size_and_takes_no_memory_for_it() {
        use std::os::unix::fs::MetadataExt;
        let image = make(Bytes::gib(1 << 10)).unwrap();
        let path = image.path();
        let seen = std::fs::metadata(&path).unwrap();
        assert_eq!((seen.len(), seen.blocks()), (1 << 40, 0));
        drop(image);
        let is_gone =
            std::fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().contains("pliant"));
        assert!(!is_gone, "{}", path.display());
    }

    #[test]
    fn the_kernel_tells_its_release() {
        let kernel = kernel();
        assert!(kernel.release.starts_with(|first: char| first.is_ascii_digit()), "{kernel:?}");
        assert!(kernel.page_size >= Bytes::new(4096), "{kernel:?}");
    }
}
