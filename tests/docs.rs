//! The documents say what the code does, and their links lead somewhere.

#![allow(clippy::disallowed_methods)] // No room of the driver: it starts the binary itself.

mod conditions;
mod reasons;
mod repository;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{CommandFactory, Parser};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, ResourceExt};
use pliant::api::{PvcAutoscaler, VolumePopulator};
use pliant::claims::AutoscalerReason;
use pliant::cli::Cli;
use pliant::controllers::events::EventReason;
use pliant::host::TOOLS;
use pliant::metrics::TABLE;
use pliant::populators::PopulatorReason;
use repository::{blocks, files, product, read};

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "md")
}

fn pages() -> Vec<PathBuf> {
    let top = fs::read_dir(".").unwrap().map(|entry| PathBuf::from(entry.unwrap().file_name()));
    let mut pages: Vec<PathBuf> = top.filter(|path| is_markdown(path)).collect();
    pages.push(PathBuf::from("charts/pliant/README.md"));
    pages.extend(files("docs/src", "md"));
    pages
}

/// Texts of the source files below a directory.
fn sources(dir: &Path) -> Vec<String> {
    files(dir, "rs").iter().map(read).collect()
}

/// Texts of the source files of the product.
fn code_of_product() -> Vec<String> {
    product().iter().map(read).collect()
}

/// What stands in `](…)`, outside of code.
fn links(text: &str) -> Vec<String> {
    let blocks = text.split("```").step_by(2);
    let prose = blocks.map(|part| part.split('`').step_by(2).collect::<String>());
    prose
        .flat_map(|part| {
            let links = part.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            links.map(|(link, _)| link.to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

/// First cells of a table's rows that are written as code.
fn rows(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(cell, _)| cell.to_owned())
        .collect()
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let mut count = 0;
    for page in pages() {
        for link in links(&read(&page)) {
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            count += 1;
            let target = page.parent().unwrap().join(target);
            assert!(target.exists(), "{}: {link}", page.display());
        }
    }
    assert!(count > 40, "only {count} links are found");
}

/// What stands between single backticks.
fn code_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Code between single backticks, outside blocks.
fn code_words(text: &str) -> Vec<&str> {
    text.split("```").step_by(2).flat_map(code_in).collect()
}

#[test]
fn every_source_file_that_the_documents_name_exists() {
    let sources: Vec<PathBuf> = product().into_iter().chain(files("e2e/cluster", "rs")).collect();
    let exists =
        |name: &str| Path::new(name).exists() || sources.iter().any(|file| file.ends_with(name));
    let (mut count, mut missing) = (0, Vec::new());
    for page in pages() {
        let text = read(&page);
        let names = code_words(&text)
            .into_iter()
            .filter(|word| Path::new(word).extension().is_some_and(|its| its == "rs"));
        for name in names.inspect(|_| count += 1).filter(|name| !exists(name)) {
            missing.push(format!("{}: {name}", page.display()));
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    assert!(count > 100, "only {count} files are found");
}

#[test]
fn every_page_is_in_the_summary() {
    let listed: BTreeSet<PathBuf> = links(&read("docs/src/SUMMARY.md"))
        .into_iter()
        .map(|link| Path::new("docs/src").join(link))
        .collect();
    let there: BTreeSet<PathBuf> = pages()
        .into_iter()
        .filter(|page| page.starts_with("docs/src") && !page.ends_with("SUMMARY.md"))
        .collect();
    assert_eq!(listed, there);
}

#[test]
fn every_class_parameter_is_documented() {
    let code = read("crates/volume/src/class.rs");
    let keys: BTreeSet<String> = code
        .lines()
        .filter_map(|line| line.trim().strip_prefix("/// `")?.split_once("`: "))
        .map(|(key, _)| key.to_owned())
        .collect();
    assert!(keys.contains("mkfsOptions"), "{keys:?}");
    let page = read("docs/src/reference/storage-class.md");
    let parameters = page.split("\n## ").next().unwrap();
    assert_eq!(rows(parameters), keys);
}

#[test]
fn every_flag_is_documented() {
    let cli = Cli::command();
    let standalone = cli.find_subcommand("standalone").unwrap();
    let flags: BTreeSet<String> = standalone
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .filter(|flag| *flag != "help")
        .map(|flag| format!("--{flag}"))
        .collect();
    let page = read("docs/src/reference/configuration.md");
    assert_eq!(rows(&page), flags);
}

#[test]
fn every_command_is_documented() {
    let cli = Cli::command();
    let commands: BTreeSet<String> =
        cli.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let page = read("docs/src/reference/commands.md");
    assert_eq!(rows(page.split("\n## ").next().unwrap()), commands);
}

#[test]
fn every_state_of_a_claim_is_documented_with_its_severity() {
    let code = read("crates/kubectl/src/commands/explain/explanation.rs");
    let states = code.split_once("pub enum ClaimState {").unwrap().1.split_once('}').unwrap().0;
    let states: BTreeSet<String> =
        states.lines().map(|line| line.trim().trim_end_matches(',').to_owned()).collect();
    let states: BTreeSet<String> = states.into_iter().filter(|state| !state.is_empty()).collect();
    let page = read("docs/src/reference/commands.md");
    let table = page.split("\n## ").find(|part| part.starts_with("What `explain`")).unwrap();
    assert_eq!(rows(table), states);
    let severities = code.split_once("fn severity(self)").unwrap().1;
    let mut state_words: Vec<&str> = Vec::new();
    for word in severities.split(|c: char| !c.is_ascii_alphanumeric() && c != ':') {
        if let Some(state) = word.strip_prefix("State::") {
            state_words.push(state);
        } else if let Some(severity) =
            word.strip_prefix("Severity::").filter(|_| !state_words.is_empty())
        {
            for state in state_words.drain(..) {
                let row = format!("| `{state}` | {} |", severity.to_lowercase());
                assert!(table.contains(&row), "{row}");
            }
        }
    }
}

#[test]
fn every_error_is_documented() {
    let code = read("crates/volume/src/error.rs");
    let variants: BTreeSet<String> = code
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.strip_suffix(" {"))
        .filter(|word| word.chars().all(|c| c.is_ascii_alphanumeric()))
        .map(str::to_owned)
        .collect();
    assert!(variants.contains("ExpansionOutOfRange"), "{variants:?}");
    let page = read("docs/src/reference/errors.md");
    let errors = page.split("\n## ").next().unwrap();
    assert_eq!(rows(errors), variants);
}

#[test]
fn the_table_of_metrics_is_the_one_of_the_code() {
    let page = read("docs/src/reference/metrics.md");
    for figure in TABLE {
        let labels: Vec<String> = figure.labels.iter().map(|label| format!("`{label}`")).collect();
        let row = format!(
            "| `{}` | {} | {} | {} |\n",
            figure.name,
            figure.kind.as_str(),
            labels.join(", "),
            figure.help
        );
        assert!(page.contains(&row), "{row}");
    }
    assert_eq!(rows(&page).len(), TABLE.len());
}

/// All reasons of events.
fn reasons() -> BTreeSet<String> {
    let ours = EventReason::ALL.map(|reason| reason.to_string());
    let populators = PopulatorReason::ALL.map(|reason| reason.to_string());
    let autoscalers = AutoscalerReason::ALL.map(|reason| reason.to_string());
    let of_any = reasons::OF_ANY_OBJECT.map(str::to_owned);
    ours.into_iter().chain(populators).chain(autoscalers).chain(of_any).collect()
}

#[test]
fn every_reason_of_an_event_has_its_page() {
    let there: BTreeSet<String> = fs::read_dir("docs/src/reference/events")
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(there, reasons());
    let index = read("docs/src/reference/events.md");
    for reason in &there {
        let row = format!("| [`{reason}`](events/{reason}.md) | ");
        assert_eq!(index.matches(&row).count(), 1, "{row}");
    }
    assert_eq!(index.matches("\n| [`").count(), there.len());
}

/// Rows of the tables of conditions: kind and type, and the reason that the row begins its last cell with.
fn documented_conditions() -> conditions::Conditions {
    let page = read("docs/src/reference/events.md");
    let mut found = conditions::Conditions::new();
    let heading = "\n### Conditions of a";
    let (_, sections) = page.split_once(heading).unwrap();
    for section in sections.split(heading) {
        let section = section.split("\n#").next().unwrap();
        let kinds = section.lines().next().unwrap().trim_start_matches('n').trim();
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let type_ = cells[1].trim_matches('`');
            let reason = cells[3].strip_prefix('`').and_then(|rest| rest.split_once('`'));
            for kind in kinds.split(" or ") {
                let reasons = found.entry((kind.to_owned(), type_.to_owned())).or_default();
                reasons.extend(reason.map(|(reason, _)| reason.to_owned()));
            }
        }
    }
    found
}

#[test]
fn the_conditions_of_each_kind_are_the_ones_of_the_code() {
    assert_eq!(documented_conditions(), conditions::written());
    // Those that are values of an enum stand in the other tables of the page, or in a cell together.
    let page = read("docs/src/reference/events.md");
    for (condition, reasons) in conditions::all() {
        for reason in reasons {
            assert!(page.contains(&format!("`{reason}`")), "{condition:?}: {reason}");
        }
    }
}

#[test]
fn every_page_of_an_event_says_on_what_it_is_and_what_to_type() {
    let cli = Cli::command();
    for reason in reasons() {
        let page = read(format!("docs/src/reference/events/{reason}.md"));
        let (meaning, todo) = page.split_once("\n\n## Commands to run\n\n").unwrap_or_default();
        let paragraphs: Vec<&str> = meaning.split("\n\n").collect();
        let [title, on, _, ..] = paragraphs[..] else {
            panic!("{reason} does not say what it means")
        };
        assert_eq!(title, format!("# {reason}"));
        assert!(on.starts_with("On ") && on.ends_with('.'), "{reason}: {on}");
        let commands = todo.split_once("```sh\n").unwrap_or_default().1;
        assert!(commands.starts_with("kubectl "), "{reason} does not say what to type");
        for line in commands.lines().filter_map(|line| line.strip_prefix("kubectl pliant ")) {
            let name = line.split(' ').next().unwrap();
            assert!(cli.find_subcommand(name).is_some(), "{reason}: {line}");
        }
    }
}

/// Comments name files, and messages the title of a page: `see "Populate a volume" in the documentation`.
#[test]
fn every_page_that_the_code_names_is_there() {
    let mut texts = code_of_product();
    texts.push(read("charts/pliant/values.yaml"));
    let summary = read("docs/src/SUMMARY.md");
    let mut titles = 0;
    for text in &texts {
        for (at, _) in text.match_indices("docs/") {
            let path =
                text[at..].split(|c: char| c.is_whitespace() || "`\"'),;".contains(c)).next();
            let path = path.unwrap().trim_end_matches('.');
            assert!(Path::new(path).exists(), "{path}");
        }
        let text = text.replace("\\\"", "\"").replace("\\\n", " ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (at, _) in text.match_indices(" in the documentation") {
            let before = &text[..at];
            let quoted = before.strip_suffix('"').and_then(|before| before.rsplit('"').next());
            let title = quoted.or_else(|| before.rsplit(' ').next()).unwrap();
            assert!(summary.contains(&format!("[{title}]")), "`{title}` is no page");
            titles += 1;
        }
    }
    assert!(titles > 3, "only {titles} are found");
}

#[test]
fn every_field_manager_is_documented() {
    let code = code_of_product().concat();
    let manager = |rest: &str| {
        let (name, value) = rest.lines().next()?.split_once(": &str = \"")?;
        let is_one = ["CONTROLLER", "EDITOR", "NODE_PLUGIN", "OPERATOR", "WRITER"].contains(&name);
        is_one.then(|| value.trim_end_matches("\";").to_owned())
    };
    let managers: BTreeSet<String> = code.split("const ").filter_map(manager).collect();
    let page = read("docs/src/reference/metadata.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Field managers"));
    assert_eq!(rows(section.unwrap()), managers);
}

#[test]
fn every_field_of_a_policy_is_documented() {
    let definition = serde_json::to_value(PvcAutoscaler::crd()).unwrap();
    let spec =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let policy = &spec["properties"]["autoscale"]["properties"];
    let names = |fields: &serde_json::Value| -> Vec<String> {
        fields.as_object().unwrap().keys().cloned().collect()
    };
    let mut fields: BTreeSet<String> = names(policy).into_iter().collect();
    let shrink = names(&policy["shrink"]["properties"]);
    fields.extend(shrink.iter().map(|name| format!("shrink.{name}")));
    let page = read("docs/src/reference/autoscale.md");
    let table = page.split("\n## ").next().unwrap();
    assert_eq!(rows(table), fields);
}

/// `e2e/cluster/outputs` types what stands in blocks that are marked so, and `e2e/cluster/install-page` the
/// steps of its page; nothing types others.
#[test]
fn what_kubectl_prints_was_seen_on_a_cluster() {
    let mut seen = 0;
    for page in pages() {
        for (mark, block) in blocks(&read(&page)) {
            let typed = block.lines().any(|line| line.starts_with("$ kubectl "));
            if mark == "console step" {
                assert!(page.ends_with("how-to/install.md"), "{}: {block}", page.display());
                continue;
            }
            assert_eq!(typed, mark == "console seen", "{}: {block}", page.display());
            seen += usize::from(typed);
        }
    }
    assert!(seen > 5, "only {seen} blocks are found");
}

/// Who searches for what a program has printed finds it only as it was printed.
#[test]
fn every_text_of_the_faq_is_one_of_the_code() {
    let code = code_of_product().concat();
    // A text that goes on in the next line.
    let parts = code.split("\\\n").map(str::trim_start).collect::<String>();
    let code = parts.replace("\\\"", "\"").split_whitespace().collect::<Vec<_>>().join(" ");
    let page = read("docs/src/explanation/faq.md");
    let texts = page.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut count = 0;
    for part in texts.flat_map(|text| text.split('…')).map(str::trim) {
        // What stands between two names may be as short as a comma.
        if part.len() > 5 {
            assert!(code.contains(part), "{part}");
            count += 1;
        }
    }
    assert!(count > 20, "only {count} texts are found");
}

#[test]
fn the_readme_is_read_in_a_minute() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 120, "{lines} lines");
}

/// A figure of the page, by its name and the column behind it.
fn published(name: &str, column: usize) -> f64 {
    let page = read("docs/src/reference/benchmarks.md");
    let cells =
        |line: &str| line.split('|').map(|cell| cell.trim_matches([' ', '`']).to_owned()).collect();
    let mut rows = page.lines().map(cells).filter(|cells: &Vec<String>| cells.len() > 3);
    let row = rows.find(|cells| cells[1] == name).unwrap_or_else(|| panic!("no figure {name}"));
    row[1 + column].parse().unwrap()
}

#[test]
fn the_readme_says_what_was_published() {
    let readme = read("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    for (text, said, was) in [
        ("0.1 s from the edit", 0.1, published("edit_to_status_seconds", 1)),
        ("the node needs 22 ms", 22.0, published("grow_ext4", 2)),
        ("the plain commands 1,676 ms", 1676.0, published("grow_ext4", 1)),
        ("10 s of downtime for 15 GiB", 10.0, published("swap_pause_seconds_hot", 1)),
        ("103 s with the defaults", 103.0, published("swap_pause_seconds_cold", 1)),
        ("3,072 crash points of the driver", 3072.0, published("crash_points_survived", 1)),
        ("4,874 of the operator", 4874.0, published("autoscaler_crash_points_survived", 1)),
        ("137 power cuts on real LVM", 137.0, published("power_cuts", 1)),
        ("200 kills during swaps", 200.0, published("swap_kills", 1)),
        ("Lost: [0 bytes]", 0.0, published("swap_bytes_lost", 1)),
        ("Lost: [0 bytes]", 0.0, published("power_cut_states_lost", 1)),
        ("20 MiB of memory for 1,000 volumes", 20.0, published("rss_mib_1000_volumes", 1)),
        (
            "no process and no LVM command while idle",
            0.0,
            published("idle_lvm_commands_per_minute", 1),
        ),
    ] {
        assert!(readme.contains(text), "{text}");
        assert!((said - was).abs() <= was / 4.0, "{text}: {was} is published");
    }
}

#[test]
fn settings_files_in_the_documents_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut count = 0;
    for page in ["docs/src/reference/configuration.md", "docs/src/how-to/storage-pools.md"] {
        for (format, text) in blocks(&read(page)) {
            if !["toml", "yaml"].contains(&format.as_str()) {
                continue;
            }
            let file = dir.path().join(format!("{count}.{format}"));
            fs::write(&file, text).unwrap();
            let output = Command::new(assert_cmd::cargo::cargo_bin("pliant"))
                .arg("check-config")
                .arg(&file)
                .output()
                .unwrap();
            assert!(output.status.success(), "{page}: {}", String::from_utf8_lossy(&output.stderr));
            count += 1;
        }
    }
    assert_eq!(count, 4);
}

/// Objects in a block: of YAML, or between the marks of a command.
fn objects_in(kind: &str, text: &str) -> Vec<serde_json::Value> {
    let yaml = match text.split_once("<<") {
        Some((_, rest)) if kind == "sh" => {
            let (mark, rest) = rest.split_once('\n').unwrap();
            rest.split(&format!("\n{}", mark.trim_matches('\''))).next().unwrap().to_owned()
        }
        _ if kind == "yaml" => text.to_owned(),
        _ => return Vec::new(),
    };
    let documents = yaml.split("\n---\n").map(serde_saphyr::from_str);
    documents.filter_map(Result::ok).collect()
}

/// Paths of an object that its schema does not know.
fn unknown_fields(
    value: &serde_json::Value,
    schema: &serde_json::Value,
    path: &str,
) -> Vec<String> {
    match value {
        serde_json::Value::Object(fields) => {
            let Some(known) = schema["properties"].as_object() else { return Vec::new() };
            let each = fields.iter().flat_map(|(name, value)| match known.get(name) {
                Some(schema) => unknown_fields(value, schema, &format!("{path}.{name}")),
                None => vec![format!("{path}.{name}")],
            });
            each.collect()
        }
        serde_json::Value::Array(items) => {
            items.iter().flat_map(|item| unknown_fields(item, &schema["items"], path)).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn objects_of_ours_in_the_documents_have_only_known_fields() {
    let schemas: BTreeMap<String, serde_json::Value> = pliant::api::definitions()
        .iter()
        .map(|one| {
            let schema = &one.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema;
            (one.spec.names.kind.clone(), serde_json::to_value(schema).unwrap())
        })
        .collect();
    let mut count = 0;
    for page in pages() {
        for (kind, text) in blocks(&read(&page)) {
            for object in objects_in(&kind, &text) {
                let Some(schema) = object["kind"].as_str().and_then(|kind| schemas.get(kind))
                else {
                    continue;
                };
                let mut object = object.clone();
                let fields = object.as_object_mut().unwrap();
                fields
                    .retain(|name, _| !["apiVersion", "kind", "metadata"].contains(&name.as_str()));
                let unknown = unknown_fields(&object, schema, "");
                assert_eq!(unknown, Vec::<String>::new(), "{}: {object}", page.display());
                count += 1;
            }
        }
    }
    assert!(count >= 7, "only {count} are found");
}

/// `Stalled` is true only for what ends when a person acts.
#[test]
fn the_page_of_each_reason_names_its_condition() {
    for reason in AutoscalerReason::ALL {
        let page = read(format!("docs/src/reference/events/{reason}.md"));
        let on = page.split("\n\n").nth(1).unwrap();
        let wrong = if reason.needs_action() { "Reconciling" } else { "Stalled" };
        assert!(!on.contains(&format!("of its condition `{wrong}`")), "{reason}: {on}");
    }
}

#[test]
fn the_rules_for_udev_in_the_documents_are_those_of_the_code() {
    let page = read("docs/src/how-to/storage-classes.md");
    let shown = page.split_once("```udev\n").unwrap().1.split_once("```").unwrap().0;
    assert_eq!(shown, pliant::host::UDEV_RULES);
}

#[test]
fn the_chart_has_the_definitions_of_the_code() {
    let output = Command::new(assert_cmd::cargo::cargo_bin("pliant")).arg("crds").output().unwrap();
    let ours = read("charts/pliant/crds/pliant.yaml");
    assert!(
        ours == String::from_utf8(output.stdout).unwrap(),
        "charts/pliant/crds/pliant.yaml is old; type: charts/crds"
    );
}

#[test]
fn the_chart_has_the_standards_definition_of_a_volume_populator() {
    let text = read("charts/pliant/files/volumepopulators.yaml");
    let chart: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
    let ours = VolumePopulator::definition();
    assert_eq!(chart.spec, ours.spec);
    let mut annotations = chart.metadata.annotations.unwrap();
    assert_eq!(annotations.remove("helm.sh/resource-policy").as_deref(), Some("keep"));
    assert_eq!(
        (chart.metadata.name, Some(annotations)),
        (ours.metadata.name, ours.metadata.annotations)
    );
}

#[test]
fn the_image_installs_what_doctor_asks_for() {
    let packages: BTreeSet<String> =
        read("e2e/image/packages").lines().map(str::to_owned).collect();
    let mut asked: BTreeSet<String> = TOOLS.iter().map(|tool| tool.package.to_owned()).collect();
    // No program, but whose servers are believed when an archive is fetched.
    asked.insert("ca-certificates".to_owned());
    assert_eq!(packages, asked);
}

#[test]
fn the_scripts_of_the_image_are_shell() {
    let dockerfile = read("Dockerfile");
    for script in
        ["e2e/image/install", "e2e/image/build", "docs/figures", "docs/records", "docs/surface"]
    {
        let checked = Command::new("sh").arg("-n").arg(script).status().unwrap();
        assert!(checked.success(), "{script}");
    }
    for line in dockerfile.lines().filter_map(|line| line.strip_prefix("RUN ")) {
        let known = line.starts_with("e2e/image/build") || line.ends_with("pliant/install");
        assert!(known, "what an image runs belongs into a script: {line}");
    }
}

/// The words written as code in the last column of a page's tables.
fn last_column(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit_once(" | "));
    cells.flat_map(|(_, cell)| code_in(cell)).collect()
}

#[test]
fn every_promise_names_tests_that_exist() {
    let sources = ["src", "crates", "tests", "e2e"].map(|dir| sources(Path::new(dir))).concat();
    for (page, least) in [("data", 40), ("security", 25)] {
        let text = read(format!("docs/src/explanation/{page}.md"));
        let named = last_column(&text);
        let is_script = |name: &str| name.starts_with("e2e/") && Path::new(name).is_file();
        let is_test = |name: &str| sources.iter().any(|code| code.contains(&format!("fn {name}(")));
        let gone: Vec<_> = named.iter().filter(|name| !is_test(name) && !is_script(name)).collect();
        assert_eq!(gone, Vec::<&&str>::new(), "{page}");
        assert!(named.len() > least, "{page}: only {} tests are named", named.len());
    }
}

/// The verbs that a role has for each resource, by the rules of the chart that aggregate to it.
fn verbs_of(role: &str) -> BTreeMap<String, BTreeSet<String>> {
    let chart = read("charts/snapshots/cluster.yaml");
    let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
    let roles = chart.split("\n---\n").filter(|text| text.contains("\nkind: ClusterRole\n"));
    let roles = roles.map(|text| serde_saphyr::from_str::<ClusterRole>(text).unwrap());
    let its = roles.filter(|one| one.labels().get(&label).is_some_and(|value| value == "true"));
    let mut verbs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in its.flat_map(|one| one.rules.unwrap_or_default()) {
        assert_eq!(rule.api_groups.as_deref(), Some(&["pliant.io".to_owned()][..]), "{role}");
        for resource in rule.resources.unwrap_or_default() {
            verbs.entry(resource).or_default().extend(rule.verbs.clone());
        }
    }
    verbs
}

#[test]
fn the_roles_of_kubernetes_get_what_the_page_about_security_says() {
    let reads = ["get", "list", "watch"];
    let writes = ["create", "delete", "deletecollection", "patch", "update"];
    let all = |kinds: [&str; 3], verbs: &[&str]| -> BTreeMap<String, BTreeSet<String>> {
        let verbs: BTreeSet<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        kinds.map(|kind| (kind.to_owned(), verbs.clone())).into()
    };
    let tenants = ["archivepopulators", "pvcautoscalers", "pvcsourcepopulators"];
    // No status: the operator deletes and rolls back by what stands there.
    assert_eq!(verbs_of("view"), all(tenants, &reads));
    assert_eq!(verbs_of("edit"), all(tenants, &[&reads[..], &writes].concat()));
    assert_eq!(verbs_of("admin"), verbs_of("edit"));
    let nodes = ["nodestorages", "storagepools", "volumerequests"];
    assert_eq!(verbs_of("cluster-reader"), all(nodes, &reads));
}

/// Commands of this program that stand in what it says, such as advice.
#[test]
fn every_command_of_ours_that_is_advised_is_one() {
    let cli = Cli::command();
    let called = ["kubectl pliant ", "{program} ", "\"{} "];
    let mut advised = BTreeSet::new();
    for code in [
        "crates/kubectl/src/commands",
        "crates/operator/src/claims",
        "crates/operator/src/populators",
        "crates/k8s/src/cluster",
    ]
    .map(Path::new)
    {
        for code in sources(code) {
            for called in called {
                for (at, _) in code.match_indices(called) {
                    let word = code[at + called.len()..].split(|c: char| !c.is_ascii_lowercase());
                    let is_format = called.starts_with('"');
                    let line = code[at..].lines().next().unwrap_or_default();
                    let is_command = !is_format || line.contains("program");
                    advised.extend(word.take(1).filter(|_| is_command).map(str::to_owned));
                }
            }
        }
    }
    advised.remove("");
    let unknown: Vec<_> = advised.iter().filter(|one| cli.find_subcommand(one).is_none()).collect();
    assert_eq!(unknown, Vec::<&String>::new());
    assert!(advised.len() >= 9, "{advised:?}");
}

/// Lines of what people are shown in tests that are a command of this program: each can be typed as it is.
#[test]
fn every_advice_that_is_a_command_of_ours_can_be_typed() {
    let mut typed = 0;
    for code in sources(Path::new("crates/kubectl/src/commands")) {
        let lines = code.lines().map(|line| line.trim_start().trim_start_matches("→ "));
        for line in lines.filter(|line| line.starts_with("pliant ")) {
            let line = line.split(" # ").next().and_then(|line| line.split(" | ").next()).unwrap();
            let words = line.split_whitespace().map(|word| match word {
                "SIZE" => "10Gi",
                "NAMESPACE" | "NAME" | "CLASS" => "one",
                word => word,
            });
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.err().unwrap());
            typed += 1;
        }
    }
    assert!(typed >= 9, "{typed}");
}
