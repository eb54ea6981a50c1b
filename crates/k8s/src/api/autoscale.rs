//! When claims are expanded and shrunk automatically.

use std::fmt;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::api::quantity::as_written;
use crate::api::{MaintenanceWindow, Quantity, Share, Span};
use crate::bytes::Bytes;

// What rules name is never `null`: the API server drops that, and a rule could not ask for it.
/// When a claim is expanded automatically, and when it is shrunk. The size in the template is the smallest one.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "!has(self.shrink) || self.shrink.belowPercent < self.growAtPercent"
    ).message("shrink.belowPercent is to be less than growAtPercent: else a claim would shrink and grow in turn"),
    validation = Rule::new(
        "!has(self.shrink) || !self.uniformSize"
    ).message("give one of uniformSize and shrink, and not both: claims of one size do not shrink automatically"),
    validation = Rule::new(
        "!has(self.shrink) || !has(self.shrink.minSize) || !isQuantity(string(self.shrink.minSize)) || !isQuantity(string(self.maxSize)) || quantity(string(self.shrink.minSize)).compareTo(quantity(string(self.maxSize))) <= 0"
    ).message("shrink.minSize is to be no more than maxSize"),
    validation = Rule::new(
        "!has(self.maxStep) || !isQuantity(string(self.minStep)) || !isQuantity(string(self.maxStep)) || quantity(string(self.minStep)).compareTo(quantity(string(self.maxStep))) <= 0"
    ).message("minStep, which is 1Gi if it is not given, is to be no more than maxStep")
)]
pub struct Autoscale {
    /// Used share of the bytes or of the inodes at which a claim is expanded, in percent, 1 to 99. Default: 80.
    #[serde(default = "grow_at_percent")]
    #[schemars(range(min = 1, max = 99), default = "grow_at_percent")]
    pub grow_at_percent: i32,
    /// Step of an expansion: percent of the size, such as `25%`, or bytes, such as `10Gi`. Default: 25%.
    #[serde(default = "grow_by")]
    #[schemars(default = "grow_by")]
    pub grow_by: Share,
    /// Duration before the claim would be full at which it is expanded, even below `growAtPercent`. The last two samples
    /// of the node predict that time. Go's form, such as `6h` or `90m`, or days, such as `1d`. Default: none; only
    /// `growAtPercent` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_before_full: Option<Span>,
    /// Smallest step of an expansion, in bytes. Without enough free space for it, half of the step is tried. Default: 1Gi.
    #[serde(default = "min_step")]
    #[schemars(default = "min_step", schema_with = "as_written")]
    pub min_step: Quantity,
    /// Largest step of an expansion, in bytes. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "as_written")]
    pub max_step: Option<Quantity>,
    /// Largest size of a claim, such as `100Gi`. A claim of this size is not expanded automatically.
    #[schemars(schema_with = "as_written")]
    pub max_size: Quantity,
    /// Duration after an expansion in which the claim is not expanded again. Go's form, such as `90m`, or days, such as
    /// `1d`. Default: 5m.
    #[serde(default = "cooldown")]
    #[schemars(default = "cooldown")]
    pub cooldown: Span,
    /// True if all claims of the workload get the size of the claim that is expanded. Not with `shrink`. Default: false.
    #[serde(default)]
    pub uniform_size: bool,
    /// When a claim is shrunk automatically. Without in-place shrink that is a PVC swap: its pod is stopped while the
    /// claim is copied to a smaller one. Default: none; only the template makes a claim smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Shrink")]
    pub shrink: Option<Shrink>,
}

/// When a claim is shrunk automatically: after it has been nearly empty for a long time.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Shrink {
    /// Highest used share of the bytes and of the inodes for a shrink, in percent, 1 to 90; less than `growAtPercent`.
    /// Default: 40.
    #[serde(default = "below_percent")]
    #[schemars(range(min = 1, max = 90), default = "below_percent")]
    pub below_percent: i32,
    /// Duration in which usage must not exceed `belowPercent`. An expansion, a swap, or a time without samples restarts
    /// it. Go's form, such as `36h`, or days, such as `7d`. Default: 24h.
    #[serde(default = "stabilization_window")]
    #[schemars(default = "stabilization_window")]
    pub stabilization_window: Span,
    /// Free space above the peak usage after a shrink: percent of that usage, such as `50%`, or bytes, such as `10Gi`.
    /// Usage always stays below `growAtPercent`. Default: 50%.
    #[serde(default = "headroom")]
    #[schemars(default = "headroom")]
    pub headroom: Share,
    /// Smallest size of a claim, which may be less than in the template. Default: the size in the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "as_written")]
    pub min_size: Option<Quantity>,
    /// Duration after an automatic change of the size in which the claim is not shrunk. Go's form, such as `36h`, or
    /// days, such as `7d`. Default: 168h.
    #[serde(default = "shrink_cooldown")]
    #[schemars(default = "shrink_cooldown")]
    pub cooldown: Span,
    /// Days and hours in which the pod may be stopped for a shrink. Default: none, which means at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MaintenanceWindow")]
    pub maintenance_window: Option<MaintenanceWindow>,
}

impl Default for Shrink {
    fn default() -> Shrink {
        Shrink {
            below_percent: below_percent(),
            stabilization_window: stabilization_window(),
            headroom: headroom(),
            min_size: None,
            cooldown: shrink_cooldown(),
            maintenance_window: None,
        }
    }
}

impl Shrink {
    /// Returns when pods may be stopped, in words: `Sat, Sun 01:00-05:00 UTC`.
    pub fn times(&self) -> String {
        self.maintenance_window.clone().unwrap_or_default().to_string()
    }
}

/// What it does, in a sentence.
impl fmt::Display for Autoscale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grows by {} at {} %", self.grow_by, self.grow_at_percent)?;
        if let Some(within) = self.grow_before_full {
            write!(f, ", or {within} before it would be full")?;
        }
        write!(f, ", by at least {}", self.min_step)?;
        if let Some(most) = self.max_step {
            write!(f, " and at most {most}")?;
        }
        write!(f, ", up to {}", self.max_size)?;
        if self.uniform_size {
            write!(f, ", and all together")?;
        }
        let Some(shrink) = &self.shrink else { return Ok(()) };
        write!(
            f,
            "; shrinks after {} below {} %",
            shrink.stabilization_window, shrink.below_percent
        )?;
        if let Some(least) = shrink.min_size {
            write!(f, ", down to {least}")?;
        }
        write!(f, ", {}", shrink.times())
    }
}

fn grow_at_percent() -> i32 {
    80
}

fn grow_by() -> Share {
    Share::Percent(25)
}

fn min_step() -> Quantity {
    Quantity(Bytes::gib(1))
}

fn cooldown() -> Span {
    Span::minutes(5)
}

fn below_percent() -> i32 {
    40
}

fn stabilization_window() -> Span {
    Span::days(1)
}

fn headroom() -> Share {
    Share::Percent(50)
}

fn shrink_cooldown() -> Span {
    Span::days(7)
}
