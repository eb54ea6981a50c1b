//! A commit of which only the header has reached the disk: LVM itself then sees no group any more.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pliant::volume::{FsKind, Mode, Page, Volumes};
use tokio::runtime::Runtime;

use crate::machine::{Disk, attempt, run};
use crate::power_cuts_of_the_driver::power_off;
use crate::promises::{GROUP, Machine};
use crate::script::Step;

// Nothing goes on behind the making of these.
const EXT4: Mode = Mode::Filesystem(FsKind::Ext4);

/// Label, header and the texts of a small group.
const HEAD: usize = 1 << 20;
const HEADER: usize = 4096;
const SECTOR: usize = 512;

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_torn_commit_is_undone_at_the_start() {
    let (disk, before, after) = two_commits();
    let header = HEADER..HEADER + SECTOR;
    let mut torn = before;
    torn[header.clone()].copy_from_slice(&after[header]);
    write(&disk, &torn).expect("head");
    assert!(attempt("vgs", &[GROUP]).is_err(), "LVM itself sees no group");

    assert_eq!(names(1), ["one"]);
    assert!(run("vgs", &["--noheadings", "-o", "lv_count", GROUP]).trim() == "1");
    assert_eq!(names(2), ["one"], "and so it stays");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_text_that_has_gone_bad_is_left_to_a_person() {
    let (disk, before, mut after) = two_commits();
    let changed = (HEADER + SECTOR..HEAD).rfind(|at| before[*at] != after[*at]);
    after[changed.expect("a new text") - 30] ^= 1;
    write(&disk, &after).expect("head");

    let runtime = Runtime::new().expect("runtime");
    let listed = runtime.block_on(async {
        let machine = Machine::start(Path::new("/tmp/torn-3")).await;
        machine.node.list(&Page::default()).await
    });
    runtime.shutdown_background();

    assert!(listed.is_err(), "{listed:?}");
    assert_eq!(read(&disk).expect("head"), after, "nothing was written");
}

/// A disk after the volumes `one` and `two` were made, and its head after each.
fn two_commits() -> (Disk, Vec<u8>, Vec<u8>) {
    let disk = Disk::of(256 << 20);
    run("vgcreate", &["--metadatasize", "16m", GROUP, disk.device()]);
    let runtime = Runtime::new().expect("runtime");
    let (before, after, host) = runtime.block_on(async {
        let machine = Machine::start(Path::new("/tmp/torn-0")).await;
        machine.take(Step::Create("one", EXT4, 40)).await.expect("one");
        let before = read(&disk).expect("head");
        machine.take(Step::Create("two", EXT4, 40)).await.expect("two");
        let after = read(&disk).expect("head");
        (before, after, machine.host)
    });
    power_off(runtime, host.as_ref());
    (disk, before, after)
}

/// The names of the volumes that a driver finds when it starts.
fn names(start: u32) -> Vec<String> {
    let runtime = Runtime::new().expect("runtime");
    let listed = runtime.block_on(async {
        let machine = Machine::start(Path::new(&format!("/tmp/torn-{start}"))).await;
        machine.node.list(&Page::default()).await.expect("list").volumes
    });
    runtime.shutdown_background();
    listed.into_iter().map(|one| one.volume.name).collect()
}

fn read(disk: &Disk) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    File::open(disk.file())?.read_exact_at(&mut head, 0)?;
    Ok(head)
}

fn write(disk: &Disk, head: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(disk.file())?.write_all_at(head, 0)
}
