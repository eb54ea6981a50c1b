//! Claims that are populated from an archive.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, KeyToPath, PersistentVolumeClaim, Volume, VolumeMount,
};
use kube::{Api, Client, ResourceExt};

use crate::api::{ArchivePopulator, ConfigMapRef, PopulatorStatus};
use crate::populators::{Fill, PopulationSource, PopulatorReason, SourceState, prime};

/// Path of an archive in the pod that is not downloaded.
const ARCHIVE: &str = "/source/archive";

#[async_trait]
impl PopulationSource for ArchivePopulator {
    /// An incomplete archive is useless, and existing files are not overwritten.
    const ANEW: bool = true;

    fn is_near(&self) -> bool {
        self.spec.config_map_ref.is_some()
    }

    fn status(&self) -> Option<&PopulatorStatus> {
        self.status.as_ref()
    }

    async fn look(
        &self,
        client: &Client,
        claim: &PersistentVolumeClaim,
    ) -> Result<SourceState, kube::Error> {
        let Some(from) = &self.spec.config_map_ref else {
            return Ok(sight(self, claim, None));
        };
        let namespace = claim.namespace().unwrap_or_default();
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        let found = api.get_opt(&from.name).await?;
        Ok(sight(self, claim, found.as_ref()))
    }
}

fn sight(
    source: &ArchivePopulator,
    claim: &PersistentVolumeClaim,
    map: Option<&ConfigMap>,
) -> SourceState {
    if prime::is_block(claim) {
        let message = "an archive can only be unpacked into a file system, but this claim has volumeMode \
                       Block: delete it and create it with volumeMode Filesystem";
        return SourceState::Never(PopulatorReason::VolumeModeMismatch, message.to_owned());
    }
    match &source.spec.config_map_ref {
        Some(from) if !map.is_some_and(|map| has_key(map, &from.key)) => {
            let ConfigMapRef { name, key } = from;
            let message =
                format!("there is no key {key} in ConfigMap {name}; add it, or delete the claim");
            SourceState::Waits(PopulatorReason::PopulatorDataSourceNotFound, message)
        }
        _ => SourceState::Ready(Box::new(fill(source))),
    }
}

fn has_key(map: &ConfigMap, key: &str) -> bool {
    let binary = map.binary_data.as_ref().is_some_and(|data| data.contains_key(key));
    binary || map.data.as_ref().is_some_and(|data| data.contains_key(key))
}

fn fill(source: &ArchivePopulator) -> Fill {
    let spec = &source.spec;
    let mut args = vec!["unpack".to_owned()];
    match &spec.url {
        Some(url) => args.extend(["--url".to_owned(), prime::literal(url)]),
        None => args.extend(["--file", ARCHIVE].map(str::to_owned)),
    }
    args.extend(["--sha256".to_owned(), spec.sha256.clone()]);
    args.extend(["--result", "/dev/termination-log", "/target"].map(str::to_owned));
    let from = spec.config_map_ref.as_ref();
    Fill {
        args,
        volumes: from.map(volume).into_iter().collect(),
        mounts: from.map(|_| mount()).into_iter().collect(),
        fetches: spec.url.is_some(),
        ..Fill::default()
    }
}

fn volume(from: &ConfigMapRef) -> Volume {
    let item = KeyToPath { key: from.key.clone(), path: "archive".to_owned(), mode: None };
    let config_map = ConfigMapVolumeSource {
        name: from.name.clone(),
        items: Some(vec![item]),
        ..ConfigMapVolumeSource::default()
    };
    Volume { name: "source".to_owned(), config_map: Some(config_map), ..Volume::default() }
}

fn mount() -> VolumeMount {
    VolumeMount {
        name: "source".to_owned(),
        mount_path: "/source".to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ArchivePopulatorSpec;
    use serde_json::json;

    fn of_url(url: &str) -> ArchivePopulator {
        let spec = ArchivePopulatorSpec {
            url: Some(url.to_owned()),
            sha256: "0".repeat(64),
            ..ArchivePopulatorSpec::default()
        };
        ArchivePopulator::new("site", spec)
    }

    fn of_map() -> ArchivePopulator {
        let from = ConfigMapRef { name: "files".to_owned(), key: "site.tgz".to_owned() };
        let spec = ArchivePopulatorSpec {
            config_map_ref: Some(from),
            sha256: "0".repeat(64),
            ..ArchivePopulatorSpec::default()
        };
        ArchivePopulator::new("site", spec)
    }

    fn claim(mode: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {}, "spec": {"volumeMode": mode}})).unwrap()
    }

    #[test]
    fn an_archive_is_unpacked_by_its_address_and_checksum() {
        let fill = fill(&of_url("https://a/b.tar"));
        let sum = "0".repeat(64);
        let expected = format!(
            "unpack --url https://a/b.tar --sha256 {sum} --result \
             /dev/termination-log /target"
        );
        assert_eq!(fill.args.join(" "), expected);
        assert!(fill.volumes.is_empty() && fill.nodes.is_none());
        // No variable of the pod, which may be in the namespace of the operator, gets into an address.
        let own = super::fill(&of_url("https://a/$(TOKEN)/$$b.tar"));
        assert_eq!(own.args[2], "https://a/$$(TOKEN)/$$$$b.tar");
        let local = super::fill(&of_map());
        assert!(local.args.join(" ").contains("--file /source/archive"), "{:?}", local.args);
        assert_eq!(local.volumes[0].config_map.as_ref().unwrap().name, "files");
    }

    #[test]
    fn a_raw_volume_is_refused_and_a_missing_map_is_waited_for() {
        let binary: ConfigMap =
            serde_json::from_value(json!({"binaryData": {"site.tgz": ""}})).unwrap();
        let other: ConfigMap = serde_json::from_value(json!({"data": {"else": ""}})).unwrap();
        let reason = |source: &ArchivePopulator, mode: &str, map: Option<&ConfigMap>| match sight(
            source,
            &claim(mode),
            map,
        ) {
            SourceState::Ready(_) => None,
            SourceState::Waits(reason, _) | SourceState::Never(reason, _) => Some(reason),
        };
        let url = of_url("https://a/b.tar");
        assert_eq!(reason(&url, "Filesystem", None), None);
        assert_eq!(reason(&url, "Block", None), Some(PopulatorReason::VolumeModeMismatch));
        let missing = Some(PopulatorReason::PopulatorDataSourceNotFound);
        assert_eq!(reason(&of_map(), "Filesystem", None), missing);
        assert_eq!(reason(&of_map(), "Filesystem", Some(&other)), missing);
        assert_eq!(reason(&of_map(), "Filesystem", Some(&binary)), None);
    }
}
