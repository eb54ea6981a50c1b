//! A thousand volumes in one group.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use pliant::bytes::Bytes;
use pliant::volume::Mode;

use crate::csi::{EXT4, Rig, fill, group, holds};
use crate::machine::{Disk, figure, run};

const VOLUMES: usize = 1000;

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_thousand_volumes_are_listed_and_found_again() {
    let disk = Disk::of(5 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let used = rig.calls.create("used", Bytes::mib(64), EXT4, "").expect("create");
    rig.calls.show(&used);
    fill(&used.file("content"), 0..4);
    let model = rig.calls.create("model", Bytes::mib(4), Mode::Block, "").expect("create");
    copies_of(&model.lv("vg0"), &model.id, VOLUMES - 2);

    let begin = Instant::now();
    let ids = rig.calls.ids();
    let first_list = begin.elapsed();
    let begin = Instant::now();
    let again = rig.calls.ids();
    let list = begin.elapsed();
    assert_eq!(ids.len(), VOLUMES);
    assert_eq!(again, ids);
    rig.crash();
    let begin = Instant::now();
    rig.crash();
    let restart = begin.elapsed();
    assert_eq!(rig.calls.ids(), ids);
    rig.calls.stats(&used).expect("stats");

    let begin = Instant::now();
    let one_more = rig.calls.create("one-more", Bytes::mib(4), Mode::Block, "").expect("create");
    let create = begin.elapsed();
    rig.calls.delete(&one_more).expect("delete");
    assert!(holds(&used.file("content"), 0..4));
    figure("first_list_ms_1000_volumes", first_list.as_secs_f64() * 1e3);
    figure("list_ms_1000_volumes", list.as_secs_f64() * 1e3);
    figure("create_ms_1000_volumes", create.as_secs_f64() * 1e3);
    figure("restart_ms_1000_volumes", restart.as_secs_f64() * 1e3);
    figure("rss_mib_1000_volumes_debug", resident_mib(&rig));
    rig.calls.hide(&used);
    rig.stop();
    drop(rig);
    run("vgremove", &["-y", "-f", "vg0"]);
}

/// Makes more logical volumes with the tags of this one, each with an id and a name of its own, by
/// one plain `lvm` process.
fn copies_of(lv: &str, id: &str, count: usize) {
    let tags = run("lvs", &["--noheadings", "-o", "lv_tags", lv]);
    let tags: Vec<&str> = tags.trim().split(',').collect();
    let (name, key) = ("model", &id[id.len() - 26..]);
    let mut shell = Command::new("lvm")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null()) // A warning for each, since they are not zeroed.
        .spawn()
        .expect("lvm");
    let mut input = shell.stdin.take().expect("its input");
    for number in 0..count {
        let copy =
            |text: &str| text.replace(key, &key_of(number)).replace(name, &format!("m{number}"));
        let tags: String =
            tags.iter().fold(String::new(), |all, tag| all + " --addtag " + &copy(tag));
        let group = lv.split('/').next().expect("a group");
        writeln!(input, "lvcreate -y -an -Zn -Wn -l 1 -n pliant-{} {tags} {group}", key_of(number))
            .expect("write");
    }
    drop(input);
    assert!(shell.wait().expect("wait").success());
}

/// The key that the driver would give to the volume of this name.
fn key_of(number: usize) -> String {
    pliant::volume::VolumeKey::of(&format!("m{number}")).as_str().to_owned()
}

/// What the driver itself keeps in memory.
fn resident_mib(rig: &Rig) -> f64 {
    let pid = rig.driver.as_ref().expect("a driver").pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024.0
}
