//! A machine with a driver in this process, and the comparison of it with what was promised.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pliant::bytes::Bytes;
use pliant::error_chain;
use pliant::host::{Cmd, Host, RealHost};
use pliant::lvm::{self, THIN_POOL};
use pliant::node::{GroupSource, Node, NodeSettings, PoolPlan};
use pliant::volume::{
    Access, Class, FsKind, Growth, Layout, Mode, NewVolume, NodeKey, NodeVolumes, Page,
    RequestedSize, Source, Stage, State, ThinSettings, VolumeError, VolumeId, VolumeKey,
    VolumeStatus, Volumes,
};

use crate::script::{BLOCK, Part, Promised, Step, World, foreign_secrets, secret, secret_file};

/// The one group of these machines.
pub const GROUP: &str = "vg0";
/// The name of the node.
pub const NODE: &str = "n1";

/// A driver that serves one group, started as after a boot.
pub struct Machine {
    /// The door.
    pub host: Arc<dyn Host>,
    /// The driver.
    pub node: Arc<Node>,
    dir: PathBuf,
}

/// What differs from the promise.
#[derive(Debug, Default)]
pub struct Verdict {
    /// A sentence for each promise that was not kept.
    pub broken: Vec<String>,
    /// Blocks of former tenants that a present one can read.
    pub canaries: usize,
}

impl Machine {
    /// Starts a driver with a new state directory below `dir`.
    pub async fn start(dir: &Path) -> Machine {
        let host: Arc<dyn Host> = Arc::new(RealHost::new(dir.join("state")).expect("host"));
        let settings = NodeSettings {
            wipe_patience: Duration::from_secs(300),
            state_dir: dir.join("state"),
            ..NodeSettings::new(NODE)
        };
        let mut plan = PoolPlan::new(
            "default".parse().expect("name"),
            vec![GroupSource::Existing(GROUP.to_owned())],
        );
        plan.terms.thin = Some(ThinSettings::default());
        let node = Node::start(host.clone(), settings, vec![plan]).await.expect("start");
        Machine { host, node, dir: dir.to_owned() }
    }

    /// Takes one step; one that was taken already changes nothing.
    pub async fn take(&self, step: Step) -> Result<(), String> {
        let done = match step {
            Step::Create(name, mode, mib) => {
                self.node.ensure(&new_volume(name, mode, mib)).await.map(drop)
            }
            Step::Clone(name, of, mib) => self.clone_of(name, of, mib).await,
            Step::Delete(name) => self.node.remove(&id(name)).await,
            Step::Grow(name, mib) => {
                let growth = Growth { size: wanted(mib), block: None };
                match self.node.grow(&id(name), growth).await {
                    Ok(grown) if grown.node_expansion_required => {
                        return Err(format!("{step}: the file system was not grown"));
                    }
                    other => other.map(drop),
                }
            }
            Step::Shrink(name, mib) => match self.node.shrink(&id(name), Bytes::mib(mib)).await {
                Ok(_) => self.node.release(&id(name)).await,
                Err(error) => Err(error),
            },
            Step::Unstage(name) => self.node.unstage(&id(name), &self.staging(name)).await,
            Step::Stage(name) => self.stage(name).await,
            Step::Write(name, part) => {
                return self.write(name, part).await.map_err(|error| format!("{step}: {error}"));
            }
        };
        done.map_err(|error| format!("{step}: {}", error_chain::in_full(&error)))
    }

    async fn clone_of(&self, name: &str, of: &str, mib: u64) -> Result<(), VolumeError> {
        let found = self.node.find(&id(of)).await?;
        let mode = found.map_or(Mode::Block, |found| found.volume.mode);
        let source = Some(Source::Volume(id(of)));
        let new = NewVolume { source, ..new_volume(name, mode, mib) };
        self.node.ensure(&new).await.map(drop)
    }

    async fn stage(&self, name: &str) -> Result<(), VolumeError> {
        let found = self.node.find(&id(name)).await?;
        let access = match found.map(|found| found.volume.mode) {
            Some(Mode::Filesystem(_)) => Access::Mount { fs: None, options: Vec::new() },
            Some(Mode::Block) | None => Access::Block,
        };
        let staging = self.staging(name);
        self.node.stage(&Stage { id: id(name), staging, access, read_only: false }).await
    }

    fn staging(&self, name: &str) -> PathBuf {
        self.dir.join("staging").join(name)
    }

    async fn write(&self, name: &str, part: Part) -> std::io::Result<()> {
        let sync = |mut file: File, bytes: &[u8]| {
            file.write_all(bytes)?;
            file.sync_all()
        };
        match part {
            Part::File(file, kib) => {
                let path = self.staging(name).join(file);
                sync(File::create(&path)?, &secret_file(name, file, kib))?;
                // A new name is durable when its directory is.
                File::open(self.staging(name))?.sync_all()
            }
            Part::Mib(from, to) => {
                let mut device = OpenOptions::new().write(true).open(self.device(name).await?)?;
                device.seek(SeekFrom::Start(from << 20))?;
                let blocks = blocks(from)..blocks(to);
                sync(device, &blocks.flat_map(|n| secret(name, "raw", n)).collect::<Vec<u8>>())
            }
        }
    }

    /// The live device of a volume.
    pub async fn device(&self, name: &str) -> std::io::Result<PathBuf> {
        let dm_name = format!("{GROUP}-pliant--{}", VolumeKey::of(name).as_str());
        let devices = self.host.dm_list().await.map_err(std::io::Error::other)?;
        let device = devices.into_iter().find(|device| device.name == dm_name);
        let device = device.ok_or_else(|| std::io::Error::other("the volume is not active"))?;
        Ok(PathBuf::from(format!("/dev/dm-{}", device.number.minor)))
    }

    /// Compares everything with the promise. `next` is the step that was under way and may have
    /// happened in part. Volumes are staged afterwards as they were promised to be.
    pub async fn compare(&self, world: &World, next: Option<Step>) -> Verdict {
        let mut verdict = Verdict::default();
        let listed = match self.node.list(&Page::default()).await {
            Ok(listed) => listed.volumes,
            Err(error) => {
                verdict.broken.push(format!("list: {}", error_chain::in_full(&error)));
                return verdict;
            }
        };
        for VolumeStatus { volume, .. } in &listed {
            let coming = matches!(next, Some(Step::Create(name, ..) | Step::Clone(name, ..))
                if name == volume.name);
            if !coming && !world.volumes.contains_key(volume.name.as_str()) {
                verdict.broken.push(format!("{} is back", volume.name));
            }
        }
        for (name, promised) in &world.volumes {
            let found = listed.iter().find(|one| one.volume.name == *name);
            let told = match found {
                Some(volume) => self.compare_volume(volume, promised, next, &mut verdict).await,
                None if next == Some(Step::Delete(name)) => Ok(()),
                None => Err("it is gone".to_owned()),
            };
            if let Err(words) = told {
                verdict.broken.push(format!("{name}: {words}"));
            }
        }
        if next.is_none() {
            verdict.broken.extend(self.leftovers(world).await);
        }
        verdict
    }

    async fn compare_volume(
        &self,
        VolumeStatus { volume, state, .. }: &VolumeStatus,
        promised: &Promised,
        next: Option<Step>,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        let name = volume.name.as_str();
        let next = next.filter(|step| step.volume() == name);
        match state {
            State::Ready | State::Resizing | State::Resized => {}
            State::Creating if !promised.made => {}
            State::Deleting { .. } if matches!(next, Some(Step::Delete(_))) => return Ok(()),
            other => return Err(format!("it is {other}")),
        }
        let resized = matches!(next, Some(Step::Grow(_, mib) | Step::Shrink(_, mib))
            if volume.size == Bytes::mib(mib));
        if volume.size != Bytes::mib(promised.mib) && !resized {
            return Err(format!("it has {}, {} MiB were promised", volume.size, promised.mib));
        }
        match volume.mode {
            Mode::Block => self.compare_device(name, promised, next, verdict).await,
            Mode::Filesystem(kind) if promised.made => {
                self.compare_files(name, kind, promised).await
            }
            Mode::Filesystem(_) => Ok(()),
        }
    }

    /// Reads a raw device whole: what was written is there, and nothing of anybody else.
    async fn compare_device(
        &self,
        name: &str,
        promised: &Promised,
        next: Option<Step>,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        self.stage(name).await.map_err(|error| error_chain::in_full(&error))?;
        let device = self.device(name).await.map_err(|error| error.to_string())?;
        let length = usize::try_from(promised.mib << 20).expect("a small disk");
        let bytes = self.host.read_at(&device, 0, length).await;
        let bytes = bytes.map_err(|error| error.to_string())?;
        verdict.canaries += foreign_secrets(&bytes, promised.writer);
        let mut expected = vec![Some(false); length / BLOCK];
        let coming = match next {
            Some(Step::Write(_, part)) => Some((part, None)),
            _ => None,
        };
        let written = promised.written.iter().map(|part| (*part, Some(true)));
        for (part, state) in written.chain(coming) {
            if let Part::Mib(from, to) = part {
                expected[blocks(from)..blocks(to)].fill(state);
            }
        }
        let wrong =
            bytes.chunks(BLOCK).zip(expected).enumerate().filter(
                |(n, (block, state))| match state {
                    Some(true) => **block != secret(promised.writer, "raw", *n),
                    Some(false) => **block != [0; BLOCK],
                    None => false,
                },
            );
        let wrong = wrong.count();
        if !promised.staged {
            self.unstage(name).await?;
        }
        if wrong > 0 {
            return Err(format!("{wrong} blocks of the device are not what they should be"));
        }
        Ok(())
    }

    /// Mounts, reads every file that was promised, unmounts and checks.
    async fn compare_files(
        &self,
        name: &str,
        kind: FsKind,
        promised: &Promised,
    ) -> Result<(), String> {
        self.stage(name).await.map_err(|error| error_chain::in_full(&error))?;
        for part in &promised.written {
            if let Part::File(file, kib) = *part {
                let bytes = fs::read(self.staging(name).join(file));
                let bytes = bytes.map_err(|error| format!("file {file}: {error}"))?;
                if bytes != secret_file(promised.writer, file, kib) {
                    return Err(format!("file {file} has other bytes"));
                }
            }
        }
        self.unstage(name).await?;
        self.check(name, kind).await?;
        if promised.staged {
            self.stage(name).await.map_err(|error| error_chain::in_full(&error))?;
        }
        Ok(())
    }

    async fn unstage(&self, name: &str) -> Result<(), String> {
        let done = self.node.unstage(&id(name), &self.staging(name)).await;
        done.map_err(|error| error_chain::in_full(&error))
    }

    /// Asks the file system's own checker.
    async fn check(&self, name: &str, kind: FsKind) -> Result<(), String> {
        let lv = format!("{GROUP}/pliant-{}", VolumeKey::of(name).as_str());
        let change = |how: &str| Cmd::new("lvchange").args(["-y", "-K", how]).arg(lv.clone());
        self.host.lvm(GROUP, change("-ay")).await.map_err(|error| error.to_string())?;
        let device = self.device(name).await.map_err(|error| error.to_string())?;
        let checker = match kind {
            FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => Cmd::new("e2fsck").args(["-f", "-n"]),
            FsKind::Xfs => Cmd::new("xfs_repair").arg("-n"),
            FsKind::Btrfs => Cmd::new("btrfs").args(["check", "--readonly"]),
        };
        let checked = self.host.run(checker.arg(device)).await.map_err(|error| error.to_string());
        self.host.lvm(GROUP, change("-an")).await.map_err(|error| error.to_string())?;
        match checked? {
            output if output.code == 0 => Ok(()),
            output => Err(format!("the checker says {}: {}", output.code, output.stdout)),
        }
    }

    /// What is there and belongs to no promised volume, and what waits for ever.
    async fn leftovers(&self, world: &World) -> Vec<String> {
        let mut left = Vec::new();
        let scan = lvm::scan(&self.host, &lvm::NamedDisks::default()).await.expect("scan");
        let group = scan.of(GROUP).find_map(|member| member.group.clone()).expect("group");
        let names: BTreeSet<String> = world
            .volumes
            .keys()
            .map(|name| format!("pliant-{}", VolumeKey::of(name).as_str()))
            .collect();
        // A thin pool stays, with its data and its metadata.
        let pool = THIN_POOL;
        let of_pool = |name: &str| {
            name == "lvol0_pmspare"
                || name
                    .strip_prefix(pool)
                    .is_some_and(|part| ["", "_tdata", "_tmeta"].contains(&part))
        };
        let lvs = group.lvs.keys().filter(|name| !names.contains(*name) && !of_pool(name));
        left.extend(lvs.map(|name| format!("logical volume {name} is left")));
        let lvs = group.lvs.values().map(|lv| (of_pool(&lv.name), group.dm_uuid(lv)));
        let (of_pool, uuids): (Vec<_>, Vec<_>) = lvs.partition(|(of_pool, _)| *of_pool);
        let is_known = |uuid: &str| {
            let is_layer = |(_, own): &(bool, String)| uuid.starts_with(own);
            uuids.iter().any(|(_, own)| own == uuid) || of_pool.iter().any(is_layer)
        };
        for device in self.host.dm_list().await.expect("dm") {
            if !device.uuid.starts_with("LVM-") {
                continue;
            }
            if !is_known(&device.uuid) {
                left.push(format!("device {} is left", device.name));
            }
            let info = self.host.dm_info(&device.uuid).await.expect("dm");
            if info.is_some_and(|info| info.suspended || info.inactive_table || !info.live_table) {
                left.push(format!("device {} is half-changed", device.name));
            }
        }
        left
    }
}

impl Step {
    /// The volume that it is about.
    pub fn volume(&self) -> &'static str {
        match self {
            Step::Create(name, ..)
            | Step::Clone(name, ..)
            | Step::Stage(name)
            | Step::Write(name, _)
            | Step::Grow(name, _)
            | Step::Shrink(name, _)
            | Step::Unstage(name)
            | Step::Delete(name) => name,
        }
    }
}

/// The id that the driver gives a volume of this name.
pub fn id(name: &str) -> VolumeId {
    VolumeId::new(NodeKey::of(NODE), VolumeKey::of(name))
}

/// A new volume as the scripts ask for it, empty: thin if its name begins so.
pub fn new_volume(name: &str, mode: Mode, mib: u64) -> NewVolume {
    let layout = if name.starts_with("thin") { Layout::Thin } else { Layout::Linear };
    let (class, nodes) = (Class { layout, ..Class::default() }, Vec::new());
    NewVolume { name: name.into(), size: wanted(mib), mode, class, nodes, source: None }
}

fn wanted(mib: u64) -> RequestedSize {
    RequestedSize { at_least: Bytes::mib(mib), at_most: None }
}

fn blocks(mib: u64) -> usize {
    usize::try_from(mib << 20).expect("a small disk") / BLOCK
}
