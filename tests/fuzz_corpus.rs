//! Every input that fuzzing has found worth keeping goes through its parser, without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../fuzz/cel.rs"]
mod cel;
#[path = "../fuzz/every_request.rs"]
mod every_request;
#[path = "../fuzz/from_api.rs"]
mod from_api;
#[path = "../fuzz/from_lvm.rs"]
mod from_lvm;
#[path = "../fuzz/quantities.rs"]
mod quantities;

/// The inputs of one fuzz target, by path.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut inputs: Vec<_> = fs::read_dir(dir)
        .expect("each target has a corpus")
        .map(|entry| entry.expect("the corpus can be listed").path())
        .map(|path| (path.clone(), fs::read(path).expect("the corpus can be read")))
        .collect();
    inputs.sort();
    inputs
}

#[test]
fn superblocks() {
    let inputs = corpus("superblock");
    assert!(inputs.len() >= 14, "the corpus has shrunk to {}", inputs.len());
    for (path, head) in inputs {
        let found = pliant::fs::superblock::parse(&head);
        assert!(found.is_some(), "{} comes from a real mkfs", path.display());
    }
}

#[test]
fn requests() {
    let inputs = corpus("requests");
    let taken = inputs.iter().filter(|(_, bytes)| every_request::parse(bytes));
    // One good request of each kind, and those that are refused.
    assert_eq!((inputs.len(), taken.count()), (24, 12));
}

/// A file's name says whether it is taken.
fn judged(target: &str, parse: fn(&[u8]) -> bool) {
    for (path, bytes) in corpus(target) {
        let good = path.extension().is_some_and(|end| end == "good");
        assert_eq!(parse(&bytes), good, "{}", path.display());
    }
}

#[test]
fn metadata() {
    judged("metadata", from_lvm::metadata);
}

#[test]
fn words() {
    judged("words", from_lvm::words);
}

#[test]
fn names_in_expressions() {
    judged("cel", cel::parse);
}

#[test]
fn torn() {
    judged("torn", from_lvm::torn);
}

#[test]
fn records() {
    judged("records", from_api::records);
}

#[test]
fn quantities() {
    judged("quantities", quantities::parse);
}
