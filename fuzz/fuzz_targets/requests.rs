//! Any bytes as a request, behind the byte that says which.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../every_request.rs"]
mod every_request;

fuzz_target!(|bytes: &[u8]| {
    every_request::parse(bytes);
});
