//! The arrows of the house: which room may use which, and which crates stay in one room.

mod repository;

use repository::product;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What all may use, by the names that the modules call it by: the crate `volume`.
const FOR_ALL: &[&str] = &["bytes", "in_flight", "panics", "volume"];

/// A room and the rooms that it may use: a module, of the program or of a crate that has several. `run` and `testing` see
/// all. Between crates Cargo holds the arrows too.
const ROOMS: &[(&str, &[&str])] = &[
    // In a pod of its own: it knows neither the driver nor the machine that it runs on.
    ("copy", &[]),
    ("archive", &["copy"]),
    ("certificates", &[]),
    // In two pods, one at each end: as little as `copy` does it know the driver.
    ("remote", &["certificates", "copy"]),
    ("error_chain", &[]),
    ("api", &[]),
    ("host", &[]),
    ("lvm", &["host"]),
    ("fs", &["host"]),
    ("mount", &["host"]),
    ("node", &["lvm", "fs", "mount", "host"]),
    // A client of the API server, as kubectl is one.
    (
        "commands",
        &["api", "autoscaler", "error_chain", "claims", "cluster", "doctor", "populators"],
    ),
    ("cluster", &["api", "error_chain"]),
    ("controllers", &["api", "cluster", "node", "error_chain"]),
    ("webhook", &["api", "error_chain", "certificates", "cluster"]),
    ("populators", &["api", "error_chain", "cluster", "remote"]),
    // What size a claim should be is arithmetic: it knows no cluster.
    ("autoscaler", &["api"]),
    ("claims", &["api", "autoscaler", "error_chain", "cluster", "populators"]),
    ("config", &[]),
    ("cli", &["webhook", "archive", "commands", "config", "copy", "populators"]),
    ("doctor", &["fs", "host", "lvm"]),
    // Between the node plugins: the connections of the one, the devices of the other.
    ("transfers", &["copy", "error_chain", "node", "remote"]),
    ("metrics", &[]),
    // A client of the driver: it knows the protocol, not what serves it.
    ("self_test", &["cli", "csi"]),
    ("main", &["run", "cli"]),
];
const SEE_ALL: &[&str] = &["run", "testing", "lib"];

/// The crates that are one room, by its name. Cargo holds their arrows.
const ONE_ROOM: &[(&str, &str)] = &[
    ("csi", "csi"),
    ("volume", "volume"),
    ("fake-apiserver", "testing"),
    ("fake-host", "testing"),
];

/// Words that stand for a crate, and the rooms that may say them.
const CRATES: &[(&str, &[&str])] = &[
    ("tonic::", &["csi", "self_test"]),
    ("prost::", &["csi"]),
    ("prost_types::", &["csi"]),
    ("opentelemetry::", &["csi", "run"]),
    ("opentelemetry_otlp::", &["run"]),
    ("opentelemetry_sdk::", &["csi", "run"]),
    ("prometheus_client::", &["metrics"]),
    ("axum::", &["webhook", "metrics", "testing"]),
    (
        "kube::",
        &[
            "webhook",
            "api",
            "commands",
            "error_chain",
            "claims",
            "cluster",
            "controllers",
            "populators",
            "run",
            "testing",
        ],
    ),
    (
        "k8s_openapi::",
        &[
            "webhook",
            "api",
            "commands",
            "autoscaler",
            "claims",
            "cluster",
            "controllers",
            "populators",
            "testing",
        ],
    ),
    ("schemars::", &["api"]),
    ("clap::", &["cli", "config", "main"]),
    ("clap_complete::", &["cli"]),
    ("clap_mangen::", &["cli"]),
    ("procfs::", &["host", "metrics"]),
    ("std::fs", &["archive", "copy", "host", "config", "csi", "run", "self_test", "remote"]),
    ("rustix::", &["archive", "copy", "remote"]),
    ("tar::", &["archive"]),
    ("base64::", &["archive"]),
    ("rustls_native_certs::", &["archive"]),
    ("ureq::", &["archive"]),
    ("rcgen::", &["webhook", "certificates", "remote"]),
    ("rustls::", &["webhook", "archive", "remote"]),
    ("tokio_rustls::", &["webhook"]),
    ("tokio::process", &["host"]),
    ("std::process::Command", &["host"]),
    ("anyhow::", &["run", "self_test", "main"]),
    // Numbers of errors may be said everywhere; calls of the kernel may not.
    ("nix::mount", &["host"]),
    ("nix::sys", &["host", "run"]),
    ("nix::unistd", &["host", "run"]),
];

/// The room of a file: its module, or its crate where that is one.
fn room(file: &Path) -> String {
    let mut parts = file.components().map(|part| part.as_os_str().to_str().unwrap());
    if parts.next() == Some("crates") {
        let of_crate = parts.next().unwrap();
        if let Some((_, room)) = ONE_ROOM.iter().find(|(name, _)| *name == of_crate) {
            return (*room).to_owned();
        }
        parts.next(); // src
    }
    parts.next().unwrap().trim_end_matches(".rs").to_owned()
}

/// The code of all rooms that have a line in the table.
fn of_rooms() -> impl Iterator<Item = (PathBuf, String)> {
    let rooms = product().into_iter().map(|file| (room(&file), file));
    let is_crate = |room: &str| room != "testing" && ONE_ROOM.iter().any(|(_, name)| *name == room);
    rooms
        .filter(move |(room, _)| !FOR_ALL.contains(&room.as_str()) && !is_crate(room))
        .map(|(room, file)| (file, room))
}

/// The code of a file that is no comment and no test.
fn code(file: &Path) -> String {
    let name = file.file_name().unwrap();
    if name == "tests.rs" || file.components().any(|part| part.as_os_str() == "tests") {
        return String::new();
    }
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |code, line| code + line + "\n")
}

/// The rooms after each `crate::` and `use pliant::`, also inside `use crate::{a, b::c}`.
fn rooms_named(code: &str) -> BTreeSet<String> {
    let word = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let mut named = BTreeSet::new();
    for root in ["crate::", "use pliant::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().last().unwrap_or(' ');
            let rest = &code[at + root.len()..];
            if before.is_ascii_alphanumeric() || before == '_' {
                continue;
            }
            match rest.strip_prefix('{') {
                None => named.extend([word(rest)]),
                Some(list) => named.extend(top_level(list).iter().map(|item| word(item.trim()))),
            }
        }
    }
    named.remove(""); // After a trailing comma.
    named.retain(|name| !FOR_ALL.contains(&name.as_str()));
    named
}

/// Whether `word` stands in the code, and not as the end of a longer word.
fn says(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().last().unwrap_or(' ');
        !before.is_ascii_alphanumeric() && before != '_'
    })
}

/// The items of a braced list, up to its closing brace.
fn top_level(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                items.push(&list[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    items
}

#[test]
fn arrows_point_one_way() {
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, room) in of_rooms().filter(|(_, room)| !SEE_ALL.contains(&room.as_str())) {
        let (_, may) = ROOMS.iter().find(|(name, _)| *name == room).expect("a room of the table");
        for named in rooms_named(&code(&file)).into_iter().filter(|named| *named != room) {
            if !may.contains(&named.as_str()) {
                wrong.push(format!("{}: `{room}` may not use `{named}`", file.display()));
            }
            seen.entry(room.clone()).or_default().insert(named);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    for (room, may) in ROOMS {
        let uses = seen.remove(*room).unwrap_or_default();
        let may: BTreeSet<String> = may.iter().map(|room| (*room).to_owned()).collect();
        assert_eq!(uses, may, "`{room}` may use rooms that it does not use");
    }
}

/// Ways round the search: a room named from inside another one, and one shown as part of another.
#[test]
fn no_arrow_is_hidden() {
    let mut wrong = Vec::new();
    for (file, room) in of_rooms() {
        let (code, shown) = (code(&file), file.display());
        let is_root = file.parent().is_some_and(|dir| dir.ends_with("src"));
        if is_root && says(&code, "super::") {
            wrong.push(format!("{shown}: `super::` is the crate; name the room"));
        }
        if !is_root && says(&code, "super::super::super::") {
            wrong.push(format!("{shown}: `super::super::super::` hides what it names"));
        }
        if says(&code, "pub use crate::") && room != "lib" {
            wrong.push(format!("{shown}: what belongs to another room is named there"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn crates_stay_in_their_rooms() {
    let mut wrong = Vec::new();
    for file in product() {
        let (room, code) = (room(&file), code(&file));
        for (word, rooms) in CRATES {
            if says(&code, word) && !rooms.contains(&room.as_str()) {
                wrong.push(format!("{}: `{word}` belongs to {rooms:?}", file.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Where objects are decoded one by one, and whoever may name what decodes them as a whole.
const DECODERS: &[&str] = &[
    "crates/k8s/src/cluster/decode.rs",
    "crates/k8s/src/cluster/pod_events.rs",
    "crates/k8s/src/cluster/cache/follow.rs",
];

/// kube decodes a list, or what a watch begins with, as a whole: one bad object would hide all others.
#[test]
fn lists_and_watches_decode_object_by_object() {
    let mut wrong = Vec::new();
    for file in product() {
        let (room, code, shown) = (room(&file), code(&file), file.display().to_string());
        let has_kube =
            CRATES.iter().any(|(word, rooms)| *word == "kube::" && rooms.contains(&&*room));
        if !has_kube || room == "testing" || DECODERS.contains(&shown.as_str()) {
            continue;
        }
        let lists = code.match_indices(".list(").filter(|(at, call)| {
            // Our own reader, and volumes of a machine.
            let is_reader =
                code[..*at].ends_with("ask") || shown == "crates/kubectl/src/commands/read.rs";
            !is_reader && !code[at + call.len()..].starts_with("&Page")
        });
        wrong.extend(
            lists.map(|(at, _)| format!("{shown}: `{}`", &code[at..code.len().min(at + 40)])),
        );
        let bare =
            ["watcher(", "reflector(", "Controller::new(self.requests", "Controller::new(Api"];
        wrong.extend(
            bare.iter().filter(|word| says(&code, word)).map(|word| format!("{shown}: `{word}`")),
        );
    }
    assert_eq!(wrong, Vec::<String>::new(), "see crates/k8s/src/cluster/decode.rs");
}

/// Predicates whose signature a trait of another crate sets: this one is `Transport` of ureq.
const PREDICATES_OF_OTHERS: &[&str] =
    &["crates/copy/src/archive/absolute.rs: `fn is_open(&mut self`"];

/// What changes something says so: `ensure_*`, `request_*`, `wait_*`; what asks takes `&self`.
#[test]
fn a_predicate_changes_nothing() {
    let starts = ["is", "are", "has", "can", "may", "holds", "keeps", "needs", "stays", "waits"];
    let acts = |code: &str, shown: &str| {
        // The first piece is what stands before all functions.
        let functions =
            code.split("fn ").skip(1).map(|rest| rest.split(')').next().unwrap_or(rest));
        let functions = functions.filter(|head| head.contains("&mut ")).filter(|head| {
            let name = head.split(['(', '<']).next().unwrap_or_default();
            starts.contains(&name.split('_').next().unwrap_or_default())
        });
        let told = functions.map(|head| format!("{shown}: `fn {}`", head.replace(['\n', ' '], "")));
        told.map(|it| it.replace("&mutself", "&mut self")).collect::<Vec<_>>()
    };
    let both =
        "fn is_so<T>(\n    &mut self,\n) {}\nfn ends(&mut self) {}\nfn may_go(plan: &mut Plan) {}";
    assert_eq!(acts(both, "a.rs").len(), 2);
    let mut wrong: Vec<String> =
        product().iter().flat_map(|file| acts(&code(file), &file.display().to_string())).collect();
    wrong.retain(|one| !PREDICATES_OF_OTHERS.contains(&one.as_str()));
    assert_eq!(wrong, Vec::<String>::new());
}

/// Types that share a name: each is named after what others know by it.
const NAMESAKES: &[(&str, &str)] = &[("Node", "CSI's service, and the machine that it serves")];

/// A reader who searches for a type finds one.
#[test]
fn no_two_types_have_one_name() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // A fake speaks of the same things as what it stands for.
    let is_fake =
        |file: &PathBuf| file.display().to_string().contains("fake-") || room(file) == "testing";
    for file in product().into_iter().filter(|file| !is_fake(file)) {
        for line in code(&file).lines() {
            let words: Vec<&str> = line.split([' ', '<', '(', '{', ';', ':', '=']).collect();
            let at =
                words.iter().position(|word| ["struct", "enum", "trait", "type"].contains(word));
            // What a trait asks for is indented, and named by that.
            let Some(at) = at.filter(|_| !line.starts_with([' ', '/'])) else { continue };
            let name = words.get(at + 1).copied().unwrap_or_default().to_owned();
            files.entry(name).or_default().push(file.display().to_string());
        }
    }
    assert!(files.len() > 500, "only {} types are found", files.len());
    files.retain(|name, places| {
        places.len() > 1 && !NAMESAKES.iter().any(|(known, _)| known == name)
    });
    assert_eq!(files, BTreeMap::new());
}

/// A type with more methods is a part of the program with everything in it: what needs the type is a function of it.
const MOST_METHODS: usize = 25;

#[test]
fn no_type_has_more_methods_than_a_reader_holds() {
    let mut methods: BTreeMap<(String, String), usize> = BTreeMap::new();
    for file in product() {
        let (room, mut of) = (room(&file), None);
        for line in code(&file).lines() {
            if line.starts_with("impl") {
                of = methods_of(line);
            } else if line.starts_with('}') {
                of = None;
            } else if let Some(name) = &of
                && is_method(line)
            {
                *methods.entry((room.clone(), name.clone())).or_default() += 1;
            }
        }
    }
    assert!(methods.len() > 200, "only {} types are found", methods.len());
    assert_eq!(methods_of("impl<S: Source> Populator<S> {").as_deref(), Some("Populator"));
    assert_eq!(methods_of("impl Volumes for Node {"), None);
    assert!(is_method("    pub(super) async fn look(&self)") && !is_method("        fn inner()"));
    // A fake is a world of switches, each of which a test turns.
    methods.retain(|(room, _), count| room != "testing" && *count > MOST_METHODS);
    assert_eq!(methods, BTreeMap::new());
}

/// The type whose own methods a line begins; those of a trait are that one's.
fn methods_of(line: &str) -> Option<String> {
    let mut depth = 0_i32;
    let bare = line.trim_start_matches("impl").chars().filter(|c| {
        depth += i32::from(*c == '<') - i32::from(*c == '>');
        depth == 0 && *c != '>'
    });
    let bare: String = bare.collect();
    let mut words = bare.split_whitespace();
    let name = words.next()?.to_owned();
    (words.next() != Some("for")).then_some(name)
}

fn is_method(line: &str) -> bool {
    let Some(line) = line.strip_prefix("    ").filter(|line| !line.starts_with(' ')) else {
        return false;
    };
    let before = line.split("fn ").next().unwrap_or_default();
    line.contains("fn ")
        && before
            .split_whitespace()
            .all(|word| word.starts_with("pub") || ["const", "async", "unsafe"].contains(&word))
}

#[test]
fn the_search_sees_every_form_of_use() {
    let code = "use crate::host::{self, Cmd};\nuse crate::{\n    lvm::{A, B},\n    node,\n};\nlet x = \
                crate::fs::probe();\nmycrate::csi::y();\nuse pliant::run;";
    let expected = ["fs", "host", "lvm", "node", "run"].map(str::to_owned);
    assert_eq!(rooms_named(code), BTreeSet::from(expected));
}
