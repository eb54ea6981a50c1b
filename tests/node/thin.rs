//! Thin volumes: what is promised, what is refused, and pools that grow in time.

use std::sync::Arc;

use pliant::bytes::Bytes;
use pliant::host::Host;
use pliant::lvm::THIN_POOL;
use pliant::node::storage::ThinPoolReport;
use pliant::node::{NewDisk, Node, read_thin_usages};
use pliant::testing::FakeHost;
use pliant::volume::Terms;
use pliant::volume::{
    CapacityQuery, Class, FsKind, Layout, Mode, NodeVolumes, Page, Part, ThinSettings, VolumeError,
    Volumes,
};

use crate::cuts::block_on;
use crate::machine::{
    Disks, LARGE, LESS, NEIGHBOUR, Op, Setup, VOLUME, growth, id_of, settings, staging, thin,
    type_in, want,
};
use crate::plans::plan;

/// A host with a disk of 100 GiB, and a driver that holds thin volumes on it.
async fn large(thin: ThinSettings) -> (FakeHost, Arc<Node>) {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::gib(100));
    host.add_group("vg0", &[disk]);
    let terms = Terms { thin: Some(thin), ..Terms::default() };
    let plans = vec![pliant::node::PoolPlan { terms, ..plan("fast", &["vg0"]) }];
    let node = Setup { settings: settings(), plans }.start(&host).await;
    (host, node)
}

fn extents_of_pool(host: &FakeHost) -> u64 {
    host.group("vg0").expect("a group").lvs[THIN_POOL].extents()
}

/// Chunks so large that few of them fill a pool.
const LARGE_CHUNKS: ThinSettings = ThinSettings {
    size: Part::Percent(90),
    max_overcommit: 100,
    grow_at: 70,
    metadata_grow_at: 70,
    reserve: Part::Percent(0),
    when_full: pliant::volume::WhenFull::Error,
    discards: pliant::volume::Discards::PassDown,
    chunk: Some(Bytes::mib(256)),
};

async fn largest(node: &Node, layout: Layout) -> Bytes {
    let class = Class { layout, ..Class::default() };
    let query = CapacityQuery { class, mode: None, node: None };
    node.capacity(&query).await.expect("a capacity").largest
}

#[test]
fn a_pool_grows_before_it_is_full_and_no_write_fails() {
    block_on(async {
        let (host, node) = large(LARGE_CHUNKS).await;
        node.ensure(&thin(want(VOLUME, Mode::Block, 80 << 10))).await.expect("created");
        let first = extents_of_pool(&host);
        assert_eq!(Bytes::mib(4 * first).get() >> 30, 22, "a quarter of the limit");
        node.stage(&staging(Mode::Block)).await.expect("staged");
        let device = host.device_of("vg0", &crate::looks::lv()).expect("active");
        let mut sizes = vec![first];
        for chunk in 0..(80 << 10) / 256 {
            host.write_at(&device, chunk * (256 << 20), b"what the workload wrote");
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            sizes.push(extents_of_pool(&host));
        }
        sizes.dedup();
        let last = *sizes.last().expect("sizes");
        assert!(sizes.is_sorted() && sizes.len() > 4, "{sizes:?}");
        assert!(Bytes::mib(4 * last) <= Bytes::gib(90), "{sizes:?}");
        let commands = host.counts()["lvm_commands"];
        for _ in 0..2000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            host.counts()["lvm_commands"],
            commands,
            "nothing is done while nothing happens"
        );
    });
}

#[test]
fn a_pool_grows_in_time_after_a_boot_too() {
    block_on(async {
        let (host, node) = large(LARGE_CHUNKS).await;
        node.ensure(&thin(want(VOLUME, Mode::Block, 80 << 10))).await.expect("created");
        let host = host.after_power_cut();
        let terms = Terms { thin: Some(LARGE_CHUNKS), ..Terms::default() };
        let plans = vec![pliant::node::PoolPlan { terms, ..plan("fast", &["vg0"]) }];
        let node = Setup { settings: settings(), plans }.start(&host).await;
        node.stage(&staging(Mode::Block)).await.expect("staged");
        let device = host.device_of("vg0", &crate::looks::lv()).expect("active");
        for chunk in 0..200 {
            host.write_at(&device, chunk * (256 << 20), b"what the workload wrote");
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            let (used, all) = ((chunk + 1) * 64, extents_of_pool(&host));
            assert!(used * 100 < all * 75, "{used} extents of {all} are in use");
        }
    });
}

#[test]
fn writes_fail_at_once_only_where_the_pool_can_grow_no_more() {
    block_on(async {
        let (host, node) = large(LARGE_CHUNKS).await;
        let fails = |host: &FakeHost| {
            host.group("vg0").expect("a group").lvs[THIN_POOL].flags.contains("ERROR_WHEN_FULL")
        };
        node.ensure(&thin(want(VOLUME, Mode::Block, 8))).await.expect("created");
        assert!(!fails(&host), "while it can grow they wait for that");
        type_in(&host, "vg0", &format!("lvextend -y -l 23036 vg0/{THIN_POOL}")).await;
        node.set_pools(vec![pliant::node::PoolPlan {
            terms: Terms { thin: Some(LARGE_CHUNKS), ..Terms::default() },
            ..plan("fast", &["vg0"])
        }])
        .await
        .expect("set");
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(fails(&host));
    });
}

#[test]
fn no_more_is_promised_than_the_pool_can_grow_to() {
    block_on(async {
        let half = ThinSettings { size: Part::Percent(50), ..ThinSettings::default() };
        let (_host, node) = large(half).await;
        let most = largest(&node, Layout::Thin).await;
        assert_eq!(most.get() >> 30, 49);
        assert!(largest(&node, Layout::Linear).await > Bytes::gib(99));
        node.ensure(&thin(want(VOLUME, Mode::Block, 40 << 10))).await.expect("created");
        assert_eq!(largest(&node, Layout::Thin).await, most - Bytes::gib(40));
        // What is promised is free, and given to no other.
        assert_eq!(largest(&node, Layout::Linear).await.get() >> 30, 59);
        let refused = node.ensure(&thin(want(NEIGHBOUR, Mode::Block, 11 << 10))).await;
        let Err(VolumeError::InsufficientCapacity { largest: told, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(told, most - Bytes::gib(40));
        let refused = node.grow(&id_of(VOLUME), growth(51 << 10)).await;
        assert!(matches!(refused, Err(VolumeError::ExpansionOutOfRange { .. })), "{refused:?}");
        node.grow(&id_of(VOLUME), growth(49 << 10)).await.expect("grown");
        node.ensure(&want(NEIGHBOUR, Mode::Block, 50 << 10)).await.expect("the rest is free");
        node.remove(&id_of(VOLUME)).await.expect("deleted");
        let left = largest(&node, Layout::Thin).await;
        assert!(left < most && left > Bytes::gib(48), "the other has the rest: {left}");
    });
}

#[test]
fn overcommit_promises_more_than_there_is() {
    block_on(async {
        let twice = ThinSettings { max_overcommit: 200, ..ThinSettings::default() };
        let (_host, node) = large(twice).await;
        assert_eq!(largest(&node, Layout::Thin).await.get() >> 30, 179);
        node.ensure(&thin(want(VOLUME, Mode::Block, 150 << 10))).await.expect("created");
        assert_eq!(largest(&node, Layout::Thin).await.get() >> 30, 29);
        assert!(
            largest(&node, Layout::Linear).await < Bytes::gib(10),
            "the pool may need the rest"
        );
    });
}

#[test]
fn a_pool_without_thin_settings_makes_none_and_says_how() {
    block_on(async {
        let (host, setup) = Disks::Two.machine(false).await;
        let node = setup.start(&host).await;
        assert_eq!(largest(&node, Layout::Thin).await, Bytes::ZERO);
        let refused = node.ensure(&thin(want(VOLUME, Mode::Block, 8))).await;
        let Err(VolumeError::InsufficientCapacity { hindrance: Some(why), .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(why, "it makes no thin volumes: set `thin` of the pool");
    });
}

#[test]
fn a_pool_that_does_not_zero_gets_no_new_volume() {
    block_on(async {
        let (host, setup) = Disks::Thin.machine(false).await;
        let node = setup.start(&host).await;
        Op::CreateThin(Mode::Block).ask(&host, &node).await.expect("created");
        let change = |group: &mut pliant::lvm::Group| {
            let pool = group.lvs.get_mut(THIN_POOL).expect("a pool");
            for segment in &mut pool.segments {
                segment.thin_pool.as_mut().expect("a pool").zeroes = false;
            }
        };
        host.change_group("vg0", change).expect("changed");
        let refused = node.ensure(&thin(want(NEIGHBOUR, Mode::Block, 8))).await;
        let Err(VolumeError::Unavailable { reason }) = refused else { panic!("{refused:?}") };
        assert!(reason.ends_with("run `lvchange -Zy vg0/pliant-thinpool`"), "{reason}");
    });
}

#[test]
fn an_unused_thin_volume_takes_next_to_nothing() {
    block_on(async {
        let (host, setup) = Disks::Thin.machine(false).await;
        let node = setup.start(&host).await;
        let ext4 = Mode::Filesystem(FsKind::Ext4);
        for op in [Op::CreateThin(ext4), Op::Stage(ext4), Op::Unstage, Op::Grow(480)] {
            op.ask(&host, &node).await.expect("done");
        }
        let group = host.group("vg0").expect("a group");
        let lv = &group.lvs[&crate::looks::lv()];
        assert_eq!(lv.extents(), 120);
        let chunks = host.chunks_of(&group, lv).len();
        assert!(chunks < 40, "{chunks} chunks for the places of signatures and the file system");
        Op::Delete.ask(&host, &node).await.expect("deleted");
        assert!(host.chunks_of(&group, lv).is_empty());
    });
}

#[test]
fn another_layout_is_another_volume() {
    block_on(async {
        let (host, setup) = Disks::Thin.machine(false).await;
        let node = setup.start(&host).await;
        Op::CreateThin(Mode::Block).ask(&host, &node).await.expect("created");
        let refused = node.ensure(&want(VOLUME, Mode::Block, 320)).await;
        let Err(VolumeError::AlreadyExists { difference, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(difference, "its layout is thin, linear was requested");
    });
}

/// Twice what there is may be promised, and few chunks fill a pool.
const TWICE: ThinSettings = ThinSettings { max_overcommit: 200, ..LARGE_CHUNKS };

/// Let the workload write so many GiB, from this one on.
async fn fill(host: &FakeHost, from: u64, gib: u64) {
    let device = host.device_of("vg0", &crate::looks::lv()).expect("active");
    for chunk in from * 4..(from + gib) * 4 {
        host.write_at(&device, chunk * (256 << 20), b"what the workload wrote");
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
}

async fn thin_pool(node: &Node) -> ThinPoolReport {
    read_thin_usages(node).await;
    node.storage().groups[0].thin_pool.expect("a thin pool")
}

/// The reason of the pool, and those of its volumes; what was promised and is left.
async fn told(node: &Node) -> (&'static str, Vec<&'static str>) {
    let volumes = node.list(&Page::default()).await.expect("volumes").volumes;
    let ailments = volumes.into_iter().flat_map(|volume| volume.ailments);
    let storage = node.storage();
    assert_eq!(storage.pools[0].reason, storage.groups[0].reason);
    (storage.pools[0].reason, ailments.map(|ailment| ailment.reason).collect())
}

#[test]
fn the_figures_of_a_thin_pool_are_true() {
    block_on(async {
        let (host, node) = large(TWICE).await;
        assert_eq!(node.storage().groups[0].thin_pool, None);
        node.ensure(&thin(want(VOLUME, Mode::Block, 150 << 10))).await.expect("created");
        node.stage(&staging(Mode::Block)).await.expect("staged");
        fill(&host, 0, 40).await;
        let report = thin_pool(&node).await;
        assert_eq!(report.size, Bytes::mib(4 * extents_of_pool(&host)));
        assert_eq!(report.maximum.get() >> 30, 89);
        assert_eq!(report.provisioned, Bytes::gib(150));
        assert_eq!(report.maximum_provisioned.get(), 2 * report.maximum.get());
        let left = report.maximum_provisioned - report.provisioned;
        assert_eq!(largest(&node, Layout::Thin).await, left, "what is told can be created");
        let used = report.now.expect("it is active");
        assert_eq!(used.data, Bytes::gib(40));
        assert!(used.metadata > Bytes::ZERO && used.metadata < report.metadata_size, "{used:?}");
        assert!(report.metadata_maximum > report.metadata_size);
        // What is published does not change with each chunk; what is measured does.
        let steady = report.steady;
        fill(&host, 40, 1).await;
        let next = thin_pool(&node).await;
        assert_ne!(next.now, report.now);
        for gib in 41..44 {
            fill(&host, gib, 1).await;
        }
        let last = thin_pool(&node).await;
        assert_ne!(last.steady, steady);
        let reads = host.counts()["lvm_commands"];
        thin_pool(&node).await;
        assert_eq!(host.counts()["lvm_commands"], reads, "no process is started for it");
    });
}

#[test]
fn a_pool_that_is_nearly_full_is_overcommitted_no_further() {
    block_on(async {
        let (host, node) = large(TWICE).await;
        node.ensure(&thin(want(VOLUME, Mode::Block, 150 << 10))).await.expect("created");
        node.stage(&staging(Mode::Block)).await.expect("staged");
        fill(&host, 0, 79).await;
        assert_eq!(told(&node).await, ("Healthy", vec![]));
        assert_eq!(largest(&node, Layout::Thin).await.get() >> 30, 29);
        fill(&host, 79, 3).await;
        let short = "ThinPoolNearlyFull";
        assert_eq!(told(&node).await, (short, vec![short]));
        assert_eq!(largest(&node, Layout::Thin).await, Bytes::ZERO);
        let refused = node.ensure(&thin(want(NEIGHBOUR, Mode::Block, 8))).await;
        let Err(VolumeError::InsufficientCapacity { largest, hindrance, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(largest, Bytes::ZERO);
        let why = hindrance.expect("why");
        let words = "thin pool vg0/pliant-thinpool uses 8";
        assert!(why.starts_with(words) && why.contains("150 GiB are provisioned"), "{why}");
        assert_eq!(why.matches(words).count(), 1, "said once: {why}");
        let refused = node.grow(&id_of(VOLUME), growth(151 << 10)).await;
        let Err(VolumeError::ExpansionOutOfRange { largest, hindrance, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(largest, Bytes::gib(150), "it may stay as it is");
        assert!(hindrance.is_some_and(|why| why.starts_with(words)));
        let words = Op::Snapshot.ask(&host, &node).await.expect_err("refused");
        assert!(words.contains("which the snapshot may come to use"), "{words}");
        // What is deleted makes it well again.
        node.unstage(&id_of(VOLUME), std::path::Path::new(crate::machine::STAGING))
            .await
            .expect("unstaged");
        node.remove(&id_of(VOLUME)).await.expect("deleted");
        assert_eq!(told(&node).await, ("Healthy", vec![]));
        node.ensure(&thin(want(NEIGHBOUR, Mode::Block, 8))).await.expect("created");
    });
}

#[test]
fn a_full_pool_that_holds_all_that_it_promised_is_healthy() {
    block_on(async {
        let (host, node) = large(TWICE).await;
        node.ensure(&thin(want(VOLUME, Mode::Block, 85 << 10))).await.expect("created");
        node.stage(&staging(Mode::Block)).await.expect("staged");
        fill(&host, 0, 84).await;
        assert_eq!(told(&node).await, ("Healthy", vec![]));
        let most = largest(&node, Layout::Thin).await.get() >> 30;
        assert_eq!(most, 4, "no more than there is, although twice as much may be promised");
    });
}

#[test]
fn nothing_is_made_where_metadata_run_out_or_are_damaged() {
    block_on(async {
        let (host, node) = large(LARGE_CHUNKS).await;
        node.ensure(&thin(want(VOLUME, Mode::Block, 8))).await.expect("created");
        let made = largest(&node, Layout::Thin).await;
        assert!(made > Bytes::gib(80));
        // All that is free belongs to others, so that the metadata cannot be expanded.
        let free = host.group("vg0").expect("a group").free_extents();
        type_in(
            &host,
            "vg0",
            &format!("lvcreate -y -Wn -Zn --setautoactivation n -an -l {free} -n other vg0"),
        )
        .await;
        host.use_thin_metadata(600);
        assert_eq!(told(&node).await.0, "Healthy", "800 of 1024");
        host.use_thin_metadata(20);
        let short = "ThinPoolMetadataNearlyFull";
        assert_eq!(told(&node).await, (short, vec![short]));
        assert_eq!(largest(&node, Layout::Thin).await, Bytes::ZERO);
        let refused = node.ensure(&thin(want(NEIGHBOUR, Mode::Block, 8))).await;
        let Err(VolumeError::InsufficientCapacity { hindrance: Some(why), .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(
            why.starts_with(
                "thin pool vg0/pliant-thinpool uses 3.2 MiB of at most 4 MiB of metadata"
            ),
            "{why}"
        );
        host.damage_thin_pools();
        let damaged = "ThinPoolDamaged";
        assert_eq!(told(&node).await, (damaged, vec![damaged]));
        let refused = node.ensure(&thin(want(NEIGHBOUR, Mode::Block, 8))).await;
        let Err(VolumeError::InsufficientCapacity { hindrance: Some(why), .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(why.contains("run `lvconvert --repair vg0/pliant-thinpool`"), "{why}");
    });
}

#[test]
fn what_is_promised_is_told_to_who_asks_for_too_much() {
    block_on(async {
        let (_host, node) = large(TWICE).await;
        node.ensure(&thin(want(VOLUME, Mode::Block, 150 << 10))).await.expect("created");
        let refused = node.ensure(&thin(want(NEIGHBOUR, Mode::Block, 40 << 10))).await;
        let Err(VolumeError::InsufficientCapacity { hindrance: Some(why), .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(
            why,
            "thin pool vg0/pliant-thinpool has 150 GiB of at most 179.96 GiB provisioned, which is 200 % of the \
             89.98 GiB that its data may have"
        );
        let refused = node.ensure(&want(NEIGHBOUR, Mode::Block, 90 << 10)).await;
        let Err(VolumeError::InsufficientCapacity { hindrance, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(hindrance, None, "a linear one is none of it");
    });
}

#[test]
fn an_edit_of_the_mark_takes_effect_at_once() {
    block_on(async {
        let (host, node) = large(LARGE_CHUNKS).await;
        node.ensure(&thin(want(VOLUME, Mode::Block, 80 << 10))).await.expect("created");
        node.stage(&staging(Mode::Block)).await.expect("staged");
        let first = extents_of_pool(&host);
        let refreshes = |host: &FakeHost| {
            let lines = host.effects().into_iter();
            lines.filter(|line| line.contains("--refresh") && line.contains("set the mark")).count()
        };
        let set = async |grow_at: u32| {
            let terms =
                Terms { thin: Some(ThinSettings { grow_at, ..LARGE_CHUNKS }), ..Terms::default() };
            let plan = pliant::node::PoolPlan { terms, ..plan("fast", &["vg0"]) };
            node.set_pools(vec![plan]).await.expect("set");
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(refreshes(&host), 0, "it is made with its mark");
        set(90).await;
        assert_eq!(refreshes(&host), 1);
        fill(&host, 0, 17).await; // 77 % of 22 GiB.
        assert_eq!(extents_of_pool(&host), first, "below the new mark");
        fill(&host, 17, 4).await;
        let second = extents_of_pool(&host);
        assert!(second > first, "the event of the new mark has come");
        // A lower one at which it is already needs no event.
        set(50).await;
        let third = extents_of_pool(&host);
        assert!(third > second, "{third}");
        set(50).await;
        assert_eq!((refreshes(&host), extents_of_pool(&host)), (1, third), "nothing is done twice");
    });
}

#[test]
fn what_a_thin_volume_shrinks_by_goes_back_to_its_pool() {
    block_on(async {
        let (host, setup) = Disks::Thin.machine(false).await;
        // A second's worth is no multiple of a chunk.
        let settings = pliant::node::NodeSettings {
            wipe_rate: Some(Bytes::new((100 << 20) + 4096)),
            ..settings()
        };
        let node = Setup { settings, ..setup }.start(&host).await;
        let ext4 = Mode::Filesystem(FsKind::Ext4);
        for op in [Op::CreateThin(ext4), Op::Stage(ext4), Op::Write, Op::Grow(LARGE)] {
            op.ask(&host, &node).await.expect("done");
        }
        let device = host.device_of("vg0", &crate::looks::lv()).expect("active");
        for mib in LESS..LARGE {
            host.write_at(&device, mib << 20, b"what the workload deleted");
        }
        Op::Unstage.ask(&host, &node).await.expect("done");
        let behind = |host: &FakeHost| {
            let group = host.group("vg0").expect("a group");
            let chunks = host.chunks_of(&group, &group.lvs[&crate::looks::lv()]);
            chunks.into_iter().filter(|(at, _)| *at >= LESS << 20).count()
        };
        assert!(behind(&host) >= 150, "{}", behind(&host));
        Op::Shrink(LESS).ask(&host, &node).await.expect("done");
        assert_eq!(behind(&host), 0);
        let host = host.after_power_cut();
        assert_eq!(behind(&host), 0, "the pool knows of it before the volume is smaller");
    });
}

#[test]
fn standby_disks_count_for_thin_volumes_as_far_as_their_pool_may_use_them() {
    block_on(async {
        for (max_overcommit, most) in [(100, 179), (200, 359)] {
            let host = FakeHost::new();
            let (disk, standby) = (host.add_disk(Bytes::gib(100)), host.add_disk(Bytes::gib(100)));
            host.add_group("vg0", &[disk]);
            let thin_settings = ThinSettings { max_overcommit, ..LARGE_CHUNKS };
            let terms = Terms { thin: Some(thin_settings), reserve: Bytes::gib(1) };
            let standby_disks = vec![NewDisk { path: standby, wipe: false }];
            let plan = pliant::node::PoolPlan { terms, standby_disks, ..plan("fast", &["vg0"]) };
            let node = Setup { settings: settings(), plans: vec![plan] }.start(&host).await;
            let told = largest(&node, Layout::Thin).await;
            assert_eq!(told.get() >> 30, most, "nine tenths of both disks");
            let mib = told.get() >> 20;
            node.ensure(&thin(want(VOLUME, Mode::Block, mib))).await.expect("what was told");
            assert_eq!(largest(&node, Layout::Thin).await, Bytes::ZERO);
            let refused = node.ensure(&thin(want(NEIGHBOUR, Mode::Block, 4))).await;
            assert!(
                matches!(refused, Err(VolumeError::InsufficientCapacity { .. })),
                "{refused:?}"
            );
        }
    });
}
