//! A driver on a socket of its own, the volumes behind it, and short ways to ask it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use pliant::bytes::Bytes;
use pliant::csi::parse::Defaults;
use pliant::csi::pb::controller_client::ControllerClient;
use pliant::csi::pb::identity_client::IdentityClient;
use pliant::csi::pb::node_client::NodeClient;
use pliant::csi::pb::volume_capability::{AccessMode, AccessType, MountVolume, access_mode};
use pliant::csi::{Controller, Identity, Node, RpcObserver, ServeError, Services, pb, serve};
use pliant::in_flight::InFlight;
use pliant::node::{NodeSettings, PoolPlan};
use pliant::testing::FakeHost;
use pliant::volume::{
    Capacity, CapacityQuery, Fence, FsKind, Grown, Growth, Inspection, Listing, Mode, NewSnapshot,
    NewVolume, NodeKey, Page, Snapshot, SnapshotId, SnapshotListing, SnapshotPage, Snapshots,
    State, TOPOLOGY, Volume, VolumeCondition, VolumeError, VolumeId, VolumeKey, VolumeStatus,
    Volumes,
};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// Volumes in memory. A name that begins with `slow` waits to be let go; growing `broken` panics.
#[derive(Default)]
pub struct Shelf {
    pub volumes: Mutex<BTreeMap<VolumeId, VolumeStatus>>,
    snapshots: Mutex<BTreeMap<SnapshotId, Snapshot>>,
    pub begun: Notify,
    pub let_go: Notify,
}

impl Shelf {
    pub fn put(&self, name: &str, size: Bytes, ailments: Vec<VolumeCondition>) -> Volume {
        let id = id_of(name);
        let volume = Volume {
            id: id.clone(),
            name: name.to_owned(),
            pool: "fast".parse().unwrap(),
            node: "alpha".to_owned(),
            size,
            requested: size,
            mode: Mode::Filesystem(FsKind::Ext4),
        };
        let (state, published) = (State::Ready, !ailments.is_empty());
        let (fence, limit) = (Fence::default(), None);
        let status = VolumeStatus { volume, state, published, fence, limit, ailments };
        let mut volumes = self.volumes.lock().unwrap();
        volumes.entry(id).or_insert(status).volume.clone()
    }
}

#[tonic::async_trait]
impl Snapshots for Shelf {
    async fn ensure_snapshot(&self, want: &NewSnapshot) -> Result<Snapshot, VolumeError> {
        let source = self.volumes.lock().unwrap().get(&want.source).cloned();
        let source = source.ok_or_else(|| VolumeError::NotFound { id: want.source.to_string() })?;
        let Volume { node, pool, size, requested, mode, .. } = source.volume;
        let (id, name) = (want.id(), want.name.clone());
        let taken = UNIX_EPOCH + Duration::new(7, 8);
        let snapshot = Snapshot {
            id: id.clone(),
            name,
            node,
            pool,
            size,
            restore_size: requested,
            mode,
            taken,
            ready: true,
        };
        Ok(self.snapshots.lock().unwrap().entry(id).or_insert(snapshot).clone())
    }

    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError> {
        self.snapshots.lock().unwrap().remove(id);
        Ok(())
    }

    async fn find_snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>, VolumeError> {
        Ok(self.snapshots.lock().unwrap().get(id).cloned())
    }

    async fn list_snapshots(&self, page: &SnapshotPage) -> Result<SnapshotListing, VolumeError> {
        Ok(page.cut(self.snapshots.lock().unwrap().values().cloned().collect()))
    }
}

#[tonic::async_trait]
impl Volumes for Shelf {
    async fn ensure(&self, want: &NewVolume) -> Result<Volume, VolumeError> {
        if want.name.starts_with("slow") {
            self.begun.notify_one();
            self.let_go.notified().await;
        }
        Ok(self.put(&want.name, want.size.at_least, vec![]))
    }

    async fn remove(&self, id: &VolumeId) -> Result<(), VolumeError> {
        self.volumes.lock().unwrap().remove(id);
        Ok(())
    }

    async fn grow(&self, id: &VolumeId, growth: Growth) -> Result<Grown, VolumeError> {
        assert_ne!(*id, id_of("broken"), "broken on purpose");
        let mut volumes = self.volumes.lock().unwrap();
        let found = volumes.get_mut(id);
        let found = found.ok_or_else(|| VolumeError::NotFound { id: id.to_string() })?;
        let volume = &mut found.volume;
        volume.size = volume.size.max(growth.size.at_least);
        Ok(Grown { size: volume.size, node_expansion_required: false })
    }

    async fn shrink(&self, id: &VolumeId, to: Bytes) -> Result<Bytes, VolumeError> {
        let mut volumes = self.volumes.lock().unwrap();
        let found = volumes.get_mut(id);
        let found = found.ok_or_else(|| VolumeError::NotFound { id: id.to_string() })?;
        found.volume.size = found.volume.size.min(to);
        found.limit = Some(to);
        Ok(found.volume.size)
    }

    async fn release(&self, id: &VolumeId) -> Result<(), VolumeError> {
        if let Some(found) = self.volumes.lock().unwrap().get_mut(id) {
            found.limit = None;
        }
        Ok(())
    }

    async fn fence(&self, id: &VolumeId, fence: Fence) -> Result<(), VolumeError> {
        if let Some(found) = self.volumes.lock().unwrap().get_mut(id) {
            found.fence = fence;
        }
        Ok(())
    }

    async fn inspect(&self, id: &VolumeId) -> Result<Option<Inspection>, VolumeError> {
        let status = self.volumes.lock().unwrap().get(id).cloned();
        let seen = |status| Inspection { status, open_count: 0, usage: None, smallest: None };
        Ok(status.map(seen))
    }

    async fn find(&self, id: &VolumeId) -> Result<Option<VolumeStatus>, VolumeError> {
        assert_ne!(*id, id_of("broken"), "broken on purpose");
        Ok(self.volumes.lock().unwrap().get(id).cloned())
    }

    async fn list(&self, page: &Page) -> Result<Listing, VolumeError> {
        Ok(page.cut(self.volumes.lock().unwrap().values().cloned().collect()))
    }

    async fn capacity(&self, _: &CapacityQuery) -> Result<Capacity, VolumeError> {
        Ok(Capacity { free: Bytes::gib(9), largest: Bytes::gib(5), smallest: Bytes::mib(4) })
    }
}

pub fn id_of(name: &str) -> VolumeId {
    VolumeId::new(NodeKey::of("alpha"), VolumeKey::of(name))
}

/// The node of this machine, with these pools.
async fn machine(host: FakeHost, plans: Vec<PoolPlan>) -> Arc<pliant::node::Node> {
    pliant::node::Node::start(Arc::new(host), NodeSettings::new("alpha"), plans).await.unwrap()
}

#[derive(Default)]
pub struct Seen(pub Mutex<Vec<(String, &'static str)>>);

impl RpcObserver for Seen {
    fn observe(&self, method: &str, code: &'static str, _: Duration) {
        self.0.lock().unwrap().push((method.to_owned(), code));
    }
}

/// A driver on a socket of its own, and its clients.
pub struct Driver<V = Shelf> {
    /// Who makes the volumes.
    pub behind: Arc<V>,
    pub seen: Arc<Seen>,
    pub socket: PathBuf,
    pub stop: oneshot::Sender<()>,
    pub served: JoinHandle<Result<(), ServeError>>,
    pub identity: IdentityClient<Channel>,
    pub controller: ControllerClient<Channel>,
    pub node: NodeClient<Channel>,
    _place: tempfile::TempDir,
}

impl Driver {
    /// Volumes in memory, beside a machine without pools.
    pub async fn start() -> Driver {
        let machine = machine(FakeHost::new(), Vec::new()).await;
        Driver::serve(Arc::new(Shelf::default()), machine).await
    }
}

impl Driver<pliant::node::Node> {
    /// The whole driver on a machine in memory.
    pub async fn on(host: &FakeHost, plans: Vec<PoolPlan>) -> Self {
        let machine = machine(host.clone(), plans).await;
        Driver::serve(machine.clone(), machine).await
    }
}

impl<V: Volumes> Driver<V> {
    async fn serve(behind: Arc<V>, machine: Arc<pliant::node::Node>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let (socket, seen) = (place.path().join("csi.sock"), Arc::new(Seen::default()));
        let (stop, stopped) = oneshot::channel();
        let busy = InFlight::new();
        let services = Services {
            identity: Identity,
            controller: Some(Controller::new(behind.clone(), busy.clone(), Defaults::default())),
            node: Some(Node::new(machine, busy)),
        };
        let (at, observer) = (socket.clone(), seen.clone());
        let served = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            serve(&at, services, observer, stopped).await
        });
        while !socket.exists() {
            tokio::task::yield_now().await;
        }
        let address = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        let channel = address.connect().await.unwrap();
        Driver {
            behind,
            seen,
            socket,
            stop,
            served,
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
            _place: place,
        }
    }
}

pub fn mounted() -> pb::VolumeCapability {
    pb::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: access_mode::Mode::SingleNodeWriter.into() }),
    }
}

pub fn create(name: &str) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest {
        name: name.to_owned(),
        volume_capabilities: vec![mounted()],
        ..Default::default()
    }
}

pub fn expand(name: &str, bytes: i64) -> pb::ControllerExpandVolumeRequest {
    pb::ControllerExpandVolumeRequest {
        volume_id: id_of(name).to_string(),
        capacity_range: Some(pb::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        ..Default::default()
    }
}

pub fn get(name: &str) -> pb::ControllerGetVolumeRequest {
    pb::ControllerGetVolumeRequest { volume_id: id_of(name).to_string() }
}

pub fn code<T: Debug>(answer: Result<Response<T>, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

pub fn described(name: &str, bytes: i64) -> pb::Volume {
    pb::Volume {
        capacity_bytes: bytes,
        volume_id: id_of(name).to_string(),
        volume_context: BTreeMap::from([("pool".to_owned(), "fast".to_owned())]),
        content_source: None,
        accessible_topology: vec![pb::Topology {
            segments: BTreeMap::from([(TOPOLOGY.to_owned(), "alpha".to_owned())]),
        }],
    }
}
