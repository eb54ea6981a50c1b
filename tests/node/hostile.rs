//! What hostile hands leave on disks and in tags harms nobody else.

use pliant::bytes::Bytes;
use pliant::host::{Cmd, Host};
use pliant::node::record::lv_name;
use pliant::testing::FakeHost;
use pliant::volume::{FsKind, Mode, Page, VolumeError, Volumes, Wipe};

use crate::cuts::block_on;
use crate::machine::{Disks, LARGE, Op, SMALL, VOLUME, after, id_of, marks, readable, want};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

fn device(host: &FakeHost) -> std::path::PathBuf {
    host.device_of("vg0", &lv_name(id_of(VOLUME).key())).expect("it is active")
}

#[test]
fn devices_and_programs_in_a_volume_are_not_honoured() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Publish(EXT4)]).await;
        let mounts = host.state().mounts;
        let shown = mounts.iter().filter(|(_, _, source, _)| source.contains("pliant"));
        let options: Vec<_> = shown.map(|(_, _, _, options)| options).collect();
        assert!(options[0].contains(&"nodev".to_owned()), "{options:?}");

        for op in [Op::Unpublish, Op::Unstage, Op::Grow(LARGE)] {
            op.ask(&host, &node).await.expect("an answer");
        }
        let effects = host.effects();
        let mounts_privately =
            |effect: &&String| effect.starts_with("mount") && effect.contains("/run/pliant/grow/");
        let private = effects.iter().find(mounts_privately).expect("it grows in a private mount");
        assert!(private.ends_with(r#"["nodev", "nosuid", "noexec"]"#), "{private}");
    });
}

#[test]
fn what_the_record_does_not_explain_is_never_formatted() {
    block_on(async {
        let formats = |host: &FakeHost| {
            host.effects().iter().filter(|effect| effect.starts_with("mkfs")).count()
        };
        for found in ["LVM2_member", "linux_raid_member", "crypto_LUKS", "gpt", "swap"] {
            let (host, _, node) = after(&[Op::Create(EXT4)]).await;
            host.set_foreign_signature(&device(&host), found);
            let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it is not blank");
            assert!(said.starts_with("Refused") && said.contains(found), "{said}");
            assert_eq!(formats(&host), 0, "{found}");
        }
        for overwritten in [vec![0; 68 << 10], b"XFSB".repeat(17 << 10)] {
            let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Write]).await;
            let places = marks(&host);
            host.unmount("/var/lib/kubelet/staging/volume".as_ref()).await.expect("unmount");
            host.write_at(&device(&host), 0, &overwritten);
            let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it is damaged");
            assert!(said.starts_with("Refused"), "{said}");
            assert!(formats(&host) == 2 && readable(&host, &places).await, "it was formatted");
        }
    });
}

#[test]
fn a_volume_that_is_still_being_formatted_is_not_formatted_again() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        host.open(&device(&host)); // By a mkfs that nobody waits for any more.
        let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it is held");
        assert!(said.starts_with("InUse"), "{said}");
        host.close(&device(&host));
        Op::Stage(EXT4).ask(&host, &node).await.expect("it has ended");
    });
}

#[test]
fn one_volume_whose_tags_were_changed_by_hand_hides_no_other() {
    block_on(async {
        for tag in ["pliant.state=ready", "pliant.mode=xfs", "pliant.mkfs=-d!20/etc"] {
            let (host, _, node) = after(&[Op::Create(EXT4), Op::CreateNeighbour]).await;
            let place = format!("vg0/{}", lv_name(id_of(VOLUME).key()));
            let by_hand = Cmd::new("lvchange").args(["-y", "--addtag", tag, &place]);
            let gone = Cmd::new("lvchange").args(["-y", "--deltag", "pliant.mode=ext4", &place]);
            host.lvm("vg0", by_hand).await.expect("LVM takes it");
            if tag == "pliant.state=ready" {
                host.lvm("vg0", gone).await.expect("LVM takes it");
            }
            host.forget_effects();

            let names: Vec<String> = node
                .list(&Page::default())
                .await
                .expect("a list")
                .volumes
                .into_iter()
                .map(|one| one.volume.name)
                .collect();
            assert_eq!(names, ["neighbour"], "{tag}");
            for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Grow(LARGE), Op::Delete] {
                let said = op.ask(&host, &node).await.expect_err("its tags do not say what it is");
                assert!(said.starts_with("Refused"), "{op:?}: {said}");
            }
            assert_eq!(host.effects(), [""; 0], "{tag}");
        }
    });
}

#[test]
fn a_disk_that_knows_no_discard_is_written_with_zeroes() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for disk in host.disks().await.expect("disks") {
            host.set_no_discard(&disk.path);
        }
        let mut want = want(VOLUME, Mode::Block, SMALL);
        want.class.wipe = Wipe::Discard;
        node.ensure(&want).await.expect("it is made");
        Op::Write.ask(&host, &node).await.expect("it is written");
        let places = marks(&host);
        let gone: Result<(), VolumeError> = node.remove(&id_of(VOLUME)).await;
        gone.expect("it can be removed");
        assert!(!readable(&host, &places).await);
    });
}

#[test]
fn a_copy_of_a_disk_is_believed_no_more_than_the_disk() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Unstage]).await;
        let disk = host.disks().await.expect("disks").remove(0).path;
        let copy = host.add_disk(Bytes::mib(400));
        let head = host.read_at(&disk, 0, 17 << 20).await.expect("read");
        host.write_at(&copy, 0, &head);
        drop(node);
        let (_, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        host.forget_effects();
        for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Grow(LARGE), Op::Delete] {
            let said = op.ask(&host, &node).await.expect_err("which is it?");
            let named = [&disk, &copy].map(|path| said.contains(&path.display().to_string()));
            assert!(said.starts_with("Unavailable") && named == [true, true], "{op:?}: {said}");
        }
        assert_eq!(host.effects(), [""; 0]);
    });
}
