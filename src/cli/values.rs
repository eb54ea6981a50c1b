//! Values of flags, as people write them.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::config::TimeSpan;
use crate::volume::Mode;

pub fn volume_stats_interval(text: &str) -> Result<TimeSpan, String> {
    let span: TimeSpan = text.parse()?;
    if span.0 < Duration::from_secs(10) {
        return Err(format!(
            "{text} is too short, and would overload the API server: use 10s or more"
        ));
    }
    Ok(span)
}

pub fn mode(text: &str) -> Result<Mode, String> {
    text.parse().map_err(|_: String| {
        format!(
            "`{text}` is not a file system of Pliant: use ext4, xfs, btrfs, ext3, ext2 or block"
        )
    })
}

pub fn size(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(Bytes::ZERO) => Err("the size must be above 0, such as 320Mi".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

pub fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not a count: write a whole number from 0 to {}", u32::MAX)
    })
}
