//! Any words as a quantity.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../quantities.rs"]
mod quantities;

fuzz_target!(|bytes: &[u8]| {
    quantities::parse(bytes);
});
