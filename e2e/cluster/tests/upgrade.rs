//! The chart is upgraded, with other values, and back again, while claims live. No other test may run.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::calls::{install, must};
use crate::claim::{capacity, told, told_while_it_grows};
use crate::expansion::{CHECK, WRITER};
use crate::world::{World, run};

/// Make, grow and remove claims until the change is through; how many there were.
async fn lives_during(world: &World, change: &str, changed: impl Future<Output = ()>) -> usize {
    let mut changed = std::pin::pin!(changed);
    let mut lives = 0;
    loop {
        let claim = format!("{change}-{lives}");
        let life = async {
            world.claim(&claim, "pliant", "32Mi", "Filesystem").await;
            world.pod(&claim, &claim, "sleep 9999", json!({})).await;
            grow(world, &claim, "64Mi").await;
            world.remove_pod(&claim).await;
            world.remove_claim(&claim).await;
        };
        let mut life = std::pin::pin!(life);
        let through = tokio::select! {
            () = &mut life => false,
            () = &mut changed => true,
        };
        if through {
            life.await;
        }
        lives += 1;
        if through {
            return lives;
        }
    }
}

/// Take the last upgrade of the chart back.
pub async fn roll_back() {
    must("helm", &["rollback", "pliant", "-n", "pliant-system"]).await;
    must("e2e/cluster/rolled-out", &[]).await;
}

async fn grow(world: &World, claim: &str, size: &str) -> PersistentVolumeClaim {
    world.resize(claim, size).await.unwrap();
    world
        .until::<PersistentVolumeClaim>(claim, "has its new size", |claim| capacity(claim) == size)
        .await
}

/// In two steps the kubelet grows the file system, and the claim tells so; in one step nobody waits for
/// it. Both ways what is under way when the node plugins and controllers are replaced comes to its end.
#[test]
fn an_upgrade_under_load_loses_nothing_and_can_be_taken_back() {
    run("upgrade", |world| async move {
        world.claim("data", "pliant", "128Mi", "Filesystem").await;
        world.pod("writer", "data", WRITER, json!({})).await;

        let lives =
            lives_during(&world, "upgrade", install(&["--set", "node.filesystemExpansion=node"]))
                .await;
        eprintln!("{lives} claims lived during the upgrade");
        let seen = told_while_it_grows(&world, "data", "192Mi").await;
        let expected = [
            told("128Mi", "", &[]),
            told("128Mi", "ControllerResizeInProgress", &["Resizing"]),
            told("128Mi", "NodeResizePending", &["Resizing", "FileSystemResizePending"]),
            told("128Mi", "NodeResizeInProgress", &["Resizing", "FileSystemResizePending"]),
            told("192Mi", "", &[]),
        ];
        assert_eq!(seen, expected);
        for reason in ["Resizing", "FileSystemResizeRequired", "FileSystemResizeSuccessful"] {
            world.until_told("data", reason, 1).await;
        }

        let lives = lives_during(&world, "rollback", roll_back()).await;
        eprintln!("{lives} claims lived on the way back");
        grow(&world, "data", "256Mi").await;
        world.until_told("data", "VolumeResizeSuccessful", 1).await;
        assert_eq!(world.exec("writer", CHECK).await, "0", "what was written has changed");
    });
}

/// Without the driver pods go on; with it again their claims grow as before.
#[test]
fn the_chart_may_go_and_come_back() {
    run("uninstall", |world| async move {
        world.claim("data", "pliant", "128Mi", "Filesystem").await;
        world.pod("writer", "data", WRITER, json!({})).await;

        must("helm", &["uninstall", "pliant", "-n", "pliant-system", "--wait"]).await;
        assert_eq!(world.exec("writer", CHECK).await, "0", "what was written has changed");

        install(&[]).await;
        grow(&world, "data", "192Mi").await;
        assert_eq!(world.exec("writer", CHECK).await, "0", "what was written has changed");
    });
}
