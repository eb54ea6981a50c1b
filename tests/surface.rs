//! One file lists all that people and programs can name, so that each change of it is a line of a diff.

mod conditions;
mod reasons;
mod repository;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};
use pliant::api::definitions;
use pliant::claims::AutoscalerReason;
use pliant::cli::Cli;
use pliant::controllers::events::EventReason;
use pliant::metrics::TABLE;
use pliant::populators::PopulatorReason;
use pliant::volume::{Class, DRIVER, FsKind, Layout, Safety, TOPOLOGY, VolumeCondition, Wipe};
use repository::{files, product, read};
use serde_json::Value;

const FILE: &str = "docs/surface.txt";

/// Under `SURFACE=write`, as `docs/surface` sets it, it is written.
#[test]
fn the_surface_is_the_one_of_the_code() {
    let now = surface();
    if std::env::var("SURFACE").is_ok_and(|mode| mode == "write") {
        fs::write(FILE, &now).unwrap();
    }
    let there = fs::read_to_string(FILE).unwrap_or_default();
    let (old, new) = (lines(&there), lines(&now));
    let gone = old.difference(&new).map(|line| format!("- {line}\n"));
    let added = new.difference(&old).map(|line| format!("+ {line}\n"));
    let changes: String = gone.chain(added).collect();
    assert!(there == now, "{FILE} is old; if the change is meant, type: docs/surface\n{changes}");
}

#[test]
fn no_group_of_the_surface_is_empty() {
    for (name, group) in groups() {
        assert!(!group.is_empty(), "{name}");
        assert!(group.iter().all(|line| !line.contains('\n')), "{name}");
    }
}

fn lines(text: &str) -> BTreeSet<&str> {
    text.lines().collect()
}

fn surface() -> String {
    let head = "# All that people and programs can name. Written by `docs/surface`, compared by `tests/surface.rs`.\n";
    let group = |(name, group): (&str, BTreeSet<String>)| {
        let lines: Vec<String> = group.iter().map(|line| format!("{name} {line}\n")).collect();
        format!("\n# {name}: {}\n{}", group.len(), lines.concat())
    };
    head.to_owned() + &groups().into_iter().map(group).collect::<String>()
}

/// Each group by the word that begins its lines.
fn groups() -> Vec<(&'static str, BTreeSet<String>)> {
    let (kinds, fields) = resources();
    vec![
        ("kind", kinds),
        ("field", fields),
        ("command", commands()),
        ("environment", environment()),
        ("parameter", parameters()),
        ("capability", capabilities()),
        ("event", events()),
        ("health", VolumeCondition::REASONS.map(str::to_owned).into()),
        ("condition", conditions()),
        ("state", states()),
        ("error", errors()),
        ("metric", metrics()),
        ("alert", alerts()),
        ("tag", tags()),
        ("volume", volumes()),
        ("key", keys()),
        ("value", values()),
        ("policy", policies()),
        ("port", ports()),
    ]
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn words(value: &Value) -> String {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    list(value).map(word).collect::<Vec<_>>().join("|")
}

/// Kinds with what kubectl calls and shows, and all their fields.
fn resources() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut kinds, mut found) = (BTreeSet::new(), BTreeSet::new());
    for definition in definitions() {
        let spec = serde_json::to_value(&definition.spec).unwrap();
        let names = &spec["names"];
        let kind = text(&names["kind"]);
        for version in list(&spec["versions"]) {
            kinds.insert(format!(
                "{kind} {}/{} {} {} short={} categories={}",
                text(&spec["group"]),
                text(&version["name"]),
                text(&spec["scope"]),
                text(&names["plural"]),
                words(&names["shortNames"]),
                words(&names["categories"]),
            ));
            for column in list(&version["additionalPrinterColumns"]) {
                let [name, path] = ["name", "jsonPath"].map(|part| text(&column[part]));
                let priority = column["priority"].as_i64().unwrap_or_default();
                kinds.insert(format!("{kind} column {name}={path} priority={priority}"));
            }
            for field in list(&version["selectableFields"]) {
                kinds.insert(format!("{kind} selectable {}", text(&field["jsonPath"])));
            }
            let root = &version["schema"]["openAPIV3Schema"]["properties"];
            for part in ["spec", "status"] {
                fields(&root[part], &format!("{kind}.{part}"), &mut found);
            }
        }
    }
    (kinds, found)
}

fn fields(object: &Value, path: &str, found: &mut BTreeSet<String>) {
    let required: Vec<&str> = list(&object["required"]).map(text).collect();
    for (name, field) in object["properties"].as_object().into_iter().flatten() {
        let mut line = format!("{path}.{name} {}", kind(field));
        if required.contains(&name.as_str()) {
            line += " required";
        }
        line.extend(field.get("default").map(|default| format!(" default={default}")));
        found.insert(line);
        let path = format!("{path}.{name}");
        fields(field, &path, found);
        fields(&field["items"], &format!("{path}[]"), found);
        fields(&field["additionalProperties"], &format!("{path}.*"), found);
    }
}

/// The type of a field, and the values that it can have.
fn kind(field: &Value) -> String {
    let plain = match text(&field["type"]) {
        "" if field["x-kubernetes-int-or-string"] == true => "integer-or-string".to_owned(),
        "array" => format!("[]{}", kind(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map of {}", kind(&field["additionalProperties"]))
        }
        plain => plain.to_owned(),
    };
    let format = field["format"].as_str().map(|format| format!(":{format}"));
    let values = field.get("enum").map(|values| format!("({})", words(values)));
    plain + &format.unwrap_or_default() + &values.unwrap_or_default()
}

/// Commands, their arguments and flags, and the variables of those.
fn commands() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    below(&Cli::command(), "pliant", &mut found);
    found
}

fn below(command: &Command, path: &str, found: &mut BTreeSet<String>) {
    for one in command.get_subcommands() {
        let path = format!("{path} {}", one.get_name());
        let aliases: Vec<&str> = one.get_all_aliases().collect();
        let hidden = if one.is_hide_set() { " hidden" } else { "" };
        let aliases: Vec<String> = aliases.iter().map(|alias| format!(" alias={alias}")).collect();
        let aliases = aliases.concat();
        found.insert(format!("{path}{aliases}{hidden}"));
        below(one, &path, found);
    }
    found.extend(command.get_arguments().map(|arg| format!("{path} {}", argument(arg))));
}

fn argument(arg: &Arg) -> String {
    let name =
        arg.get_long().map_or_else(|| format!("<{}>", arg.get_id()), |long| format!("--{long}"));
    let mut line = name;
    line.extend(arg.get_short().map(|short| format!(" -{short}")));
    if arg.get_action().takes_values() {
        let names = arg.get_value_names().unwrap_or_default();
        line.extend(names.iter().map(|name| format!(" {name}")));
        let values: Vec<String> =
            arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        line.extend((!values.is_empty()).then(|| format!(" ({})", values.join("|"))));
    }
    for (given, word) in [
        (arg.is_required_set(), " required"),
        (arg.is_hide_set(), " hidden"),
        (matches!(arg.get_action(), ArgAction::Append), " repeatable"),
    ] {
        line += if given { word } else { "" };
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    line.extend(defaults.map(|value| format!(" default={value}")));
    line.extend(arg.get_env().map(|name| format!(" env={}", name.to_string_lossy())));
    line
}

/// All variables. Those that no flag reads have no table, so each is the literal where it is read.
fn environment() -> BTreeSet<String> {
    let is_ours = |word: &&String| {
        let begins =
            ["OTEL_", "PLIANT_", "KUBERNETES_"].iter().any(|start| word.starts_with(start));
        begins
            || ["KUBECONFIG", "NO_COLOR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]
                .contains(&word.as_str())
    };
    let upper = |word: &&String| word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let found = literals();
    found.iter().filter(is_ours).filter(upper).cloned().collect()
}

/// Parameters of a StorageClass, as the refusal of an unknown one lists them, and their words.
fn parameters() -> BTreeSet<String> {
    let unknown = BTreeMap::from([("0".to_owned(), String::new())]);
    let refused = Class::parse(&unknown, None, FsKind::Ext4).unwrap_err().reason;
    let keys = refused.rsplit_once(" are ").unwrap().1.split(", ");
    let values = |key: &str| match key {
        "layout" => Layout::ALL.map(Layout::as_str).join("|"),
        "wipe" => Wipe::ALL.map(Wipe::as_str).join("|"),
        "resizeSnapshot" => Safety::ALL.map(Safety::as_str).join("|"),
        "csi.storage.k8s.io/fstype" => FsKind::ALL.map(FsKind::as_str).join("|"),
        _ => "string".to_owned(),
    };
    keys.map(|key| format!("{key} {}", values(key))).collect()
}

/// What the services declare stands in the functions that answer it, which belong to `csi` alone.
fn capabilities() -> BTreeSet<String> {
    let code = code(Path::new("crates/csi/src/reply.rs"));
    let mut found = BTreeSet::from([format!("driver {DRIVER}"), format!("topology {TOPOLOGY}")]);
    for service in ["plugin", "controller", "node"] {
        let body = code.split_once(&format!("fn {service}_capabilities()")).unwrap().1;
        let body = body.split("\n}\n").next().unwrap();
        if service == "plugin" {
            let named = body.lines().filter(|line| line.trim_start().starts_with("use "));
            let named = named.filter_map(|line| line.split_once('{')?.1.split_once('}'));
            found.extend(
                named.flat_map(|(names, _)| names.split(", ")).map(|one| format!("plugin {one}")),
            );
        } else {
            let named = body.lines().filter_map(|line| line.trim().strip_prefix("Type::"));
            found.extend(named.map(|name| format!("{service} {}", name.trim_end_matches(','))));
        }
    }
    found
}

/// Reasons of events and of what a status says.
fn events() -> BTreeSet<String> {
    let level = |warns| if warns { "Warning" } else { "Normal" };
    let nodes = EventReason::ALL.map(|reason| format!("{reason} {}", level(reason.is_warning())));
    let populators = PopulatorReason::ALL.map(|reason| {
        let level = if reason.is_told() { level(reason.is_warning()) } else { "status only" };
        format!("{reason} {level}")
    });
    let autoscalers =
        AutoscalerReason::ALL.map(|reason| format!("{reason} {}", level(reason.is_warning())));
    let of_any = reasons::OF_ANY_OBJECT.map(str::to_owned);
    nodes.into_iter().chain(populators).chain(autoscalers).chain(of_any).collect()
}

/// Types of conditions of each kind, and their reasons.
fn conditions() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for ((kind, type_), reasons) in conditions::all() {
        found.extend(reasons.iter().map(|reason| format!("{kind} {type_} reason {reason}")));
        found.insert(format!("{kind} {type_}"));
    }
    found
}

/// The variants of an enum without a list of them, by its text.
fn variants(file: &str, name: &str) -> BTreeSet<String> {
    let code = code(Path::new(file));
    let body = code.split_once(&format!("pub enum {name} {{\n")).unwrap().1;
    let body = body.split("\n}\n").next().unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.map(|line| line.trim_end_matches(&[',', ' ', '{'][..]));
    let is_name = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric())
    };
    names.filter(is_name).map(str::to_owned).collect()
}

/// What `pliant explain` calls the state of a claim.
fn states() -> BTreeSet<String> {
    variants("crates/kubectl/src/commands/explain/explanation.rs", "ClaimState")
}

fn errors() -> BTreeSet<String> {
    variants("crates/volume/src/error.rs", "VolumeError")
}

fn metrics() -> BTreeSet<String> {
    let line = |figure: &pliant::metrics::Figure| {
        format!("{} {} {{{}}}", figure.name, figure.kind.as_str(), figure.labels.join(","))
    };
    TABLE.iter().map(line).collect()
}

fn alerts() -> BTreeSet<String> {
    let alerts = yaml("charts/pliant/files/alerts.yaml");
    let rules = list(&alerts["groups"]).flat_map(|group| list(&group["rules"]));
    let line = |rule: &Value| {
        let name = rule["alert"].as_str().or(rule["record"].as_str()).unwrap();
        format!("{name} {} for={}", text(&rule["labels"]["severity"]), text(&rule["for"]))
    };
    rules.map(line).collect()
}

/// Keys of tags have no table: each is written by `tags::tag`, with a literal or a constant of that file.
fn tags() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files("crates/node/src/node", "rs") {
        let code = code(&file);
        for (_, rest) in
            code.match_indices("tags::tag(").map(|(at, call)| (at, &code[at + call.len()..]))
        {
            let key = rest.split(',').next().unwrap();
            let key = match key.strip_prefix('"') {
                Some(literal) => literal.trim_end_matches('"').to_owned(),
                None => constant(key.trim_start_matches("lv_tags::")),
            };
            found.insert(format!("pliant.{key}"));
        }
    }
    found
}

/// The value of a constant of `crates/node/src/node/lv_tags.rs`.
fn constant(name: &str) -> String {
    let code = code(Path::new("crates/node/src/node/lv_tags.rs"));
    let rest =
        code.split_once(&format!("const {name}: &str = \"")).unwrap_or_else(|| panic!("{name}"));
    rest.1.split('"').next().unwrap().to_owned()
}

/// Names of logical volumes and groups, as the formats of `crates/node/src/node` make them.
fn volumes() -> BTreeSet<String> {
    let code = code(Path::new("crates/node/src/node/lv_tags.rs"));
    let prefix = constant("PREFIX");
    let found = in_quotes(&code)
        .into_iter()
        .filter_map(|word| Some(format!("{prefix}<key>{}", word.strip_prefix("{PREFIX}{}")?)));
    found.collect()
}

/// Annotations, labels, finalizers and gates have no table: each is a literal.
fn keys() -> BTreeSet<String> {
    let found = literals().into_iter();
    found
        .filter(|word| {
            word.starts_with("pliant.io/")
                && !["pliant.io/", "pliant.io/v1alpha1"].contains(&word.as_str())
        })
        .collect()
}

/// Values of the chart with their types and defaults.
fn values() -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&read("charts/pliant/values.schema.json")).unwrap();
    let mut found = BTreeSet::new();
    flatten(&yaml("charts/pliant/values.yaml"), &schema, &schema, "", &mut found);
    found
}

fn flatten(values: &Value, schema: &Value, root: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, value) in values.as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let place = resolved(&resolved(schema, root)["properties"][name], root);
        if value.as_object().is_some_and(|fields| !fields.is_empty()) {
            flatten(value, place, root, &path, found);
        } else {
            let kind = match (&place["type"], &place["enum"]) {
                (_, values @ Value::Array(_)) => format!("({})", words(values)),
                (kinds @ Value::Array(_), _) => words(kinds),
                (kind, _) => kind.as_str().unwrap_or("any").to_owned(),
            };
            found.insert(format!("{path} {kind} default={value}"));
        }
    }
}

fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let named = schema["$ref"].as_str().and_then(|to| to.strip_prefix("#/definitions/"));
    named.map_or(schema, |name| &root["definitions"][name])
}

/// The objects that the chart renders, as `charts/lint` has kept them.
fn rendered(snapshot: &str) -> Vec<Value> {
    let text = read(format!("charts/snapshots/{snapshot}.yaml"));
    let is_object = |text: &&str| text.lines().any(|line| line.starts_with("kind: "));
    let parts = text.split("\n---").filter(is_object).map(serde_saphyr::from_str);
    parts.map(|object| object.unwrap_or_else(|error| panic!("{snapshot}: {error}"))).collect()
}

fn policies() -> BTreeSet<String> {
    let objects = rendered("cluster").into_iter();
    let policies = objects.filter(|one| one["kind"] == "ValidatingAdmissionPolicy");
    policies.map(|one| text(&one["metadata"]["name"]).to_owned()).collect()
}

/// Ports of the pods of the chart, and the one at which a volume is sent.
fn ports() -> BTreeSet<String> {
    let mut found = BTreeSet::from([format!("send {}", pliant::remote::PORT)]);
    for object in rendered("everything") {
        let pod = &object["spec"]["template"]["spec"];
        for port in list(&pod["containers"]).flat_map(|container| list(&container["ports"])) {
            let role = text(&object["metadata"]["labels"]["app.kubernetes.io/component"]);
            found.insert(format!("{role} {} {}", text(&port["name"]), port["containerPort"]));
        }
    }
    found
}

/// The code of a file that is no comment and no test.
fn code(file: &Path) -> String {
    if file.components().any(|part| part.as_os_str() == "tests") || file.ends_with("tests.rs") {
        return String::new();
    }
    let text = read(file);
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    code.lines().filter(is_code).fold(String::new(), |code, line| code + line + "\n")
}

/// The literals that stand alone between two quotes of a line.
fn in_quotes(code: &str) -> Vec<String> {
    code.lines().flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn literals() -> BTreeSet<String> {
    let is_test = |file: &std::path::PathBuf| {
        file.starts_with("src/testing")
            || file.ends_with("src/testing.rs")
            || ["crates/fake-host", "crates/fake-apiserver"]
                .iter()
                .any(|part| file.starts_with(part))
    };
    let files = product().into_iter().filter(|file| !is_test(file));
    files.flat_map(|file| in_quotes(&code(&file))).collect()
}
