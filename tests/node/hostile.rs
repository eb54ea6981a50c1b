//! What hostile hands leave on disks and in tags harms nobody else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pliant::bytes::Bytes;
use pliant::host::{Cmd, DiskBacking, DmTarget, Host};
use pliant::lvm::{Group, LvmError, NamedDisks, NewLv, VolumeGroup, scan};
use pliant::node::lv_tags::{lv_name, more_name};
use pliant::node::storage::DiskUse;
use pliant::node::{GroupSource, NewDisk, Node, NodeSettings, PoolPlan};
use pliant::testing::{Failing, FakeHost};
use pliant::volume::{
    CapacityQuery, Class, FsKind, Layout, Mode, NodeVolumes, Page, VolumeError, Volumes, Wipe,
};

use crate::cuts::block_on;
use crate::machine::{
    Disks, LARGE, NEIGHBOUR, Op, SMALL, Setup, VOLUME, after, id_of, marks, readable, type_in,
    until_wiped, want,
};

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

/// As somebody who looks at it.
async fn make_active(host: &FakeHost) {
    type_in(host, "vg0", &format!("lvchange -y -ay vg0/{}", lv_name(id_of(VOLUME).key()))).await;
}

#[test]
fn what_the_record_does_not_explain_is_never_formatted() {
    block_on(async {
        let formats = |host: &FakeHost| {
            host.effects().iter().filter(|effect| effect.starts_with("mkfs")).count()
        };
        for found in ["LVM2_member", "linux_raid_member", "crypto_LUKS", "gpt", "swap"] {
            let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Unstage]).await;
            make_active(&host).await;
            host.write_at(&device(&host), 0, &vec![0; 68 << 10]);
            host.set_foreign_signature(&device(&host), found);
            let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it was shown");
            assert!(
                said.starts_with("PreconditionFailed") && said.contains("nothing was formatted"),
                "{said}"
            );
            assert_eq!(formats(&host), 2, "{found}");
        }
        for overwritten in [vec![0; 68 << 10], b"XFSB".repeat(17 << 10)] {
            let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Write]).await;
            let places = marks(&host);
            host.unmount("/var/lib/kubelet/staging/volume".as_ref()).await.expect("unmount");
            host.write_at(&device(&host), 0, &overwritten);
            let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it is damaged");
            assert!(said.starts_with("PreconditionFailed"), "{said}");
            assert!(formats(&host) == 2 && readable(&host, &places).await, "it was formatted");
        }
    });
}

#[test]
fn a_volume_that_is_still_being_formatted_is_not_formatted_again() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        make_active(&host).await;
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
        for tag in ["pliant.state=shown", "pliant.fstype=xfs", "pliant.mkfs=-d!20/etc"] {
            let (host, _, node) = after(&[Op::Create(EXT4), Op::CreateNeighbour]).await;
            let place = format!("vg0/{}", lv_name(id_of(VOLUME).key()));
            let by_hand = Cmd::new("lvchange").args(["-y", "--addtag", tag, &place]);
            let gone = Cmd::new("lvchange").args(["-y", "--deltag", "pliant.fstype=ext4", &place]);
            host.lvm("vg0", by_hand).await.expect("LVM takes it");
            if tag == "pliant.state=shown" {
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
                let said = op.ask(&host, &node).await.expect_err("its tags do not identify it");
                assert!(said.starts_with("PreconditionFailed"), "{op:?}: {said}");
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
        for op in [Op::Stage(Mode::Block), Op::Write] {
            op.ask(&host, &node).await.expect("it is written");
        }
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

/// What a tenant changes in a description of the group of the machine.
type Forgery = Box<dyn Fn(&mut Group)>;

/// What a tenant can write onto a disk about the group of the machine, each with its name.
fn forgeries(real: &Group) -> Vec<(&'static str, Forgery)> {
    let lv = real.lvs[&lv_name(id_of(VOLUME).key())].clone();
    let with_volume = move |extent: u64| {
        let lv = lv.clone();
        Box::new(move |group: &mut Group| {
            let mut lv = lv.clone();
            let mut at = extent;
            for piece in lv.segments.iter_mut().flat_map(|segment| &mut segment.pieces) {
                let length = piece.range.end - piece.range.start;
                (piece.pv, piece.range) = ("pv0".to_owned(), at..at + length);
                at += length;
            }
            group.lvs.insert(lv.name.clone(), lv);
        }) as Forgery
    };
    let other_uuid = |group: &mut Group| {
        "Evil00-evil-evil-evil-evil-evil-Evil00".clone_into(&mut group.uuid);
    };
    let lists_a_real_disk = {
        let pv = real.pvs.values().next().expect("a disk").clone();
        move |group: &mut Group| drop(group.pvs.insert("pv9".to_owned(), pv.clone()))
    };
    vec![
        ("the same uuid, no volumes", Box::new(|_| ())),
        ("another uuid", Box::new(other_uuid)),
        ("the volume elsewhere", with_volume(100)),
        ("the volume at the same place of another disk", with_volume(0)),
        ("one of its disks", Box::new(lists_a_real_disk)),
    ]
}

/// The live tables of the machine's volumes.
async fn tables(host: &FakeHost) -> Vec<Vec<DmTarget>> {
    let mut tables = Vec::new();
    for device in host.dm_list().await.expect("devices") {
        tables.push(host.dm_table(&device.uuid).await.expect("a table").expect("a device").1);
    }
    tables
}

/// Whether all is served as if the forgery were not there, and nothing was put on its disk.
async fn serves_all(host: &FakeHost, node: &Node, what: &str) {
    let listed = node.list(&Page::default()).await.expect(what).volumes;
    assert_eq!(listed.len(), 2, "{what}");
    assert!(node.find(&id_of(VOLUME)).await.expect(what).is_some(), "{what}");
    node.ensure(&want("victim", Mode::Block, 64)).await.expect(what);
    let group = host.group("vg0").expect("a group");
    let has = |name: &str| group.lvs.contains_key(&lv_name(id_of(name).key()));
    assert!(has("victim") && has(VOLUME), "{what}: it is not on the disks of the group");
    node.remove(&id_of(NEIGHBOUR)).await.expect(what);
    let group = host.group("vg0").expect("a group");
    assert!(!group.lvs.contains_key(&lv_name(id_of(NEIGHBOUR).key())), "{what}: it leaks");
}

fn refreshes(host: &FakeHost) -> Vec<String> {
    let mut effects = host.effects();
    effects.retain(|effect| effect.contains("--refresh") || effect.contains("DM_DEV_REMOVE"));
    effects
}

const MOUNTED: [Op; 5] =
    [Op::Create(EXT4), Op::CreateNeighbour, Op::Stage(EXT4), Op::Publish(EXT4), Op::Write];

#[test]
fn what_is_no_disk_of_the_machine_takes_no_group_from_its_disks() {
    block_on(async {
        for source in [DiskBacking::File, DiskBacking::Foreign] {
            let (host, ..) = after(&MOUNTED).await;
            for case in 0..forgeries(&host.group("vg0").expect("a group")).len() {
                let (host, setup, node) = after(&MOUNTED).await;
                let disk = host.add_disk(Bytes::gib(2));
                let (what, change) = forgeries(&host.group("vg0").expect("a group")).remove(case);
                host.forge(&disk, "vg0", change);
                host.set_source(&disk, source);
                let before = tables(&host).await;
                drop(node);
                host.forget_effects();

                let node = setup.start(&host).await;
                assert_eq!(tables(&host).await, before, "{source:?}: {what}");
                assert_eq!(refreshes(&host), [""; 0], "{source:?}: {what}");
                serves_all(&host, &node, what).await;
            }
        }
    });
}

#[test]
fn a_known_group_is_what_its_own_disks_say() {
    block_on(async {
        let (host, ..) = after(&MOUNTED).await;
        for case in 0..forgeries(&host.group("vg0").expect("a group")).len() {
            let (host, setup, node) = after(&MOUNTED).await;
            let disk = host.add_disk(Bytes::gib(2));
            let (what, change) = forgeries(&host.group("vg0").expect("a group")).remove(case);
            host.forge(&disk, "vg0", change);
            let before = tables(&host).await;
            host.forget_effects();

            // While a disk of the group cannot be read all disks are.
            host.fail_disk(Path::new("/dev/fake1"));
            let _ = node.list(&Page::default()).await;
            host.heal_disk(Path::new("/dev/fake1"));
            node.set_pools(setup.plans.clone()).await.expect("disks are listed");

            assert_eq!(tables(&host).await, before, "{what}");
            assert_eq!(refreshes(&host), [""; 0], "{what}");
            serves_all(&host, &node, what).await;
            let told = node.storage_health().await;
            let [ailing] = &told[..] else { panic!("{what}: {told:?}") };
            assert_eq!(ailing.ailment.reason, "DiskNotTrusted", "{what}");
            assert!(ailing.ailment.message.contains("/dev/fake2"), "{what}: {ailing:?}");
            drop(disk);
        }
    });
}

#[test]
fn disks_that_contradict_each_other_are_refused_by_name_and_no_number_wins() {
    block_on(async {
        let (host, ..) = after(&MOUNTED).await;
        for case in 0..forgeries(&host.group("vg0").expect("a group")).len() {
            let (host, setup, node) = after(&MOUNTED).await;
            let disk = host.add_disk(Bytes::gib(2));
            let (what, change) = forgeries(&host.group("vg0").expect("a group")).remove(case);
            host.forge(&disk, "vg0", change);
            let before = tables(&host).await;
            drop(node);
            host.forget_effects();

            let node = setup.start(&host).await;
            assert_eq!(tables(&host).await, before, "{what}");
            assert_eq!(refreshes(&host), [""; 0], "{what}");
            if what == "one of its disks" {
                // That disk and the other say that it is not so.
                serves_all(&host, &node, what).await;
                continue;
            }
            for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Grow(LARGE), Op::Delete] {
                let said = op.ask(&host, &node).await.expect_err("which is it?");
                let named = ["/dev/fake0", "/dev/fake2"].map(|disk| said.contains(disk));
                assert!(said.starts_with("Unavailable"), "{what}: {op:?}: {said}");
                assert_eq!(named, [true, true], "{what}: {op:?}: {said}");
            }
            node.list(&Page::default()).await.expect_err("a list without them would be a lie");
            assert_eq!(host.effects(), [""; 0], "{what}");
        }
    });
}

#[test]
fn a_group_that_no_pool_names_is_served_from_disks_of_the_machine_only() {
    block_on(async {
        for (source, volumes) in
            [(DiskBacking::Local, 1), (DiskBacking::File, 0), (DiskBacking::Foreign, 0)]
        {
            let (host, setup, node) = after(&[Op::Create(Mode::Block)]).await;
            for disk in host.disks().await.expect("disks") {
                host.set_source(&disk.path, source);
            }
            drop(node);
            host.forget_effects();
            let node = Setup { plans: Vec::new(), ..setup }.start(&host).await;
            let list = node.list(&Page::default()).await.expect("a list").volumes;
            assert_eq!(list.len(), volumes, "{source:?}");
            assert!(volumes == 1 || host.effects().is_empty(), "{:?}", host.effects());
        }
    });
}

#[test]
fn a_group_in_files_is_served_where_no_disk_of_the_machine_has_one_of_its_name() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(EXT4), Op::CreateNeighbour]).await;
        for disk in host.disks().await.expect("disks") {
            host.set_source(&disk.path, DiskBacking::File);
        }
        drop(node);
        let node = setup.start(&host).await;
        serves_all(&host, &node, "in files").await;
    });
}

#[test]
fn a_group_of_another_storage_system_is_served_from_disks_that_a_pool_names() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(EXT4), Op::CreateNeighbour]).await;
        let disks: Vec<PathBuf> =
            host.disks().await.expect("disks").into_iter().map(|disk| disk.path).collect();
        for disk in &disks {
            host.set_source(disk, DiskBacking::Foreign);
        }
        drop(node);
        let node = setup.start(&host).await;
        let said = node.ensure(&want("one", Mode::Block, 8)).await.expect_err("it is not read");
        let said = said.to_string();
        assert!(said.contains("/dev/fake0") && said.contains("no pool names it"), "{said}");

        let mut plans = setup.plans.clone();
        let named = |path: &PathBuf| NewDisk { path: path.clone(), wipe: false };
        plans[0].standby_disks = disks.iter().map(named).collect();
        let node = Setup { plans, ..setup }.start(&host).await;
        serves_all(&host, &node, "named").await;
    });
}

#[test]
fn a_volume_whose_disk_came_back_under_another_number_is_made_active_again() {
    block_on(async {
        let before = [Op::Create(Mode::Block), Op::Stage(Mode::Block), Op::Write];
        let (host, _, node) = after(&before).await;
        let places = marks(&host);
        let disk = places[0].0.clone();
        host.remove_disk(&disk);
        let _ = node.list(&Page::default()).await;
        host.move_disk(&disk, 77);

        Op::Delete.ask(&host, &node).await.expect("the device that is dead is made again");
        assert!(!readable(&host, &places).await);
        assert_eq!(host.state().devices.len(), 0);
    });
}

/// While it is wiped at its end, and while what is to join it is wiped.
#[test]
fn a_wipe_whose_disk_came_back_under_another_number_goes_on_there() {
    block_on(async {
        for op in [Op::Delete, Op::Grow(LARGE)] {
            let before = [Op::Create(Mode::Block), Op::Stage(Mode::Block), Op::Write, Op::Unstage];
            let (host, _, node) = after(&before).await;
            let places = marks(&host);
            host.fail("BLKZEROOUT", Failing::Always);
            let said = op.ask(&host, &node).await.expect_err("its disk is going");
            assert!(said.starts_with("Unavailable"), "{op:?}: {said}");
            host.mend();
            host.remove_disk(&places[0].0);
            let _ = node.list(&Page::default()).await;
            host.move_disk(&places[0].0, 77);

            op.ask(&host, &node).await.expect("its device is made again where its disk is now");
            assert_eq!(readable(&host, &places).await, op != Op::Delete, "{op:?}");
            for table in tables(&host).await {
                assert!(
                    !table.iter().any(|row| row.params.starts_with("259:0 ")),
                    "{op:?}: {table:?}"
                );
            }
        }
    });
}

#[test]
fn a_volume_in_use_is_never_put_on_another_disk() {
    block_on(async {
        let (host, setup, node) = after(&MOUNTED).await;
        let disk = marks(&host)[0].0.clone();
        let before = tables(&host).await;
        host.move_disk(&disk, 77); // It went and came back between two looks.
        host.forget_effects();

        node.set_pools(setup.plans.clone()).await.expect("disks are listed");
        let found = node.find(&id_of(VOLUME)).await.expect("find").expect("a volume");
        let [ailing] = &found.ailments[..] else { panic!("{found:?}") };
        let numbers = ["259:0", "259:77"].map(|number| ailing.message.contains(number));
        assert_eq!((ailing.reason, numbers), ("DiskMissing", [true, true]), "{ailing:?}");
        for op in [Op::Grow(LARGE), Op::Stage(EXT4)] {
            let said = op.ask(&host, &node).await.expect_err("it is dead");
            assert!(said.starts_with("Unavailable") && said.contains("259:77"), "{op:?}: {said}");
        }
        drop(node);
        let node = setup.start(&host).await; // Healing at the start leaves it too.
        let now = tables(&host).await;
        assert_eq!(now[..1], before[..1]);
        // To be wiped there before its first use.
        let is_there =
            |table: &Vec<DmTarget>| table.iter().all(|row| row.params.starts_with("259:77 "));
        assert!(now[1..].iter().all(is_there), "what is not in use is made again: {now:?}");
        let mut refreshed = refreshes(&host);
        refreshed.retain(|effect| effect.contains("--refresh"));
        assert_eq!(refreshed, [""; 0]);

        for op in [Op::Unpublish, Op::Unstage, Op::Stage(EXT4), Op::Grow(LARGE)] {
            op.ask(&host, &node).await.expect("it is made again where its disk is now");
        }
        assert_eq!(host.disks().await.expect("disks").len(), 2);
        let now = tables(&host).await;
        assert!(now.iter().flatten().any(|row| row.params.starts_with("259:77 ")), "{now:?}");
    });
}

#[test]
fn a_raw_volume_that_is_shown_keeps_its_number_while_nothing_has_it_open() {
    block_on(async {
        let before = [Op::Create(Mode::Block), Op::Stage(Mode::Block), Op::Publish(Mode::Block)];
        let (host, setup, node) = after(&before).await;
        let (device, table) = (device(&host), tables(&host).await);
        let disk = Path::new("/dev/fake0");
        host.move_disk(disk, 77);
        for op in [Op::Stage(Mode::Block), Op::Grow(LARGE)] {
            let said = op.ask(&host, &node).await.expect_err("its device is dead");
            assert!(said.starts_with("Unavailable") && said.contains("259:77"), "{op:?}: {said}");
        }
        drop(node);
        let node = setup.start(&host).await;
        // Else the next volume would get the number that the path in the pod leads to.
        node.ensure(&want(NEIGHBOUR, Mode::Block, 8)).await.expect("the group is well");
        assert_eq!(tables(&host).await[..1], table);
        assert_eq!(host.device_of("vg0", &lv_name(id_of(VOLUME).key())), Some(device));

        for op in [Op::Unpublish, Op::Unstage, Op::Stage(Mode::Block)] {
            op.ask(&host, &node).await.expect("it is made again where its disk is now");
        }
        let now = tables(&host).await;
        assert!(now.iter().flatten().all(|row| row.params.starts_with("259:77 ")), "{now:?}");
    });
}

#[test]
fn a_raw_volume_that_is_shown_stays_active_when_its_size_is_kept() {
    block_on(async {
        let before = [Op::Create(Mode::Block), Op::Stage(Mode::Block), Op::Publish(Mode::Block)];
        let (host, _, node) = after(&before).await;
        let (device, table) = (device(&host), tables(&host).await);
        Op::Shrink(SMALL).ask(&host, &node).await.expect("it has this size");
        assert_eq!(host.device_of("vg0", &lv_name(id_of(VOLUME).key())), Some(device));
        assert_eq!(tables(&host).await, table);

        for op in [Op::Unpublish, Op::Unstage] {
            op.ask(&host, &node).await.expect("nothing holds it");
        }
        Op::Shrink(SMALL).ask(&host, &node).await.expect("it has this size");
        assert_eq!(tables(&host).await, [[]; 0]);
    });
}

#[test]
fn a_disk_whose_content_the_driver_stumbles_over_is_unreadable_and_not_blank() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(Mode::Block)]).await;
        let blank = host.add_disk(Bytes::gib(1));
        host.panic_at(&format!("read {}", blank.display()));
        host.forget_effects();
        node.set_pools(setup.plans.clone()).await.expect("disks are listed");
        let door: Arc<dyn Host> = Arc::new(host.clone());
        let scan = scan(&door, &NamedDisks::default()).await.expect("disks are listed");
        let unreadable: Vec<_> = scan.unreadable.iter().map(|(path, _)| path).collect();
        assert_eq!((unreadable, scan.members.len()), (vec![&blank], 2));
        assert_eq!(host.effects(), [""; 0]);
        assert_eq!(node.list(&Page::default()).await.expect("a list").volumes.len(), 1);
    });
}

/// A look at a named disk that ends in a fault of the driver is the refusal of that disk; the other disks and
/// pools are as they should be.
#[test]
fn a_panic_while_one_disk_is_looked_at_is_the_refusal_of_that_disk() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(Mode::Block)]).await;
        let (bad, good) = (host.add_disk(Bytes::gib(1)), host.add_disk(Bytes::gib(1)));
        let largest_with = async |standby_disks: &[&PathBuf]| {
            let named = |path: &&PathBuf| NewDisk { path: (*path).clone(), wipe: false };
            let mut plans = setup.plans.clone();
            plans[0].standby_disks = standby_disks.iter().map(named).collect();
            node.set_pools(plans).await.expect("disks are listed");
            let query = CapacityQuery { class: Class::default(), mode: None, node: None };
            node.capacity(&query).await.expect("capacity").largest
        };
        let (none, one) = (largest_with(&[]).await, largest_with(&[&good]).await);
        assert!(one > none, "{one} {none}");
        host.panic_at(&format!("read {}", bad.display()));
        assert_eq!(largest_with(&[&bad, &good]).await, one);
        let states = || -> Vec<(String, DiskUse)> {
            let disks = node.storage().disks.into_iter();
            let is_standby =
                |path: &str| [&bad, &good].iter().any(|one| one.as_path() == Path::new(path));
            let standby_disks = disks.filter(|disk| is_standby(&disk.device));
            standby_disks.map(|disk| (disk.message.unwrap_or_default(), disk.state)).collect()
        };
        let told = states();
        assert_eq!((told[0].1, told[1].1), (DiskUse::Refused, DiskUse::Standby), "{told:?}");
        assert!(told[0].0.contains("internal error"), "{told:?}");
        let size = one.get() >> 20;
        node.ensure(&want("large", Mode::Block, size)).await.expect("the good disk joins");
        let refused = states().into_iter().filter(|(_, state)| *state == DiskUse::Refused);
        assert_eq!(refused.count(), 1, "{:?}", states());
    });
}

#[test]
fn a_panic_while_a_group_is_made_on_a_disk_keeps_no_other_pool_waiting() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(Mode::Block)]).await;
        let (bad, good) = (host.add_disk(Bytes::gib(1)), host.add_disk(Bytes::gib(1)));
        let made = |name: &str, path: &PathBuf| {
            let disk = NewDisk { path: path.clone(), wipe: false };
            PoolPlan::new(name.parse().expect("a name"), vec![GroupSource::Create(disk)])
        };
        let plans = [vec![made("bad", &bad), made("good", &good)], setup.plans.clone()].concat();
        host.panic_at(&format!("read {}", bad.display()));
        node.set_pools(plans.clone()).await.expect("disks are listed");
        let sizes = |node: &Node| -> Vec<bool> {
            node.storage().pools.iter().map(|pool| pool.size > Bytes::ZERO).collect()
        };
        assert_eq!(sizes(&node), [false, true, true]);
        let refused = node.storage().pools[0].refused.join(" ");
        assert!(refused.contains("internal error"), "{refused}");
        host.mend();
        node.set_pools(plans).await.expect("disks are listed");
        assert_eq!(sizes(&node), [true; 3], "it is taken up when the fault is gone");
    });
}

/// A fault while one group is healed is that group's.
#[test]
fn a_panic_while_one_group_is_healed_keeps_no_other_one_waiting() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(Mode::Block)]).await;
        let disk = host.add_disk(Bytes::gib(1));
        host.add_group("vg1", std::slice::from_ref(&disk));
        let groups = vec![GroupSource::Existing("vg1".to_owned())];
        let more = PoolPlan::new("more".parse().expect("a name"), groups);
        // A growth that was cut short.
        let left = more_name(id_of(VOLUME).key());
        type_in(
            &host,
            "vg0",
            &format!("lvcreate -y -Wn -Zn --setautoactivation n -ay -l 2 -n {left} vg0"),
        )
        .await;
        drop(node);
        host.panic_at("lvremove");
        let plans = [setup.plans.clone(), vec![more]].concat();
        let node = Setup { plans, ..setup }.start(&host).await;
        assert_eq!(node.storage().pools.len(), 2);
        assert_eq!(node.list(&Page::default()).await.expect("a list").volumes.len(), 1);
    });
}

#[test]
fn a_disk_that_came_back_is_known_by_its_new_number_alone() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(Mode::Block), Op::Write]).await;
        let disk = marks(&host)[0].0.clone();
        host.move_disk(&disk, 77);
        Op::Stage(Mode::Block).ask(&host, &node).await.expect("it is made active again");
        let copy = host.add_disk(Bytes::mib(400));
        let head = host.read_at(&disk, 0, 17 << 20).await.expect("read");
        host.write_at(&copy, 0, &head);

        // While a disk of the group cannot be read all disks are.
        host.fail_disk(Path::new("/dev/fake1"));
        let _ = node.list(&Page::default()).await;
        host.heal_disk(Path::new("/dev/fake1"));
        assert_eq!(node.list(&Page::default()).await.expect("a list").volumes.len(), 1);
        Op::Grow(LARGE).ask(&host, &node).await.expect("the copy is not taken for it");
    });
}

/// Between two looks the disk went, and of two that say the same one has its path now.
#[test]
fn of_two_copies_the_one_at_the_path_of_a_disk_that_went_is_not_taken_for_it() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(Mode::Block), Op::Write]).await;
        let disk = marks(&host)[0].0.clone();
        let copy = host.add_disk(Bytes::mib(400));
        let head = host.read_at(&disk, 0, 17 << 20).await.expect("read");
        host.write_at(&copy, 0, &head);
        host.move_disk(&disk, 77);

        // While a disk of the group cannot be read all disks are.
        host.fail_disk(Path::new("/dev/fake1"));
        let _ = node.list(&Page::default()).await;
        host.heal_disk(Path::new("/dev/fake1"));
        let said = Op::Grow(LARGE).ask(&host, &node).await.expect_err("which is it?");
        let named = [&disk, &copy].map(|path| said.contains(&path.display().to_string()));
        assert!(said.starts_with("Unavailable") && named == [true, true], "{said}");
    });
}

/// Takes a snapshot of the volume, as a person does before an upgrade: its bytes are then behind a hidden
/// device that the snapshot shares.
async fn take_a_snapshot(host: &FakeHost) {
    let origin = lv_name(id_of(VOLUME).key());
    type_in(host, "vg0", &format!("lvcreate -y -s -l 4 -n backup vg0/{origin}")).await;
}

#[test]
fn what_is_in_use_behind_a_hidden_device_is_never_put_on_another_disk() {
    block_on(async {
        // A snapshot that the metadata has no more is what a removal that was cut off leaves.
        for is_known in [true, false] {
            let (host, setup, node) = after(&MOUNTED).await;
            take_a_snapshot(&host).await;
            if !is_known {
                host.change_group("vg0", |group| {
                    group.lvs.retain(|name, _| name != "backup" && !name.starts_with("snapshot"));
                });
            }
            let disk = marks(&host)[0].0.clone();
            let neighbour = lv_name(id_of(NEIGHBOUR).key());
            type_in(&host, "vg0", &format!("lvchange -y -an vg0/{neighbour}")).await;
            let before = tables(&host).await;
            host.move_disk(&disk, 77);
            host.forget_effects();

            node.set_pools(setup.plans.clone()).await.expect("disks are listed");
            let found = node.find(&id_of(VOLUME)).await.expect("find").expect("a volume");
            let [ailing] = &found.ailments[..] else { panic!("{is_known}: {found:?}") };
            let numbers = ["259:0", "259:77"].map(|number| ailing.message.contains(number));
            assert_eq!((ailing.reason, numbers), ("DiskMissing", [true, true]), "{ailing:?}");
            for op in [Op::Grow(LARGE), Op::Stage(EXT4)] {
                let said = op.ask(&host, &node).await.expect_err("it is dead");
                let is_named = said.starts_with("Unavailable") && said.contains("259:77");
                assert!(is_named, "{is_known}: {op:?}: {said}");
            }
            drop(node);
            let node = setup.start(&host).await;
            let mut now = tables(&host).await;
            // The neighbour is not in use, and made active to be wiped.
            now.retain(|table| table.iter().any(|row| !row.params.starts_with("259:77 ")));
            assert_eq!(now, before, "{is_known}");
            let mut refreshed = refreshes(&host);
            refreshed.retain(|effect| !effect.contains(&neighbour));
            assert_eq!(refreshed, [""; 0], "{is_known}");

            for op in [Op::Unpublish, Op::Unstage, Op::Stage(EXT4)] {
                op.ask(&host, &node).await.expect("it is made again where its disk is now");
            }
            let now = tables(&host).await;
            let mut rows = now.iter().flatten();
            assert!(rows.any(|row| row.params.starts_with("259:77 ")), "{is_known}: {now:?}");
            assert!(!now.iter().flatten().any(|row| row.params.starts_with("259:0 ")), "{now:?}");
        }
    });
}

#[test]
fn what_is_unused_behind_a_hidden_device_is_made_active_again() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(Mode::Block), Op::Write]).await;
        let places = marks(&host);
        let disk = places[0].0.clone();
        take_a_snapshot(&host).await;
        host.remove_disk(&disk);
        let _ = node.list(&Page::default()).await;
        host.move_disk(&disk, 77);

        Op::Stage(Mode::Block).ask(&host, &node).await.expect("its devices are made again");
        let now = tables(&host).await;
        assert!(now.iter().flatten().any(|row| row.params.starts_with("259:77 ")), "{now:?}");
        assert!(!now.iter().flatten().any(|row| row.params.starts_with("259:0 ")), "{now:?}");
        type_in(&host, "vg0", "lvremove -y -f vg0/backup").await;
        for op in [Op::Unstage, Op::Delete] {
            op.ask(&host, &node).await.expect("it is as any other");
        }
        assert!(!readable(&host, &places).await);
    });
}

#[test]
fn no_command_on_a_snapshot_puts_its_origin_on_another_disk() {
    block_on(async {
        let (host, _, node) = after(&MOUNTED).await;
        take_a_snapshot(&host).await;
        let disk = marks(&host)[0].0.clone();
        let before = tables(&host).await;
        drop(node);
        host.move_disk(&disk, 77);
        host.forget_effects();

        let group = VolumeGroup::new(Arc::new(host.clone()), "vg0");
        let turn = group.turn().await.expect("a turn");
        let origin = lv_name(id_of(VOLUME).key());
        let another = NewLv {
            name: "another".to_owned(),
            layout: Layout::Linear,
            extents: 4,
            tags: Vec::new(),
        };
        let said = [
            turn.remove("backup").await.expect_err("its origin is in use"),
            turn.merge("backup", Duration::from_secs(1)).await.expect_err("the same"),
            turn.snapshot(&origin, &another).await.expect_err("the same"),
        ];
        assert!(said.iter().all(|said| matches!(said, LvmError::Elsewhere { .. })), "{said:?}");
        assert_eq!(tables(&host).await, before);
        assert_eq!(host.effects(), [""; 0]);
    });
}

/// As where multipath takes the paths of a disk after the driver has begun to use one of them.
#[test]
fn a_group_that_became_the_top_of_a_stack_is_used_there() {
    block_on(async {
        let (host, setup, node) = after(&MOUNTED[..2]).await;
        let disk = marks(&host)[0].0.clone();
        let top = host.stack_on_disk(&disk);
        let disks = host.disks().await.expect("disks");
        let number = disks.iter().find(|disk| disk.path == top).expect("it is listed").number;
        node.set_pools(setup.plans.clone()).await.expect("disks are listed");

        Op::Stage(EXT4).ask(&host, &node).await.expect("LVM sees what is on it at the top");
        node.ensure(&want("another", Mode::Block, 8)).await.expect("the group is well");
        let group = host.group("vg0").expect("a group");
        let uuid = group.dm_uuid(&group.lvs[&lv_name(id_of(VOLUME).key())]);
        let (_, table) = host.dm_table(&uuid).await.expect("a table").expect("it is active");
        let is_there = |row: &DmTarget| row.params.starts_with(&format!("{number} "));
        assert!(table.iter().all(is_there), "{table:?}");
    });
}

#[test]
fn a_node_takes_no_group_that_is_another_nodes() {
    block_on(async {
        let (host, setup, alpha) = after(&[Op::Create(Mode::Block)]).await;
        let more = more_name(id_of(VOLUME).key());
        let made = format!("lvcreate -y -Wn -Zn --setautoactivation n -ay -l 2 -n {more} vg0");
        type_in(&host, "vg0", &made).await;
        host.forget_effects();

        let there = Setup { settings: NodeSettings::new("beta"), ..setup.clone() };
        let beta = there.start(&host).await;
        assert_eq!(beta.list(&Page::default()).await.expect("its own").volumes, []);
        let said = beta.ensure(&want("one", Mode::Block, 8)).await.expect_err("it has no group");
        assert!(matches!(
            said,
            VolumeError::InsufficientCapacity { .. } | VolumeError::Unavailable { .. }
        ));
        let refused = &beta.storage().pools[0].refused.join(" ");
        let key = id_of(VOLUME).node().as_str().to_owned();
        assert!(refused.contains(&key) && refused.contains("beta"), "{refused}");
        assert_eq!(host.effects(), [""; 0]);
        assert_eq!(alpha.list(&Page::default()).await.expect("a list").volumes.len(), 1);

        // Until a person says that it is now this node's.
        type_in(&host, "vg0", "vgchange -y --addtag pliant.node=beta vg0").await;
        let beta = there.start(&host).await;
        assert_eq!(beta.list(&Page::default()).await.expect("a list").volumes.len(), 1);
        let alpha = setup.start(&host).await;
        assert_eq!(alpha.list(&Page::default()).await.expect("a list").volumes, []);
    });
}

#[test]
fn a_size_in_a_tag_that_cannot_be_read_is_not_0() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(Mode::Block)]).await;
        let place = format!("vg0/{}", lv_name(id_of(VOLUME).key()));
        type_in(
            &host,
            "vg0",
            &format!("lvchange -y --addtag pliant.requested-bytes=small {place}"),
        )
        .await;
        let listed = node.list(&Page::default()).await.expect("a list").volumes;
        assert_eq!(listed[0].volume.requested, listed[0].volume.size, "the most that it can be");
    });
}

#[test]
fn a_group_whose_tags_name_two_nodes_is_used_by_none() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        for name in ["alpha", "beta"] {
            type_in(&host, "vg0", &format!("vgchange -y --addtag pliant.node={name} vg0")).await;
        }
        host.forget_effects();
        for name in ["alpha", "beta"] {
            let node =
                Setup { settings: NodeSettings::new(name), ..setup.clone() }.start(&host).await;
            node.ensure(&want("one", Mode::Block, 8)).await.expect_err("it may be the other's");
            let refused = node.storage().pools[0].refused.join(" ");
            assert!(refused.contains("--deltag"), "{refused}");
        }
        assert_eq!(host.effects(), [""; 0]);
        type_in(&host, "vg0", "vgchange -y --deltag pliant.node=beta vg0").await;
        let alpha = Setup { settings: NodeSettings::new("alpha"), ..setup }.start(&host).await;
        alpha.ensure(&want("one", Mode::Block, 8)).await.expect("it is its own");
    });
}

#[test]
fn a_group_that_this_driver_makes_says_whose_it_is() {
    block_on(async {
        let (host, setup) = Disks::Blank.machine(false).await;
        let alpha = setup.start(&host).await;
        alpha.ensure(&want(VOLUME, Mode::Block, 8)).await.expect("a volume");
        until_wiped(&alpha).await;
        host.forget_effects();
        let beta = Setup { settings: NodeSettings::new("beta"), ..setup }.start(&host).await;
        let refused = &beta.storage().pools[0].refused.join(" ");
        assert!(refused.contains("alpha") && refused.contains("beta"), "{refused}");
        assert_eq!(host.effects(), [""; 0]);
    });
}

#[test]
fn what_a_pool_names_and_is_no_disk_is_not_taken() {
    block_on(async {
        let (host, setup, node) = after(&[Op::Create(Mode::Block)]).await;
        let label = Path::new("/dev/disk/by-label/data");
        host.link(label, &device(&host));
        let named = NewDisk { path: label.to_owned(), wipe: true };
        let made = PoolPlan::new("made".parse().unwrap(), vec![GroupSource::Create(named.clone())]);
        let mut plans = setup.plans.clone();
        plans[0].standby_disks = vec![named];
        plans.push(made);
        host.forget_effects();
        node.set_pools(plans[..1].to_vec()).await.expect("disks are listed");
        node.ensure(&want("large", Mode::Block, 4096)).await.expect_err("no standby disk helps");
        node.set_pools(plans[1..].to_vec()).await.expect("disks are listed");
        node.set_pools(plans).await.expect("disks are listed");
        assert_eq!(host.effects(), [""; 0]);
        for pool in node.storage().pools {
            let refused = pool.refused.join(" ");
            assert!(refused.contains("which is not a usable disk"), "{refused}");
        }
    });
}

#[test]
fn a_growth_that_the_kernel_refuses_keeps_no_workload_from_its_data() {
    block_on(async {
        for (mode, call) in [
            (FsKind::Ext4, "EXT4_IOC_RESIZE_FS"),
            (FsKind::Xfs, "XFS_IOC_FSGROWFSDATA"),
            (FsKind::Btrfs, "BTRFS_IOC_RESIZE"),
        ] {
            let mode = Mode::Filesystem(mode);
            let before = [Op::Create(mode), Op::Stage(mode), Op::Write, Op::Unstage];
            let (host, _, node) = after(&before).await;
            host.fail(call, Failing::Always);
            Op::Grow(LARGE).ask(&host, &node).await.expect("the volume itself grows");
            for _ in 0..2 {
                Op::Stage(mode).ask(&host, &node).await.expect("its data is good");
                let said = Op::Expand.ask(&host, &node).await.expect_err("it is refused");
                assert!(said.contains("failed to grow") && said.contains(call), "{said}");
                let health = node.volume_health(&id_of(VOLUME)).await.expect("a look");
                let told = health.iter().find(|one| one.reason == "FilesystemResizePending");
                let told = &told.expect("its condition says why").message;
                assert!(told.contains("failed to grow"), "{told}");
            }

            host.forget_effects();
            Op::Unstage.ask(&host, &node).await.expect("unstage");
            Op::Stage(mode).ask(&host, &node).await.expect("its data is good still");
            let private = host.effects().iter().any(|effect| effect.contains("/run/pliant/grow/"));
            assert!(private, "nothing was tried while it was not mounted");

            host.mend();
            Op::Unstage.ask(&host, &node).await.expect("unstage");
            Op::Stage(mode).ask(&host, &node).await.expect("stage");
            Op::Expand.ask(&host, &node).await.expect("it fills its device");
            assert_eq!(node.volume_health(&id_of(VOLUME)).await.expect("a look"), []);
        }
    });
}

#[test]
fn a_program_that_does_not_grow_an_unmounted_file_system_keeps_no_workload_from_its_data() {
    block_on(async {
        for call in ["resize2fs", "e2fsck", "lvcreate -y -s"] {
            let before = [
                Op::Create(EXT4),
                Op::Stage(EXT4),
                Op::Write,
                Op::Sparse,
                Op::Unstage,
                Op::Grow(LARGE),
            ];
            let (host, setup) = Disks::Two.machine(true).await;
            let node = setup.start(&host).await;
            for op in before {
                op.ask(&host, &node).await.expect("an answer");
            }
            host.fail(call, Failing::Always);
            Op::Stage(EXT4).ask(&host, &node).await.expect("its data is good");
            let health = node.volume_health(&id_of(VOLUME)).await.expect("a look");
            assert_eq!(health[0].reason, "FilesystemResizePending", "{call}");
            host.mend();
            Op::Unstage.ask(&host, &node).await.expect("unstage");
            Op::Stage(EXT4).ask(&host, &node).await.expect("it grows before it is mounted");
            assert_eq!(node.volume_health(&id_of(VOLUME)).await.expect("a look"), [], "{call}");
        }
    });
}
