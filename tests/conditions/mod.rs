//! Conditions of the kinds of the API with their reasons, as the code writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pliant::api::definitions;
use pliant::claims::AutoscalerReason;
use regex::Regex;

use crate::repository::{product, read};

/// Files that judge conditions, each with the kind that has them.
const FILES: [(&str, &str); 5] = [
    ("ArchivePopulator", "crates/operator/src/populators/conditions.rs"),
    ("NodeStorage", "src/controllers/conditions.rs"),
    ("PvcSourcePopulator", "crates/operator/src/populators/conditions.rs"),
    ("PvcAutoscaler", "crates/operator/src/claims/conditions.rs"),
    ("StoragePool", "src/controllers/pools.rs"),
];

/// Judges the pools and volume groups of a node.
const OF_NODES: &str = "src/controllers/storage.rs";

/// Names of the types of conditions stand in these files too.
const TYPES: [&str; 2] = ["crates/k8s/src/api/condition.rs", "crates/k8s/src/api/node_storage.rs"];

/// Types of the conditions of each kind, with the reasons that the code spells out.
pub type Conditions = BTreeMap<(String, String), BTreeSet<String>>;

/// Reads the code: a type stands beside the function that judges it, and the function has the reasons.
pub fn written() -> Conditions {
    every_file_is_known();
    let shared: String = TYPES.map(code).concat();
    let mut found = Conditions::new();
    for (kind, file) in FILES {
        let code = code(file);
        let names = constants(&(shared.clone() + &code));
        let before = found.len();
        for (type_, function) in judges(&code) {
            let type_ = names.get(&type_).unwrap_or_else(|| panic!("{file}: {type_}")).clone();
            let reasons = reasons(body(&code, &function), &names);
            assert!(!reasons.is_empty(), "{file}: {function} has no reason");
            found.insert((kind.to_owned(), type_), reasons);
        }
        assert!(found.len() > before, "{file}: no condition is found");
    }
    found
}

/// Returns the conditions with those reasons that are values of an enum.
pub fn all() -> Conditions {
    let mut found = written();
    let mut add = |type_: &str, reasons: Vec<String>| {
        found.get_mut(&("PvcAutoscaler".to_owned(), type_.to_owned())).unwrap().extend(reasons);
    };
    add("Ready", phases());
    let of = |stalls: bool| {
        AutoscalerReason::ALL
            .into_iter()
            .filter(move |reason| reason.is_warning() && reason.needs_action() == stalls)
            .map(|reason| reason.to_string())
            .collect()
    };
    add("Reconciling", of(false));
    add("Stalled", of(true));
    let storage = code("crates/node/src/node/report.rs");
    let names = constants(&code("crates/node/src/node/storage.rs"));
    for (part, function) in [("pools", "how"), ("volumeGroups", "group_status")] {
        let key = (format!("NodeStorage.{part}"), "Ready".to_owned());
        found.insert(key, reasons(body(&storage, function), &names));
    }
    found
}

/// Phases of a PvcAutoscaler, which are the reasons why it is not ready.
fn phases() -> Vec<String> {
    let all = definitions();
    let kind = all.iter().find(|one| one.spec.names.kind == "PvcAutoscaler").unwrap();
    let value = serde_json::to_value(&kind.spec.versions[0].schema).unwrap();
    let phase = &value["openAPIV3Schema"]["properties"]["status"]["properties"]["phase"]["enum"];
    serde_json::from_value(phase.clone()).unwrap()
}

/// A file that judges conditions and is not in the list would be left out.
fn every_file_is_known() {
    for path in product() {
        let name = path.display().to_string();
        let text = code(&name);
        let judges = text.contains("-> Judged {") && text.contains("use crate::api::");
        // Its reasons are those that the node has found: `all` adds them.
        let is_known = name == OF_NODES || FILES.iter().any(|(_, file)| *file == name);
        assert!(!judges || is_known, "{name} judges conditions: add it with its kind");
    }
}

/// Code of a file without comments and tests.
fn code(file: &str) -> String {
    let text = read(Path::new(file));
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |code, line| code + line + "\n")
}

/// Constants that are texts.
fn constants(code: &str) -> BTreeMap<String, String> {
    let one = Regex::new(r#"const ([A-Z_]+): &str = "([^"]*)";"#).unwrap();
    one.captures_iter(code).map(|found| (found[1].to_owned(), found[2].to_owned())).collect()
}

/// Pairs of a type and the function that judges it: `(READY, ready(…))` or `ready(…).condition(READY, …)`.
fn judges(code: &str) -> Vec<(String, String)> {
    let judge = Regex::new(r"(?m)^(?:pub\S* )?fn (\w+)\([^)]*\) -> Judged \{").unwrap();
    let names = judge.captures_iter(code).map(|found| found[1].to_owned());
    let mut pairs = Vec::new();
    for name in names {
        let table = Regex::new(&format!(r"\(([A-Z_]+), {name}\(")).unwrap();
        let call = Regex::new(&format!(r"{name}\([^;]*\.condition\(\s*([A-Z_]+),")).unwrap();
        let type_ = table.captures(code).or_else(|| call.captures(code));
        pairs.push((type_.unwrap_or_else(|| panic!("of what is {name}?"))[1].to_owned(), name));
    }
    pairs
}

fn body<'a>(code: &'a str, function: &str) -> &'a str {
    let (_, rest) = code.split_once(&format!("fn {function}(")).unwrap();
    rest.split("\n}\n").next().unwrap()
}

/// Words in quotation marks, and constants, that can be a reason.
fn reasons(body: &str, names: &BTreeMap<String, String>) -> BTreeSet<String> {
    let word = Regex::new(r#""([A-Z][A-Za-z]+)"|\b([A-Z_]{3,})\b"#).unwrap();
    let found = word.captures_iter(body).filter_map(|found| match found.get(1) {
        Some(word) => Some(word.as_str().to_owned()),
        None => names.get(&found[2]).cloned(),
    });
    found.collect()
}
