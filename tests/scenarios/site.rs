//! A place with a driver on it, and short ways to ask that.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pliant::bytes::Bytes;
use pliant::csi::status::of_volume;
use pliant::host::Host;
use pliant::node::lv_tags::lv_name;
use pliant::node::{GroupSource, NewDisk, Node, NodeSettings, PoolPlan, copied};
use pliant::volume::Terms;
use pliant::volume::{
    Access, CapacityQuery, Class, Growth, Layout, Mode, NewSnapshot, NewVolume, NodeKey,
    NodeVolumes, Page, Publish, RequestedSize, Snapshot, SnapshotId, SnapshotPage, Snapshots,
    Source, Stage, State, ThinSettings, VolumeError, VolumeId, VolumeKey, Volumes,
};
use tonic::Code;

use super::{Place, Shown};

pub const GROUP: &str = "vg0";
/// Label and metadata of a disk, in MiB, and the size of an extent.
pub const TAKEN: u64 = 17;
pub const EXTENT: u64 = 4;

pub fn id(name: &str) -> VolumeId {
    VolumeId::new(NodeKey::of("n1"), VolumeKey::of(name))
}

pub fn lv(name: &str) -> String {
    lv_name(&VolumeKey::of(name))
}

/// The id of a snapshot of the volume `v`.
fn snapshot_id(name: &str) -> SnapshotId {
    NewSnapshot { name: name.to_owned(), source: id("v") }.id()
}

/// The code and the words that a caller would get.
pub fn refused<T: std::fmt::Debug>(answer: Result<T, VolumeError>) -> (Code, String) {
    let error = answer.expect_err("refused");
    let said = error.to_string();
    (of_volume(error).code(), said)
}

pub struct Site<P> {
    pub place: P,
    pub node: Arc<Node>,
    /// Those of the group.
    pub disks: Vec<PathBuf>,
    pub host: Arc<dyn Host>,
    plan: PoolPlan,
    two_step: bool,
    /// Of the volumes that are asked for.
    class: Class,
}

impl<P: Place> Site<P> {
    /// A driver over one group on a disk of so many MiB.
    pub async fn on(place: P, mib: u64) -> Site<P> {
        Site::with(place, &[mib], &[], false).await
    }

    /// A driver over one group on these disks, with these standby disks.
    pub async fn with(
        mut place: P,
        disks: &[u64],
        standby_disks: &[u64],
        two_step: bool,
    ) -> Site<P> {
        let disks: Vec<PathBuf> = disks.iter().map(|mib| place.disk(*mib)).collect();
        place.group(GROUP, &disks).await;
        let standby_disks =
            standby_disks.iter().map(|mib| NewDisk { path: place.disk(*mib), wipe: false });
        let plan = PoolPlan {
            standby_disks: standby_disks.collect(),
            ..PoolPlan::new(
                "default".parse().expect("a name"),
                vec![GroupSource::Existing(GROUP.to_owned())],
            )
        };
        Site::start(place, disks, plan, two_step, Layout::Linear).await
    }

    /// A driver over one group on a disk of so many MiB, that makes thin volumes.
    pub async fn thin(mut place: P, mib: u64, thin: ThinSettings) -> Site<P> {
        let disks = vec![place.disk(mib)];
        place.group(GROUP, &disks).await;
        let groups = vec![GroupSource::Existing(GROUP.to_owned())];
        let terms = Terms { thin: Some(thin), ..Terms::default() };
        let plan = PoolPlan { terms, ..PoolPlan::new("default".parse().expect("a name"), groups) };
        Site::start(place, disks, plan, false, Layout::Thin).await
    }

    async fn start(
        mut place: P,
        disks: Vec<PathBuf>,
        plan: PoolPlan,
        two_step: bool,
        layout: Layout,
    ) -> Site<P> {
        let host = place.door();
        let node = start(&place, &host, &plan, two_step).await;
        let class = Class { layout, ..Class::default() };
        Site { place, node, disks, host, plan, two_step, class }
    }

    /// Take a snapshot of a volume, and wait until it is ready.
    pub async fn snapshot(&self, name: &str, volume: &str) -> Snapshot {
        let mut copies = copied(&self.node);
        loop {
            let taken = self.take(name, volume).await.expect("a snapshot");
            if taken.ready {
                return taken;
            }
            copies.changed().await.expect("the driver runs");
        }
    }

    /// Take a snapshot of a volume, which may have to be copied.
    pub async fn take(&self, name: &str, volume: &str) -> Result<Snapshot, VolumeError> {
        let want = NewSnapshot { name: name.to_owned(), source: id(volume) };
        self.node.ensure_snapshot(&want).await
    }

    pub async fn delete_snapshot(&self, name: &str) -> Result<(), VolumeError> {
        self.node.remove_snapshot(&snapshot_id(name)).await
    }

    /// The names of all snapshots.
    pub async fn snapshots(&self) -> Vec<String> {
        let all = self.node.list_snapshots(&SnapshotPage::default()).await.expect("a list");
        let mut names: Vec<String> = all.snapshots.into_iter().map(|one| one.name).collect();
        names.sort();
        names
    }

    /// A volume with the content of a snapshot of the volume `v`; its size in MiB.
    pub async fn restore(
        &self,
        name: &str,
        snapshot: &str,
        mode: Mode,
        mib: u64,
    ) -> Result<u64, VolumeError> {
        self.create_from(name, Source::Snapshot(snapshot_id(snapshot)), mode, mib).await
    }

    /// A volume with the content of another; its size in MiB.
    pub async fn clone_of(
        &self,
        name: &str,
        volume: &str,
        mode: Mode,
        mib: u64,
    ) -> Result<u64, VolumeError> {
        self.create_from(name, Source::Volume(id(volume)), mode, mib).await
    }

    async fn create_from(
        &self,
        name: &str,
        source: Source,
        mode: Mode,
        mib: u64,
    ) -> Result<u64, VolumeError> {
        let size = RequestedSize { at_least: Bytes::mib(mib), at_most: None };
        let (class, nodes, source) = (self.class.clone(), [].into(), Some(source));
        let want = NewVolume { name: name.to_owned(), size, mode, class, nodes, source };
        self.node.ensure(&want).await.map(|volume| volume.size.get() >> 20)
    }

    /// From now on volumes are thin.
    pub fn thin_again(&mut self) {
        self.class.layout = Layout::Thin;
    }

    /// From now on volumes are linear.
    pub fn linear(&mut self) {
        self.class.layout = Layout::Linear;
    }

    /// Kill the driver and start the next.
    pub async fn restart(&mut self) {
        self.host = self.place.door();
        self.node = start(&self.place, &self.host, &self.plan, self.two_step).await;
    }

    pub async fn create(&self, name: &str, mode: Mode, mib: u64) -> Result<u64, VolumeError> {
        self.create_within(name, mode, mib << 20, None).await.map(|bytes| bytes >> 20)
    }

    /// In bytes, with a limit.
    pub async fn create_within(
        &self,
        name: &str,
        mode: Mode,
        at_least: u64,
        at_most: Option<u64>,
    ) -> Result<u64, VolumeError> {
        let size =
            RequestedSize { at_least: Bytes::new(at_least), at_most: at_most.map(Bytes::new) };
        let (class, nodes) = (self.class.clone(), [].into());
        let want = NewVolume { name: name.to_owned(), size, mode, class, nodes, source: None };
        self.node.ensure(&want).await.map(|volume| volume.size.get())
    }

    /// The size in MiB, and whether the node's step is to follow.
    pub async fn grow(&self, name: &str, mib: u64) -> Result<(u64, bool), VolumeError> {
        let grown = self.node.grow(&id(name), growth(mib << 20, None)).await?;
        Ok((grown.size.get() >> 20, grown.node_expansion_required))
    }

    /// In MiB, what it has afterwards too.
    pub async fn shrink(&self, name: &str, mib: u64) -> Result<u64, VolumeError> {
        Ok(self.node.shrink(&id(name), Bytes::mib(mib)).await?.get() >> 20)
    }

    pub async fn node_grow(&self, name: &str, mib: u64) -> Result<u64, VolumeError> {
        let growth = Some(growth(mib << 20, None));
        let size = self.node.expand(&id(name), &self.target(name), growth).await?;
        Ok(size.get() >> 20)
    }

    pub async fn stage(&self, name: &str, mode: Mode, read_only: bool) -> Result<(), VolumeError> {
        let (staging, access) = (self.staging(name), access(mode));
        self.node.stage(&Stage { id: id(name), staging, access, read_only }).await
    }

    pub async fn publish(
        &self,
        name: &str,
        mode: Mode,
        read_only: bool,
    ) -> Result<(), VolumeError> {
        let publish = Publish {
            id: id(name),
            staging: self.staging(name),
            target: self.target(name),
            access: access(mode),
            read_only,
            alone: true,
        };
        self.node.publish(&publish).await
    }

    /// Stage and publish.
    pub async fn show(&self, name: &str, mode: Mode) -> Shown {
        self.stage(name, mode, false).await.expect("stage");
        self.publish(name, mode, false).await.expect("publish");
        self.shown(name, mode).await
    }

    /// Unpublish and unstage.
    pub async fn hide(&self, name: &str) {
        self.unpublish(name).await.expect("unpublish");
        self.unstage(name).await.expect("unstage");
    }

    pub async fn unpublish(&self, name: &str) -> Result<(), VolumeError> {
        self.node.unpublish(&id(name), &self.target(name)).await
    }

    pub async fn unstage(&self, name: &str) -> Result<(), VolumeError> {
        self.node.unstage(&id(name), &self.staging(name)).await
    }

    pub async fn delete(&self, name: &str) -> Result<(), VolumeError> {
        self.node.remove(&id(name)).await
    }

    pub async fn state(&self, name: &str) -> Option<State> {
        self.node.find(&id(name)).await.expect("it can be looked at").map(|volume| volume.state)
    }

    /// Where the volume's bytes can be reached.
    pub async fn shown(&self, name: &str, mode: Mode) -> Shown {
        let key = VolumeKey::of(name);
        let ending = format!("pliant--{}", key.as_str());
        let devices = self.host.dm_list().await.expect("devices");
        let device = devices.iter().find(|device| device.name.ends_with(&ending));
        let minor = device.expect("an active volume").number.minor;
        Shown { mode, device: format!("/dev/dm-{minor}").into(), dir: self.staging(name) }
    }

    /// What a mounted file system, or a device, has room for, in MiB.
    pub async fn size_seen(&self, name: &str) -> u64 {
        let stats = self.node.stats(&id(name), &self.target(name)).await.expect("stats");
        stats.usage.map_or(stats.size, |usage| usage.total).get() >> 20
    }

    pub fn staging(&self, name: &str) -> PathBuf {
        self.place.dir().join("staging").join(name)
    }

    pub fn target(&self, name: &str) -> PathBuf {
        self.place.dir().join("pods").join(name)
    }

    /// Whether there is neither a file nor a directory where the volume was shown.
    pub async fn left_no_path(&self, name: &str) -> bool {
        let target = self.host.path_kind(&self.target(name)).await.expect("a look");
        let staging = self.host.path_kind(&self.staging(name)).await.expect("a look");
        (target, staging) == (None, None)
    }

    /// What can be made: free, and the largest, in MiB.
    pub async fn room(&self) -> (u64, u64) {
        let query = CapacityQuery { class: self.class.clone(), mode: None, node: None };
        let room = self.node.capacity(&query).await.expect("capacity");
        (room.free.get() >> 20, room.largest.get() >> 20)
    }

    /// The driver's list, its capacity and plain LVM tell the same: these volumes with these MiB.
    pub async fn holds_exactly(&self, expected: &[(&str, u64)]) {
        let listed = self.node.list(&Page::default()).await.expect("a list").volumes.into_iter();
        let listed: BTreeMap<String, u64> =
            listed.map(|one| (one.volume.name, one.volume.size.get() >> 20)).collect();
        let expected: BTreeMap<String, u64> =
            expected.iter().map(|(name, mib)| ((*name).to_owned(), *mib)).collect();
        assert_eq!(listed, expected);
        let named = expected.iter().map(|(name, mib)| (lv(name), *mib)).collect();
        assert_eq!(self.place.sizes(GROUP).await, named);
    }
}

async fn start<P: Place>(
    place: &P,
    host: &Arc<dyn Host>,
    plan: &PoolPlan,
    two_step: bool,
) -> Arc<Node> {
    let settings = NodeSettings {
        two_step,
        wipe_patience: Duration::from_secs(300),
        state_dir: place.dir().join("state"),
        ..NodeSettings::new("n1")
    };
    Node::start(host.clone(), settings, vec![plan.clone()]).await.expect("start")
}

pub fn growth(at_least: u64, at_most: Option<u64>) -> Growth {
    let size = RequestedSize { at_least: Bytes::new(at_least), at_most: at_most.map(Bytes::new) };
    Growth { size, block: None }
}

fn access(mode: Mode) -> Access {
    match mode {
        Mode::Block => Access::Block,
        Mode::Filesystem(kind) => Access::Mount { fs: Some(kind), options: Vec::new() },
    }
}
