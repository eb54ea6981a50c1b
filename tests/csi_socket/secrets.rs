//! Nothing secret is ever told.

use std::collections::BTreeMap;

use pliant::bytes::Bytes;
use pliant::csi::pb;

use crate::driver::{Driver, id_of, mounted};
use crate::log::{lines_of, log};

const CANARY: &str = "canary-5f1c0d";

/// Send a request with a secret to a method, once as it is and once with nothing else in it.
macro_rules! send_secret {
    ($client:expr, $method:ident, $message:ident { $($field:ident: $value:expr),* }) => {{
        let bare = pb::$message { secrets: secrets(), ..Default::default() };
        let whole = pb::$message { $($field: $value,)* ..bare.clone() };
        for request in [whole, bare] {
            if let Err(status) = $client.$method(request).await {
                assert!(!format!("{status:?}").contains(CANARY));
            }
        }
    }};
}

fn secrets() -> BTreeMap<String, String> {
    BTreeMap::from([(format!("{CANARY}-key"), CANARY.to_owned())])
}

fn no_canary_in_the_log() {
    let text = log().text();
    let hits: Vec<&str> = text.lines().filter(|line| line.contains(CANARY)).collect();
    assert_eq!(hits, Vec::<&str>::new());
}

#[tokio::test]
async fn no_secret_of_the_controller_is_logged() {
    log();
    let mut driver = Driver::start().await;
    driver.behind.put("kept", Bytes::gib(1), vec![]);
    let to = &mut driver.controller;
    let id = || id_of("kept").to_string();
    let range = Some(pb::CapacityRange { required_bytes: 1, limit_bytes: 0 });
    let (name, one) = ("canary".to_owned(), || vec![mounted()]);

    send_secret!(to, create_volume, CreateVolumeRequest { name: name, volume_capabilities: one() });
    send_secret!(
        to,
        controller_expand_volume,
        ControllerExpandVolumeRequest { volume_id: id(), capacity_range: range }
    );
    send_secret!(
        to,
        validate_volume_capabilities,
        ValidateVolumeCapabilitiesRequest { volume_id: id(), volume_capabilities: one() }
    );
    send_secret!(
        to,
        controller_list_volume_health,
        ControllerListVolumeHealthRequest { max_entries: 1 }
    );
    send_secret!(
        to,
        controller_get_volume_health,
        ControllerGetVolumeHealthRequest { volume_id: id() }
    );
    send_secret!(to, delete_volume, DeleteVolumeRequest { volume_id: id() });
    send_secret!(to, controller_publish_volume, ControllerPublishVolumeRequest { volume_id: id() });
    send_secret!(
        to,
        controller_unpublish_volume,
        ControllerUnpublishVolumeRequest { volume_id: id() }
    );
    send_secret!(to, controller_modify_volume, ControllerModifyVolumeRequest { volume_id: id() });
    send_secret!(to, create_snapshot, CreateSnapshotRequest { source_volume_id: id() });
    send_secret!(to, delete_snapshot, DeleteSnapshotRequest { snapshot_id: id() });
    send_secret!(to, list_snapshots, ListSnapshotsRequest { source_volume_id: id() });
    send_secret!(to, get_snapshot, GetSnapshotRequest { snapshot_id: id() });

    assert_eq!(lines_of("canary").len(), 1, "the log is captured");
    no_canary_in_the_log();
}

#[tokio::test]
async fn no_secret_of_the_node_is_logged() {
    log();
    let mut driver = Driver::start().await;
    let to = &mut driver.node;
    let id = || id_of("canary of the node").to_string();
    let (path, one) = (|| "relative".to_owned(), || Some(mounted()));

    send_secret!(
        to,
        node_stage_volume,
        NodeStageVolumeRequest {
            volume_id: id(),
            staging_target_path: path(),
            volume_capability: one()
        }
    );
    send_secret!(
        to,
        node_publish_volume,
        NodePublishVolumeRequest { volume_id: id(), target_path: path(), volume_capability: one() }
    );
    send_secret!(
        to,
        node_expand_volume,
        NodeExpandVolumeRequest { volume_id: id(), volume_path: path() }
    );
    let only = pb::NodeGetStorageHealthRequest { secrets: secrets() };
    let answer = format!("{:?}", to.node_get_storage_health(only).await);
    assert!(!answer.contains(CANARY));

    assert_eq!(lines_of(&id()).len(), 3, "the log is captured");
    no_canary_in_the_log();
}
