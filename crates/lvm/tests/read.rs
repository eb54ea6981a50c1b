//! The metadata of a disk as it is read while LVM may write it.

use std::path::{Path, PathBuf};

use pliant_fake_host::FakeHost;
use pliant_lvm::host::{Cmd, Host};
use pliant_lvm::lvm::metadata::{self, AreaHeader, Label, MetadataError};
use pliant_lvm::lvm::read::{Copy, ReadError, copy};
use pliant_volume::bytes::Bytes;

/// Bytes of a metadata area's header.
const HEADER_BYTES: usize = 512;

/// A group on a disk, the disk's first bytes, its label and its header.
async fn machine() -> (FakeHost, PathBuf, Vec<u8>, Label, AreaHeader) {
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
