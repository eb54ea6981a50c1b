//! Calls that fail or take long, and LVM that dies alone.

use std::path::PathBuf;
use std::time::Duration;

use pliant_lvm::host::{Cmd, HostError};

use crate::disk::system;
use crate::faults::{Failing, Faults};
use crate::{FakeHost, World};

impl FakeHost {
    /// Let calls fail whose line, as [`FakeHost::effects`] tells it, begins with `call`: nothing is
    /// changed then. A program says so by its exit code, LVM in its report, the kernel with EIO.
    pub fn fail(&self, call: &str, failing: Failing) {
        self.lock().faults.failing = Some((call.to_owned(), failing));
    }

    /// Let the program have a fault in calls whose line begins with `call`, until [`FakeHost::mend`]: it
    /// panics there.
    pub fn panic_at(&self, call: &str) {
        self.lock().faults.panicking = Some(call.to_owned());
    }

    /// Let calls fail as [`FakeHost::fail`] does, each time; the kernel says this.
    pub fn fail_with(&self, call: &str, errno: i32) {
        let mut world = self.lock();
        world.faults.failing = Some((call.to_owned(), Failing::Always));
        world.faults.errno = Some(errno);
    }

    /// Let each LVM command whose line begins with `call` take so long, with its group locked.
    pub fn slow_down(&self, call: &str, by: Duration) {
        self.lock().faults.slow = Some((call.to_owned(), by));
    }

    /// Let LVM die right after the `n`-th effect, and its caller live on.
    pub fn kill_lvm_after(&self, n: usize) {
        self.lock().faults.lvm_dies_after = Some(n);
    }

    /// Let LVM be another version, such as `2.03.16`.
    pub fn set_lvm_version(&self, version: &'static str) {
        self.lock().lvm_version = version;
    }

    /// Let programs whose line begins with `call` do their work and not come back within their limit: they
    /// have their device open until [`FakeHost::close`].
    pub fn outlive(&self, call: &str) {
        self.lock().faults.outlives = Some(call.to_owned());
    }

    /// The answer to who waits for this program, if it does not come back.
    pub(super) fn outlived_by(&self, cmd: &Cmd) -> Result<(), HostError> {
        let mut world = self.lock();
        let (what, limit) = (cmd.to_string(), cmd.limit);
        if !world.faults.outlives.as_ref().is_some_and(|begin| what.starts_with(begin)) {
            return Ok(());
        }
        let mut paths = cmd.args.iter().map(PathBuf::from);
        if let Some(device) = paths.find(|path| path.starts_with("/dev")) {
            *world.openers.entry(device).or_default() += 1;
        }
        Err(HostError::TimedOut { what, limit })
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

    /// Panic, if that is to be at this call.
    pub(super) fn panic_if_asked(&self, call: &str) {
        let begin = self.lock().faults.panicking.clone();
        assert!(!begin.is_some_and(|begin| call.starts_with(&begin)), "a fault at {call}");
    }

    /// The kernel's answer, if this call is to fail.
    pub(super) fn failure_of(&self, call: &str) -> Result<(), HostError> {
        let mut world = self.lock();
        let errno = world.faults.errno.unwrap_or(nix::libc::EIO);
        if world.fails(call) { Err(system(call, errno)) } else { Ok(()) }
    }

    /// Let pass the time that this call takes.
    pub(super) async fn take_time(&self, call: &str) {
        let slow = self.lock().faults.slow.clone();
        if let Some((_, long)) = slow.filter(|(begin, _)| call.starts_with(begin)) {
            tokio::time::sleep(long).await;
        }
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
