//! Metrics of a node's host: volume groups, disks, LVM commands.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::series::{Labels, float, gauges};
use super::table;
use crate::bytes::Bytes;

/// A volume group as it was at its last reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFigure {
    /// Name of the volume group.
    pub group: String,
    /// Pool of the volume group.
    pub pool: String,
    /// Size and free extents; `None` if it was never read.
    pub room: Option<(Bytes, Bytes)>,
    /// Its thin pool, if it has one.
    pub thin_pool: Option<ThinPoolFigure>,
}

/// A thin pool as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinPoolFigure {
    /// Size of its data, and the most that it can become.
    pub data: (Bytes, Bytes),
    /// The same of its metadata.
    pub metadata: (Bytes, Bytes),
    /// Sizes of its volumes and snapshots together, and the most that these may be.
    pub provisioned: (Bytes, Bytes),
    /// Data and metadata in use; `None` while it is inactive.
    pub used: Option<(Bytes, Bytes)>,
}

/// A disk that a group has or a pool names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFigure {
    /// Path of the disk, or another identification.
    pub disk: String,
    /// State of the disk in its pool.
    pub state: &'static str,
}

/// Durations and failures of one LVM command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandFigure {
    /// Number of runs.
    pub runs: u64,
    /// Total duration of the runs.
    pub time: Duration,
    /// Number of runs that took no longer than this and longer than the step before it.
    pub steps: Vec<(Duration, u64)>,
    /// Number of failures, by code.
    pub failed: BTreeMap<&'static str, u64>,
}

/// A histogram that was counted elsewhere.
#[derive(Debug, Default)]
struct CountedHistogram(OnceLock<CommandFigure>);

impl TypedMetric for CountedHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for CountedHistogram {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        let Some(told) = self.0.get() else { return Ok(()) };
        let counted = told.steps.iter().map(|(_, count)| *count).sum();
        let steps = told.steps.iter().map(|(step, count)| (step.as_secs_f64(), *count));
        let beyond = (f64::INFINITY, told.runs.saturating_sub(counted)); // Told as `+Inf`.
        let steps: Vec<(f64, u64)> = steps.chain([beyond]).collect();
        encoder.encode_histogram::<NoLabelSet>(told.time.as_secs_f64(), told.runs, &steps, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

pub(super) fn put_commands(
    registry: &mut Registry,
    commands: &BTreeMap<&'static str, CommandFigure>,
) {
    let (durations, errors) =
        (Family::<Labels, CountedHistogram>::default(), Family::<Labels, Counter>::default());
    for (command, told) in commands {
        let labels = vec![("command", (*command).to_owned())];
        let _ = durations.get_or_create(&labels).0.set(told.clone()); // Each has one.
        for (code, count) in &told.failed {
            let labels = vec![labels[0].clone(), ("code", (*code).to_owned())];
            errors.get_or_create(&labels).inc_by(*count);
        }
    }
    table::LVM_DURATION.put(registry, durations);
    table::LVM_ERRORS.put(registry, errors);
}

pub(super) fn put_groups(registry: &mut Registry, groups: &[GroupFigure]) {
    let each = |figure: fn((Bytes, Bytes)) -> Bytes| {
        gauges(groups.iter().map(|one| {
            let labels = vec![("volume_group", one.group.clone()), ("pool", one.pool.clone())];
            (labels, one.room.map(|room| float(figure(room).get())))
        }))
    };
    table::GROUP_SIZE.put(registry, each(|(size, _)| size));
    table::GROUP_FREE.put(registry, each(|(_, free)| free));
}

pub(super) fn put_thin_pools(registry: &mut Registry, groups: &[GroupFigure]) {
    let each = |figure: fn(ThinPoolFigure) -> Option<Bytes>| {
        gauges(groups.iter().filter_map(|one| {
            let pool = one.thin_pool?;
            let labels = vec![("volume_group", one.group.clone()), ("pool", one.pool.clone())];
            Some((labels, figure(pool).map(|bytes| float(bytes.get()))))
        }))
    };
    table::THIN_SIZE.put(registry, each(|pool| Some(pool.data.0)));
    table::THIN_MAXIMUM.put(registry, each(|pool| Some(pool.data.1)));
    table::THIN_USED.put(registry, each(|pool| Some(pool.used?.0)));
    table::THIN_METADATA.put(registry, each(|pool| Some(pool.metadata.0)));
    table::THIN_METADATA_MAXIMUM.put(registry, each(|pool| Some(pool.metadata.1)));
    table::THIN_METADATA_USED.put(registry, each(|pool| Some(pool.used?.1)));
    table::THIN_PROVISIONED.put(registry, each(|pool| Some(pool.provisioned.0)));
    table::THIN_PROVISIONED_MAXIMUM.put(registry, each(|pool| Some(pool.provisioned.1)));
}

pub(super) fn put_disks(registry: &mut Registry, disks: &[DiskFigure]) {
    let states = disks.iter().map(|one| {
        let labels = vec![("disk", one.disk.clone()), ("state", one.state.to_owned())];
        (labels, Some(1.0))
    });
    table::DISK_STATE.put(registry, gauges(states));
}
