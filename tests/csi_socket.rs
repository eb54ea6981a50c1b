//! The protocol over a real socket, with volumes that exist only in memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pliant::busy::Busy;
use pliant::bytes::Bytes;
use pliant::csi::parse::Defaults;
use pliant::csi::pb::controller_client::ControllerClient;
use pliant::csi::pb::identity_client::IdentityClient;
use pliant::csi::pb::node_client::NodeClient;
use pliant::csi::pb::volume_capability::{AccessMode, AccessType, MountVolume, access_mode};
use pliant::csi::{
    Controller, Identity, Node, RpcObserver, ServeError, Services, TOPOLOGY, pb, serve,
};
use pliant::volume::{
    Ailment, Capacity, CapacityQuery, Grown, Growth, Mode, NewVolume, NodeKey, Severity, State,
    Volume, VolumeError, VolumeId, Volumes,
};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// Volumes in memory. A name that begins with `slow` waits to be let go; growing `broken` panics.
#[derive(Default)]
struct Shelf {
    volumes: Mutex<BTreeMap<VolumeId, Volume>>,
    begun: Notify,
    let_go: Notify,
}

impl Shelf {
    fn put(&self, name: &str, size: Bytes, ailments: Vec<Ailment>) -> Volume {
        let id = id_of(name);
        let volume = Volume {
            id: id.clone(),
            name: name.to_owned(),
            pool: "fast".parse().unwrap(),
            node: "alpha".to_owned(),
            size,
            mode: Mode::Filesystem(pliant::volume::FsKind::Ext4),
            state: State::Ready,
            published: !ailments.is_empty(),
            ailments,
        };
        let mut volumes = self.volumes.lock().unwrap();
        volumes.entry(id).or_insert(volume).clone()
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
        let volume = volumes
            .get_mut(id)
            .ok_or_else(|| VolumeError::NotFound { id: id.to_string() })?;
        volume.size = volume.size.max(growth.size.at_least);
        Ok(Grown {
            size: volume.size,
            node_expansion_required: false,
        })
    }

    async fn find(&self, id: &VolumeId) -> Result<Option<Volume>, VolumeError> {
        assert_ne!(*id, id_of("broken"), "broken on purpose");
        Ok(self.volumes.lock().unwrap().get(id).cloned())
    }

    async fn list(&self) -> Result<Vec<Volume>, VolumeError> {
        Ok(self.volumes.lock().unwrap().values().cloned().collect())
    }

    async fn capacity(&self, _: &CapacityQuery) -> Result<Capacity, VolumeError> {
        Ok(Capacity {
            free: Bytes::gib(9),
            largest: Bytes::gib(5),
            smallest: Bytes::mib(4),
        })
    }
}

fn id_of(name: &str) -> VolumeId {
    VolumeId::new(NodeKey::of("alpha"), pliant::volume::VolumeKey::of(name))
}

/// This machine, of which these tests ask only what never reaches it.
fn machine() -> Arc<pliant::node::Node> {
    Arc::new(pliant::node::Node {})
}

#[derive(Default)]
struct Seen(Mutex<Vec<(String, &'static str)>>);

impl RpcObserver for Seen {
    fn observe(&self, method: &str, code: &'static str, _: Duration) {
        self.0.lock().unwrap().push((method.to_owned(), code));
    }
}

/// A driver on a socket of its own, and its clients.
struct Driver {
    shelf: Arc<Shelf>,
    seen: Arc<Seen>,
    socket: PathBuf,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
    identity: IdentityClient<Channel>,
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
    _place: tempfile::TempDir,
}

impl Driver {
    async fn start() -> Driver {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("csi.sock");
        let (shelf, seen) = (Arc::new(Shelf::default()), Arc::new(Seen::default()));
        let (stop, stopped) = oneshot::channel();
        let busy = Busy::new();
        let services = Services {
            identity: Identity,
            controller: Some(Controller::new(
                shelf.clone(),
                busy.clone(),
                Defaults::default(),
            )),
            node: Some(Node::new(machine(), busy)),
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
            shelf,
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

fn mounted() -> pb::VolumeCapability {
    pb::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode {
            mode: access_mode::Mode::SingleNodeWriter.into(),
        }),
    }
}

fn create(name: &str) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest {
        name: name.to_owned(),
        volume_capabilities: vec![mounted()],
        ..Default::default()
    }
}

fn expand(name: &str, bytes: i64) -> pb::ControllerExpandVolumeRequest {
    pb::ControllerExpandVolumeRequest {
        volume_id: id_of(name).to_string(),
        capacity_range: Some(pb::CapacityRange {
            required_bytes: bytes,
            limit_bytes: 0,
        }),
        ..Default::default()
    }
}

fn get(name: &str) -> pb::ControllerGetVolumeRequest {
    pb::ControllerGetVolumeRequest {
        volume_id: id_of(name).to_string(),
    }
}

fn code<T: Debug>(answer: Result<Response<T>, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

fn described(name: &str, bytes: i64) -> pb::Volume {
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

#[tokio::test]
async fn the_driver_says_who_it_is() {
    let mut driver = Driver::start().await;
    let info = driver
        .identity
        .get_plugin_info(pb::GetPluginInfoRequest {})
        .await;
    assert_eq!(
        info.unwrap().into_inner(),
        pb::GetPluginInfoResponse {
            name: "lvm.csi.pliant.io".to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: BTreeMap::new(),
        }
    );
    let probe = driver.identity.probe(pb::ProbeRequest {}).await;
    assert_eq!(probe.unwrap().into_inner().ready, Some(true));
}

#[tokio::test]
async fn the_driver_says_what_it_can_do() {
    use pb::controller_service_capability as c;
    use pb::node_service_capability as n;
    use pb::plugin_capability as p;
    let mut driver = Driver::start().await;

    let plugin = driver
        .identity
        .get_plugin_capabilities(pb::GetPluginCapabilitiesRequest {});
    let service = |r#type| p::Type::Service(p::Service { r#type });
    let expansion = |r#type| p::Type::VolumeExpansion(p::VolumeExpansion { r#type });
    let said: Vec<_> = plugin.await.unwrap().into_inner().capabilities;
    let said: Vec<_> = said
        .into_iter()
        .filter_map(|capability| capability.r#type)
        .collect();
    assert_eq!(said, [service(1), service(2), expansion(1), expansion(2)]);

    let controller = driver
        .controller
        .controller_get_capabilities(pb::ControllerGetCapabilitiesRequest {});
    let said: Vec<_> = controller.await.unwrap().into_inner().capabilities;
    let name = |capability: pb::ControllerServiceCapability| match capability.r#type {
        Some(c::Type::Rpc(rpc)) => rpc.r#type().as_str_name(),
        None => "",
    };
    assert_eq!(
        said.into_iter().map(name).collect::<Vec<_>>(),
        [
            "CREATE_DELETE_VOLUME",
            "LIST_VOLUMES",
            "LIST_VOLUMES_PUBLISHED_NODES",
            "GET_CAPACITY",
            "EXPAND_VOLUME",
            "GET_VOLUME",
            "VOLUME_CONDITION",
            "SINGLE_NODE_MULTI_WRITER",
            "GET_VOLUME_HEALTH",
            "LIST_VOLUME_HEALTH",
        ]
    );

    let node = driver
        .node
        .node_get_capabilities(pb::NodeGetCapabilitiesRequest {});
    let said: Vec<_> = node.await.unwrap().into_inner().capabilities;
    let name = |capability: pb::NodeServiceCapability| match capability.r#type {
        Some(n::Type::Rpc(rpc)) => rpc.r#type().as_str_name(),
        None => "",
    };
    assert_eq!(
        said.into_iter().map(name).collect::<Vec<_>>(),
        [
            "STAGE_UNSTAGE_VOLUME",
            "EXPAND_VOLUME",
            "GET_VOLUME_STATS",
            "VOLUME_CONDITION",
            "GET_VOLUME_HEALTH",
            "GET_STORAGE_HEALTH",
            "SINGLE_NODE_MULTI_WRITER",
        ]
    );
}

#[tokio::test]
async fn a_volume_is_made_found_grown_and_removed() {
    let mut driver = Driver::start().await;
    let client = &mut driver.controller;

    for _again in 0..2 {
        let made = client
            .create_volume(create("db"))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(made.volume, Some(described("db", 1 << 30)));
    }
    for _again in 0..2 {
        let grown = client.controller_expand_volume(expand("db", 5 << 30)).await;
        let expected = pb::ControllerExpandVolumeResponse {
            capacity_bytes: 5 << 30,
            node_expansion_required: false,
        };
        assert_eq!(grown.unwrap().into_inner(), expected);
    }
    let found = client
        .controller_get_volume(get("db"))
        .await
        .unwrap()
        .into_inner();
    let expected = pb::ControllerGetVolumeResponse {
        volume: Some(described("db", 5 << 30)),
        status: Some(pb::controller_get_volume_response::VolumeStatus {
            published_node_ids: vec![],
            volume_condition: Some(pb::VolumeCondition {
                abnormal: false,
                message: "healthy".to_owned(),
            }),
        }),
    };
    assert_eq!(found, expected);
    for _again in 0..2 {
        let request = pb::DeleteVolumeRequest {
            volume_id: id_of("db").to_string(),
            ..Default::default()
        };
        assert_eq!(code(client.delete_volume(request).await), Code::Ok);
    }
    assert_eq!(
        code(client.controller_get_volume(get("db")).await),
        Code::NotFound
    );
}

#[tokio::test]
async fn capacity_is_told_with_its_bounds() {
    let mut driver = Driver::start().await;
    let capacity = driver
        .controller
        .get_capacity(pb::GetCapacityRequest::default())
        .await;
    let expected = pb::GetCapacityResponse {
        available_capacity: 9 << 30,
        maximum_volume_size: Some(5 << 30),
        minimum_volume_size: Some(4 << 20),
    };
    assert_eq!(capacity.unwrap().into_inner(), expected);
}

#[tokio::test]
async fn capabilities_are_confirmed_or_objected_to() {
    let mut driver = Driver::start().await;
    driver.shelf.put("db", Bytes::gib(1), vec![]);
    let request = |access_type, mode: access_mode::Mode| pb::ValidateVolumeCapabilitiesRequest {
        volume_id: id_of("db").to_string(),
        volume_capabilities: vec![pb::VolumeCapability {
            access_type: Some(access_type),
            access_mode: Some(AccessMode { mode: mode.into() }),
        }],
        ..Default::default()
    };
    let mount = |fs: &str| {
        AccessType::Mount(MountVolume {
            fs_type: fs.to_owned(),
            ..Default::default()
        })
    };
    let block = AccessType::Block(Default::default());
    use access_mode::Mode::{MultiNodeReaderOnly, SingleNodeSingleWriter};
    for (access, mode, objection) in [
        (mount(""), SingleNodeSingleWriter, ""),
        (mount("ext4"), SingleNodeSingleWriter, ""),
        (
            mount("xfs"),
            SingleNodeSingleWriter,
            "the volume is a ext4 volume",
        ),
        (block, SingleNodeSingleWriter, "the volume is a ext4 volume"),
        (
            mount(""),
            MultiNodeReaderOnly,
            "volume_capabilities[0].access_mode: MULTI_NODE_READER_ONLY",
        ),
    ] {
        let request = request(access, mode);
        let asked = request.volume_capabilities.clone();
        let answer = driver
            .controller
            .validate_volume_capabilities(request)
            .await;
        let answer = answer.unwrap().into_inner();
        assert!(answer.message.starts_with(objection), "{}", answer.message);
        let confirmed = answer
            .confirmed
            .map(|confirmed| confirmed.volume_capabilities);
        assert_eq!(confirmed, objection.is_empty().then_some(asked));
    }
}

#[tokio::test]
async fn lists_come_in_pages() {
    let mut driver = Driver::start().await;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        driver.shelf.put(name, Bytes::gib(1), vec![]);
    }
    let mut expected: Vec<String> = names.iter().map(|name| id_of(name).to_string()).collect();
    expected.sort();

    let (mut listed, mut sizes, mut starting_token) = (vec![], vec![], String::new());
    loop {
        let request = pb::ListVolumesRequest {
            max_entries: 2,
            starting_token,
        };
        let page = driver
            .controller
            .list_volumes(request)
            .await
            .unwrap()
            .into_inner();
        sizes.push(page.entries.len());
        let volumes = page.entries.into_iter().filter_map(|entry| entry.volume);
        listed.extend(volumes.map(|volume| volume.volume_id));
        starting_token = page.next_token;
        if starting_token.is_empty() {
            break;
        }
        // A page stays right when the volume that ended the one before it goes.
        driver
            .shelf
            .volumes
            .lock()
            .unwrap()
            .remove(&starting_token.parse().unwrap());
    }
    assert_eq!((listed, sizes), (expected, vec![2, 2, 1]));
}

#[tokio::test]
async fn what_ails_is_told() {
    let mut driver = Driver::start().await;
    let ailment = |severity, message: &str| Ailment {
        severity,
        reason: "DiskMissing",
        message: message.to_owned(),
    };
    let ailments = vec![
        ailment(Severity::Inaccessible, "disk sdb is missing"),
        ailment(Severity::Inaccessible, "disk sdc is missing"),
        ailment(Severity::DataLoss, "sector 7 is lost"),
    ];
    driver.shelf.put("ill", Bytes::gib(1), ailments);
    driver.shelf.put("well", Bytes::gib(1), vec![]);
    let entry =
        |status: pb::VolumeHealthErrorType, message: &str| pb::volume_health::VolumeHealthEntry {
            status: status.into(),
            reason: "DiskMissing".to_owned(),
            message: message.to_owned(),
        };
    let health = pb::VolumeHealth {
        volume_id: id_of("ill").to_string(),
        health_statuses: vec![
            entry(
                pb::VolumeHealthErrorType::Inaccessible,
                "disk sdb is missing",
            ),
            entry(pb::VolumeHealthErrorType::DataLoss, "sector 7 is lost"),
        ],
    };
    let all = pb::ControllerListVolumeHealthRequest::default();
    let all = driver.controller.controller_list_volume_health(all).await;
    assert_eq!(
        all.unwrap().into_inner().entries,
        std::slice::from_ref(&health)
    );
    let one = pb::ControllerGetVolumeHealthRequest {
        volume_id: id_of("ill").to_string(),
        ..Default::default()
    };
    let one = driver.controller.controller_get_volume_health(one).await;
    assert_eq!(one.unwrap().into_inner().volume_health, Some(health));

    let ill = driver.controller.controller_get_volume(get("ill")).await;
    let status = pb::controller_get_volume_response::VolumeStatus {
        published_node_ids: vec!["alpha".to_owned()],
        volume_condition: Some(pb::VolumeCondition {
            abnormal: true,
            message: "disk sdb is missing; disk sdc is missing; sector 7 is lost".to_owned(),
        }),
    };
    assert_eq!(ill.unwrap().into_inner().status, Some(status));
}

#[tokio::test]
async fn bad_requests_have_their_codes() {
    let Driver {
        mut controller,
        mut node,
        shelf,
        stop: _stop,
        _place,
        ..
    } = Driver::start().await;
    shelf.put("db", Bytes::gib(1), vec![]);
    let own = id_of("db").to_string();
    let id = |volume_id: &str| volume_id.to_owned();

    for (name, expected) in [
        ("", Code::InvalidArgument),
        (&*"x".repeat(129), Code::InvalidArgument),
        (&*"x".repeat(128), Code::Ok),
        // The transport refuses it unread.
        (&*"x".repeat(5 << 20), Code::OutOfRange),
    ] {
        assert_eq!(code(controller.create_volume(create(name)).await), expected);
    }
    for (volume_id, expected) in [
        ("", Code::InvalidArgument),
        ("../../x", Code::Ok),
        ("-f", Code::Ok),
    ] {
        let volume_id = id(volume_id);
        let request = pb::DeleteVolumeRequest {
            volume_id,
            ..Default::default()
        };
        assert_eq!(code(controller.delete_volume(request).await), expected);
    }
    for (volume_id, expected) in [("", Code::InvalidArgument), ("../../x", Code::NotFound)] {
        let volume_id = id(volume_id);
        let request = pb::ControllerGetVolumeRequest { volume_id };
        assert_eq!(
            code(controller.controller_get_volume(request).await),
            expected
        );
    }
    for (bytes, limit_bytes, expected) in [
        (0, 0, Code::InvalidArgument),
        (-1, 0, Code::InvalidArgument),
        (2, 1, Code::OutOfRange),
        (1, 2, Code::Ok),
    ] {
        let mut request = expand("db", bytes);
        request.capacity_range.as_mut().unwrap().limit_bytes = limit_bytes;
        assert_eq!(
            code(controller.controller_expand_volume(request).await),
            expected
        );
    }
    for (max_entries, token, expected) in [
        (-1, "", Code::InvalidArgument),
        (0, "x", Code::Aborted),
        (0, &*own, Code::Ok),
    ] {
        let starting_token = token.to_owned();
        let request = pb::ListVolumesRequest {
            max_entries,
            starting_token,
        };
        assert_eq!(code(controller.list_volumes(request).await), expected);
    }
    for (staging, target, expected) in [
        ("/s", "", Code::InvalidArgument),
        ("/s", "/a/../../b", Code::InvalidArgument),
        ("", "/t", Code::FailedPrecondition),
    ] {
        let request = pb::NodePublishVolumeRequest {
            volume_id: own.clone(),
            staging_target_path: staging.to_owned(),
            target_path: target.to_owned(),
            volume_capability: Some(mounted()),
            ..Default::default()
        };
        assert_eq!(code(node.node_publish_volume(request).await), expected);
    }
    for (volume_id, volume_path, expected) in [
        ("", "/p", Code::InvalidArgument),
        (&*own, "", Code::InvalidArgument),
        ("nobody", "/p", Code::NotFound),
    ] {
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: id(volume_id),
            volume_path: volume_path.to_owned(),
            ..Default::default()
        };
        assert_eq!(code(node.node_get_volume_stats(request).await), expected);
    }
    let unserved = pb::ControllerModifyVolumeRequest::default();
    assert_eq!(
        code(controller.controller_modify_volume(unserved).await),
        Code::Unimplemented
    );
}

#[tokio::test]
async fn a_volume_is_worked_on_once_at_a_time_and_to_the_end() {
    let mut driver = Driver::start().await;
    let mut client = driver.controller.clone();
    let call = tokio::spawn(async move { client.create_volume(create("slow")).await });
    driver.shelf.begun.notified().await;
    let second = driver.controller.create_volume(create("slow")).await;
    assert_eq!(code(second), Code::Aborted);
    call.abort(); // The caller leaves.
    assert!(call.await.unwrap_err().is_cancelled());
    driver.shelf.let_go.notify_one();
    // Waits for the work on its volume, then finds it done.
    let grown = driver
        .controller
        .controller_expand_volume(expand("slow", 7 << 30))
        .await;
    assert_eq!(grown.unwrap().into_inner().capacity_bytes, 7 << 30);
}

#[tokio::test]
async fn a_panic_is_an_answer() {
    let mut driver = Driver::start().await;
    let read = driver.controller.controller_get_volume(get("broken")).await;
    assert_eq!(code(read), Code::Internal);
    let changed = driver
        .controller
        .controller_expand_volume(expand("broken", 1))
        .await;
    assert_eq!(code(changed), Code::Internal);
    assert_eq!(
        code(driver.identity.probe(pb::ProbeRequest {}).await),
        Code::Ok
    );
}

#[tokio::test]
async fn calls_under_way_are_answered_at_the_end() {
    let driver = Driver::start().await;
    let mut client = driver.controller.clone();
    let call = tokio::spawn(async move { client.create_volume(create("slow")).await });
    driver.shelf.begun.notified().await;
    driver.stop.send(()).unwrap();
    while driver.socket.exists() {
        tokio::task::yield_now().await;
    }
    driver.shelf.let_go.notify_one();
    assert_eq!(code(call.await.unwrap()), Code::Ok);
    drop((driver.identity, driver.controller, driver.node));
    driver.served.await.unwrap().unwrap();
}

/// What is logged by all tests of this file, at the lowest level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .init();
        log
    })
}

fn lines_of(volume: &str) -> Vec<serde_json::Value> {
    let text = String::from_utf8(log().0.lock().unwrap().clone()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &serde_json::Value| {
            line["fields"]["message"] == "answered" && line["span"]["volume"] == volume
        })
        .collect()
}

#[tokio::test]
async fn each_call_is_one_line_and_one_observation() {
    log();
    let mut driver = Driver::start().await;
    assert_eq!(
        code(driver.controller.create_volume(create("logged")).await),
        Code::Ok
    );
    let mut bad = create("logged badly");
    bad.volume_capabilities.clear();
    assert_eq!(
        code(driver.controller.create_volume(bad).await),
        Code::InvalidArgument
    );
    let unserved = pb::ControllerModifyVolumeRequest::default();
    assert_eq!(
        code(driver.controller.controller_modify_volume(unserved).await),
        Code::Unimplemented
    );

    for (volume, level, code, request) in [
        ("logged", "INFO", "OK", 1),
        ("logged badly", "WARN", "INVALID_ARGUMENT", 2),
    ] {
        let lines = lines_of(volume);
        assert_eq!(lines.len(), 1, "{volume}");
        assert_eq!(lines[0]["level"], level);
        assert_eq!(lines[0]["fields"]["code"], code);
        assert!(lines[0]["fields"]["ms"].is_number());
        assert_eq!(lines[0]["span"]["method"], "Controller/CreateVolume");
        assert_eq!(lines[0]["span"]["request"], request);
    }
    let seen = driver.seen.0.lock().unwrap().clone();
    let expected = [
        ("Controller/CreateVolume", "OK"),
        ("Controller/CreateVolume", "INVALID_ARGUMENT"),
        ("unserved", "UNIMPLEMENTED"),
    ];
    assert_eq!(
        seen,
        expected.map(|(method, code)| (method.to_owned(), code))
    );
}

const CANARY: &str = "canary-5f1c0d";

/// Send a request with a secret to a method, once as it is and once empty.
macro_rules! send_secret {
    ($client:expr, $method:ident, $request:expr) => {{
        let mut request = $request;
        request.secrets = BTreeMap::from([(format!("{CANARY}-key"), CANARY.to_owned())]);
        let mut empty = default_like(&request);
        empty.secrets = request.secrets.clone();
        for request in [request, empty] {
            if let Err(status) = $client.$method(request).await {
                assert!(!format!("{status:?}").contains(CANARY));
            }
        }
    }};
}

fn default_like<T: Default>(_: &T) -> T {
    T::default()
}

#[tokio::test]
async fn no_secret_is_ever_logged() {
    log();
    let Driver {
        mut controller,
        mut node,
        shelf,
        stop: _stop,
        _place,
        ..
    } = Driver::start().await;
    shelf.put("kept", Bytes::gib(1), vec![]);
    let volume_id = id_of("kept").to_string();
    let capability = Some(mounted());

    send_secret!(controller, create_volume, create("canary"));
    send_secret!(controller, controller_expand_volume, expand("kept", 1));
    send_secret!(
        controller,
        validate_volume_capabilities,
        pb::ValidateVolumeCapabilitiesRequest {
            volume_id: volume_id.clone(),
            volume_capabilities: vec![mounted()],
            ..Default::default()
        }
    );
    send_secret!(
        controller,
        controller_list_volume_health,
        pb::ControllerListVolumeHealthRequest::default()
    );
    send_secret!(
        controller,
        controller_get_volume_health,
        pb::ControllerGetVolumeHealthRequest {
            volume_id: volume_id.clone(),
            ..Default::default()
        }
    );
    send_secret!(
        controller,
        delete_volume,
        pb::DeleteVolumeRequest {
            volume_id: volume_id.clone(),
            ..Default::default()
        }
    );
    send_secret!(
        controller,
        controller_publish_volume,
        pb::ControllerPublishVolumeRequest::default()
    );
    send_secret!(
        controller,
        controller_unpublish_volume,
        pb::ControllerUnpublishVolumeRequest::default()
    );
    send_secret!(
        controller,
        controller_modify_volume,
        pb::ControllerModifyVolumeRequest::default()
    );
    send_secret!(
        controller,
        create_snapshot,
        pb::CreateSnapshotRequest::default()
    );
    send_secret!(
        controller,
        delete_snapshot,
        pb::DeleteSnapshotRequest::default()
    );
    send_secret!(
        controller,
        list_snapshots,
        pb::ListSnapshotsRequest::default()
    );
    send_secret!(controller, get_snapshot, pb::GetSnapshotRequest::default());
    send_secret!(
        node,
        node_stage_volume,
        pb::NodeStageVolumeRequest {
            volume_id: volume_id.clone(),
            staging_target_path: "relative".to_owned(),
            volume_capability: capability.clone(),
            ..Default::default()
        }
    );
    send_secret!(
        node,
        node_publish_volume,
        pb::NodePublishVolumeRequest {
            volume_id: volume_id.clone(),
            target_path: "/t".to_owned(),
            volume_capability: capability,
            ..Default::default()
        }
    );
    send_secret!(
        node,
        node_expand_volume,
        pb::NodeExpandVolumeRequest {
            volume_id,
            volume_path: "relative".to_owned(),
            ..Default::default()
        }
    );
    send_secret!(
        node,
        node_get_storage_health,
        pb::NodeGetStorageHealthRequest::default()
    );

    let text = String::from_utf8(log().0.lock().unwrap().clone()).unwrap();
    assert!(lines_of("canary").len() == 1, "the log is captured");
    let hits: Vec<&str> = text.lines().filter(|line| line.contains(CANARY)).collect();
    assert_eq!(hits, Vec::<&str>::new());
}
