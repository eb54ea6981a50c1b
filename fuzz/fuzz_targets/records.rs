//! Any words as an object of ours in the API server.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../from_api.rs"]
mod from_api;

fuzz_target!(|bytes: &[u8]| {
    from_api::records(bytes);
});
