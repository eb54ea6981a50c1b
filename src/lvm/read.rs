//! Read the metadata of one physical volume, consistently and without a lock.
//!
//! LVM writes new text to fresh space of the ring and commits it by one sector write, which holds the
//! text's checksum too. So: read the header and the text it points to. Text that fits its checksum is
//! what the header meant; text that does not was written over meanwhile, if the header has moved, and
//! then all is read again.

use std::path::Path;

use crate::host::{Host, HostError};
use crate::lvm::group::Group;
use crate::lvm::metadata::{self, AreaHeader, Label, MetadataError};

/// Bytes of a metadata area's header.
const HEADER_BYTES: usize = 512;

/// A group changes at most this often while it is being read, unless something is very wrong.
const TRIES: usize = 16;

/// Content of one physical volume.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Change check: equal bytes mean equal metadata. `None` if this disk has no metadata.
    pub mark: Option<[u8; 24]>,
    /// The volume group; `None` if the disk has no metadata or belongs to no volume group.
    pub group: Option<Group>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// Reads only the change check of a disk: one sector.
pub(crate) async fn mark(
    host: &dyn Host,
    device: &Path,
    label: &Label,
) -> Result<Option<[u8; 24]>, ReadError> {
    Ok(header(host, device, label, &[]).await?.map(|header| header.raw))
}

/// Reads the metadata of a disk, whose first bytes are known: they may hold the header.
pub(crate) async fn copy(
    host: &dyn Host,
    device: &Path,
    label: &Label,
    mut head: &[u8],
) -> Result<Copy, ReadError> {
    for _ in 0..TRIES {
        let Some(before) = header(host, device, label, head).await? else {
            return Ok(Copy { mark: None, group: None });
        };
        let Some(text) = before.text.as_ref() else {
            return Ok(Copy { mark: Some(before.raw), group: None });
        };
        let mut bytes = Vec::new();
        for range in before.text_ranges() {
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            bytes.extend(host.read_at(device, range.start, length).await?);
        }
        if metadata::check_text(&bytes, text.checksum) {
            let mut group = metadata::parse_group(&bytes)?;
            group.metadata_full = before.is_full();
            return Ok(Copy { mark: Some(before.raw), group: Some(group) });
        }
        head = &[];
        let after = header(host, device, label, head).await?;
        if after.is_none_or(|after| after.raw == before.raw) {
            return Err(MetadataError::Checksum("metadata text").into());
        }
    }
    Err(MetadataError::Checksum("metadata text, which changes at every read,").into())
}

/// The header of the first metadata area that LVM has not set aside.
async fn header(
    host: &dyn Host,
    device: &Path,
    label: &Label,
    head: &[u8],
) -> Result<Option<AreaHeader>, ReadError> {
    for area in &label.areas {
        let start = usize::try_from(area.offset).unwrap_or(usize::MAX);
        let sector = match head.get(start..start.saturating_add(HEADER_BYTES)) {
            Some(sector) => sector.to_vec(),
            None => host.read_at(device, area.offset, HEADER_BYTES).await?,
        };
        let header = metadata::parse_area(&sector, area.offset)?;
        if !header.ignored {
            return Ok(Some(header));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;
    use crate::host::Cmd;
    use crate::testing::FakeHost;

    /// A group on a disk, the disk's first bytes, its label and its header.
    async fn machine() -> (FakeHost, std::path::PathBuf, Vec<u8>, Label, AreaHeader) {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(1));
        host.add_group("vg0", std::slice::from_ref(&disk));
        let head = host.read_at(&disk, 0, 8192).await.unwrap();
        let label = metadata::find_label(&head).unwrap().unwrap();
        let header = metadata::parse_area(&head[4096..], 4096).unwrap();
        (host, disk, head, label, header)
    }

    /// Change the header as LVM would: with its checksum.
    fn rewrite(host: &FakeHost, disk: &Path, head: &[u8], change: impl Fn(&mut [u8])) {
        let mut sector = head[4096..4096 + HEADER_BYTES].to_vec();
        change(&mut sector);
        let crc = metadata::checksum(&sector[4..]);
        sector[..4].copy_from_slice(&crc.to_le_bytes());
        host.write_at(disk, 4096, &sector);
    }

    fn is_damaged(read: &Result<Copy, ReadError>) -> bool {
        matches!(read, Err(ReadError::Metadata(MetadataError::Checksum("metadata text"))))
    }

    #[tokio::test]
    async fn a_text_that_does_not_fit_its_checksum_is_never_taken() {
        let (host, disk, head, label, header) = machine().await;
        assert!(copy(&host, &disk, &label, &head).await.unwrap().group.is_some());
        host.write_at(&disk, header.text_ranges()[0].end - 3, b"#");
        assert!(is_damaged(&copy(&host, &disk, &label, &head).await));
    }

    #[tokio::test]
    async fn a_text_that_was_written_over_meanwhile_is_read_where_it_is_now() {
        let (host, disk, head, label, old) = machine().await;
        host.pin_devices("vg0", std::slice::from_ref(&disk)).await.unwrap();
        let change = Cmd::new("vgchange").args(["-y", "--addtag", "new", "vg0"]);
        host.lvm("vg0", change).await.unwrap();
        host.write_at(&disk, old.text_ranges()[0].start, b"#");
        let read = copy(&host, &disk, &label, &head).await.unwrap();
        assert!(read.group.unwrap().tags.contains("new"));
    }

    #[tokio::test]
    async fn a_header_of_another_place_leads_nowhere() {
        let (host, disk, head, label, header) = machine().await;
        // The whole area once more, behind itself: its text is there, and what the header says is true.
        let (size, moved) = (16 << 20, header.start + (32 << 20));
        let area = host.read_at(&disk, header.start, size).await.unwrap();
        host.write_at(&disk, moved, &area);
        rewrite(&host, &disk, &head, |sector| sector[24..32].copy_from_slice(&moved.to_le_bytes()));
        let read = copy(&host, &disk, &label, &[]).await;
        let is_refused = matches!(read, Err(ReadError::Metadata(MetadataError::Malformed { .. })));
        assert!(is_refused, "{read:?}");
    }

    #[tokio::test]
    async fn an_area_that_lvm_has_set_aside_tells_nothing() {
        let (host, disk, head, label, _) = machine().await;
        rewrite(&host, &disk, &head, |sector| sector[60] = 1);
        let read = copy(&host, &disk, &label, &[]).await.unwrap();
        assert!(read.mark.is_none() && read.group.is_none());
    }

    #[tokio::test]
    async fn a_full_area_is_told() {
        let (host, disk, head, label, header) = machine().await;
        let (text, whole) = (header.text.unwrap(), copy(&host, &disk, &label, &head).await);
        assert!(!whole.unwrap().group.unwrap().metadata_full);
        let size = text.offset + text.size;
        rewrite(&host, &disk, &head, |sector| sector[32..40].copy_from_slice(&size.to_le_bytes()));
        let full = copy(&host, &disk, &label, &[]).await.unwrap();
        assert!(full.group.unwrap().metadata_full);
    }
}
