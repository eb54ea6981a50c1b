//! The copies of its superblock that xfs keeps for a repair.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use pliant::bytes::Bytes;
use pliant::volume::{FsKind, Mode};

use crate::csi::{Rig, device_of, group};
use crate::machine::{Disk, attempt, run};

/// Where the second allocation group of an xfs of 300 MiB begins.
const SECOND_SUPERBLOCK: u64 = 75 << 20;

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn copies_of_a_superblock_that_missed_a_growth_are_written_again() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let volume = rig
        .calls
        .create("cut", Bytes::mib(300), Mode::Filesystem(FsKind::Xfs), "")
        .expect("create");
    let lv = volume.lv("vg0");
    rig.calls.show(&volume);
    let copy = second_superblock(&device_of(&lv));
    rig.calls.grow(&volume, Bytes::mib(364)).expect("grow");
    rig.calls.hide(&volume);
    for staged in [false, true] {
        // As a power cut leaves it that comes after the growth and before the copies.
        run("lvchange", &["-ay", &lv]);
        let device = device_of(&lv);
        let file = OpenOptions::new().write(true).open(&device).expect("the device");
        file.write_all_at(&copy, SECOND_SUPERBLOCK).expect("write");
        file.sync_all().expect("sync");
        drop(file);
        assert!(attempt("xfs_repair", &["-n", &device.to_string_lossy()]).is_err());
        if staged {
            rig.calls.show(&volume);
            rig.calls.hide(&volume);
        } else {
            let grown = rig.calls.grow(&volume, Bytes::mib(364)).expect("grow");
            assert_eq!(grown, (Bytes::mib(364), false));
        }
        run("lvchange", &["-ay", &lv]);
        run("xfs_repair", &["-n", &device_of(&lv).to_string_lossy()]);
        run("lvchange", &["-an", &lv]);
    }
    rig.calls.delete(&volume).expect("delete");
}

fn second_superblock(device: &Path) -> Vec<u8> {
    let mut copy = vec![0; 4096];
    let file = File::open(device).expect("the device");
    file.read_exact_at(&mut copy, SECOND_SUPERBLOCK).expect("read");
    assert!(copy.starts_with(b"XFSB"));
    copy
}
