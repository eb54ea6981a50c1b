use super::{Arc, Fault, FoundDisk, Host, HostError, PathBuf};
use crate::bytes::Bytes;
use crate::lvm::metadata;
use pliant_fake_host::FakeHost;

async fn find(host: &FakeHost) -> Result<Vec<FoundDisk>, HostError> {
    let host: Arc<dyn Host> = Arc::new(host.clone());
    super::find(&host).await
}

fn machine() -> (FakeHost, PathBuf, PathBuf) {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::gib(1));
    let blank = host.add_disk(Bytes::gib(1));
    host.add_group("vg0", std::slice::from_ref(&disk));
    (host, disk, blank)
}

#[tokio::test]
async fn a_group_is_found_on_its_disk_and_nothing_on_a_blank_one() {
    let (host, disk, _) = machine();
    let found = find(&host).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].disk, &found[0].fault), (&disk, &None));
    let group = found[0].group.as_ref().unwrap();
    assert_eq!(group.name, "vg0");
    let pvs: Vec<&String> = group.pvs.values().map(|pv| &pv.uuid).collect();
    assert_eq!(pvs, [found[0].pv_uuid.as_ref().unwrap()]);
}

#[tokio::test]
async fn a_disk_that_cannot_be_read_hides_no_other() {
    let (host, disk, blank) = machine();
    host.fail_disk(&blank);
    let found = find(&host).await.unwrap();
    let faults: Vec<_> = found.iter().map(|found| (&found.disk, found.fault.is_some())).collect();
    assert_eq!(faults, [(&disk, false), (&blank, true)]);
    assert!(matches!(found[1].fault, Some(Fault::Unreadable(_))));
}

#[tokio::test]
async fn damage_is_told_apart_from_a_failure_to_read() {
    let (host, disk, _) = machine();
    let good = find(&host).await.unwrap();
    host.write_at(&disk, 512 + 40, b"damaged");
    let found = find(&host).await.unwrap();
    assert_eq!(found[0].pv_uuid, None);
    assert!(matches!(found[0].fault, Some(Fault::Damaged(_))), "{found:?}");
    assert_ne!(found, good);
}

#[tokio::test]
async fn a_text_that_does_not_fit_its_checksum_is_damage() {
    let (host, disk, _) = machine();
    let sector = host.read_at(&disk, 4096, metadata::SECTOR).await.unwrap();
    let text = metadata::parse_area(&sector, 4096).unwrap().text_ranges().remove(0);
    host.write_at(&disk, text.end - 3, b"#");
    let found = find(&host).await.unwrap();
    assert_eq!(found[0].group, None);
    assert!(matches!(found[0].fault, Some(Fault::Damaged(_))), "{found:?}");
}
