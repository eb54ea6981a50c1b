//! Looks at a machine and says what is there, what is missing, and what to type. Changes nothing.
//!
//! [`look()`] asks the machine, [`judge()`] decides, [`print()`] tells: only the first needs a machine.

use serde::Serialize;

mod groups;
mod judge;
mod look;
mod print;

pub use groups::{Fault, Found};
pub use judge::{judge, judge_machine};
pub use look::{Seen, Udev, look, look_at_machine};
pub use print::{WIDTH, harmless, print, wrapped};

/// How good or bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Good,
    /// The driver works, with a limit.
    Warning,
    /// The driver, or a part of it, cannot work.
    Bad,
}

/// One thing about the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How good or bad it is.
    pub level: Level,
    /// What was found: a sentence without a full stop.
    pub what: String,
    /// What to type or do; always there unless the level is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn good(what: impl Into<String>) -> Self {
        Finding { level: Level::Good, what: what.into(), todo: None }
    }

    /// The driver works, with a limit.
    pub fn warning(what: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding { level: Level::Warning, what: what.into(), todo: Some(todo.into()) }
    }

    /// Something cannot work.
    pub fn bad(what: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding { level: Level::Bad, what: what.into(), todo: Some(todo.into()) }
    }
}
