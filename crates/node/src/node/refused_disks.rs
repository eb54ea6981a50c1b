//! Which standby disks LVM has refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::host::{Disk, Host};

/// Where a label stands, and the header of the metadata behind it.
const HEAD: usize = 8192;

/// A standby disk that LVM has refused, as it was then.
#[derive(Debug)]
struct RefusedDisk {
    disk: Disk,
    head: Vec<u8>,
    why: String,
}

/// The standby disks that LVM has refused since the start, by the kernel's names, until they change.
#[derive(Debug, Default)]
pub(super) struct RefusedDisks(Mutex<BTreeMap<PathBuf, RefusedDisk>>);

impl RefusedDisks {
    fn all(&self) -> MutexGuard<'_, BTreeMap<PathBuf, RefusedDisk>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why LVM has rejected a disk; `None` if it has not.
    pub fn why(&self, device: &Path) -> Option<String> {
        self.all().get(device).map(|refused| refused.why.clone())
    }

    /// Notes that LVM has refused a disk.
    pub async fn note(&self, host: &dyn Host, disk: &Disk, why: String) {
        // One that cannot be read is another one when it can.
        let head = host.read_at(&disk.path, 0, HEAD).await.unwrap_or_default();
        self.all().insert(disk.path.clone(), RefusedDisk { disk: disk.clone(), head, why });
    }

    /// Forgets those that are not what they were: another disk, or one with another beginning.
    pub async fn forget_changed(&self, host: &dyn Host, disks: &[Disk]) {
        let paths: Vec<PathBuf> = self.all().keys().cloned().collect();
        for path in paths {
            let head = host.read_at(&path, 0, HEAD).await.unwrap_or_default();
            let now = disks.iter().find(|disk| disk.path == path);
            let is_same = |then: &RefusedDisk| now == Some(&then.disk) && then.head == head;
            self.all().retain(|at, refused| *at != path || is_same(refused));
        }
    }

    /// Forgets one that has joined a group.
    pub fn forget(&self, device: &Path) {
        self.all().remove(device);
    }
}
