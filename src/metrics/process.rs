//! The standard metrics of a process, under the names that all client libraries of Prometheus give them.

use std::sync::atomic::AtomicU64;

use procfs::process::{Limit, LimitValue, Process};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::series::{float, gauges};
use super::table;

/// Adds what `/proc` reports of this process. What cannot be read has no line.
pub(super) fn put(registry: &mut Registry) {
    let process = Process::myself().ok();
    let stat = process.as_ref().and_then(|process| process.stat().ok());
    if let Some(stat) = &stat {
        let cpu = Counter::<f64, AtomicU64>::default();
        cpu.inc_by(float(stat.utime + stat.stime) / float(procfs::ticks_per_second()));
        table::CPU.put(registry, cpu);
    }
    let put = |registry: &mut Registry, row: &table::Figure, value: Option<f64>| {
        row.put(registry, gauges([(Vec::new(), value)]));
    };
    let started = stat.as_ref().and_then(|stat| {
        let boot = procfs::boot_time_secs().ok()?;
        Some(float(boot) + float(stat.starttime) / float(procfs::ticks_per_second()))
    });
    put(registry, &table::START_TIME, started);
    let resident = stat.as_ref().map(|stat| float(stat.rss * procfs::page_size()));
    put(registry, &table::RESIDENT, resident);
    put(registry, &table::VIRTUAL, stat.as_ref().map(|stat| float(stat.vsize)));
    let open = process.as_ref().and_then(|process| process.fd_count().ok());
    put(registry, &table::OPEN_FDS, open.and_then(|count| u64::try_from(count).ok()).map(float));
    let most = process.and_then(|process| process.limits().ok()).and_then(|limits| {
        let Limit { soft_limit, .. } = limits.max_open_files;
        match soft_limit {
            LimitValue::Value(limit) => Some(float(limit)),
            LimitValue::Unlimited => None,
        }
    });
    put(registry, &table::MAX_FDS, most);
}
