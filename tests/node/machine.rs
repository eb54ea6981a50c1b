//! A machine in memory with a neighbour's volume, former tenants' bytes in all free space, and the
//! operations that a caller asks for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::fs::superblock;
use pliant::host::{Cmd, Host};
use pliant::lvm::Lv;
use pliant::node::lv_tags::{self, lv_name};
use pliant::node::snapshot_tags;
use pliant::node::storage::OperationKind;
use pliant::node::{GroupSource, NewDisk, Node, NodeSettings, PoolPlan, copied};
use pliant::testing::FakeHost;
use pliant::volume::{
    Access, Class, Fence, FsKind, Growth, Layout, Mode, NewSnapshot, NewVolume, NodeKey,
    NodeVolumes, Page, Publish, RequestedSize, Safety, SnapshotId, Snapshots, Source,
    Stage as Staging, State, ThinSettings, VolumeError, VolumeId, VolumeKey, VolumeStatus, Volumes,
};

/// Block, and each file system.
pub const MODES: [Mode; 6] = [
    Mode::Block,
    Mode::Filesystem(FsKind::Ext2),
    Mode::Filesystem(FsKind::Ext3),
    Mode::Filesystem(FsKind::Ext4),
    Mode::Filesystem(FsKind::Xfs),
    Mode::Filesystem(FsKind::Btrfs),
];

/// The volume that is worked on, and the one beside it that must not notice.
pub const VOLUME: &str = "volume";
pub const NEIGHBOUR: &str = "neighbour";
/// A volume with the content of a snapshot or of another volume.
pub const RESTORED: &str = "restored";

/// The first size, and the one that it grows to.
pub const SMALL: u64 = 320;
pub const LARGE: u64 = 480;
/// What it shrinks to, with all that was written.
pub const LESS: u64 = 304;

pub const STAGING: &str = "/var/lib/kubelet/staging/volume";
pub const TARGET: &str = "/var/lib/kubelet/pods/volume";
const MARK: &[u8] = b"what the workload wrote and synced";
/// Inside what a format writes anew, and far behind it.
const MARKED_AT: [u64; 3] = [32 << 10, 9 << 20, 301 << 20];
const SECRET: &[u8] = b"what a former tenant wrote";
/// A former tenant's bytes lie in each of so many extents.
const SECRET_EVERY: u64 = 4;

pub fn id_of(name: &str) -> VolumeId {
    VolumeId::new(NodeKey::of("alpha"), VolumeKey::of(name))
}

pub fn settings() -> NodeSettings {
    NodeSettings::new("alpha")
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Make the volume of [`VOLUME`]'s name.
    Create(Mode),
    /// As before, with a safety snapshot before each offline resize or never.
    CreateSafe(Mode, Safety),
    /// As before, in the thin pool.
    CreateThin(Mode),
    /// Make another volume behind it.
    CreateNeighbour,
    /// Make another volume that leaves little room on the first disk.
    CreateFiller,
    Delete,
    Fence(Fence),
    Grow(u64),
    Shrink(u64),
    Release,
    Stage(Mode),
    Publish(Mode),
    Unpublish,
    Unstage,
    /// The node's step of a growth.
    Expand,
    /// The node's step of a growth whose first step never happened.
    ExpandTo(u64),
    /// Take a snapshot of the volume, and wait until it is ready.
    Snapshot,
    DeleteSnapshot,
    /// Make a volume from the snapshot, linear or thin.
    Restore(Mode, Layout),
    /// Make a volume with what the volume has now.
    Clone(Mode, Layout),
    /// Stage what was restored or cloned.
    StageRestored(Mode),
    DeleteRestored,
    /// Not a call: the workload writes and syncs.
    Write,
    /// Not a call: its ext becomes one that grows while it is not mounted, or not at all.
    Sparse,
}

impl Op {
    /// Ask, and say what was answered.
    pub async fn ask(self, host: &FakeHost, node: &Node) -> Result<String, String> {
        let id = id_of(VOLUME);
        let said = match self {
            Op::Create(mode) => create(node, &want(VOLUME, mode, SMALL)).await,
            Op::CreateSafe(mode, safety) => {
                let mut want = want(VOLUME, mode, SMALL);
                want.class.safety = safety;
                create(node, &want).await
            }
            Op::CreateThin(mode) => create(node, &thin(want(VOLUME, mode, SMALL))).await,
            Op::CreateNeighbour => create(node, &want(NEIGHBOUR, Mode::Block, 8)).await,
            Op::CreateFiller => create(node, &want(NEIGHBOUR, Mode::Block, 100)).await,
            Op::Delete => node.remove(&id).await.map(text),
            Op::Fence(fence) => node.fence(&id, fence).await.map(text),
            Op::Grow(mib) => node.grow(&id, growth(mib)).await.map(text),
            Op::Shrink(mib) => node.shrink(&id, Bytes::mib(mib)).await.map(text),
            Op::Release => node.release(&id).await.map(text),
            Op::Stage(mode) => node.stage(&staging(mode)).await.map(text),
            Op::Publish(mode) => node.publish(&publish(mode)).await.map(text),
            Op::Unpublish => node.unpublish(&id, Path::new(TARGET)).await.map(text),
            Op::Unstage => node.unstage(&id, Path::new(STAGING)).await.map(text),
            Op::Expand => node.expand(&id, Path::new(STAGING), None).await.map(text),
            Op::ExpandTo(mib) => {
                node.expand(&id, Path::new(STAGING), Some(growth(mib))).await.map(text)
            }
            Op::Snapshot => take(node).await,
            Op::DeleteSnapshot => node.remove_snapshot(&snapshot_id()).await.map(text),
            Op::Restore(mode, layout) => {
                create_from(node, Source::Snapshot(snapshot_id()), mode, layout).await
            }
            Op::Clone(mode, layout) => create_from(node, Source::Volume(id), mode, layout).await,
            Op::StageRestored(mode) => {
                let staging = PathBuf::from("/var/lib/kubelet/staging/restored");
                let id = id_of(RESTORED);
                node.stage(&Staging { id, staging, ..crate::machine::staging(mode) })
                    .await
                    .map(text)
            }
            Op::DeleteRestored => node.remove(&id_of(RESTORED)).await.map(text),
            Op::Write => {
                mark(host, VOLUME).await;
                Ok(String::new())
            }
            Op::Sparse => {
                make_sparse_super2(host, VOLUME).await;
                Ok(String::new())
            }
        };
        said.map_err(|error| format!("{error:?}"))
    }
}

pub fn snapshot_id() -> SnapshotId {
    new_snapshot().id()
}

fn new_snapshot() -> NewSnapshot {
    NewSnapshot { name: "snapshot".to_owned(), source: id_of(VOLUME) }
}

/// Take the snapshot, and wait until it is ready. Of its time only the first call knows.
async fn take(node: &Node) -> Result<String, VolumeError> {
    let mut copies = copied(node);
    loop {
        let taken = node.ensure_snapshot(&new_snapshot()).await?;
        if taken.ready {
            return Ok(text((taken.id, taken.size, taken.restore_size)));
        }
        copies.changed().await.expect("the driver runs");
    }
}

async fn create_from(
    node: &Node,
    source: Source,
    mode: Mode,
    layout: Layout,
) -> Result<String, VolumeError> {
    let mut want = want(RESTORED, mode, SMALL + 8);
    (want.source, want.class.layout) = (Some(source), layout);
    node.ensure(&want).await.map(text)
}

/// Make a volume, and wait until it is wiped behind the answer.
async fn create(node: &Node, want: &NewVolume) -> Result<String, VolumeError> {
    let made = node.ensure(want).await.map(text);
    until_wiped(node).await;
    made
}

/// Wait until no new volume is being wiped, and nothing is copied.
pub async fn until_wiped(node: &Node) {
    let works_on = |id: &VolumeId| node.storage().operations.iter().any(|one| one.volume == *id);
    let is_wiped = |one: &VolumeStatus| one.state == State::Creating && works_on(&one.volume.id);
    let copies = || node.storage().operations.iter().any(|one| one.r#type == OperationKind::Copy);
    while let Ok(listing) = node.list(&Page::default()).await
        && (copies() || listing.volumes.iter().any(is_wiped))
    {
        tokio::task::yield_now().await;
    }
}

fn text(answer: impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

pub fn want(name: &str, mode: Mode, mib: u64) -> NewVolume {
    NewVolume {
        name: name.to_owned(),
        size: RequestedSize { at_least: Bytes::mib(mib), at_most: None },
        mode,
        class: Class::default(),
        nodes: Vec::new(),
        source: None,
    }
}

pub fn thin(want: NewVolume) -> NewVolume {
    NewVolume { class: Class { layout: Layout::Thin, ..want.class }, ..want }
}

pub fn growth(mib: u64) -> Growth {
    Growth { size: RequestedSize { at_least: Bytes::mib(mib), at_most: None }, block: None }
}

fn access(mode: Mode) -> Access {
    match mode {
        Mode::Block => Access::Block,
        Mode::Filesystem(kind) => Access::Mount { fs: Some(kind), options: Vec::new() },
    }
}

pub fn staging(mode: Mode) -> Staging {
    Staging {
        id: id_of(VOLUME),
        staging: PathBuf::from(STAGING),
        access: access(mode),
        read_only: false,
    }
}

pub fn publish(mode: Mode) -> Publish {
    Publish {
        id: id_of(VOLUME),
        staging: PathBuf::from(STAGING),
        target: PathBuf::from(TARGET),
        access: access(mode),
        read_only: false,
        alone: true,
    }
}

/// What a driver is started on.
#[derive(Debug, Clone)]
pub struct Setup {
    pub settings: NodeSettings,
    pub plans: Vec<PoolPlan>,
}

impl Setup {
    pub async fn start(&self, host: &FakeHost) -> Arc<Node> {
        let host: Arc<dyn Host> = Arc::new(host.clone());
        let node = Node::start(host, self.settings.clone(), self.plans.clone());
        let node = node.await.expect("disks are listed");
        until_wiped(&node).await;
        node
    }
}

/// The disks of a machine and the pool on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disks {
    /// One group on two disks, as an administrator made it.
    Two,
    /// One group on a disk that is soon full, and a blank disk to help out.
    Standby,
    /// A blank disk that a group is to be made on.
    Blank,
    /// As two, and the pool makes thin volumes.
    Thin,
}

impl Disks {
    pub async fn machine(self, two_step: bool) -> (FakeHost, Setup) {
        let host = FakeHost::new();
        let group = vec![GroupSource::Existing("vg0".to_owned())];
        let (groups, standby_disks) = match self {
            Disks::Two | Disks::Thin => {
                let disks = [host.add_disk(Bytes::mib(400)), host.add_disk(Bytes::mib(900))];
                host.add_group("vg0", &disks);
                (group, Vec::new())
            }
            Disks::Standby => {
                let disk = host.add_disk(Bytes::mib(400));
                host.add_group("vg0", &[disk]);
                (group, vec![NewDisk { path: host.add_disk(Bytes::gib(1)), wipe: false }])
            }
            Disks::Blank => {
                let disk = host.add_disk(Bytes::gib(1));
                (vec![GroupSource::Create(NewDisk { path: disk, wipe: false })], Vec::new())
            }
        };
        for disk in host.disks().await.expect("disks") {
            // Behind the metadata area and the place where blankness is looked for.
            for at in (20 << 20..disk.size.get() - (4 << 20)).step_by(4 << 20) {
                if (at >> 22) % SECRET_EVERY == 3 {
                    host.write_at(&disk.path, at, SECRET);
                }
            }
            host.flush(&disk.path).await.expect("flush");
        }
        let mut plan =
            PoolPlan { standby_disks, ..PoolPlan::new("fast".parse().expect("a name"), groups) };
        plan.terms.thin = (self == Disks::Thin).then(ThinSettings::default);
        (host, Setup { settings: NodeSettings { two_step, ..settings() }, plans: vec![plan] })
    }
}

/// What `sparse_super2` makes of an ext4.
async fn make_sparse_super2(host: &FakeHost, name: &str) {
    const COMPAT: u64 = 1024 + 0x5c;
    let device = device_of(host, name);
    let compat = host.read_at(&device, COMPAT, 4).await.expect("it can be read");
    host.write_at(&device, COMPAT, &[compat[0], compat[1] | 2, compat[2], compat[3]]);
    host.flush(&device).await.expect("sync");
}

fn device_of(host: &FakeHost, name: &str) -> PathBuf {
    let lv = lv_name(&VolumeKey::of(name));
    host.device_of(&group_of(host), &lv).expect("an active volume")
}

/// Write what must never be lost, synced.
async fn mark(host: &FakeHost, name: &str) {
    let device = device_of(host, name);
    let size = host.device_size(&device).await.expect("size").get();
    for at in MARKED_AT.into_iter().filter(|at| *at < size) {
        host.write_at(&device, at, MARK);
    }
    host.flush(&device).await.expect("sync");
}

/// Type a command on a group, as an administrator does.
pub async fn type_in(host: &FakeHost, group: &str, line: &str) {
    let disks = host.disks().await.expect("disks");
    let disks: Vec<PathBuf> = disks.into_iter().map(|disk| disk.path).collect();
    host.pin_devices(group, &disks).await.expect("pinned");
    let mut words = line.split(' ').map(str::to_owned);
    let program: &'static str = words.next().expect("a program").leak();
    let said = host.lvm(group, Cmd::new(program).args(words)).await.expect("it ran");
    assert!(!said.contains("failure"), "{line}: {said}");
}

/// The only group of the machine.
fn group_of(host: &FakeHost) -> String {
    host.state().groups.into_keys().next().expect("a group")
}

/// Read from a volume, active or not.
pub async fn content(
    host: &FakeHost,
    group: &pliant::lvm::Group,
    lv: &Lv,
    at: u64,
    n: usize,
) -> Vec<u8> {
    if lv.thin_pool().is_some() {
        let end = at + n as u64;
        let chunks = host.chunks_of(group, lv).into_iter();
        let mut found =
            chunks.filter(|(start, bytes)| *start <= at && end <= start + bytes.len() as u64);
        let within = |start: u64| usize::try_from(at - start).expect("within a chunk");
        return found
            .next()
            .map_or(vec![0; n], |(start, bytes)| bytes[within(start)..][..n].to_vec());
    }
    let extent = group.extent_size.get();
    let segment =
        lv.segments.iter().find(|s| (s.start..s.start + s.extents).contains(&(at / extent)));
    let segment = segment.expect("within the volume");
    let piece = &segment.pieces[0];
    let pv = &group.pvs[&piece.pv];
    let inside = at - segment.start * extent;
    let on_disk = pv.pe_start * 512 + piece.range.start * extent + inside;
    host.read_at(pv.device.as_ref().expect("a disk"), on_disk, n).await.expect("read")
}

/// What is wrong on a machine whose driver has started: nothing may be, whatever was cut off.
pub async fn wrongs(host: &FakeHost, marked: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, device) in host.state().devices {
        if device.suspended || device.waiting {
            wrong.push(format!("{name} is suspended or has a table waiting"));
        }
    }
    let Some(name) = host.state().groups.into_keys().next() else {
        return wrong;
    };
    let group = host.group(&name).expect("group");
    let kept = |name: &str| group.lvs.get(&lv_name(&VolumeKey::of(name)));
    match kept(VOLUME) {
        Some(lv) if marked => wrong.extend(lost_marks(host, &group, lv).await),
        None if marked => wrong.push(format!("{VOLUME} is lost")),
        _ => {}
    }
    if marked {
        wrong.extend(half_copied(host, &group).await);
    }
    wrong.extend(beyond_their_ends(host, &group).await);
    for (lv, record) in lv_tags::volumes(&group) {
        // Each lies where a chunk begins.
        let chunks = host.chunks_of(&group, lv);
        for (at, _) in chunks.iter().filter(|(_, bytes)| bytes.starts_with(SECRET)) {
            wrong.push(format!("{} has a former tenant's bytes in the chunk at {at}", record.name));
        }
    }
    let shown = lv_tags::volumes(&group).filter(|(_, record)| {
        use lv_tags::StoredState::{Restored, Shown};
        [Restored, Shown].contains(&record.life)
    });
    for (lv, record) in shown.filter(|(_, record)| record.mode == Mode::Block) {
        let extents = secret_extents(&group, lv);
        for at in extents {
            if content(host, &group, lv, at, SECRET.len()).await == SECRET {
                wrong.push(format!("{} shows a former tenant's bytes at {at}", record.name));
            }
        }
    }
    wrong
}

/// What is missing in snapshots and in volumes that say that they are whole.
async fn half_copied(host: &FakeHost, group: &pliant::lvm::Group) -> Vec<String> {
    use lv_tags::StoredState::{Restored, Shown};
    let snapshots = snapshot_tags::snapshots(group).filter(|(_, record)| record.is_ready());
    let volumes = lv_tags::volumes(group)
        .filter(|(_, record)| record.source.is_some() && [Restored, Shown].contains(&record.life));
    let whole = snapshots.map(|(lv, _)| lv).chain(volumes.map(|(lv, _)| lv));
    let mut wrong = Vec::new();
    for lv in whole {
        let lost = lost_marks(host, group, lv).await.into_iter();
        wrong.extend(lost.map(|lost| format!("{}: {lost}", lv.name)));
    }
    wrong
}

/// The file systems that count on bytes which their volumes do not have.
async fn beyond_their_ends(host: &FakeHost, group: &pliant::lvm::Group) -> Vec<String> {
    let mut wrong = Vec::new();
    for (lv, record) in
        lv_tags::volumes(group).filter(|(_, record)| record.life == lv_tags::StoredState::Shown)
    {
        let head = content(host, group, lv, 0, superblock::HEAD).await;
        let covers = superblock::parse(&head).map(|found| found.covers);
        if covers > Some(group.size_of(lv.extents())) {
            wrong.push(format!("{}'s file system is larger than its volume", record.name));
        }
    }
    wrong
}

/// What is wrong with a volume whose removal was cut off: as long as it does not say that it goes, it
/// holds what was synced.
pub async fn wiped_too_early(host: &FakeHost) -> Vec<String> {
    let Some(group) = host.group(&group_of(host)) else { return Vec::new() };
    let (volume, shown) = (lv_name(&VolumeKey::of(VOLUME)), lv_tags::StoredState::Shown);
    let found = lv_tags::volumes(&group).find(|(lv, r)| lv.name == volume && r.life == shown);
    match found {
        Some((lv, _)) => lost_marks(host, &group, lv).await,
        None => Vec::new(),
    }
}

async fn lost_marks(host: &FakeHost, group: &pliant::lvm::Group, lv: &Lv) -> Vec<String> {
    let mut lost = Vec::new();
    for at in MARKED_AT.into_iter().filter(|at| *at < Bytes::mib(4 * lv.extents()).get()) {
        if content(host, group, lv, at, MARK.len()).await != MARK {
            lost.push(format!("{VOLUME} has lost what was synced at {at}"));
        }
    }
    lost
}

/// What is wrong with volumes that were grown or formatted: what a former tenant wrote at the end of a
/// device could be a signature, and nobody may take it for the volume's own.
pub async fn old_ends(host: &FakeHost) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(group) = host.group(&group_of(host)) else { return wrong };
    let shown =
        lv_tags::volumes(&group).filter(|(_, record)| record.life == lv_tags::StoredState::Shown);
    for (lv, record) in shown.filter(|(_, record)| record.mode != Mode::Block) {
        let size = group.size_of(lv.extents());
        let head = content(host, &group, lv, 0, superblock::HEAD).await;
        let fills = superblock::parse(&head).is_none_or(|found| found.fills(size));
        let Some(at) = secret_extents(&group, lv).pop() else { continue };
        let in_last_mib = at + (1 << 20) >= size.get();
        if fills && in_last_mib && content(host, &group, lv, at, SECRET.len()).await == SECRET {
            wrong.push(format!("{} ends with a former tenant's bytes", record.name));
        }
    }
    wrong
}

/// The offsets in a volume where a former tenant's bytes may be.
fn secret_extents(group: &pliant::lvm::Group, lv: &Lv) -> Vec<u64> {
    if lv.thin_pool().is_some() {
        return Vec::new();
    }
    let extent = group.extent_size.get();
    let mut at = Vec::new();
    for segment in &lv.segments {
        let piece = &segment.pieces[0];
        let start = group.pvs[&piece.pv].pe_start * 512 + piece.range.start * extent;
        let on_disk = start..start + segment.extents * extent;
        let places = (20 << 20..on_disk.end).step_by(4 << 20).filter(|at| on_disk.contains(at));
        at.extend(places.map(|place| place - on_disk.start + segment.start * extent));
    }
    at
}

/// Where on the disks a volume's marks lie.
pub fn marks(host: &FakeHost) -> Vec<(PathBuf, u64)> {
    let Some(group) = host.group(&group_of(host)) else { return Vec::new() };
    let Some(lv) = group.lvs.get(&lv_name(&VolumeKey::of(VOLUME))) else { return Vec::new() };
    if lv.thin_pool().is_some() {
        return Vec::new(); // Its pool zeroes them before anyone else gets them.
    }
    let extent = group.extent_size.get();
    let mut places = Vec::new();
    for segment in &lv.segments {
        let piece = &segment.pieces[0];
        let pv = &group.pvs[&piece.pv];
        let start = pv.pe_start * 512 + piece.range.start * extent;
        let within = segment.start * extent..(segment.start + segment.extents) * extent;
        for at in MARKED_AT.into_iter().filter(|at| within.contains(at)) {
            places.push((pv.device.clone().expect("a disk"), start + at - within.start));
        }
    }
    places
}

/// Whether what a volume held can still be read at one of these places.
pub async fn readable(host: &FakeHost, places: &[(PathBuf, u64)]) -> bool {
    for (disk, at) in places {
        if host.read_at(disk, *at, MARK.len()).await.expect("read") == MARK {
            return true;
        }
    }
    false
}

/// A driver on two disks after these operations.
pub async fn after(ops: &[Op]) -> (FakeHost, Setup, Arc<Node>) {
    let (host, setup) = Disks::Two.machine(false).await;
    let node = setup.start(&host).await;
    for op in ops {
        op.ask(&host, &node).await.expect("what goes before is done");
    }
    (host, setup, node)
}
