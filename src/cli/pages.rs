//! What is made of the command line for shells and for `man`.

use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::cli::{named, program};

/// What a shell needs to complete the commands of this program.
pub fn completion(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    // kubectl asks its plugins itself; a shell completes the name under which the program lies there.
    let name = program().replace(' ', "-");
    clap_complete::generate(shell, &mut named(program()), name, &mut text);
    text
}

/// Write a page for each command into a directory.
///
/// # Errors
/// What the system says of the files.
pub fn manual(dir: &Path) -> io::Result<()> {
    // Pages are looked up by the name of the program, whoever calls it.
    clap_mangen::generate_to(named("pliant"), dir)
}
