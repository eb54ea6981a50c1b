//! Between the words of the field and those of the records.

use crate::api::{
    AilmentStatus, Create, Failure, FenceState, FenceStatus, Grow, Inspect, InspectionStatus,
    Quantity, Release, Remove, ShrinkTo, UsageStatus, VolumeOnNode, VolumeRequestStatus, Work,
};
use crate::bytes::Bytes;
use crate::volume::{
    Ailment, Class, Fence, FsKind, Grown, Growth, Inspection, Mode, NewVolume, Reason, Severity,
    Standing, Usage, Volume, VolumeError, VolumeStatus, Wanted,
};

pub(super) fn create(want: &NewVolume) -> Work {
    Work::Create(Create {
        name: want.name.clone(),
        at_least: Quantity(want.size.at_least),
        at_most: want.size.at_most.map(Quantity),
        mode: want.mode.to_string(),
        parameters: want.class.parameters(),
    })
}

pub(super) fn grow(growth: Growth) -> Work {
    Work::Grow(Grow {
        at_least: Quantity(growth.size.at_least),
        at_most: growth.size.at_most.map(Quantity),
        block: growth.block,
    })
}

pub(super) fn shrink(to: Bytes) -> Work {
    Work::Shrink(ShrinkTo { to: Quantity(to) })
}

pub(super) fn release() -> Work {
    Work::Release(Release {})
}

pub(super) fn remove() -> Work {
    Work::Remove(Remove {})
}

pub(super) fn fence(fence: Fence) -> Work {
    Work::Fence(FenceStatus::from(fence))
}

impl From<Fence> for FenceStatus {
    fn from(fence: Fence) -> FenceStatus {
        FenceStatus {
            state: match fence.standing {
                Standing::HalfCopied => FenceState::HalfCopied,
                Standing::Active => FenceState::Active,
                Standing::Superseded => FenceState::Superseded,
            },
            generation: fence.generation,
            copying: fence.copying,
        }
    }
}

impl From<&FenceStatus> for Fence {
    fn from(told: &FenceStatus) -> Fence {
        Fence {
            standing: match told.state {
                FenceState::HalfCopied => Standing::HalfCopied,
                FenceState::Active => Standing::Active,
                FenceState::Superseded => Standing::Superseded,
            },
            generation: told.generation,
            copying: told.copying,
        }
    }
}

pub(super) fn inspect() -> Work {
    Work::Inspect(Inspect {})
}

/// The volume that a record asks for, to be made on this node.
///
/// # Errors
/// [`VolumeError::Invalid`] for what this version does not understand: another one wrote it.
pub fn new_volume(node: &str, create: &Create) -> Result<NewVolume, VolumeError> {
    let invalid = |field: &str, reason| VolumeError::Invalid { field: field.to_owned(), reason };
    let mode: Mode = create.mode.parse().map_err(|reason| invalid("mode", reason))?;
    let fs = match mode {
        Mode::Filesystem(kind) => kind,
        Mode::Block => FsKind::Ext4, // Whatever: a block volume has no options for making one.
    };
    let class = Class::parse(&create.parameters, Some(fs), fs);
    Ok(NewVolume {
        name: create.name.clone(),
        size: wanted(create.at_least, create.at_most),
        mode,
        class: class.map_err(|error| invalid("parameters", error.to_string()))?,
        nodes: vec![node.to_owned()],
    })
}

impl From<&Grow> for Growth {
    fn from(grow: &Grow) -> Growth {
        Growth { size: wanted(grow.at_least, grow.at_most), block: grow.block }
    }
}

fn wanted(at_least: Quantity, at_most: Option<Quantity>) -> Wanted {
    Wanted { at_least: at_least.0, at_most: at_most.map(|most| most.0) }
}

/// What became of a growth.
///
/// # Errors
/// [`VolumeError::Failed`] if the node did not say.
pub(super) fn grown(done: &VolumeRequestStatus) -> Result<Grown, VolumeError> {
    match (done.size, done.node_expansion_required) {
        (Some(Quantity(size)), Some(node_expansion_required)) => {
            Ok(Grown { size, node_expansion_required })
        }
        _ => Err(VolumeError::Failed {
            what: "the node has grown the volume and did not say how far; its agent is of another \
                   version"
                .to_owned(),
        }),
    }
}

/// The size that a volume was shrunk to.
///
/// # Errors
/// [`VolumeError::Failed`] if the node did not say.
pub(super) fn shrunk(done: &VolumeRequestStatus) -> Result<Bytes, VolumeError> {
    done.size.map(|size| size.0).ok_or_else(|| VolumeError::Failed {
        what:
            "the node did not say to which size it has shrunk the volume; its agent is of another \
               version"
                .to_owned(),
    })
}

/// What a look at a volume saw, as it is written down; `None`: the volume is not there.
pub fn inspection_status(seen: Option<&Inspection>) -> InspectionStatus {
    InspectionStatus {
        volume: seen.map(|seen| volume_on_node(&seen.status)),
        mounted: seen.map(|seen| seen.status.published),
        open_count: seen.map(|seen| i64::from(seen.open_count)),
        usage: seen.and_then(|seen| seen.usage.as_ref()).map(usage_status),
        smallest: seen.and_then(|seen| seen.smallest).map(Quantity),
    }
}

/// How full a file system is, as it is written down.
pub fn usage_status(usage: &Usage) -> UsageStatus {
    let counted = usage.inodes > 0;
    UsageStatus {
        capacity: Quantity(usage.total),
        used: Quantity(usage.used),
        available: Quantity(usage.available),
        inodes: counted.then(|| signed(usage.inodes)),
        inodes_used: counted.then(|| signed(usage.inodes.saturating_sub(usage.inodes_free))),
    }
}

fn usage(told: &UsageStatus) -> Usage {
    let inodes = unsigned(told.inodes);
    Usage {
        total: told.capacity.0,
        used: told.used.0,
        available: told.available.0,
        inodes,
        inodes_free: inodes.saturating_sub(unsigned(told.inodes_used)),
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn unsigned(count: Option<i64>) -> u64 {
    count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
}

/// What the look at a volume saw; `None`: the volume is not there.
///
/// # Errors
/// [`VolumeError::Failed`] if the node did not say.
pub(super) fn inspection(
    node: &str,
    done: &VolumeRequestStatus,
) -> Result<Option<Inspection>, VolumeError> {
    let silent = || {
        VolumeError::Failed {
        what: "the node has looked at the volume and did not say what it saw; its agent is of another \
               version"
            .to_owned(),
    }
    };
    let told = done.inspection.as_ref().ok_or_else(silent)?;
    let Some(volume) = &told.volume else { return Ok(None) };
    let published = told.mounted.ok_or_else(silent)?;
    let open_count = told.open_count.and_then(|count| u32::try_from(count).ok());
    Ok(Some(Inspection {
        status: VolumeStatus { published, ..volume_status(node, volume)? },
        open_count: open_count.ok_or_else(silent)?,
        usage: told.usage.as_ref().map(usage),
        smallest: told.smallest.map(|smallest| smallest.0),
    }))
}

/// The longest message that a record takes, in characters; one that is longer would never be written.
const LONGEST_MESSAGE: usize = 4096;

impl From<&VolumeError> for Failure {
    fn from(error: &VolumeError) -> Failure {
        let message = crate::causes::in_full(error).chars().take(LONGEST_MESSAGE).collect();
        Failure { reason: error.reason().to_string(), message }
    }
}

impl From<&Failure> for VolumeError {
    fn from(failure: &Failure) -> VolumeError {
        let word = serde_json::Value::String(failure.reason.clone());
        // An agent of another version may have more of them.
        let reason: Reason = serde_json::from_value(word).unwrap_or(Reason::Failed);
        VolumeError::Reported { reason, message: failure.message.clone() }
    }
}

/// A volume as its node's record tells it.
pub fn volume_on_node(one: &VolumeStatus) -> VolumeOnNode {
    let volume = &one.volume;
    let ailment = |ailment: &Ailment| AilmentStatus {
        severity: format!("{:?}", ailment.severity),
        reason: ailment.reason.to_owned(),
        message: ailment.message.clone(),
    };
    VolumeOnNode {
        id: volume.id.to_string(),
        name: volume.name.clone(),
        pool: volume.pool.to_string(),
        size: Quantity(volume.size),
        requested: Quantity(volume.requested),
        mode: volume.mode.to_string(),
        state: one.state.to_string(),
        fence: (one.fence != Fence::default()).then(|| one.fence.into()),
        limit: one.limit.map(Quantity),
        ailments: one.ailments.iter().map(ailment).collect(),
    }
}

/// A volume of a node, as that told it last. Whether a workload has it is not told.
///
/// # Errors
/// [`VolumeError::Unavailable`] for a record that this version does not understand.
pub(super) fn volume_status(node: &str, told: &VolumeOnNode) -> Result<VolumeStatus, VolumeError> {
    let parsed = || -> Result<VolumeStatus, String> {
        Ok(VolumeStatus {
            volume: Volume {
                id: told.id.parse().map_err(|error| format!("{error}"))?,
                name: told.name.clone(),
                pool: told.pool.parse()?,
                node: node.to_owned(),
                size: told.size.0,
                requested: told.requested.0,
                mode: told.mode.parse()?,
            },
            state: told.state.parse()?,
            published: false,
            fence: told.fence.as_ref().map(Fence::from).unwrap_or_default(),
            limit: told.limit.map(|limit| limit.0),
            ailments: told.ailments.iter().map(ailment).collect(),
        })
    };
    parsed().map_err(|reason| VolumeError::Unavailable {
        reason: format!("what node {node} tells of volume {} is not understood: {reason}", told.id),
    })
}

fn ailment(told: &AilmentStatus) -> Ailment {
    let severity = [Severity::DataLoss, Severity::Inaccessible]
        .into_iter()
        .find(|severity| format!("{severity:?}") == told.severity);
    Ailment {
        severity: severity.unwrap_or(Severity::Degraded),
        reason: Ailment::reason_of(&told.reason),
        message: told.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;
    use crate::volume::{NodeKey, State, VolumeId, VolumeKey};

    #[test]
    fn a_volume_that_was_written_is_read_again() {
        let want = NewVolume {
            name: "pvc-1".to_owned(),
            size: Wanted { at_least: Bytes::gib(2), at_most: Some(Bytes::gib(3)) },
            mode: Mode::Filesystem(FsKind::Xfs),
            class: Class { pool: Some("fast".parse().unwrap()), ..Class::default() },
            nodes: vec!["alpha".to_owned()],
        };
        let Work::Create(record) = create(&want) else { panic!("no creation") };
        assert_eq!(new_volume("alpha", &record).unwrap(), want);
        let growth = Growth { size: want.size, block: Some(false) };
        let Work::Grow(record) = grow(growth) else { panic!("no growth") };
        assert_eq!(Growth::from(&record), growth);
    }

    #[test]
    fn a_listed_volume_is_read_again() {
        let id = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"));
        let ailing = |severity, reason| Ailment { severity, reason, message: "why".to_owned() };
        for (state, mode) in [
            (State::Creating, Mode::Block),
            (State::Resized, Mode::Filesystem(FsKind::Btrfs)),
            (State::Deleting { wiped: Bytes::ZERO }, Mode::Block),
        ] {
            let status = VolumeStatus {
                volume: Volume {
                    id: id.clone(),
                    name: "pvc-1".to_owned(),
                    pool: "fast".parse().unwrap(),
                    node: "alpha".to_owned(),
                    size: Bytes::gib(4),
                    requested: Bytes::gib(3),
                    mode,
                },
                state,
                published: false,
                fence: Fence { generation: 3, standing: Standing::Superseded, copying: true },
                limit: Some(Bytes::gib(3)),
                ailments: vec![
                    ailing(Severity::DataLoss, "DiskMissing"),
                    ailing(Severity::Degraded, "NotReady"),
                ],
            };
            assert_eq!(volume_status("alpha", &volume_on_node(&status)).unwrap(), status);
        }
    }

    #[test]
    fn what_a_look_saw_is_read_again_and_what_it_did_not_see_is_no_zero() {
        let id = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"));
        let (pool, node) = ("fast".parse().unwrap(), "alpha".to_owned());
        let (size, requested) = (Bytes::gib(4), Bytes::gib(3));
        let (name, mode) = ("pvc-1".to_owned(), Mode::Filesystem(FsKind::Xfs));
        let volume = Volume { id, name, pool, node, size, requested, mode };
        let (state, fence, limit, ailments) = (State::Ready, Fence::default(), None, Vec::new());
        let status = VolumeStatus { volume, state, published: true, fence, limit, ailments };
        let usage = Usage {
            total: Bytes::gib(4),
            used: Bytes::gib(1),
            available: Bytes::gib(3),
            inodes: 100,
            inodes_free: 90,
        };
        let whole =
            Inspection { status, open_count: 1, usage: Some(usage), smallest: Some(Bytes::gib(4)) };
        let uncounted = Usage { inodes: 0, inodes_free: 0, ..usage };
        let btrfs = Inspection { usage: Some(uncounted), smallest: None, ..whole.clone() };
        let not_in_use = Inspection { usage: None, open_count: 0, ..whole.clone() };
        for seen in [Some(whole), Some(btrfs), Some(not_in_use), None] {
            let inspection = Some(Box::new(inspection_status(seen.as_ref())));
            let done = VolumeRequestStatus { inspection, ..Default::default() };
            assert_eq!(super::inspection("alpha", &done).unwrap(), seen);
            let mut done = done;
            let Some(told) = done.inspection.as_mut().filter(|told| told.volume.is_some()) else {
                continue;
            };
            told.open_count = None;
            assert_eq!(super::inspection("alpha", &done).unwrap_err().reason(), Reason::Failed);
        }
        let older = VolumeRequestStatus::default();
        assert_eq!(super::inspection("alpha", &older).unwrap_err().reason(), Reason::Failed);
    }

    #[test]
    fn a_failure_keeps_its_reason_and_its_sentence() {
        let error = VolumeError::Refused { reason: "it is mounted elsewhere".to_owned() };
        let failure = Failure::from(&error);
        assert_eq!(failure.reason, "Refused");
        let told = VolumeError::from(&failure);
        assert_eq!((told.reason(), told.to_string()), (Reason::Refused, error.to_string()));
        let long = VolumeError::Failed { what: "\u{e4}".repeat(LONGEST_MESSAGE + 1) };
        assert_eq!(Failure::from(&long).message.chars().count(), LONGEST_MESSAGE);
        let newer = Failure { reason: "Frobnicated".to_owned(), message: "x".to_owned() };
        assert_eq!(VolumeError::from(&newer).reason(), Reason::Failed);
    }
}
