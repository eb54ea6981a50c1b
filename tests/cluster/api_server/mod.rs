//! The server in memory, driven by a real client.

use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;

use pliant::api::{
    Expand, Operation, Phase, Quantity, VolumeRequest, VolumeRequestSpec, VolumeRequestStatus,
};
use pliant::bytes::Bytes;
use pliant::testing::{FakeApi, fake_api};

mod apply;
mod clients;
mod faults;
mod guards;
mod reads;
mod watches;
mod writes;

fn request(name: &str, node: &str) -> VolumeRequest {
    let volume = "aaaaaaaa-bbbbbbbbbbbbbbbbbbbbbbbbbb".to_owned();
    let spec =
        VolumeRequestSpec { node_name: node.to_owned(), volume_handle: volume, operation: grow(1) };
    VolumeRequest::new(name, spec)
}

fn grow(gib: u64) -> Operation {
    Operation::Expand(Expand {
        min_size: Quantity(Bytes::gib(gib)),
        max_size: None,
        volume_mode: None,
    })
}

fn running() -> VolumeRequestStatus {
    VolumeRequestStatus { phase: Phase::Running, ..VolumeRequestStatus::default() }
}

fn requests(api: &FakeApi) -> Api<VolumeRequest> {
    Api::all(api.client())
}

fn version(object: &VolumeRequest) -> String {
    object.metadata.resource_version.clone().unwrap()
}

async fn create(api: &FakeApi, name: &str, node: &str) -> VolumeRequest {
    requests(api).create(&PostParams::default(), &request(name, node)).await.unwrap()
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// The code and the reason of a refusal.
fn refusal<T>(result: kube::Result<T>) -> (u16, String) {
    match result.err().expect("a refusal") {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

fn refused(code: u16, reason: &str) -> (u16, String) {
    (code, reason.to_owned())
}
