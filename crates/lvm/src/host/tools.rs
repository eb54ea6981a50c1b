//! The programs that the driver starts, and the packages that bring them.

use std::io;

/// A program that has to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Name of the program.
    pub program: &'static str,
    /// Arguments with which it prints its version and does nothing else.
    pub ask: &'static [&'static str],
    /// The Debian package.
    pub package: &'static str,
    /// Purpose of the program.
    pub purpose: &'static str,
}

const fn tool(
    program: &'static str,
    ask: &'static [&'static str],
    package: &'static str,
    purpose: &'static str,
) -> Tool {
    Tool { program, ask, package, purpose }
}

/// All of them; the image installs exactly these packages, and the certificates of public authorities.
pub const TOOLS: [Tool; 16] = [
    tool("lvm", &["version"], "lvm2", "every volume"),
    tool("mkfs.ext4", &["-V"], "e2fsprogs", "creating ext4"),
    tool("mkfs.ext3", &["-V"], "e2fsprogs", "creating ext3"),
    tool("mkfs.ext2", &["-V"], "e2fsprogs", "creating ext2"),
    tool("e2fsck", &["-V"], "e2fsprogs", "checking ext2, ext3 and ext4"),
    tool("resize2fs", &[], "e2fsprogs", "growing ext that the kernel cannot grow"),
    tool("tune2fs", &[], "e2fsprogs", "restoring and cloning ext2, ext3 and ext4"),
    tool("mkfs.xfs", &["-V"], "xfsprogs", "creating xfs"),
    tool("xfs_repair", &["-V"], "xfsprogs", "checking xfs"),
    tool("xfs_db", &["-V"], "xfsprogs", "restoring and cloning xfs"),
    tool("mkfs.btrfs", &["--version"], "btrfs-progs", "creating btrfs"),
    tool("btrfs", &["--version"], "btrfs-progs", "checking btrfs"),
    tool("btrfstune", &["--help"], "btrfs-progs", "restoring and cloning btrfs"),
    tool("thin_check", &["-V"], "thin-provisioning-tools", "checking thin pools"),
    tool("blkid", &["--version"], "util-linux", "detecting what is on a device"),
    tool("wipefs", &["--version"], "util-linux", "detecting whether a disk is blank"),
];

/// Returns a hint for a command that could not be started: the command to install its program, if
/// that is missing and is one of these.
pub(super) fn to_install(command: &str, why: &io::Error) -> String {
    let program = command.split(' ').next().unwrap_or_default();
    let missing = why.kind() == io::ErrorKind::NotFound;
    let tool = TOOLS.iter().find(|tool| missing && tool.program == program);
    tool.map_or_else(String::new, |tool| format!("; run `apt-get install {}`", tool.package))
}

#[cfg(test)]
mod tests {
    use crate::host::HostError;

    #[test]
    fn a_program_that_is_missing_comes_with_its_package() {
        let not_started = |what: &str, errno| {
            let source = std::io::Error::from_raw_os_error(errno);
            HostError::NotStarted { what: what.to_owned(), source }.to_string()
        };
        assert_eq!(
            not_started("mkfs.xfs -f -q -K /dev/dm-3", nix::libc::ENOENT),
            "failed to start `mkfs.xfs -f -q -K /dev/dm-3`; run `apt-get install xfsprogs`"
        );
        for (what, errno) in [("mkfs.xfs", nix::libc::EACCES), ("modprobe xfs", nix::libc::ENOENT)]
        {
            assert_eq!(not_started(what, errno), format!("failed to start `{what}`"));
        }
    }
}
