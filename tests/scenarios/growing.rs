//! Volumes grow: shown to a workload and not, in one step and in two, until there is no room.

use pliant::volume::{FsKind, Mode, Volumes};
use tonic::Code;

use super::Place;
use super::site::{EXTENT, GROUP, Site, TAKEN, growth, id, refused};

pub async fn block_grows(place: impl Place) {
    grows(place, Mode::Block).await;
}

pub async fn ext4_grows(place: impl Place) {
    grows(place, Mode::Filesystem(FsKind::Ext4)).await;
}

pub async fn xfs_grows(place: impl Place) {
    grows(place, Mode::Filesystem(FsKind::Xfs)).await;
}

pub async fn btrfs_grows(place: impl Place) {
    grows(place, Mode::Filesystem(FsKind::Btrfs)).await;
}

async fn grows(place: impl Place, mode: Mode) {
    let site = Site::on(place, 1024).await;
    site.create("v", mode, 304).await.expect("create");
    // A neighbour behind it: the volume goes on elsewhere.
    site.create("neighbour", Mode::Block, 4).await.expect("create");
    let shown = site.show("v", mode).await;
    site.place.write(&shown).await;

    assert_eq!(site.grow("v", 399).await.expect("grow"), (400, false), "shown");
    assert!(site.place.holds(&shown).await);
    let least = |mib: u64| mib / 100 * 75;
    assert!(site.size_seen("v").await > least(400), "{}", site.size_seen("v").await);

    site.hide("v").await;
    assert_eq!(site.grow("v", 500).await.expect("grow"), (500, false), "not shown");
    site.holds_exactly(&[("v", 500), ("neighbour", 4)]).await;
    let shown = site.show("v", mode).await;
    assert!(site.place.holds(&shown).await);
    assert!(site.size_seen("v").await > least(500), "{}", site.size_seen("v").await);
    site.hide("v").await;
}

pub async fn a_file_system_grows_in_two_steps(place: impl Place) {
    let mode = Mode::Filesystem(FsKind::Ext4);
    let site = Site::with(place, &[512], &[], true).await;
    site.create("v", mode, 100).await.expect("create");
    let shown = site.show("v", mode).await;
    site.place.write(&shown).await;
    let before = site.size_seen("v").await;
    for _again in 0..2 {
        assert_eq!(site.grow("v", 200).await.expect("grow"), (200, true));
        assert_eq!(site.size_seen("v").await, before, "the second step is the node's");
    }
    assert_eq!(site.node_grow("v", 200).await.expect("grow"), 200);
    assert!(site.size_seen("v").await > 150);
    assert_eq!(site.grow("v", 200).await.expect("grow"), (200, true), "however often");
    assert!(site.place.holds(&shown).await);
    site.hide("v").await;
    // Grown while nobody used it: staging fills the device.
    assert_eq!(site.grow("v", 300).await.expect("grow"), (300, true));
    let shown = site.show("v", mode).await;
    assert!(site.size_seen("v").await > 225 && site.place.holds(&shown).await);
    site.hide("v").await;
}

pub async fn a_full_group_says_its_numbers(place: impl Place) {
    let site = Site::on(place, 256).await;
    let whole = (256 - TAKEN) / EXTENT * EXTENT;
    site.create("v", Mode::Block, 64).await.expect("create");
    let free = whole - 64;

    let (code, words) = refused(site.create("w", Mode::Block, free + 1).await);
    assert_eq!(code, Code::ResourceExhausted, "{words}");
    let most = format!("request {free}Mi or less");
    assert!(words.contains(&format!("{free} MiB is free")) && words.contains(&most), "{words}");
    let (code, words) = refused(site.grow("v", whole + 1).await);
    assert_eq!(code, Code::OutOfRange, "{words}");
    let most = format!("request {whole}Mi or less");
    assert!(words.contains(&format!("{free} MiB is free")) && words.contains(&most), "{words}");
    assert_eq!(site.room().await, (free, free), "a refusal takes nothing");

    assert_eq!(site.grow("v", whole).await.expect("what was said to be possible"), (whole, false));
    assert_eq!(site.room().await, (0, 0));
    site.holds_exactly(&[("v", whole)]).await;
}

pub async fn a_limit_is_kept(place: impl Place) {
    let site = Site::on(place, 256).await;
    let (at_least, at_most) = (9 << 20, Some(11 << 20));
    let (code, words) = refused(site.create_within("v", Mode::Block, at_least, at_most).await);
    assert_eq!(code, Code::OutOfRange, "{words}");
    assert!(words.contains(&(12u64 << 20).to_string()), "{words}");
    site.holds_exactly(&[]).await;

    let made = site.create_within("v", Mode::Block, at_least, Some(12 << 20)).await;
    assert_eq!(made.expect("one extent fits"), 12 << 20);
    let (code, words) = refused(site.node.grow(&id("v"), growth(13 << 20, Some(15 << 20))).await);
    assert_eq!(code, Code::OutOfRange, "{words}");
    site.holds_exactly(&[("v", 12)]).await;
}

pub async fn a_standby_disk_joins(place: impl Place) {
    let site = Site::with(place, &[256], &[256], false).await;
    let whole = (256 - TAKEN) / EXTENT * EXTENT;
    let standby = (256 - TAKEN) / EXTENT * EXTENT;
    assert_eq!(site.room().await, (whole + standby, whole + standby));
    site.create("v", Mode::Block, whole).await.expect("create");
    assert_eq!(site.room().await, (standby, standby), "not needed yet");

    assert_eq!(site.grow("v", whole + 8).await.expect("grow"), (whole + 8, false));
    assert_eq!(site.room().await, (standby - 8, standby - 8));
    let (code, words) = refused(site.create("w", Mode::Block, standby).await);
    assert_eq!(code, Code::ResourceExhausted, "{words}");
    site.create("w", Mode::Block, standby - 8).await.expect("what is left");
    assert_eq!(site.place.sizes(GROUP).await.values().sum::<u64>(), whole + standby);
}
