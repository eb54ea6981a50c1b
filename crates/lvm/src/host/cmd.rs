//! Programs: how one is asked for, and how it ended.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

/// One command: a program and its arguments, never a shell.
///
/// Prints as one would type it.
#[derive(Clone, PartialEq, Eq)]
pub struct Cmd {
    /// The program's name, looked up in a fixed `PATH`.
    pub program: &'static str,
    /// Arguments, each passed as it is.
    pub args: Vec<OsString>,
    /// Time that the caller waits; the program is not killed after it.
    pub limit: Duration,
}

impl Cmd {
    /// A command that its caller waits one minute for.
    pub fn new(program: &'static str) -> Self {
        Cmd { program, args: Vec::new(), limit: Duration::from_secs(60) }
    }

    /// Appends one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Appends arguments in order.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Waits this long instead of a minute.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program)?;
        for arg in &self.args {
            let arg = arg.to_string_lossy();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%!&#".contains(c);
            if !arg.is_empty() && arg.chars().all(plain) {
                write!(f, " {arg}")?;
            } else {
                write!(f, " '{}'", arg.replace('\'', r"'\''"))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// Result of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit code; 128 + the signal's number if a signal ended it.
    pub code: i32,
    /// All of standard output.
    pub stdout: String,
    /// The last 4 KiB of standard error.
    pub stderr: String,
}
