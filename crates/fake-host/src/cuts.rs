//! Effects are numbered, and the machine can be stopped at each.

use std::future::{Future, pending};

use crate::disk::Survivors;
use crate::effects::{Effects, Side};
use crate::faults::Faults;
use crate::{FakeHost, World};

impl FakeHost {
    /// What was changed so far, in order; the first is number 1.
    pub fn effects(&self) -> Vec<String> {
        self.lock().effects.done.clone()
    }

    /// Forget the effects so far, so that the next one is number 1.
    pub fn forget_effects(&self) {
        self.lock().effects = Effects::default();
    }

    /// Stop the machine at the `n`-th effect, counted from 1: from then on no call comes back.
    pub fn cut_at(&self, n: usize, side: Side) {
        self.lock().effects.cut = Some((n, side));
    }

    /// Hold back whoever does the `n`-th effect, counted from 1, right after it; all others go on.
    pub fn hold_after(&self, n: usize) {
        self.lock().effects.hold = Some(n);
    }

    /// Hold back whoever runs the next program whose line begins with `call`, at its end: the program still
    /// runs. `open PATH` holds back whoever opens a device to keep it open, and `read PATH` whoever reads
    /// one, before that. All others go on.
    pub fn hold_call(&self, call: &str) {
        self.lock().effects.hold_call = Some(call.to_owned());
    }

    /// Wait until somebody is held back.
    pub async fn held(&self) {
        let _ = self.held.subscribe().wait_for(|held| *held).await;
    }

    /// Let those who are held back go on.
    pub fn let_go(&self) {
        self.held.send_replace(false);
    }

    /// Run `work` until it ends or the machine is stopped; `None` if it was stopped.
    pub async fn run_until_cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stopped = self.stopped.subscribe();
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => None,
            result = work => Some(result),
        }
    }

    /// The machine after its driver, and the LVM command that it ran, were killed: the kernel still
    /// knows its devices, tables and mounts. Effects are counted anew; this handle is not affected.
    pub fn after_crash(&self) -> FakeHost {
        let mut world = self.lock().clone();
        world.locks.clear();
        world.held.clear();
        world.thin_marks.clear();
        world.effects = Effects::default();
        world.faults = Faults::default();
        FakeHost::of(world)
    }

    /// The machine after a power cut, started again: what was not flushed is gone from every disk.
    pub fn after_power_cut(&self) -> FakeHost {
        self.without_power(&mut Survivors::None)
    }

    /// As [`FakeHost::after_power_cut`], but of what was not flushed an arbitrary part, chosen by
    /// `seed`, has reached the disks: caches write in any order.
    pub fn after_power_cut_with(&self, seed: u64) -> FakeHost {
        self.without_power(&mut Survivors::Some(seed))
    }

    fn without_power(&self, survivors: &mut Survivors) -> FakeHost {
        let host = self.after_crash();
        let mut world = host.lock();
        world.boot();
        for disk in world.disks.values_mut() {
            disk.lose_power(survivors);
        }
        world.lose_thin();
        drop(world);
        host
    }

    /// Do one effect; never comes back if the machine stops here.
    pub(super) async fn effect<T: Send>(
        &self,
        what: String,
        act: impl FnOnce(&mut World) -> T + Send,
    ) -> T {
        self.turn().await;
        let number = {
            let done = &mut self.lock().effects.done;
            done.push(what);
            done.len()
        };
        self.stop_at(number, Side::Before).await;
        let result = act(&mut self.lock());
        self.stop_at(number, Side::After).await;
        self.hold_at(number).await;
        result
    }

    /// Let others go first, as every real call does; never comes back on a stopped machine.
    pub(super) async fn turn(&self) {
        tokio::task::yield_now().await;
        if self.lock().effects.stopped {
            pending::<()>().await;
        }
    }

    async fn hold_at(&self, number: usize) {
        let here = self.lock().effects.hold.take_if(|hold| *hold == number);
        if here.is_some() {
            self.hold_here().await;
        }
    }

    /// Hold back who makes this call, if that was asked for.
    pub(super) async fn hold_in(&self, call: &str) {
        let begins = |begin: &mut String| call.starts_with(begin.as_str());
        let here = self.lock().effects.hold_call.take_if(begins);
        if here.is_some() {
            self.hold_here().await;
        }
    }

    async fn hold_here(&self) {
        self.held.send_replace(true);
        let _ = self.held.subscribe().wait_for(|held| !held).await;
    }

    async fn stop_at(&self, number: usize, side: Side) {
        let stopped = {
            let effects = &mut self.lock().effects;
            effects.stopped |= effects.cut == Some((number, side));
            effects.stopped
        };
        if stopped {
            self.stopped.send_replace(true);
            pending::<()>().await;
        }
    }
}
