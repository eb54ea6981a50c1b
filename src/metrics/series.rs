//! Values with their labels, as families of a registry.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Names with values of one series.
pub type Labels = Vec<(&'static str, String)>;

/// Counters by one label.
pub fn counts(
    label: &'static str,
    counted: &BTreeMap<&'static str, u64>,
) -> Family<Labels, Counter> {
    let family = Family::<Labels, Counter>::default();
    for (name, count) in counted {
        family.get_or_create(&vec![(label, (*name).to_owned())]).inc_by(*count);
    }
    family
}

/// Gauges of what is known; the unknown has no line, rather than a zero that lies.
pub fn gauges(
    figures: impl IntoIterator<Item = (Labels, Option<f64>)>,
) -> Family<Labels, Gauge<f64, AtomicU64>> {
    let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (labels, figure) in figures {
        if let Some(figure) = figure {
            family.get_or_create(&labels).set(figure);
        }
    }
    family
}

/// Prometheus has only floats: above 2^53 a size loses its last bits.
#[allow(clippy::cast_precision_loss)]
pub fn float(count: u64) -> f64 {
    count as f64
}
