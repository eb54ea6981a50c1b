//! The scenarios on the machine in memory.

#[path = "../scenarios/mod.rs"]
mod shared;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::lvm::THIN_POOL;
use pliant::testing::FakeHost;

use crate::machine::type_in;
use shared::{Place, Shown, play_on};

const WRITTEN: &[u8] = b"what the workload wrote and synced";
/// Behind what a format writes.
const WRITTEN_AT: u64 = 9 << 20;

struct InMemory(FakeHost);

impl InMemory {
    /// Whether the driver has let writes to its full thin pool fail.
    fn can_grow_no_more(&self) -> bool {
        let group = self.0.group("vg0").expect("a group");
        group.lvs[THIN_POOL].flags.contains("ERROR_WHEN_FULL")
    }
}

#[async_trait]
impl Place for InMemory {
    fn disk(&mut self, mib: u64) -> PathBuf {
        self.0.add_disk(Bytes::mib(mib))
    }

    async fn group(&mut self, name: &str, disks: &[PathBuf]) {
        self.0.add_group(name, disks);
    }

    async fn type_in(&mut self, group: &str, line: &str) {
        type_in(&self.0, group, line).await;
    }

    fn door(&mut self) -> Arc<dyn Host> {
        self.0 = self.0.after_crash();
        Arc::new(self.0.clone())
    }

    fn dir(&self) -> PathBuf {
        PathBuf::from("/run/scenario")
    }

    fn pull(&mut self, disk: &Path) {
        self.0.remove_disk(disk);
    }

    fn put_back(&mut self, disk: &Path) {
        self.0.heal_disk(disk);
    }

    async fn sizes(&self, group: &str) -> BTreeMap<String, u64> {
        let group = self.0.group(group).expect("a group");
        let mib = |extents| group.size_of(extents).get() >> 20;
        group.lvs.values().map(|lv| (lv.name.clone(), mib(lv.extents()))).collect()
    }

    async fn write(&self, shown: &Shown) {
        self.0.write_at(&shown.device, WRITTEN_AT, WRITTEN);
        self.0.flush(&shown.device).await.expect("synced");
    }

    async fn fill(&self, shown: &Shown, mib: u64) {
        for at in (0..mib).map(|number| number << 20) {
            self.0.write_at(&shown.device, at, WRITTEN);
            // A kernel holds back what a full pool has no space for yet, for as long as the pool can grow.
            while self.0.is_at_its_mark() && !self.can_grow_no_more() {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn holds(&self, shown: &Shown) -> bool {
        let read = self.0.read_at(&shown.device, WRITTEN_AT, WRITTEN.len()).await;
        read.expect("it can be read") == WRITTEN
    }
}

play_on! { InMemory(FakeHost::new()), }
