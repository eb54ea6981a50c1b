//! The state directory: LVM's configuration, and the devices that LVM may see.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Cmd, HostError};

/// The threshold of LVM that sets no mark.
const NO_MARK: u32 = 100;

/// The state directory with LVM's directories in it.
#[derive(Debug, Clone)]
pub(super) struct StateDirectory {
    root: PathBuf,
    lock_dir: PathBuf,
    /// Of lanes with a thin pool, the percentage in use at which the kernel sends an event.
    thin_marks: Arc<Mutex<BTreeMap<String, u32>>>,
}

/// The directories of one lane. Each lane has its own, since every LVM command reads the label of
/// every disk that it can see: with one directory, a hung disk would hang the commands of all groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LaneDirs {
    /// Selected by `LVM_SYSTEM_DIR`.
    pub(super) lvm_dir: PathBuf,
    /// The only directory that LVM scans.
    pub(super) pv_dir: PathBuf,
}

impl StateDirectory {
    /// Creates the state directory.
    pub(super) fn make(root: &Path, lock_dir: &Path) -> io::Result<StateDirectory> {
        make_private_dir(root)?;
        let (root, lock_dir) = (root.to_owned(), lock_dir.to_owned());
        Ok(StateDirectory { root, lock_dir, thin_marks: Arc::default() })
    }

    /// Sets the percentage in use of a thin pool at which the kernel sends an event: LVM gives it to pools that it makes
    /// or expands from then on.
    pub(super) fn set_thin_mark(&self, lane: &str, percent: u32) {
        let mut marks = self.thin_marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.insert(lane.to_owned(), percent);
    }

    fn thin_mark(&self, lane: &str) -> u32 {
        let marks = self.thin_marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.get(lane).copied().unwrap_or(NO_MARK)
    }

    /// The directories of a lane, whether they are there or not.
    pub(super) fn lane(&self, name: &str) -> LaneDirs {
        let lane = self.root.join("lvm").join(name);
        LaneDirs { pv_dir: lane.join("pv"), lvm_dir: lane }
    }

    /// Creates the directories of a lane with LVM's configuration in them.
    pub(super) fn make_lane(&self, name: &str) -> io::Result<LaneDirs> {
        let lane = self.lane(name);
        make_private_dir(&lane.pv_dir)?;
        let conf = lane.lvm_dir.join("lvm.conf");
        let text = lvm_conf(&lane.pv_dir, &self.lock_dir, self.thin_mark(name))?;
        if fs::read(&conf).ok().as_deref() != Some(text.as_bytes()) {
            replace(&conf, text.as_bytes())?;
        }
        Ok(lane)
    }
}

/// The right to be the only driver with a state directory: dropped, or when the process dies, it goes to
/// the next one.
#[derive(Debug)]
pub struct StateLock {
    _file: fs::File,
}

/// Takes a state directory for this process alone, waiting at most `limit` for the process that has it.
///
/// Two drivers with one directory are two processes of one driver: the one before, which still ends
/// what it has begun, and the one after, which would begin the same again.
///
/// # Errors
/// [`HostError::TimedOut`] if another process has it still, [`HostError::System`] if the directory can
/// not be made.
pub async fn lock_state(root: &Path, limit: Duration) -> Result<StateLock, HostError> {
    let path = root.join("lock");
    let what = format!("lock {}", path.display());
    let system = |source| HostError::System { what: what.clone(), source };
    let open = || {
        make_private_dir(root)?;
        fs::File::options().create(true).append(true).read(true).mode(0o600).open(&path)
    };
    let file = open().map_err(system)?;
    match file.try_lock() {
        Ok(()) => return Ok(StateLock { _file: file }),
        Err(TryLockError::Error(error)) => return Err(system(error)),
        Err(TryLockError::WouldBlock) => {}
    }
    tracing::warn!(lock = %path.display(), "waiting for another process of this driver to exit");
    let waiting =
        tokio::task::spawn_blocking(move || file.lock().map(|()| StateLock { _file: file }));
    match tokio::time::timeout(limit, waiting).await {
        Ok(Ok(locked)) => locked.map_err(system),
        Ok(Err(_)) => Err(HostError::Died { what }),
        Err(_) => Err(HostError::TimedOut { what, limit }),
    }
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file whole or not at all.
pub(super) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// LVM's configuration: tuned for many small commands on devices that no one else looks at.
fn lvm_conf(pv_dir: &Path, lock_dir: &Path, thin_mark: u32) -> io::Result<String> {
    let (pv_dir, lock_dir) = (quotable(pv_dir)?, quotable(lock_dir)?);
    Ok(format!(
        r#"# Written at each start of pliant, which reads none of its settings from here.
devices {{
	scan = [ "{pv_dir}" ]
	filter = [ "a|.*|" ]
	use_devicesfile = 0
	hints = "none"
	# Nothing here waits for udev or trusts it.
	obtain_device_list_from_udev = 0
	external_device_info_source = "none"
	# The directory holds only the top of each stack.
	md_component_detection = 0
	multipath_component_detection = 0
	# Volume groups inside of volumes belong to their tenants.
	scan_lvs = 0
	issue_discards = 0
}}
global {{
	# Tearing down an asynchronous I/O context costs most of a small command's time.
	use_aio = 0
	notify_dbus = 0
	use_lvmpolld = 0
	use_lvmlockd = 0
	locking_dir = "{lock_dir}"
	units = "b"
	suffix = 0
}}
backup {{
	backup = 0
	archive = 0
}}
activation {{
	monitoring = 0
	# Nobody expands a pool because of it: LVM tells the kernel when to send an event.
	thin_pool_autoextend_threshold = {thin_mark}
	# Nothing here waits for udev, and LVM makes the nodes. This excludes only the rules of LVM and
	# device-mapper from the host's udev: no setting of LVM stops mdadm, btrfs or event activation
	# from reading what is on a volume. The rules of this driver do.
	udev_sync = 0
	udev_rules = 0
	retry_deactivation = 1
	# Locking memory is for volumes with swap or root: ours have neither.
	reserved_memory = 0
	reserved_stack = 0
	mlock_filter = [ "0" ]
}}
log {{
	report_command_log = 1
	command_log_sort = "log_seq_num"
	command_log_selection = "all"
}}
report {{
	output_format = "json"
}}
shell {{
	history_size = 0
}}
"#
    ))
}

/// A path that LVM's configuration language takes between quotes.
fn quotable(path: &Path) -> io::Result<&str> {
    path.to_str()
        .filter(|path| !path.contains(['"', '\\', '\n']))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "unusable state directory"))
}

/// Creates links to exactly these devices, named as the kernel names them.
pub(super) fn pin(pv_dir: &Path, devices: &[PathBuf]) -> io::Result<()> {
    let mut wanted: BTreeMap<OsString, &Path> = BTreeMap::new();
    for device in devices {
        wanted.insert(kernel_name(device)?, device);
    }
    for entry in fs::read_dir(pv_dir)? {
        let entry = entry?;
        let kept = wanted.get(&entry.file_name()).copied();
        if kept.is_some() && fs::read_link(entry.path()).ok().as_deref() == kept {
            wanted.remove(&entry.file_name());
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    wanted.into_iter().try_for_each(|(name, device)| symlink(device, pv_dir.join(name)))
}

impl LaneDirs {
    /// The same command with devices named as LVM sees them: it finds none by its path in `/dev`.
    pub(super) fn visible(&self, mut cmd: Cmd) -> Cmd {
        for arg in &mut cmd.args {
            if let Some(name) = self.visible_device(arg) {
                *arg = name;
            }
        }
        cmd
    }

    /// `/dev/NAME`, or `/dev/NAME:FIRST-LAST` with extents, as a path in the scanned directory.
    fn visible_device(&self, arg: &OsStr) -> Option<OsString> {
        let bytes = arg.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b':');
        let (device, extents) = bytes.split_at(end.unwrap_or(bytes.len()));
        let name = kernel_name(Path::new(OsStr::from_bytes(device))).ok()?;
        let mut visible = self.pv_dir.join(name).into_os_string();
        visible.push(OsStr::from_bytes(extents));
        Some(visible)
    }
}

/// The name in sysfs: the path below `/dev`, slashes as exclamation marks.
fn kernel_name(device: &Path) -> io::Result<OsString> {
    let below = device.strip_prefix("/dev").map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut name = below.as_os_str().as_bytes().to_vec();
    if name.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'!');
    Ok(OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[tokio::test]
    async fn one_process_at_a_time_has_a_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("state");
        let first = lock_state(&root, Duration::ZERO).await.unwrap();
        let refused = lock_state(&root, Duration::ZERO).await;
        assert!(matches!(refused, Err(HostError::TimedOut { .. })), "{refused:?}");

        let next = tokio::spawn(async move { lock_state(&root, Duration::from_secs(60)).await });
        assert!(!next.is_finished());
        drop(first);
        next.await.unwrap().unwrap();
    }

    #[test]
    fn the_configuration_is_written_once_and_again_when_it_differs() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("state");
        let state = StateDirectory::make(&root, Path::new("/run/lock/lvm")).unwrap();
        let made = state.make_lane("vg0").unwrap();
        let conf = made.lvm_dir.join("lvm.conf");
        let first = fs::metadata(&conf).unwrap();
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        assert_eq!(state.make_lane("vg0").unwrap(), made);
        assert_eq!(fs::metadata(&conf).unwrap().ino(), first.ino());
        assert_ne!(state.lane("vg1"), made);

        state.set_thin_mark("vg0", 80);
        state.make_lane("vg0").unwrap();
        assert!(fs::read_to_string(&conf).unwrap().contains("_threshold = 80\n"));
        state.set_thin_mark("vg0", NO_MARK);
        state.make_lane("vg0").unwrap();

        let text = fs::read_to_string(&conf).unwrap();
        assert!(text.contains(&format!("scan = [ \"{}\" ]", made.pv_dir.display())));
        fs::write(&conf, "edited").unwrap();
        state.make_lane("vg0").unwrap();
        assert_eq!(fs::read_to_string(&conf).unwrap(), text);
        assert_eq!(fs::read_dir(&made.lvm_dir).unwrap().count(), 2);
    }

    #[test]
    fn exactly_the_pinned_devices_are_visible() {
        let dir = tempfile::tempdir().unwrap();
        let links = || {
            let mut links: Vec<(OsString, PathBuf)> = fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap())
                .map(|entry| (entry.file_name(), fs::read_link(entry.path()).unwrap()))
                .collect();
            links.sort();
            links
        };
        pin(dir.path(), &["/dev/sda".into(), "/dev/cciss/c0d0".into()]).unwrap();
        let array = ("cciss!c0d0".into(), "/dev/cciss/c0d0".into());
        assert_eq!(links(), [array.clone(), ("sda".into(), "/dev/sda".into())]);
        symlink("/dev/elsewhere", dir.path().join("sdb")).unwrap();
        pin(dir.path(), &["/dev/sdb".into(), "/dev/cciss/c0d0".into()]).unwrap();
        assert_eq!(links(), [array, ("sdb".into(), "/dev/sdb".into())]);
        assert!(pin(dir.path(), &["/etc/passwd".into()]).is_err());
        pin(dir.path(), &[]).unwrap();
        assert_eq!(links(), []);
    }

    #[test]
    fn lvm_is_told_devices_by_the_names_that_it_sees() {
        let lane = LaneDirs { lvm_dir: "/s/lvm".into(), pv_dir: "/s/pv".into() };
        let args = ["-y", "vg0/lv", "/dev/sda", "/dev/cciss/c0d0:5-50", "/dev/", "a/dev/b"];
        let seen = ["-y", "vg0/lv", "/s/pv/sda", "/s/pv/cciss!c0d0:5-50", "/dev/", "a/dev/b"];
        let cmd = Cmd::new("vgextend").args(args);
        assert_eq!(lane.visible(cmd), Cmd::new("vgextend").args(seen));
    }
}
