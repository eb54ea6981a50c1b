//! Whether all of what can be tried is tried, or what one run of all tests has the time for.

/// Whether `EXHAUSTIVE` is in the environment: `make exhaustive` puts it there.
pub fn exhaustive() -> bool {
    std::env::var_os("EXHAUSTIVE").is_some()
}
