//! What a superblock says of its file system.

use crate::bytes::Bytes;
use crate::volume::FsKind;

/// The transactions that mkfs.btrfs itself commits (btrfs-progs 6.2).
const LAST_GENERATION_OF_MKFS: u64 = 6;

/// A file system as its superblock describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Type of the file system.
    pub kind: FsKind,
    /// Block size.
    pub block_size: Bytes,
    /// Size of the device that the file system covers, from the device's start.
    pub covers: Bytes,
    /// Number of bytes, exclusive, that the device may be longer without the file system being able
    /// to use them: a block, or at a group's end the tables that another group would need.
    pub slack: Bytes,
    /// Its uuid in the usual notation with four hyphens.
    pub uuid: String,
    /// Facts that only this type has.
    pub facts: FsFacts,
}

/// Facts of a file system beyond its size, by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsFacts {
    /// ext2, ext3 and ext4.
    Ext(ExtFacts),
    /// xfs.
    Xfs {
        /// mkfs has begun and not ended.
        in_progress: bool,
        /// The superblock has gone through the log, as it does at the latest at the first unmount.
        log_used: bool,
        /// Distance from the start of one allocation group, with its copy of the superblock, to the
        /// next.
        group: Bytes,
    },
    /// btrfs.
    Btrfs {
        /// Number of devices that it spans.
        devices: u64,
        /// Number of transactions; mkfs itself needs some.
        generation: u64,
    },
}

/// Facts of a superblock of the ext family beyond its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // They are flags of the format.
pub struct ExtFacts {
    /// Made with `sparse_super2`: the kernel refuses to grow it while it is mounted.
    pub sparse_super2: bool,
    /// The checksums of its metadata begin with its uuid: who changes that rewrites all of them.
    pub uuid_in_checksums: bool,
    /// Made with `64bit`: may grow beyond 2³² blocks.
    pub wide: bool,
    /// True if its journal has to be replayed.
    pub needs_recovery: bool,
    /// Unmounted in order and without known errors.
    pub clean: bool,
    /// The kernel has found errors in it.
    pub errors: bool,
    /// True if it was mounted for writing at least once.
    pub mounted_before: bool,
}

impl Superblock {
    /// Returns whether it was mounted for writing since it was created, so that it may hold data.
    ///
    /// `true` may be wrong for btrfs, where another version of mkfs may count further. `false` is
    /// certain for ext alone: xfs and btrfs show no trace of a first mount that was cut off early.
    pub fn mounted_before(&self) -> bool {
        match self.facts {
            FsFacts::Ext(ext) => ext.mounted_before,
            FsFacts::Xfs { log_used, .. } => log_used,
            FsFacts::Btrfs { generation, .. } => generation > LAST_GENERATION_OF_MKFS,
        }
    }

    /// Returns whether its creation was interrupted; only xfs shows it, ext and btrfs write their
    /// superblock last.
    pub fn half_made(&self) -> bool {
        matches!(self.facts, FsFacts::Xfs { in_progress: true, .. })
    }

    /// Returns whether the kernel has found errors in it; only ext shows it.
    pub fn has_errors(&self) -> bool {
        matches!(self.facts, FsFacts::Ext(ext) if ext.errors)
    }

    /// Returns whether the checksums of its metadata begin with its uuid; only ext knows such.
    pub fn has_uuid_in_checksums(&self) -> bool {
        matches!(self.facts, FsFacts::Ext(ext) if ext.uuid_in_checksums)
    }

    /// Returns whether it covers a device of this size as far as it can.
    ///
    /// A superblock that claims more than the device has counts as covering it: growing does not
    /// help.
    pub fn fills(&self, device_size: Bytes) -> bool {
        device_size.saturating_sub(self.covers) < self.slack
    }
}
