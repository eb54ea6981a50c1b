//! The udev of a host: what a tenant writes to a raw volume is assembled by it without the rules of the driver, and
//! not with them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pliant::bytes::Bytes;
use pliant::host::{UDEV_RULES_FILE, write_udev_rules};
use pliant::volume::Mode;

use crate::csi::{Rig, Volume, device_of, group};
use crate::machine::{Disk, attempt, run};

const UDEVD: &str = "/lib/systemd/systemd-udevd";
const RULES: &str = "/run/udev/rules.d";
/// Where the kubelet binds the device of a raw volume and makes a loop device over it.
const KUBELET: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev";
/// How long udevd may take to read its rules again: it looks every 3 s.
const LIMIT: Duration = Duration::from_secs(60);

/// A running udevd; it ends when dropped.
struct Udevd(Child);

impl Udevd {
    /// Starts it without our rules.
    fn start() -> Udevd {
        assert!(Path::new(UDEVD).exists(), "udev is missing; type: e2e/install lvm");
        fs::create_dir_all(RULES).expect("the directory of rules");
        let _ = fs::remove_file(Path::new(RULES).join(UDEV_RULES_FILE)); // Of an earlier test.
        let udevd = Command::new(UDEVD).stdin(Stdio::null()).spawn().expect("udevd");
        let udevd = Udevd(udevd);
        // It answers once it listens.
        let start = Instant::now();
        while attempt("udevadm", &["control", "--ping"]).is_err() {
            assert!(start.elapsed() < LIMIT, "udevd does not answer");
        }
        udevd
    }
}

impl Drop for Udevd {
    fn drop(&mut self) {
        let _ = attempt("udevadm", &["control", "--exit"]);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has udev look at a device as after a write to it, and waits until it and what follows of it is done.
fn look_at(device: &str) {
    run("udevadm", &["trigger", "--settle", "--action=change", device]);
    run("udevadm", &["settle"]);
}

/// The name of a device in sysfs.
fn kernel_name(device: &Path) -> String {
    device.file_name().expect("a device").to_string_lossy().into_owned()
}

/// What the kernel has stacked on a device.
fn holders(device: &Path) -> Vec<String> {
    let names = fs::read_dir(format!("/sys/block/{}/holders", kernel_name(device)));
    let names = names.expect("holders").map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// The beginning of a disk with an array of one disk, and that of one with a volume group of a tenant.
fn tenants_content() -> [(&'static str, Vec<u8>); 2] {
    let disk = Disk::of(64 << 20);
    let words = ["--create", "/dev/md77", "--run", "--level=1", "--raid-devices=1", "--force"];
    run("mdadm", &[&words[..], &["--metadata=1.2", disk.device()]].concat());
    run("mdadm", &["--stop", "/dev/md77"]);
    let array = beginning(&disk);
    drop(disk);
    let disk = Disk::of(64 << 20);
    group("tenant", &[&disk]);
    run("lvcreate", &["-y", "-an", "-Zn", "-Wn", "-l", "1", "-n", "inner", "tenant"]);
    [("an array", array), ("a volume group", beginning(&disk))]
}

fn beginning(disk: &Disk) -> Vec<u8> {
    run("blockdev", &["--flushbufs", disk.device()]);
    let mut bytes = fs::read(disk.file()).expect("the file of the disk");
    bytes.truncate(32 << 20);
    bytes
}

/// A loop device over a raw volume as the kubelet makes one; gone when dropped.
struct Loop(String);

impl Loop {
    fn over(volume: &Volume) -> Loop {
        fs::create_dir_all(KUBELET).expect("the kubelet's directory");
        let node = format!("{KUBELET}/uid");
        fs::write(&node, "").expect("a file");
        run("mount", &["--bind", &volume.target().to_string_lossy(), &node]);
        let device = run("losetup", &["--find", "--show", &node]).trim().to_owned();
        let device = Loop(device);
        look_at(&device.0);
        device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = attempt("losetup", &["--detach", &self.0]);
        let _ = attempt("umount", &[&format!("{KUBELET}/uid")]);
    }
}

/// Does what an answer says between backquotes.
fn follow(advice: &str) {
    let commands = advice.split('`').nth(1).unwrap_or_else(|| panic!("no command: {advice}"));
    run("bash", &["-c", commands]);
    run("udevadm", &["settle"]);
}

/// Does what each answer says until the volume is unstaged: without our rules udev assembles again what it is told
/// of, as when a loop device is detached.
fn follow_until_unstaged(rig: &mut Rig, volume: &Volume, mut said: String) {
    for _ in 0..5 {
        follow(&said);
        match rig.calls.unstage(volume) {
            Ok(()) => return,
            Err(error) => said = error.to_string(),
        }
    }
    panic!("what is said does not help: {said}");
}

/// What udev has assembled of what the tenant has written: on the volume, and on the loop device over it.
fn assembled(rig: &mut Rig, volume: &Volume, what: &str, content: &[u8]) -> (bool, bool) {
    rig.calls.show(volume);
    let device = device_of(&volume.lv("vg0"));
    volume.file("").write_all_at(content, 0).expect("write");
    volume.file("").sync_all().expect("fsync");
    look_at(&device.to_string_lossy());
    let on_volume = !holders(&device).is_empty();
    if on_volume {
        // It is nowhere mounted, and no process has it open.
        run("umount", &[&volume.target().to_string_lossy()]);
        let said = rig.calls.unstage(volume).expect_err("it is held").to_string();
        assert!(said.contains("mdadm --stop /dev/md"), "{what}: {said}");
        follow_until_unstaged(rig, volume, said);
        // Udev looks when it is made live too.
        rig.calls.show(volume);
        run("udevadm", &["settle"]);
        assert_eq!(holders(&device).len(), 1, "{what}");
        run("mdadm", &["--stop", &format!("/dev/{}", holders(&device)[0])]);
        run("udevadm", &["settle"]);
    }
    let above = Loop::over(volume);
    let on_loop = !holders(Path::new(&above.0)).is_empty();
    if on_loop {
        run("umount", &[&volume.target().to_string_lossy()]);
        run("umount", &["--lazy", &format!("{KUBELET}/uid")]);
        let said = rig.calls.unstage(volume).expect_err("it is held").to_string();
        assert!(said.contains(&format!("losetup --detach {}", above.0)), "{what}: {said}");
        assert!(said.contains("mdadm --stop") || said.contains("dmsetup remove tenant-inner"));
        follow_until_unstaged(rig, volume, said);
        rig.calls.show(volume);
        run("udevadm", &["settle"]);
    }
    drop(above);
    volume.file("").write_all_at(&vec![0; content.len()], 0).expect("write");
    volume.file("").sync_all().expect("fsync");
    run("udevadm", &["settle"]);
    for name in holders(&device) {
        run("mdadm", &["--stop", &format!("/dev/{name}")]);
    }
    look_at(&device.to_string_lossy());
    rig.calls.hide(volume);
    (on_volume, on_loop)
}

/// The beginning of a disk with a btrfs, of another fsid each time.
fn tenants_btrfs() -> Vec<u8> {
    let disk = Disk::of(64 << 20);
    run("mkfs.btrfs", &["--quiet", "--mixed", disk.device()]);
    let content = beginning(&disk);
    run("btrfs", &["device", "scan", "--forget"]); // The kernel heard of it from mkfs.
    content
}

/// Clear the kernel's log: a full one has as many lines after a message as before it.
fn clear_log() {
    run("dmesg", &["--clear"]);
}

/// Whether udev has told the kernel of a btrfs on this device since the kernel's log was cleared.
fn is_registered(device: &str) -> bool {
    let known = run("udevadm", &["info", "--query=property", device]);
    let asked = known.lines().any(|line| line.starts_with("ID_BTRFS_READY="));
    let log = run("dmesg", &[]);
    let mut told = log.lines().filter(|line| line.contains("BTRFS: device fsid"));
    let heard = told.any(|line| line.contains(&format!(" {device} ")));
    assert_eq!(asked, heard, "{device}: {known}\n{log}");
    heard
}

/// Whether the kernel hears of a btrfs that the tenant has written: on the volume, and on the loop device over it.
fn registered(rig: &mut Rig, volume: &Volume) -> (bool, bool) {
    let content = tenants_btrfs();
    rig.calls.show(volume);
    let device = device_of(&volume.lv("vg0")).to_string_lossy().into_owned();
    clear_log();
    volume.file("").write_all_at(&content, 0).expect("write");
    volume.file("").sync_all().expect("fsync");
    look_at(&device);
    let on_volume = is_registered(&device);
    let content = tenants_btrfs();
    volume.file("").write_all_at(&content, 0).expect("write");
    volume.file("").sync_all().expect("fsync");
    // Without our rules the volume itself is known by now, and a second path to it is no news.
    run("udevadm", &["settle"]);
    run("btrfs", &["device", "scan", "--forget"]);
    clear_log();
    let above = Loop::over(volume);
    let on_loop = is_registered(&above.0);
    drop(above);
    volume.file("").write_all_at(&vec![0; content.len()], 0).expect("write");
    volume.file("").sync_all().expect("fsync");
    look_at(&device);
    rig.calls.hide(volume);
    run("btrfs", &["device", "scan", "--forget"]);
    (on_volume, on_loop)
}

fn doctor() -> String {
    let said = Command::new(env!("CARGO_BIN_EXE_pliant")).arg("doctor").output().expect("doctor");
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// Until udevd has read rules that nobody has told it of.
fn wait_for_rules(device: &Path) {
    let start = Instant::now();
    let device = device.to_string_lossy();
    loop {
        look_at(&device);
        let known = run("udevadm", &["info", "--query=property", &device]);
        if known.lines().any(|line| line == "DM_UDEV_DISABLE_OTHER_RULES_FLAG=1") {
            return;
        }
        assert!(start.elapsed() < LIMIT, "udevd has not read its rules again: {known}");
    }
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn what_a_tenant_writes_is_assembled_by_udev_without_our_rules_and_not_with_them() {
    let disk = Disk::of(256 << 20);
    group("vg0", &[&disk]);
    let contents = tenants_content();
    let _udevd = Udevd::start();
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let volume = rig.calls.create("evil", Bytes::mib(96), Mode::Block, "").expect("create");

    assert!(doctor().contains("udev passes volume contents to mdadm"), "{}", doctor());
    let before: Vec<(bool, bool)> = contents
        .iter()
        .map(|(what, content)| assembled(&mut rig, &volume, what, content))
        .collect();
    // LVM does not look at what is on its own volumes, and the loop device is none.
    assert_eq!(before, [(true, true), (false, true)], "so this test can fail");

    write_udev_rules(Path::new(RULES)).expect("the rules");
    rig.calls.show(&volume);
    wait_for_rules(&device_of(&volume.lv("vg0")));
    rig.calls.hide(&volume);
    let after: Vec<(bool, bool)> = contents
        .iter()
        .map(|(what, content)| assembled(&mut rig, &volume, what, content))
        .collect();
    assert_eq!(after, [(false, false); 2]);
    assert!(doctor().contains("udev rules protect volume contents from mdadm"), "{}", doctor());
    rig.calls.delete(&volume).expect("delete");

    // A disk is still a disk.
    let plain = Disk::of(64 << 20);
    // The file keeps its size: an array is not assembled on less than it says of itself.
    let file = fs::File::options().write(true).open(plain.file()).expect("the file of the disk");
    file.write_all_at(&contents[0].1, 0).expect("write");
    plain.detach();
    plain.attach();
    look_at(plain.device());
    let held = holders(&PathBuf::from(plain.device()));
    assert_eq!(held.len(), 1, "{UDEV_RULES_FILE} is about volumes alone");
    run("mdadm", &["--stop", &format!("/dev/{}", held[0])]);
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn the_kernel_hears_of_a_tenants_btrfs_from_udev_without_our_rules_and_not_with_them() {
    let disk = Disk::of(256 << 20);
    group("vg0", &[&disk]);
    let _udevd = Udevd::start();
    let mut rig = Rig::with(&["--pool", "default=vg0"]);
    let volume = rig.calls.create("evil", Bytes::mib(96), Mode::Block, "").expect("create");
    assert_eq!(registered(&mut rig, &volume), (true, true), "so this test can fail");

    write_udev_rules(Path::new(RULES)).expect("the rules");
    rig.calls.show(&volume);
    wait_for_rules(&device_of(&volume.lv("vg0")));
    rig.calls.hide(&volume);
    assert_eq!(registered(&mut rig, &volume), (false, false));
    rig.calls.delete(&volume).expect("delete");
}
