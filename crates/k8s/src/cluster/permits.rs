//! Requests that permit another node to read what a volume begins with. They stand until they are deleted.

use std::sync::Arc;

use crate::api::{Operation, VolumeRequest};
use crate::cluster::Requests;
use crate::cluster::requests::{SENDS, create_of, key_of, name_of_send};
use crate::volume::VolumeKey;

/// Ends the permission to read what the volume of this key began with. One that cannot be deleted now is deleted later.
pub(super) async fn end_send(requests: &Requests, key: &VolumeKey) {
    let name = name_of_send(key.as_str());
    let Some(request) = requests.watched().get(&name) else { return };
    if let Err(error) = requests.clear(&request).await {
        tracing::warn!(name, %error, "failed to delete a VolumeRequest; it is deleted later");
    }
}

/// Returns the request that permits to read what a volume begins with, if this request creates the volume.
pub fn send_of(requests: &Requests, creates: &VolumeRequest) -> Option<Arc<VolumeRequest>> {
    creates.spec.operation.creates()?;
    requests.watched().get(&name_of_send(key_of(&creates.spec.volume_handle)))
}

/// Returns true if a request permits to read what a volume begins with that is being created.
pub fn is_send_in_use(requests: &Requests, request: &VolumeRequest) -> bool {
    let Operation::Send(send) = &request.spec.operation else { return false };
    let creates = requests.watched().get(&create_of(key_of(&send.target_handle)));
    creates.is_some_and(|creates| !creates.has_ended())
}

/// Returns true if there is a request that permits another node to read something.
pub fn has_sends(requests: &Requests) -> bool {
    requests.watched().has_key(SENDS)
}
