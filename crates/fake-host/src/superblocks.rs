//! Plausible superblocks: as much of them as tells kind, size, and whether it was ever mounted.

use pliant_volume::FsKind;
use pliant_volume::bytes::Bytes;

/// How many bytes at the start of a device hold them all.
pub(super) const HEAD: u64 = 68 << 10;
/// Where a signature unknown to the driver is put.
pub(super) const FOREIGN_AT: u64 = 3072;
const FOREIGN: &[u8] = b"fake signature ";
const EXT: usize = 1024;
const BTRFS: usize = 64 << 10;
const BLOCK: u64 = 4096;

/// The bytes of a signature.
pub(super) fn foreign(name: &str) -> Vec<u8> {
    [FOREIGN, name.as_bytes(), b"\0"].concat()
}

/// What `blkid` would call the content of a device that begins with `head`.
pub(super) fn type_of(head: &[u8]) -> Option<String> {
    let at = usize::try_from(FOREIGN_AT).expect("a small number");
    if let Some(name) = head.get(at..).and_then(|rest| rest.strip_prefix(FOREIGN)) {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        return Some(String::from_utf8_lossy(name).into_owned());
    }
    if head.get(512..520) == Some(b"LABELONE") {
        return Some("LVM2_member".to_owned());
    }
    FakeFs::read(head).map(|fs| fs.kind.to_string())
}

/// A file system as its superblock has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FakeFs {
    pub kind: FsKind,
    pub covers: Bytes,
}

impl FakeFs {
    /// The size of its blocks.
    pub const BLOCK: u64 = BLOCK;

    pub fn read(head: &[u8]) -> Option<FakeFs> {
        let le32 =
            |at: usize| Some(u64::from(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?)));
        let be64 = |at: usize| Some(u64::from_be_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let (kind, covers) = if head.get(EXT + 56..EXT + 58)? == [0x53, 0xef] {
            let blocks = le32(EXT + 4)? | le32(EXT + 0x150)? << 32;
            let kind = match (le32(EXT + 0x60)? & 0x40, le32(EXT + 0x5c)? & 4) {
                (0, 0) => FsKind::Ext2,
                (0, _) => FsKind::Ext3,
                _ => FsKind::Ext4,
            };
            (kind, blocks * BLOCK)
        } else if head.starts_with(b"XFSB") {
            (FsKind::Xfs, be64(8)? * BLOCK)
        } else if head.get(BTRFS + 0x40..BTRFS + 0x48)? == b"_BHRfS_M" {
            let total = head.get(BTRFS + 0x70..BTRFS + 0x78)?.try_into().ok()?;
            (FsKind::Btrfs, u64::from_le_bytes(total))
        } else {
            return None;
        };
        let covers = Bytes::new(covers);
        Some(FakeFs { kind, covers })
    }

    /// The first [`HEAD`] bytes after mkfs; `begun` only, as a killed mkfs leaves them.
    pub fn make(self, uuid: u128, begun: bool) -> Vec<u8> {
        let mut head = vec![0; usize::try_from(HEAD).expect("a small number")];
        let id = uuid.to_be_bytes();
        match self.kind {
            FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 if begun => head[8192..8200].fill(0xee),
            FsKind::Btrfs if begun => head[BTRFS + 0x48] = 1,
            FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => make_ext(&mut head, self.kind, id),
            FsKind::Xfs => make_xfs(&mut head, id, begun),
            FsKind::Btrfs => make_btrfs(&mut head, id),
        }
        if !begun || self.kind == FsKind::Xfs {
            self.resize(&mut head);
        }
        head
    }

    /// Write its size into a superblock.
    pub fn resize(self, head: &mut [u8]) {
        let blocks = self.covers.get() / BLOCK;
        match self.kind {
            FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => {
                let blocks = blocks.to_le_bytes();
                put(head, EXT + 4, &blocks[..4]);
                put(head, EXT + 0x150, &blocks[4..]);
            }
            FsKind::Xfs => put(head, 8, &blocks.to_be_bytes()),
            FsKind::Btrfs => {
                let bytes = (blocks * BLOCK).to_le_bytes();
                put(head, BTRFS + 0x70, &bytes);
                put(head, BTRFS + 0xc9 + 8, &bytes);
            }
        }
    }

    /// Its uuid.
    pub fn uuid(self, head: &[u8]) -> u128 {
        let at = self.place_of_uuid();
        u128::from_be_bytes(head[at..at + 16].try_into().expect("16 bytes"))
    }

    /// Give it another uuid.
    pub fn set_uuid(self, head: &mut [u8], uuid: u128) {
        put(head, self.place_of_uuid(), &uuid.to_be_bytes());
    }

    fn place_of_uuid(self) -> usize {
        match self.kind {
            FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => EXT + 0x68,
            FsKind::Xfs => 32,
            FsKind::Btrfs => BTRFS + 0x20,
        }
    }

    /// Leave the trace of a mount for writing.
    pub fn mounted(self, head: &mut [u8]) {
        match self.kind {
            FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => {
                put(head, EXT + 0x2c, &2u32.to_le_bytes());
                put(head, EXT + 0x34, &1u16.to_le_bytes());
            }
            FsKind::Xfs => put(head, 240, &1u64.to_be_bytes()),
            FsKind::Btrfs => put(head, BTRFS + 0x48, &7u64.to_le_bytes()),
        }
    }
}

fn put(head: &mut [u8], at: usize, bytes: &[u8]) {
    head[at..at + bytes.len()].copy_from_slice(bytes);
}

fn make_ext(head: &mut [u8], kind: FsKind, uuid: [u8; 16]) {
    let journal: u32 = if kind == FsKind::Ext2 { 0 } else { 4 };
    let (incompat, ro_compat): (u32, u32) = match kind {
        FsKind::Ext4 => (0x2 | 0x40 | 0x80 | 0x200, 0x1 | 0x2 | 0x8 | 0x400),
        _ => (0x2, 0x1 | 0x2),
    };
    let numbers = [
        (0x18, 2),
        (0x20, 32_768),
        (0x24, 32_768),
        (0x28, 8192),
        (0x40, 1),
        (0x4c, 1),
        (0x5c, journal | 0x10),
        (0x60, incompat),
        (0x64, ro_compat),
        (0x108, 1),
    ];
    for (at, number) in numbers {
        put(head, EXT + at, &number.to_le_bytes());
    }
    for (at, number) in [(0x38, 0xef53u16), (0x3a, 1), (0x58, 256), (0xfe, 64)] {
        put(head, EXT + at, &number.to_le_bytes());
    }
    put(head, EXT + 0x68, &uuid);
}

fn make_xfs(head: &mut [u8], uuid: [u8; 16], begun: bool) {
    put(head, 0, b"XFSB");
    put(head, 4, &4096u32.to_be_bytes());
    put(head, 32, &uuid);
    put(head, 84, &u32::MAX.to_be_bytes()); // One allocation group, so no copies.
    head[126] = u8::from(begun);
    head[127] = 25;
}

fn make_btrfs(head: &mut [u8], uuid: [u8; 16]) {
    put(head, BTRFS + 0x20, &uuid);
    put(head, BTRFS + 0x30, &(64u64 << 10).to_le_bytes());
    put(head, BTRFS + 0x40, b"_BHRfS_M");
    put(head, BTRFS + 0x48, &6u64.to_le_bytes());
    put(head, BTRFS + 0x88, &1u64.to_le_bytes());
    put(head, BTRFS + 0x90, &4096u32.to_le_bytes());
    put(head, BTRFS + 0x94, &16_384u32.to_le_bytes());
    put(head, BTRFS + 0xc9, &1u64.to_le_bytes());
}
