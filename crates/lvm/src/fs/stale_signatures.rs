//! Stale signatures beyond a file system's end, on a device that is larger.

use std::ops::Range;
use std::path::Path;

use crate::bytes::Bytes;
use crate::fs::{FsError, Superblock};
use crate::host::{Host, HostError};
use crate::volume::FsKind;

/// How far from a device's end signatures are looked for, such as md's and the second table of GPT.
const END: u64 = 1 << 20;

/// The part of the device's end that no byte of its file system is in; empty if it owns all of it.
fn end_behind(superblock: &Superblock, size: Bytes) -> Range<u64> {
    let size = size.get();
    superblock.covers.get().clamp(size.saturating_sub(END), size)..size
}

/// Wipes the device beyond the end of its file system, which may grow into it: what a former tenant
/// left there could be taken for the device's own signature.
///
/// `mounted` is any of its mount points; the kernel confirms the size then. A file system that is
/// mounted nowhere has just been checked, so that its journal holds no other size. A device that ends
/// in zeroes is left alone.
///
/// # Errors
/// [`FsError::Host`], also if the kernel does not confirm the size: nothing was written then.
pub(super) async fn wipe_behind(
    host: &dyn Host,
    device: &Path,
    mounted: Option<&Path>,
    superblock: &Superblock,
    size: Bytes,
) -> Result<(), FsError> {
    let end = end_behind(superblock, size);
    if end.is_empty() || host.is_zero(device, end.clone()).await? {
        return Ok(());
    }
    if let Some(mounted) = mounted {
        confirm_size(host, mounted, superblock).await?;
    }
    host.write_zeroes(device, end).await?;
    // Durable before the file system owns it: from then on no one may wipe it.
    Ok(host.flush(device).await?)
}

/// Lets the kernel confirm the size of a mounted file system by growing it to just that: it refuses
/// if the size is another, or while an earlier growth that no one waits for any more is under way.
async fn confirm_size(
    host: &dyn Host,
    mounted: &Path,
    superblock: &Superblock,
) -> Result<(), HostError> {
    let blocks = superblock.covers.get() / superblock.block_size.get();
    match superblock.kind {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => host.ext_resize(mounted, blocks).await,
        FsKind::Xfs => {
            let geometry = host.xfs_geometry(mounted).await?;
            host.xfs_grow(mounted, blocks, geometry.inode_max_percent).await
        }
        // Its size came from the kernel's memory, and it takes no byte before it counts it there.
        FsKind::Btrfs => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::superblock::FsFacts;

    #[test]
    fn the_end_behind_is_none_of_the_file_systems_bytes() {
        let (mib, block) = (1 << 20, 4096);
        for (covers, size, end) in [
            (64 * mib, 64 * mib, 64 * mib..64 * mib),
            (64 * mib - block, 64 * mib, 64 * mib - block..64 * mib),
            (32 * mib, 64 * mib, 63 * mib..64 * mib),
            (96 * mib, 64 * mib, 64 * mib..64 * mib),
        ] {
            let superblock = Superblock {
                kind: FsKind::Xfs,
                block_size: Bytes::new(block),
                covers: Bytes::new(covers),
                slack: Bytes::new(block),
                uuid: String::new(),
                facts: FsFacts::Xfs { in_progress: false, log_used: true, group: Bytes::gib(1) },
            };
            assert_eq!(end_behind(&superblock, Bytes::new(size)), end, "{covers} of {size}");
        }
    }
}
