//! What is made of the command line for shells and for `man`.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::cli::{file_name, named, program};

/// Generates the completion script of a shell.
pub fn completion(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    // kubectl completes `kubectl pliant`; a shell completes the file name of the program.
    let name = program().replace(' ', "-");
    clap_complete::generate(shell, &mut named(program()), name, &mut text);
    text
}

/// The words that kubectl asks to be completed, the last one being typed: for its plugin it runs
/// `kubectl_complete-pliant`. `None` under every other name.
pub fn to_complete() -> Option<Vec<OsString>> {
    let mut words = std::env::args_os();
    let is_asked =
        file_name(words.next()?.as_os_str()) == Some(OsStr::new("kubectl_complete-pliant"));
    is_asked.then(|| words.collect())
}

/// What may follow these words of `kubectl pliant`, the last of which is being typed, as kubectl asks its
/// plugins: as cobra's `__complete` answers.
///
/// # Errors
/// An I/O error, if file names are completed.
pub fn candidates(words: Vec<OsString>) -> io::Result<String> {
    /// A file may follow too.
    const DEFAULT: u8 = 0;
    const NO_FILE: u8 = 4;
    let words: Vec<OsString> = std::iter::once("pliant".into()).chain(words).collect();
    let typed = words.len() - 1;
    let found = clap_complete::engine::complete(&mut named("kubectl pliant"), words, typed, None)?;
    let mut text = String::new();
    for one in &found {
        let help = one.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        let _ = writeln!(text, "{}\t{help}", one.get_value().to_string_lossy());
    }
    Ok(format!("{text}:{}\n", if found.is_empty() { DEFAULT } else { NO_FILE }))
}

/// Write a page for each command into a directory.
///
/// # Errors
/// An I/O error.
pub fn manual(dir: &Path) -> io::Result<()> {
    // Pages are looked up by the name of the program, whoever calls it.
    clap_mangen::generate_to(named("pliant"), dir)
}
