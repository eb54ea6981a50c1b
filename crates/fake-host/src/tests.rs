use std::ops::Range;
use std::panic::AssertUnwindSafe;

use serde_json::Value;

use super::*;
use pliant_lvm::host::{Cmd, Host, HostError, NewMount, PathKind};
use pliant_lvm::lvm::Words;
use pliant_lvm::lvm::group::ExtentRun;

mod cuts;

const G: &str = "vg0";

async fn machine() -> FakeHost {
    let host = FakeHost::new();
    let disks = [host.add_disk(Bytes::gib(1)), host.add_disk(Bytes::gib(1))];
    host.add_group(G, &disks);
    host.pin_devices(G, &disks).await.unwrap();
    host
}

/// A command line as one would type it.
fn typed(line: &str) -> Cmd {
    let (program, args) = line.split_once(' ').unwrap();
    Cmd::new(Box::leak(program.to_owned().into_boxed_str())).args(args.split(' '))
}

/// The last `log_ret_code`.
async fn code(host: &FakeHost, line: &str) -> u8 {
    let named = |group: &&str| line.contains(&format!(" {group}"));
    let group = [G, "fresh", "absent"].into_iter().find(named).unwrap_or(G);
    let report = host.lvm(group, typed(line)).await.unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let status = report["log"].as_array().unwrap().last().unwrap();
    assert_eq!((&status["log_type"], &status["log_context"]), (&"status".into(), &"shell".into()));
    status["log_ret_code"].as_str().unwrap().parse().unwrap()
}

async fn lvm(host: &FakeHost, line: &str) {
    assert_eq!(code(host, line).await, 1, "{line}");
}

fn create(name: &str, extents: u64, state: &str) -> String {
    format!(
        "lvcreate -y -Wn -Zn --setautoactivation n -ay -l {extents} -n {name} --addtag \
         pliant.id={name} --addtag pliant.state={state} {G}"
    )
}

async fn ready(host: &FakeHost, name: &str, extents: u64) -> PathBuf {
    lvm(host, &create(name, extents, "new")).await;
    let tags = "--deltag pliant.state=new --addtag pliant.state=shown";
    lvm(host, &format!("lvchange -y {tags} {G}/{name}")).await;
    host.device_of(G, name).unwrap()
}

fn pieces(host: &FakeHost, lv: &str) -> Vec<ExtentRun> {
    let lv = host.group(G).unwrap().lvs.remove(lv).unwrap();
    lv.segments.into_iter().flat_map(|segment| segment.pieces).collect()
}

fn piece(pv: &str, range: Range<u64>) -> ExtentRun {
    let pv = pv.to_owned();
    ExtentRun { pv, range }
}

fn errno(result: Result<impl Sized, HostError>) -> Option<i32> {
    result.err().and_then(|error| error.errno())
}

#[tokio::test]
async fn commands_change_the_disks_as_lvm_does() {
    let host = machine().await;
    assert_eq!(host.group(G).unwrap().extents(), 2 * 251);
    lvm(&host, &create("a", 10, "shown")).await;
    lvm(&host, &create("b", 5, "shown")).await;
    lvm(&host, &format!("lvextend -y -l 12 {G}/a")).await;
    lvm(&host, &format!("lvextend -y -l 14 {G}/a /dev/fake1:7-20")).await;
    lvm(&host, &format!("lvextend -y -l 6 {G}/b /dev/fake0:17-17")).await;
    lvm(&host, &format!("lvextend -y -l 7 {G}/b /dev/fake0:18-18")).await;
    let a = [piece("pv0", 0..10), piece("pv0", 15..17), piece("pv1", 7..9)];
    assert_eq!(pieces(&host, "a"), a);
    assert_eq!(pieces(&host, "b"), [piece("pv0", 10..15), piece("pv0", 17..19)]);
    let group = host.group(G).unwrap();
    assert_eq!((group.seqno, group.free_extents()), (7, 2 * 251 - 21));
    assert_eq!(group.lvs["a"].tags, Words::from(["pliant.id=a", "pliant.state=shown"]));
    let uuid = group.dm_uuid(&group.lvs["b"]);
    let (_, table) = host.dm_table(&uuid).await.unwrap().unwrap();
    let rows: Vec<_> =
        table.iter().map(|row| (row.start, row.length, row.params.as_str())).collect();
    let (extent, pe) = (8192, 34_816);
    let first = format!("259:0 {}", pe + 10 * extent);
    let second = format!("259:0 {}", pe + 17 * extent);
    let expected = [(0, 5 * extent, first.as_str()), (5 * extent, 2 * extent, second.as_str())];
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn what_lvm_refuses_is_refused_with_its_code() {
    let host = machine().await;
    let device = ready(&host, "a", 10).await;
    for line in [
        create("a", 1, "shown"),
        create("b", 503, "shown"),
        format!("lvextend -y -l 10 {G}/a"),
        format!("lvextend -y -l 9 {G}/a"),
        format!("lvextend -y -l 503 {G}/a"),
        format!("lvextend -y -l 9 {G}/absent"),
        "lvremove -y -f absent/a".to_owned(),
        format!("lvremove -y -f {G}/absent"),
        format!("vgcreate -y {G} /dev/fake0"),
        "pvcreate -y --metadatasize 16m /dev/fake0".to_owned(),
    ] {
        assert_eq!(code(&host, &line).await, 5, "{line}");
    }
    assert_eq!(code(&host, &create("b@", 1, "shown")).await, 3);
    host.open(&device);
    assert_eq!(code(&host, &format!("lvremove -y -f {G}/a")).await, 5);
    host.close(&device);
    let before = host.state();
    host.remove_disk(Path::new("/dev/fake1"));
    assert_eq!(code(&host, &format!("lvremove -y -f {G}/a")).await, 5);
    assert_eq!(host.state(), before);
    host.heal_disk(Path::new("/dev/fake1"));
    lvm(&host, &format!("lvremove -y -f {G}/a")).await;
    assert_eq!(host.device_of(G, "a"), None);
}

#[tokio::test]
async fn a_new_volume_shows_what_lay_in_its_extents() {
    let host = machine().await;
    let device = ready(&host, "old", 2).await;
    host.write_at(&device, 5000, b"canary");
    lvm(&host, &format!("lvremove -y -f {G}/old")).await;
    let device = ready(&host, "new", 2).await;
    assert_eq!(host.read_at(&device, 5000, 6).await.unwrap(), b"canary");
    assert_eq!(host.read_at(&device, 8 << 20, 6).await.unwrap(), b"");
    lvm(&host, &format!("lvremove -y -f {G}/new")).await;
    lvm(&host, &create("wiped", 2, "new")).await;
    let device = host.device_of(G, "wiped").unwrap();
    host.write_zeroes(&device, 5001..8 << 20).await.unwrap();
    assert_eq!(host.read_at(&device, 5000, 6).await.unwrap(), b"c\0\0\0\0\0");
}

#[tokio::test]
async fn file_systems_are_made_mounted_and_grown() {
    for kind in pliant_volume::FsKind::ALL {
        let host = machine().await;
        lvm(&host, &create("a", 80, "new")).await;
        let device = host.device_of(G, "a").unwrap();
        let make = host.run(typed(&format!("mkfs.{kind} -q {}", device.display())));
        assert_eq!(make.await.unwrap().code, 0);
        let blkid = host.run(typed(&format!("blkid -p -o export {}", device.display())));
        let found = blkid.await.unwrap().stdout;
        assert_eq!(found, format!("DEVNAME={}\nTYPE={kind}\n", device.display()));
        let target = PathBuf::from("/var/lib/kubelet/v");
        let new = NewMount {
            device: device.clone(),
            target: target.clone(),
            kind: kind.as_str(),
            options: vec!["nodev".to_owned(), "discard".to_owned()],
        };
        assert_eq!(errno(host.mount(&new).await), Some(nix::libc::ENOENT));
        host.make_dir(&target).await.unwrap();
        host.mount(&new).await.unwrap();
        assert_eq!(host.usage(&target).await.unwrap().total, Bytes::mib(320));
        assert_eq!(code(&host, &format!("lvchange -y -an {G}/a")).await, 5);
        lvm(&host, &format!("lvextend -y -l 100 {G}/a")).await;
        let blocks = 400 << 8;
        match kind.as_str() {
            "xfs" => host.xfs_grow(&target, blocks, 25).await.unwrap(),
            "btrfs" => host.btrfs_grow_to_device(&target).await.unwrap(),
            _ => host.ext_resize(&target, blocks).await.unwrap(),
        }
        assert_eq!(host.usage(&target).await.unwrap().total, Bytes::mib(400));
        host.unmount(&target).await.unwrap();
        lvm(&host, &format!("lvchange -y -an {G}/a")).await;
    }
}

#[tokio::test]
async fn a_device_node_is_bound_onto_a_file() {
    let host = machine().await;
    let device = ready(&host, "a", 1).await;
    let target = Path::new("/run/target");
    assert_eq!(errno(host.bind(&device, target, &[]).await), Some(nix::libc::ENOENT));
    host.make_file(target).await.unwrap();
    host.bind(&device, target, &["ro".to_owned()]).await.unwrap();
    let info = host.dm_list().await.unwrap().remove(0);
    let kind = host.path_kind(target).await.unwrap();
    assert_eq!(kind, Some(PathKind::Block(info.number)));
    let mount = host.mounts().await.unwrap().pop().unwrap();
    assert_eq!((mount.root.as_path(), mount.read_only()), (Path::new("/dm-0"), true));
    assert_eq!(errno(host.remove_path(target).await), Some(nix::libc::EBUSY));
    host.unmount(target).await.unwrap();
    host.remove_path(target).await.unwrap();
    assert_eq!(host.path_kind(target).await.unwrap(), None);
}

#[tokio::test]
async fn a_snapshot_keeps_the_content_and_a_merge_puts_it_back() {
    let host = machine().await;
    let device = ready(&host, "a", 2).await;
    host.write_at(&device, 100, b"before");
    let before = host.state();
    lvm(&host, &format!("lvcreate -y -s -l 9 -n a.resize --addtag x {G}/a")).await;
    let names: Vec<_> = host.state().devices.into_keys().collect();
    assert_eq!(names, ["vg0-a", "vg0-a-real", "vg0-a.resize", "vg0-a.resize-cow"]);
    assert_eq!(code(&host, &format!("lvextend -y -l 3 {G}/a")).await, 5);
    host.write_at(&device, 100, b"after!");
    let snapshot = host.device_of(G, "a.resize").unwrap();
    assert_eq!(host.read_at(&snapshot, 100, 6).await.unwrap(), b"before");
    lvm(&host, &format!("lvconvert -y --merge -i 1 {G}/a.resize")).await;
    assert_eq!(host.read_at(&device, 100, 6).await.unwrap(), b"before");
    assert_eq!(host.state(), before);
}

#[tokio::test]
async fn faulty_disks_answer_as_the_kernel_does() {
    let host = machine().await;
    let device = ready(&host, "a", 2).await;
    let disk = Path::new("/dev/fake0");
    host.fail_disk(disk);
    assert_eq!(errno(host.read_at(&device, 0, 1).await), Some(nix::libc::EIO));
    host.heal_disk(disk);
    host.hang_disk(disk);
    let hung = host.flush(&device).await;
    assert!(matches!(hung, Err(HostError::TimedOut { .. })), "{hung:?}");
    let hung = host.lvm(G, typed(&create("b", 1, "shown"))).await;
    assert!(matches!(hung, Err(HostError::TimedOut { .. })), "{hung:?}");
    host.heal_disk(disk);
    host.set_read_only(disk, true);
    assert_eq!(code(&host, &create("b", 1, "shown")).await, 5);
    host.set_read_only(disk, false);
    host.remove_disk(disk);
    assert_eq!(host.disks().await.unwrap().len(), 1);
    let gone = host.read_at(disk, 0, 1).await;
    assert_eq!(errno(gone), Some(nix::libc::ENOENT));
    let below = host.read_at(&device, 0, 1).await;
    assert_eq!(errno(below), Some(nix::libc::EIO));
}

#[tokio::test]
async fn a_foreign_signature_is_seen_until_it_is_wiped() {
    let host = machine().await;
    lvm(&host, &create("a", 1, "new")).await;
    let device = host.device_of(G, "a").unwrap();
    host.set_foreign_signature(&device, "swap");
    let blkid = typed(&format!("blkid -p -o export {}", device.display()));
    let found = host.run(blkid.clone()).await.unwrap().stdout;
    assert!(found.ends_with("TYPE=swap\n"), "{found}");
    host.write_zeroes(&device, 0..4096).await.unwrap();
    assert_eq!(host.run(blkid).await.unwrap().code, 2);
}

/// What the panic of `work` says.
async fn panic_of<T>(work: impl Future<Output = T>) -> String {
    use std::task::Poll;
    let mut work = std::pin::pin!(work);
    let fault = std::future::poll_fn(|cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(_)) => Poll::Ready(None),
            Err(fault) => Poll::Ready(fault.downcast::<String>().ok()),
        }
    });
    fault.await.map_or("no panic".to_owned(), |text| *text)
}

#[tokio::test]
async fn the_door_is_closed_to_what_destroys_data() {
    let host = machine().await;
    let device = ready(&host, "a", 2).await;
    let wiped = panic_of(host.write_zeroes(&device, 0..4096)).await;
    assert_eq!(wiped, "BLKZEROOUT: 0..4096 of a is guarded by no file system");
    let disk = panic_of(host.discard(Path::new("/dev/fake0"), 0..4096)).await;
    assert!(disk.contains("BLKDISCARD: a volume of ours is on the disk"), "{disk}");
    let mkfs = typed(&format!("mkfs.ext4 -F {}", device.display()));
    let retag = |from: &str, to: &str| {
        format!("lvchange -y --deltag pliant.state={from} --addtag pliant.state={to} {G}/a")
    };
    lvm(&host, &retag("shown", "new")).await;
    assert_eq!(host.run(mkfs.clone()).await.unwrap().code, 0);
    lvm(&host, &retag("new", "shown")).await;
    lvm(&host, &format!("lvextend -y -l 3 {G}/a")).await;
    host.write_zeroes(&device, 8 << 20..12 << 20).await.unwrap();
    let over = panic_of(host.write_zeroes(&device, (8 << 20) - 1..12 << 20)).await;
    assert_eq!(over, "BLKZEROOUT: 8388607..12582912 of a is in its file system");
    let again = panic_of(host.run(mkfs)).await;
    assert_eq!(again, format!("`mkfs.ext4 -F {}`: a may hold data", device.display()));
    lvm(&host, &format!("lvcreate -y -Wn -Zn --setautoactivation n -ay -l 1 -n other {G}")).await;
    let other = host.device_of(G, "other").unwrap();
    let foreign = panic_of(host.run(typed(&format!("mkfs.xfs {}", other.display())))).await;
    assert_eq!(foreign, format!("`mkfs.xfs {}`: other is not ours", other.display()));
}

#[tokio::test]
async fn an_unknown_line_is_named() {
    let host = machine().await;
    for (line, unknown) in [
        ("lvs vg0", "`lvs`"),
        ("lvcreate -y -Wn -Zn --setautoactivation n -l 1 -n a --nosync vg0", "`--nosync`"),
        ("lvcreate -y -Zn --setautoactivation n -l 1 -n a vg0", "a line without `-Wn`"),
        ("lvextend -y -l +10%FREE vg0/a", "`-l +10%FREE`"),
        ("lvchange -y -ay -S vg0/a", "`-S`"),
    ] {
        let host = host.after_crash();
        lvm(&host, &create("a", 1, "shown")).await;
        let said = panic_of(host.lvm(G, typed(line))).await;
        assert_eq!(said, format!("the fake does not know {unknown} in `{line}`"));
    }
    let said = panic_of(host.run(typed("parted -l"))).await;
    assert_eq!(said, "the fake does not know `parted -l`");
}

#[tokio::test]
async fn groups_are_made_extended_and_tagged() {
    let host = FakeHost::new();
    let disks = [host.add_disk(Bytes::gib(1)), host.add_disk(Bytes::gib(2))];
    host.pin_devices("fresh", &disks).await.unwrap();
    let state = |host: &FakeHost| host.state().groups.remove("fresh");
    assert_eq!(code(&host, "vgcreate -y fresh /dev/fake0").await, 5);
    let pvcreate = Cmd::new("pvcreate").args(["-y", "--metadatasize", "16m"]);
    host.lvm("fresh", pvcreate.args(&disks)).await.unwrap();
    lvm(&host, "vgcreate -y --addtag pliant.pool=x fresh /dev/fake0").await;
    lvm(&host, "vgextend -y fresh /dev/fake1").await;
    lvm(&host, "vgchange -y --addtag y --deltag pliant.pool=x fresh").await;
    lvm(&host, "vgck --updatemetadata fresh").await;
    let expected = GroupState {
        tags: Words::from(["y"]),
        extents: 251 + 507,
        level: true,
        volumes: BTreeMap::new(),
    };
    assert_eq!(state(&host), Some(expected));
    let pvs = host.group("fresh").unwrap().pvs.into_values();
    assert_eq!(pvs.filter_map(|pv| pv.device).collect::<Vec<_>>(), disks);
    assert_eq!(code(&host, "vgextend -y fresh /dev/fake1").await, 5);
    host.pin_devices("fresh", &disks[..1]).await.unwrap();
    assert_eq!(code(&host, "vgck --updatemetadata fresh").await, 5);
}
