//! Files of this repository, for the tests that compare them.

use std::fs;
use std::path::{Path, PathBuf};

/// Text of a file.
#[allow(dead_code)] // Some read each file in their own way.
pub fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Paths of the files below a directory that end so, sorted.
pub fn files(dir: impl AsRef<Path>, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(path, end));
        } else if path.extension().is_some_and(|its| its == end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[allow(dead_code)] // Some compare one crate.
/// Paths of the product's Rust files: those of the program and those of the crates, sorted.
pub fn product() -> Vec<PathBuf> {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path().join("src"));
    let mut found: Vec<PathBuf> = crates.flat_map(|dir| files(dir, "rs")).collect();
    found.extend(files("src", "rs"));
    found.sort();
    found
}

#[allow(dead_code)] // Some read no pages.
/// Blocks of a page between lines of three backticks: what follows the first ones, such as `sh`, and the text.
pub fn blocks(page: &str) -> Vec<(String, String)> {
    let blocks = page.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.split_once('\n'));
    blocks.map(|(kind, text)| (kind.trim().to_owned(), text.to_owned())).collect()
}
