//! Converts the tree of a metadata text to a volume group.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{self, MetadataValue, Section};
use super::{MetadataError, SECTOR, malformed};
use crate::bytes::Bytes;
use crate::lvm::Words;
use crate::lvm::group::{
    ExtentRun, Group, Lv, PhysicalVolume, Segment, ThinMessage, ThinPoolSegment,
};

const PART: &str = "volume group";

/// Parses the metadata text of a volume group. No physical volume has a device yet: the text holds only
/// a hint of it.
///
/// A segment of any type is understood as far as it names physical volumes (`pieces`) and logical
/// volumes: `volumes` holds these by the key that names them (`origin`, `cow_store`, `thin_pool`), and
/// elements of an array by the key and their place in it (`raids.0`).
///
/// # Errors
/// [`MetadataError::Malformed`].
pub fn parse_group(text: &[u8]) -> Result<Group, MetadataError> {
    let file = text::parse(text)?;
    let mut sections = file.sections();
    let (Some((name, section)), None) = (sections.next(), sections.next()) else {
        return Err(malformed(PART, "the text does not describe one volume group"));
    };
    let pvs = named(section, "physical_volumes", |_, pv| parse_pv(pv))?;
    let lv_names = section.section("logical_volumes");
    let known = KnownNames {
        pvs: &pvs,
        lvs: lv_names.iter().flat_map(|lvs| lvs.unread()).map(|(name, _)| name).collect(),
    };
    let lvs = named(section, "logical_volumes", |name, lv| known.lv(name, lv))?;
    let extent_size = extent_size(section, &pvs, &lvs)?;
    each_has_its_own_uuid(&lvs)?;
    Ok(Group {
        name: plain(name)?,
        uuid: uuid(section)?,
        seqno: number(section, "seqno")?,
        extent_size,
        flags: flags(section),
        tags: strings(section, "tags").collect(),
        system_id: word(section, "system_id"),
        lock_type: word(section, "lock_type").filter(|kind| kind != "none"),
        max_lv: most(section, "max_lv"),
        max_pv: most(section, "max_pv"),
        allocation: word(section, "allocation_policy"),
        metadata_full: false,
        pvs,
        lvs,
    })
}

/// The size of an extent, in which all that the group has can be counted in bytes.
fn extent_size(
    group: &Section,
    pvs: &BTreeMap<String, PhysicalVolume>,
    lvs: &BTreeMap<String, Lv>,
) -> Result<Bytes, MetadataError> {
    extents(group, "extent_size")?; // LVM keeps it in as many bits as a count of extents.
    let size = sectors(group, "extent_size")?;
    let disks = pvs.values().map(|pv| pv.pe_count).sum::<u64>();
    let largest = lvs.values().map(Lv::extents).max().unwrap_or_default();
    let counts = size > Bytes::ZERO && size.checked_mul(disks.max(largest)).is_some();
    counts.then_some(size).ok_or_else(|| malformed(PART, "`extent_size` is invalid"))
}

/// Two volumes with one uuid would have one device, and what is done to one is done to the other.
fn each_has_its_own_uuid(lvs: &BTreeMap<String, Lv>) -> Result<(), MetadataError> {
    let mut seen = BTreeSet::new();
    match lvs.values().find(|lv| !seen.insert(&lv.uuid)) {
        Some(lv) => Err(malformed(PART, format!("`{}` has the uuid of another", lv.name))),
        None => Ok(()),
    }
}

/// A name as LVM takes them: it becomes part of paths and command lines.
fn plain(name: &str) -> Result<String, MetadataError> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    let fits = (1..=127).contains(&name.len()) && name.bytes().all(known);
    if fits && !name.starts_with('-') && ![".", ".."].contains(&name) {
        return Ok(name.to_owned());
    }
    Err(malformed(PART, format!("{name:?} is not a name")))
}

/// A uuid as LVM prints it; an empty one would stand for every device of the host.
fn uuid(section: &Section) -> Result<String, MetadataError> {
    let uuid = string(section, "id")?;
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"!#".contains(&byte);
    let groups = uuid.split('-').map(str::len);
    if groups.eq([6, 4, 4, 4, 4, 4, 6]) && uuid.bytes().all(|byte| byte == b'-' || known(byte)) {
        return Ok(uuid);
    }
    Err(malformed(PART, format!("{uuid:?} is not a uuid")))
}

fn parse_pv(pv: &Section) -> Result<PhysicalVolume, MetadataError> {
    sectors(pv, "pe_start")?; // It fits a device.
    Ok(PhysicalVolume {
        uuid: uuid(pv)?,
        device: None,
        pe_start: number(pv, "pe_start")?,
        pe_count: extents(pv, "pe_count")?,
        size: sectors(pv, "dev_size")?,
        flags: flags(pv),
        tags: strings(pv, "tags").collect(),
    })
}

/// Keys of a segment whose text is a setting, even where a logical volume is called the same.
const SETTINGS: [&str; 4] = ["type", "discards", "cache_mode", "policy"];

/// The names that a segment may use.
struct KnownNames<'a> {
    pvs: &'a BTreeMap<String, PhysicalVolume>,
    lvs: BTreeSet<&'a str>,
}

impl KnownNames<'_> {
    fn lv(&self, name: &str, lv: &Section) -> Result<Lv, MetadataError> {
        let mut segments = lv
            .sections()
            .filter(|(key, _)| key.starts_with("segment"))
            .map(|(_, segment)| self.segment(segment))
            .collect::<Result<Vec<_>, _>>()?;
        segments.sort_by_key(|segment| segment.start);
        segments.shrink_to_fit();
        let mut next = 0;
        for segment in &segments {
            if segment.start != next {
                let what = format!("the segments of {name:?} leave a gap or overlap");
                return Err(malformed(PART, what));
            }
            next += segment.extents;
        }
        Ok(Lv {
            name: plain(name)?,
            uuid: uuid(lv)?,
            flags: flags(lv),
            tags: strings(lv, "tags").collect(),
            segments,
        })
    }

    fn segment(&self, section: &Section) -> Result<Segment, MetadataError> {
        let mut segment = Segment {
            start: extents(section, "start_extent")?,
            extents: extents(section, "extent_count")?,
            kind: string(section, "type")?,
            pieces: Vec::new(),
            volumes: BTreeMap::new(),
            thin_pool: None,
        };
        if segment.kind == "thin-pool" {
            segment.thin_pool = Some(ThinPoolSegment {
                chunk: sectors(section, "chunk_size")?,
                transaction: number(section, "transaction_id").unwrap_or_default(),
                // As LVM reads it.
                zeroes: number(section, "zero_new_blocks").is_ok_and(|zeroes| zeroes != 0),
                messages: messages(section)?,
            });
        }
        for (key, value) in &section.0 {
            match value {
                MetadataValue::Text(name) => self.name_volume(&mut segment, key, name),
                MetadataValue::Array(items) => self.array(&mut segment, key, items)?,
                MetadataValue::Number(_) | MetadataValue::Section(_) | MetadataValue::Unread(_) => {
                }
            }
        }
        segment.pieces.shrink_to_fit();
        Ok(segment)
    }

    fn name_volume(&self, segment: &mut Segment, key: &str, name: &str) {
        if self.lvs.contains(name) && !SETTINGS.contains(&key) {
            segment.volumes.insert(key.to_owned(), name.to_owned());
        }
    }

    /// An array of names, or of pairs of a name and the first extent there.
    fn array(
        &self,
        segment: &mut Segment,
        key: &str,
        items: &[MetadataValue],
    ) -> Result<(), MetadataError> {
        // Stripes share the extents of the segment; images of a mirror have all of them.
        let stripes = if key == "stripes" { items.len() / 2 } else { 1 };
        for (place, item) in items.iter().enumerate() {
            let MetadataValue::Text(name) = item else { continue };
            match (self.pvs.get(&**name), items.get(place + 1)) {
                (Some(pv), Some(MetadataValue::Number(first))) => {
                    let length = segment.extents / stripes.max(1) as u64;
                    segment.pieces.push(piece(name, pv, *first, length)?);
                }
                _ if self.lvs.contains(&**name) => {
                    self.name_volume(segment, &format!("{key}.{place}"), name);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn piece(
    name: &str,
    pv: &PhysicalVolume,
    first: i64,
    length: u64,
) -> Result<ExtentRun, MetadataError> {
    let range = u64::try_from(first)
        .ok()
        .and_then(|first| Some(first..first.checked_add(length)?))
        .filter(|range| range.end <= pv.pe_count)
        .ok_or_else(|| malformed(PART, format!("a segment is outside of {name:?}")))?;
    Ok(ExtentRun { pv: name.to_owned(), range })
}

/// The sections in section `list`, each parsed, by name.
fn named<T>(
    group: &Section,
    list: &str,
    parse: impl Fn(&str, &Section) -> Result<T, MetadataError>,
) -> Result<BTreeMap<String, T>, MetadataError> {
    let mut found = BTreeMap::new();
    for (name, section) in group.section(list).iter().flat_map(|list| list.unread()) {
        if found.insert(name.to_owned(), parse(name, &section.read()?)?).is_some() {
            return Err(malformed(PART, format!("{name:?} appears twice")));
        }
    }
    Ok(found)
}

/// The messages of a thin pool, in order.
///
/// # Source
/// `_thin_pool_text_export` in LVM2's `lib/thin/thin.c`.
fn messages(section: &Section) -> Result<Vec<ThinMessage>, MetadataError> {
    let messages = section.sections().filter(|(name, _)| name.starts_with("message"));
    let message = |(_, message): (&str, &Section)| match word(message, "create") {
        Some(name) => Ok(ThinMessage::Create(name)),
        None => number(message, "delete").map(ThinMessage::Delete),
    };
    messages.map(message).collect()
}

fn string(section: &Section, key: &str) -> Result<String, MetadataError> {
    match section.get(key) {
        Some(MetadataValue::Text(text)) => Ok(text.clone().into_owned()),
        _ => Err(malformed(PART, format!("it has no string `{key}`"))),
    }
}

/// A text that may be missing or empty, which says the same.
fn word(section: &Section, key: &str) -> Option<String> {
    string(section, key).ok().filter(|word| !word.is_empty())
}

/// A limit; zero is none.
fn most(section: &Section, key: &str) -> Option<u64> {
    number(section, key).ok().filter(|most| *most > 0)
}

fn number(section: &Section, key: &str) -> Result<u64, MetadataError> {
    let found = match section.get(key) {
        Some(MetadataValue::Number(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    found.ok_or_else(|| malformed(PART, format!("it has no number `{key}`")))
}

/// A count of extents, which LVM keeps in 32 bits; so no sum of them overflows.
fn extents(section: &Section, key: &str) -> Result<u64, MetadataError> {
    number(section, key).and_then(|count| match u32::try_from(count) {
        Ok(_) => Ok(count),
        Err(_) => Err(malformed(PART, format!("`{key}` is too large"))),
    })
}

fn sectors(section: &Section, key: &str) -> Result<Bytes, MetadataError> {
    Bytes::new(SECTOR as u64)
        .checked_mul(number(section, key)?)
        .ok_or_else(|| malformed(PART, format!("`{key}` is too large")))
}

/// The strings of an array; a string alone counts as an array of one.
fn strings<'a>(section: &'a Section, key: &str) -> impl Iterator<Item = &'a str> {
    let items = match section.get(key) {
        Some(MetadataValue::Array(items)) => items.as_slice(),
        Some(text) => std::slice::from_ref(text),
        None => &[],
    };
    items.iter().filter_map(|item| match item {
        MetadataValue::Text(text) => Some(&**text),
        _ => None,
    })
}

/// Status flags: LVM keeps those that old versions must understand apart from the others.
fn flags(section: &Section) -> Words {
    strings(section, "status").chain(strings(section, "flags")).collect()
}
