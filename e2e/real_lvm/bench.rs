//! Pliant beside the plain way, in one run on the same kernel: `make bench`.
//!
//! The plain way is what a driver does that runs `lvm` once a step with the distribution's settings:
//! `lvcreate`, `mkfs`, `mount`, `lvextend --resizefs`, `lvs`, `df`, `lvremove`. Pliant is asked over
//! its socket. Both work on the same volume group. Where Pliant wipes and the plain way does not, the
//! plain way is measured both as it is and with a wipe of the same bytes.

mod client;
mod life;
mod many;
mod snapshots;
mod table;

use std::path::{Path, PathBuf};

use crate::machine::{Disk, Driver, run};
use client::{Client, METRICS};
use table::Table;

const SOCKET: &str = "/run/pliant/csi.sock";
const GROUP: &str = "vg0";
const LINEAR: &str = "--pool=default=vg0";

/// The driver under measurement and the machine that it shares with the plain way.
struct Bench {
    table: Table,
    client: Client,
    driver: Driver,
    disk: Disk,
}

impl Bench {
    fn start() -> Bench {
        Bench::with(LINEAR)
    }

    /// The same with half of the group for a thin pool.
    fn with_thin_pool() -> Bench {
        let config = "/run/bench.toml";
        let pool = format!("[[pools]]\nname = \"default\"\nvolume-groups = [\"{GROUP}\"]\n");
        std::fs::write(config, format!("{pool}[pools.thin]\nsize = \"50%\"\n")).expect("config");
        Bench::with(&format!("--config={config}"))
    }

    fn with(pool: &str) -> Bench {
        let disk = Disk::of(24 << 30);
        run("vgcreate", &["--metadatasize", "16m", GROUP, disk.device()]);
        let driver = start_driver(pool);
        let client = Client::connect(Path::new(SOCKET));
        Bench { table: Table::begin(), client, driver, disk }
    }
}

fn start_driver(pool: &str) -> Driver {
    let metrics = format!("--metrics-address={METRICS}");
    let level = std::env::var("PLIANT_LOG_LEVEL").unwrap_or_else(|_| "warn".to_owned());
    let args = ["--node-id=n1", pool, &metrics, "--log-level", &level];
    Driver::standalone(Path::new(SOCKET), &args)
}

/// The device of a logical volume of the plain way.
fn plain_device(name: &str) -> String {
    format!("/dev/{GROUP}/{name}")
}

/// A directory to mount at.
fn directory(name: &str) -> PathBuf {
    let path = Path::new("/run/bench").join(name);
    std::fs::create_dir_all(&path).expect("directory");
    path
}

#[test]
#[ignore = "needs the throw-away kernel: make bench"]
fn one_volume_beside_plain_lvm() {
    let mut bench = Bench::start();
    bench.create_and_delete();
    bench.create_block();
    bench.grow_new();
    bench.stage();
    bench.grow_online();
    bench.grow_offline();
    bench.stats();
    bench.idle();
    bench.table.publish("bench_one");
}

#[test]
#[ignore = "needs the throw-away kernel: make bench"]
fn snapshots_beside_plain_lvm() {
    let mut bench = Bench::with_thin_pool();
    bench.create_thin();
    bench.snapshot_under_a_writer();
    bench.copy_and_restore();
    bench.write_into_a_growing_pool();
    bench.table.publish("bench_snapshots");
}

#[test]
#[ignore = "needs the throw-away kernel: make bench"]
fn many_volumes_beside_plain_lvm() {
    let mut bench = Bench::start();
    for count in [10, 100, 1000] {
        bench = bench.with_volumes(count);
    }
    bench.memory();
    bench.table.publish("bench_many");
}
