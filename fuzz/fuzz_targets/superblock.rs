//! Any bytes at the start of a device.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pliant::bytes::Bytes;
use pliant::fs::superblock;

fuzz_target!(|head: &[u8]| {
    if let Some(found) = superblock::parse(head) {
        found.fills(Bytes::MAX);
        found.mounted_before();
    }
});
