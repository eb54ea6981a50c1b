//! How a volume's bytes go: all of them, or as its class says; in order, and from where it stopped.

use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::node::{GroupSource, Node, PoolPlan};
use pliant::testing::{FakeHost, Side};
use pliant::volume::{Mode, NodeVolumes, Reason, Volumes, Wipe};

use crate::cuts::block_on;
use crate::machine::{Setup, VOLUME, id_of, settings, staging, want};

const GIB: u64 = 1 << 30;
/// So much is wiped between two notes of it.
const NOTED: u64 = 16;

/// A machine with a raw volume of so many GiB that is wiped in this way.
async fn machine(gib: u64, wipe: Wipe) -> (FakeHost, Setup, Arc<Node>) {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::gib(gib + 1));
    host.add_group("vg0", &[disk]);
    let groups = vec![GroupSource::Existing("vg0".to_owned())];
    let plan = PoolPlan::new("fast".parse().expect("a name"), groups);
    let setup = Setup { settings: settings(), plans: vec![plan] };
    let node = setup.start(&host).await;
    let mut want = want(VOLUME, Mode::Block, gib << 10);
    want.class.wipe = wipe;
    node.ensure(&want).await.expect("create");
    node.stage(&staging(Mode::Block)).await.expect("stage");
    host.forget_effects();
    (host, setup, node)
}

fn begins(effects: &[String], call: &str) -> Vec<usize> {
    let numbered = effects.iter().enumerate().filter(|(_, effect)| effect.starts_with(call));
    numbered.map(|(at, _)| at).collect()
}

#[test]
fn a_class_says_how_its_volumes_are_wiped_at_their_end() {
    block_on(async {
        for (wipe, zeroes, discards) in
            [(Wipe::Zero, 2, 0), (Wipe::Discard, 0, 2), (Wipe::None, 0, 0)]
        {
            let (host, _, node) = machine(2, wipe).await;
            node.remove(&id_of(VOLUME)).await.expect("delete");
            let effects = host.effects();
            let counted =
                (begins(&effects, "BLKZEROOUT").len(), begins(&effects, "BLKDISCARD").len());
            assert_eq!(counted, (zeroes, discards), "{wipe:?}");
            assert_eq!(
                node.wiped(),
                Bytes::gib(if wipe == Wipe::None { 2 } else { 4 }),
                "{wipe:?}"
            );
        }
    });
}

#[test]
fn a_long_wipe_goes_on_from_what_is_durably_wiped() {
    block_on(async {
        let (host, setup, node) = machine(NOTED + 2, Wipe::Zero).await;
        let base = host.after_crash();
        node.remove(&id_of(VOLUME)).await.expect("delete");
        let effects = host.effects();
        let note = format!("pliant.wiped-bytes={}", NOTED * GIB);
        let noted = effects.iter().position(|effect| effect.contains(&note));
        let noted = noted.expect("it is written down");
        let before = begins(&effects[..noted], "BLKZEROOUT");
        assert_eq!(before.len() as u64, NOTED, "no more is said than was wiped");
        assert!(effects[noted - 1].starts_with("fsync /dev/dm-"), "{}", effects[noted - 1]);

        let node = setup.start(&base).await;
        base.forget_effects();
        base.cut_at(noted + 1, Side::After);
        assert!(base.run_until_cut(node.remove(&id_of(VOLUME))).await.is_none());
        let again = base.after_crash();
        let node = setup.start(&again).await;
        node.remove(&id_of(VOLUME)).await.expect("delete");
        let effects = again.effects();
        let wiped = begins(&effects, "BLKZEROOUT");
        assert_eq!(wiped.len(), 2, "{effects:#?}");
        assert!(effects[wiped[0]].contains(&format!("{}..", NOTED * GIB)), "{}", effects[wiped[0]]);
    });
}

/// A machine whose driver died in the midst of the wipe of a deleted volume of 2 GiB.
async fn half_wiped() -> (FakeHost, Setup) {
    let (host, setup, node) = machine(2, Wipe::Zero).await;
    let base = host.after_crash();
    node.remove(&id_of(VOLUME)).await.expect("delete");
    let wipes = begins(&host.effects(), "BLKZEROOUT");
    let node = setup.start(&base).await;
    base.forget_effects();
    base.cut_at(wipes[0] + 1, Side::Before);
    assert!(base.run_until_cut(node.remove(&id_of(VOLUME))).await.is_none());
    (base.after_crash(), setup)
}

#[test]
fn a_start_goes_on_with_the_wipes_of_deleted_volumes() {
    block_on(async {
        let (again, setup) = half_wiped().await;
        let _node = setup.start(&again).await;
        for _turn in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(begins(&again.effects(), "BLKZEROOUT").len(), 2);
    });
}

/// Who asks for a volume whose deletion was cut ends that first: nobody else may.
#[test]
fn a_volume_is_made_anew_after_a_deletion_that_was_cut() {
    block_on(async {
        let (again, setup) = half_wiped().await;
        let node = setup.start(&again).await;
        let smaller = want(VOLUME, Mode::Block, 1 << 10);
        let error = node.ensure(&smaller).await.expect_err("the earlier one is there");
        assert_eq!(error.reason(), Reason::InProgress, "{error}");
        let made = node.ensure(&smaller).await.expect("it is gone");
        assert_eq!(made.size, Bytes::gib(1));
    });
}
