//! When claims become larger and smaller by themselves.

use std::fmt;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::api::quantity::as_written;
use crate::api::{Hours, Quantity, Share, Span, Weekday};
use crate::bytes::Bytes;

// What rules name is never `null`: the API server drops that, and a rule could not ask for it.
/// When a claim grows by itself, and when it shrinks. The size in the template is the smallest one.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "!has(self.shrink) || self.shrink.below < self.growAt"
    ).message("shrink.below is to be less than growAt: else a claim would shrink and grow in turn"),
    validation = Rule::new(
        "!has(self.shrink) || !self.together"
    ).message("give one of together and shrink, and not both: claims that grow together do not shrink by themselves"),
    validation = Rule::new(
        "!has(self.shrink) || !has(self.shrink.minSize) || quantity(string(self.shrink.minSize)).compareTo(quantity(string(self.maxSize))) <= 0"
    ).message("shrink.minSize is to be no more than maxSize"),
    validation = Rule::new(
        "!has(self.maxStep) || quantity(string(self.minStep)).compareTo(quantity(string(self.maxStep))) <= 0"
    ).message("minStep, which is 1Gi if it is not given, is to be no more than maxStep")
)]
pub struct Autoscale {
    /// How much of the bytes or of the inodes is used when it grows, in percent.
    #[serde(default = "grow_at")]
    #[schemars(range(min = 1, max = 99), default = "grow_at")]
    pub grow_at: i32,
    /// By how much it grows: in percent of its size, `25%`, or in bytes, `10Gi`. A number without a unit is
    /// percent.
    #[serde(default = "grow_by")]
    #[schemars(default = "grow_by_percent")]
    pub grow_by: Share,
    /// How long before it would be full it grows, such as `6h`, also if it is less full than growAt. When
    /// that would be is told by the last two samples of its node. Without this only growAt decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_within: Option<Span>,
    /// By how much it grows at least. Where there is no room for that, half of it is tried.
    #[serde(default = "min_step")]
    #[schemars(default = "min_step", schema_with = "as_written")]
    pub min_step: Quantity,
    /// By how much it grows at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "as_written")]
    pub max_step: Option<Quantity>,
    /// How large it becomes at most.
    #[schemars(schema_with = "as_written")]
    pub max_size: Quantity,
    /// How long it stays as it is after it has grown.
    #[serde(default = "cool_down")]
    #[schemars(default = "cool_down")]
    pub cool_down: Span,
    /// Whether all claims of the workload become as large as the one that grows.
    #[serde(default)]
    pub together: bool,
    /// When a claim shrinks by itself. That is a swap: its pod is stopped while it is copied to a smaller
    /// one. Without this only the template makes it smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Shrink")]
    pub shrink: Option<Shrink>,
}

/// When a claim shrinks by itself: if it has been nearly empty for long.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Shrink {
    /// How much of its bytes and of its inodes is used at most when it shrinks, in percent.
    #[serde(default = "below")]
    #[schemars(range(min = 1, max = 90), default = "below")]
    pub below: i32,
    /// For how long no more than that was used: the most that was counts. A growth, a swap and a time
    /// without a sample begin it anew.
    #[serde(default = "window")]
    #[schemars(default = "window")]
    pub window: Span,
    /// How much more than what was used at most it keeps: in percent of that, `50%`, or in bytes, `10Gi`. A
    /// number without a unit is percent. It always keeps so much that it is less full than growAt.
    #[serde(default = "headroom")]
    #[schemars(default = "headroom")]
    pub headroom: Share,
    /// How small it becomes at least. Without this that is the size in the template, of which only this
    /// field allows less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "as_written")]
    pub min_size: Option<Quantity>,
    /// How long it does not shrink after it has grown or shrunk by itself.
    #[serde(default = "shrink_cool_down")]
    #[schemars(default = "shrink_cool_down")]
    pub cool_down: Span,
    /// The hours of the day, in UTC, in which its pod may be stopped for that, such as `01:00-05:00`. Those
    /// that end before they begin end on the next day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Hours")]
    pub between: Option<Hours>,
    /// The days, in UTC, on which these hours begin; none is every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Weekday>,
}

impl Default for Shrink {
    fn default() -> Shrink {
        Shrink {
            below: below(),
            window: window(),
            headroom: headroom(),
            min_size: None,
            cool_down: shrink_cool_down(),
            between: None,
            days: Vec::new(),
        }
    }
}

impl Shrink {
    /// Returns when pods may be stopped, in words: `Sat, Sun 01:00-05:00 UTC`.
    pub fn times(&self) -> String {
        let days: Vec<String> = self.days.iter().map(|day| format!("{day:?}")).collect();
        let days = if days.is_empty() { "every day".to_owned() } else { days.join(", ") };
        match &self.between {
            Some(hours) => format!("{days} {hours} UTC"),
            None => format!("{days}, by UTC"),
        }
    }
}

/// What it does, in a sentence.
impl fmt::Display for Autoscale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grows by {} at {} %", self.grow_by, self.grow_at)?;
        if let Some(within) = self.grow_within {
            write!(f, ", or {within} before it would be full")?;
        }
        write!(f, ", by at least {}", self.min_step)?;
        if let Some(most) = self.max_step {
            write!(f, " and at most {most}")?;
        }
        write!(f, ", up to {}", self.max_size)?;
        if self.together {
            write!(f, ", and all together")?;
        }
        let Some(shrink) = &self.shrink else { return Ok(()) };
        write!(f, "; shrinks after {} below {} %", shrink.window, shrink.below)?;
        if let Some(least) = shrink.min_size {
            write!(f, ", down to {least}")?;
        }
        write!(f, ", {}", shrink.times())
    }
}

fn grow_at() -> i32 {
    80
}

fn grow_by() -> Share {
    Share::Percent(grow_by_percent())
}

/// A number, which an operator of before understands, too.
fn grow_by_percent() -> u32 {
    25
}

fn min_step() -> Quantity {
    Quantity(Bytes::gib(1))
}

fn cool_down() -> Span {
    Span::minutes(5)
}

fn below() -> i32 {
    40
}

fn window() -> Span {
    Span::days(1)
}

fn headroom() -> Share {
    Share::Percent(50)
}

fn shrink_cool_down() -> Span {
    Span::days(7)
}
