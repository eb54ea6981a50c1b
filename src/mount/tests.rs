use super::table::block_number;
use super::*;
use crate::bytes::Bytes;
use crate::testing::FakeHost;

fn mount(device: (u32, u32), root: &str, target: &str, kind: &str) -> Mount {
    Mount {
        device: number(device),
        root: root.into(),
        target: target.into(),
        kind: kind.to_owned(),
        source: "/dev/dm-3".to_owned(),
        mount_options: vec!["rw".to_owned(), "nodev".to_owned()],
        super_options: vec!["rw".to_owned()],
    }
}

fn number((major, minor): (u32, u32)) -> DeviceNumber {
    DeviceNumber { major, minor }
}

fn table() -> MountTable {
    MountTable::of_mounts(vec![
        mount((254, 1), "/", "/staging", "xfs"),
        mount((254, 3), "/", "/staging", "ext4"),
        mount((254, 3), "/", "/target", "ext4"),
        mount((0, 5), "/dm-3", "/block", "devtmpfs"),
        mount((0, 5), "/dm-3//deleted", "/gone", "devtmpfs"),
        mount((0, 5), "/dm-33", "/other", "devtmpfs"),
        mount((0, 6), "/dm-3", "/lookalike", "tmpfs"),
    ])
}

fn targets<'a>(mounts: impl Iterator<Item = &'a Mount>) -> Vec<&'a str> {
    mounts.filter_map(|mount| mount.target.to_str()).collect()
}

#[test]
fn the_topmost_is_seen() {
    let table = table();
    let seen = table.at(Path::new("/staging")).map(|mount| mount.device);
    assert_eq!(seen, Some(number((254, 3))));
    assert_eq!(table.layers(Path::new("/staging")), 2);
    assert_eq!(table.at(Path::new("/nowhere")), None);
}

#[test]
fn a_device_has_its_mounts_and_its_node_has_its_own() {
    let table = table();
    assert_eq!(targets(table.of(number((254, 3)))), ["/staging", "/target"]);
    assert_eq!(targets(table.of_node("dm-3")), ["/block", "/gone"]);
}

#[tokio::test]
async fn what_others_name_as_a_source_is_not_followed() {
    let host = FakeHost::new();
    for source in ["/proc/self/fd/3", "none", "/home/x/../device"] {
        let number = block_number(&host, Path::new(source)).await;
        assert_eq!(number.expect("no look, no error"), None);
    }
    assert_eq!(host.counts().get("path_calls"), None);
}

#[tokio::test]
async fn a_device_mapper_name_as_a_source_is_its_device() {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::mib(100));
    host.add_group("vg0", std::slice::from_ref(&disk));
    host.pin_devices("vg0", &[disk]).await.unwrap();
    let make = "-y -Wn -Zn --setautoactivation n -ay -l 4 -n data vg0".split(' ');
    host.lvm("vg0", crate::host::Cmd::new("lvcreate").args(make)).await.unwrap();
    let device = &host.dm_list().await.unwrap()[0];
    for (name, number) in [("vg0-data", Some(device.number)), ("vg0-other", None)] {
        let source = Path::new("/dev/mapper").join(name);
        assert_eq!(block_number(&host, &source).await.unwrap(), number, "{name}");
    }
}

#[test]
fn the_innermost_mount_below_a_directory_comes_first() {
    let table = MountTable::of_mounts(vec![
        mount((254, 3), "/", "/run/grow/a", "ext4"),
        mount((254, 4), "/", "/run/grow/a/b", "ext4"),
        mount((254, 5), "/", "/run/growth", "ext4"),
    ]);
    let below = table.below(Path::new("/run/grow"));
    assert_eq!(below, [Path::new("/run/grow/a/b"), Path::new("/run/grow/a")]);
}

/// A machine with a directory bound to another.
async fn bound() -> FakeHost {
    let host = FakeHost::new();
    for dir in ["/a", "/b"] {
        host.make_dir(Path::new(dir)).await.unwrap();
    }
    host.bind(Path::new("/a"), Path::new("/b"), &[]).await.unwrap();
    host
}

#[tokio::test]
async fn all_layers_are_unmounted_and_somebody_elses_haste_is_no_error() {
    let host = bound().await;
    let b = Path::new("/b");
    host.bind(Path::new("/a"), b, &[]).await.unwrap();
    let table = MountTable::read(&host).await.unwrap();
    assert!(ensure_unmounted(&host, &table, b).await.unwrap());
    assert_eq!(MountTable::read(&host).await.unwrap().layers(b), 0);
    assert!(ensure_unmounted(&host, &table, b).await.unwrap(), "by a table that is old now");
}

#[tokio::test]
async fn what_is_mounted_again_meanwhile_is_told() {
    let host = bound().await;
    let b = Path::new("/b");
    let table = MountTable::read(&host).await.unwrap();
    host.bind(Path::new("/a"), b, &[]).await.unwrap();
    let answer = ensure_unmounted(&host, &table, b).await;
    assert!(matches!(answer, Err(MountError::StillMounted { .. })), "{answer:?}");
}

#[tokio::test]
async fn what_was_bound_is_looked_at() {
    let host = bound().await;
    let (b, c) = (Path::new("/b"), Path::new("/c"));
    host.make_dir(c).await.unwrap();
    let table = MountTable::read(&host).await.unwrap();
    // Meanwhile the source shows something else.
    host.bind(Path::new("/dev"), b, &[]).await.unwrap();
    let answer = ensure_bound(&host, &table, b, c, &[]).await;
    assert!(matches!(answer, Err(MountError::Occupied { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_node_that_is_another_devices_is_not_taken_for_this_one() {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::mib(1));
    host.make_file(Path::new("/block")).await.unwrap();
    let table = MountTable::read(&host).await.unwrap();
    let device = number((254, 9));
    let answer = ensure_node_bound(&host, &table, &disk, device, Path::new("/block")).await;
    assert!(matches!(answer, Err(MountError::Occupied { .. })), "{answer:?}");
}

#[test]
fn the_wanted_is_told_from_all_else() {
    let table = table();
    let wanted = |device, read_only| Wanted {
        target: Path::new("/target"),
        device: number(device),
        root: Path::new("/"),
        read_only,
    };
    assert!(wanted((254, 3), false).is_in(&table).expect("it is there"));
    let other = wanted((254, 4), true).is_in(&table).expect_err("it is not");
    assert_eq!(
        other.to_string(),
        "/target shows / of device 254:3 (ext4 /dev/dm-3), writable, not / of device 254:4, \
         read-only; see `findmnt /target`, and if that is not needed, run `umount /target`"
    );
    assert!(wanted((254, 3), true).is_in(&table).is_err());
}
