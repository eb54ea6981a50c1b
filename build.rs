//! Tells the program which commit it is built from.

/// Sets `PLIANT_REVISION` for the sources: that of the environment, as `packaging/image` sets it, else `unknown`.
fn main() {
    println!("cargo::rerun-if-env-changed=PLIANT_REVISION");
    let revision = std::env::var("PLIANT_REVISION").unwrap_or_default();
    let revision = if revision.is_empty() { "unknown" } else { &revision };
    println!("cargo::rustc-env=PLIANT_REVISION={revision}");
}
