//! What mkfs, e2fsck and resize2fs work on: they are given a path, and the path has to lead to the same device
//! until the last of them has ended, whoever waits for it.

use std::path::PathBuf;
use std::sync::Arc;

use pliant::host::{Cmd, Host};
use pliant::node::Node;
use pliant::node::lv_tags::lv_name;
use pliant::testing::FakeHost;
use pliant::volume::{FsKind, Mode};

use crate::cuts::block_on;
use crate::machine::{Disks, LARGE, LESS, Op, Setup, VOLUME, id_of, type_in, wrongs};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

/// What goes before a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The calls alone.
    Calls,
    /// The kernel has found errors in the file system.
    Errors,
    /// A resize was cut short: its safety snapshot is there.
    CutResize,
}

/// A program, and what makes the driver run it.
#[derive(Debug)]
struct Run {
    program: &'static str,
    ops: Vec<Op>,
    before: Before,
    op: Op,
}

/// A run of each program that the driver gives the path of a volume's device.
fn runs() -> Vec<Run> {
    let kinds =
        [("mkfs.ext4", FsKind::Ext4), ("mkfs.xfs", FsKind::Xfs), ("mkfs.btrfs", FsKind::Btrfs)];
    let makes = kinds.map(|(program, kind)| {
        let mode = Mode::Filesystem(kind);
        let (ops, op) = (vec![Op::Create(mode)], Op::Stage(mode));
        Run { program, ops, before: Before::Calls, op }
    });
    let used = [Op::Create(EXT4), Op::Stage(EXT4), Op::Write];
    let unused = [&used[..], &[Op::Unstage]].concat();
    let sparse = [&used[..], &[Op::Sparse, Op::Unstage]].concat();
    let run =
        |program, ops: &Vec<Op>, op| Run { program, ops: ops.clone(), before: Before::Calls, op };
    let others = [
        Run { before: Before::Errors, ..run("e2fsck -f -p", &unused, Op::Stage(EXT4)) },
        Run { before: Before::CutResize, ..run("e2fsck -f -p", &unused, Op::Stage(EXT4)) },
        run("e2fsck -f -p", &unused, Op::Grow(LARGE)),
        run("e2fsck -f -n", &unused, Op::Grow(LARGE)),
        run("resize2fs", &sparse, Op::Grow(LARGE)),
        run("resize2fs", &unused, Op::Shrink(LESS)),
    ];
    makes.into_iter().chain(others).collect()
}

/// The device of the volume, which is active.
fn device(host: &FakeHost) -> PathBuf {
    host.device_of("vg0", &lv_name(id_of(VOLUME).key())).expect("it is active")
}

impl Run {
    /// The call that uses the volume.
    fn stage(&self) -> Op {
        if let Op::Stage(_) = self.op { self.op } else { Op::Stage(EXT4) }
    }

    async fn machine(&self) -> (FakeHost, Setup, Arc<Node>) {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in &self.ops {
            op.ask(&host, &node).await.expect("what goes before is done");
        }
        let lv = lv_name(id_of(VOLUME).key());
        match self.before {
            Before::Calls => {}
            Before::Errors => {
                const STATE: u64 = 1024 + 0x3a;
                type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{lv}")).await;
                let state = host.read_at(&device(&host), STATE, 1).await.expect("read")[0];
                host.write_at(&device(&host), STATE, &[state | 2]);
            }
            Before::CutResize => {
                let make = format!("lvcreate -y -s -l 20 -n {lv}.resize vg0/{lv}");
                type_in(&host, "vg0", &make).await;
            }
        }
        (host, setup, node)
    }
}

/// Do what a person may do at any time, and what would give the number of the device to another one.
async fn keeps_its_number(host: &FakeHost, run: &Run) {
    let place = format!("vg0/{}", lv_name(id_of(VOLUME).key()));
    let cmd = Cmd::new("lvchange").args(["-y", "-an", &place]);
    let said = host.lvm("vg0", cmd).await.expect("it ran");
    assert!(said.contains("in use"), "{run:?}: another would get its number: {said}");
}

#[test]
fn a_device_that_a_program_works_on_becomes_no_other_meanwhile() {
    for run in runs() {
        block_on(async {
            let (host, _, node) = run.machine().await;
            host.hold_call(run.program);
            let (done, ()) = tokio::join!(run.op.ask(&host, &node), async {
                host.held().await;
                keeps_its_number(&host, &run).await;
                host.let_go();
            });
            done.unwrap_or_else(|error| panic!("{run:?}: {error}"));
        });
    }
}

#[test]
fn a_device_that_was_replaced_between_the_look_and_the_open_is_not_worked_on() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        Op::Create(EXT4).ask(&host, &node).await.expect("create");
        let lv = lv_name(id_of(VOLUME).key());
        type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{lv}")).await;
        let path = device(&host);
        host.forget_effects();
        host.hold_call(&format!("open {}", path.display()));
        let (staged, ()) = tokio::join!(Op::Stage(EXT4).ask(&host, &node), async {
            host.held().await;
            type_in(&host, "vg0", &format!("lvchange -y -an vg0/{lv}")).await;
            type_in(
                &host,
                "vg0",
                "lvcreate -y -Wn -Zn --setautoactivation n -ay -l 4 -n theirs vg0",
            )
            .await;
            assert_eq!(host.device_of("vg0", "theirs"), Some(path.clone()), "it has the number");
            host.let_go();
        });
        let said = staged.expect_err("its device is gone");
        assert!(said.contains("was removed meanwhile"), "{said}");
        let effects = host.effects();
        let writes =
            |effect: &&String| effect.starts_with("BLKZEROOUT") || effect.starts_with("mkfs");
        assert_eq!(effects.iter().find(writes), None);
        Op::Stage(EXT4).ask(&host, &node).await.expect("it is made active again");
    });
}

/// Nobody ends a program that takes longer than it may, or whose driver dies.
#[test]
fn a_program_that_goes_on_when_nobody_waits_any_more_has_the_volume_to_itself() {
    for run in runs() {
        block_on(async {
            let (host, setup, node) = run.machine().await;
            host.outlive(run.program);
            // A growth whose file system does not grow is one for the node's step to end.
            let said = run.op.ask(&host, &node).await;
            assert!(said.is_err() || run.op == Op::Grow(LARGE), "{run:?}: {said:?}");
            host.mend();
            let crashed = host.after_crash();
            let next = setup.start(&crashed).await;
            for (host, node) in [(&host, &node), (&crashed, &next)] {
                let path = device(host);
                keeps_its_number(host, &run).await;
                host.forget_effects();
                for op in [run.stage(), Op::Delete] {
                    let said = op.ask(host, node).await.expect_err("it still runs");
                    assert!(said.starts_with("InUse"), "{run:?}: {op:?}: {said}");
                }
                let effects = host.effects();
                let is_at_it = |effect: &&String| {
                    let calls = ["mkfs", "resize2fs", "BLKZEROOUT", "mount "];
                    calls.iter().any(|call| effect.starts_with(call))
                };
                assert_eq!(effects.iter().find(is_at_it), None, "{run:?}");

                host.close(&path);
                let staged = run.stage().ask(host, node).await;
                staged.unwrap_or_else(|error| panic!("{run:?}: {error}"));
                let is_written = run.ops.contains(&Op::Write);
                assert_eq!(wrongs(host, is_written).await, [""; 0], "{run:?}");
            }
        });
    }
}
