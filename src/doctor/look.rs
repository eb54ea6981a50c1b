//! What doctor asks of the machine; nothing in here changes anything or decides anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::groups::{self, Found};
use super::tools;
use crate::causes;
use crate::host::{Cmd, Host, HostError, PathKind, TOOLS};

/// What was seen of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // They are what was seen, not modes.
pub struct Seen {
    /// Versions of the programs that are there; empty text where one does not tell its version.
    pub tools: BTreeMap<&'static str, String>,
    /// The version of the kernel, from `/proc/sys/kernel/osrelease`; `None` if it could not be read.
    pub kernel: Option<String>,
    /// Whether the kernel has device-mapper now, from `/proc/misc`; opening its control node would
    /// load it, and looking changes nothing.
    pub device_mapper: bool,
    /// File systems that the kernel has now, from `/proc/filesystems`.
    pub file_systems: Vec<String>,
    /// Modules that are loaded or would be found by `modprobe` (true), or not (false); a module is
    /// absent if nobody could tell.
    pub modules: BTreeMap<&'static str, bool>,
    /// Effective capabilities of this process as bits; `None` if they could not be read.
    pub capabilities: Option<u64>,
    /// Whether `/run/lock/lvm` is a directory.
    pub lock_directory: bool,
    /// Whether the daemon of LVM before 2.03 that caches metadata is there.
    pub lvmetad: bool,
    /// Whether the host's LVM only looks at disks that are listed in its devices file.
    pub devices_file: bool,
    /// Physical volumes and what their metadata says, or why it could not be read.
    pub disks: Vec<Found>,
    /// Why the disks could not be listed.
    pub no_disks: Option<String>,
}

/// Modules that the kernel loads by itself when they are first needed.
pub(super) const MODULES: [&str; 4] = ["ext4", "xfs", "btrfs", "dm_snapshot"];

/// Look at everything.
pub async fn look(host: &Arc<dyn Host>) -> Seen {
    let (disks, no_disks) = match groups::find(host).await {
        Ok(disks) => (disks, None),
        Err(error) => (Vec::new(), Some(causes::in_full(&error))),
    };
    Seen { disks, no_disks, ..look_at_machine(host.as_ref()).await }
}

/// Look at everything but the disks: none is touched.
pub async fn look_at_machine(host: &dyn Host) -> Seen {
    Seen {
        tools: tools(host).await,
        kernel: read(host, "/proc/sys/kernel/osrelease")
            .await
            .map(|version| version.trim().to_owned())
            .filter(|version| !version.is_empty()),
        device_mapper: last_words(&read(host, "/proc/misc").await.unwrap_or_default())
            .iter()
            .any(|name| name == "device-mapper"),
        file_systems: last_words(&read(host, "/proc/filesystems").await.unwrap_or_default()),
        modules: modules(host).await,
        capabilities: read(host, "/proc/self/status")
            .await
            .and_then(|status| capabilities(&status)),
        lock_directory: kind(host, "/run/lock/lvm").await == Some(PathKind::Directory),
        lvmetad: kind(host, "/run/lvm/lvmetad.socket").await.is_some(),
        devices_file: kind(host, "/etc/lvm/devices/system.devices").await.is_some(),
        ..Seen::default()
    }
}

async fn read(host: &dyn Host, path: &str) -> Option<String> {
    let output = host.run(Cmd::new("cat").arg(path)).await.ok()?;
    (output.code == 0).then_some(output.stdout)
}

async fn kind(host: &dyn Host, path: &str) -> Option<PathKind> {
    host.path_kind(Path::new(path)).await.ok().flatten()
}

async fn tools(host: &dyn Host) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    for tool in TOOLS {
        let asked = host.run(Cmd::new(tool.program).args(tool.ask.iter().copied())).await;
        let printed = match asked {
            Ok(output) => output.stdout + &output.stderr,
            Err(HostError::NotStarted { .. }) => continue,
            Err(_) => String::new(),
        };
        let version = tools::version_in(&printed).unwrap_or_default();
        found.insert(tool.program, version.to_owned());
    }
    found
}

async fn modules(host: &dyn Host) -> BTreeMap<&'static str, bool> {
    let mut found = BTreeMap::new();
    for module in MODULES {
        let loaded = format!("/sys/module/{module}");
        if kind(host, &loaded).await == Some(PathKind::Directory) {
            found.insert(module, true);
            continue;
        }
        let cmd = Cmd::new("modprobe").args(["--dry-run", "--quiet", module]);
        if let Ok(output) = host.run(cmd).await {
            found.insert(module, output.code == 0);
        }
    }
    found
}

fn last_words(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

fn capabilities(status: &str) -> Option<u64> {
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(last_words("nodev\tsysfs\n\text4\n"), ["sysfs", "ext4"]);
        assert_eq!(capabilities("Name:\tcat\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(capabilities("Name:\tcat\n"), None);
    }
}
