//! Device-mapper through its control node.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::dm::{Buffer, DeviceKey, DmCommand, NO_FLUSH, STATUS_TABLE, WITH_UUIDS};
use super::{DmDevice, DmInfo, DmTarget, ioctl};

/// The node that device-mapper is asked through.
pub(super) const CONTROL: &str = "/dev/mapper/control";
/// Room for a first reply; doubled while it is too small.
const ROOM: usize = 16 << 10;
/// Where the doubling ends: a million devices.
const MOST_ROOM: usize = 256 << 20;

/// Lists all devices; none where the kernel has no device-mapper.
pub(super) fn list() -> io::Result<Vec<DmDevice>> {
    let Some(control) = control()? else {
        return Ok(Vec::new());
    };
    let Some(reply) = ask(&control, DmCommand::List, DeviceKey::None, WITH_UUIDS, ROOM)? else {
        return Ok(Vec::new());
    };
    let mut devices = Vec::new();
    for listed in reply.devices()? {
        let uuid = match &listed.uuid {
            Some(uuid) => Some(uuid.clone()),
            None => ask(&control, DmCommand::Status, DeviceKey::Name(&listed.name), 0, 0)?
                .map(|reply| reply.uuid()),
        };
        if let Some(uuid) = uuid {
            devices.push(listed.with(uuid)); // Else it went away meanwhile.
        }
    }
    Ok(devices)
}

/// Finds a device.
pub(super) fn info(uuid: &str) -> io::Result<Option<DmInfo>> {
    Ok(about(uuid, DmCommand::Status, 0, 0)?.map(|reply| reply.info()))
}

/// Finds a device with its live table, in one call.
pub(super) fn table(uuid: &str) -> io::Result<Option<(DmInfo, Vec<DmTarget>)>> {
    let reply = about(uuid, DmCommand::Table, STATUS_TABLE, ROOM)?;
    reply.map(|reply| Ok((reply.info(), reply.targets()?))).transpose()
}

/// Finds a device with the state of its targets, in one call.
pub(super) fn status(uuid: &str) -> io::Result<Option<(DmInfo, Vec<DmTarget>)>> {
    let reply = about(uuid, DmCommand::Table, NO_FLUSH, ROOM)?;
    reply.map(|reply| Ok((reply.info(), reply.targets()?))).transpose()
}

/// Waits until a device has had another count of events than `seen`, or is not there.
///
/// # Source
/// `DM_DEV_ARM_POLL`, since Linux 4.13: the control node is readable once any device has had an event since.
pub(super) async fn event(uuid: &str, seen: u32) -> io::Result<()> {
    let Some(control) = control()? else { return Ok(()) };
    let control = ioctl::wait_for_events(control)?;
    loop {
        ask(control.get_ref(), DmCommand::ArmPoll, DeviceKey::None, 0, 0)?;
        if info(uuid)?.is_none_or(|info| info.events != seen) {
            return Ok(());
        }
        control.readable().await?.clear_ready();
    }
}

/// Drops the table that waits.
pub(super) fn clear(uuid: &str) -> io::Result<()> {
    there(about(uuid, DmCommand::Clear, 0, 0)?.as_ref())
}

/// Lets I/O go on.
pub(super) fn resume(uuid: &str) -> io::Result<()> {
    there(about(uuid, DmCommand::Resume, 0, 0)?.as_ref())
}

/// Sends a message to the first target.
pub(super) fn message(uuid: &str, text: &str) -> io::Result<()> {
    let Some(control) = control()? else { return Err(Errno::ENXIO.into()) };
    let mut buffer = Buffer::message(DeviceKey::Uuid(uuid), text)?;
    ioctl::device_mapper(&control, DmCommand::Message, &mut buffer)
}

/// Removes a device that is not open.
pub(super) fn remove(uuid: &str) -> io::Result<()> {
    about(uuid, DmCommand::Remove, 0, 0).map(drop)
}

fn there(reply: Option<&Buffer>) -> io::Result<()> {
    reply.map(drop).ok_or_else(|| Errno::ENXIO.into())
}

/// Asks about one device; `None` if it, or device-mapper, is not there.
fn about(uuid: &str, command: DmCommand, flags: u32, room: usize) -> io::Result<Option<Buffer>> {
    match control()? {
        Some(control) => ask(&control, command, DeviceKey::Uuid(uuid), flags, room),
        None => Ok(None),
    }
}

/// Asks with more room until the reply fits; `None` for a device that is not there.
fn ask(
    control: &File,
    command: DmCommand,
    key: DeviceKey<'_>,
    flags: u32,
    mut room: usize,
) -> io::Result<Option<Buffer>> {
    loop {
        let mut buffer = Buffer::request(key, flags, room)?;
        match ioctl::device_mapper(control, command, &mut buffer) {
            Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => return Ok(None),
            Err(error) => return Err(error),
            Ok(()) if buffer.full() && room > 0 && room < MOST_ROOM => room *= 2,
            Ok(()) => return Ok(Some(buffer)),
        }
    }
}

/// Opens the control node, made if it is missing; `None` where the kernel has no device-mapper.
fn control() -> io::Result<Option<File>> {
    let open = || File::options().read(true).write(true).open(CONTROL);
    match open() {
        Ok(control) => Ok(Some(control)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if make_control()? {
                open().map(Some)
            } else {
                Ok(None)
            }
        }
        // The node is there, the driver behind it is not.
        Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates the control node; `false` where the kernel has no device-mapper.
fn make_control() -> io::Result<bool> {
    let majors = fs::read_to_string("/proc/devices")?;
    let minors = fs::read_to_string("/proc/misc")?;
    let (Some(major), Some(minor)) = (number(&majors, "misc"), number(&minors, "device-mapper"))
    else {
        return Ok(false);
    };
    fs::create_dir_all(Path::new(CONTROL).parent().unwrap_or(Path::new("/")))?;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    match mknod(CONTROL, SFlag::S_IFCHR, mode, makedev(major, minor)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// The number before a driver's name in a table of `/proc`.
fn number(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let number = words.next()?.parse().ok()?;
        (words.next() == Some(name)).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_found_by_its_whole_name() {
        let table = "Character devices:\n  1 mem\n 10 misc\n\nBlock devices:\n254 miscellaneous\n";
        assert_eq!(number(table, "misc"), Some(10));
        assert_eq!(number(table, "mis"), None);
        assert_eq!(number("  7 loop\n236 device-mapper\n", "device-mapper"), Some(236));
    }
}
