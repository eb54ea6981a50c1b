//! Volume capabilities: what the workload sees, and who else may see it.

use crate::parse::ParseError;
use crate::pb;
use crate::pb::volume_capability::access_mode::Mode as AccessMode;
use crate::pb::volume_capability::{AccessType, MountVolume};
use crate::volume::Access;
use crate::volume::FsKind;
use crate::volume::parse_mount_options;

/// One capability of a volume on its one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// How the workload accesses the volume.
    pub access: Access,
    /// True if nothing may be written, by mode or by mount option.
    pub read_only: bool,
    /// True if only one workload at a time may use it (`SINGLE_NODE_SINGLE_WRITER`).
    pub alone: bool,
}

/// The access that all capabilities of a request together describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedAccess {
    /// Access to the raw block volume.
    Block,
    /// Access to a file system, of this type if a capability names one.
    Mount(Option<FsKind>),
}

impl Capability {
    /// Parses a capability that must be there.
    pub(super) fn required(given: Option<&pb::VolumeCapability>) -> Result<Self, ParseError> {
        let given = given.ok_or_else(|| ParseError::missing("volume_capability"))?;
        Capability::parse("volume_capability", given)
    }

    /// Parses a capability; `field` is where it stands.
    pub(super) fn parse(field: &str, given: &pb::VolumeCapability) -> Result<Self, ParseError> {
        let mode = given.access_mode.unwrap_or_default().mode();
        single_node(field, mode)?;
        let (access, mounted_read_only) = access(field, given)?;
        Ok(Capability {
            access,
            read_only: mounted_read_only || mode == AccessMode::SingleNodeReaderOnly,
            alone: mode == AccessMode::SingleNodeSingleWriter,
        })
    }

    fn workload(&self) -> RequestedAccess {
        match self.access {
            Access::Block => RequestedAccess::Block,
            Access::Mount { fs, .. } => RequestedAccess::Mount(fs),
        }
    }
}

impl RequestedAccess {
    /// Parses all capabilities of a request, of which there must be one, and which must agree.
    pub(super) fn of_all(given: &[pb::VolumeCapability]) -> Result<Self, ParseError> {
        let mut agreed = None;
        for (i, capability) in given.iter().enumerate() {
            let field = format!("volume_capabilities[{i}]");
            let next = Capability::parse(&field, capability)?.workload();
            agreed = Some(match agreed {
                None => next,
                Some(before) => both(before, next).ok_or_else(|| {
                    let reason = "contradicts the earlier capabilities: a volume is either block \
                                  or mount, with one file system";
                    ParseError::invalid(field, reason)
                })?,
            });
        }
        agreed.ok_or_else(|| ParseError::missing("volume_capabilities"))
    }

    /// The file system that is named, if any.
    pub fn fs(self) -> Option<FsKind> {
        match self {
            RequestedAccess::Block => None,
            RequestedAccess::Mount(fs) => fs,
        }
    }
}

/// What satisfies both, if anything does.
fn both(one: RequestedAccess, other: RequestedAccess) -> Option<RequestedAccess> {
    match (one, other) {
        (RequestedAccess::Block, RequestedAccess::Block) => Some(RequestedAccess::Block),
        (RequestedAccess::Mount(Some(a)), RequestedAccess::Mount(Some(b))) if a != b => None,
        (RequestedAccess::Mount(a), RequestedAccess::Mount(b)) => {
            Some(RequestedAccess::Mount(a.or(b)))
        }
        (RequestedAccess::Block, RequestedAccess::Mount(_))
        | (RequestedAccess::Mount(_), RequestedAccess::Block) => None,
    }
}

fn single_node(field: &str, mode: AccessMode) -> Result<(), ParseError> {
    let field = format!("{field}.access_mode");
    match mode {
        AccessMode::SingleNodeWriter
        | AccessMode::SingleNodeReaderOnly
        | AccessMode::SingleNodeSingleWriter
        | AccessMode::SingleNodeMultiWriter => Ok(()),
        AccessMode::Unknown => Err(ParseError::missing(field)),
        AccessMode::MultiNodeReaderOnly
        | AccessMode::MultiNodeSingleWriter
        | AccessMode::MultiNodeMultiWriter => {
            let reason = format!(
                "{} is not supported: the volume is on a disk of one node, and only that node can \
                 use it; request a SINGLE_NODE mode (ReadWriteOnce or ReadWriteOncePod)",
                mode.as_str_name()
            );
            Err(ParseError::invalid(field, reason))
        }
    }
}

/// What the workload sees, and whether its mount options say `ro`.
fn access(field: &str, given: &pb::VolumeCapability) -> Result<(Access, bool), ParseError> {
    match &given.access_type {
        None => {
            let reason = "is neither block nor mount";
            Err(ParseError::invalid(field, reason))
        }
        Some(AccessType::Block(_)) => Ok((Access::Block, false)),
        Some(AccessType::Mount(mount)) => mounted(&format!("{field}.mount"), mount),
    }
}

fn mounted(field: &str, mount: &MountVolume) -> Result<(Access, bool), ParseError> {
    if !mount.volume_mount_group.is_empty() {
        let reason = "not supported: the kubelet applies fsGroup to volumes of this driver";
        return Err(ParseError::invalid(format!("{field}.volume_mount_group"), reason));
    }
    let named = Some(mount.fs_type.as_str()).filter(|name| !name.is_empty());
    let fs = named
        .map(str::parse)
        .transpose()
        .map_err(|reason: String| ParseError::invalid(format!("{field}.fs_type"), reason))?;
    let options = options(fs, &mount.mount_flags)
        .map_err(|reason| ParseError::invalid(format!("{field}.mount_flags"), reason))?;
    let read_only = options.iter().any(|option| option == "ro");
    Ok((Access::Mount { fs, options }, read_only))
}

/// Checks mount options. Where no file system is named they must be those of some one: which it is
/// shows when the volume is mounted, and the kernel refuses what is another's.
fn options(fs: Option<FsKind>, flags: &[String]) -> Result<Vec<String>, String> {
    let of = |kind| parse_mount_options(kind, flags);
    if fs.is_some() {
        return of(fs);
    }
    let mut each = FsKind::ALL.map(|kind| of(Some(kind))).into_iter();
    each.find(Result::is_ok).unwrap_or_else(|| of(None))
}
