//! A claim is edited, and its volume and file system follow.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::claim::{capacity, conditions, resize, told, told_while_it_grows};
use crate::world::{World, run};

/// Writes numbered blocks with their checksums for ever, some a second, and syncs each.
pub const WRITER: &str = "i=0; turn=0; echo 0 >/data/turn; while true; do i=$((i+1)); \
     dd if=/dev/urandom of=/data/$i bs=64k count=1 2>/dev/null; sync /data/$i; \
     (cd /data && md5sum $i) >>/data/sums; sync /data/sums; \
     [ $i -lt 400 ] || { echo $((turn+1)) >/data/turn; rm -f /data/[0-9]* /data/sums; i=0; \
     turn=$((turn+2)); echo $turn >/data/turn; }; sleep 0.3; done";
/// All that was written is as it was; the last line may be under way. A turn that is odd, or another one afterwards,
/// means that the writer began anew meanwhile: it had removed what was compared.
pub const CHECK: &str = "cd /data && while turn=$(cat turn); \
     bad=$(head -n -1 sums 2>/dev/null | md5sum -c - 2>/dev/null | grep -vc OK$); \
     [ $((turn % 2)) = 1 ] || [ \"$turn\" != \"$(cat turn)\" ]; do :; done; echo $bad";
/// The size of the file system in KiB.
pub const SIZE: &str = "df -k /data | tail -n 1 | awk '{print $2}'";

async fn grow_under_a_writer(world: World, fs: &str) {
    let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": fs})).await;
    world.claim("data", &class, "320Mi", "Filesystem").await;
    world.pod("writer", "data", WRITER, json!({})).await;
    assert_eq!(world.exec("writer", "awk '$2 == \"/data\" {print $3}' /proc/mounts").await, fs);
    let before: u64 = world.exec("writer", SIZE).await.parse().unwrap();
    world.resize("data", "512Mi").await.unwrap();
    let grown = world
        .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
            capacity(claim) == "512Mi"
        })
        .await;
    // In one step: the claim is done when the file system is, and nobody waits for the kubelet.
    assert_eq!((conditions(&grown), resize(&grown)), (vec![], None));
    let after: u64 = world.exec("writer", SIZE).await.parse().unwrap();
    assert!(after > before + 150 * 1024, "{fs}: {before} KiB became {after} KiB");
    assert_eq!(world.exec("writer", CHECK).await, "0", "{fs}: what was written has changed");
    for reason in ["Resizing", "VolumeResizeSuccessful"] {
        world.until_told("data", reason, 1).await;
    }
    let told = world.events("data").await;
    assert!(!told.iter().any(|(reason, _)| reason == "FileSystemResizeRequired"), "{told:?}");
}

#[test]
fn ext4_grows_under_a_writer() {
    run("ext4_grows_under_a_writer", |world| grow_under_a_writer(world, "ext4"));
}

#[test]
fn xfs_grows_under_a_writer() {
    run("xfs_grows_under_a_writer", |world| grow_under_a_writer(world, "xfs"));
}

#[test]
fn btrfs_grows_under_a_writer() {
    run("btrfs_grows_under_a_writer", |world| grow_under_a_writer(world, "btrfs"));
}

#[test]
fn a_raw_device_grows_under_its_pod() {
    run("a_raw_device_grows_under_its_pod", |world| async move {
        world.claim("data", "pliant", "64Mi", "Block").await;
        let script = "dd if=/dev/urandom of=/dev/data bs=1M count=8; md5sum /dev/data; sleep 9999";
        world.pod("app", "data", script, json!({})).await;
        let sum = "dd if=/dev/data bs=1M count=8 2>/dev/null | md5sum";
        let before = world.exec("app", sum).await;
        world.resize("data", "128Mi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
                capacity(claim) == "128Mi"
            })
            .await;
        assert_eq!(world.exec("app", "blockdev --getsize64 /dev/data").await, "134217728");
        assert_eq!(world.exec("app", sum).await, before);
    });
}

/// Without a pod the volume is grown where it lies, and the next pod finds data and room.
#[test]
fn a_volume_grows_while_nobody_uses_it() {
    run("a_volume_grows_while_nobody_uses_it", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"})).await;
        world.claim("data", &class, "320Mi", "Filesystem").await;
        world.pod("first", "data", "echo kept >/data/file; sync; sleep 9999", json!({})).await;
        world.remove_pod("first").await;
        world.resize("data", "448Mi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
                capacity(claim) == "448Mi"
            })
            .await;
        world.pod("second", "data", "sleep 9999", json!({})).await;
        assert_eq!(world.exec("second", "cat /data/file").await, "kept");
        let size: u64 = world.exec("second", SIZE).await.parse().unwrap();
        assert!(size > 350 * 1024, "{size} KiB");
    });
}

/// What no pod has used yet has no file system: the volume grows, the claim says that its file system is to
/// follow, and the first pod finds all of it.
#[test]
fn a_volume_grows_that_was_never_used() {
    run("a_volume_grows_that_was_never_used", |world| async move {
        for fs in ["ext4", "xfs", "btrfs"] {
            let class = world
                .class_that_binds_at_once(json!({"pool": "fast", "csi.storage.k8s.io/fstype": fs}))
                .await;
            world.claim(fs, &class, "320Mi", "Filesystem").await;
            let is = |size| move |claim: &PersistentVolumeClaim| capacity(claim) == size;
            world.until::<PersistentVolumeClaim>(fs, "is bound", is("320Mi")).await;
            world.resize(fs, "448Mi").await.unwrap();
            // Its file system is made as large as that when it is first used: nothing is left to a node.
            world.until::<PersistentVolumeClaim>(fs, "has its new size", is("448Mi")).await;
            world.pod(&format!("app-{fs}"), fs, "sleep 9999", json!({})).await;
            let size: u64 = world.exec(&format!("app-{fs}"), SIZE).await.parse().unwrap();
            assert!(size > 350 * 1024, "{fs}: {size} KiB");
        }
    });
}

/// In one step nobody waits for the kubelet: the claim has its size as soon as the volume has it.
#[test]
fn a_claim_tells_of_its_growth_as_the_standard_has_it() {
    run("a_claim_tells_of_its_growth", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        world.pod("app", "data", "sleep 9999", json!({})).await;
        let seen = told_while_it_grows(&world, "data", "96Mi").await;
        let expected = [
            told("64Mi", "", &[]),
            told("64Mi", "ControllerResizeInProgress", &["Resizing"]),
            told("96Mi", "", &[]),
        ];
        assert_eq!(seen, expected);
    });
}

/// Two edits in a row: the newest counts.
#[test]
fn the_newest_of_two_edits_wins() {
    run("the_newest_of_two_edits_wins", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        world.pod("app", "data", "sleep 9999", json!({})).await;
        world.resize("data", "96Mi").await.unwrap();
        world.resize("data", "160Mi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its newest size", |claim| {
                capacity(claim) == "160Mi"
            })
            .await;
        let size: u64 = world.exec("app", SIZE).await.parse().unwrap();
        assert!(size > 130 * 1024, "{size} KiB");
    });
}

/// A claim that is not bound yet has no size to be edited; it is refused, and provisioned as it was.
#[test]
fn a_pending_claim_keeps_its_size() {
    run("a_pending_claim_keeps_its_size", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        let refused = world.resize("data", "96Mi").await.unwrap_err().to_string();
        assert!(refused.contains("bound"), "{refused}");
        world.pod("app", "data", "sleep 9999", json!({})).await;
        assert_eq!(capacity(&world.get_claim("data").await), "64Mi");
    });
}

/// No room: told with numbers, and a lower wish is taken at once. A quota is charged with what is wished
/// for, and then no longer with what could not be had.
#[test]
fn a_wish_beyond_the_room_is_told_and_can_be_lowered() {
    run("a_wish_beyond_the_room_is_told_and_can_be_lowered", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        world.pod("app", "data", "sleep 9999", json!({})).await;
        world.quota("1Ti").await;
        world.resize("data", "900Gi").await.unwrap();
        let refused = world
            .until::<PersistentVolumeClaim>("data", "says that it can not grow so far", |claim| {
                resize(claim).as_deref() == Some("ControllerResizeInfeasible")
            })
            .await;
        let said: Vec<String> = refused
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .filter_map(|condition| condition.message.clone())
            .collect();
        let said = said.join("\n");
        for words in ["insufficient capacity in pool fast", "900 GiB", "is possible"] {
            assert!(said.contains(words), "{words:?} is not in {said}");
        }
        world.until_charged("900Gi").await;
        world.resize("data", "96Mi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has the lower size", |claim| {
                capacity(claim) == "96Mi"
            })
            .await;
        world.until_charged("96Mi").await;
    });
}

/// A quota counts the wish at the edit: beyond it the edit itself is refused, within it the claim grows.
#[test]
fn a_quota_bounds_the_edit() {
    run("a_quota_bounds_the_edit", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        world.pod("app", "data", "sleep 9999", json!({})).await;
        world.quota("128Mi").await;
        let refused = world.resize("data", "160Mi").await.unwrap_err().to_string();
        assert!(refused.contains("exceeded quota"), "{refused}");
        world.resize("data", "128Mi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
                capacity(claim) == "128Mi"
            })
            .await;
    });
}

/// A pod that may only read sees the new size too.
#[test]
fn a_volume_grows_under_a_pod_that_only_reads() {
    run("a_volume_grows_under_a_pod_that_only_reads", |world| async move {
        world.claim("data", "pliant", "64Mi", "Filesystem").await;
        world.pod("first", "data", "echo kept >/data/file; sync; sleep 9999", json!({})).await;
        world.remove_pod("first").await;
        let claim = json!({"claimName": "data", "readOnly": true});
        let volumes = json!([{"name": "data", "persistentVolumeClaim": claim}]);
        world.pod("reader", "data", "sleep 9999", json!({"volumes": volumes})).await;
        world.resize("data", "128Mi").await.unwrap();
        world
            .until::<PersistentVolumeClaim>("data", "has its new size", |claim| {
                capacity(claim) == "128Mi"
            })
            .await;
        let size: u64 = world.exec("reader", SIZE).await.parse().unwrap();
        assert!(size > 100 * 1024, "{size} KiB");
        assert_eq!(world.exec("reader", "cat /data/file").await, "kept");
        let touched = world.exec("reader", "touch /data/x 2>&1 || true").await;
        assert!(touched.contains("Read-only"), "{touched}");
    });
}

/// A class that does not allow it.
#[test]
fn a_class_without_expansion_refuses_the_edit() {
    run("a_class_without_expansion_refuses_the_edit", |world| async move {
        let class = world.class_without_expansion().await;
        world.claim("data", &class, "64Mi", "Filesystem").await;
        world.pod("app", "data", "sleep 9999", json!({})).await;
        let refused = world.resize("data", "96Mi").await.unwrap_err().to_string();
        assert!(
            refused.contains("allowVolumeExpansion") || refused.contains("resize"),
            "{refused}"
        );
    });
}
