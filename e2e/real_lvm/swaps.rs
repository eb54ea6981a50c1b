//! Copies of a volume that are not to be used, and the proof that nobody uses one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pliant::volume::{
    Fence, FsKind, Inspection, Mode, Reason, Standing, VolumeError, VolumeKey, Volumes,
};

use crate::machine::{Disk, run, sha256};
use crate::promises::{GROUP, Machine, id};
use crate::script::{Part, Step};

const VOLUME: &str = "db";
const FILE: &str = "rows";

const fn fence(generation: i64, standing: Standing) -> Fence {
    Fence { generation, standing, copying: false }
}

async fn look(machine: &Machine) -> Inspection {
    machine.node.inspect(&id(VOLUME)).await.expect("a look").expect("it is there")
}

/// The checksum of an unused volume's bytes, read past the driver.
fn bytes_at_rest() -> String {
    let lv = format!("{GROUP}/pliant-{}", VolumeKey::of(VOLUME).as_str());
    run("lvchange", &["-ay", &lv]);
    let sum = sha256(&PathBuf::from(format!("/dev/{lv}")));
    run("lvchange", &["-an", &lv]);
    sum
}

async fn leads_a_fenced_volume(kind: FsKind) {
    let dir = PathBuf::from(format!("/tmp/swap-{kind}"));
    let machine = Machine::start(&dir).await;
    let file = dir.join("staging").join(VOLUME).join(FILE);
    let take = async |step| machine.take(step).await.unwrap_or_else(|words| panic!("{words}"));
    take(Step::Create(VOLUME, Mode::Filesystem(kind), 320)).await;
    take(Step::Stage(VOLUME)).await;
    take(Step::Write(VOLUME, Part::File(FILE, 1024))).await;
    let written = sha256(&file);

    let used = look(&machine).await;
    assert!(used.open_count > 0 && used.status.published, "{used:?}");
    let usage = used.usage.expect("it is mounted");
    assert!(usage.used.get() >= 1 << 20 && usage.total > usage.used, "{usage:?}");
    let device = machine.device(VOLUME).await.expect("it is active");
    let open = File::open(&device).expect("a process opens it");
    assert!(look(&machine).await.open_count > used.open_count, "beside its mount");
    drop(open);

    machine.node.fence(&id(VOLUME), fence(3, Standing::Superseded)).await.expect("while in use");
    assert_eq!(sha256(&file), written, "who uses it is not disturbed");
    take(Step::Unstage(VOLUME)).await;
    let unused = look(&machine).await;
    let seen = (unused.open_count, unused.status.published, unused.usage, unused.status.fence);
    assert_eq!(seen, (0, false, None, fence(3, Standing::Superseded)));

    let before = bytes_at_rest();
    let machine = Machine::start(&dir).await; // It stands on the disk, not in a memory.
    let said = machine.take(Step::Stage(VOLUME)).await.expect_err("it is superseded");
    assert!(said.contains("is superseded") && said.contains("generation 3"), "{said}");
    let late = machine.node.fence(&id(VOLUME), fence(2, Standing::Active)).await;
    assert_eq!(
        late.as_ref().map_err(VolumeError::reason),
        Err(Reason::PreconditionFailed),
        "{late:?}"
    );
    assert_eq!(look(&machine).await.open_count, 0);
    assert_eq!(bytes_at_rest(), before, "a refusal touches nothing");

    machine.node.fence(&id(VOLUME), fence(4, Standing::Active)).await.expect("it is let in");
    machine.take(Step::Stage(VOLUME)).await.unwrap_or_else(|words| panic!("{words}"));
    assert_eq!(sha256(&file), written);
    machine.take(Step::Unstage(VOLUME)).await.unwrap_or_else(|words| panic!("{words}"));
    machine.take(Step::Delete(VOLUME)).await.unwrap_or_else(|words| panic!("{words}"));
    assert_eq!(machine.node.inspect(&id(VOLUME)).await.expect("a look"), None);
}

/// A copy reads what is superseded through a mount that refuses writes.
async fn reads_a_superseded_volume() {
    let dir = Path::new("/tmp/swap-copy");
    let machine = Machine::start(dir).await;
    let take = async |step| machine.take(step).await.unwrap_or_else(|words| panic!("{words}"));
    take(Step::Create(VOLUME, Mode::Filesystem(FsKind::Ext4), 64)).await;
    take(Step::Stage(VOLUME)).await;
    take(Step::Write(VOLUME, Part::File(FILE, 64))).await;
    take(Step::Unstage(VOLUME)).await;
    let copying = Fence { copying: true, ..fence(1, Standing::Superseded) };
    machine.node.fence(&id(VOLUME), copying).await.expect("it is copied from");
    take(Step::Stage(VOLUME)).await;
    let file = dir.join("staging").join(VOLUME).join(FILE);
    assert_eq!(fs::read(&file).expect("read").len(), 64 << 10);
    let refused = File::create(&file).expect_err("it is read-only");
    assert_eq!(refused.raw_os_error(), Some(nix::libc::EROFS));
    take(Step::Unstage(VOLUME)).await;
    take(Step::Delete(VOLUME)).await;
}

fn in_a_group(work: impl Future<Output = ()>) {
    let disk = Disk::of(1 << 30);
    run("vgcreate", &["--metadatasize", "16m", GROUP, disk.device()]);
    tokio::runtime::Runtime::new().expect("runtime").block_on(work);
    run("vgremove", &["-y", GROUP]);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_fenced_volume_is_refused_and_its_bytes_are_there_when_it_is_let_in() {
    in_a_group(async {
        for kind in [FsKind::Ext4, FsKind::Xfs] {
            leads_a_fenced_volume(kind).await;
        }
    });
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_superseded_volume_is_read_by_a_copy_and_written_by_nobody() {
    in_a_group(reads_a_superseded_volume());
}
