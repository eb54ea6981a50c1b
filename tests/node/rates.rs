//! The limit of the rate at which a node copies.

use std::time::Duration;

use pliant::bytes::Bytes;
use pliant::node::NodeSettings;
use pliant::volume::Mode;
use tokio::time::Instant;

use crate::machine::{Disks, Op, Setup, settings};

/// A snapshot of 320 MiB is copied, and then compared.
#[test]
fn a_copy_keeps_its_rate() {
    let mut paused = tokio::runtime::Builder::new_current_thread();
    let runtime = paused.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let settings = NodeSettings { copy_rate: Some(Bytes::mib(10)), ..settings() };
        let node = Setup { settings, ..setup }.start(&host).await;
        for op in [Op::Create(Mode::Block), Op::Stage(Mode::Block), Op::Write] {
            op.ask(&host, &node).await.expect("it is made and written to");
        }
        let began = Instant::now();
        Op::Snapshot.ask(&host, &node).await.expect("it becomes ready");
        let took = began.elapsed();
        assert!((64..66).contains(&took.as_secs()), "{took:?}");
        for op in [Op::DeleteSnapshot, Op::Snapshot] {
            let began = Instant::now();
            op.ask(&host, &node).await.expect("it is deleted, and taken again");
            assert!(began.elapsed() < Duration::from_secs(66), "{op:?}: {:?}", began.elapsed());
        }
    });
}
