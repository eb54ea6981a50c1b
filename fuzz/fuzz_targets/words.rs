//! Any words as LVM's report, or as tags.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../from_lvm.rs"]
#[allow(dead_code)] // It serves three targets.
mod from_lvm;

fuzz_target!(|bytes: &[u8]| {
    from_lvm::words(bytes);
});
