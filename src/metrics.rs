//! Metrics for Prometheus: one table of names, filled as things happen or at a scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::bytes::Bytes;
use crate::volume::{FsUsage, PoolSummary, State, VolumeId, VolumeStatus};

mod cluster;
mod machine;
mod plain;
mod process;
mod series;
mod serve;
mod table;

pub use cluster::{ClusterFigures, NodeFigure};
pub use machine::{CommandFigure, DiskFigure, GroupFigure, ThinPoolFigure};
use plain::Plain;
use series::{Labels, counts, float, gauges};
pub use serve::serve;
pub use table::{Figure, MetricType, TABLE};

/// Counters that are updated as events happen. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    rpc_duration: Family<Labels, Histogram, fn() -> Histogram>,
    rpc_errors: Family<Labels, Counter>,
    validations: Family<Labels, Plain>,
    fill_seconds: Family<Labels, Histogram, fn() -> Histogram>,
    fills: Family<Labels, Plain>,
    swap_pause: Histogram,
}

/// Values that are collected at a scrape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Pools.
    pub pools: Vec<PoolSummary>,
    /// Volume groups.
    pub groups: Vec<GroupFigure>,
    /// Disks.
    pub disks: Vec<DiskFigure>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Usage of the mounted file systems that responded to the last sampling.
    pub usages: BTreeMap<VolumeId, FsUsage>,
    /// Growths that have ended since the start, by outcome.
    pub growths: BTreeMap<&'static str, u64>,
    /// Calls to the host by kind since the start.
    pub host_calls: BTreeMap<&'static str, u64>,
    /// LVM commands by their first word since the start: how long they took, and how they failed.
    pub lvm_commands: BTreeMap<&'static str, CommandFigure>,
    /// Bytes that were wiped since the start.
    pub wiped: Bytes,
    /// Metrics that only a controller has.
    pub cluster: ClusterFigures,
    /// Objects that cannot be decoded, by kind.
    pub unreadable: BTreeMap<String, u64>,
    /// Panics that were caught since the start, by what the work was for.
    pub panics: BTreeMap<&'static str, u64>,
    /// Lines of the log that could not be written or formatted since the start.
    pub lost_log_lines: u64,
    /// Expiration time of an operator's webhook certificate, since 1970.
    pub certificate_expiry: Option<Duration>,
}

/// Source of the values for a scrape.
#[async_trait]
pub trait FigureSource: Send + Sync + 'static {
    /// Returns the values, from memory: a disk that hangs must not block a scrape.
    async fn figures(&self) -> Figures;
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            rpc_duration: Family::new_with_constructor(latencies),
            rpc_errors: Family::default(),
            validations: Family::default(),
            fill_seconds: Family::new_with_constructor(fill_times),
            fills: Family::default(),
            swap_pause: fill_times(),
        }
    }
}

/// From half a millisecond, a command in a warm shell, to two minutes, the kubelet's limit.
fn latencies() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
        60.0, 120.0,
    ])
}

/// From a second, an archive or a claim of some files, to a day.
fn fill_times() -> Histogram {
    Histogram::new([1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0])
}

impl Metrics {
    /// Counts one answered RPC: `method` such as `Controller/CreateVolume`, `code` such as `OK` or `ABORTED`.
    pub fn observe(&self, method: &str, code: &str, duration: Duration) {
        let method = ("method", method.to_owned());
        self.rpc_duration.get_or_create(&vec![method.clone()]).observe(duration.as_secs_f64());
        if code != "OK" {
            let code = ("code", code.to_owned());
            self.rpc_errors.get_or_create(&vec![method, code]).inc();
        }
    }

    /// Creates the populator metrics from the first scrape on: an alert on a first failure has to
    /// see that there was none before.
    pub fn expect_fillings(&self) {
        for result in ["success", "error", "retry"] {
            let _ = self.fills.get_or_create(&vec![("result", result.to_owned())]);
        }
    }

    /// Counts one claim that was validated: `result` as KEP-1495 names it.
    pub fn validated(&self, result: &str) {
        self.validations.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    /// Counts one population of a claim that has ended.
    pub fn filled(&self, result: &str, took: Duration) {
        let labels = vec![("result", result.to_owned())];
        self.fills.get_or_create(&labels).inc();
        self.fill_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Records how long a pod was stopped to get another claim.
    pub fn paused(&self, away: Duration) {
        self.swap_pause.observe(away.as_secs_f64());
    }

    /// Writes all of it in the OpenMetrics text format; `now` is the time since 1970.
    ///
    /// # Errors
    /// None in practice: writing to a string does not fail.
    pub fn text(&self, figures: &Figures, now: Duration) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        let build = [("version", env!("CARGO_PKG_VERSION")), ("revision", env!("PLIANT_REVISION"))];
        let build = build.map(|(label, value)| (label, value.to_owned())).to_vec();
        table::BUILD_INFO.put(&mut registry, gauges([(build, Some(1.0))]));
        table::RPC_DURATION.put(&mut registry, self.rpc_duration.clone());
        table::RPC_ERRORS.put(&mut registry, self.rpc_errors.clone());
        put_pools(&mut registry, &figures.pools, now);
        machine::put_groups(&mut registry, &figures.groups);
        machine::put_thin_pools(&mut registry, &figures.groups);
        machine::put_disks(&mut registry, &figures.disks);
        put_volumes(&mut registry, &figures.volumes);
        put_usages(&mut registry, &figures.usages);
        cluster::put(&mut registry, &figures.cluster);
        table::VALIDATIONS.put(&mut registry, self.validations.clone());
        table::FILL_SECONDS.put(&mut registry, self.fill_seconds.clone());
        table::FILLS.put(&mut registry, self.fills.clone());
        table::SWAP_DOWNTIME.put(&mut registry, self.swap_pause.clone());
        let expiry = figures.certificate_expiry.map(|expiry| expiry.as_secs_f64());
        table::WEBHOOK_EXPIRATION.put(&mut registry, gauges([(Vec::new(), expiry)]));
        let unreadable = figures.unreadable.iter();
        let unreadable =
            unreadable.map(|(kind, count)| (vec![("kind", kind.clone())], Some(float(*count))));
        table::INVALID.put(&mut registry, gauges(unreadable));
        table::PANICS.put(&mut registry, counts("resource", &figures.panics));
        let lost = Counter::<u64>::default();
        lost.inc_by(figures.lost_log_lines);
        table::LOG_DROPPED.put(&mut registry, lost);
        put_spent(&mut registry, figures);
        let mut text = String::new();
        encode_registry(&mut text, &registry)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

fn put_pools(registry: &mut Registry, pools: &[PoolSummary], now: Duration) {
    let each = |figure: &dyn Fn(&PoolSummary) -> Option<f64>| {
        gauges(pools.iter().map(|pool| (vec![("pool", pool.name.to_string())], figure(pool))))
    };
    table::POOL_SIZE.put(registry, each(&|pool: &PoolSummary| Some(float(pool.size.get()))));
    table::POOL_FREE.put(registry, each(&|pool: &PoolSummary| Some(float(pool.free.get()))));
    table::POOL_LARGEST.put(registry, each(&|pool: &PoolSummary| Some(float(pool.largest.get()))));
    table::POOL_UP
        .put(registry, each(&|pool: &PoolSummary| Some(f64::from(u8::from(pool.available)))));
    table::POOL_SCAN.put(
        registry,
        each(&|pool: &PoolSummary| {
            pool.last_reading.map(|age| now.saturating_sub(age).as_secs_f64())
        }),
    );
}

fn put_volumes(registry: &mut Registry, volumes: &[VolumeStatus]) {
    let each = |more: fn(&VolumeStatus) -> Labels, figure: fn(&VolumeStatus) -> Option<f64>| {
        gauges(volumes.iter().map(|one| {
            let mut labels = vec![("volume", one.volume.id.to_string())];
            labels.extend(more(one));
            (labels, figure(one))
        }))
    };
    let names = |one: &VolumeStatus| {
        vec![("name", one.volume.name.clone()), ("pool", one.volume.pool.to_string())]
    };
    table::VOLUME_SIZE.put(registry, each(names, |one| Some(float(one.volume.size.get()))));
    let requested = |one: &VolumeStatus| Some(float(one.volume.requested.get()));
    table::VOLUME_REQUESTED.put(registry, each(|_| Vec::new(), requested));
    let state = |one: &VolumeStatus| vec![("state", one.state.to_string())];
    table::VOLUME_STATE.put(registry, each(state, |_| Some(1.0)));
    let wiped = |one: &VolumeStatus| match one.state {
        State::Deleting { wiped } => Some(float(wiped.get())),
        _ => None,
    };
    table::VOLUME_WIPED.put(registry, each(|_| Vec::new(), wiped));
}

fn put_usages(registry: &mut Registry, usages: &BTreeMap<VolumeId, FsUsage>) {
    let each = |figure: fn(&FsUsage) -> Option<u64>| {
        gauges(
            usages
                .iter()
                .map(|(id, usage)| (vec![("volume", id.to_string())], figure(usage).map(float))),
        )
    };
    let counted = |usage: &FsUsage| (usage.inodes > 0).then_some(usage.inodes);
    table::FS_SIZE.put(registry, each(|usage| Some(usage.total.get())));
    table::FS_USED.put(registry, each(|usage| Some(usage.used.get())));
    table::FS_AVAILABLE.put(registry, each(|usage| Some(usage.available.get())));
    table::FS_INODES.put(registry, each(counted));
    let used = |usage: &FsUsage| {
        (usage.inodes > 0).then_some(usage.inodes.saturating_sub(usage.inodes_free))
    };
    table::FS_INODES_USED.put(registry, each(used));
}

fn put_spent(registry: &mut Registry, figures: &Figures) {
    table::EXPANSIONS.put(registry, counts("result", &figures.growths));
    machine::put_commands(registry, &figures.lvm_commands);
    let wiped = Counter::<u64>::default();
    wiped.inc_by(figures.wiped.get());
    table::WIPED.put(registry, wiped);
    table::HOST_OPERATIONS.put(registry, counts("operation", &figures.host_calls));
    process::put(registry);
}

#[cfg(test)]
mod tests;
