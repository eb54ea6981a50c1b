//! The on-disk format of LVM2, read only: label, metadata area, metadata text.
//!
//! Everything in here is pure and total: the bytes come from disks that anyone may have written, so
//! every offset is checked, nesting is limited, and nothing panics. Reading never needs a lock: LVM
//! writes a new text to free space of a ring and commits it with one sector, the area's header.
//!
//! # Source
//! The layout is that of LVM2's `lib/format_text/layout.h` and `lib/label/label.h`.

use std::ops::Range;

use crate::bytes::Bytes;

mod group;
mod ring;
mod text;

pub use group::parse_group;
pub use ring::{Earlier, TextCandidate, before_torn_commit, candidates};

/// Bytes in the sectors that LVM counts.
pub const SECTOR: usize = 512;
/// The label is in one of this many sectors at the start of a physical volume.
const LABEL_SECTORS: usize = 4;
/// The areas that this driver makes hold less, and so does any group that LVM can work with: a longer
/// text would only cost memory.
const MAX_TEXT: u64 = 16 << 20;
const AREA_MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
const AREA_VERSION: u32 = 1;
const IGNORED: u32 = 1;

/// Reason why bytes are not LVM metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The checksum does not match: the disk is damaged, or it was written meanwhile; read it again.
    #[error("the checksum of the {0} does not match")]
    Checksum(&'static str),
    /// The checksum matches and the content makes no sense; reading it again changes nothing.
    #[error("the {part} is malformed: {what}")]
    Malformed {
        /// Part of the metadata.
        part: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

fn malformed(part: &'static str, what: impl Into<String>) -> MetadataError {
    MetadataError::Malformed { part, what: what.into() }
}

/// Label of a physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The physical volume's uuid with dashes.
    pub pv_uuid: String,
    /// Size of the device when the label was written.
    pub device_size: Bytes,
    /// Metadata areas; empty for a physical volume without a copy of the metadata.
    pub areas: Vec<Area>,
}

/// A metadata area: where on the device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Offset of its header sector.
    pub offset: u64,
    /// Header and ring together.
    pub size: u64,
}

/// The header sector of a metadata area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AreaHeader {
    /// Start of the area on the device: [`Area::offset`] of its label.
    pub start: u64,
    /// Header and ring together, in bytes.
    pub size: u64,
    /// True if LVM ignores the text of this area (`--metadataignore`).
    pub ignored: bool,
    /// The committed text; `None` on a physical volume without a group.
    pub text: Option<TextLocation>,
    /// The bytes that change with each commit: equal bytes mean an unchanged group.
    pub raw: [u8; 24],
}

/// Location of the committed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLocation {
    /// Bytes from the start of the area.
    pub offset: u64,
    /// Length in bytes, with the zero byte that ends it.
    pub size: u64,
    /// Checksum of the text, see [`check_text`].
    pub checksum: u32,
}

impl AreaHeader {
    /// Returns whether there is no space for the text of one more volume.
    ///
    /// LVM writes a new text beside the old one, also where a volume is removed: a text may take at
    /// most half of the ring. A quarter of that is reserved for changes to existing volumes, since
    /// an area cannot be enlarged.
    pub fn is_full(&self) -> bool {
        let most = self.size.saturating_sub(SECTOR as u64) / 2;
        self.text.is_some_and(|text| text.size > most - most / 4)
    }

    /// Returns the ranges of the text on the device, in reading order: two if the ring wraps inside
    /// it, none if there is no text.
    pub fn text_ranges(&self) -> Vec<Range<u64>> {
        let Some(text) = self.text else {
            return Vec::new();
        };
        let (begin, end) = (self.start + text.offset, self.start + self.size);
        let ring = self.start + SECTOR as u64;
        let first = text.size.min(end - begin);
        [begin..begin + first, ring..ring + text.size - first]
            .into_iter()
            .filter(|range| !range.is_empty())
            .collect()
    }
}

/// LVM's checksum: reflected CRC-32 with its own initial value and no final inversion.
pub fn checksum(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0xf597_a6cf, |crc, byte| (crc >> 8) ^ CRC[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

// No constant: an unoptimised build copies one at each use, which is each byte.
static CRC: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = table_seed(byte);
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 * (crc & 1));
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[allow(clippy::cast_possible_truncation)] // Below 256; `try_from` is not const.
const fn table_seed(byte: usize) -> u32 {
    byte as u32
}

/// Returns whether a text has the checksum of its location.
pub fn check_text(text: &[u8], expected: u32) -> bool {
    checksum(text) == expected
}

/// Finds the label of a physical volume in the first 2,048 bytes of a device; `None` on a device that
/// has none. Fewer bytes are searched as far as they go.
///
/// # Errors
/// [`MetadataError::Checksum`] if a label is there and damaged; [`MetadataError::Malformed`] if it is
/// of another format or runs over its sector.
pub fn find_label(start: &[u8]) -> Result<Option<Label>, MetadataError> {
    let mut damage = None;
    let sectors = start.chunks_exact(SECTOR).take(LABEL_SECTORS);
    for (number, sector) in sectors.enumerate() {
        if !sector.starts_with(b"LABELONE") {
            continue;
        }
        match parse_label(number as u64, sector) {
            Ok(label) => return Ok(Some(label)),
            Err(error) => damage = damage.or(Some(error)),
        }
    }
    damage.map_or(Ok(None), Err)
}

fn parse_label(number: u64, sector: &[u8]) -> Result<Label, MetadataError> {
    const PART: &str = "physical volume label";
    let short = || malformed(PART, "it extends beyond its sector");
    let mut fields = Fields::at(sector, 8).ok_or_else(short)?;
    let (at, crc, header) = (fields.u64(), fields.u32(), fields.u32());
    if crc != sector.get(20..).map(checksum) {
        return Err(MetadataError::Checksum(PART));
    }
    if at != Some(number) || fields.take(8) != Some(b"LVM2 001") {
        return Err(malformed(PART, "its type is unknown"));
    }
    let mut fields = Fields::at(sector, header.ok_or_else(short)? as usize).ok_or_else(short)?;
    let uuid = fields.take(32).ok_or_else(short)?;
    let pv_uuid = dashed(uuid).ok_or_else(|| malformed(PART, "its uuid is invalid"))?;
    let device_size = Bytes::new(fields.u64().ok_or_else(short)?);
    fields.areas().ok_or_else(short)?; // The data area; the group's text says it better.
    let areas = fields.areas().ok_or_else(short)?;
    Ok(Label { pv_uuid, device_size, areas })
}

/// A uuid as LVM prints it: 32 letters and digits in groups of 6, 4, 4, 4, 4, 4, 6.
fn dashed(uuid: &[u8]) -> Option<String> {
    if !uuid.iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    let mut text = String::with_capacity(38);
    for (i, byte) in uuid.iter().enumerate() {
        if (6..=26).contains(&i) && (i - 6) % 4 == 0 {
            text.push('-');
        }
        text.push(char::from(*byte));
    }
    Some(text)
}

/// Parses the header sector of the metadata area at this offset of the device.
///
/// # Errors
/// [`MetadataError::Checksum`] if it is damaged (or all zeroes, that is, never initialised);
/// [`MetadataError::Malformed`] if it has another format, belongs to another offset, or its text is
/// not inside its ring.
pub fn parse_area(sector: &[u8], at: u64) -> Result<AreaHeader, MetadataError> {
    const PART: &str = "metadata area header";
    let sector =
        sector.get(..SECTOR).ok_or_else(|| malformed(PART, "it is shorter than a sector"))?;
    let crc = Fields(sector).u32();
    if crc != Some(checksum(&sector[4..])) {
        return Err(MetadataError::Checksum(PART));
    }
    let header = parse_area_fields(&sector[4..])
        .ok_or_else(|| malformed(PART, "its numbers are invalid"))?;
    if header.start != at {
        // LVM refuses it too: what it leads to is none of this area.
        return Err(malformed(PART, "it belongs to another offset"));
    }
    Ok(header)
}

fn parse_area_fields(sector: &[u8]) -> Option<AreaHeader> {
    let mut fields = Fields(sector);
    if fields.take(16)? != AREA_MAGIC || fields.u32()? != AREA_VERSION {
        return None;
    }
    let (start, size) = (fields.u64()?, fields.u64()?);
    start.checked_add(size)?;
    let raw: [u8; 24] = fields.0.get(..24)?.try_into().ok()?;
    let (offset, text_size) = (fields.u64()?, fields.u64()?);
    let (checksum, flags) = (fields.u32()?, fields.u32()?);
    let text = TextLocation { offset, size: text_size, checksum };
    let ring = size.checked_sub(SECTOR as u64)?;
    let inside = (SECTOR as u64..size).contains(&offset) && text_size <= ring.min(MAX_TEXT);
    if offset != 0 && !inside {
        return None;
    }
    Some(AreaHeader {
        start,
        size,
        ignored: flags & IGNORED != 0,
        text: (offset != 0).then_some(text),
        raw,
    })
}

/// Little-endian fields read one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn at(bytes: &'a [u8], offset: usize) -> Option<Self> {
        bytes.get(offset..).map(Fields)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A list that ends with an entry of offset zero.
    fn areas(&mut self) -> Option<Vec<Area>> {
        let mut areas = Vec::new();
        loop {
            let (offset, size) = (self.u64()?, self.u64()?);
            if offset == 0 {
                return Some(areas);
            }
            areas.push(Area { offset, size });
        }
    }
}

#[cfg(test)]
mod tests;
