//! Trims of mounted file systems, by the intervals of their classes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::node::keep_trimmed;
use pliant::testing::FakeHost;
use pliant::volume::{Class, FsKind, Mode, NewVolume, NodeVolumes, TrimInterval, Volumes};
use tokio::time::sleep;

use crate::machine::{STAGING, Setup, VOLUME, id_of, settings, staging, want};
use crate::plans::plan;

const MODE: Mode = Mode::Filesystem(FsKind::Ext4);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn trims(host: &FakeHost) -> u64 {
    host.counts().get("fs_trims").copied().unwrap_or_default()
}

/// A volume of three pieces is trimmed once a day as long as it is mounted, whenever the driver has started.
#[test]
fn a_mounted_file_system_is_trimmed_once_an_interval() {
    let mut paused = tokio::runtime::Builder::new_current_thread();
    let runtime = paused.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let host = FakeHost::new();
        let disk = host.add_disk(Bytes::gib(100));
        host.add_group("vg0", &[disk]);
        let setup = Setup { settings: settings(), plans: vec![plan("fast", &["vg0"])] };
        let node = setup.start(&host).await;
        let daily = Class { trim: TrimInterval::of_hours(24), ..Class::default() };
        let wanted = NewVolume { class: daily, ..want(VOLUME, MODE, 3 << 10) };
        node.ensure(&wanted).await.expect("it is made");
        node.ensure(&want("never trimmed", MODE, 3 << 10)).await.expect("it is made");
        node.stage(&staging(MODE)).await.expect("it is mounted");
        drop(node);

        let mut seen = 0;
        for start in 1..=3 {
            let node = setup.start(&host).await;
            let keeper = tokio::spawn(keep_trimmed(Arc::downgrade(&node)));
            for day in 1..=2 {
                sleep(DAY).await;
                seen += 3;
                assert_eq!(trims(&host), seen, "day {day} after start {start}");
            }
            keeper.abort();
        }
        let node = setup.start(&host).await;
        let keeper = tokio::spawn(keep_trimmed(Arc::downgrade(&node)));
        node.unstage(&id_of(VOLUME), Path::new(STAGING)).await.expect("it is unmounted");
        sleep(2 * DAY).await;
        assert_eq!(trims(&host), seen, "it is not mounted");
        drop(node);
        keeper.await.expect("it ends with its node");
    });
}
