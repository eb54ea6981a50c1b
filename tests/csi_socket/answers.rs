//! What a caller is told.

use std::collections::BTreeMap;

use pliant::bytes::Bytes;
use pliant::csi::pb;
use pliant::csi::pb::volume_capability::access_mode::Mode::{
    MultiNodeReaderOnly, SingleNodeSingleWriter,
};
use pliant::csi::pb::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume, access_mode,
};
use pliant::volume::{Severity, VolumeCondition};
use tonic::Code;

use crate::driver::{Driver, code, create, described, expand, get, id_of};

#[tokio::test]
async fn the_driver_says_who_it_is() {
    let mut driver = Driver::start().await;
    let info = driver.identity.get_plugin_info(pb::GetPluginInfoRequest {}).await;
    assert_eq!(
        info.unwrap().into_inner(),
        pb::GetPluginInfoResponse {
            name: "lvm.csi.pliant.io".to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: BTreeMap::new(),
        }
    );
    let probe = driver.identity.probe(pb::ProbeRequest {}).await;
    assert_eq!(probe.unwrap().into_inner().ready, Some(true));
}

#[tokio::test]
async fn the_driver_says_what_it_can_do() {
    use pb::controller_service_capability as c;
    use pb::node_service_capability as n;
    use pb::plugin_capability as p;
    let mut driver = Driver::start().await;

    let plugin = driver.identity.get_plugin_capabilities(pb::GetPluginCapabilitiesRequest {});
    let service = |r#type| p::Type::Service(p::Service { r#type });
    let expansion = |r#type| p::Type::VolumeExpansion(p::VolumeExpansion { r#type });
    let said: Vec<_> = plugin.await.unwrap().into_inner().capabilities;
    let said: Vec<_> = said.into_iter().filter_map(|capability| capability.r#type).collect();
    assert_eq!(said, [service(1), service(2), expansion(1), expansion(2)]);

    let controller =
        driver.controller.controller_get_capabilities(pb::ControllerGetCapabilitiesRequest {});
    let said: Vec<_> = controller.await.unwrap().into_inner().capabilities;
    let name = |capability: pb::ControllerServiceCapability| match capability.r#type {
        Some(c::Type::Rpc(rpc)) => rpc.r#type().as_str_name(),
        None => "",
    };
    assert_eq!(
        said.into_iter().map(name).collect::<Vec<_>>(),
        [
            "CREATE_DELETE_VOLUME",
            "LIST_VOLUMES",
            "CREATE_DELETE_SNAPSHOT",
            "LIST_SNAPSHOTS",
            "GET_SNAPSHOT",
            "CLONE_VOLUME",
            "GET_CAPACITY",
            "EXPAND_VOLUME",
            "GET_VOLUME",
            "VOLUME_CONDITION",
            "SINGLE_NODE_MULTI_WRITER",
            "GET_VOLUME_HEALTH",
            "LIST_VOLUME_HEALTH",
        ]
    );

    let node = driver.node.node_get_capabilities(pb::NodeGetCapabilitiesRequest {});
    let said: Vec<_> = node.await.unwrap().into_inner().capabilities;
    let name = |capability: pb::NodeServiceCapability| match capability.r#type {
        Some(n::Type::Rpc(rpc)) => rpc.r#type().as_str_name(),
        None => "",
    };
    assert_eq!(
        said.into_iter().map(name).collect::<Vec<_>>(),
        [
            "STAGE_UNSTAGE_VOLUME",
            "EXPAND_VOLUME",
            "GET_VOLUME_STATS",
            "VOLUME_CONDITION",
            "GET_VOLUME_HEALTH",
            "GET_STORAGE_HEALTH",
            "SINGLE_NODE_MULTI_WRITER",
        ]
    );
}

#[tokio::test]
async fn a_volume_is_made_found_grown_and_removed() {
    let mut driver = Driver::start().await;
    let client = &mut driver.controller;

    for _again in 0..2 {
        let made = client.create_volume(create("db")).await.unwrap().into_inner();
        assert_eq!(made.volume, Some(described("db", 1 << 30)));
    }
    for _again in 0..2 {
        let grown = client.controller_expand_volume(expand("db", 5 << 30)).await;
        let expected = pb::ControllerExpandVolumeResponse {
            capacity_bytes: 5 << 30,
            node_expansion_required: false,
        };
        assert_eq!(grown.unwrap().into_inner(), expected);
    }
    let found = client.controller_get_volume(get("db")).await.unwrap().into_inner();
    let expected = pb::ControllerGetVolumeResponse {
        volume: Some(described("db", 5 << 30)),
        status: Some(pb::controller_get_volume_response::VolumeStatus {
            published_node_ids: vec![],
            volume_condition: Some(pb::VolumeCondition {
                abnormal: false,
                message: "healthy".to_owned(),
            }),
        }),
    };
    assert_eq!(found, expected);
    for _again in 0..2 {
        let request =
            pb::DeleteVolumeRequest { volume_id: id_of("db").to_string(), ..Default::default() };
        assert_eq!(code(client.delete_volume(request).await), Code::Ok);
    }
    assert_eq!(code(client.controller_get_volume(get("db")).await), Code::NotFound);
}

#[tokio::test]
async fn capacity_is_told_with_its_bounds() {
    let mut driver = Driver::start().await;
    let capacity = driver.controller.get_capacity(pb::GetCapacityRequest::default()).await;
    let expected = pb::GetCapacityResponse {
        available_capacity: 9 << 30,
        maximum_volume_size: Some(5 << 30),
        minimum_volume_size: Some(4 << 20),
    };
    assert_eq!(capacity.unwrap().into_inner(), expected);
}

#[tokio::test]
async fn capabilities_are_confirmed_or_objected_to() {
    let mut driver = Driver::start().await;
    driver.behind.put("db", Bytes::gib(1), vec![]);
    let request = |access_type, mode: access_mode::Mode| pb::ValidateVolumeCapabilitiesRequest {
        volume_id: id_of("db").to_string(),
        volume_capabilities: vec![pb::VolumeCapability {
            access_type: Some(access_type),
            access_mode: Some(AccessMode { mode: mode.into() }),
        }],
        ..Default::default()
    };
    let mount =
        |fs: &str| AccessType::Mount(MountVolume { fs_type: fs.to_owned(), ..Default::default() });
    let block = AccessType::Block(BlockVolume::default());
    for (access, mode, objection) in [
        (mount(""), SingleNodeSingleWriter, ""),
        (mount("ext4"), SingleNodeSingleWriter, ""),
        (mount("xfs"), SingleNodeSingleWriter, "the volume was created as ext4"),
        (block, SingleNodeSingleWriter, "the volume was created as ext4"),
        (
            mount(""),
            MultiNodeReaderOnly,
            "volume_capabilities[0].access_mode: MULTI_NODE_READER_ONLY",
        ),
    ] {
        let request = request(access, mode);
        let asked = request.volume_capabilities.clone();
        let answer = driver.controller.validate_volume_capabilities(request).await;
        let answer = answer.unwrap().into_inner();
        assert!(answer.message.starts_with(objection), "{}", answer.message);
        let confirmed = answer.confirmed.map(|confirmed| confirmed.volume_capabilities);
        assert_eq!(confirmed, objection.is_empty().then_some(asked));
    }
    for (pool, objection) in [("fast", ""), ("slow", "the volume is in pool fast, not slow")] {
        let named = BTreeMap::from([("pool".to_owned(), pool.to_owned())]);
        let bare = request(mount(""), SingleNodeSingleWriter);
        for request in [
            pb::ValidateVolumeCapabilitiesRequest { volume_context: named.clone(), ..bare.clone() },
            pb::ValidateVolumeCapabilitiesRequest { parameters: named.clone(), ..bare },
        ] {
            let answer = driver.controller.validate_volume_capabilities(request).await;
            let answer = answer.unwrap().into_inner();
            assert_eq!((answer.confirmed.is_some(), &*answer.message), (pool == "fast", objection));
        }
    }
}

/// Walk through all pages of two, and tell the ids and the sizes of the pages.
async fn walk(driver: &mut Driver, between: fn(&Driver, &str)) -> (Vec<String>, Vec<usize>) {
    let (mut listed, mut sizes, mut starting_token) = (vec![], vec![], String::new());
    loop {
        let request = pb::ListVolumesRequest { max_entries: 2, starting_token };
        let page = driver.controller.list_volumes(request).await;
        let page = page.unwrap().into_inner();
        sizes.push(page.entries.len());
        let volumes = page.entries.into_iter().filter_map(|entry| entry.volume);
        listed.extend(volumes.map(|volume| volume.volume_id));
        starting_token = page.next_token;
        if starting_token.is_empty() {
            return (listed, sizes);
        }
        between(driver, &starting_token);
    }
}

#[tokio::test]
async fn lists_come_in_pages() {
    let mut driver = Driver::start().await;
    let names = ["a", "b", "c", "d", "e"];
    let mut ids = names.map(|name| id_of(name).to_string()).to_vec();
    ids.sort();
    let removed: fn(&Driver, &str) = |driver, last| {
        let mut volumes = driver.behind.volumes.lock().unwrap();
        volumes.remove(&last.parse().unwrap());
    };
    // A page is right also if the volume that ended the one before it has gone.
    for between in [|_: &Driver, _: &str| {}, removed] {
        for name in names {
            driver.behind.put(name, Bytes::gib(1), vec![]);
        }
        assert_eq!(walk(&mut driver, between).await, (ids.clone(), vec![2, 2, 1]));
    }
}

#[tokio::test]
async fn what_ails_is_told() {
    let mut driver = Driver::start().await;
    let ailment = |severity, message: &str| VolumeCondition {
        severity,
        reason: "DiskMissing",
        message: message.to_owned(),
    };
    let ailments = vec![
        ailment(Severity::Inaccessible, "disk sdb is missing"),
        ailment(Severity::Inaccessible, "disk sdc is missing"),
        ailment(Severity::DataLoss, "sector 7 is lost"),
    ];
    driver.behind.put("ill", Bytes::gib(1), ailments);
    driver.behind.put("well", Bytes::gib(1), vec![]);
    let entry =
        |status: pb::VolumeHealthErrorType, message: &str| pb::volume_health::VolumeHealthEntry {
            status: status.into(),
            reason: "DiskMissing".to_owned(),
            message: message.to_owned(),
        };
    let health = pb::VolumeHealth {
        volume_id: id_of("ill").to_string(),
        health_statuses: vec![
            entry(pb::VolumeHealthErrorType::Inaccessible, "disk sdb is missing"),
            entry(pb::VolumeHealthErrorType::DataLoss, "sector 7 is lost"),
        ],
    };
    let all = pb::ControllerListVolumeHealthRequest::default();
    let all = driver.controller.controller_list_volume_health(all).await;
    assert_eq!(all.unwrap().into_inner().entries, std::slice::from_ref(&health));
    let one = pb::ControllerGetVolumeHealthRequest {
        volume_id: id_of("ill").to_string(),
        ..Default::default()
    };
    let one = driver.controller.controller_get_volume_health(one).await;
    assert_eq!(one.unwrap().into_inner().volume_health, Some(health));

    let ill = driver.controller.controller_get_volume(get("ill")).await;
    let status = pb::controller_get_volume_response::VolumeStatus {
        published_node_ids: vec!["alpha".to_owned()],
        volume_condition: Some(pb::VolumeCondition {
            abnormal: true,
            message: "disk sdb is missing; disk sdc is missing; sector 7 is lost".to_owned(),
        }),
    };
    assert_eq!(ill.unwrap().into_inner().status, Some(status));
}
