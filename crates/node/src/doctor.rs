//! Checks a host, and reports what exists, what is missing and which commands to run. Changes nothing.
//!
//! [`look()`] collects facts, [`judge()`] decides, [`print()`] formats: only the first needs a host.

use serde::Serialize;

mod groups;
mod judge;
mod look;
mod print;

pub use groups::{Fault, FoundDisk};
pub use judge::{judge, judge_machine};
pub use look::{ObservedHost, Udev, look, look_at_machine};
pub use print::{WIDTH, harmless, print, wrapped};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// The check passed.
    Ok,
    /// The driver works, with a limit.
    Warning,
    /// The driver, or a part of it, cannot work.
    Error,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity of the finding.
    pub severity: FindingSeverity,
    /// Sentence about the finding, without a full stop.
    pub message: String,
    /// Command to run or action to take; present unless the severity is ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remediation: Option<String>,
}

impl Finding {
    /// The check passed.
    pub fn ok(message: impl Into<String>) -> Self {
        Finding { severity: FindingSeverity::Ok, message: message.into(), remediation: None }
    }

    /// The driver works, with a limit.
    pub fn warning(message: impl Into<String>, remediation: impl Into<String>) -> Self {
        let (message, remediation) = (message.into(), Some(remediation.into()));
        Finding { severity: FindingSeverity::Warning, message, remediation }
    }

    /// Something cannot work.
    pub fn error(message: impl Into<String>, remediation: impl Into<String>) -> Self {
        let (message, remediation) = (message.into(), Some(remediation.into()));
        Finding { severity: FindingSeverity::Error, message, remediation }
    }
}
