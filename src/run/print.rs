//! Standard output of the commands that end.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;

/// Prints to standard output; a reader that has left, as `head` does, is no failure.
pub fn print(text: &str) -> Result<ExitCode> {
    print_to_listener(text).map(|_| ExitCode::SUCCESS)
}

/// Prints, and returns whether there is still someone who reads it.
pub fn print_to_listener(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}
