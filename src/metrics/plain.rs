//! A count under exactly the name that a standard gave it.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter. The format would append `_total` to the name of a counter, so its type is unknown
/// there.
#[derive(Debug, Clone, Default)]
pub(super) struct Plain(Counter);

impl Plain {
    /// Adds one.
    pub fn inc(&self) {
        self.0.inc();
    }
}

impl TypedMetric for Plain {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Plain {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
