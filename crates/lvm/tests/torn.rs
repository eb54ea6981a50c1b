//! Metadata whose last commit was torn, and the search for the one before.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pliant_fake_host::FakeHost;
use pliant_lvm::host::Host;
use pliant_lvm::lvm::metadata::{self, checksum, find_label};
use pliant_lvm::lvm::torn_commit::{LARGEST_AREA, SEARCH_LIMIT, SearchedGroups, undo_torn_commits};
use pliant_lvm::lvm::{NamedDisks, Scan, scan};
use pliant_volume::bytes::Bytes;

/// A disk with a group whose metadata is no longer whole, as a scan sees it.
async fn damaged() -> (FakeHost, Arc<dyn Host>, Scan) {
    let fake = FakeHost::new();
    let disk = fake.add_disk(Bytes::gib(1));
    damage(&fake, "vg0", &disk).await;
    let host: Arc<dyn Host> = Arc::new(fake.clone());
    let scan = scan(&host, &NamedDisks::default()).await.unwrap();
    assert!(scan.members[0].damage.is_some());
    (fake, host, scan)
}

/// Make a group on a disk, and tear its last commit.
async fn damage(fake: &FakeHost, group: &str, disk: &PathBuf) {
    fake.add_group(group, std::slice::from_ref(disk));
    let label = find_label(&fake.read_at(disk, 0, 2048).await.unwrap()).unwrap().unwrap();
    let header = fake.read_at(disk, label.areas[0].offset, 512).await.unwrap();
    let text = metadata::parse_area(&header, 4096).unwrap().text_ranges()[0].clone();
    assert_eq!(header[..4], checksum(&header[4..]).to_le_bytes());
    fake.write_at(disk, text.start, &[0; 64]);
}

fn named(names: &[&str]) -> SearchedGroups {
    SearchedGroups::Named(names.iter().map(|name| (*name).to_owned()).collect())
}

#[tokio::test]
async fn a_disk_on_which_nothing_is_wanted_is_not_read() {
    for (wanted, reads) in [(named(&[]), 0), (named(&["vg1"]), 17), (SearchedGroups::Any, 17)] {
        let (fake, host, scan) = damaged().await;
        let read = || fake.counts()["device_reads"];
        let before = read();
        let dir = Path::new("/run/pliant");
        undo_torn_commits(&host, scan, dir, |_| wanted.clone(), |_, _| false).await.unwrap();
        assert_eq!(read() - before, reads, "{wanted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_answer_is_given_up_and_the_next_one_is_read() {
    let (fake, host, _) = damaged().await;
    let disk = fake.add_disk(Bytes::gib(1));
    damage(&fake, "vg1", &disk).await;
    let scan = scan(&host, &NamedDisks::default()).await.unwrap();
    let slow = format!("read {}", scan.members[0].disk.path.display());
    let before = fake.counts()["device_reads"];
    fake.hold_call(&slow);
    let dir = Path::new("/run/pliant");
    let both = undo_torn_commits(&host, scan, dir, |_| SearchedGroups::Any, |_, _| false);
    let both = tokio::time::timeout(2 * SEARCH_LIMIT, both).await;
    both.expect("the first disk is waited for no longer than that").unwrap();
    assert_eq!(fake.counts()["device_reads"] - before, 17, "those of the second disk");
}

#[tokio::test]
async fn an_area_larger_than_this_driver_makes_is_not_read() {
    let (fake, host, mut scan) = damaged().await;
    scan.members[0].label.areas[0].size = LARGEST_AREA + 1;
    let before = fake.counts()["device_reads"];
    let dir = Path::new("/run/pliant");
    undo_torn_commits(&host, scan, dir, |_| SearchedGroups::Any, |_, _| true).await.unwrap();
    assert_eq!(fake.counts()["device_reads"], before);
}

#[tokio::test]
async fn a_group_that_another_disk_describes_is_not_searched_for() {
    let (fake, host, _) = damaged().await;
    let other = fake.add_disk(Bytes::gib(1));
    fake.add_group("vg1", &[other]);
    let scan = scan(&host, &NamedDisks::default()).await.unwrap();
    assert!(named(&["vg1"]).undescribed(&scan).is_nothing());
    assert_eq!(named(&["vg0", "vg1"]).undescribed(&scan), named(&["vg0"]));
}
