//! What is mounted, bound and unmounted on a machine.

use std::path::Path;

use pliant_fake_host::FakeHost;
use pliant_lvm::host::{Cmd, DeviceNumber, Host};
use pliant_lvm::mount::{
    MountError, MountTable, block_number, ensure_bound, ensure_node_bound, ensure_unmounted,
};
use pliant_volume::bytes::Bytes;

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
    host.lvm("vg0", Cmd::new("lvcreate").args(make)).await.unwrap();
    let device = &host.dm_list().await.unwrap()[0];
    for (name, number) in [("vg0-data", Some(device.number)), ("vg0-other", None)] {
        let source = Path::new("/dev/mapper").join(name);
        assert_eq!(block_number(&host, &source).await.unwrap(), number, "{name}");
    }
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
    let device = DeviceNumber { major: 254, minor: 9 };
    let answer = ensure_node_bound(&host, &table, &disk, device, Path::new("/block")).await;
    assert!(matches!(answer, Err(MountError::Occupied { .. })), "{answer:?}");
}
