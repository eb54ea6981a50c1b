//! Thin pools that someone has filled or set back: nothing that was acknowledged is lost, the driver promises no more, and the
//! commands of the page bring them back.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use pliant::bytes::Bytes;
use pliant::volume::Mode;
use tonic::Code;

use crate::csi::{Rig, fill, group, holds, noise};
use crate::machine::{Disk, attempt, run};

const PAGE: &str = "docs/src/how-to/thin-volumes.md";
const SMALL: Bytes = Bytes::mib(8);
const MIB: usize = 1 << 20;

/// A driver whose pool has these settings of `[pools.thin]`, on `vg0`.
fn driver(thin: &str) -> Rig {
    let config = PathBuf::from("/run/thin.toml");
    let pool = "[[pools]]\nname = \"default\"\nvolume-groups = [\"vg0\"]\n";
    fs::write(&config, format!("{pool}[pools.thin]\n{thin}\n")).expect("config");
    Rig::with(&["--config", &config.to_string_lossy()])
}

/// The commands below a heading of the page, in order, with these words in place of those in capitals.
fn commands(heading: &str, words: &[(&str, &str)]) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/src/how-to/thin-volumes.md");
    let page = fs::read_to_string(page).expect(PAGE);
    let (_, below) = page.split_once(&format!("### {heading}\n")).expect(heading);
    let section = below.split("\n#").next().unwrap_or(below);
    let mut commands: Vec<String> = Vec::new();
    let mut is_code = false;
    for line in section.lines().map(str::trim) {
        match line {
            "```sh" => is_code = true,
            "```" => is_code = false,
            command if is_code => {
                let put = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
                commands.push(words.iter().fold(command.to_owned(), put));
            }
            _ => {}
        }
    }
    commands
}

/// Types a command as a person does.
fn typed(command: &str) -> String {
    run("sh", &["-c", command])
}

/// What the kernel says of the thin pool.
fn kernel() -> String {
    run("dmsetup", &["status", "vg0-pliant--thinpool-tpool"])
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_pool_without_free_data_is_expanded_by_a_person() {
    let disk = Disk::of(512 << 20);
    group("vg0", &[&disk]);
    let mut rig = driver("size = \"256Mi\"\nreserve = \"50%\"\nmax-overcommit-percent = 300");
    let volume =
        rig.calls.create("v", Bytes::mib(192), Mode::Block, "layout=thin").expect("create");
    rig.calls.show(&volume);
    let file = volume.file("");
    let mut written = 0;
    while file.write_all_at(&noise(written, MIB), written << 20).is_ok() && file.sync_all().is_ok()
    {
        written += 1;
    }
    assert!((120..=128).contains(&written), "half of 256 MiB is the reserve: {written} MiB");
    drop(file);
    let refused = rig.calls.create("w", SMALL, Mode::Block, "layout=thin").expect_err("full");
    assert_eq!(refused.code, Code::ResourceExhausted, "{refused}");
    assert!(holds(&volume.file(""), 0..written), "what was acknowledged");

    for command in commands("Its data space is full", &[("VG", "vg0")]) {
        typed(&command);
    }

    fill(&volume.file(""), written..192);
    rig.crash();
    assert!(holds(&volume.file(""), 0..192), "all of it");
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
    let again = rig.calls.create("w", SMALL, Mode::Block, "layout=thin").expect("there is room");
    rig.calls.delete(&again).expect("delete");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn metadata_that_was_filled_without_the_driver_is_expanded_by_it() {
    let disk = Disk::of(512 << 20);
    group("vg0", &[&disk]);
    let mut rig = driver("");
    let volume = rig.calls.create("v", Bytes::mib(64), Mode::Block, "layout=thin").expect("create");
    rig.calls.show(&volume);
    fill(&volume.file(""), 0..32);
    rig.stop();
    // Each has a block of its own, and LVM knows none of them.
    let fill_up = "id=1000; while dmsetup message vg0-pliant--thinpool-tpool 0 \"create_thin $id\"; do id=$((id+1)); done";
    run("sh", &["-c", fill_up]);
    assert!(!kernel().contains(" rw "), "{}", kernel());
    assert!(holds(&volume.file(""), 0..32), "it can be read");

    rig.restart();

    fill(&volume.file(""), 32..64);
    assert!(holds(&volume.file(""), 0..64), "what was acknowledged before and after");
    assert!(kernel().contains(" rw "), "{}", kernel());
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_pool_with_damaged_metadata_is_repaired_by_a_person() {
    let disk = Disk::of(512 << 20);
    group("vg0", &[&disk]);
    let mut rig = driver("");
    let volume = rig.calls.create("v", Bytes::mib(64), Mode::Block, "layout=thin").expect("create");
    rig.calls.show(&volume);
    fill(&volume.file(""), 0..32);
    rig.calls.hide(&volume);
    rig.stop();
    damage_metadata(&disk);
    rig.restart();
    let refused = rig.calls.stage(&volume).expect_err("it cannot be activated");
    assert!(refused.message.contains("`lvconvert --repair`"), "{refused}");
    let refused =
        rig.calls.create("w", SMALL, Mode::Block, "layout=thin").expect_err("nor be used");
    assert!(refused.message.contains("Manual repair required"), "{refused}");

    let commands = commands("Its metadata is damaged", &[("VG", "vg0")]);
    let (last, repairs) = commands.split_last().expect("commands");
    for command in repairs {
        typed(command);
    }

    rig.calls.show(&volume);
    assert!(holds(&volume.file(""), 0..32), "what was acknowledged");
    typed(last);
    fill(&volume.file(""), 32..64);
    rig.calls.hide(&volume);
    let other = rig.calls.create("w", SMALL, Mode::Block, "layout=thin").expect("there is room");
    rig.calls.delete(&other).expect("delete");
    rig.calls.delete(&volume).expect("delete");
}

/// Turns a byte of the map of the data that is in use, which can be computed from the rest. Of the superblock the number of its
/// block is the 64-bit integer at 80 (drivers/md/dm-thin-metadata.c, persistent-data/dm-space-map-common.h).
fn damage_metadata(disk: &Disk) {
    run("vgchange", &["-an", "vg0"]);
    let fields = ["--noheadings", "--nosuffix", "--units", "b"];
    let first = run(
        "lvs",
        &[&fields[..], &["-a", "-o", "seg_pe_ranges", "vg0/pliant-thinpool_tmeta"]].concat(),
    );
    let first = first
        .trim()
        .split([':', '-'])
        .nth(1)
        .and_then(|first| first.parse::<u64>().ok())
        .expect("an extent");
    let start = run("pvs", &[&fields[..], &["-o", "pe_start", disk.device()]].concat());
    let start = start.trim().parse::<u64>().expect("bytes") + first * (4 << 20);
    let device = fs::OpenOptions::new().read(true).write(true).open(disk.device()).expect("disk");
    let mut number = [0; 8];
    device.read_exact_at(&mut number, start + 80).expect("read");
    let at = start + u64::from_le_bytes(number) * 4096 + 100;
    let mut byte = [0];
    device.read_exact_at(&mut byte, at).expect("read");
    device.write_all_at(&[byte[0] ^ 1], at).expect("write");
    device.sync_all().expect("fsync");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_pool_whose_group_was_set_back_is_restored_by_a_person() {
    let disk = Disk::of(512 << 20);
    group("vg0", &[&disk]);
    let mut rig = driver("");
    let volume = rig.calls.create("v", Bytes::mib(32), Mode::Block, "layout=thin").expect("create");
    rig.calls.show(&volume);
    fill(&volume.file(""), 0..32);
    rig.calls.hide(&volume);
    run("vgcfgbackup", &["--file", "/run/old.vg", "vg0"]);
    let others = ["w", "x"]
        .map(|name| rig.calls.create(name, SMALL, Mode::Block, "layout=thin").expect("create"));
    rig.stop();
    run("vgchange", &["-an", "vg0"]);
    run("vgcfgrestore", &["--yes", "--force", "--file", "/run/old.vg", "vg0"]);
    rig.restart();
    let refused = rig.calls.stage(&volume).expect_err("the transaction ids differ");
    assert!(refused.message.contains("transaction_id is 3, while expected 1"), "{refused}");
    assert!(refused.message.contains("`vgcfgrestore`"), "{refused}");

    let listed = typed(&format!("pvck --dump metadata_search {}", disk.device()));
    println!("{listed}");
    let words = [("VG", "vg0"), ("DISK", disk.device()), ("FILE", "/run/found.vg")];
    let commands = commands("The transaction IDs differ", &words);
    let [_, copy, look, restore] = &commands[..] else { panic!("{commands:?}") };
    // The newest first.
    let mut numbers: Vec<u32> = listed
        .split("seqno ")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let found = numbers.iter().rev().find(|number| {
        let copied = attempt("sh", &["-c", &copy.replace("=N", &format!("={number}"))]);
        copied.is_ok() && typed(look).contains("transaction_id = 3")
    });
    assert!(found.is_some(), "none of {numbers:?}");
    typed(restore);

    rig.calls.show(&volume);
    assert!(holds(&volume.file(""), 0..32), "what was acknowledged");
    rig.calls.hide(&volume);
    for volume in others.iter().chain([&volume]) {
        rig.calls.delete(volume).expect("delete");
    }
}
