//! Runs the programs of file systems, and says why one failed.

use super::error::FsError;
use crate::host::{Cmd, Host, Output};

/// Runs a program that has to succeed.
pub(super) async fn run_to_success(host: &dyn Host, cmd: Cmd) -> Result<Output, FsError> {
    let command = cmd.to_string();
    let output = host.run(cmd).await?;
    if output.code == 0 { Ok(output) } else { Err(failed(command, &output)) }
}

/// The error that a program ended without success.
pub(super) fn failed(command: String, output: &Output) -> FsError {
    FsError::Failed { command, code: output.code, stderr: reason(&output.stderr) }
}

/// How many lines of what a program says are reported.
const REASON: usize = 3;

/// How long a line is at least that goes on in the next one.
const WRAPPED: usize = 60;

/// Why a program failed, by what it wrote to standard error: without its name and version, and without how it is
/// called, which mkfs writes behind its reason, or instead of one.
pub(super) fn reason(stderr: &str) -> String {
    let is_banner = |line: &str| {
        let (program, version) = line.split_once(' ').unwrap_or((line, ""));
        ["mke2fs", "e2fsck", "resize2fs"].contains(&program)
            && version.starts_with(|first: char| first.is_ascii_digit())
    };
    let names_none = |line: &str| line == "Bad option(s) specified:";
    let said = |line: &&str| !line.is_empty() && !is_banner(line) && !names_none(line);
    let all: Vec<&str> = stderr.lines().map(str::trim).filter(said).collect();
    let explains = |line: &str| {
        line.to_ascii_lowercase().starts_with("usage:")
            || line.starts_with("Extended options are separated by commas")
    };
    let usage = all.iter().position(|line| explains(line));
    let told = match usage {
        // The reason is in front of it, and the newest words are the nearest to it.
        Some(0) => return "it does not accept these options".to_owned(),
        Some(usage) => &all[..usage],
        None => &all,
    };
    let told = &told[told.len().saturating_sub(REASON)..];
    let mut reason = String::new();
    for (at, line) in told.iter().enumerate() {
        let goes_on = at > 0
            && told[at - 1].len() >= WRAPPED
            && line.starts_with(|first: char| first.is_ascii_lowercase());
        reason += if at == 0 {
            ""
        } else if goes_on {
            " "
        } else {
            "; "
        };
        reason += line;
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_told_without_how_it_is_called() {
        for (stderr, told) in [
            (
                "mke2fs 1.47.0 (5-Feb-2023)\nmkfs.ext4: invalid inode ratio 1 (min 1024/max 67108864)\n",
                "mkfs.ext4: invalid inode ratio 1 (min 1024/max 67108864)",
            ),
            (
                "Illegal value 64k for -b size option. value is too large\nUsage: mkfs.xfs\n\
                 /* blocksize */\t\t[-b size=num]\n/* config file */\t[-c options=xxx]\n",
                "Illegal value 64k for -b size option. value is too large",
            ),
            (
                "Usage: mkfs.ext4 [-c|-l filename] [-b block-size]\n\t[-C cluster-size]\n",
                "it does not accept these options",
            ),
            (
                "The resize maximum must be greater than the filesystem size.\n\nBad option(s) specified: \n\n\
                 Extended options are separated by commas, and may take an argument which\n\tis set off\n\
                 \nValid extended options are:\n\tstride=<RAID per-disk data chunk in blocks>\n",
                "The resize maximum must be greater than the filesystem size.",
            ),
            (
                "\nThe total requested journal size is 25600000 blocks; it must be\n\
                 between 1024 and 10240000 blocks.  Aborting.\n",
                "The total requested journal size is 25600000 blocks; it must be between 1024 and 10240000 \
                 blocks.  Aborting.",
            ),
            ("a\nb\n\nc\nd\n", "b; c; d"),
            ("", ""),
        ] {
            assert_eq!(reason(stderr), told);
        }
    }
}
