//! The mount table, mounting, binding, unmounting.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sys::statvfs::{FsFlags, fstatvfs};

use super::paths::{held, hold, split};
use super::{DeviceNumber, Mount, NewMount};

/// The options that are flags of the mount call. What is not here is text for the file system.
const FLAGS: [(&str, MsFlags); 15] = [
    ("ro", MsFlags::MS_RDONLY),
    ("nodev", MsFlags::MS_NODEV),
    ("nosuid", MsFlags::MS_NOSUID),
    ("noexec", MsFlags::MS_NOEXEC),
    ("noatime", MsFlags::MS_NOATIME),
    ("nodiratime", MsFlags::MS_NODIRATIME),
    ("relatime", MsFlags::MS_RELATIME),
    ("strictatime", MsFlags::MS_STRICTATIME),
    ("lazytime", MsFlags::MS_LAZYTIME),
    ("sync", MsFlags::MS_SYNCHRONOUS),
    ("dirsync", MsFlags::MS_DIRSYNC),
    ("mand", MsFlags::MS_MANDLOCK),
    ("silent", MsFlags::MS_SILENT),
    ("iversion", MsFlags::MS_I_VERSION),
    // `MS_NOSYMFOLLOW`, which the crate has no name for.
    ("nosymfollow", MsFlags::from_bits_retain(256)),
];

/// The options that ask for what is so without them. They take back no flag: the stricter one holds.
const DEFAULTS: [&str; 14] = [
    "async",
    "atime",
    "defaults",
    "dev",
    "diratime",
    "exec",
    "loud",
    "nolazytime",
    "nomand",
    "norelatime",
    "nostrictatime",
    "rw",
    "suid",
    "symfollow",
];

/// What a bind mount keeps of the mount that it is taken from.
const KEPT: [(FsFlags, MsFlags); 4] = [
    (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
    (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
    (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
    (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
];

/// Our mount namespace's table.
pub(super) const TABLE: &str = "/proc/self/mountinfo";

/// Reads the mount table.
pub(super) fn list(table: &Path) -> io::Result<Vec<Mount>> {
    let table = std::fs::read(table)?;
    let lines = table.split(|byte| *byte == b'\n');
    lines
        .filter(|line| !line.is_empty())
        .map(|line| parse(line).ok_or_else(|| io::ErrorKind::InvalidData.into()))
        .collect()
}

/// Directory in which the kernel describes mounted file systems of the ext family, by the names of
/// their devices.
pub(super) const SYS_EXT: &str = "/sys/fs/ext4";

/// The device-mapper devices among these in whose ext file system there are errors, and how many.
pub(super) fn ext_errors(
    sys: &Path,
    devices: &[DeviceNumber],
) -> io::Result<BTreeMap<DeviceNumber, u64>> {
    let mut errors = BTreeMap::new();
    for device in devices {
        let count = sys.join(format!("dm-{}", device.minor)).join("errors_count");
        match std::fs::read_to_string(count) {
            // A file system that is being unmounted is already gone from there, or says so.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => {}
            text => match text?.trim().parse().map_err(io::Error::other)? {
                0 => {}
                count => drop(errors.insert(*device, count)),
            },
        }
    }
    Ok(errors)
}

/// One line of `/proc/self/mountinfo`.
///
/// # Source
/// proc_pid_mountinfo(5): id, parent, device, root, target, options, optional fields up to a lone
/// hyphen, type, source, options of the file system.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = DeviceNumber::parse(&text(fields.nth(2)?))?;
    let root = path(fields.next()?);
    let target = path(fields.next()?);
    let mount_options = options(fields.next()?);
    fields.find(|field| *field == b"-")?;
    Some(Mount {
        device,
        root,
        target,
        kind: text(fields.next()?),
        source: text(fields.next()?),
        mount_options,
        super_options: options(fields.next()?),
    })
}

fn options(field: &[u8]) -> Vec<String> {
    text(field).split(',').map(str::to_owned).collect()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(decode(field)))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&decode(field)).into_owned()
}

/// Undoes the kernel's `\ooo` for blanks, tabs, newlines, hashes and backslashes.
fn decode(field: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'\\').then(|| after.first_chunk().copied().and_then(octal));
        if let Some(Some(byte)) = escaped {
            decoded.push(byte);
            rest = &after[3..];
        } else {
            decoded.push(*first);
            rest = after;
        }
    }
    decoded
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    let digit = |byte: u8| matches!(byte, b'0'..=b'7').then(|| u32::from(byte - b'0'));
    let [high, middle, low] = digits.map(digit);
    u8::try_from(high? * 64 + middle? * 8 + low?).ok()
}

/// Flags for the call, and the rest as text for the file system.
fn split_options(options: &[String]) -> (MsFlags, Option<String>) {
    let mut flags = MsFlags::empty();
    let mut data = Vec::new();
    for option in options {
        match FLAGS.iter().find(|(name, _)| name == option) {
            Some((_, flag)) => flags |= *flag,
            None if DEFAULTS.contains(&option.as_str()) => {}
            None => data.push(option.as_str()),
        }
    }
    (flags, (!data.is_empty()).then(|| data.join(",")))
}

/// Mount a file system.
pub(super) fn mount(mount: &NewMount) -> io::Result<()> {
    let (flags, data) = split_options(&mount.options);
    let target = hold(&mount.target)?;
    let data = data.as_deref();
    let device = mount.device.as_path();
    nix::mount::mount(Some(device), &held(&target), Some(mount.kind), flags, data)?;
    Ok(())
}

/// Binds, then set the flags; a bind whose flags could not be set is undone.
pub(super) fn bind(source: &Path, target: &Path, flags: &[String]) -> io::Result<()> {
    let (flags, unknown) = split_options(flags);
    if unknown.is_some() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    attach(&held(&hold(source)?), &held(&hold(target)?), MsFlags::MS_BIND)?;
    if flags.is_empty() {
        return Ok(());
    }
    set_flags(target, flags).inspect_err(|_| {
        // No one may find it writable who asked for a read-only one.
        let _ = unmount(target);
    })
}

/// Gives a bind mount flags beside those that it has from its source.
fn set_flags(target: &Path, flags: MsFlags) -> io::Result<()> {
    let top = hold(target)?; // Opened again: now it is the new mount's root.
    let has = fstatvfs(&top)?.flags();
    let kept = KEPT.iter().filter(|(status, _)| has.contains(*status));
    let flags = kept.fold(flags, |flags, (_, flag)| flags | *flag);
    attach(Path::new(""), &held(&top), MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags)
}

/// Makes a file system writable, and its mount at a path. The kernel removes flags that are not
/// listed; options of the file system stay.
pub(super) fn mount_writable(target: &Path, flags: &[String]) -> io::Result<()> {
    let (flags, _) = split_options(flags);
    let flags = flags.difference(MsFlags::MS_RDONLY);
    attach(Path::new(""), &held(&hold(target)?), MsFlags::MS_REMOUNT | flags)
}

fn attach(source: &Path, target: &Path, flags: MsFlags) -> io::Result<()> {
    let none: Option<&str> = None;
    nix::mount::mount(Some(source), target, none, flags, none)?;
    Ok(())
}

/// Unmounts the topmost mount at a path.
///
/// It is named by its last name below the directory that is held: holding the mount itself would
/// make it busy. `EINVAL` if nothing is mounted there.
pub(super) fn unmount(target: &Path) -> io::Result<()> {
    let (above, name) = split(target)?;
    let above = hold(above)?;
    umount2(&held(&above).join(name), MntFlags::UMOUNT_NOFOLLOW)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_of_the_devices_that_have_some() {
        let sys = tempfile::tempdir().unwrap();
        for (name, count) in [("dm-0", "0\n"), ("dm-1", "3\n"), ("dm-3", "7\n")] {
            std::fs::create_dir(sys.path().join(name)).unwrap();
            std::fs::write(sys.path().join(name).join("errors_count"), count).unwrap();
        }
        let of = |minor| DeviceNumber { major: 254, minor };
        let found = ext_errors(sys.path(), &[of(0), of(1), of(2)]).unwrap();
        assert_eq!(found, BTreeMap::from([(of(1), 3)]));
    }

    #[test]
    fn a_line_is_parsed_and_its_escapes_decoded() {
        let line = br"36 35 254:3 /mnt\0401\011\134040 /a\040b\012c\043 rw,nodev shared:1 master:2 - ext4 /dev/dm\0553 ro,data=ordered";
        let expected = Mount {
            device: DeviceNumber { major: 254, minor: 3 },
            root: "/mnt 1\t\\040".into(),
            target: "/a b\nc#".into(),
            kind: "ext4".into(),
            source: "/dev/dm-3".into(),
            mount_options: vec!["rw".into(), "nodev".into()],
            super_options: vec!["ro".into(), "data=ordered".into()],
        };
        assert!(expected.read_only());
        assert_eq!(parse(line), Some(expected));
    }

    #[test]
    fn what_only_looks_like_an_escape_stays() {
        for plain in [r"a\", r"a\04", r"\0409"[..2].as_ref(), r"\999", r"\777", r"\x41"] {
            assert_eq!(decode(plain.as_bytes()), plain.as_bytes(), "{plain}");
        }
    }

    #[test]
    fn a_line_cut_anywhere_is_no_mount() {
        let line = b"36 35 254:3 / /a rw - ext4 /dev/a rw";
        for end in 0..line.len() - 3 {
            assert_eq!(parse(&line[..end]), None, "{end}");
        }
        assert!(parse(line).is_some());
    }

    #[test]
    fn our_own_table_is_understood() {
        let mounts = list(Path::new(TABLE)).unwrap();
        assert!(mounts.iter().any(|mount| mount.kind == "proc"));
    }

    #[test]
    fn flags_go_to_the_call_and_the_rest_to_the_file_system() {
        let options = ["ro", "discard", "noatime", "rw", "data=journal"].map(str::to_owned);
        let (flags, data) = split_options(&options);
        assert_eq!(flags, MsFlags::MS_RDONLY | MsFlags::MS_NOATIME);
        assert_eq!(data.as_deref(), Some("discard,data=journal"));
        assert_eq!(split_options(&[]), (MsFlags::empty(), None));
    }
}
