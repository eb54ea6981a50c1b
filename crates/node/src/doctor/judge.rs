//! Derives findings from facts: pure.

use std::collections::{BTreeMap, BTreeSet};

use super::look::MODULES;
use super::{Fault, Finding, FoundDisk, ObservedHost, Udev};
use crate::fs;
use crate::host::{TOOLS, UDEV_RULES, UDEV_RULES_FILE, at_least};
use crate::lvm::Group;

/// Volumes are made with `--setautoactivation n`, which came with this version.
const LVM_AT_LEAST: [u32; 3] = [2, 3, 12];

/// Derives findings, in the order in which to fix them.
pub fn judge(seen: &ObservedHost) -> Vec<Finding> {
    [judge_machine(seen), disks(seen)].concat()
}

/// Derives the findings about everything but the disks.
pub fn judge_machine(seen: &ObservedHost) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(privileges(seen));
    findings.push(device_mapper(seen));
    findings.extend(modules(seen));
    findings.extend(features(seen));
    findings.extend(programs(seen));
    findings.extend(configuration(seen));
    findings.extend(udev(&seen.udev));
    findings
}

/// Required capabilities (capabilities(7)): number, name and purpose.
const CAPABILITIES: [(u32, &str, &str); 2] = [
    (21, "CAP_SYS_ADMIN", "mounts and device-mapper"),
    (24, "CAP_SYS_RESOURCE", "expanding mounted ext4"),
];

fn privileges(seen: &ObservedHost) -> Finding {
    let Some(bits) = seen.capabilities else {
        return Finding::warning(
            "capabilities of this process could not be read",
            "run as root: sudo pliant doctor",
        );
    };
    let missing: Vec<String> = CAPABILITIES
        .into_iter()
        .filter(|(number, ..)| bits & (1 << number) == 0)
        .map(|(_, name, purpose)| format!("{name} (for {purpose})"))
        .collect();
    if missing.is_empty() {
        return Finding::ok("this process may mount and use device-mapper");
    }
    let what = format!("this process lacks {}", missing.join(" and "));
    Finding::error(what, "run as root: sudo pliant doctor; in a container, grant it there")
}

fn device_mapper(seen: &ObservedHost) -> Finding {
    match seen.device_mapper {
        Some(true) => Finding::ok("kernel: device-mapper is loaded"),
        Some(false) => Finding::error("kernel: device-mapper is not loaded", "modprobe dm_mod"),
        None => Finding::warning(
            "kernel: failed to read from /proc/misc whether device-mapper is loaded",
            "cat /proc/misc",
        ),
    }
}

fn modules(seen: &ObservedHost) -> impl Iterator<Item = Finding> {
    MODULES.into_iter().map(|module| {
        if seen.file_systems.iter().any(|name| name == module) {
            return Finding::ok(format!("kernel: {module} is loaded"));
        }
        let load = format!("modprobe {module}");
        match seen.modules.get(module) {
            Some(true) => Finding::ok(format!("kernel: {module} can be loaded")),
            Some(false) => Finding::warning(
                format!("kernel: {module} is missing, so there are {}", lost(module)),
                format!("{load}; if it is missing, install the modules of this kernel"),
            ),
            None => Finding::warning(
                format!("kernel: {module} is not loaded, and without modprobe it is not known whether it exists"),
                format!("on the host: {load}"),
            ),
        }
    })
}

/// File system features that this kernel does not mount, so mkfs omits them; `None` if there are none.
fn features(seen: &ObservedHost) -> Option<Finding> {
    let release = seen.kernel.as_deref()?;
    let without = fs::made_without(release);
    (!without.is_empty()).then(|| {
        let what = format!(
            "kernel: {release} does not support what mkfs enables by default: {}",
            without.join("; ")
        );
        Finding::warning(
            what,
            "no action needed: mkfs leaves it out; volumes created under a newer kernel have it",
        )
    })
}

/// What is missing without a module.
fn lost(module: &str) -> String {
    match module {
        "dm_snapshot" => "no safety snapshots".to_owned(),
        "dm_thin_pool" => "no thin volumes".to_owned(),
        file_system => format!("no {file_system} volumes"),
    }
}

fn programs(seen: &ObservedHost) -> Vec<Finding> {
    TOOLS
        .iter()
        .map(|tool| {
            let install = format!("apt-get install {}", tool.package);
            match seen.tools.get(tool.program) {
                None => Finding::error(
                    format!("{} is not installed; it is needed for {}", tool.program, tool.purpose),
                    install,
                ),
                Some(version) if tool.program != "lvm" => {
                    Finding::ok(format!("{} {version}", tool.program).trim_end())
                }
                Some(version) if at_least(version, LVM_AT_LEAST) => {
                    Finding::ok(format!("lvm {version}"))
                }
                Some(version) => Finding::error(
                    format!("lvm is {}; 2.03.12 or newer is required", or_unknown(version)),
                    install,
                ),
            }
        })
        .collect()
}

fn or_unknown(version: &str) -> &str {
    if version.is_empty() { "of an unknown version" } else { version }
}

fn configuration(seen: &ObservedHost) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(if seen.lock_directory {
        Finding::ok("/run/lock/lvm exists: LVM of the host and of the driver share their locks")
    } else {
        Finding::warning(
            "/run/lock/lvm does not exist yet; in a container, mount that of the host",
            "mkdir -m 700 /run/lock/lvm",
        )
    });
    if seen.lvmetad {
        findings.push(Finding::warning(
            "lvmetad of an old LVM runs on this host; its cache goes stale when the driver changes a volume group",
            "set use_lvmetad=0 in /etc/lvm/lvm.conf, then: systemctl disable --now lvm2-lvmetad.socket \
             lvm2-lvmetad.service",
        ));
    }
    if seen.devices_file {
        let disks: Vec<String> = seen
            .disks
            .iter()
            .map(|found| format!("lvmdevices --adddev {}", found.disk.display()))
            .collect();
        findings.push(Finding::warning(
            "LVM of this host only sees disks of /etc/lvm/devices/system.devices; the driver sees all",
            if disks.is_empty() { "lvmdevices".to_owned() } else { disks.join("; ") },
        ));
    }
    findings
}

/// Finding about host tools that act on volume contents; `None` if there are none, or if they cannot be seen.
fn udev(udev: &Udev) -> Option<Finding> {
    if !udev.runs || udev.acts.is_empty() {
        return None;
    }
    let acts = udev.acts.join(", ");
    let what = match udev.rules.as_deref() {
        Some(UDEV_RULES) => {
            return Some(Finding::ok(format!("udev rules protect volume contents from {acts}")));
        }
        Some(_) => {
            format!("the udev rules that protect volume contents from {acts} have another version")
        }
        None => format!(
            "udev passes volume contents to {acts}: an array or a volume group that a tenant writes is \
             assembled on this host, and blocks its volume"
        ),
    };
    let todo = format!(
        "in a cluster: helm upgrade with node.hostUdevRules.enabled=true; else: pliant udev-rules > \
         /etc/udev/rules.d/{UDEV_RULES_FILE}; then: udevadm control --reload"
    );
    Some(Finding::warning(what, todo))
}

/// `CAP_DAC_OVERRIDE` or `CAP_DAC_READ_SEARCH`: root has them in a container too.
const READS_ANY_FILE: u64 = 1 << 1 | 1 << 2;

fn disks(seen: &ObservedHost) -> Vec<Finding> {
    if seen.capabilities.is_some_and(|bits| bits & READS_ANY_FILE == 0) {
        let what = "this process is not root, and cannot read the disks";
        return vec![Finding::error(what, "sudo pliant doctor")];
    }
    let mut findings = Vec::new();
    if let Some(reason) = &seen.no_disks {
        let what = format!("disks could not be listed: {reason}");
        findings.push(Finding::error(what, "run as root: sudo pliant doctor"));
    }
    for found in &seen.disks {
        let disk = found.disk.display();
        match &found.fault {
            Some(Fault::Unreadable(reason)) => findings.push(Finding::error(
                format!("{disk} could not be read: {reason}"),
                format!("dmesg | grep {}", disk.to_string().trim_start_matches("/dev/")),
            )),
            Some(Fault::Damaged(reason)) => findings.push(Finding::error(
                format!("{disk} carries damaged LVM metadata: {reason}"),
                format!("pvck --dump headers {disk}"),
            )),
            None => {}
        }
    }
    findings.extend(double_disks(&seen.disks));
    let groups = groups(&seen.disks);
    findings.extend(double_names(&groups));
    findings.extend(groups.values().flat_map(group));
    if groups.is_empty() && seen.no_disks.is_none() {
        findings.push(Finding::warning(
            "no disk of this host has a volume group",
            "vgcreate --metadatasize 16m vg0 /dev/DISK",
        ));
    }
    findings
}

/// A volume group with the disks that have its metadata.
struct GroupOnDisks<'a> {
    /// Metadata with the highest sequence number.
    group: &'a Group,
    disks: Vec<&'a FoundDisk>,
    all: &'a [FoundDisk],
}

/// Volume groups by uuid.
fn groups(disks: &[FoundDisk]) -> BTreeMap<&str, GroupOnDisks<'_>> {
    let mut groups: BTreeMap<&str, GroupOnDisks<'_>> = BTreeMap::new();
    for found in disks {
        let Some(group) = &found.group else {
            continue;
        };
        let whole = groups.entry(&group.uuid).or_insert(GroupOnDisks {
            group,
            disks: Vec::new(),
            all: disks,
        });
        whole.disks.push(found);
        if group.seqno > whole.group.seqno {
            whole.group = group;
        }
    }
    groups
}

fn double_disks(disks: &[FoundDisk]) -> Vec<Finding> {
    let mut by_uuid: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for found in disks {
        if let Some(uuid) = &found.pv_uuid {
            by_uuid.entry(uuid).or_default().push(found.disk.display().to_string());
        }
    }
    by_uuid
        .into_iter()
        .filter(|(_, disks)| disks.len() > 1)
        .map(|(uuid, disks)| {
            Finding::error(
                format!(
                    "{} carry the same physical volume {uuid}: one is a copy",
                    disks.join(" and ")
                ),
                "find out which is the copy, then remove it, or give it its own volume group: \
                 vgimportclone /dev/COPY",
            )
        })
        .collect()
}

fn double_names(groups: &BTreeMap<&str, GroupOnDisks<'_>>) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (uuid, whole) in groups {
        by_name.entry(&whole.group.name).or_default().push(uuid);
    }
    by_name
        .into_iter()
        .filter(|(_, uuids)| uuids.len() > 1)
        .map(|(name, uuids)| {
            Finding::error(
                format!("{} volume groups have the name {name}: {}", uuids.len(), uuids.join(" and ")),
                "see which one is in use: vgs -o vg_uuid,vg_name,pv_name,lv_count; then rename the \
                 other: vgrename UUID NEWNAME"
                    .to_owned(),
            )
        })
        .collect()
}

/// LVM's default size of a metadata area. It holds about 1,600 volumes and can never be enlarged.
const DEFAULT_AREA: u64 = 1 << 20;

fn group(whole: &GroupOnDisks<'_>) -> Vec<Finding> {
    let (group, name) = (whole.group, &whole.group.name);
    let here: BTreeSet<&str> =
        whole.all.iter().filter_map(|found| found.pv_uuid.as_deref()).collect();
    let missing: Vec<&str> =
        group.pvs.values().map(|pv| pv.uuid.as_str()).filter(|uuid| !here.contains(uuid)).collect();
    let mut findings = vec![standing(group, &missing)];
    if whole.disks.iter().any(|found| found.area_size <= DEFAULT_AREA) {
        findings.push(Finding::warning(
            format!("volume group {name} has a small metadata area: it is full at about 1,600 volumes"),
            "for more volumes, add a second volume group to the pool: vgcreate --metadatasize 16m NAME DISK"
                .to_owned(),
        ));
    }
    let told: BTreeSet<u64> = whole
        .disks
        .iter()
        .filter_map(|found| found.group.as_ref())
        .map(|group| group.seqno)
        .collect();
    if told.len() > 1 {
        findings.push(Finding::warning(
            format!(
                "volume group {name}: its disks have different states, after an interrupted change"
            ),
            format!("vgck --updatemetadata {name}"),
        ));
    }
    findings
}

/// Finding whether a volume group can be used at all.
fn standing(group: &Group, missing: &[&str]) -> Finding {
    let name = &group.name;
    let disks = group.pvs.len();
    let plural = if disks == 1 { "" } else { "s" };
    if !missing.is_empty() {
        return Finding::error(
            format!(
                "volume group {name}: {} of {disks} disk{plural} missing: {}; the volume group cannot be changed",
                missing.len(),
                missing.join(", ")
            ),
            format!(
                "put the disk back; if it is lost for good, list what was on it: lvs -o \
                 lv_name,devices {name}; then remove all of that: vgreduce --removemissing --force \
                 {name}"
            ),
        );
    }
    if group.flags.contains("EXPORTED") {
        return Finding::error(
            format!("volume group {name} is exported"),
            format!("vgimport {name}"),
        );
    }
    if group.extents() == 0 {
        let what =
            format!("volume group {name} has no extents: its disks are too small for any volume");
        return Finding::warning(what, format!("vgextend {name} /dev/DISK"));
    }
    let size = group.size_of(group.extents());
    Finding::ok(format!("volume group {name}: {disks} disk{plural}, {size}"))
}

#[cfg(test)]
mod tests;
