//! Thin volumes, from their making to their end, and a pool that holds more than it has.

use pliant::bytes::Bytes;
use pliant::lvm::THIN_POOL;
use pliant::volume::{FsKind, Mode, Part, Shrinks, ThinSettings};

use super::Place;
use super::site::{GROUP, Site, refused};

pub async fn thin_block_lives(place: impl Place) {
    thin_lives(place, Mode::Block).await;
}

pub async fn thin_ext4_lives(place: impl Place) {
    thin_lives(place, Mode::Filesystem(FsKind::Ext4)).await;
}

pub async fn thin_xfs_lives(place: impl Place) {
    thin_lives(place, Mode::Filesystem(FsKind::Xfs)).await;
}

pub async fn thin_btrfs_lives(place: impl Place) {
    thin_lives(place, Mode::Filesystem(FsKind::Btrfs)).await;
}

async fn thin_lives(place: impl Place, mode: Mode) {
    let mut site = Site::thin(place, 2048, ThinSettings::default()).await;
    let (free, most) = site.room().await;
    assert!(most < free && most > 1700, "nine tenths of {free} MiB are {most}");
    assert_eq!(site.create("v", mode, 303).await.expect("create"), 304, "whole extents");
    assert_eq!(site.room().await.1, most - 304);
    let shown = site.show("v", mode).await;
    site.place.write(&shown).await;
    assert_eq!(site.grow("v", 400).await.expect("grow"), (400, false));
    let seen = site.size_seen("v").await;
    assert!((300..=400).contains(&seen), "{seen} MiB are seen");
    assert!(site.place.holds(&shown).await, "what was written is there after a growth");
    site.hide("v").await;
    assert!(site.left_no_path("v").await);

    site.restart().await;
    assert_eq!(site.grow("v", 480).await.expect("grow"), (480, false), "not shown");
    let shown = site.show("v", mode).await;
    assert!(site.place.holds(&shown).await, "what was written is there after a restart");
    site.hide("v").await;
    if let Mode::Filesystem(kind) = mode
        && kind.shrinks() != Shrinks::Never
    {
        assert_eq!(site.shrink("v", 320).await.expect("shrink"), 320);
        let shown = site.show("v", mode).await;
        assert!(site.place.holds(&shown).await, "what was written is there after a shrink");
        site.hide("v").await;
    }
    site.delete("v").await.expect("delete");
    assert_eq!(site.room().await.1, most);
}

/// Volumes of a thin pool and others in one group: each gets what it was promised.
pub async fn thin_and_linear_share_a_group(place: impl Place) {
    let chunk = Some(Bytes::mib(1));
    let half = ThinSettings { size: Part::Percent(50), chunk, ..ThinSettings::default() };
    let mut site = Site::thin(place, 1024, half).await;
    let (_, most) = site.room().await;
    site.create("thin", Mode::Block, 200).await.expect("create");
    site.linear();
    let (_, linear) = site.room().await;
    site.create("linear", Mode::Block, linear).await.expect("all that is not promised");
    let (code, words) = refused(site.create("more", Mode::Block, 64).await);
    assert_eq!(code, tonic::Code::ResourceExhausted, "{words}");
    let (code, words) = refused(site.grow("thin", most / 4 * 4).await);
    assert_eq!(code, tonic::Code::OutOfRange, "{words}");
    let shown = site.show("thin", Mode::Block).await;
    site.place.fill(&shown, 200).await; // What was promised is there.
    site.hide("thin").await;
    site.delete("linear").await.expect("delete");
    site.delete("thin").await.expect("delete");
}

/// A pool begins small, and is expanded before what is written to its volumes fills it.
pub async fn a_thin_pool_grows_under_its_writers(place: impl Place) {
    let thin = ThinSettings { chunk: Some(Bytes::mib(1)), ..ThinSettings::default() };
    let site = Site::thin(place, 2048, thin).await;
    site.create("v", Mode::Block, 1280).await.expect("create");
    let first = site.place.sizes(GROUP).await[THIN_POOL];
    assert!((440..=460).contains(&first), "{first} MiB are a quarter of nine tenths");
    let shown = site.show("v", Mode::Block).await;
    site.place.fill(&shown, 1200).await;
    let last = site.place.sizes(GROUP).await[THIN_POOL];
    assert!(last > 1200 && last < 1840, "{last} MiB");
    site.hide("v").await;
    site.delete("v").await.expect("delete");
}

/// What nobody wrote is not there: a volume reads as zeroes, whatever its pool held before.
pub async fn a_thin_volume_shows_nothing_of_another(place: impl Place) {
    let site = Site::thin(place, 512, ThinSettings::default()).await;
    site.create("one", Mode::Block, 64).await.expect("create");
    let shown = site.show("one", Mode::Block).await;
    site.place.write(&shown).await;
    site.hide("one").await;
    site.delete("one").await.expect("delete");
    site.create("other", Mode::Block, 64).await.expect("create");
    let shown = site.show("other", Mode::Block).await;
    assert!(!site.place.holds(&shown).await, "what a deleted volume held");
    site.hide("other").await;
}
