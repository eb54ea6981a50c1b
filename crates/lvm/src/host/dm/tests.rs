//! Replies as the kernel lays them out, built by hand.

use proptest::prelude::*;

use super::*;

fn reply(minor_version: u32, flags: u32, count: u32, data: &[u8]) -> Buffer {
    let mut buffer = Buffer::request(DeviceKey::None, flags, 0).unwrap();
    put(&mut buffer.0, 4, minor_version);
    put(&mut buffer.0, 20, count);
    buffer.0.extend_from_slice(data);
    buffer
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// One record of the list; `flags` as the kernel sets them, none in old kernels.
fn record(device: u64, name: &str, flags: Option<u32>, uuid: &str, last: bool) -> Vec<u8> {
    let mut bytes = device.to_ne_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(name.as_bytes());
    bytes.push(0);
    pad(&mut bytes);
    bytes.extend(7_u32.to_ne_bytes());
    bytes.extend(flags.unwrap_or_default().to_ne_bytes());
    if flags == Some(HAS_UUID) {
        bytes.extend(uuid.as_bytes());
        bytes.push(0);
    }
    pad(&mut bytes);
    let next = if last { 0 } else { u32::try_from(bytes.len()).unwrap() };
    put(&mut bytes, 8, next);
    bytes
}

fn spec(start: u64, length: u64, kind: &str, params: &str, at: usize) -> Vec<u8> {
    let mut bytes = start.to_ne_bytes().to_vec();
    bytes.extend(length.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(kind.as_bytes());
    bytes.resize(TARGET, 0);
    bytes.extend(params.as_bytes());
    bytes.push(0);
    pad(&mut bytes);
    let next = u32::try_from(at + bytes.len()).unwrap();
    put(&mut bytes, 20, next);
    bytes
}

fn listed_as(name: &str, major: u32, minor: u32, uuid: Option<&str>) -> ListedDevice {
    ListedDevice {
        name: name.to_owned(),
        number: DeviceNumber { major, minor },
        uuid: uuid.map(str::to_owned),
    }
}

#[test]
fn a_request_names_its_device_and_its_own_size() {
    let buffer = Buffer::request(DeviceKey::Uuid("LVM-a"), STATUS_TABLE, 100).unwrap();
    assert_eq!(buffer.0.len(), 412);
    let words: Vec<u32> = [0, 4, 12, 16, 28].map(|at| word(&buffer.0, at).unwrap()).into();
    assert_eq!(words, [4, 0, 412, 312, 16]);
    assert_eq!(&buffer.0[176..182], b"LVM-a\0");
    let named = Buffer::request(DeviceKey::Name("vg-lv"), 0, 0).unwrap();
    assert_eq!(&named.0[48..54], b"vg-lv\0");
    for bad in ["x".repeat(129), "a\0b".to_owned()] {
        assert!(Buffer::request(DeviceKey::Uuid(&bad), 0, 0).is_err());
    }
    assert!(Buffer::request(DeviceKey::Uuid(&"x".repeat(128)), 0, 0).is_ok());
}

#[test]
fn the_header_tells_the_state() {
    let mut buffer = reply(47, READ_ONLY | SUSPENDED | INACTIVE_TABLE, 0, &[]);
    put(&mut buffer.0, 24, 3);
    put(&mut buffer.0, 32, 7);
    put(&mut buffer.0, 40, (254 << 8) | 0x34 | (0x12 << 20));
    assert_eq!(
        buffer.info(),
        DmInfo {
            number: DeviceNumber { major: 254, minor: 0x1234 },
            open_count: 3,
            suspended: true,
            live_table: false,
            inactive_table: true,
            read_only: true,
            events: 7,
        }
    );
    assert!(!buffer.full());
    assert!(reply(47, BUFFER_FULL, 0, &[]).full());
}

#[test]
fn the_list_is_read_to_its_last_record() {
    let data = [
        record((254 << 8) | 1, "vg-a", Some(HAS_UUID), "LVM-1", false),
        record(254 << 8, "plain", Some(HAS_NO_UUID), "", false),
        record((254 << 8) | 2, "vg-abcdefg", Some(HAS_UUID), "LVM-22-real", true),
    ]
    .concat();
    let expected = [
        listed_as("vg-a", 254, 1, Some("LVM-1")),
        listed_as("plain", 254, 0, Some("")),
        listed_as("vg-abcdefg", 254, 2, Some("LVM-22-real")),
    ];
    assert_eq!(reply(47, 0, 0, &data).devices().unwrap(), expected);
    assert_eq!(reply(47, 0, 0, &[0; 16]).devices().unwrap(), []);
}

#[test]
fn an_old_kernel_lists_no_uuids() {
    let data = record(254 << 8, "vg-a", None, "", true);
    let expected = [listed_as("vg-a", 254, 0, None)];
    assert_eq!(reply(44, 0, 0, &data).devices().unwrap(), expected);
}

#[test]
fn a_table_is_read_line_by_line() {
    let first = spec(0, 8192, "linear", "7:0 2048", 0);
    let second = spec(8192, 4096, "snapshot-origin", "254:1", first.len());
    let data = [first, second].concat();
    let expected = [
        DmTarget { start: 0, length: 8192, kind: "linear".into(), params: "7:0 2048".into() },
        DmTarget {
            start: 8192,
            length: 4096,
            kind: "snapshot-origin".into(),
            params: "254:1".into(),
        },
    ];
    assert_eq!(reply(47, 0, 2, &data).targets().unwrap(), expected);
    assert_eq!(reply(47, 0, 0, &data).targets().unwrap(), []);
    for end in 0..data.len() - 2 {
        assert!(reply(47, 0, 3, &data[..end]).targets().is_err(), "cut at {end}");
    }
}

#[test]
fn a_record_that_points_at_itself_is_malformed() {
    let mut target = spec(0, 1, "zero", "", 0);
    put(&mut target, 20, 0);
    assert!(reply(47, 0, u32::MAX, &target).targets().is_err());
}

proptest! {
    #[test]
    fn no_reply_makes_it_panic(
        header in proptest::collection::vec(any::<u8>(), HEADER),
        data in proptest::collection::vec(any::<u8>(), 0..200),
        small_offsets in any::<bool>(),
    ) {
        let mut buffer = Buffer([header, data].concat());
        if small_offsets {
            put(&mut buffer.0, 16, 312);
        }
        let _ = (buffer.devices(), buffer.targets(), buffer.info(), buffer.uuid());
    }
}
