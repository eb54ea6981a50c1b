//! Tenants: none reads what another wrote, and what one writes fools neither the driver nor LVM.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pliant::bytes::Bytes;
use pliant::volume::{FsKind, Mode, VolumeKey};

use crate::csi::{EXT4, Rig, Volume, device_of, fill, group, holds, volumes_of};
use crate::machine::{Disk, attempt, figure, run, sha256};

const SECRET: &[u8; 32] = b"<the secret of a former tenant!>";
const MIB: usize = 1 << 20;
const BTRFS: Mode = Mode::Filesystem(FsKind::Btrfs);

/// Writes the secret over a whole device or file.
fn keep_secret(file: &File, bytes: u64) {
    let block = SECRET.repeat(MIB / SECRET.len());
    for at in (0..bytes).step_by(MIB) {
        file.write_all_at(&block, at).expect("write");
    }
    file.sync_all().expect("fsync");
}

/// How many bytes of the secret can be read in a device, from its beginning to its end.
fn readable(path: &Path) -> usize {
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut block, mut found) = (vec![0; MIB], 0);
    loop {
        let read = file.read(&mut block).expect("read");
        if read == 0 {
            return found;
        }
        found += block[..read].chunks(SECRET.len()).filter(|chunk| chunk == SECRET).count();
    }
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn no_byte_of_a_deleted_volume_is_readable_in_another() {
    let disk = Disk::of(128 << 20);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let (raw_disk, mut found) = (Path::new(disk.device()), 0);

    for wipe in ["Zero", "Discard", "None"] {
        for former in [Mode::Block, EXT4] {
            let class = format!("wipe={wipe}");
            let volume = rig.calls.create("former", Bytes::mib(96), former, &class);
            let volume = volume.expect("create");
            rig.calls.show(&volume);
            let bytes = if former == Mode::Block { 96 << 20 } else { 64 << 20 };
            keep_secret(&volume.file("secret"), bytes);
            rig.calls.hide(&volume);
            rig.calls.delete(&volume).expect("delete");
            drop_caches();
            // What is not wiped at the end is still on the disk: the search below can find it.
            assert_eq!(readable(raw_disk) > 0, wipe == "None", "{wipe} {former}");

            let next = rig.calls.create("next", Bytes::mib(100), Mode::Block, "wipe=None");
            let next = next.expect("create");
            rig.calls.show(&next);
            found += readable(&next.target());
            rig.calls.hide(&next);
            rig.calls.delete(&next).expect("delete");
        }
    }
    found += what_a_growing_tenant_reads(&mut rig);

    assert_eq!(volumes_of("vg0"), [""; 0]);
    figure("canary_bytes_readable", (found * SECRET.len()) as f64);
    assert_eq!(found, 0);
}

/// Grows a raw volume over the extents of a deleted one while its tenant reads it to the end, again
/// and again; says how much of the secret was seen.
fn what_a_growing_tenant_reads(rig: &mut Rig) -> usize {
    let volume = rig.calls.create("grower", Bytes::mib(32), Mode::Block, "").expect("create");
    let former = rig.calls.create("former", Bytes::mib(68), Mode::Block, "wipe=None");
    let former = former.expect("create");
    rig.calls.show(&former);
    keep_secret(&former.file("secret"), 68 << 20);
    rig.calls.hide(&former);
    rig.calls.delete(&former).expect("delete");
    rig.calls.show(&volume);

    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, target) = (stop.clone(), volume.target());
    let tenant = std::thread::spawn(move || {
        let mut found = 0;
        while !stopped.load(Ordering::SeqCst) {
            found += readable(&target);
        }
        found
    });
    let grown = rig.calls.grow(&volume, Bytes::mib(100)).expect("grow");
    stop.store(true, Ordering::SeqCst);
    let found = tenant.join().expect("the tenant") + readable(&volume.target());

    assert_eq!(grown, (Bytes::mib(100), false));
    assert_eq!(rig.calls.shown_size(&volume), Bytes::mib(100));
    rig.calls.hide(&volume);
    rig.calls.delete(&volume).expect("delete");
    found
}

fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "3").expect("drop caches");
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn logical_volumes_of_others_are_counted_and_never_touched() {
    let disk = Disk::of(256 << 20);
    group("vg0", &[&disk]);
    let whole = Bytes::mib(59 * 4);
    // The second has the name that a volume of ours would have, and no record.
    let ours = format!("pliant-{}", VolumeKey::of("guess").as_str());
    for name in ["foreign", &ours] {
        run("lvcreate", &["-y", "-Wn", "-L", "16m", "-n", name, "vg0"]);
    }
    let devices = ["foreign", &ours].map(|name| device_of(&format!("vg0/{name}")));
    for device in &devices {
        fill(&File::options().write(true).open(device).expect("open"), 0..16);
    }
    let before = devices.clone().map(|device| sha256(&device));

    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    assert_eq!(rig.calls.room("").expect("room").0, whole - Bytes::mib(32));
    assert_eq!(rig.calls.ids(), [""; 0]);
    rig.calls.create("guess", Bytes::mib(8), Mode::Block, "").expect_err("the name is taken");
    let volume = rig.calls.create("mine", Bytes::mib(64), EXT4, "").expect("create");
    rig.calls.show(&volume);
    rig.calls.grow(&volume, Bytes::mib(128)).expect("grow");
    rig.crash();
    rig.calls.hide(&volume);
    let guess = volume.renamed(&ours["pliant-".len()..]);
    rig.calls.delete(&guess).expect("not ours is already gone");
    rig.calls.delete(&volume).expect("delete");

    let mut left = volumes_of("vg0");
    left.sort();
    assert_eq!(left, ["foreign", &ours]);
    assert_eq!(devices.map(|device| sha256(&device)), before);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn signatures_in_a_raw_volume_are_nobodys_business() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let good = rig.calls.create("good", Bytes::mib(256), BTRFS, "").expect("create");
    rig.calls.show(&good);
    fill(&good.file("content"), 0..16);
    rig.calls.hide(&good);
    let evil = rig.calls.create("evil", Bytes::mib(300), Mode::Block, "").expect("create");
    rig.calls.show(&evil);
    let raw = evil.file("");

    for (what, bytes) in signatures(&disk, &good) {
        raw.write_all_at(&bytes, 0).expect("write");
        raw.sync_all().expect("fsync");
        rig.crash();

        let visible = run(
            "env",
            &["LVM_SYSTEM_DIR=/run/pliant/lvm/vg0", "pvs", "--noheadings", "-o", "vg_name"]
                .into_iter()
                .chain(["--reportformat", "basic", "--config", "log/report_command_log=0"])
                .collect::<Vec<_>>(),
        );
        let mut ids = [evil.id.clone(), good.id.clone()];
        ids.sort();
        assert_eq!(rig.calls.ids(), ids, "{what}");
        rig.calls.show(&good);
        assert!(holds(&good.file("content"), 0..16), "{what}");
        fill(&good.file("more"), 0..4);
        rig.calls.hide(&good);
        let another = rig.calls.create("another", Bytes::mib(64), EXT4, "").expect("create");
        rig.calls.show(&another);
        rig.calls.hide(&another);
        rig.calls.delete(&another).expect("delete");
        assert_eq!(visible.split_whitespace().collect::<Vec<_>>(), ["vg0"], "{what}");
        let mut seen = vec![0; bytes.len()];
        evil.file("").read_exact_at(&mut seen, 0).expect("read");
        assert!(seen == bytes, "{what}: the tenant's bytes have changed");
        raw.write_all_at(&vec![0; bytes.len()], 0).expect("write");
    }
    drop(raw);
    rig.calls.hide(&evil);
    rig.calls.delete(&evil).expect("delete");
    rig.calls.delete(&good).expect("delete");
    assert_eq!(volumes_of("vg0"), [""; 0]);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_a_former_tenant_has_left_keeps_no_volume_from_being_formatted() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let good = rig.calls.create("good", Bytes::mib(256), BTRFS, "").expect("create");
    rig.calls.show(&good);
    rig.calls.hide(&good);

    for (what, bytes) in signatures(&disk, &good) {
        let former = rig.calls.create("former", Bytes::mib(300), Mode::Block, "wipe=None");
        let former = former.expect("create");
        rig.calls.show(&former);
        let raw = former.file("");
        raw.write_all_at(&bytes, 0).expect("write");
        raw.sync_all().expect("fsync");
        drop(raw);
        rig.calls.hide(&former);
        rig.calls.delete(&former).expect("delete");

        let next = rig.calls.create("next", Bytes::mib(300), EXT4, "wipe=None").expect("create");
        rig.calls.show(&next);
        fill(&next.file("content"), 0..4);
        rig.calls.hide(&next);
        rig.calls.show(&next);
        assert!(holds(&next.file("content"), 0..4), "{what}");
        rig.calls.hide(&next);
        rig.calls.delete(&next).expect("delete");
    }
    rig.calls.delete(&good).expect("delete");
    assert_eq!(volumes_of("vg0"), [""; 0]);
}

/// What a tenant may write at the beginning of its device.
fn signatures(disk: &Disk, good: &Volume) -> Vec<(&'static str, Vec<u8>)> {
    let inner = Disk::of(64 << 20);
    group("inner", &[&inner]);
    run("lvcreate", &["-y", "-an", "-Zn", "-Wn", "-l", "1", "-n", "pliant-inside", "inner"]);
    let of_inner = beginning(Path::new(inner.device()), 17);
    run("vgremove", &["-y", "-f", "inner"]);
    let good_lv = good.lv("vg0");
    run("lvchange", &["-ay", &good_lv]);
    let of_good = beginning(&device_of(&good_lv), 66);
    run("lvchange", &["-an", &good_lv]);
    let mut array = vec![0; 8192];
    array[4096..4104].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    let mut luks = vec![0; 8192];
    luks[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
    vec![
        ("the label and metadata of its own disk", beginning(Path::new(disk.device()), 17)),
        ("another volume group", of_inner),
        ("an md superblock", array),
        ("a LUKS header", luks),
        ("a copy of another volume's btrfs", of_good),
    ]
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_group_that_is_forged_in_a_raw_volume_takes_nothing_from_the_real_one() {
    let disk = Disk::of(1 << 30);
    group("vg0", &[&disk]);
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let good = rig.calls.create("good", Bytes::mib(96), EXT4, "").expect("create");
    rig.calls.show(&good);
    fill(&good.file("content"), 0..16);
    let idle = rig.calls.create("idle", Bytes::mib(32), Mode::Block, "").expect("create");
    let evil = rig.calls.create("evil", Bytes::mib(300), Mode::Block, "").expect("create");
    rig.calls.show(&evil);
    let good_lv = good.lv("vg0").replace("vg0/", "");
    let live = |lv: &str| run("dmsetup", &["table", &format!("vg0-{}", lv.replace('-', "--"))]);
    let before = live(&good_lv);

    for forgery in [Forgery::NoVolumes, Forgery::VolumeElsewhere, Forgery::OtherUuid] {
        let text = forgery.text(&good_lv);
        // As the kubelet makes one over each raw volume of a pod.
        let target = evil.target().to_string_lossy().into_owned();
        let tenant = run("losetup", &["--find", "--show", &target]).trim().to_owned();
        write_metadata(&tenant, &text);
        rig.crash();

        assert_eq!(live(&good_lv), before, "{forgery:?}");
        let mut ids = [&good, &idle, &evil].map(|volume| volume.id.clone());
        ids.sort();
        assert_eq!(rig.calls.ids(), ids, "{forgery:?}");
        let next = rig.calls.create("next", Bytes::mib(64), EXT4, "").expect("create");
        rig.calls.show(&next);
        let lv = next.lv("vg0").replace("vg0/", "");
        assert!(live(&lv).contains(&disk.number()), "{forgery:?}: {}", live(&lv));
        assert!(holds(&good.file("content"), 0..16), "{forgery:?}");
        rig.calls.hide(&next);
        rig.calls.delete(&next).expect("delete");
        run("losetup", &["--detach", &tenant]);
    }
    rig.calls.hide(&good);
    rig.calls.hide(&evil);
    for volume in [&good, &idle, &evil] {
        rig.calls.delete(volume).expect("delete");
    }
    assert_eq!(volumes_of("vg0"), [""; 0]);
}

/// What a tenant writes of the group of the machine into its own volume.
#[derive(Debug, Clone, Copy)]
enum Forgery {
    NoVolumes,
    /// The volume of another, by name and uuid, on the tenant's device.
    VolumeElsewhere,
    OtherUuid,
}

const EVIL_PV: &str = "Evil00-evil-evil-evil-evil-evil-Evil00";

impl Forgery {
    /// The text that `vgcfgbackup` writes of the group, edited.
    fn text(self, lv: &str) -> String {
        let file = "/tmp/vg0.metadata";
        run("vgcfgbackup", &["-f", file, "vg0"]);
        let whole = fs::read_to_string(file).expect("a backup");
        let value = |after: &str, key: &str| {
            let rest = &whole[whole.find(after).expect("a section")..];
            let line = rest.lines().find(|line| line.trim().starts_with(key)).expect("a key");
            line.split('"').nth(1).expect("a value").to_owned()
        };
        let uuid = match self {
            Forgery::OtherUuid => "Ev1l11-evil-evil-evil-evil-evil-Evil11".to_owned(),
            _ => value("vg0 {", "id = "),
        };
        let volumes = match self {
            Forgery::VolumeElsewhere => format!(
                "logical_volumes {{ {lv} {{ id = \"{}\" status = [\"READ\", \"WRITE\", \"VISIBLE\"] \
                 flags = [] segment_count = 1 segment1 {{ start_extent = 0 extent_count = 24 \
                 type = \"striped\" stripe_count = 1 stripes = [\"pv0\", 30] }} }} }}",
                value(&format!("{lv} {{"), "id = ")
            ),
            _ => String::new(),
        };
        format!(
            "contents = \"Text Format Volume Group\"\nversion = 1\ndescription = \"\"\n\
             creation_host = \"evil\"\ncreation_time = 1700000000\n\
             vg0 {{\nid = \"{uuid}\"\nseqno = 999999\nformat = \"lvm2\"\n\
             status = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nflags = []\nextent_size = 8192\n\
             max_lv = 0\nmax_pv = 0\nmetadata_copies = 0\nphysical_volumes {{\npv0 {{\n\
             id = \"{EVIL_PV}\"\ndevice = \"/dev/evil\"\nstatus = [\"ALLOCATABLE\"]\nflags = []\n\
             dev_size = 614400\npe_start = 34816\npe_count = 70\n}}\n}}\n{volumes}\n}}\n"
        )
    }
}

/// Make a device a physical volume with this metadata, with LVM's own tools.
fn write_metadata(device: &str, text: &str) {
    let file = "/tmp/evil.metadata";
    fs::write(file, text).expect("write");
    let only = format!("devices/filter=[\"a|^{device}$|\",\"r|.*|\"]");
    run("wipefs", &["--all", "--quiet", device]);
    let make = ["-y", "--uuid", EVIL_PV, "--norestorefile", "--metadatasize", "16m"];
    run("pvcreate", &[&["--config", &only], &make[..], &[device]].concat());
    let repair = ["-y", "--repairtype", "metadata", "-f", file, "--config", &only, device];
    run("pvck", &repair);
    run("blockdev", &["--flushbufs", device]);
}

fn beginning(path: &Path, mib: usize) -> Vec<u8> {
    // Past the page cache, which LVM's own writes do not go through.
    let _ = attempt("blockdev", &["--flushbufs", &path.to_string_lossy()]);
    let mut bytes = vec![0; mib * MIB];
    File::open(path).expect("open").read_exact_at(&mut bytes, 0).expect("read");
    bytes
}
