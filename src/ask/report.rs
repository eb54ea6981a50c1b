//! All that is needed to look into a fault from afar, as documents; no secrets are read for it.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{PvcAutoscaler, PvcSourcePopulator};
use crate::ask::checkup::{self, Seen};
use crate::ask::read::Reader;
use crate::ask::{AskError, PVC_AUTOSCALERS, STORAGES, table};
use crate::causes::in_full;
use crate::volume::DRIVER;

/// One part of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Name of the section.
    #[serde(rename = "section")]
    pub what: String,
    /// Content of the section.
    #[serde(rename = "content")]
    pub found: Value,
}

impl Part {
    fn new(what: impl Into<String>, found: impl Serialize) -> Part {
        let found = serde_json::to_value(found);
        Part { what: what.into(), found: found.unwrap_or_else(|error| json!(error.to_string())) }
    }
}

/// Gather a report; the first part says what is in it. Of each log these last lines are taken.
///
/// # Errors
/// [`AskError::Api`]. What the caller may not read is named, and the rest is told.
pub async fn report(client: &Client, program: &str, lines: u32) -> Result<Vec<Part>, AskError> {
    let seen = checkup::observe(client).await?;
    let mut ask = Reader::new(client);
    let events = ask.list(ask.all(), ListParams::default(), "events").await?;
    let autoscalers = ask.list(ask.all(), ListParams::default(), PVC_AUTOSCALERS).await?;
    let sources = ask.list(ask.all(), ListParams::default(), "pvcsourcepopulators").await?;
    let findings = checkup::judge(&seen, program, None)?;
    let mut parts = vec![
        Part::new("status", pools(&seen)),
        Part::new("doctor", findings),
        Part::new("nodestorages", bare(&seen.storages)),
        Part::new("storagepools", bare(&seen.pools)),
        Part::new("volumerequests", bare(&seen.requests)),
        Part::new("pvcautoscalers", bare(&without_annotations(autoscalers))),
        Part::new("pvcsourcepopulators", bare::<PvcSourcePopulator>(&sources)),
        Part::new("storage classes of the driver", bare(&classes(&seen))),
        Part::new("csidriver", bare(seen.driver.as_slice())),
        Part::new("events", bare(&events.into_iter().filter(is_ours).collect::<Vec<_>>())),
        Part::new("pods", seen.pods.iter().map(summary).collect::<Vec<_>>()),
    ];
    for pod in &seen.pods {
        parts.extend(logs(client, pod, lines).await);
    }
    let mut unseen = seen.unseen;
    unseen.extend(ask.unseen);
    let unreadable = seen.unreadable.into_iter().chain(ask.unreadable);
    let unreadable: Vec<String> = unreadable.map(|one| one.to_string()).collect();
    if !unreadable.is_empty() {
        parts.push(Part::new("objects that cannot be decoded", unreadable));
    }
    parts.insert(0, contents(&parts, &unseen));
    Ok(parts)
}

fn pools(seen: &Seen) -> String {
    if seen.unseen.contains(&STORAGES) {
        return format!("you may not read {STORAGES}");
    }
    if seen.storages.is_empty() && !seen.sees(STORAGES) {
        return format!("{STORAGES} cannot be decoded");
    }
    table(&seen.storages, seen.names().as_deref())
}

/// What a reader has to know before the rest.
fn contents(parts: &[Part], unseen: &[&str]) -> Part {
    let what: Vec<&str> = parts.iter().map(|part| part.what.as_str()).collect();
    let found = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "createdTime": Timestamp::now().to_string(),
        "sections": what,
        "forbidden": unseen,
        "note": "Names of nodes, disks, volumes, namespaces and claims are in here, and no secrets: \
                 none are read. Annotations and environments are left out. Read it before you send it.",
    });
    Part { what: "report".to_owned(), found }
}

fn classes(seen: &Seen) -> Vec<k8s_openapi::api::storage::v1::StorageClass> {
    seen.classes.iter().filter(|class| class.provisioner == DRIVER).cloned().collect()
}

/// What their claims are annotated with is as much nobody's business as their own annotations are.
fn without_annotations(mut autoscalers: Vec<PvcAutoscaler>) -> Vec<PvcAutoscaler> {
    for one in &mut autoscalers {
        one.spec.volume_claim_template.metadata.annotations.clear();
    }
    autoscalers
}

/// Objects without what anybody may have written on them.
fn bare<K: Resource + Clone + Serialize>(objects: &[K]) -> Vec<K> {
    let strip = |object: &K| {
        let mut object = object.clone();
        object.managed_fields_mut().clear();
        object.annotations_mut().clear();
        object
    };
    objects.iter().map(strip).collect()
}

/// Whether an event is of the driver or its sidecars, or about a record or a pod of the driver.
fn is_ours(event: &Event) -> bool {
    let older = event.deprecated_source.as_ref().and_then(|source| source.component.as_deref());
    let by = event.reporting_controller.as_deref().unwrap_or_default();
    let about = event.regarding.clone().unwrap_or_default();
    let group = about.api_version.unwrap_or_default();
    let name = about.name.unwrap_or_default();
    [by, older.unwrap_or_default()].iter().any(|who| who.contains("pliant"))
        || group.starts_with("pliant.io/")
        || (about.kind.as_deref() == Some("Pod") && name.starts_with("pliant-"))
}

/// How a pod is; what its environment holds is nobody's business.
fn summary(pod: &Pod) -> Value {
    let status = pod.status.clone().unwrap_or_default();
    let container = |one: &ContainerStatus| {
        json!({
            "name": one.name,
            "image": one.image,
            "ready": one.ready,
            "restarts": one.restart_count,
            "state": one.state.as_ref().map(state),
            "lastState": one.last_state.as_ref().map(state),
        })
    };
    let containers = status.container_statuses.iter().flatten().map(container);
    json!({
        "name": pod.name_any(),
        "namespace": pod.namespace(),
        "node": pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        "phase": status.phase,
        "containers": containers.collect::<Vec<_>>(),
    })
}

fn state(state: &ContainerState) -> Value {
    match state {
        ContainerState { waiting: Some(waiting), .. } => {
            json!({"waiting": waiting.reason, "message": waiting.message})
        }
        ContainerState { terminated: Some(ended), .. } => {
            json!({"terminated": ended.reason, "code": ended.exit_code, "message": ended.message})
        }
        ContainerState { running: Some(running), .. } => {
            json!({"runningSince": running.started_at})
        }
        _ => Value::Null,
    }
}

/// The last lines of each container, and of the one before it if it was started anew.
async fn logs(client: &Client, pod: &Pod, lines: u32) -> Vec<Part> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut parts = Vec::new();
    for container in containers {
        for previous in [false, true] {
            let params = LogParams {
                container: Some(container.name.clone()),
                tail_lines: Some(lines.into()),
                previous,
                ..LogParams::default()
            };
            if previous && restarts(pod, &container.name) == 0 {
                continue;
            }
            let before = if previous { ", before its restart" } else { "" };
            let what = format!("log of {} in {}{before}", container.name, pod.name_any());
            // One that has not started has none, which is no reason to tell nothing.
            let text = api.logs(&pod.name_any(), &params).await;
            parts.push(Part::new(what, text.unwrap_or_else(|error| in_full(&error))));
        }
    }
    parts
}

fn restarts(pod: &Pod, container: &str) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().find(|one| one.name == container).map_or(0, |one| one.restart_count)
}
