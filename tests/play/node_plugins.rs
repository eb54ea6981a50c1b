//! Who plays the node plugins of nodes: they tell of their volumes, fence them, and look who has them open.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use kube::ResourceExt;
use pliant::api::{
    FenceStatus, NodeStorage, Operation, Quantity, VolumeOnNode, VolumeRequest, VolumeRequestStatus,
};
use pliant::bytes::Bytes;
use pliant::testing::FakeApi;
use pliant::volume::{DRIVER, Fence, NodeKey, VolumeId};
use serde_json::json;

use super::{Play, Shrinks, fill_pods, is_running, object, volume_in, volume_of, volume_read};

/// Do one thing, if there is one to do.
pub fn step(api: &FakeApi, play: &mut Play) -> bool {
    !play.are_node_plugins_away && (publish(api, play) || answer(api, play))
}

/// Whether a copy has a volume mounted.
pub fn is_read(api: &FakeApi, volume: &str) -> bool {
    let reads = |pod: &Pod| is_running(pod) && volume_read(api, pod).as_deref() == Some(volume);
    fill_pods(api).iter().any(reads)
}

/// The nodes tell of their volumes; whether that is news.
fn publish(api: &FakeApi, play: &Play) -> bool {
    let nodes = api.list::<Node>();
    nodes.iter().fold(false, |is_news, node| is_news | publish_of(api, play, &node.name_any()))
}

fn publish_of(api: &FakeApi, play: &Play, name: &str) -> bool {
    let key = NodeKey::of(name);
    let mut node: NodeStorage = api.get(name).unwrap_or_else(|| {
        object(json!({
            "apiVersion": "pliant.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": name},
            "spec": {"nodeHash": key.as_str()}, "status": {},
        }))
    });
    let is_here = |volume: &VolumeOnNode| {
        volume.volume_handle.parse::<VolumeId>().is_ok_and(|id| *id.node() == key)
    };
    let told = node.status.get_or_insert_default();
    let mut volumes = on_nodes(api, play);
    volumes.retain(is_here);
    let is_news = told.volumes != volumes;
    if is_news {
        told.volumes = volumes;
        api.put(&node);
    }
    is_news
}

/// The volumes of ours, as their nodes tell of them: also those that no PersistentVolume names.
fn on_nodes(api: &FakeApi, play: &Play) -> Vec<VolumeOnNode> {
    let mut all = play.volumes.clone();
    for pv in api.list::<PersistentVolume>() {
        let csi = pv.spec.as_ref().and_then(|spec| spec.csi.clone());
        let csi = csi.filter(|csi| csi.driver == DRIVER);
        all.extend(csi.map(|csi| (volume_in(&pv), csi.volume_handle)));
    }
    all.iter().map(|(name, handle)| volume(name, handle, play)).collect()
}

fn volume(name: &str, handle: &str, play: &Play) -> VolumeOnNode {
    let fence = play.fences.get(name).map(|fence| FenceStatus::from(*fence));
    let size = play.sizes.get(name).copied().unwrap_or(Bytes::gib(4));
    let (volume_mode, fs_type) = match play.file_system {
        Some("block") => ("Block", None),
        kind => ("Filesystem", Some(kind.unwrap_or("ext4"))),
    };
    object(json!({
        "volumeHandle": handle, "name": name, "pool": "p", "size": Quantity(size),
        "requestedSize": "4Gi", "volumeMode": volume_mode, "fsType": fs_type, "state": "Ready",
        "fence": fence, "maxSize": play.limits.get(name).map(|limit| Quantity(*limit)),
    }))
}

/// The node does what it is asked.
fn answer(api: &FakeApi, play: &mut Play) -> bool {
    let is_left = |one: &VolumeRequest| {
        play.shrinks == Shrinks::Left && matches!(one.spec.operation, Operation::Shrink(_))
    };
    let asked = api.list::<VolumeRequest>().into_iter();
    let mut asked = asked.filter(|one| !one.has_ended() && !is_left(one));
    let Some(mut request) = asked.next() else { return false };
    let volumes = on_nodes(api, play);
    let there =
        volumes.into_iter().find(|volume| volume.volume_handle == request.spec.volume_handle);
    let done = match (&request.spec.operation, there) {
        (Operation::Fence(fence), Some(before)) => {
            let now = play.fences.entry(before.name.clone()).or_default();
            let fence = Fence::from(fence);
            if fence.replaces(now) {
                *now = fence;
                look(api, play, Some(&volume(&before.name, &before.volume_handle, play)))
            } else {
                failed("PreconditionFailed", "it came before")
            }
        }
        (Operation::Shrink(wish), Some(volume)) => shrink(api, play, &volume, wish.size),
        (Operation::Unpin(_), Some(volume)) => release(play, &volume.name),
        (Operation::Inspect(_), volume) => look(api, play, volume.as_ref()),
        _ => failed("NotFound", "there is no such volume"),
    };
    publish(api, play);
    let mut status: VolumeRequestStatus = object(done);
    status.observed_generation = request.metadata.generation.unwrap_or_default();
    request.status = Some(status);
    api.put(&request);
    true
}

/// The node looks at a volume.
fn look(api: &FakeApi, play: &Play, volume: Option<&VolumeOnNode>) -> serde_json::Value {
    let open = volume.map(|volume| open_count(api, play, &volume.name));
    let seen = json!({"volume": volume, "mounted": false, "openCount": open});
    json!({"phase": "Succeeded", "inspection": seen})
}

/// The node shrinks a volume: ext4 only while nobody has it mounted.
fn shrink(
    api: &FakeApi,
    play: &mut Play,
    volume: &VolumeOnNode,
    to: Quantity,
) -> serde_json::Value {
    if volume.size.0 <= to.0 {
        // So small already, and kept so.
        play.limits.insert(volume.name.clone(), to.0);
        return json!({"phase": "Resized", "size": volume.size});
    }
    if play.is_read_only {
        return failed("InUse", "it is mounted read-only");
    }
    if volume.format() == "ext4" && open_count(api, play, &volume.name) > 0 {
        return failed("InUse", "it cannot shrink while it is mounted");
    }
    if play.used > to.0 {
        return failed("SizeOutOfRange", "its content does not fit");
    }
    let before = play.limits.insert(volume.name.clone(), to.0);
    if play.shrinks == Shrinks::Slow && before.is_none() {
        play.sizes.insert(volume.name.clone(), volume.size.0);
        return failed("InProgress", "what it gives back is being wiped");
    }
    play.sizes.insert(volume.name.clone(), to.0);
    json!({"phase": "Resized", "size": to})
}

/// The node lets a volume grow, unless it had to bring a shrink to its end first.
fn release(play: &mut Play, volume: &str) -> serde_json::Value {
    let (limit, size) = (play.limits.get(volume).copied(), play.sizes.get_mut(volume));
    if let (Some(limit), Some(size)) = (limit, size.filter(|size| Some(**size) > limit)) {
        *size = limit;
        return failed("InProgress", "it has come to its end only now");
    }
    play.limits.remove(volume);
    json!({"phase": "Succeeded"})
}

fn failed(reason: &str, message: &str) -> serde_json::Value {
    json!({"phase": "Failed", "error": {"reason": reason, "message": message}})
}

fn open_count(api: &FakeApi, play: &Play, volume: &str) -> usize {
    let runs = |pod: &&Pod| {
        let is_ours = pod.labels().contains_key("pliant.io/populator");
        !is_ours && is_running(pod) && volume_of(api, pod).as_deref() == Some(volume)
    };
    let running = api.list::<Pod>().iter().filter(runs).count();
    running + usize::from(is_read(api, volume)) + usize::from(play.held.contains(volume))
}
