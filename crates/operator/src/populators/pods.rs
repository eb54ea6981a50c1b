//! Settings of the administrator for all populator and sender pods.

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Toleration;
use serde::Deserialize;

/// Settings of all these pods, besides what each needs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodSettings {
    /// Labels; those that we select by stay.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Labels of the nodes on which they run. A volume is on a node of its own choice, so these may not be where it is.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that they tolerate, besides all with effect `NoSchedule` and those that the workload tolerates.
    pub tolerations: Vec<Toleration>,
    /// Name of their PriorityClass, where the workload has none.
    pub priority_class_name: String,
    /// Image pull policy; empty is the default of Kubernetes.
    pub image_pull_policy: String,
}

impl FromStr for PodSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<PodSettings, String> {
        let read: PodSettings = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut keys = read.labels.keys().chain(read.annotations.keys());
        match keys.find(|key| is_ours(key)) {
            Some(key) => Err(format!("{key} is a key that Pliant sets itself")),
            None => Ok(read),
        }
    }
}

/// Returns true if Pliant uses this key of a label or annotation.
fn is_ours(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    prefix == "pliant.io" || prefix.ends_with(".pliant.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_and_what_we_write_ourselves_is_refused() {
        let read = |text: &str| text.parse::<PodSettings>();
        assert_eq!(read("{}").unwrap(), PodSettings::default());
        assert_eq!(read(r#"{"nodeSelector":{"a":"b"}}"#).unwrap().node_selector["a"], "b");
        for text in [
            "",
            r#"{"hostNetwork":true}"#,
            r#"{"labels":{"pliant.io/populator":"u"}}"#,
            r#"{"annotations":{"pliant.io/pre-copy":"true"}}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
