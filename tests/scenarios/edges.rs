//! Others who hold, change, take away, or only read.

use pliant::volume::{Fence, FsKind, Mode, Page, Standing, Volumes};
use tonic::Code;

use super::Place;
use super::site::{GROUP, Site, id, lv, refused};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

pub async fn a_staged_volume_is_not_deleted(place: impl Place) {
    let site = Site::on(place, 256).await;
    site.create("v", EXT4, 64).await.expect("create");
    let shown = site.show("v", EXT4).await;
    site.place.write(&shown).await;
    for published in [true, false] {
        let (code, words) = refused(site.delete("v").await);
        assert_eq!(code, Code::FailedPrecondition, "{words}");
        assert!(site.place.holds(&shown).await);
        let less = if published { site.unpublish("v").await } else { site.unstage("v").await };
        less.expect("it is taken away");
    }
    site.delete("v").await.expect("nobody holds it");
    site.holds_exactly(&[]).await;
}

pub async fn a_published_volume_stays_staged(place: impl Place) {
    let site = Site::on(place, 256).await;
    for (name, mode) in [("v", EXT4), ("w", Mode::Block)] {
        site.create(name, mode, 64).await.expect("create");
        let shown = site.show(name, mode).await;
        site.place.write(&shown).await;
        let (code, words) = refused(site.unstage(name).await);
        assert_eq!(code, Code::FailedPrecondition, "{words}");
        let target = site.target(name).display().to_string();
        assert!(words.contains(&target), "{words}");
        site.publish(name, mode, false).await.expect("it is staged as before");
        assert!(site.place.holds(&shown).await);
        site.hide(name).await;
    }
}

pub async fn another_file_system_is_not_mounted(place: impl Place) {
    let site = Site::on(place, 512).await;
    site.create("v", EXT4, 304).await.expect("create");
    for first in [true, false] {
        for other in [Mode::Filesystem(FsKind::Xfs), Mode::Block] {
            let (code, words) = refused(site.stage("v", other, false).await);
            assert_eq!(code, Code::InvalidArgument, "{words}");
        }
        let shown = site.show("v", EXT4).await;
        if first {
            site.place.write(&shown).await;
        }
        assert!(site.place.holds(&shown).await);
        site.hide("v").await;
    }
}

pub async fn foreign_volumes_are_left_alone(place: impl Place) {
    let mut site = Site::on(place, 256).await;
    let make = "lvcreate -y -Wn -Zn --setautoactivation n -ay -l 5 -n theirs --addtag backup=yes";
    site.place.type_in(GROUP, &format!("{make} {GROUP}")).await;
    site.create("v", Mode::Block, 64).await.expect("create");
    assert_eq!(site.node.list(&Page::default()).await.expect("a list").volumes.len(), 1);
    site.grow("v", 100).await.expect("grow");
    site.restart().await;
    let ours_and_theirs = [(lv("v"), 100), ("theirs".to_owned(), 20)].into();
    assert_eq!(site.place.sizes(GROUP).await, ours_and_theirs);
    site.delete("v").await.expect("delete");
    assert_eq!(site.place.sizes(GROUP).await, [("theirs".to_owned(), 20)].into());
    assert_eq!(site.node.find(&id("theirs")).await.expect("looked at"), None);
}

pub async fn reading_changes_nothing(place: impl Place) {
    let site = Site::with(place, &[256], &[], true).await;
    site.create("v", EXT4, 64).await.expect("create");
    let (code, words) = refused(site.stage("v", EXT4, true).await);
    assert_eq!(code, Code::FailedPrecondition, "{words}");
    assert!(words.contains("does not format it"), "{words}");

    let shown = site.show("v", EXT4).await;
    site.place.write(&shown).await;
    let before = site.size_seen("v").await;
    site.hide("v").await;
    site.grow("v", 128).await.expect("grow");
    for _again in 0..2 {
        site.stage("v", EXT4, true).await.expect("stage");
        site.publish("v", EXT4, true).await.expect("publish");
    }
    assert_eq!(site.size_seen("v").await, before, "a read-only use grows nothing");
    let (code, words) = refused(site.node_grow("v", 128).await);
    assert_eq!(code, Code::FailedPrecondition, "{words}");
    let shown = site.shown("v", EXT4).await;
    assert!(site.place.holds(&shown).await);
    site.hide("v").await;

    site.show("v", EXT4).await;
    assert!(site.size_seen("v").await > 96, "a use with write access does");
    site.hide("v").await;
}

pub async fn what_a_copy_read_is_written_again(place: impl Place) {
    let site = Site::on(place, 1024).await;
    for (name, kind, mib) in
        [("e", FsKind::Ext4, 64), ("x", FsKind::Xfs, 300), ("b", FsKind::Btrfs, 256)]
    {
        let mode = Mode::Filesystem(kind);
        site.create(name, mode, mib).await.expect("create");
        site.show(name, mode).await;
        site.hide(name).await;
        let fence = Fence { generation: 1, standing: Standing::Superseded, copying: true };
        site.node.fence(&id(name), fence).await.expect("it may only be read");
        site.show(name, mode).await;
        site.unpublish(name).await.expect("unpublish");
        let active = Fence { generation: 2, ..Fence::default() };
        site.node.fence(&id(name), active).await.expect("it is let in again");
        // A kubelet does not stage what it has staged.
        site.publish(name, mode, false).await.expect("publish");
        let shown = site.shown(name, mode).await;
        site.place.write(&shown).await;
        assert!(site.place.holds(&shown).await);
        site.hide(name).await;
        site.delete(name).await.expect("delete");
    }
}

pub async fn what_an_administrator_did_is_seen(place: impl Place) {
    let mut site = Site::on(place, 512).await;
    site.create("v", EXT4, 64).await.expect("create");
    site.create("gone", Mode::Block, 32).await.expect("create");
    let shown = site.show("v", EXT4).await;
    site.place.write(&shown).await;
    site.place.type_in(GROUP, &format!("lvextend -y -l 32 {GROUP}/{}", lv("v"))).await;
    site.place.type_in(GROUP, &format!("lvremove -y -f {GROUP}/{}", lv("gone"))).await;

    site.holds_exactly(&[("v", 128)]).await;
    assert_eq!(site.node.find(&id("gone")).await.expect("looked at"), None);
    assert_eq!(refused(site.grow("gone", 64).await).0, Code::NotFound);
    site.delete("gone").await.expect("it is gone already");
    // Asked for what is there: the file system follows.
    assert_eq!(site.grow("v", 128).await.expect("grow"), (128, false));
    assert!(site.size_seen("v").await > 96 && site.place.holds(&shown).await);
    site.hide("v").await;
    site.delete("v").await.expect("delete");
    site.holds_exactly(&[]).await;
}

pub async fn a_pulled_disk_is_unavailable(place: impl Place) {
    let mut site = Site::with(place, &[256, 256], &[], false).await;
    site.create("whole", EXT4, 64).await.expect("it lies on the first");
    site.show("whole", EXT4).await;
    site.hide("whole").await;
    site.create("v", EXT4, 304).await.expect("it lies on both");
    let shown = site.show("v", EXT4).await;
    site.place.write(&shown).await;
    site.hide("v").await;
    let disk = site.disks[1].clone();

    site.place.pull(&disk);
    for _before_and_after_a_restart in 0..2 {
        let answers = [
            refused(site.create("w", Mode::Block, 8).await),
            refused(site.grow("v", 320).await),
            refused(site.delete("v").await),
        ];
        for (code, words) in answers {
            assert_eq!(code, Code::Unavailable, "{words}");
        }
        assert_eq!(site.room().await, (0, 0));
        site.show("whole", EXT4).await; // What has its disk can be used.
        site.hide("whole").await;
        assert!(site.node.find(&id("v")).await.expect("it is remembered").is_some());
        site.restart().await;
    }
    site.place.put_back(&disk);
    site.holds_exactly(&[("v", 304), ("whole", 64)]).await;
    let shown = site.show("v", EXT4).await;
    assert!(site.place.holds(&shown).await);
    site.hide("v").await;
    site.delete("v").await.expect("delete");
}
