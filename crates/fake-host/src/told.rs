//! What a disk says of its volume group.

use std::ops::Range;

use pliant_lvm::lvm::group::Group;
use pliant_lvm::lvm::metadata::{self, AreaHeader, Label};

use crate::pages::Pages;

const SECTOR: u64 = metadata::SECTOR as u64;

/// Label and metadata lie before it, on any disk.
pub(super) const METADATA_END: u64 = 32 << 20;

/// What a disk's own copy of the metadata says, as far as it can be read.
pub(super) struct Told {
    pub label: Option<Label>,
    pub header: Option<AreaHeader>,
    pub group: Option<Group>,
}

impl Told {
    pub fn by(content: &Pages) -> Told {
        let read = |range: Range<u64>| content.read(range.start, range.end - range.start);
        let label = metadata::find_label(&read(0..4 * SECTOR)).ok().flatten();
        let area = label.as_ref().and_then(|label| label.areas.first());
        let header = area.and_then(|area| {
            let sector = read(area.offset..area.offset + SECTOR);
            metadata::parse_area(&sector, area.offset).ok()
        });
        let group = header.as_ref().and_then(|header| {
            let text = header.text_ranges().into_iter().map(read).collect::<Vec<_>>().concat();
            let whole = metadata::check_text(&text, header.text?.checksum);
            whole.then(|| metadata::parse_group(&text).ok()).flatten()
        });
        Told { label, header, group }
    }
}
