//! The programs that the driver runs, other than LVM.

use std::path::{Path, PathBuf};

use pliant_lvm::host::{Cmd, HostError, Output};
use pliant_volume::FsKind;
use pliant_volume::bytes::Bytes;

use crate::superblocks::{FakeFs, HEAD, type_of};
use crate::{FakeHost, World};

fn ended(code: i32, stdout: impl Into<String>) -> Output {
    Output { code, stdout: stdout.into(), stderr: String::new() }
}

fn failed(code: i32, stderr: impl Into<String>) -> Output {
    Output { code, stdout: String::new(), stderr: stderr.into() }
}

impl FakeHost {
    pub(super) async fn run_program(&self, cmd: &Cmd) -> Result<Output, HostError> {
        let ended = self.run_to_its_end(cmd).await;
        self.hold_in(&cmd.to_string()).await;
        self.outlived_by(cmd)?;
        ended
    }

    async fn run_to_its_end(&self, cmd: &Cmd) -> Result<Output, HostError> {
        let typed = cmd.to_string();
        self.lock().count("processes");
        self.turn().await;
        self.absence_of(cmd.program, &typed)?;
        if let Err(error) = self.failure_of(&typed) {
            return program_error(error);
        }
        let words: Vec<&str> =
            cmd.args.iter().map(|arg| arg.to_str().expect("arguments are text")).collect();
        let last = PathBuf::from(words.last().copied().unwrap_or_default());
        match (cmd.program, words.as_slice()) {
            ("lvm", ["version"]) => Ok(ended(
                0,
                format!("  LVM version:     {}(2) (2025-02-27)\n", self.lock().lvm_version),
            )),
            ("blkid", ["-p", "-o", "export", _]) => self.lock().blkid(&last),
            ("wipefs", ["-n", ..]) => self.lock().wipefs(&last),
            ("wipefs", ["-a", _]) => {
                self.effect(typed.clone(), |world| world.wipe_signatures(&last, &typed)).await
            }
            ("e2fsck", ["-f", "-n" | "-p", _])
            | ("xfs_repair", ["-n", _])
            | ("btrfs", ["check", "--readonly", _]) => self.lock().check(&last, cmd.program),
            ("tune2fs", ["-U", uuid, _] | ["-O", "metadata_csum_seed", "-U", uuid, _])
            | ("btrfstune", ["-f", "-M", uuid, _]) => self.set_uuid(&typed, &last, uuid).await,
            ("xfs_db", ["-x", "-c", uuid, _]) => {
                self.set_uuid(&typed, &last, uuid.trim_start_matches("uuid ")).await
            }
            ("resize2fs", [_]) => self.resize2fs(&typed, &last, None).await,
            ("resize2fs", [device, size]) => {
                let size =
                    size_of(size).unwrap_or_else(|| panic!("the fake cannot read `{typed}`"));
                self.resize2fs(&typed, Path::new(device), Some(size)).await
            }
            ("xfs_growfs", ["-d", _]) => self.grow(&typed, &last, FsKind::Xfs).await,
            ("btrfs", ["filesystem", "resize", "max", _]) => {
                self.grow(&typed, &last, FsKind::Btrfs).await
            }
            (mkfs, _) => match mkfs.strip_prefix("mkfs.").and_then(|kind| kind.parse().ok()) {
                Some(kind) => self.mkfs(&typed, kind, &last).await,
                None => panic!("the fake does not know `{typed}`"),
            },
        }
    }

    /// What mkfs says of options, on an image of this size: it changes nothing.
    pub(super) async fn try_program(&self, cmd: &Cmd, size: Bytes) -> Result<Output, HostError> {
        let typed = format!("{cmd} ({size})");
        self.lock().count("processes");
        self.turn().await;
        self.absence_of(cmd.program, &typed)?;
        self.failure_of(&typed)?;
        Ok(self.lock().bad_options_of(&typed).unwrap_or_else(|| ended(0, "")))
    }

    /// Two effects: the begun format, and the whole one.
    async fn mkfs(&self, typed: &str, kind: FsKind, device: &Path) -> Result<Output, HostError> {
        let (fs, uuid) = {
            let mut world = self.lock();
            let Ok(size) = world.size_of(device) else {
                return Ok(failed(1, format!("{} does not exist", device.display())));
            };
            if let Some(refused) = world.bad_options_of(typed) {
                return Ok(refused);
            }
            world.may_format(device, typed);
            let blocks = size.get() / FakeFs::BLOCK;
            let covers = Bytes::new(blocks * FakeFs::BLOCK);
            world.uuids += 1;
            let uuid = uuid_in(typed).unwrap_or_else(|| u128::from(world.uuids));
            (FakeFs { kind, covers }, uuid)
        };
        for (step, begun) in [("begin", true), ("end", false)] {
            let head = fs.make(uuid, begun);
            let write = |world: &mut World| {
                world.may_format(device, typed);
                world.write(device, 0, &head)
            };
            if let Err(error) = self.effect(format!("{typed}: {step}"), write).await {
                return program_error(error);
            }
        }
        Ok(ended(0, ""))
    }

    async fn set_uuid(&self, typed: &str, device: &Path, uuid: &str) -> Result<Output, HostError> {
        let uuid = number_of(uuid).unwrap_or_else(|| panic!("the fake cannot read `{typed}`"));
        let set = |world: &mut World| {
            world.may_rename(device, typed);
            let mut head = world.read(device, 0, HEAD)?;
            let Some(fs) = FakeFs::read(&head) else { return Ok(failed(1, "no file system")) };
            fs.set_uuid(&mut head, uuid);
            world.write(device, 0, &head).map(|()| ended(0, ""))
        };
        self.effect(typed.to_owned(), set).await.or_else(program_error)
    }

    async fn grow(&self, typed: &str, mounted: &Path, kind: FsKind) -> Result<Output, HostError> {
        let grow = |world: &mut World| world.grow_mounted(mounted, &[kind], None, typed);
        let grown = self.effect(typed.to_owned(), grow).await;
        grown.map(|()| ended(0, "")).or_else(program_error)
    }

    async fn resize2fs(
        &self,
        typed: &str,
        device: &Path,
        to: Option<Bytes>,
    ) -> Result<Output, HostError> {
        let resize = |world: &mut World| {
            let size = world.size_of(device)?;
            let head = world.read(device, 0, HEAD)?;
            let covers = to.unwrap_or(size);
            match FakeFs::read(&head).filter(|fs| fs.kind.is_ext() && covers <= size) {
                Some(fs) => world.resize(device, FakeFs { covers, ..fs }).map(|()| ended(0, "")),
                None => Ok(failed(1, "no ext file system, or too small a device")),
            }
        };
        let resized = self.effect(typed.to_owned(), resize).await;
        resized.or_else(program_error)
    }
}

impl World {
    /// How mkfs ends that does not take its options.
    fn bad_options_of(&self, typed: &str) -> Option<Output> {
        let bad = self.bad_options.iter().find(|(part, _)| typed.contains(part.as_str()));
        bad.map(|(_, stderr)| failed(1, stderr.clone()))
    }
}

/// The uuid that a file system is to have, where the command says which.
fn uuid_in(typed: &str) -> Option<u128> {
    let value = typed.split_once(" -U ").or_else(|| typed.split_once(" -m uuid="))?.1;
    number_of(value.split(' ').next()?)
}

/// A uuid in the usual notation.
fn number_of(uuid: &str) -> Option<u128> {
    let hex: String = uuid.chars().filter(|letter| *letter != '-').collect();
    u128::from_str_radix(&hex, 16).ok()
}

/// What a program makes of a failed call: an exit code, except that a hanging one hangs it.
fn program_error(error: HostError) -> Result<Output, HostError> {
    match error {
        HostError::TimedOut { .. } => Err(error),
        other => Ok(failed(8, other.to_string())),
    }
}

/// A size as resize2fs takes it: blocks, or with one of `s K M G T`.
fn size_of(text: &str) -> Option<Bytes> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" => FakeFs::BLOCK,
        "s" => 512,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    Bytes::new(number.parse().ok()?).checked_mul(unit)
}

impl World {
    /// 2 for nothing found and for no device, as the real one.
    fn blkid(&self, device: &Path) -> Result<Output, HostError> {
        match self.read(device, 0, HEAD).map(|head| type_of(&head)) {
            Ok(Some(kind)) => {
                let export = format!("DEVNAME={}\nTYPE={kind}\n", device.display());
                Ok(ended(0, export))
            }
            Err(error @ HostError::TimedOut { .. }) => Err(error),
            Ok(None) | Err(_) => Ok(ended(2, "")),
        }
    }

    fn wipefs(&self, device: &Path) -> Result<Output, HostError> {
        match self.read(device, 0, HEAD).map(|head| type_of(&head)) {
            Ok(kind) => Ok(ended(0, kind.unwrap_or_default())),
            Err(error) => program_error(error),
        }
    }

    fn wipe_signatures(&mut self, device: &Path, typed: &str) -> Result<Output, HostError> {
        let head = 0..4096;
        self.may_wipe(device, &head, typed);
        match self.zero(device, head, typed) {
            Ok(()) => Ok(ended(0, "")),
            Err(error) => program_error(error),
        }
    }

    fn check(&self, device: &Path, program: &str) -> Result<Output, HostError> {
        let head = match self.read(device, 0, HEAD) {
            Ok(head) => head,
            Err(error) => return program_error(error),
        };
        let kind = FakeFs::read(&head).map(|fs| fs.kind);
        let right = match program {
            "e2fsck" => kind.is_some_and(FsKind::is_ext),
            "btrfs" => kind == Some(FsKind::Btrfs),
            _ => kind == Some(FsKind::Xfs),
        };
        Ok(if right { ended(0, "") } else { failed(8, "bad superblock") })
    }
}
