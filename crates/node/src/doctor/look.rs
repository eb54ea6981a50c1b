//! Collects facts about the host; changes nothing and decides nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::groups::{self, FoundDisk};
use crate::host::{Cmd, Host, HostError, PathKind, TOOLS, UDEV_RULES_FILE, version_in};
use crate::volume::error_chain;

/// Facts about a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // They are what was seen, not modes.
pub struct ObservedHost {
    /// Versions of the installed programs; empty if a program does not report its version.
    pub tools: BTreeMap<&'static str, String>,
    /// The release of the kernel; `None` if it could not be read.
    pub kernel: Option<String>,
    /// True if the kernel has device-mapper loaded, from `/proc/misc`. Opening its control node would load
    /// it, and `doctor` changes nothing.
    pub device_mapper: Option<bool>,
    /// File systems that the kernel has loaded, from `/proc/filesystems`.
    pub file_systems: Vec<String>,
    /// Modules that are loaded or that `modprobe` finds (true), or not (false); a module is absent if that is
    /// not known.
    pub modules: BTreeMap<&'static str, bool>,
    /// Effective capabilities of this process as bits; `None` if they could not be read.
    pub capabilities: Option<u64>,
    /// True if `/run/lock/lvm` is a directory.
    pub lock_directory: bool,
    /// True if lvmetad runs, which caches metadata for LVM before 2.03.
    pub lvmetad: bool,
    /// True if the host's LVM only sees disks that its devices file lists.
    pub devices_file: bool,
    /// What udev of the host does with volumes.
    pub udev: Udev,
    /// Physical volumes with their metadata, or why it could not be read.
    pub disks: Vec<FoundDisk>,
    /// Reason why the disks could not be listed.
    pub no_disks: Option<String>,
}

/// What udev of the host does with volume contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Udev {
    /// True if udevd runs and can be seen from here.
    pub runs: bool,
    /// Tools whose installed rules act on volume contents.
    pub acts: Vec<&'static str>,
    /// Installed rules of this driver; `None` if there are none.
    pub rules: Option<String>,
}

/// Tools that act on what is on a block device, and the names that distributions give their rules.
const ACTING: [(&str, &[&str]); 3] = [
    ("mdadm", &["64-md-raid-assembly.rules", "65-md-incremental.rules", "64-md-raid.rules"]),
    ("LVM's event activation", &["69-dm-lvm.rules", "69-lvm.rules", "69-dm-lvm-metad.rules"]),
    ("btrfs", &["64-btrfs.rules", "64-btrfs-dm.rules"]),
];

/// Directories with udev rules; of files with the same name the first counts.
const RULES_DIRS: [&str; 4] =
    ["/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d"];

/// Modules that the kernel loads on first use.
pub(super) const MODULES: [&str; 5] = ["ext4", "xfs", "btrfs", "dm_snapshot", "dm_thin_pool"];

/// Collects all facts.
pub async fn look(host: &Arc<dyn Host>) -> ObservedHost {
    let (disks, no_disks) = match groups::find(host).await {
        Ok(disks) => (disks, None),
        Err(error) => (Vec::new(), Some(error_chain::in_full(&error))),
    };
    ObservedHost { disks, no_disks, ..look_at_machine(host.as_ref()).await }
}

/// Collects all facts except those about disks; no disk is read.
pub async fn look_at_machine(host: &dyn Host) -> ObservedHost {
    ObservedHost {
        tools: tools(host).await,
        kernel: Some(host.kernel().release).filter(|release| !release.is_empty()),
        device_mapper: read(host, "/proc/misc")
            .await
            .map(|misc| last_words(&misc).iter().any(|name| name == "device-mapper")),
        file_systems: last_words(&read(host, "/proc/filesystems").await.unwrap_or_default()),
        modules: modules(host).await,
        capabilities: read(host, "/proc/self/status")
            .await
            .and_then(|status| capabilities(&status)),
        lock_directory: kind(host, "/run/lock/lvm").await == Some(PathKind::Directory),
        lvmetad: kind(host, "/run/lvm/lvmetad.socket").await.is_some(),
        devices_file: kind(host, "/etc/lvm/devices/system.devices").await.is_some(),
        udev: udev(host).await,
        ..ObservedHost::default()
    }
}

async fn udev(host: &dyn Host) -> Udev {
    let mut acts = Vec::new();
    for (tool, names) in ACTING {
        for name in names {
            if rules(host, name).await.is_some() {
                acts.push(tool);
                break;
            }
        }
    }
    let runs = kind(host, "/run/udev/control").await.is_some();
    let rules = match rules(host, UDEV_RULES_FILE).await {
        Some(path) => Some(read(host, &path).await.unwrap_or_default()),
        None => None,
    };
    Udev { runs, acts, rules }
}

/// The file of this name that udev reads. A link to `/dev/null` before it switches it off.
async fn rules(host: &dyn Host, name: &str) -> Option<String> {
    for dir in RULES_DIRS {
        let path = format!("{dir}/{name}");
        match kind(host, &path).await {
            Some(PathKind::File) => return Some(path),
            Some(_) => return None,
            None => {}
        }
    }
    None
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
        let version = version_in(&printed).unwrap_or_default();
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
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(last_words("nodev\tsysfs\n\text4\n"), ["sysfs", "ext4"]);
        assert_eq!(capabilities("Name:\tcat\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(capabilities("Name:\tcat\n"), None);
    }

    #[tokio::test]
    async fn rules_of_udev_are_found_as_udev_finds_them() {
        let host = pliant_fake_host::FakeHost::new();
        assert_eq!(udev(&host).await, Udev::default());
        for dir in ["/run/udev", "/usr/lib/udev/rules.d", "/etc/udev/rules.d"] {
            host.make_dir(Path::new(dir)).await.unwrap();
        }
        for file in [
            "/run/udev/control",
            "/usr/lib/udev/rules.d/64-md-raid-assembly.rules",
            "/usr/lib/udev/rules.d/69-dm-lvm.rules",
        ] {
            host.make_file(Path::new(file)).await.unwrap();
        }
        // What is no file before it switches it off.
        host.make_dir(Path::new("/etc/udev/rules.d/69-dm-lvm.rules")).await.unwrap();
        let seen = udev(&host).await;
        assert_eq!((seen.runs, seen.acts, seen.rules), (true, vec!["mdadm"], None));
        let ours = Path::new("/etc/udev/rules.d").join(UDEV_RULES_FILE);
        host.make_file(&ours).await.unwrap();
        assert_eq!(rules(&host, UDEV_RULES_FILE).await.map(PathBuf::from), Some(ours));
    }
}
