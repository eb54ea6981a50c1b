//! Claims that are populated from another claim.

use std::collections::BTreeSet;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Volume,
    VolumeDevice, VolumeMount,
};
use kube::{Api, Client, ResourceExt};

use crate::api::{PopulatorStatus, PvcSourcePopulator, Verification};
use crate::cluster;
use crate::cluster::Binding;
use crate::populators::{
    Far, Fill, PopulationSource, PopulatorReason, SourceState, consumers, prime, topology,
};

/// The source as it is at this moment.
struct ObservedSource {
    claim: Option<PersistentVolumeClaim>,
    nodes: Option<BTreeSet<String>>,
    writers: Vec<String>,
    nodes_of_writers: BTreeSet<String>,
}

#[async_trait]
impl PopulationSource for PvcSourcePopulator {
    const ANEW: bool = false;
    const IS_SENT: bool = true;

    fn is_near(&self) -> bool {
        true
    }

    fn starts_early(&self) -> bool {
        !self.spec.wait_for_consumer
    }

    fn status(&self) -> Option<&PopulatorStatus> {
        self.status.as_ref()
    }

    async fn look(
        &self,
        client: &Client,
        claim: &PersistentVolumeClaim,
    ) -> Result<SourceState, kube::Error> {
        let namespace = claim.namespace().unwrap_or_default();
        let source = self.spec.source_pvc_ref.namespace.as_ref();
        if let Some(other) = source.filter(|source| **source != namespace) {
            return Ok(other_namespace(other, &namespace));
        }
        let seen = observe(client, &namespace, &self.spec.source_pvc_ref.name).await?;
        Ok(sight(self, claim, &seen))
    }
}

/// Reads the source live: a cache would miss a new writer.
async fn observe(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<ObservedSource, kube::Error> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claim = claims.get_opt(name).await?;
    let volume = claim.as_ref().and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
    let pv = match volume {
        Some(volume) => volumes.get_opt(&volume).await?,
        None => None,
    };
    let nodes = match &pv {
        Some(pv) => topology::nodes_of(client, pv).await?,
        None => None,
    };
    let all = cluster::pods(client, namespace).await?;
    let writers = consumers::writers(&all, name);
    Ok(ObservedSource {
        claim,
        nodes,
        writers,
        nodes_of_writers: consumers::nodes_of_writers(&all, name),
    })
}

fn other_namespace(other: &str, namespace: &str) -> SourceState {
    let message = format!(
        "the source is in namespace {other}, but only a source in this namespace, {namespace}, can be read: \
         create a PvcSourcePopulator without a namespace in sourcePvcRef, and a claim that names it"
    );
    SourceState::Never(PopulatorReason::NamespaceMismatch, message)
}

fn sight(
    source: &PvcSourcePopulator,
    claim: &PersistentVolumeClaim,
    seen: &ObservedSource,
) -> SourceState {
    let name = &source.spec.source_pvc_ref.name;
    let missing =
        |message: String| SourceState::Waits(PopulatorReason::PopulatorDataSourceNotFound, message);
    let Some(from) = &seen.claim else {
        return missing(format!(
            "its source, claim {name}, does not exist; create it, or delete this claim"
        ));
    };
    if Binding::of(from) != Binding::Bound {
        return missing(format!(
            "its source, claim {name}, has no volume; see `kubectl describe pvc {name}`"
        ));
    }
    if prime::is_block(from) != prime::is_block(claim) {
        return wrong_mode(name, prime::is_block(from));
    }
    if source.spec.paused {
        return SourceState::Ready(Box::new(match not_ahead(source, from) {
            // Its volume may be made on a node to which it is sent later.
            Some(held) => {
                let later = fill(source, "--final", prime::is_block(from), seen.nodes.clone());
                Fill {
                    held: Some(held),
                    nodes: later.nodes.clone(),
                    far: later.far.clone(),
                    pod: later.pod.clone(),
                    rehearsal: source.spec.probe.then(|| Box::new(later)),
                    ..Fill::default()
                }
            }
            None => pre_copy(source, from, seen),
        }));
    }
    if !seen.writers.is_empty() && !source.spec.allow_in_use_source {
        let message = format!(
            "its source, claim {name}, is used by {}: stop it, or if it does not write, set \
             spec.allowInUseSource of PvcSourcePopulator {} to true",
            seen.writers.join(", "),
            source.name_any()
        );
        return SourceState::Waits(PopulatorReason::SourceInUse, message);
    }
    let fill = fill(source, "--final", prime::is_block(from), seen.nodes.clone());
    SourceState::Ready(Box::new(Fill { is_live: !seen.writers.is_empty(), ..fill }))
}

fn paused(source: &PvcSourcePopulator) -> String {
    format!(
        "PvcSourcePopulator {} is paused: set its spec.paused to false to have the claim populated",
        source.name_any()
    )
}

/// Returns the pre-copy while the populator is paused and pods use the source.
fn pre_copy(
    source: &PvcSourcePopulator,
    from: &PersistentVolumeClaim,
    seen: &ObservedSource,
) -> Fill {
    let mut fill = fill(source, "--pre-copy", prime::is_block(from), seen.nodes.clone());
    if !modes_of(from).any(|mode| mode.ends_with("Many")) && !seen.nodes_of_writers.is_empty() {
        // Its volume is attached to their node, and to no other one.
        fill.nodes = Some(seen.nodes_of_writers.clone());
    }
    fill.is_live = !seen.writers.is_empty();
    fill.ahead_of = Some((PopulatorReason::SourcePaused, paused(source)));
    fill
}

/// Returns why there is no pre-copy while it is paused: it is not requested, or impossible.
fn not_ahead(
    source: &PvcSourcePopulator,
    from: &PersistentVolumeClaim,
) -> Option<(PopulatorReason, String)> {
    if !source.spec.pre_copy {
        return Some((PopulatorReason::SourcePaused, paused(source)));
    }
    let (why, name) = (not_readable_live(from)?, source.name_any());
    let message =
        format!("{why}: it is copied when spec.paused of PvcSourcePopulator {name} is false");
    Some((PopulatorReason::PreCopySkipped, message))
}

/// Returns why a source cannot be read while a pod writes to it.
pub fn not_readable_live(from: &PersistentVolumeClaim) -> Option<String> {
    let name = from.name_any();
    let is_of_one = modes_of(from).any(|mode| mode == "ReadWriteOncePod");
    is_of_one
        .then(|| format!("claim {name} is ReadWriteOncePod, so only one pod can have it at a time"))
}

fn modes_of(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &String> {
    claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten())
}

fn wrong_mode(name: &str, is_block: bool) -> SourceState {
    let mode = if is_block { "Block" } else { "Filesystem" };
    let message = format!(
        "its source, claim {name}, has volumeMode {mode}, but this claim does not: delete it and create it \
         with that one"
    );
    SourceState::Never(PopulatorReason::VolumeModeMismatch, message)
}

fn fill(
    source: &PvcSourcePopulator,
    round: &str,
    is_block: bool,
    nodes: Option<BTreeSet<String>>,
) -> Fill {
    let name = &source.spec.source_pvc_ref.name;
    let device = is_block.then_some("--device");
    let args = |args: &[&str]| {
        args.iter().copied().chain(device).map(str::to_owned).collect::<Vec<String>>()
    };
    let told = ["--result", "/dev/termination-log"];
    let compare: &[&str] = match source.spec.verification {
        Verification::ChangedOnly if !is_block => &["--verification", "changed-only"],
        Verification::ChangedOnly | Verification::Full | Verification::Unknown => &[],
    };
    let far = Far {
        send: args(&["send", "/source"]),
        receive: args(&[&["copy", "/target", round], &told[..]].concat()),
    };
    let volume = Volume {
        name: "source".to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: name.clone(),
            // A pod with a raw block volume can write to it, so drivers refuse to publish one read-only.
            // The copy opens its source read-only.
            read_only: (!is_block).then_some(true),
        }),
        ..Volume::default()
    };
    let mount = VolumeMount {
        name: "source".to_owned(),
        mount_path: "/source".to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    let device = VolumeDevice { name: "source".to_owned(), device_path: "/source".to_owned() };
    Fill {
        args: args(&[&["copy", "/source", "/target", round], compare, &told[..]].concat()),
        far: Some(far),
        volumes: vec![volume],
        mounts: (!is_block).then_some(mount).into_iter().collect(),
        devices: is_block.then_some(device).into_iter().collect(),
        nodes,
        pod: source.spec.populator_pod.clone(),
        ..Fill::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PvcSourcePopulatorSpec, SourcePvcRef};
    use serde_json::json;

    fn claim(uid: &str, mode: &str, phase: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": uid, "namespace": "shop", "uid": uid},
            "spec": {"volumeMode": mode}, "status": {"phase": phase}}))
        .unwrap()
    }

    fn source(while_in_use: bool) -> PvcSourcePopulator {
        let source_pvc_ref = SourcePvcRef { name: "old".to_owned(), namespace: None };
        let spec = PvcSourcePopulatorSpec {
            source_pvc_ref,
            allow_in_use_source: while_in_use,
            ..PvcSourcePopulatorSpec::default()
        };
        PvcSourcePopulator::new("copy", spec)
    }

    fn seen(from: Option<PersistentVolumeClaim>, writers: &[&str]) -> ObservedSource {
        let writers = writers.iter().map(|name| (*name).to_owned()).collect();
        ObservedSource {
            claim: from,
            nodes: Some(BTreeSet::from(["alpha".to_owned()])),
            writers,
            nodes_of_writers: BTreeSet::new(),
        }
    }

    #[test]
    fn a_claim_is_copied_when_it_can_be_read_and_nobody_writes() {
        use PopulatorReason::{PopulatorDataSourceNotFound, SourceInUse, VolumeModeMismatch};
        let new = claim("new", "Filesystem", "Pending");
        let old = |mode, phase| Some(claim("old", mode, phase));
        for (seen, in_use, expected) in [
            (seen(None, &[]), false, Some(PopulatorDataSourceNotFound)),
            (seen(old("Filesystem", "Pending"), &[]), false, Some(PopulatorDataSourceNotFound)),
            (seen(old("Block", "Bound"), &[]), false, Some(VolumeModeMismatch)),
            (seen(Some(new.clone()), &[]), false, Some(PopulatorDataSourceNotFound)),
            (seen(old("Filesystem", "Bound"), &["web"]), false, Some(SourceInUse)),
            (seen(old("Filesystem", "Bound"), &["web"]), true, None),
            (seen(old("Filesystem", "Bound"), &[]), false, None),
        ] {
            let reason = match sight(&source(in_use), &new, &seen) {
                SourceState::Ready(_) => None,
                SourceState::Waits(reason, _) | SourceState::Never(reason, _) => Some(reason),
            };
            assert_eq!(reason, expected);
        }
    }

    #[test]
    fn a_paused_source_is_copied_ahead_if_that_is_wanted_and_can_be() {
        use PopulatorReason::{PopulatorDataSourceNotFound, PreCopySkipped, SourcePaused};
        let new = |mode| claim("new", mode, "Pending");
        let old = |mode, access: &str| {
            let mut old = claim("old", mode, "Bound");
            old.spec.as_mut().unwrap().access_modes = Some(vec![access.to_owned()]);
            Some(old)
        };
        let (files, raw) = ("Filesystem", "Block");
        for (ahead, mode, from, expected) in [
            (false, files, old(files, "ReadWriteOnce"), Some(SourcePaused)),
            (true, files, None, Some(PopulatorDataSourceNotFound)),
            (true, files, old(files, "ReadWriteOncePod"), Some(PreCopySkipped)),
            (true, raw, old(raw, "ReadWriteOncePod"), Some(PreCopySkipped)),
            (true, files, old(files, "ReadWriteOnce"), None),
            (true, files, old(files, "ReadWriteMany"), None),
            (true, raw, old(raw, "ReadWriteOnce"), None),
            (true, raw, old(raw, "ReadWriteMany"), None),
        ] {
            let is_many =
                from.as_ref().is_some_and(|from| modes_of(from).any(|one| one.ends_with("Many")));
            let mut source = source(false);
            (source.spec.paused, source.spec.pre_copy) = (true, ahead);
            let mut seen = seen(from, &["web"]);
            seen.nodes_of_writers = BTreeSet::from(["beta".to_owned()]);
            match sight(&source, &new(mode), &seen) {
                SourceState::Ready(fill) if fill.held.is_some() => {
                    assert_eq!(Some(fill.held.unwrap().0), expected);
                    assert!(fill.args.is_empty() && fill.nodes.is_some(), "only a volume is got");
                    assert!(fill.far.is_some(), "that may be on a node to which it is sent later");
                }
                SourceState::Ready(fill) => {
                    assert_eq!(expected, None);
                    let device = if mode == raw { " --device" } else { "" };
                    let copy = "copy /source /target --pre-copy --result /dev/termination-log";
                    assert_eq!(fill.args.join(" "), format!("{copy}{device}"));
                    let (devices, mounts) = (fill.devices.len(), fill.mounts.len());
                    assert_eq!((devices, mounts), if mode == raw { (1, 0) } else { (0, 1) });
                    assert_eq!(fill.ahead_of.unwrap().0, SourcePaused);
                    let node = if is_many { "alpha" } else { "beta" };
                    assert_eq!(
                        (fill.nodes, fill.is_live),
                        (Some(BTreeSet::from([node.to_owned()])), true)
                    );
                }
                SourceState::Waits(reason, _) | SourceState::Never(reason, _) => {
                    assert_eq!(Some(reason), expected);
                }
            }
        }
    }

    #[test]
    fn the_source_is_only_read() {
        let fill = fill(&source(false), "--final", false, None);
        assert_eq!(
            fill.args.join(" "),
            "copy /source /target --final --result /dev/termination-log"
        );
        assert_eq!(fill.volumes[0].persistent_volume_claim.as_ref().unwrap().read_only, Some(true));
        assert_eq!((fill.mounts[0].read_only, fill.devices.len()), (Some(true), 0));
        let raw = super::fill(&source(false), "--final", true, None);
        assert_eq!(raw.devices[0].device_path, "/source");
        assert_eq!(raw.volumes[0].persistent_volume_claim.as_ref().unwrap().read_only, None);
        assert_eq!(raw.args.last().map(String::as_str), Some("--device"));
    }
    #[test]
    fn files_near_by_can_be_compared_in_rounds() {
        let mut source = source(false);
        source.spec.verification = Verification::ChangedOnly;
        let of = |is_block| fill(&source, "--pre-copy", is_block, None);
        let changed = "copy /source /target --pre-copy --verification changed-only --result /dev/termination-log";
        assert_eq!(of(false).args.join(" "), changed);
        for all in [of(true).args, of(false).far.unwrap().receive] {
            assert!(!all.contains(&"--verification".to_owned()), "{all:?}");
        }
    }
}
