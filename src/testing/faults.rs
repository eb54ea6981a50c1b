//! Calls that fail, and LVM that dies alone.

use super::disks::system;
use super::{FakeHost, World};
use crate::host::HostError;

/// Which calls fail.
#[derive(Clone, Default)]
pub(super) struct Faults {
    failing: Option<(String, Failing)>,
    lvm_dies_after: Option<usize>,
    uninstalled: Option<String>,
}

/// How often a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// The next time only.
    Once,
    /// Each time, until [`FakeHost::mend`].
    Always,
}

impl FakeHost {
    /// Let calls fail whose line, as [`FakeHost::effects`] tells it, begins with `call`: nothing is
    /// changed then. A program says so by its exit code, LVM in its report, the kernel with EIO.
    pub fn fail(&self, call: &str, failing: Failing) {
        self.lock().faults.failing = Some((call.to_owned(), failing));
    }

    /// Let LVM die right after the `n`-th effect, and its caller live on.
    pub fn kill_lvm_after(&self, n: usize) {
        self.lock().faults.lvm_dies_after = Some(n);
    }

    /// Let a program be none that this machine has.
    pub fn uninstall(&self, program: &str) {
        self.lock().faults.uninstalled = Some(program.to_owned());
    }

    /// Let everything work again.
    pub fn mend(&self) {
        self.lock().faults = Faults::default();
    }

    /// The kernel's answer, if this program is not installed.
    pub(super) fn absence_of(&self, program: &str, typed: &str) -> Result<(), HostError> {
        if self.lock().faults.uninstalled.as_deref() == Some(program) {
            let (what, source) = (typed.to_owned(), std::io::ErrorKind::NotFound.into());
            return Err(HostError::NotStarted { what, source });
        }
        Ok(())
    }

    /// The kernel's answer, if this call is to fail.
    pub(super) fn failure_of(&self, call: &str) -> Result<(), HostError> {
        if self.lock().fails(call) { Err(system(call, nix::libc::EIO)) } else { Ok(()) }
    }

    /// Whether LVM dies here.
    pub(super) fn lvm_dies(&self) -> bool {
        let mut world = self.lock();
        let done = world.effects.count();
        world.faults.lvm_dies_after.take_if(|n| *n == done).is_some()
    }
}

impl World {
    fn fails(&mut self, call: &str) -> bool {
        match &self.faults.failing {
            Some((begin, failing)) if call.starts_with(begin) => {
                if *failing == Failing::Once {
                    self.faults.failing = None;
                }
                true
            }
            _ => false,
        }
    }
}
