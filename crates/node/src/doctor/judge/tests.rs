use std::path::PathBuf;

use super::*;
use crate::bytes::Bytes;
use crate::doctor::{FindingSeverity, print};
use crate::lvm::{PhysicalVolume, Words};

fn healthy() -> ObservedHost {
    ObservedHost {
        tools: TOOLS.iter().map(|tool| (tool.program, "2.38.1".to_owned())).collect(),
        device_mapper: Some(true),
        file_systems: vec!["ext4".to_owned(), "xfs".to_owned()],
        modules: BTreeMap::from([("btrfs", true), ("dm_snapshot", true), ("dm_thin_pool", true)]),
        capabilities: Some(0x1ff_ffff_ffff),
        lock_directory: true,
        disks: vec![found("/dev/sdb", "pv-b", "vg0", "uuid-0", 1)],
        ..ObservedHost::default()
    }
}

fn found(disk: &str, pv: &str, name: &str, uuid: &str, seqno: u64) -> FoundDisk {
    let physical = PhysicalVolume {
        uuid: pv.to_owned(),
        device: None,
        pe_start: 2048,
        pe_count: 256,
        size: Bytes::gib(1),
        flags: Words::default(),
        tags: Words::default(),
    };
    FoundDisk {
        disk: PathBuf::from(disk),
        pv_uuid: Some(pv.to_owned()),
        area_size: 16 << 20,
        group: Some(Group {
            name: name.to_owned(),
            uuid: uuid.to_owned(),
            seqno,
            extent_size: Bytes::mib(4),
            flags: Words::default(),
            tags: Words::default(),
            system_id: None,
            lock_type: None,
            max_lv: None,
            max_pv: None,
            allocation: None,
            metadata_full: false,
            pvs: BTreeMap::from([("pv0".to_owned(), physical)]),
            lvs: BTreeMap::new(),
        }),
        fault: None,
    }
}

/// What is not good, as it is printed, without the closing line.
fn complaints(seen: &ObservedHost) -> String {
    let findings: Vec<Finding> =
        judge(seen).into_iter().filter(|finding| finding.severity != FindingSeverity::Ok).collect();
    let text = print(&findings, false);
    text[..text.trim_end().rfind('\n').map_or(0, |end| end + 1)].to_owned()
}

#[test]
fn a_healthy_machine_has_only_ticks() {
    assert_eq!(complaints(&healthy()), "");
    let printed = print(&judge(&healthy()), false);
    assert!(printed.contains("✓ volume group vg0: 1 disk, 1 GiB\n"), "{printed}");
    assert!(printed.ends_with("25 passed, 0 warnings, 0 errors\n"), "{printed}");
}

#[test]
fn each_complaint_says_what_to_type() {
    let mut seen = healthy();
    seen.tools.remove("mkfs.xfs");
    seen.tools.insert("lvm", "2.03.9".to_owned());
    seen.capabilities = Some(1 << 21 | 1 << 1);
    seen.device_mapper = Some(false);
    seen.modules = BTreeMap::from([("btrfs", false), ("dm_thin_pool", true)]);
    seen.kernel = Some("5.15.0-91-generic".to_owned());
    seen.lock_directory = false;
    seen.lvmetad = true;
    seen.devices_file = true;
    assert_eq!(
        complaints(&seen),
        "✗ this process lacks CAP_SYS_RESOURCE (for expanding mounted ext4)
    → run as root: sudo pliant doctor; in a container, grant it there
✗ kernel: device-mapper is not loaded
    → modprobe dm_mod
! kernel: btrfs is missing, so there are no btrfs volumes
    → modprobe btrfs; if it is missing, install the modules of this kernel
! kernel: dm_snapshot is not loaded, and without modprobe it is not known
  whether it exists
    → on the host: modprobe dm_snapshot
! kernel: 5.15.0-91-generic does not support what mkfs enables by default: xfs
  without nrext64 (Linux 5.19), exchange (Linux 6.10), parent (Linux 6.10);
  btrfs without block-group-tree (Linux 6.1)
    → no action needed: mkfs leaves it out; volumes created under a newer kernel have it
✗ lvm is 2.03.9; 2.03.12 or newer is required
    → apt-get install lvm2
✗ mkfs.xfs is not installed; it is needed for creating xfs
    → apt-get install xfsprogs
! /run/lock/lvm does not exist yet; in a container, mount that of the host
    → mkdir -m 700 /run/lock/lvm
! lvmetad of an old LVM runs on this host; its cache goes stale when the driver
  changes a volume group
    → set use_lvmetad=0 in /etc/lvm/lvm.conf, then: systemctl disable --now lvm2-lvmetad.socket lvm2-lvmetad.service
! LVM of this host only sees disks of /etc/lvm/devices/system.devices; the
  driver sees all
    → lvmdevices --adddev /dev/sdb
"
    );
}

#[test]
fn an_exported_group_and_a_disk_that_fails_are_told() {
    let mut seen = healthy();
    if let Some(group) = &mut seen.disks[0].group {
        group.flags.extend(["EXPORTED"]);
    }
    let mut failing = found("/dev/sdc", "pv-c", "x", "x", 1);
    failing.group = None;
    failing.fault = Some(Fault::Unreadable("Input/output error".to_owned()));
    seen.disks.push(failing);
    assert_eq!(
        complaints(&seen),
        "✗ /dev/sdc could not be read: Input/output error
    → dmesg | grep sdc
✗ volume group vg0 is exported
    → vgimport vg0
"
    );
}

#[test]
fn groups_that_cannot_be_used_are_told() {
    let mut seen = healthy();
    let mut old = found("/dev/sdc", "pv-c", "vg1", "uuid-1", 4);
    old.area_size = 1 << 20;
    let mut new = found("/dev/sdd", "pv-c", "vg1", "uuid-1", 5);
    if let Some(group) = &mut new.group {
        let lost = PhysicalVolume { uuid: "pv-lost".to_owned(), ..group.pvs["pv0"].clone() };
        group.pvs.insert("pv1".to_owned(), lost);
    }
    let mut broken = found("/dev/sdf", "pv-f", "x", "x", 1);
    broken.group = None;
    broken.fault = Some(Fault::Damaged("the checksum of the label does not match".to_owned()));
    seen.disks.extend([old, new, found("/dev/sde", "pv-e", "vg0", "uuid-2", 1), broken]);
    assert_eq!(
        complaints(&seen),
        "✗ /dev/sdf carries damaged LVM metadata: the checksum of the label does not
  match
    → pvck --dump headers /dev/sdf
✗ /dev/sdc and /dev/sdd carry the same physical volume pv-c: one is a copy
    → find out which is the copy, then remove it, or give it its own volume group: vgimportclone /dev/COPY
✗ 2 volume groups have the name vg0: uuid-0 and uuid-2
    → see which one is in use: vgs -o vg_uuid,vg_name,pv_name,lv_count; then rename the other: vgrename UUID NEWNAME
✗ volume group vg1: 1 of 2 disks missing: pv-lost; the volume group cannot be
  changed
    → put the disk back; if it is lost for good, list what was on it: lvs -o lv_name,devices vg1; then remove all of that: vgreduce --removemissing --force vg1
! volume group vg1 has a small metadata area: it is full at about 1,600 volumes
    → for more volumes, add a second volume group to the pool: vgcreate --metadatasize 16m NAME DISK
! volume group vg1: its disks have different states, after an interrupted change
    → vgck --updatemetadata vg1
"
    );
}

#[test]
fn a_machine_without_groups_is_told_how_to_make_one() {
    let seen = ObservedHost { disks: Vec::new(), ..healthy() };
    assert_eq!(
        complaints(&seen),
        "! no disk of this host has a volume group
    → vgcreate --metadatasize 16m vg0 /dev/DISK
"
    );
}

#[test]
fn colours_are_only_on_the_sign() {
    let finding = Finding::error("a", "b");
    assert_eq!(
        print(&[finding], true),
        "\x1b[31m✗\x1b[0m a\n    → b\n0 passed, 0 warnings, 1 error\n"
    );
}

#[test]
fn who_may_not_look_at_disks_is_told_nothing_of_them() {
    let mut seen = healthy();
    seen.capabilities = Some(0);
    seen.disks[0].fault = Some(Fault::Unreadable("Permission denied".to_owned()));
    seen.disks[0].group = None;
    let told = complaints(&seen);
    assert!(told.contains("not root"), "{told}");
    assert!(!told.contains("/dev/sdb") && !told.contains("vgcreate"), "{told}");
}

#[test]
fn a_group_without_room_for_any_volume_gets_no_tick() {
    let mut seen = healthy();
    let group = seen.disks[0].group.as_mut().expect("a group");
    group.pvs.get_mut("pv0").expect("a disk").pe_count = 0;
    let told = complaints(&seen);
    assert!(told.contains("volume group vg0 has no extents"), "{told}");
    assert!(told.contains("vgextend vg0 /dev/DISK"), "{told}");
}

#[test]
fn what_udev_does_with_volumes_is_told_where_it_does_something() {
    let seen = |runs, acts: &[&'static str], rules: Option<&str>| ObservedHost {
        udev: Udev { runs, acts: acts.to_vec(), rules: rules.map(str::to_owned) },
        ..healthy()
    };
    let acts = ["mdadm", "btrfs"];
    for quiet in
        [seen(false, &acts, None), seen(true, &[], None), seen(true, &acts, Some(UDEV_RULES))]
    {
        assert_eq!(complaints(&quiet), "");
    }
    let said = complaints(&seen(true, &acts, None));
    assert!(said.starts_with("! udev passes volume contents to mdadm, btrfs: an array"), "{said}");
    assert!(said.contains("node.hostUdevRules.enabled=true"), "{said}");
    let said = complaints(&seen(true, &acts, Some("of before")));
    assert!(said.contains("mdadm, btrfs have another"), "{said}");
}
