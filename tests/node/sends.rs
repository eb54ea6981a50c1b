//! What the node plugins of other nodes may read, and of what a permit is one.

use pliant::bytes::Bytes;
use pliant::node::{SendPermit, open_send, prepare_send, set_sends};
use pliant::volume::{Mode, NodeKey, Reason, Snapshots, Source, VolumeId, VolumeKey};

use crate::block_on;
use crate::machine::{NEIGHBOUR, Op, SMALL, VOLUME, after, id_of, snapshot_id};

const MODE: Mode = Mode::Block;
const PEER: &str = "sha256:of the other node plugin";

/// The volume of another node that receives.
fn target() -> VolumeId {
    VolumeId::new(NodeKey::of("beta"), VolumeKey::of("restored"))
}

fn permit(source: Source) -> SendPermit {
    SendPermit { target: target(), source, peer: PEER.to_owned() }
}

/// Whatever the deletion of a snapshot has done when another node opens it: either it is not opened, or not deleted.
#[test]
fn a_snapshot_that_is_being_deleted_is_opened_for_no_other_node() {
    for n in 1..100 {
        let is_over = block_on(async {
            let (host, _, node) =
                after(&[Op::Create(MODE), Op::Stage(MODE), Op::Write, Op::Snapshot]).await;
            let permit = permit(Source::Snapshot(snapshot_id()));
            set_sends(&node, vec![permit.clone()]).await.expect("it is permitted");
            let ready = prepare_send(&node, &permit, MODE).await.expect("it is ready");
            assert_eq!((ready.size, ready.is_empty), (Bytes::mib(SMALL), false));
            host.forget_effects();
            host.hold_after(n);
            let removing = {
                let node = node.clone();
                tokio::spawn(async move { node.remove_snapshot(&snapshot_id()).await })
            };
            let held = async {
                tokio::select! {
                    () = host.held() => true,
                    () = async { while !removing.is_finished() { tokio::task::yield_now().await } } => false,
                }
            };
            if !held.await {
                return true;
            }
            let opening = {
                let node = node.clone();
                tokio::spawn(async move { open_send(&node, PEER, &target().to_string()).await })
            };
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            host.let_go();
            let opened = opening.await.expect("no panic");
            let removed = removing.await.expect("no panic");
            assert!(opened.is_err() || removed.is_err(), "effect {n}: {opened:?}");
            false
        });
        if is_over {
            assert!(n > 10, "only {n} effects");
            return;
        }
    }
    panic!("a deletion has no end");
}

#[test]
fn a_permit_is_ready_for_its_own_source_and_key_alone() {
    block_on(async {
        let (host, _, node) =
            after(&[Op::Create(MODE), Op::CreateNeighbour, Op::Stage(MODE), Op::Write]).await;
        let first = permit(Source::Volume(id_of(VOLUME)));
        set_sends(&node, vec![first.clone()]).await.expect("it is permitted");
        let ready = prepare_send(&node, &first, MODE).await.expect("it is cut");
        assert_eq!((ready.size, ready.is_empty), (Bytes::mib(SMALL), false));
        let opened = open_send(&node, "another", &target().to_string()).await;
        assert_eq!(opened.map(drop).map_err(|error| error.reason()), Err(Reason::Unavailable));

        // The neighbour was never shown, and the cut is none of it.
        let other = permit(Source::Volume(id_of(NEIGHBOUR)));
        let early = tokio::spawn({
            let (node, other) = (node.clone(), other.clone());
            async move { prepare_send(&node, &other, MODE).await }
        });
        tokio::task::yield_now().await;
        assert!(!early.is_finished(), "the permit that is there is another one");
        set_sends(&node, vec![other]).await.expect("it is permitted");
        let ready = early.await.expect("no panic").expect("it is ready");
        assert_eq!((ready.size, ready.is_empty), (Bytes::mib(8), true));
        let group = host.group("vg0").expect("a group");
        assert!(group.lvs.keys().all(|name| !name.contains(".cut")), "{:?}", group.lvs.keys());
    });
}
