//! The structures that device-mapper's ioctls exchange, packed and parsed. Pure.
//!
//! # Source
//! `linux/dm-ioctl.h`, interface version 4. Numbers are in the host's byte order.

use std::io;

use super::{DeviceNumber, DmDevice, DmInfo, DmTarget};

/// Bytes of `struct dm_ioctl`.
pub(super) const HEADER: usize = 312;
/// Bytes of `struct dm_target_spec`.
const TARGET: usize = 40;
const NAME: std::ops::Range<usize> = 48..176;
const UUID: std::ops::Range<usize> = 176..305;

/// `DM_READONLY_FLAG`.
const READ_ONLY: u32 = 1;
/// `DM_SUSPEND_FLAG`.
const SUSPENDED: u32 = 1 << 1;
/// `DM_STATUS_TABLE_FLAG`: the table as loaded, not the targets' state.
pub(super) const STATUS_TABLE: u32 = 1 << 4;
/// `DM_NOFLUSH_FLAG`: the state as it is, without waiting for what was sent.
pub(super) const NO_FLUSH: u32 = 1 << 11;
/// `DM_ACTIVE_PRESENT_FLAG`.
const LIVE_TABLE: u32 = 1 << 5;
/// `DM_INACTIVE_PRESENT_FLAG`.
const INACTIVE_TABLE: u32 = 1 << 6;
/// `DM_BUFFER_FULL_FLAG`.
const BUFFER_FULL: u32 = 1 << 8;
/// `DM_UUID_FLAG`: in a request for the list, uuids are wanted.
pub(super) const WITH_UUIDS: u32 = 1 << 14;
/// `DM_NAME_LIST_FLAG_HAS_UUID`.
const HAS_UUID: u32 = 1;
/// `DM_NAME_LIST_FLAG_DOESNT_HAVE_UUID`.
const HAS_NO_UUID: u32 = 2;
/// The first minor version of the interface whose list has flags and uuids.
const UUIDS_SINCE: u32 = 45;

/// The commands in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DmCommand {
    /// `DM_LIST_DEVICES`.
    List = 2,
    /// `DM_DEV_REMOVE`.
    Remove = 4,
    /// `DM_DEV_SUSPEND`; without its flag, resume.
    Resume = 6,
    /// `DM_DEV_STATUS`.
    Status = 7,
    /// `DM_TABLE_CLEAR`.
    Clear = 10,
    /// `DM_TABLE_STATUS`.
    Table = 12,
    /// `DM_TARGET_MSG`.
    Message = 14,
    /// `DM_DEV_ARM_POLL`.
    ArmPoll = 16,
}

/// A request, and after the call its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Buffer(Vec<u8>);

/// How a request identifies its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceKey<'a> {
    /// No device.
    None,
    /// By uuid.
    Uuid(&'a str),
    /// By name.
    Name(&'a str),
}

impl Buffer {
    /// A request with `room` bytes for what comes back behind the header.
    ///
    /// # Errors
    /// `InvalidInput` for a name or uuid that does not fit or holds a zero byte.
    pub(super) fn request(key: DeviceKey<'_>, flags: u32, room: usize) -> io::Result<Self> {
        let mut bytes = vec![0; HEADER + room];
        let size = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        put(&mut bytes, 0, 4);
        put(&mut bytes, 12, size);
        put(&mut bytes, 16, 312);
        put(&mut bytes, 28, flags);
        let (field, text) = match key {
            DeviceKey::None => (UUID, ""),
            DeviceKey::Uuid(uuid) => (UUID, uuid),
            DeviceKey::Name(name) => (NAME, name),
        };
        if text.len() >= field.len() || text.contains('\0') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        bytes[field][..text.len()].copy_from_slice(text.as_bytes());
        Ok(Buffer(bytes))
    }

    /// A request with a message for the target of sector 0: `struct dm_target_msg`.
    ///
    /// # Errors
    /// As [`Buffer::request`], and `InvalidInput` for a message with a zero byte.
    pub(super) fn message(key: DeviceKey<'_>, text: &str) -> io::Result<Self> {
        if text.contains('\0') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sector = size_of::<u64>();
        let mut buffer = Buffer::request(key, 0, sector + text.len() + 1)?;
        let at = HEADER + sector;
        buffer.0[at..at + text.len()].copy_from_slice(text.as_bytes());
        Ok(buffer)
    }

    /// The buffer for the kernel to read and write, with the length in its header.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Returns whether the reply did not fit into the buffer.
    pub(super) fn full(&self) -> bool {
        self.flags() & BUFFER_FULL != 0
    }

    /// Returns the state in the header of a reply.
    pub(super) fn info(&self) -> DmInfo {
        let flags = self.flags();
        DmInfo {
            number: device_number(long(&self.0, 40).unwrap_or_default()),
            open_count: word(&self.0, 24).unwrap_or_default(),
            suspended: flags & SUSPENDED != 0,
            live_table: flags & LIVE_TABLE != 0,
            inactive_table: flags & INACTIVE_TABLE != 0,
            read_only: flags & READ_ONLY != 0,
            events: word(&self.0, 32).unwrap_or_default(),
        }
    }

    /// The uuid in the header of a reply.
    pub(super) fn uuid(&self) -> String {
        text(&self.0[UUID])
    }

    /// Returns the devices of a list, each with its uuid where the kernel's interface has it.
    pub(super) fn devices(&self) -> io::Result<Vec<ListedDevice>> {
        let tells = word(&self.0, 4).ok_or_else(malformed)? >= UUIDS_SINCE;
        let mut devices = Vec::new();
        let mut rest = self.data()?;
        loop {
            let device = long(rest, 0).ok_or_else(malformed)?;
            if device == 0 {
                return Ok(devices); // An empty list is one record of zeroes.
            }
            devices.push(listed(rest, device, tells)?);
            match word(rest, 8).ok_or_else(malformed)? as usize {
                0 => return Ok(devices),
                next => rest = rest.get(next..).ok_or_else(malformed)?,
            }
        }
    }

    /// The lines of a table.
    pub(super) fn targets(&self) -> io::Result<Vec<DmTarget>> {
        let data = self.data()?;
        let count = word(&self.0, 20).ok_or_else(malformed)?;
        let mut targets = Vec::new();
        let mut at = 0;
        for _ in 0..count {
            let record = data.get(at..).ok_or_else(malformed)?;
            let target = target(record).ok_or_else(malformed)?;
            targets.push(target);
            // Counted from the start of the data, unlike in the list of devices.
            let next = word(record, 20).ok_or_else(malformed)? as usize;
            if next <= at && targets.len() < count as usize {
                return Err(malformed());
            }
            at = next;
        }
        Ok(targets)
    }

    fn flags(&self) -> u32 {
        word(&self.0, 28).unwrap_or_default()
    }

    /// What stands behind the header: from `data_start` to the `data_size` that the kernel used.
    fn data(&self) -> io::Result<&[u8]> {
        let start = word(&self.0, 16).ok_or_else(malformed)? as usize;
        self.0.get(start..).ok_or_else(malformed)
    }
}

/// A device of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedDevice {
    /// The dm name.
    pub(super) name: String,
    /// Number of the device.
    pub(super) number: DeviceNumber,
    /// Uuid of the device; `None` if the list does not have it.
    pub(super) uuid: Option<String>,
}

impl ListedDevice {
    /// The same with a uuid that is known from elsewhere.
    pub(super) fn with(self, uuid: String) -> DmDevice {
        DmDevice { name: self.name, uuid, number: self.number }
    }
}

/// One `struct dm_name_list`: number, offset of the next, name; aligned behind it the event number
/// and flags, and aligned behind those the uuid.
fn listed(record: &[u8], device: u64, tells: bool) -> io::Result<ListedDevice> {
    let name = record.get(12..).and_then(terminated).ok_or_else(malformed)?;
    let behind = (12 + name.len() + 1).next_multiple_of(8);
    let flags = if tells { word(record, behind + 4).ok_or_else(malformed)? } else { 0 };
    let uuid = if flags & HAS_UUID != 0 {
        let uuid = record.get(behind + 8..).and_then(terminated);
        Some(text(uuid.ok_or_else(malformed)?))
    } else {
        (flags & HAS_NO_UUID != 0).then(String::new)
    };
    Ok(ListedDevice { name: text(name), number: device_number(device), uuid })
}

/// One `struct dm_target_spec` and the text behind it.
fn target(record: &[u8]) -> Option<DmTarget> {
    let params = terminated(record.get(TARGET..)?)?;
    Some(DmTarget {
        start: long(record, 0)?,
        length: long(record, 8)?,
        kind: text(record.get(24..TARGET)?),
        params: text(params),
    })
}

/// The kernel's `huge_encode_dev`: eight bits of the minor, twelve of the major, the minor's rest.
fn device_number(encoded: u64) -> DeviceNumber {
    #[expect(clippy::cast_possible_truncation, reason = "masked to 12 and 32 bits")]
    DeviceNumber {
        major: ((encoded >> 8) & 0xfff) as u32,
        minor: ((encoded & 0xff) | ((encoded >> 12) & 0xffff_ff00)) as u32,
    }
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let long = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_ne_bytes(*long))
}

/// The bytes before the first zero; `None` without one.
fn terminated(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.get(..end)
}

/// The text of a field that need not be terminated.
fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(terminated(field).unwrap_or(field)).into_owned()
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed reply of device-mapper")
}

#[cfg(test)]
mod tests;
