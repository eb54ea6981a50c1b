//! The only module that chooses gRPC codes. `docs/src/reference/errors.md` describes the effect of
//! each code on each caller. Two rules stand out. Insufficient capacity is RESOURCE_EXHAUSTED when
//! a volume is created, so that its pod is scheduled again, but OUT_OF_RANGE when it is expanded,
//! so that the user can lower the request. And a code after which a caller assumes that an
//! operation may still run is returned only if it may.

#![expect(clippy::disallowed_methods, reason = "this is the one file that makes them")]

use std::error::Error;

use tonic::{Code, Status};

use crate::in_flight::BusyError;
use crate::parse::ParseError;
use crate::volume::{Reason, VolumeError, error_chain};

/// Longest message in bytes; it travels as a header, where each byte may take three.
const LONGEST_MESSAGE: usize = 2048;

fn code_of_reason(reason: Reason) -> Code {
    match reason {
        Reason::NotFound => Code::NotFound,
        Reason::AlreadyExists => Code::AlreadyExists,
        Reason::InvalidArgument => Code::InvalidArgument,
        Reason::InsufficientCapacity | Reason::TopologyMismatch => Code::ResourceExhausted,
        Reason::SizeOutOfRange | Reason::ExpansionOutOfRange => Code::OutOfRange,
        Reason::InUse | Reason::PreconditionFailed => Code::FailedPrecondition,
        Reason::InProgress => Code::Aborted,
        Reason::Unavailable => Code::Unavailable,
        Reason::Failed => Code::Internal,
    }
}

/// The code for a request that cannot be taken.
fn code_of_request(error: &ParseError) -> Code {
    match error {
        ParseError::Invalid { .. } => Code::InvalidArgument,
        ParseError::Foreign { .. }
        | ParseError::ForeignSnapshot { .. }
        | ParseError::Nowhere { .. } => Code::NotFound,
        ParseError::Range { .. } => Code::OutOfRange,
        ParseError::Unstaged | ParseError::NotOfKubelet { .. } => Code::FailedPrecondition,
        ParseError::Token => Code::Aborted,
    }
}

/// The status of an operation on a volume that failed.
///
/// No `From`: both types are of other crates.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` hands on")]
pub fn of_volume(error: VolumeError) -> Status {
    Status::new(code_of_reason(error.reason()), message(&error))
}

impl From<ParseError> for Status {
    fn from(error: ParseError) -> Status {
        Status::new(code_of_request(&error), message(&error))
    }
}

/// The status of an operation that failed, or that did not start because another one has its volume.
pub(super) fn of_operation(error: BusyError<VolumeError>) -> Status {
    match error {
        BusyError::Busy => Status::new(Code::Aborted, error.to_string()),
        BusyError::Fault => fault(),
        BusyError::Work(error) => of_volume(error),
    }
}

/// The status of a call whose handler panicked.
pub(super) fn fault() -> Status {
    let message = "the operation ended in an internal error of the driver; see its log";
    Status::new(Code::Internal, message)
}

/// The status of a call that the driver does not have.
pub(super) fn unserved(method: &str) -> Status {
    let message = format!(
        "{method} is not supported, and the driver declares no capability for it: call only what \
         it declares"
    );
    Status::new(Code::Unimplemented, message)
}

/// The name of a code, as the gRPC standard writes it.
pub(super) fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// The error's sentence and those of its causes, once each, cut to what a header carries.
fn message(error: &(dyn Error + 'static)) -> String {
    let mut text = error_chain::in_full(error);
    let whole = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=LONGEST_MESSAGE.min(text.len())).rfind(whole);
    text.truncate(end.unwrap_or_default());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;

    /// One of each variant, with the code that its callers build on.
    fn answers() -> Vec<(VolumeError, Code)> {
        let text = || "x".to_owned();
        let pool = || "fast".parse().unwrap();
        let gib = Bytes::gib;
        let (id, name, difference) = (text(), text(), text());
        let (asked, free, largest) = (gib(3), gib(2), gib(1));
        vec![
            (VolumeError::NotFound { id }, Code::NotFound),
            (VolumeError::AlreadyExists { name, difference }, Code::AlreadyExists),
            (VolumeError::InvalidArgument { field: text(), reason: text() }, Code::InvalidArgument),
            (VolumeError::SizeOutOfRange { reason: text() }, Code::OutOfRange),
            (
                VolumeError::InsufficientCapacity {
                    pool: pool(),
                    asked,
                    free,
                    largest,
                    hindrance: None,
                },
                Code::ResourceExhausted,
            ),
            (
                VolumeError::ExpansionOutOfRange {
                    pool: pool(),
                    asked,
                    free,
                    largest,
                    hindrance: None,
                },
                Code::OutOfRange,
            ),
            (
                VolumeError::TopologyMismatch { asked: vec![text()], here: text() },
                Code::ResourceExhausted,
            ),
            (VolumeError::InUse { id: text(), holder: text() }, Code::FailedPrecondition),
            (VolumeError::PreconditionFailed { reason: text() }, Code::FailedPrecondition),
            (VolumeError::InProgress { what: text(), progress: text() }, Code::Aborted),
            (VolumeError::Unavailable { reason: text() }, Code::Unavailable),
            (VolumeError::Failed { what: text() }, Code::Internal),
            (
                VolumeError::Reported { reason: Reason::ExpansionOutOfRange, message: text() },
                Code::OutOfRange,
            ),
        ]
    }

    #[test]
    fn each_answer_has_its_code() {
        for (error, code) in answers() {
            let said = format!("{error:?}");
            assert_eq!(of_volume(error).code(), code, "{said}");
        }
    }

    #[test]
    fn each_refusal_has_its_code() {
        let text = || "x".to_owned();
        for (error, code) in [
            (ParseError::Invalid { field: text(), reason: text() }, Code::InvalidArgument),
            (ParseError::Foreign { id: text() }, Code::NotFound),
            (ParseError::ForeignSnapshot { id: text() }, Code::NotFound),
            (ParseError::Nowhere { reason: text() }, Code::NotFound),
            (ParseError::Range { reason: text() }, Code::OutOfRange),
            (ParseError::Unstaged, Code::FailedPrecondition),
            (
                ParseError::NotOfKubelet {
                    field: text(),
                    path: "/x".into(),
                    dir: "/y".into(),
                    todo: text(),
                },
                Code::FailedPrecondition,
            ),
            (ParseError::Token, Code::Aborted),
        ] {
            assert_eq!(Status::from(error).code(), code);
        }
    }

    #[test]
    fn only_work_that_may_still_run_is_called_so() {
        assert_eq!(of_operation(BusyError::Busy).code(), Code::Aborted);
        assert_eq!(of_operation(BusyError::Fault).code(), Code::Internal);
        let work = BusyError::Work(VolumeError::PreconditionFailed { reason: "x".to_owned() });
        assert_eq!(of_operation(work).code(), Code::FailedPrecondition);
    }

    #[test]
    fn a_message_fits_a_header() {
        let what = "\u{e4}".repeat(LONGEST_MESSAGE);
        let status = of_volume(VolumeError::PreconditionFailed { reason: what });
        assert!((LONGEST_MESSAGE - 1..=LONGEST_MESSAGE).contains(&status.message().len()));
    }
}
