//! Pod that sends a source to the populator pod on another node, and the keys with which both
//! authenticate. Pure.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Volume, VolumeMount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::populators::observed::uid;
use crate::populators::{Far, Fill, LABEL, prime};
use crate::remote::{PORT, TransferKeys};

/// Path of the keys in both pods.
const KEYS: &str = "/keys";

/// Placeholder of an unknown address.
pub(super) const ANYWHERE: &str = "0.0.0.0:0";

/// Capabilities for reading files of any owner, without changing their access times.
const READS: &[&str] = &["DAC_OVERRIDE", "FOWNER"];

/// The name of the pod that sends to the prime claim of a claim.
pub(super) fn name(uid: &str) -> String {
    format!("send-{uid}")
}

/// The Secret with the keys of both, which goes with the prime claim.
pub(super) fn keys(
    claim: &PersistentVolumeClaim,
    prime: &PersistentVolumeClaim,
    namespace: &str,
    keys: &TransferKeys,
) -> Secret {
    let mut metadata = prime::metadata(claim, &keys_name(prime), namespace);
    metadata["ownerReferences"] = owned_by(prime);
    let secret = json!({
        "metadata": metadata,
        "type": "Opaque",
        "immutable": true,
        "stringData": {
            "ca.crt": keys.ca,
            "source.crt": keys.source.0,
            "source.key": keys.source.1,
            "target.crt": keys.target.0,
            "target.key": keys.target.1,
        },
    });
    serde_json::from_value(secret).expect("a Secret")
}

/// Network policy of the pods of a claim: only those of the same claim may connect, if a source is sent. It is
/// deleted with the prime claim. Other clients could not read the port, but could block it.
pub(super) fn policy(
    claim: &PersistentVolumeClaim,
    prime: &PersistentVolumeClaim,
    namespace: &str,
) -> NetworkPolicy {
    let mut metadata = prime::metadata(claim, &keys_name(prime), namespace);
    metadata["ownerReferences"] = owned_by(prime);
    let ours = json!({"matchLabels": { LABEL: uid(&claim.metadata) }});
    let policy = json!({
        "metadata": metadata,
        "spec": {
            "podSelector": ours,
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"podSelector": ours}],
                "ports": [{"port": PORT, "protocol": "TCP"}],
            }],
        },
    });
    serde_json::from_value(policy).expect("a NetworkPolicy")
}

/// Returns a name with the uid: a recreated prime claim has other keys.
fn keys_name(prime: &PersistentVolumeClaim) -> String {
    name(uid(&prime.metadata))
}

fn owned_by(prime: &PersistentVolumeClaim) -> Value {
    json!([{
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "name": prime.name_any(), "uid": uid(&prime.metadata),
    }])
}

/// Returns the sender, on one of the nodes of the source. It has the source as the populator pod would
/// have had it there, and can write to nothing.
pub(super) fn pod(
    claim: &PersistentVolumeClaim,
    prime: &PersistentVolumeClaim,
    (fill, far): (&Fill, &Far),
    frame: prime::PodFrame<'_>,
) -> Pod {
    let mut run = prime::Run::of(fill, name(uid(&claim.metadata)));
    // Without the port: brackets are for an address of IPv6 alone, and which it has is not known yet.
    let where_to = ["--listen", "$(POD_IP)", "--cert-dir", KEYS].map(str::to_owned);
    run.args = json!([&far.send[..], &where_to].concat());
    run.env = json!([{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    run.capabilities = READS;
    run.nodes = fill.nodes.iter().flatten().map(String::as_str).collect();
    run.volumes.push(json!(key_volume(prime, "source")));
    run.mounts.push(json!(key_mount()));
    let mut pod = run.pod(claim, frame);
    pod.metadata.owner_references = serde_json::from_value(owned_by(prime)).ok();
    pod
}

/// Returns true if a pod of its name was created by Pliant: another client's is neither trusted nor deleted.
/// `prime` is the uid of the prime claim, if known.
pub(super) fn is_ours(pod: &Pod, claim: &PersistentVolumeClaim, prime: Option<&str>) -> bool {
    let is_labelled = pod.labels().get(LABEL).map(String::as_str) == Some(uid(&claim.metadata));
    let owner = prime::prime_name(uid(&claim.metadata));
    is_labelled
        && pod.owner_references().iter().any(|one| {
            one.kind == "PersistentVolumeClaim"
                && one.name == owner
                && prime.is_none_or(|prime| one.uid == prime)
        })
}

/// Returns how the volume is populated from a sender at this address.
pub(super) fn receive(fill: &Fill, far: &Far, prime: &PersistentVolumeClaim, from: &str) -> Fill {
    let from = ["--from", from, "--cert-dir", KEYS].map(str::to_owned);
    Fill {
        args: [&far.receive[..], &from].concat(),
        volumes: vec![key_volume(prime, "target")],
        mounts: vec![key_mount()],
        devices: Vec::new(),
        nodes: None,
        far: None,
        ..fill.clone()
    }
}

/// Returns the address of a sender, once it runs.
pub(super) fn address(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let ip = status.pod_ip.as_deref().filter(|_| status.phase.as_deref() == Some("Running"))?;
    Some(if ip.contains(':') { format!("[{ip}]:{PORT}") } else { format!("{ip}:{PORT}") })
}

/// Returns the volume with the keys of one side.
fn key_volume(prime: &PersistentVolumeClaim, side: &str) -> Volume {
    let item = |key: String, path: &str| json!({"key": key, "path": path});
    let items = [
        item("ca.crt".to_owned(), "ca.crt"),
        item(format!("{side}.crt"), "tls.crt"),
        item(format!("{side}.key"), "tls.key"),
    ];
    let secret = json!({"secretName": keys_name(prime), "items": items, "defaultMode": 0o400});
    serde_json::from_value(json!({"name": "keys", "secret": secret})).expect("a volume")
}

fn key_mount() -> VolumeMount {
    VolumeMount {
        name: "keys".to_owned(),
        mount_path: KEYS.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::populators::PopulationSettings;
    use crate::populators::fit::Fit;

    fn claim(name: &str, uid: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": uid}, "spec": {},
        }))
        .unwrap()
    }

    fn fill() -> Fill {
        let volume = json!({"name": "source", "persistentVolumeClaim": {"claimName": "old", "readOnly": true}});
        Fill {
            volumes: vec![serde_json::from_value(volume).unwrap()],
            nodes: Some(["alpha".to_owned(), "gamma".to_owned()].into()),
            ..Fill::default()
        }
    }

    fn far() -> Far {
        Far { send: vec!["send".to_owned()], receive: vec!["copy".to_owned()] }
    }

    #[test]
    fn who_sends_is_reached_by_the_pods_of_its_claim_alone() {
        let (claim, prime) = (claim("new", "u"), claim("prime-u", "p"));
        let made = serde_json::to_value(policy(&claim, &prime, "shop")).unwrap();
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "p");
        let ours = json!({"matchLabels": { LABEL: "u" }});
        let expected = json!({
            "podSelector": ours,
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"podSelector": ours}], "ports": [{"port": 9815, "protocol": "TCP"}],
            }],
        });
        assert_eq!(made["spec"], expected);
        let (settings, fit) = (PopulationSettings::default(), Fit::default());
        let frame = prime::tests::frame(&settings, &fit);
        let pod = pod(&claim, &prime, (&fill(), &far()), frame);
        assert_eq!(pod.labels()[LABEL], "u");
    }

    #[test]
    fn who_sends_has_what_the_administrator_gives() {
        let (settings, fit) = (prime::tests::given(), Fit::default());
        let claim = prime::tests::claim("Filesystem");
        for (fill, priority, tolerations) in prime::tests::wishes() {
            let frame = prime::tests::frame(&settings, &fit);
            let made = pod(&claim, &claim, (&fill, &far()), frame);
            prime::tests::has_what_is_given(made, priority, tolerations);
        }
    }

    #[test]
    fn who_sends_is_at_the_source_and_has_only_its_own_keys() {
        let (claim, prime) = (claim("new", "u"), claim("prime-u", "p"));
        let (settings, fit) = (PopulationSettings::default(), Fit::default());
        let made = serde_json::to_value(pod(
            &claim,
            &prime,
            (&fill(), &far()),
            prime::tests::frame(&settings, &fit),
        ))
        .unwrap();
        assert_eq!(made["metadata"]["name"], "send-u");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "p");
        let spec = &made["spec"];
        let args = json!(["send", "--listen", "$(POD_IP)", "--cert-dir", "/keys"]);
        assert_eq!(spec["containers"][0]["args"], args);
        let volumes = spec["volumes"].to_string();
        assert!(volumes.contains(r#""claimName":"old","readOnly":true"#), "{volumes}");
        assert!(volumes.contains("source.key") && !volumes.contains("target."), "{volumes}");
        let nodes = spec["affinity"].to_string();
        assert!(nodes.contains("alpha") && nodes.contains("gamma"), "{nodes}");
        let added = &spec["containers"][0]["securityContext"]["capabilities"]["add"];
        assert_eq!(*added, json!(["DAC_OVERRIDE", "FOWNER"]));
    }

    #[test]
    fn who_fills_from_afar_mounts_nothing_of_the_source() {
        let made = receive(&fill(), &far(), &claim("prime-u", "p"), "10.0.0.7:9815");
        assert_eq!(made.args.join(" "), "copy --from 10.0.0.7:9815 --cert-dir /keys");
        let volumes = serde_json::to_string(&made.volumes).unwrap();
        assert!(volumes.contains("target.key") && volumes.contains("send-p"), "{volumes}");
        assert!(!volumes.contains("source.key") && !volumes.contains("old"), "{volumes}");
        assert_eq!((made.nodes, made.far), (None, None));
    }

    #[test]
    fn an_address_is_known_once_the_pod_runs() {
        let pod = |phase: &str, ip: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {}, "status": {"phase": phase, "podIP": ip}}))
                .unwrap()
        };
        assert_eq!(address(&pod("Pending", "10.0.0.7")), None);
        assert_eq!(address(&pod("Running", "10.0.0.7")).as_deref(), Some("10.0.0.7:9815"));
        assert_eq!(address(&pod("Running", "fd00::7")).as_deref(), Some("[fd00::7]:9815"));
        assert_eq!(address(&Pod::default()), None);
    }
}
