use super::*;

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

#[test]
fn the_wanted_is_told_from_all_else() {
    let table = table();
    let wanted = |device, read_only| ExpectedMount {
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
