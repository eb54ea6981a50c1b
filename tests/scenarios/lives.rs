//! A volume from its making to its end, and all of it asked for again.

use pliant::volume::{FsKind, Mode, State};

use super::Place;
use super::site::{EXTENT, Site, TAKEN};

const DISK: u64 = 512;
const ROOM: u64 = (DISK - TAKEN) / EXTENT * EXTENT;

pub async fn block_lives(place: impl Place) {
    lives(place, Mode::Block).await;
}

pub async fn ext4_lives(place: impl Place) {
    lives(place, Mode::Filesystem(FsKind::Ext4)).await;
}

pub async fn xfs_lives(place: impl Place) {
    lives(place, Mode::Filesystem(FsKind::Xfs)).await;
}

pub async fn btrfs_lives(place: impl Place) {
    lives(place, Mode::Filesystem(FsKind::Btrfs)).await;
}

async fn lives(place: impl Place, mode: Mode) {
    let site = Site::on(place, DISK).await;
    assert_eq!(site.room().await, (ROOM, ROOM));
    assert_eq!(site.create("v", mode, 303).await.expect("create"), 304, "whole extents");
    site.holds_exactly(&[("v", 304)]).await;
    assert_eq!(site.room().await, (ROOM - 304, ROOM - 304));

    let shown = site.show("v", mode).await;
    site.place.write(&shown).await;
    site.hide("v").await;
    assert!(site.left_no_path("v").await);
    let shown = site.show("v", mode).await;
    assert!(site.place.holds(&shown).await, "what was written is there after an unstaging");
    site.hide("v").await;

    site.delete("v").await.expect("delete");
    site.holds_exactly(&[]).await;
    assert_eq!(site.room().await, (ROOM, ROOM));
}

pub async fn everything_may_be_repeated(place: impl Place) {
    let mode = Mode::Filesystem(FsKind::Ext4);
    let site = Site::on(place, DISK).await;
    for _again in 0..2 {
        assert_eq!(site.create("v", mode, 64).await.expect("create"), 64);
    }
    for _again in 0..2 {
        site.stage("v", mode, false).await.expect("stage");
    }
    for _again in 0..2 {
        site.publish("v", mode, false).await.expect("publish");
    }
    let shown = site.shown("v", mode).await;
    site.place.write(&shown).await;
    for _again in 0..2 {
        assert_eq!(site.grow("v", 96).await.expect("grow"), (96, false));
        assert_eq!(site.node_grow("v", 96).await.expect("grow"), 96);
    }
    assert_eq!(site.create("v", mode, 64).await.expect("it is large enough"), 96);
    assert_eq!(site.state("v").await, Some(State::Resized));
    for _again in 0..2 {
        site.unpublish("v").await.expect("unpublish");
    }
    assert!(site.place.holds(&shown).await);
    for _again in 0..2 {
        site.unstage("v").await.expect("unstage");
    }
    for _again in 0..2 {
        site.delete("v").await.expect("delete");
        site.holds_exactly(&[]).await;
    }
}

pub async fn a_restart_finds_everything(place: impl Place) {
    let mode = Mode::Filesystem(FsKind::Ext4);
    let mut site = Site::on(place, DISK).await;
    site.create("fs", mode, 64).await.expect("create");
    site.create("raw", Mode::Block, 32).await.expect("create");
    let (fs, raw) = (site.show("fs", mode).await, site.show("raw", Mode::Block).await);
    site.place.write(&fs).await;
    site.place.write(&raw).await;

    site.restart().await;
    site.holds_exactly(&[("fs", 64), ("raw", 32)]).await;
    assert!(site.place.holds(&fs).await && site.place.holds(&raw).await);
    // Published as before: growing it is seen by those who use it, and again changes nothing.
    assert_eq!(site.grow("fs", 96).await.expect("grow"), (96, false));
    assert_eq!(site.grow("raw", 48).await.expect("grow"), (48, false));
    site.show("fs", mode).await;
    site.show("raw", Mode::Block).await;

    site.restart().await;
    site.holds_exactly(&[("fs", 96), ("raw", 48)]).await;
    assert!(site.place.holds(&fs).await && site.place.holds(&raw).await);
    for name in ["fs", "raw"] {
        site.hide(name).await;
        site.restart().await;
        site.delete(name).await.expect("delete");
    }
    assert_eq!(site.room().await, (ROOM, ROOM));
}
