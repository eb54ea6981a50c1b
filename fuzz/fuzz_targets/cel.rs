//! Any words as names in the expression of the webhook.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../cel.rs"]
mod cel;

fuzz_target!(|bytes: &[u8]| {
    cel::parse(bytes);
});
