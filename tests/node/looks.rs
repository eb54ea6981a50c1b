//! What is done is looked at before it is believed, and made durable before it is told: each guard here
//! has been taken out once.

use std::path::Path;
use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::host::{Cmd, Host, NewMount, PathKind};
use pliant::mount::{self, MountError, MountTable};
use pliant::node::lv_tags::lv_name;
use pliant::node::{GroupSource, NewDisk, Node, PoolPlan};
use pliant::testing::{Failing, FakeHost};
use pliant::volume::{
    Class, FsKind, Mode, NewVolume, NodeVolumes, Safety, Severity, VolumeError, Volumes, Wipe,
};

use crate::cuts::block_on;
use crate::machine::{
    Disks, LARGE, NEIGHBOUR, Op, SMALL, STAGING, Setup, TARGET, VOLUME, after, id_of, settings,
    type_in, want, wrongs,
};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

pub fn lv() -> String {
    lv_name(id_of(VOLUME).key())
}

/// A pool of groups with a disk of so many MiB each, and standby disks.
async fn pool(groups: &[u64], standby_disks: &[u64]) -> (FakeHost, Arc<Node>) {
    let host = FakeHost::new();
    let add = |mib: &u64| host.add_disk(Bytes::mib(*mib));
    let mut sources = Vec::new();
    for (at, mib) in groups.iter().enumerate() {
        host.add_group(&format!("vg{at}"), &[add(mib)]);
        sources.push(GroupSource::Existing(format!("vg{at}")));
    }
    let standby_disks =
        standby_disks.iter().map(|mib| NewDisk { path: add(mib), wipe: false }).collect();
    let plan =
        PoolPlan { standby_disks, ..PoolPlan::new("fast".parse().expect("a name"), sources) };
    let setup = Setup { settings: settings(), plans: vec![plan] };
    let node = setup.start(&host).await;
    (host, node)
}

#[test]
fn a_standby_disk_joins_the_roomiest_group() {
    block_on(async {
        let (host, node) = pool(&[300, 200], &[500]).await;
        node.ensure(&want(VOLUME, Mode::Block, 600)).await.expect("the standby disk joins");
        let disks = ["vg0", "vg1"].map(|name| host.group(name).expect("a group").pvs.len());
        assert_eq!(disks, [2, 1]);
    });
}

#[test]
fn a_standby_disk_that_joined_is_durably_there_although_it_was_not_enough() {
    block_on(async {
        let (host, node) = pool(&[300], &[500]).await;
        let answer = node.ensure(&want(VOLUME, Mode::Block, 2000)).await;
        assert!(matches!(answer, Err(VolumeError::InsufficientCapacity { .. })), "{answer:?}");
        let group = host.after_power_cut().group("vg0").expect("a group");
        assert_eq!(group.pvs.len(), 2);
    });
}

#[test]
fn of_two_volumes_for_the_last_room_one_is_told_that_there_is_none() {
    block_on(async {
        let (_host, node) = pool(&[500], &[]).await;
        let (one, other) = (want("one", Mode::Block, 300), want("other", Mode::Block, 300));
        let answers = tokio::join!(node.ensure(&one), node.ensure(&other));
        match answers {
            (Ok(_), Err(VolumeError::InsufficientCapacity { largest, .. }))
            | (Err(VolumeError::InsufficientCapacity { largest, .. }), Ok(_)) => {
                assert_eq!(largest, Bytes::mib(180));
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn the_first_answer_after_a_start_is_durable_whoever_made_the_volume() {
    block_on(async {
        let (host, setup, _) = after(&[Op::Create(EXT4)]).await;
        let host = host.after_crash();
        let node = setup.start(&host).await;
        host.forget_effects();
        Op::Create(EXT4).ask(&host, &node).await.expect("it is there");
        for disk in ["fsync /dev/fake0", "fsync /dev/fake1"] {
            assert!(host.effects().contains(&disk.to_owned()), "{:#?}", host.effects());
        }
    });
}

/// Let an administrator's command on the volume die after each of its steps, then ask for something.
fn after_each_death(before: &[Op], line: &str, then: impl AsyncFn(&FakeHost, &Node)) -> usize {
    for n in 1.. {
        let died = block_on(async {
            let (host, _, node) = after(before).await;
            host.forget_effects();
            host.kill_lvm_after(n);
            let mut words = line.split(' ').map(str::to_owned);
            let program: &'static str = words.next().expect("a program").leak();
            let died = host.lvm("vg0", Cmd::new(program).args(words)).await.is_err();
            if died {
                then(&host, &node).await;
            }
            died
        });
        if !died {
            return n - 1;
        }
    }
    0
}

#[test]
fn what_the_command_of_somebody_else_left_suspended_is_healed_before_the_next_one() {
    for (op, command) in [(Op::Grow(LARGE), "lvextend"), (Op::Delete, "lvremove")] {
        let line = format!("lvextend -y -l 100 vg0/{}", lv());
        let suspended = std::cell::Cell::new(0);
        after_each_death(&[Op::Create(Mode::Block)], &line, async |host, node| {
            let waits = host.state().devices.values().any(|device| device.suspended);
            host.forget_effects();
            let answer = op.ask(host, node).await;
            assert!(answer.is_ok(), "{op:?}: {answer:?}");
            assert_eq!(wrongs(host, false).await, [""; 0]);
            let done = outline(host);
            let first = |verb: &str| done.iter().position(|done| done == verb);
            if waits {
                // LVM would wait for ever.
                assert!(
                    first("DM_DEV_SUSPEND").expect("a resume") < first(command).expect("it ran")
                );
                suspended.set(suspended.get() + 1);
            }
        });
        assert!(suspended.get() > 0, "{op:?}");
    }
}

#[test]
fn what_lvm_refuses_is_not_taken_for_done() {
    let mounted = [Op::Create(EXT4), Op::Stage(EXT4)];
    for (before, command, op) in [
        (&mounted[..], "lvextend", Op::Grow(LARGE)),
        (&mounted, "lvchange -y -an", Op::Unstage),
        (&mounted[..1], "lvchange -y --deltag", Op::Stage(EXT4)),
        (&[], "lvcreate", Op::Create(EXT4)),
    ] {
        block_on(async {
            let (host, _, node) = after(before).await;
            host.fail(command, Failing::Once);
            let said = op.ask(&host, &node).await.expect_err("it was refused");
            assert!(said.contains(command), "{op:?}: {said}");
        });
    }
}

#[test]
fn a_merge_that_lvm_refuses_is_told_and_nothing_is_mounted() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Unstage]).await;
        // What is no superblock fails the check, so that the snapshot is to be merged back.
        let take = format!("lvcreate -y -s -l 20 -n {}.resize vg0/{}", lv(), lv());
        type_in(&host, "vg0", &take).await;
        type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv())).await;
        let device = host.device_of("vg0", &lv()).expect("it is active");
        host.write_at(&device, 1024, &[1; 1024]);
        host.fail("lvconvert", Failing::Once);
        let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it was not merged");
        assert!(said.contains("so did the merge of its resize snapshot"), "{said}");
        assert!(!format!("{:?}", host.state().mounts).contains(STAGING));
    });
}

#[test]
fn a_suspended_volume_is_told_as_such_and_is_not_asked_how_full_it_is() {
    let before = [Op::Create(EXT4), Op::Stage(EXT4), Op::Publish(EXT4)];
    let line = format!("lvextend -y -l 100 vg0/{}", lv());
    let suspended = std::cell::Cell::new(0);
    after_each_death(&before, &line, async |host, node| {
        let is_suspended = host.state().devices.values().any(|device| device.suspended);
        let stats = node.stats(&id_of(VOLUME), Path::new(TARGET)).await.expect("stats");
        let bad = ("VolumeSuspended", Severity::Inaccessible);
        let told = stats.ailments.iter().any(|one| (one.reason, one.severity) == bad);
        assert_eq!((told, stats.usage.is_none()), (is_suspended, is_suspended), "{stats:?}");
        suspended.set(suspended.get() + usize::from(is_suspended));
    });
    assert!(suspended.get() > 0);
}

#[test]
fn what_a_command_on_a_volume_of_others_left_is_left_alone() {
    for n in 1.. {
        let died = block_on(async {
            let (host, setup, _) = after(&[Op::Create(EXT4)]).await;
            let make = "lvcreate -y -Wn -Zn --setautoactivation n -ay -l 4 -n theirs vg0";
            type_in(&host, "vg0", make).await;
            host.forget_effects();
            host.kill_lvm_after(n);
            let snapshot = ["-y", "-s", "-l", "4", "-n", "backup", "vg0/theirs"];
            let died = host.lvm("vg0", Cmd::new("lvcreate").args(snapshot)).await.is_err();
            host.forget_effects();
            let before = host.state().devices;
            setup.start(&host).await;
            assert_eq!(host.state().devices.len(), before.len(), "{n}: {:#?}", host.effects());
            died
        });
        if !died {
            assert!(n > 2, "{n}");
            return;
        }
    }
}

#[test]
fn a_device_of_another_group_is_left_alone_whatever_its_name() {
    block_on(async {
        let (host, setup, _) = after(&[Op::Create(EXT4)]).await;
        let disk = host.add_disk(Bytes::mib(100));
        host.add_group("theirs", &[disk]);
        let make = "lvcreate -y -Wn -Zn --setautoactivation n -ay -l 4 -n pliant-theirs theirs";
        type_in(&host, "theirs", make).await;
        let before = host.state().devices;
        setup.start(&host).await;
        assert_eq!(host.state().devices, before);
    });
}

#[test]
fn a_volume_of_another_name_is_not_taken_for_this_one() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4)]).await;
        let swap = "--deltag pliant.name=volume --addtag pliant.name=other";
        type_in(&host, "vg0", &format!("lvchange -y {swap} vg0/{}", lv())).await;
        let said = Op::Create(EXT4).ask(&host, &node).await.expect_err("it is another's");
        assert!(said.starts_with("AlreadyExists") && said.contains("its name is"), "{said}");
    });
}

#[test]
fn a_volume_with_other_promises_is_not_taken_for_this_one() {
    block_on(async {
        let (_, _, node) = after(&[Op::Create(EXT4)]).await;
        let asked = want(VOLUME, EXT4, SMALL);
        for (class, difference) in [
            (
                Class { wipe: Wipe::None, ..Class::default() },
                "its wipe is Zero, None was requested",
            ),
            (
                Class { safety: Safety::Required, ..Class::default() },
                "its resizeSnapshot is BestEffort, Required was requested",
            ),
        ] {
            let answer = node.ensure(&NewVolume { class, ..asked.clone() }).await;
            let Err(VolumeError::AlreadyExists { difference: said, .. }) = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(said, difference);
        }
        node.ensure(&asked).await.expect("the same again is there already");
    });
}

#[test]
fn a_wipe_or_safety_that_makes_no_sense_is_taken_for_the_careful_one() {
    block_on(async {
        let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Write]).await;
        for by_hand in ["wipe=never", "resize-snapshot=no"] {
            type_in(&host, "vg0", &format!("lvchange -y --addtag pliant.{by_hand} vg0/{}", lv()))
                .await;
        }
        let marks = crate::machine::marks(&host);
        Op::Sparse.ask(&host, &node).await.expect("it grows only unmounted");
        Op::Unstage.ask(&host, &node).await.expect("unstage");
        host.forget_effects();
        Op::Grow(LARGE).ask(&host, &node).await.expect("grow");
        let effects = host.effects();
        assert!(effects.iter().any(|effect| effect.contains(".resize")), "{effects:#?}");
        Op::Delete.ask(&host, &node).await.expect("delete");
        assert!(!crate::machine::readable(&host, &marks).await);
    });
}

#[test]
fn a_mount_that_shows_another_device_than_was_meant_is_told() {
    block_on(async {
        let (host, _, _) =
            after(&[Op::Create(EXT4), Op::CreateNeighbour, Op::Stage(EXT4), Op::Unstage]).await;
        type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv())).await;
        let device = host.device_of("vg0", &lv()).expect("it is active");
        // The number that was meant was freed, and the node is that of another volume since.
        let mut meant = match host.path_kind(&device).await {
            Ok(Some(PathKind::Block(number))) => number,
            other => panic!("{other:?}"),
        };
        meant.minor += 1;
        let target = Path::new(STAGING).to_owned();
        host.make_dir(&target).await.expect("a directory");
        let new = NewMount { device, target, kind: "ext4", options: Vec::new() };
        let table = MountTable::read(&host).await.expect("a table");
        let answer = mount::ensure_mounted(&host, &table, &new, meant).await;
        assert!(matches!(answer, Err(MountError::Occupied { .. })), "{answer:?}");
    });
}

/// All extents of the machine with two disks, in MiB.
const ROOM: u64 = 1260;

#[test]
fn a_safety_snapshot_takes_an_eighth_of_its_volume_and_four_extents_at_least() {
    for (from, to, takes) in [(320, 480, 60), (24, 40, 16)] {
        for free in [takes - 4, takes] {
            block_on(async {
                let (host, setup) = Disks::Two.machine(false).await;
                let node = setup.start(&host).await;
                let mut wanted = want(VOLUME, EXT4, from);
                wanted.class.safety = Safety::Required;
                node.ensure(&wanted).await.expect("create");
                let filler = want(NEIGHBOUR, Mode::Block, ROOM - to - free);
                node.ensure(&filler).await.expect("create");
                for op in [Op::Stage(EXT4), Op::Sparse, Op::Unstage] {
                    op.ask(&host, &node).await.expect("what goes before is done");
                }
                let grown = node.grow(&id_of(VOLUME), crate::machine::growth(to)).await;
                let left = grown.expect("the volume grows").node_expansion_required;
                assert_eq!(left, free < takes, "{from} {to} {free}");
                Op::Stage(EXT4).ask(&host, &node).await.expect("stage");
                let health = node.volume_health(&id_of(VOLUME)).await.expect("a look");
                let told = health.first().map(|ailment| ailment.message.clone());
                let words = format!("needs {takes} MiB, and {free} MiB is free");
                assert_eq!(told.is_some_and(|told| told.contains(&words)), left, "{health:?}");
            });
        }
    }
}

/// What was done to what, in order; of a command its first word, of a flush what was flushed.
fn outline(host: &FakeHost) -> Vec<String> {
    let verb = |effect: &String| match effect.split(' ').collect::<Vec<_>>()[..] {
        ["fsync", device, ..] => format!("fsync {}", device.trim_end_matches(char::is_numeric)),
        [program, ..] => program.to_owned(),
        [] => String::new(),
    };
    let mut done: Vec<String> = host.effects().iter().map(verb).collect();
    done.dedup();
    done
}

const DISKS: &str = "fsync /dev/fake";
const DEVICE: &str = "fsync /dev/dm-";

#[test]
fn each_step_of_an_unmounted_resize_is_durable_before_the_next() {
    for (fails, end) in [
        (false, &[DEVICE, "lvremove", DISKS, "lvchange", DISKS][..]),
        (true, &["lvconvert", DISKS]),
    ] {
        block_on(async {
            let before = [Op::Create(EXT4), Op::Stage(EXT4), Op::Sparse, Op::Unstage];
            let (host, _, node) = after(&before).await;
            host.forget_effects();
            if fails {
                host.fail("resize2fs", Failing::Once);
            }
            Op::Grow(LARGE).ask(&host, &node).await.expect("the volume grows");
            let mut done = outline(&host);
            done.retain(|verb| verb != "resize2fs");
            let begin = ["lvextend", "lvchange", DISKS, "lvcreate", DISKS];
            assert_eq!(done, [&begin, end].concat(), "{fails}");
        });
    }
}

#[test]
fn each_step_that_concludes_a_resize_which_was_cut_is_durable_before_the_volume_is_used() {
    for (good, steps) in
        [(true, &[DEVICE, "lvremove", DISKS, "mount"][..]), (false, &["lvconvert", DISKS, "mount"])]
    {
        block_on(async {
            let (host, _, node) = after(&[Op::Create(EXT4), Op::Stage(EXT4), Op::Unstage]).await;
            let take = format!("lvcreate -y -s -l 20 -n {}.resize vg0/{}", lv(), lv());
            type_in(&host, "vg0", &take).await;
            type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv())).await;
            if !good {
                host.fail("e2fsck", Failing::Once);
            }
            host.forget_effects();
            Op::Stage(EXT4).ask(&host, &node).await.expect("stage");
            let mut done = outline(&host);
            done.retain(|verb| steps.contains(&verb.as_str()));
            assert_eq!(done, steps, "{good}");
        });
    }
}

#[test]
fn a_disk_that_wipefs_has_not_looked_at_is_not_taken() {
    block_on(async {
        let (host, setup) = Disks::Blank.machine(false).await;
        host.forget_effects();
        host.fail("wipefs", Failing::Always);
        let node = setup.start(&host).await;
        let health = node.storage_health().await;
        assert!(health[0].ailment.message.contains("`wipefs -n"), "{health:?}");
        assert_eq!(host.effects(), [""; 0]);
    });
}
