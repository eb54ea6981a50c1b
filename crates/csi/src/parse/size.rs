//! Capacity ranges.

use crate::bytes::Bytes;
use crate::parse::ParseError;
use crate::pb;
use crate::volume::RequestedSize;

/// Parses a range; a zero stands for a field that was not set.
///
/// # Errors
/// A negative size is invalid; a limit below the required size is out of range.
///
/// # Source
/// CSI 1.13, `CapacityRange`.
pub(super) fn wanted(
    range: Option<pb::CapacityRange>,
    default: Bytes,
) -> Result<RequestedSize, ParseError> {
    let range = range.unwrap_or_default();
    let required = size("capacity_range.required_bytes", range.required_bytes)?;
    let limit = size("capacity_range.limit_bytes", range.limit_bytes)?;
    match (required, limit) {
        (Some(least), Some(most)) if most < least => Err(ParseError::Range {
            reason: format!("required_bytes {} is above limit_bytes {}", least.get(), most.get()),
        }),
        (Some(at_least), at_most) => Ok(RequestedSize { at_least, at_most }),
        (None, at_most) => Ok(RequestedSize {
            at_least: at_most.map_or(default, |most| most.min(default)),
            at_most,
        }),
    }
}

/// Parses a range that must have a value.
pub(super) fn stated(range: Option<pb::CapacityRange>) -> Result<RequestedSize, ParseError> {
    let range = range.filter(|range| *range != pb::CapacityRange::default());
    let range = range.ok_or_else(|| ParseError::missing("capacity_range"))?;
    wanted(Some(range), Bytes::ZERO)
}

fn size(field: &str, bytes: i64) -> Result<Option<Bytes>, ParseError> {
    let size = Bytes::from_i64(bytes).ok_or_else(|| {
        ParseError::invalid(field, format!("{bytes} is negative; sizes are bytes from 0"))
    })?;
    Ok((size > Bytes::ZERO).then_some(size))
}
