//! Snapshots, and volumes that are restored from them or cloned, while the volume is in use and after it is gone.

use pliant::bytes::Bytes;
use pliant::volume::{FsKind, Mode, ThinSettings};

use super::Place;
use super::site::{GROUP, Site, refused};

pub async fn block_is_restored(place: impl Place) {
    restored(Site::on(place, 1024).await, Mode::Block).await;
}

pub async fn ext4_is_restored(place: impl Place) {
    restored(Site::on(place, 1024).await, Mode::Filesystem(FsKind::Ext4)).await;
}

pub async fn xfs_is_restored(place: impl Place) {
    restored(Site::on(place, 3072).await, Mode::Filesystem(FsKind::Xfs)).await;
}

pub async fn btrfs_is_restored(place: impl Place) {
    restored(Site::on(place, 3072).await, Mode::Filesystem(FsKind::Btrfs)).await;
}

pub async fn thin_block_is_restored(place: impl Place) {
    restored(thin(place, 1024).await, Mode::Block).await;
}

pub async fn thin_ext4_is_restored(place: impl Place) {
    restored(thin(place, 1024).await, Mode::Filesystem(FsKind::Ext4)).await;
}

pub async fn thin_xfs_is_restored(place: impl Place) {
    restored(thin(place, 3072).await, Mode::Filesystem(FsKind::Xfs)).await;
}

pub async fn thin_btrfs_is_restored(place: impl Place) {
    restored(thin(place, 3072).await, Mode::Filesystem(FsKind::Btrfs)).await;
}

async fn thin<P: Place>(place: P, mib: u64) -> Site<P> {
    Site::thin(place, mib, ThinSettings::default()).await
}

/// The least that this kind is made in.
fn least(mode: Mode) -> u64 {
    match mode {
        Mode::Block => 64,
        Mode::Filesystem(kind) => (kind.smallest().get() >> 20).max(64),
    }
}

async fn restored(mut site: Site<impl Place>, mode: Mode) {
    let mib = least(mode);
    let whole = site.room().await;
    site.create("v", mode, mib).await.expect("create");
    let shown = site.show("v", mode).await;
    let first = site.size_seen("v").await;
    let early = site.snapshot("early", "v").await;
    assert!(early.ready, "it is whole");
    site.place.write(&shown).await;
    let late = site.snapshot("late", "v").await;
    assert_eq!(late, site.snapshot("late", "v").await, "the same, with its time");
    assert!(early.taken < late.taken && late.restore_size == Bytes::mib(mib));
    let (code, words) = refused(site.take("late", "other").await);
    assert_eq!(code, tonic::Code::AlreadyExists, "{words}");
    assert_eq!(site.snapshots().await, ["early", "late"]);
    assert_eq!(site.grow("v", mib + 16).await.expect("grow"), (mib + 16, false));

    // A clone of what is in use, beside it.
    site.clone_of("c", "v", mode, mib + 16).await.expect("clone");
    let cloned = site.show("c", mode).await;
    assert!(site.place.holds(&cloned).await && site.place.holds(&shown).await);
    site.hide("c").await;
    site.delete("c").await.expect("delete");

    site.restart().await;
    site.hide("v").await;
    site.delete("v").await.expect("its snapshots stay");
    assert_eq!(site.snapshots().await, ["early", "late"]);
    assert_eq!(site.restore("r", "late", mode, mib + 32).await.expect("restore"), mib + 32);
    let (code, words) = refused(site.restore("r", "early", mode, mib + 32).await);
    assert_eq!(code, tonic::Code::AlreadyExists, "{words}");
    let shown = site.show("r", mode).await;
    assert!(site.place.holds(&shown).await, "what was written before the snapshot");
    let seen = site.size_seen("r").await;
    assert!(seen >= first + 24, "{seen} MiB are seen after {first}: it is 32 MiB larger");

    site.restore("e", "early", mode, mib).await.expect("restore beside");
    let beside = site.show("e", mode).await;
    assert!(!site.place.holds(&beside).await, "what was written after the snapshot");
    site.hide("e").await;
    for name in ["late", "early", "late"] {
        site.delete_snapshot(name).await.expect("delete");
    }
    assert!(site.place.holds(&shown).await, "it does not need its snapshot");
    site.hide("r").await;
    for name in ["r", "e"] {
        site.delete(name).await.expect("delete");
    }
    // A thin pool stays, with what it has taken.
    assert_eq!(site.room().await.1.max(whole.1), whole.1);
    site.linear();
    let left: Vec<String> = site.place.sizes(GROUP).await.into_keys().collect();
    assert!(left.iter().all(|name| !name.contains("snap") && !name.contains(".cut")), "{left:?}");
}

/// From one layout to the other, by a copy.
pub async fn a_volume_is_cloned_to_another_layout(place: impl Place) {
    let mode = Mode::Filesystem(FsKind::Ext4);
    let mut site = thin(place, 1024).await;
    site.create("thin", mode, 64).await.expect("create");
    let shown = site.show("thin", mode).await;
    site.place.write(&shown).await;
    site.linear();
    site.clone_of("linear", "thin", mode, 80).await.expect("clone");
    let shown = site.show("linear", mode).await;
    assert!(site.place.holds(&shown).await);
    site.hide("thin").await;
    site.delete("thin").await.expect("delete");
    site.thin_again();
    site.clone_of("again", "linear", mode, 96).await.expect("clone");
    let shown = site.show("again", mode).await;
    assert!(site.place.holds(&shown).await);
    for name in ["linear", "again"] {
        site.hide(name).await;
        site.delete(name).await.expect("delete");
    }
}

/// Without room nothing is made, and nothing stays.
pub async fn a_snapshot_without_room_is_refused(place: impl Place) {
    let site = Site::on(place, 512).await;
    site.create("v", Mode::Block, 200).await.expect("create");
    let shown = site.show("v", Mode::Block).await;
    site.place.write(&shown).await;
    let before = site.place.sizes(GROUP).await;
    let (code, words) = refused(site.take("s", "v").await);
    assert_eq!(code, tonic::Code::FailedPrecondition, "{words}");
    let (code, words) = refused(site.clone_of("c", "v", Mode::Block, 200).await);
    assert_eq!(code, tonic::Code::ResourceExhausted, "{words}");
    assert_eq!(site.place.sizes(GROUP).await, before);
    assert_eq!(site.snapshots().await, [""; 0]);
    let (code, words) = refused(site.restore("r", "missing", Mode::Block, 200).await);
    assert_eq!(code, tonic::Code::NotFound, "{words}");
    site.delete_snapshot("missing").await.expect("gone already");
    site.hide("v").await;
}
