//! The driver as a process: how it starts and how it ends.

use std::path::Path;
use std::time::Instant;

use crate::machine::{Disk, Driver, figure, run};

const SOCKET: &str = "/run/pliant/csi.sock";
const ARGUMENTS: [&str; 4] = ["--node-id", "n1", "--pool", "default=vg0"];

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_driver_ends_when_asked() {
    let disk = Disk::of(256 << 20);
    run("vgcreate", &["--metadatasize", "16m", "vg0", disk.device()]);

    let driver = Driver::standalone(Path::new(SOCKET), &ARGUMENTS);

    assert_eq!(driver.stop().expect("wait").code(), Some(0));
}

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_killed_driver_leaves_nothing_that_keeps_the_next_from_starting() {
    let disk = Disk::of(256 << 20);
    run("vgcreate", &["--metadatasize", "16m", "vg0", disk.device()]);

    let killed = Driver::standalone(Path::new(SOCKET), &ARGUMENTS).kill().expect("wait");
    let start = Instant::now();
    let next = Driver::standalone(Path::new(SOCKET), &ARGUMENTS);
    figure("start_after_kill_seconds", start.elapsed().as_secs_f64());

    assert_eq!(killed.code(), None);
    assert_eq!(next.stop().expect("wait").code(), Some(0));
}
