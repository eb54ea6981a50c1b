//! Any bytes as an object of ours in the API server: shared by the fuzz target and by the test that runs its corpus.

use std::fmt::Debug;

use kube::Resource;
use pliant::api::{
    ArchivePopulator, NodeStorage, PvcAutoscaler, PvcSourcePopulator, StoragePool, VolumeRequest,
    is_understood,
};
use pliant::cluster::Guarded;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Decode bytes as an object of the kind that the first of them picks; says whether it was taken.
pub fn records(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else {
        return false;
    };
    match kind % 6 {
        0 => record::<ArchivePopulator>(bytes),
        1 => record::<NodeStorage>(bytes),
        2 => record::<StoragePool>(bytes),
        3 => record::<PvcAutoscaler>(bytes),
        4 => record::<PvcSourcePopulator>(bytes),
        _ => record::<VolumeRequest>(bytes),
    }
}

/// Whatever JSON it is, the list that it stands in can be read; what was decoded and understood is the same after it was
/// written.
fn record<K>(bytes: &[u8]) -> bool
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Debug,
{
    let is_json = serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
    let guarded = serde_json::from_slice::<Guarded<K>>(bytes);
    assert_eq!(guarded.is_ok(), is_json, "no object fails the list that it stands in");
    let Ok(Guarded(Ok(record))) = guarded else { return false };
    if is_understood(&record) {
        let written = serde_json::to_value(&record).expect("it can be written");
        let again: K = serde_json::from_value(written.clone()).expect("what is written is read");
        assert_eq!(serde_json::to_value(again).expect("it can be written"), written);
    }
    true
}
