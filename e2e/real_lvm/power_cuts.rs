//! What a power cut leaves: first, that the recording itself tells the truth.

use std::fs;
use std::path::Path;

use crate::log_writes::{Chooser, Log, Recorder, Throwaway};
use crate::machine::{Disk, run, sha256};

const BLOCK: usize = 4096;
const BLOCKS: usize = 16;

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_cut_keeps_what_was_flushed_and_any_part_of_what_was_not() {
    let (disk, log_disk, cut_disk) = (Disk::of(8 << 20), Disk::of(64 << 20), Disk::of(8 << 20));
    let recorder = Recorder::over(&disk, &log_disk);
    fill(&recorder, 'a', "fsync,notrunc");
    recorder.mark("a-is-durable");
    fill(&recorder, 'b', "notrunc");
    recorder.mark("b-is-not");
    fill(&recorder, 'c', "fsync,notrunc");
    recorder.mark("c-is-durable");
    let log = recorder.finish().expect("log");

    let cut = |mark| log.cut_at(mark).expect("mark");
    let cut_device = Path::new(cut_disk.device());
    log.play(0..cut("a-is-durable"), cut_device).expect("play");
    assert_eq!(blocks(cut_device), "a".repeat(BLOCKS));
    log.play(cut("a-is-durable")..cut("b-is-not"), cut_device).expect("play");
    assert_eq!(blocks(cut_device), "a".repeat(BLOCKS));
    some_of_the_rest_is_there(&log, cut("b-is-not"), &cut_disk);
    log.play(cut("b-is-not")..log.entries.len(), cut_device).expect("play");
    assert_eq!(blocks(cut_device), "c".repeat(BLOCKS));
    assert_eq!(sha256(cut_device), sha256(Path::new(disk.device())));
}

/// Eight random halves: each block is of before or of after, each half is another, and the disk
/// below stays as it is.
fn some_of_the_rest_is_there(log: &Log, cut: usize, disk: &Disk) {
    let mut chooser = Chooser(1);
    let mut seen = Vec::new();
    for _ in 0..8 {
        let copy = Throwaway::over(disk);
        let device = copy.device();
        log.play(chooser.half_of(log.unflushed(cut)), Path::new(&device)).expect("play");
        seen.push(blocks(Path::new(&device)));
    }
    assert_eq!(blocks(Path::new(disk.device())), "a".repeat(BLOCKS));
    assert!(seen.iter().any(|blocks| blocks.contains('b')), "{seen:?}");
    seen.sort();
    seen.dedup();
    assert!(seen.len() > 4, "{seen:?}");
}

/// Writes one letter over all blocks, each block a write of its own and none from a cache.
fn fill(recorder: &Recorder, letter: char, conversion: &str) {
    let file = "/tmp/letters";
    fs::write(file, letter.to_string().repeat(BLOCK * BLOCKS)).expect("letters");
    let (from, to) = (format!("if={file}"), format!("of={}", recorder.device()));
    run("dd", &[&from, &to, "bs=4096", "oflag=direct", &format!("conv={conversion}")]);
}

/// The first letter of each block.
fn blocks(device: &Path) -> String {
    let bytes = run("head", &["-c", &(BLOCK * BLOCKS).to_string(), &device.to_string_lossy()]);
    bytes.chars().step_by(BLOCK).collect()
}
