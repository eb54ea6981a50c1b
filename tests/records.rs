//! The pages of the records say what their definitions say.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use pliant::api::{Quantity, definitions};
use schemars::schema_for;
use serde_json::Value;

const PAGES: &str = "docs/src/reference/api";

/// Under `RECORDS=write`, as `docs/records` sets it, they are written.
#[test]
fn the_pages_of_the_records_are_those_of_the_definitions() {
    let writes = std::env::var("RECORDS").is_ok_and(|mode| mode == "write");
    let mut kinds = BTreeSet::new();
    for definition in definitions() {
        let page = page(&serde_json::to_value(&definition).unwrap());
        let path = Path::new(PAGES).join(format!("{}.md", definition.spec.names.kind));
        if writes {
            fs::create_dir_all(PAGES).unwrap();
            fs::write(&path, &page).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(there == page, "{} is old; type: docs/records", path.display());
        kinds.insert(path);
    }
    let there = fs::read_dir(PAGES).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(there.collect::<BTreeSet<_>>(), kinds);
}

fn page(definition: &Value) -> String {
    let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
    let (kind, version) = (text(&names["kind"]), &spec["versions"][0]);
    let root = &version["schema"]["openAPIV3Schema"];
    let scope = if spec["scope"] == "Namespaced" { "In a namespace" } else { "Cluster-wide" };
    let spoken = [vec![text(&names["plural"])], words(&names["shortNames"])].concat();
    let head = format!(
        "# {kind}\n\n<!-- Written by `docs/records` from what `pliant crds` prints, whose words are those of \
         crates/k8s/src/api. -->\n\n{}\n\n{scope}, `{}/{}`; for kubectl `{}`, and in the category `{}`. What these fields do \
         together is in the [API reference](../api.md#{}).\n",
        text(&root["description"]),
        text(&spec["group"]),
        text(&version["name"]),
        spoken.join("` or `"),
        words(&names["categories"]).join("`, `"),
        kind.to_lowercase(),
    );
    let parts = ["spec", "status"].map(|part| section(part, &root["properties"][part]));
    let whole = rules(root).map(|rules| format!("\nRules for the whole object. {rules}\n"));
    [head, whole.unwrap_or_default(), columns(version), parts.concat()].concat()
}

/// What `kubectl get` shows and takes.
fn columns(version: &Value) -> String {
    let mut section = "\n## What `kubectl get` shows\n\n| column | field |\n|---|---|\n".to_owned();
    for column in list(&version["additionalPrinterColumns"]) {
        let wide = if column["priority"] == 1 { ", with `--output wide`" } else { "" };
        let (name, path) = (text(&column["name"]), text(&column["jsonPath"]));
        writeln!(section, "| {name} | `{path}`{wide} |").unwrap();
    }
    let selectable = list(&version["selectableFields"]).map(|field| text(&field["jsonPath"]));
    let selectable: Vec<&str> = selectable.map(|path| path.trim_start_matches('.')).collect();
    if !selectable.is_empty() {
        writeln!(section, "\nFields for `--field-selector`: `{}`.", selectable.join("`, `"))
            .unwrap();
    }
    section
}

/// `spec` or `status`, with a table of all fields below it.
fn section(name: &str, schema: &Value) -> String {
    let mut section = format!("\n## {name}\n\n{}\n", text(&schema["description"]));
    section.extend(rules(schema).map(|rules| format!("\n{rules}\n")));
    section += "\n| field | type | default | limits | what it means |\n|---|---|---|---|---|\n";
    fields(schema, "", &mut section);
    section
}

/// A row for each field of an object, and below it those of what it holds.
fn fields(object: &Value, path: &str, table: &mut String) {
    let required = words(&object["required"]);
    for (name, field) in object["properties"].as_object().into_iter().flatten() {
        let default = match &field["default"] {
            Value::Null if required.contains(&name.as_str()) => "required".to_owned(),
            Value::Null => String::new(),
            Value::String(default) if !default.is_empty() => format!("`{default}`"),
            default => format!("`{default}`"),
        };
        let (path, limits) = (format!("{path}{name}"), limits(field).join("; "));
        // Kubernetes itself writes `<operator>` where a word is to be put.
        let meaning = meaning(field).join(" ").replace('<', "&lt;");
        let kind = kind(field);
        let cells = [format!("`{path}`"), kind, default, limits, meaning];
        let cells = cells.map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" "));
        writeln!(table, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")).unwrap();
        fields(field, &format!("{path}."), table);
        fields(&field["items"], &format!("{path}[]."), table);
        fields(&field["additionalProperties"], &format!("{path}.*."), table);
    }
}

fn kind(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    if is_quantity(field) {
        return "quantity".to_owned();
    }
    match (text(&field["type"]), text(&field["format"])) {
        ("array", _) => format!("list of {}", many(&field["items"])),
        ("object", _) if field["additionalProperties"].is_object() => {
            format!("map of {}", many(&field["additionalProperties"]))
        }
        (_, "date-time") => "time".to_owned(),
        (plain, _) => plain.to_owned(),
    }
}

fn many(field: &Value) -> String {
    format!("{}s", kind(field)).replace("quantitys", "quantities")
}

fn is_quantity(field: &Value) -> bool {
    schema_for!(Quantity).get("pattern") == field.get("pattern")
}

/// What a value may be.
fn limits(field: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    if is_quantity(field) {
        return limits;
    }
    let values = words(&field["enum"]);
    if !values.is_empty() {
        limits.push(format!("`{}`", values.join("`, `")));
    }
    let bounds = [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " keys"),
    ];
    for (least, most, of) in bounds {
        limits.extend(match (field[least].as_f64(), field[most].as_f64()) {
            (Some(least), Some(most)) => Some(format!("{least} to {most}{of}")),
            (Some(least), None) => Some(format!("at least {least}{of}")),
            (None, Some(most)) => Some(format!("at most {most}{of}")),
            (None, None) => None,
        });
    }
    limits.extend(field["pattern"].as_str().map(|pattern| format!("`{pattern}`")));
    let keys = words(&field["x-kubernetes-list-map-keys"]);
    if !keys.is_empty() {
        limits.push(format!("one for each `{}`", keys.join("`, `")));
    }
    let one_of: Vec<&str> = list(&field["oneOf"]).flat_map(|one| words(&one["required"])).collect();
    if !one_of.is_empty() {
        limits.push(format!("exactly one of `{}`", one_of.join("`, `")));
    }
    for held in held(field) {
        let each = self::limits(held).join(", ");
        limits.extend((!each.is_empty()).then(|| format!("each: {each}")));
    }
    limits
}

/// The sentences about a field, and about each of those that it holds.
fn meaning(field: &Value) -> Vec<String> {
    let mut said = vec![text(&field["description"]).to_owned()];
    said.extend(rules(field));
    said.extend(held(field).flat_map(meaning));
    said.retain(|sentence| !sentence.is_empty());
    said
}

/// What is said of a value that a rule refuses.
fn rules(field: &Value) -> Option<String> {
    let messages = list(&field["x-kubernetes-validations"]).map(|rule| text(&rule["message"]));
    let messages = messages.collect::<Vec<_>>().join("*; *");
    (!messages.is_empty()).then(|| format!("Others are refused: *{messages}*."))
}

/// What a list or a map holds.
fn held(field: &Value) -> impl Iterator<Item = &Value> {
    ["items", "additionalProperties"].into_iter().filter_map(|part| field.get(part))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn words(value: &Value) -> Vec<&str> {
    list(value).map(text).collect()
}
