//! What keeps a byte where it belongs: between two calls somebody else acts, a wipe takes long, an
//! administrator's word goes further than it was meant.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pliant::bytes::Bytes;
use pliant::host::{Cmd, Host};
use pliant::node::lv_tags::lv_name;
use pliant::node::{GroupSource, NewDisk, Node, PoolPlan};
use pliant::testing::{Failing, FakeHost};
use pliant::volume::{FsKind, Mode, NodeVolumes, VolumeError, VolumeKey, Volumes};

use crate::cuts::block_on;
use crate::machine::{
    Disks, LARGE, Op, Setup, VOLUME, id_of, marks, readable, settings, type_in, until_wiped, want,
    wrongs,
};

const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

fn lv() -> String {
    lv_name(&VolumeKey::of(VOLUME))
}

/// Ask until the work that was joined has ended.
async fn to_the_end(op: Op, host: &FakeHost, node: &Node) -> Result<String, String> {
    loop {
        match op.ask(host, node).await {
            Err(said) if said.starts_with("InProgress") => tokio::task::yield_now().await,
            said => return said,
        }
    }
}

/// A driver that soon tells its callers to ask again, and a volume that was written to.
struct Impatient {
    host: FakeHost,
    setup: Setup,
    node: Arc<Node>,
}

impl Impatient {
    async fn with_a_volume() -> Impatient {
        let (host, mut setup) = Disks::Two.machine(false).await;
        setup.settings.wipe_patience = Duration::from_millis(1);
        let node = setup.start(&host).await;
        for op in [Op::Create(Mode::Block), Op::Stage(Mode::Block), Op::Write] {
            to_the_end(op, &host, &node).await.expect("what goes before is done");
        }
        Impatient { host, setup, node }
    }

    /// Ask for something, and hold its wipe after the first piece.
    async fn ask_and_hold_its_wipe(&self, op: Op) {
        let rehearsal = self.host.after_crash();
        let node = self.setup.start(&rehearsal).await;
        rehearsal.forget_effects();
        to_the_end(op, &rehearsal, &node).await.expect("it can be done");
        let effects = rehearsal.effects();
        let zeroing = effects.iter().position(|effect| effect.starts_with("BLKZEROOUT"));
        self.host.forget_effects();
        self.host.hold_after(1 + zeroing.expect("it wipes"));
        let said = op.ask(&self.host, &self.node).await.expect_err("it takes long");
        assert!(said.starts_with("InProgress"), "{said}");
        self.host.held().await;
    }

    async fn let_the_wipe_end(&self) {
        let before = self.node.wiped();
        self.host.let_go();
        while self.node.wiped() == before {
            tokio::task::yield_now().await;
        }
    }

    fn holds(&self, lv: &str) -> bool {
        self.host.group("vg0").expect("a group").lvs.contains_key(lv)
    }

    async fn to_the_end(&self, op: Op) {
        to_the_end(op, &self.host, &self.node).await.expect("it is done");
    }
}

#[test]
fn a_volume_is_wiped_at_its_end_whatever_was_wiped_for_it_before() {
    for growth_ends_first in [true, false] {
        block_on(async {
            let it = Impatient::with_a_volume().await;
            let marks = marks(&it.host);
            it.ask_and_hold_its_wipe(Op::Grow(LARGE)).await;
            if growth_ends_first {
                it.let_the_wipe_end().await;
            } else {
                let said = Op::Delete.ask(&it.host, &it.node).await.expect_err("it is held");
                assert!(said.starts_with("InProgress"), "{said}");
                assert!(
                    it.holds(&format!("{}.extend", lv())),
                    "what is being wiped is not removed"
                );
                it.host.let_go();
            }
            it.to_the_end(Op::Delete).await;
            assert!(!readable(&it.host, &marks).await, "{growth_ends_first}");
            assert!(!it.holds(&lv()) && !it.holds(&format!("{}.extend", lv())));
        });
    }
}

#[test]
fn a_new_volume_is_wiped_although_one_of_its_name_was_before() {
    block_on(async {
        let it = Impatient::with_a_volume().await;
        let places = marks(&it.host);
        it.ask_and_hold_its_wipe(Op::Delete).await;
        it.let_the_wipe_end().await;
        type_in(&it.host, "vg0", &format!("lvremove -y -f vg0/{}", lv())).await;
        for (disk, at) in &places {
            it.host.write_at(disk, *at, b"what somebody else wrote there");
        }
        it.to_the_end(Op::Create(Mode::Block)).await;
        it.to_the_end(Op::Stage(Mode::Block)).await;
        for (disk, at) in &places {
            assert_eq!(it.host.read_at(disk, *at, 8).await.expect("read"), [0; 8]);
        }
    });
}

#[test]
fn what_joins_a_volume_is_what_was_wiped_for_it() {
    block_on(async {
        let it = Impatient::with_a_volume().await;
        let make = "lvcreate -y -Wn -Zn --setautoactivation n -ay -l 4 -n theirs vg0";
        type_in(&it.host, "vg0", make).await;
        it.ask_and_hold_its_wipe(Op::Grow(LARGE)).await;
        // LVM would take these first: they lie right behind the volume.
        type_in(&it.host, "vg0", "lvremove -y -f vg0/theirs").await;
        it.let_the_wipe_end().await;
        it.to_the_end(Op::Grow(LARGE)).await;
        assert_eq!(wrongs(&it.host, true).await, [""; 0]);
    });
}

#[test]
fn a_device_that_is_wiped_becomes_no_other_meanwhile() {
    block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(8));
        host.add_group("vg0", &[disk]);
        let groups = vec![GroupSource::Existing("vg0".to_owned())];
        let plan = PoolPlan::new("fast".parse().expect("a name"), groups);
        let setup = Setup { settings: settings(), plans: vec![plan] };
        let node = setup.start(&host).await;
        let zeroings =
            || host.effects().iter().filter(|effect| effect.starts_with("BLKZEROOUT")).count();
        let wanted = want(VOLUME, Mode::Block, 3 << 10);
        let rehearsal = host.after_crash();
        let rehearsing = setup.start(&rehearsal).await;
        rehearsal.forget_effects();
        rehearsing.ensure(&wanted).await.expect("create");
        until_wiped(&rehearsing).await;
        let effects = rehearsal.effects();
        let first = effects.iter().position(|effect| effect.starts_with("BLKZEROOUT"));
        host.hold_after(1 + first.expect("it is wiped"));
        node.ensure(&wanted).await.expect("it is wiped behind the answer");
        host.held().await;
        assert_eq!(zeroings(), 1);
        for line in ["lvremove -y -f", "lvchange -y -an"] {
            let (program, options) = line.split_once(' ').expect("a command");
            let place = format!("vg0/{}", lv());
            let cmd = Cmd::new(program).args(options.split(' ')).arg(place);
            let said = host.lvm("vg0", cmd).await.expect("it ran");
            assert!(said.contains("in use"), "another would get its number: {said}");
        }
        host.let_go();
        until_wiped(&node).await;
        assert_eq!(zeroings(), 3);
    });
}

#[test]
fn a_device_that_is_mounted_or_shown_becomes_no_other_meanwhile() {
    block_on(async {
        let staged = [Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage];
        let shown = [Op::Create(Mode::Block), Op::Stage(Mode::Block)];
        for (before, op, call) in [
            (&staged[..], Op::Stage(EXT4), "mount "),
            (&shown[..], Op::Publish(Mode::Block), "bind "),
        ] {
            let (host, setup) = Disks::Two.machine(false).await;
            let node = setup.start(&host).await;
            for op in before {
                op.ask(&host, &node).await.expect("what goes before is done");
            }
            let rehearsal = host.after_crash();
            let other = setup.start(&rehearsal).await;
            rehearsal.forget_effects();
            op.ask(&rehearsal, &other).await.expect("it can be done");
            let effects = rehearsal.effects();
            let mounting = effects.iter().position(|effect| effect.starts_with(call));
            host.forget_effects();
            // The path is made, and nothing is mounted there yet.
            host.hold_after(mounting.unwrap_or_else(|| panic!("{call}: {effects:?}")));
            let (done, ()) = tokio::join!(op.ask(&host, &node), async {
                host.held().await;
                let place = format!("vg0/{}", lv());
                let cmd = Cmd::new("lvchange").args(["-y", "-an", &place]);
                let said = host.lvm("vg0", cmd).await.expect("it ran");
                assert!(said.contains("in use"), "{call}: another would get its number: {said}");
                host.let_go();
            });
            done.expect("it is done");
        }
    });
}

#[test]
fn a_logical_volume_that_lost_its_tags_is_not_taken_for_a_new_one() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage] {
            op.ask(&host, &node).await.expect("what goes before is done");
        }
        let marks = marks(&host);
        let tags = host.group("vg0").expect("a group").lvs[&lv()].tags.clone();
        let gone: Vec<String> = tags.iter().map(|tag| format!("--deltag {tag}")).collect();
        type_in(&host, "vg0", &format!("lvchange -y {} vg0/{}", gone.join(" "), lv())).await;
        let said = Op::Create(EXT4).ask(&host, &node).await.expect_err("it is there");
        assert!(said.contains("already exists"), "{said}");
        assert!(readable(&host, &marks).await);
    });
}

#[test]
fn a_volume_of_which_others_have_a_snapshot_is_not_removed() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage] {
            op.ask(&host, &node).await.expect("what goes before is done");
        }
        type_in(&host, "vg0", &format!("lvcreate -y -s -l 20 -n backup vg0/{}", lv())).await;
        let error = node.remove(&id_of(VOLUME)).await.expect_err("a snapshot needs it");
        assert!(matches!(error, VolumeError::InUse { .. }), "{error:?}");
        assert!(error.to_string().contains("vg0/backup"), "{error}");
        assert_eq!(wrongs(&host, true).await, [""; 0]);

        type_in(&host, "vg0", "lvremove -y -f vg0/backup").await;
        node.remove(&id_of(VOLUME)).await.expect("nobody needs it");
    });
}

/// A pool on a disk that its administrator gave away whatever is on it, with a volume on it since.
async fn given_away() -> (FakeHost, Setup, PathBuf) {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::gib(1));
    let groups = vec![GroupSource::Create(NewDisk { path: disk.clone(), wipe: true })];
    let plan = PoolPlan::new("fast".parse().expect("a name"), groups);
    let setup = Setup { settings: settings(), plans: vec![plan] };
    let node = setup.start(&host).await;
    for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage] {
        op.ask(&host, &node).await.expect("what goes before is done");
    }
    (host, setup, disk)
}

async fn turn(host: &FakeHost, disk: &Path, at: u64) {
    let byte = host.read_at(disk, at, 1).await.expect("read");
    host.write_at(disk, at, &[!byte[0]]);
}

#[test]
fn a_disk_that_was_given_away_once_keeps_its_volumes_when_it_is_damaged() {
    // A byte of the label, of the metadata area's header, and of its text.
    for at in [512 + 40, 4096 + 8, 4096 + 512 + 100] {
        block_on(async {
            let (host, setup, disk) = given_away().await;
            let healthy = host.after_crash();
            let text = match at {
                4708 => text_at(&host, &disk).await + 100,
                at => at,
            };
            turn(&host, &disk, text).await;
            let node = setup.start(&host).await;
            let health = node.storage_health().await;
            let trouble = &health.first().expect("it is damaged").ailment.message;
            assert!(trouble.contains("nothing was changed"), "{trouble}");
            Op::Create(EXT4).ask(&host, &node).await.expect_err("there is no group");
            turn(&host, &disk, text).await;
            assert_eq!(host.state().groups, healthy.state().groups);
            setup.start(&host).await;
            assert_eq!(wrongs(&host, true).await, [""; 0], "{at}");
        });
    }
}

/// Where the committed text of a disk's metadata begins.
async fn text_at(host: &FakeHost, disk: &Path) -> u64 {
    let sector = host.read_at(disk, 4096, 512).await.expect("read");
    let header = pliant::lvm::metadata::parse_area(&sector, 4096).expect("a header");
    header.text_ranges()[0].start
}

#[test]
fn a_commit_that_is_seen_half_way_is_not_undone_while_the_group_is_in_use() {
    block_on(async {
        let (host, setup, disk) = given_away().await;
        let node = setup.start(&host).await;
        let at = text_at(&host, &disk).await;
        let text = host.read_at(&disk, at, 512).await.expect("read");
        host.write_at(&disk, at, &[0; 512]);
        host.forget_effects();
        node.set_pools(setup.plans.clone()).await.expect("disks are listed");
        assert_eq!(host.effects(), [""; 0]);
        host.write_at(&disk, at, &text);
        node.find(&id_of(VOLUME)).await.expect("a look").expect("it is there");
    });
}

#[test]
fn a_disk_whose_own_metadata_is_damaged_stays_in_its_group() {
    block_on(async {
        let (host, mut setup) = Disks::Two.machine(false).await;
        let disk = PathBuf::from("/dev/fake1");
        setup.plans[0].standby_disks = vec![NewDisk { path: disk.clone(), wipe: true }];
        turn(&host, &disk, 4096 + 8).await;
        let node = setup.start(&host).await;
        let error = node.ensure(&want(VOLUME, Mode::Block, 2000)).await.expect_err("no room");
        assert!(matches!(error, VolumeError::InsufficientCapacity { .. }), "{error:?}");
    });
}

#[test]
fn a_volume_that_a_process_has_open_is_not_removed_although_a_resize_was_cut() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage] {
            op.ask(&host, &node).await.expect("what goes before is done");
        }
        type_in(&host, "vg0", &format!("lvcreate -y -s -l 20 -n {}.resize vg0/{}", lv(), lv()))
            .await;
        type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv())).await;
        host.open(&host.device_of("vg0", &lv()).expect("it is active"));
        let error = node.remove(&id_of(VOLUME)).await.expect_err("a process has it open");
        assert!(matches!(error, VolumeError::InUse { .. }), "{error:?}");
        assert_eq!(wrongs(&host, true).await, [""; 0]);
    });
}

#[test]
fn nothing_is_rolled_back_under_a_program_that_has_the_volume_open() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        for op in [Op::Create(EXT4), Op::Stage(EXT4), Op::Write, Op::Unstage] {
            op.ask(&host, &node).await.expect("what goes before is done");
        }
        type_in(&host, "vg0", &format!("lvcreate -y -s -l 20 -n {}.resize vg0/{}", lv(), lv()))
            .await;
        type_in(&host, "vg0", &format!("lvchange -y -ay vg0/{}", lv())).await;
        let device = host.device_of("vg0", &lv()).expect("it is active");
        host.open(&device);
        host.fail("e2fsck", Failing::Once);
        let said = Op::Stage(EXT4).ask(&host, &node).await.expect_err("it is still checked");
        assert!(said.starts_with("InUse"), "{said}");

        host.close(&device);
        Op::Stage(EXT4).ask(&host, &node).await.expect("it is concluded");
        assert_eq!(wrongs(&host, true).await, [""; 0]);
    });
}

#[test]
fn what_came_to_its_end_after_it_was_given_up_is_flushed_before_the_next_answer() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        Op::Create(EXT4).ask(&host, &node).await.expect("create");
        let disk = Path::new("/dev/fake0");
        host.hang_disk(disk);
        let said = Op::Grow(LARGE).ask(&host, &node).await.expect_err("the command does not end");
        assert!(said.starts_with("Unavailable"), "{said}");
        host.heal_disk(disk);
        host.forget_effects();
        // Which has that size: the command may have made it so, long after a flush for others.
        while Op::Create(EXT4).ask(&host, &node).await.is_err() {
            tokio::task::yield_now().await;
        }
        let flushed = |effect: &String| effect.starts_with("fsync /dev/fake");
        assert!(host.effects().iter().any(flushed), "{:#?}", host.effects());
    });
}
