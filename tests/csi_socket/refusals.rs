//! What a caller is refused, and by which code.

use pliant::bytes::Bytes;
use pliant::csi::pb;
use tonic::Code;

use crate::driver::{Driver, code, create, expand, id_of, mounted};

#[tokio::test]
async fn bad_requests_have_their_codes() {
    let mut driver = Driver::start().await;
    let (controller, node) = (&mut driver.controller, &mut driver.node);
    driver.behind.put("db", Bytes::gib(1), vec![]);
    let own = id_of("db").to_string();
    let id = |volume_id: &str| volume_id.to_owned();

    for (name, expected) in [
        ("", Code::InvalidArgument),
        (&*"x".repeat(129), Code::InvalidArgument),
        (&*"x".repeat(128), Code::Ok),
        // The transport refuses it unread.
        (&*"x".repeat(5 << 20), Code::OutOfRange),
    ] {
        assert_eq!(code(controller.create_volume(create(name)).await), expected);
    }
    for (volume_id, expected) in
        [("", Code::InvalidArgument), ("../../x", Code::Ok), ("-f", Code::Ok)]
    {
        let volume_id = id(volume_id);
        let request = pb::DeleteVolumeRequest { volume_id, ..Default::default() };
        assert_eq!(code(controller.delete_volume(request).await), expected);
    }
    for (volume_id, expected) in [("", Code::InvalidArgument), ("../../x", Code::NotFound)] {
        let volume_id = id(volume_id);
        let request = pb::ControllerGetVolumeRequest { volume_id };
        assert_eq!(code(controller.controller_get_volume(request).await), expected);
    }
    for (bytes, limit_bytes, expected) in [
        (0, 0, Code::InvalidArgument),
        (-1, 0, Code::InvalidArgument),
        (2, 1, Code::OutOfRange),
        (1, 2, Code::Ok),
    ] {
        let mut request = expand("db", bytes);
        request.capacity_range.as_mut().unwrap().limit_bytes = limit_bytes;
        assert_eq!(code(controller.controller_expand_volume(request).await), expected);
    }
    for (max_entries, token, expected) in
        [(-1, "", Code::InvalidArgument), (0, "x", Code::Aborted), (0, &*own, Code::Ok)]
    {
        let starting_token = token.to_owned();
        let request = pb::ListVolumesRequest { max_entries, starting_token };
        assert_eq!(code(controller.list_volumes(request).await), expected);
    }
    for (staging, target, expected) in [
        ("/s", "", Code::InvalidArgument),
        ("/s", "/a/../../b", Code::InvalidArgument),
        ("", "/t", Code::FailedPrecondition),
    ] {
        let request = pb::NodePublishVolumeRequest {
            volume_id: own.clone(),
            staging_target_path: staging.to_owned(),
            target_path: target.to_owned(),
            volume_capability: Some(mounted()),
            ..Default::default()
        };
        assert_eq!(code(node.node_publish_volume(request).await), expected);
    }
    for (volume_id, volume_path, expected) in [
        ("", "/p", Code::InvalidArgument),
        (&*own, "", Code::InvalidArgument),
        ("nobody", "/p", Code::NotFound),
    ] {
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: id(volume_id),
            volume_path: volume_path.to_owned(),
            ..Default::default()
        };
        assert_eq!(code(node.node_get_volume_stats(request).await), expected);
    }
    let unserved = pb::ControllerModifyVolumeRequest::default();
    assert_eq!(code(controller.controller_modify_volume(unserved).await), Code::Unimplemented);
    let unserved = pb::ControllerPublishVolumeRequest::default();
    let refused = controller.controller_publish_volume(unserved).await;
    assert_eq!(
        refused.unwrap_err().message(),
        "Controller/ControllerPublishVolume is not supported, and the driver declares no capability for it: \
         call only what it declares"
    );
}
