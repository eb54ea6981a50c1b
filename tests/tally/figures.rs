//! What was measured, for `make figures`.

use std::fs;
use std::path::Path;

/// Print figures, and write them down for `make figures`.
pub fn figures(file: &str, measured: &[(&str, usize)]) {
    // Of a test of a crate too: they are of the whole workspace.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().find(|directory| directory.join("Cargo.lock").exists());
    let directory = root.expect("a workspace").join("target/figures.d");
    fs::create_dir_all(&directory).expect("target/figures.d");
    let lines: Vec<String> =
        measured.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    let lines = lines.concat();
    print!("{lines}");
    fs::write(directory.join(file), lines).expect("figures");
}
