//! Collects diagnostics for remote analysis, as YAML documents; reads no secrets.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{PvcAutoscaler, PvcSourcePopulator};
use crate::commands::checkup::{self, ObservedCluster};
use crate::commands::read::ListReader;
use crate::commands::{AskError, PVC_AUTOSCALERS, STORAGES, table};
use crate::error_chain::in_full;
use crate::volume::DRIVER;

/// One section of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportSection {
    /// Name of the section.
    #[serde(rename = "section")]
    pub what: String,
    /// Content of the section.
    #[serde(rename = "content")]
    pub found: Value,
}

impl ReportSection {
    fn new(what: impl Into<String>, found: impl Serialize) -> ReportSection {
        let found = serde_json::to_value(found);
        ReportSection {
            what: what.into(),
            found: found.unwrap_or_else(|error| json!(error.to_string())),
        }
    }
}

/// Collects a report with this many last lines of each log; its first section lists the others.
///
/// # Errors
/// [`AskError::Api`]. The report lists the kinds that the caller may not read.
pub async fn report(
    client: &Client,
    program: &str,
    lines: u32,
) -> Result<Vec<ReportSection>, AskError> {
    let seen = checkup::observe(client).await?;
    let mut ask = ListReader::new(client);
    let events = ask.list(ask.all(), ListParams::default(), "events").await?;
    let autoscalers = ask.list(ask.all(), ListParams::default(), PVC_AUTOSCALERS).await?;
    let sources = ask.list(ask.all(), ListParams::default(), "pvcsourcepopulators").await?;
    let findings = checkup::judge(&seen, program, None)?;
    let mut parts = vec![
        ReportSection::new("status", pools(&seen)),
        ReportSection::new("doctor", findings),
        ReportSection::new("nodestorages", bare(&seen.storages)),
        ReportSection::new("storagepools", bare(&seen.pools)),
        ReportSection::new("volumerequests", bare(&seen.requests)),
        ReportSection::new("pvcautoscalers", bare(&without_annotations(autoscalers))),
        ReportSection::new("pvcsourcepopulators", bare::<PvcSourcePopulator>(&sources)),
        ReportSection::new("storage classes of the driver", bare(&classes(&seen))),
        ReportSection::new("csidriver", bare(seen.driver.as_slice())),
        ReportSection::new("events", bare(&events.into_iter().filter(is_ours).collect::<Vec<_>>())),
        ReportSection::new("pods", seen.pods.iter().map(summary).collect::<Vec<_>>()),
    ];
    for pod in &seen.pods {
        parts.extend(logs(client, pod, lines).await);
    }
    let mut unseen = seen.unseen;
    unseen.extend(ask.unseen);
    let unreadable = seen.unreadable.into_iter().chain(ask.unreadable);
    let unreadable: Vec<String> = unreadable.map(|one| one.to_string()).collect();
    if !unreadable.is_empty() {
        parts.push(ReportSection::new("objects that cannot be decoded", unreadable));
    }
    parts.insert(0, contents(&parts, &unseen));
    Ok(parts)
}

fn pools(seen: &ObservedCluster) -> String {
    if seen.unseen.contains(&STORAGES) {
        return format!("you may not read {STORAGES}");
    }
    if seen.storages.is_empty() && !seen.sees(STORAGES) {
        return format!("{STORAGES} cannot be decoded");
    }
    table(&seen.storages, seen.names().as_deref())
}

/// The first section: contents and a note for the sender.
fn contents(parts: &[ReportSection], unseen: &[&str]) -> ReportSection {
    let what: Vec<&str> = parts.iter().map(|part| part.what.as_str()).collect();
    let found = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "createdTime": Timestamp::now().to_string(),
        "sections": what,
        "forbidden": unseen,
        "note": "Names of nodes, disks, volumes, namespaces and claims are in here, and no secrets: \
                 none are read. Annotations and environments are left out. Read it before you send it.",
    });
    ReportSection { what: "report".to_owned(), found }
}

fn classes(seen: &ObservedCluster) -> Vec<k8s_openapi::api::storage::v1::StorageClass> {
    seen.classes.iter().filter(|class| class.provisioner == DRIVER).cloned().collect()
}

/// Removes annotations of claim templates: they may be private, as their own annotations.
fn without_annotations(mut autoscalers: Vec<PvcAutoscaler>) -> Vec<PvcAutoscaler> {
    for one in &mut autoscalers {
        one.spec.volume_claim_template.metadata.annotations.clear();
    }
    autoscalers
}

/// Objects without annotations and managed fields.
fn bare<K: Resource + Clone + Serialize>(objects: &[K]) -> Vec<K> {
    let strip = |object: &K| {
        let mut object = object.clone();
        object.managed_fields_mut().clear();
        object.annotations_mut().clear();
        object
    };
    objects.iter().map(strip).collect()
}

/// True if an event is from the driver or its sidecars, or about an object or a pod of the driver.
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

/// Status of a pod, without its environment, which may be private.
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

/// Last log lines of each container, and of its predecessor if it was restarted.
async fn logs(client: &Client, pod: &Pod, lines: u32) -> Vec<ReportSection> {
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
            // A container that has not started has no log; the report goes on.
            let text = api.logs(&pod.name_any(), &params).await;
            parts.push(ReportSection::new(what, text.unwrap_or_else(|error| in_full(&error))));
        }
    }
    parts
}

fn restarts(pod: &Pod, container: &str) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().find(|one| one.name == container).map_or(0, |one| one.restart_count)
}
