//! How full the thin pools are, in figures, and what that prevents. From the last readings.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::lvm::{
    Group, THIN_POOL, ThinPool, ThinShortage, ThinUsage, VolumeGroup, read_thin_usage, thin,
    thin_reading,
};
use crate::node::storage::{ThinPoolReport, ThinUse};
use crate::volume::{Severity, Terms, ThinSettings, VolumeCondition, error_chain};

/// Size of a block of metadata, whatever the chunks are.
const METADATA_BLOCK: Bytes = Bytes::kib(4);

/// How full the thin pool of a group is now, or was at the last reading if the kernel does not report it; `None` if it was
/// never read.
pub(super) async fn thin_usage(group: &Arc<VolumeGroup>) -> Option<ThinUsage> {
    let before = steady_usage(group);
    match read_thin_usage(group).await {
        Ok(found) => found.map(|(usage, _)| usage).or(before),
        Err(error) => {
            let error = error_chain::in_full(&error);
            tracing::warn!(
                group = group.name(),
                error,
                "failed to read the usage of the thin pool"
            );
            before
        }
    }
}

/// As [`thin_usage`] was at the last reading, in steps: what is decided by it does not change with each write.
pub(super) fn steady_usage(group: &VolumeGroup) -> Option<ThinUsage> {
    thin_reading(group).map(|reading| reading.steady)
}

/// The thin pool of a group in figures; `None` without one.
pub(super) fn thin_report(
    terms: &Terms,
    handle: &VolumeGroup,
    group: &Group,
) -> Option<ThinPoolReport> {
    let found = group.thin_pool()?;
    let thin = settings(terms);
    let reading = thin_reading(handle);
    // Of a pool that has failed the kernel counts none.
    let used = |usage: ThinUsage| {
        let (data, all) = usage.data;
        (all > 0).then(|| ThinUse {
            data: times(data, found.segment.chunk),
            metadata: times(usage.metadata.0, METADATA_BLOCK),
        })
    };
    Some(ThinPoolReport {
        size: group.size_of(found.lv.extents()),
        maximum: group.size_of(found.most_data(&thin)),
        metadata_size: group.size_of(found.metadata_extents()),
        metadata_maximum: group.size_of(found.most_metadata()),
        provisioned: group.size_of(found.promised()),
        maximum_provisioned: group.size_of(thin::most_promised(group, &thin, terms.reserve)),
        now: reading.map(|reading| reading.now).and_then(used),
        steady: reading.map(|reading| reading.steady).and_then(used),
    })
}

/// What is wrong with the thin pool of a group, for its administrator; `None` if nothing is.
pub(super) fn thin_ailment(
    terms: &Terms,
    handle: &VolumeGroup,
    group: &Group,
) -> Option<VolumeCondition> {
    let (name, shortage) = shortage(terms, handle, group)?;
    let report = thin_report(terms, handle, group)?;
    let used = report.steady.unwrap_or_default();
    let message = match shortage {
        ThinShortage::Damaged => format!(
            "thin pool {name} refuses writes: stop its workloads, deactivate its volumes, and run `lvconvert --repair \
             {name}`"
        ),
        ThinShortage::Metadata => format!(
            "thin pool {name} uses {} of at most {} of metadata: add a disk to the volume group, or delete snapshots and \
             volumes",
            used.metadata, report.metadata_maximum
        ),
        ThinShortage::Data => format!(
            "thin pool {name} uses {} of at most {}, and {} are provisioned: add a disk to the volume group, delete \
             volumes, or run `fstrim` in them",
            used.data, report.maximum, report.provisioned
        ),
    };
    Some(VolumeCondition { severity: Severity::Degraded, reason: reason(shortage), message })
}

/// What that means for each volume of the thin pool. It has no figures, which would change with each write.
pub(super) fn thin_volume_ailment(
    terms: &Terms,
    handle: &VolumeGroup,
    group: &Group,
) -> Option<VolumeCondition> {
    let (name, shortage) = shortage(terms, handle, group)?;
    let (severity, message) = match shortage {
        ThinShortage::Damaged => {
            (Severity::Inaccessible, format!("its thin pool {name} refuses writes"))
        }
        ThinShortage::Metadata => (
            Severity::Degraded,
            format!(
                "the metadata of its thin pool {name} are nearly full, so that writes may soon fail"
            ),
        ),
        ThinShortage::Data => (
            Severity::Degraded,
            format!(
                "its thin pool {name} is nearly full and cannot be expanded, so that writes may soon fail"
            ),
        ),
    };
    let message = format!("{message}; see `kubectl pliant status`");
    Some(VolumeCondition { severity, reason: reason(shortage), message })
}

/// Why the thin pool of a group takes no larger volume; `None` without one, and where a pool makes no thin volumes.
pub(super) fn thin_hindrance(terms: &Terms, handle: &VolumeGroup, group: &Group) -> Option<String> {
    let thin = terms.thin?;
    if let Some(ailment) = thin_ailment(terms, handle, group) {
        return Some(ailment.message);
    }
    let report = thin_report(terms, handle, group)?;
    let name = name_of(group);
    let usage = steady_usage(handle);
    let found = group.thin_pool()?;
    Some(if usage.is_some_and(|usage| found.is_nearly_full(&usage, &thin)) {
        format!(
            "thin pool {name} is nearly full, and so is not overcommitted: {} of at most {} are provisioned",
            report.provisioned, report.maximum
        )
    } else {
        format!(
            "thin pool {name} has {} of at most {} provisioned, which is {} % of the {} that its data may have",
            report.provisioned, report.maximum_provisioned, thin.max_overcommit, report.maximum
        )
    })
}

/// The name of the thin pool of a group, and why that takes nothing more.
fn shortage(terms: &Terms, handle: &VolumeGroup, group: &Group) -> Option<(String, ThinShortage)> {
    let (found, usage): (ThinPool<'_>, _) = group.thin_pool().zip(steady_usage(handle))?;
    Some((name_of(group), found.shortage(&usage, &settings(terms))?))
}

fn reason(shortage: ThinShortage) -> &'static str {
    match shortage {
        ThinShortage::Damaged => "ThinPoolDamaged",
        ThinShortage::Metadata => "ThinPoolMetadataNearlyFull",
        ThinShortage::Data => "ThinPoolNearlyFull",
    }
}

/// Those by which a thin pool is expanded, also where its pool makes no new volumes in it.
fn settings(terms: &Terms) -> ThinSettings {
    terms.thin.unwrap_or_default()
}

fn name_of(group: &Group) -> String {
    format!("{}/{THIN_POOL}", group.name)
}

/// So many of this size.
fn times(count: u64, size: Bytes) -> Bytes {
    Bytes::new(size.get().saturating_mul(count)).min(Bytes::MAX)
}
