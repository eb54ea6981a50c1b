//! Tests on real LVM. They make and break disks, so they are ignored unless the throw-away kernel
//! runs them: `e2e/real-lvm`, or all with `make test`.

mod driver;
mod groups;
mod log_writes;
mod machine;
mod power_cuts;
