//! Volumes shrink where they lie, shown to a workload or not, as their file system can.

use pliant::bytes::Bytes;
use pliant::volume::{FsKind, Mode, Volumes};
use tonic::Code;

use super::Place;
use super::site::{Site, id, refused};

pub async fn btrfs_shrinks(place: impl Place) {
    shrinks(place, Mode::Filesystem(FsKind::Btrfs), true).await;
}

pub async fn ext4_shrinks(place: impl Place) {
    shrinks(place, Mode::Filesystem(FsKind::Ext4), false).await;
}

async fn shrinks(place: impl Place, mode: Mode, online: bool) {
    let mut site = Site::on(place, 1024).await;
    site.create("v", mode, 304).await.expect("create");
    // A neighbour behind it: the volume goes on elsewhere.
    site.create("neighbour", Mode::Block, 4).await.expect("create");
    let shown = site.show("v", mode).await;
    site.place.write(&shown).await;
    site.grow("v", 600).await.expect("grow");
    let free = site.room().await;

    if online {
        assert_eq!(site.shrink("v", 399).await.expect("shrink"), 400, "shown");
        assert!(site.place.holds(&shown).await);
    } else {
        let (code, words) = refused(site.shrink("v", 400).await);
        assert_eq!(code, Code::FailedPrecondition, "{words}");
        assert!(site.size_seen("v").await > 450 && site.place.holds(&shown).await);
        site.hide("v").await;
        assert_eq!(site.shrink("v", 399).await.expect("shrink"), 400, "not shown");
        site.show("v", mode).await;
    }
    let seen = site.size_seen("v").await;
    assert!((300..=400).contains(&seen), "{seen} MiB are seen");
    assert_eq!(site.room().await, (free.0 + 200, free.1 + 200));
    site.hide("v").await;

    assert_eq!(site.shrink("v", 304).await.expect("shrink"), 304, "not shown");
    site.holds_exactly(&[("v", 304), ("neighbour", 4)]).await;
    site.restart().await;
    let (code, words) = refused(site.grow("v", 400).await);
    assert_eq!(code, Code::OutOfRange, "{words}");
    let shown = site.show("v", mode).await;
    assert!(site.place.holds(&shown).await);

    site.node.release(&id("v")).await.expect("release");
    assert_eq!(site.grow("v", 400).await.expect("grow"), (400, false));
    assert!(site.size_seen("v").await > 300 && site.place.holds(&shown).await);
    site.place.write(&shown).await;
    site.hide("v").await;
    site.delete("v").await.expect("delete");
}

pub async fn xfs_never_shrinks(place: impl Place) {
    let mode = Mode::Filesystem(FsKind::Xfs);
    let site = Site::on(place, 1024).await;
    site.create("v", mode, 400).await.expect("create");
    let shown = site.show("v", mode).await;
    site.place.write(&shown).await;
    for _shown_and_not in 0..2 {
        let (code, words) = refused(site.node.shrink(&id("v"), Bytes::mib(304)).await);
        assert_eq!(code, Code::FailedPrecondition, "{words}");
        assert!(words.contains("copy its content to a smaller volume"), "{words}");
        site.hide("v").await;
        let shown = site.show("v", mode).await;
        assert!(site.place.holds(&shown).await);
    }
    site.hide("v").await;
    site.holds_exactly(&[("v", 400)]).await;
}
