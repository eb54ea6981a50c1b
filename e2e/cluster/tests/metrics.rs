//! The dashboard and the alerts ask for what the pods of the driver really tell.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use serde_json::json;

use crate::calls::scraped;
use crate::claim::{capacity, resize};
use crate::world::{World, run};

/// Labels that Prometheus gives to what it reads, by the chart's PodMonitors and by itself.
const BY_PROMETHEUS: [&str; 3] = ["instance", "job", "node"];
/// There only while work waits, and while a volume is wiped.
const COMES_AND_GOES: [&str; 2] =
    ["pliant_volume_request_oldest_creation_timestamp_seconds", "pliant_volume_wiped_bytes"];

/// How the names of metrics begin. A label is called `volume_group`.
const BEGINNINGS: [&str; 4] = ["pliant_", "process_", "volume_populator_", "volume_data_source_"];

/// Metrics by name, each with the labels that any of its series has.
type Told = BTreeMap<String, BTreeSet<String>>;

/// The names, or labels, at the start of a text.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The labels between the first pair of these brackets, which the text begins with.
fn labels(text: &str, [open, close]: [char; 2]) -> BTreeSet<String> {
    let inside = text.strip_prefix(open).and_then(|rest| rest.split_once(close));
    let inside = inside.map_or("", |(inside, _)| inside);
    // A comma in a value is no name of a label.
    let words = inside.split(',').map(|part| word(part.trim_start()).to_owned());
    words.filter(|word| !word.is_empty()).collect()
}

/// Each place in a text where one of these begins as a word of its own, with what follows.
fn places<'a>(text: &'a str, beginning: &'a str) -> impl Iterator<Item = &'a str> {
    let is_word =
        |at: usize| !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(beginning).filter(move |(at, _)| is_word(*at)).map(|(at, _)| &text[at..])
}

/// What the pods of the driver tell.
async fn told(client: &Client) -> Told {
    let mut told = Told::new();
    for part in ["node", "controller", "operator"] {
        for line in scraped(client, part).await.lines().filter(|line| !line.starts_with('#')) {
            let name = word(line);
            told.entry(name.to_owned())
                .or_default()
                .extend(labels(&line[name.len()..], ['{', '}']));
        }
    }
    told
}

/// A claim that was grown, one that could not, one that was filled, and one in a thin pool: so each metric has been told of.
async fn live(world: &World) {
    world.claim("data", "pliant", "64Mi", "Filesystem").await;
    world.pod("app", "data", "sleep 9999", json!({})).await;
    world.resize("data", "96Mi").await.unwrap();
    world
        .until::<PersistentVolumeClaim>("data", "has grown", |claim| capacity(claim) == "96Mi")
        .await;
    world.resize("data", "900Gi").await.unwrap();
    let is_refused = |claim: &PersistentVolumeClaim| {
        resize(claim).is_some_and(|state| state.ends_with("Infeasible"))
    };
    world.until("data", "can not grow so far", is_refused).await;
    world.archive(false).await;
    world.claim_from("web", "pliant", "64Mi", "ArchivePopulator", "site").await;
    world.pod("reader", "web", "sleep 9999", json!({})).await;
    world.filled("web").await;
    world.thin_claim("thin").await;
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_what_is_told() {
    run("the_dashboard_and_the_alerts_ask", |world| async move {
        live(&world).await;
        let told = told(&world.client).await;
        let known: BTreeSet<&str> = told.values().flatten().map(String::as_str).collect();
        let mut missing = BTreeSet::new();
        for file in ["dashboard.json", "alerts.yaml"] {
            let text = fs::read_to_string(format!("charts/pliant/files/{file}")).unwrap();
            for place in BEGINNINGS.iter().flat_map(|beginning| places(&text, beginning)) {
                let name = word(place);
                let wanted = labels(&place[name.len()..], ['{', '}']);
                match told.get(name) {
                    None if COMES_AND_GOES.contains(&name) => {}
                    None => drop(missing.insert(name.to_owned())),
                    Some(has) => missing.extend(
                        wanted
                            .into_iter()
                            .filter(|one| !has.contains(one) && !BY_PROMETHEUS.contains(&&**one))
                            .map(|label| format!("{name}{{{label}}}")),
                    ),
                }
            }
            for grouping in ["by (", "on ("] {
                for place in places(&text, grouping) {
                    let wanted = labels(&place[grouping.len() - 1..], ['(', ')']);
                    missing.extend(
                        wanted.into_iter().filter(|one| {
                            !known.contains(&**one) && !BY_PROMETHEUS.contains(&&**one)
                        }),
                    );
                }
            }
        }
        assert_eq!(missing, BTreeSet::new(), "told are {told:#?}");
    });
}
