//! What people read is plain English: the field's own words, short sentences, no name of before.

mod repository;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Command, CommandFactory};
use pliant::api::definitions;
use pliant::cli::Cli;
use regex::Regex;
use repository::{files, product, read};
use serde_json::Value;

/// Patterns of words that nobody searches for, each with what to write instead.
const WORDS: [(&str, &str); 31] = [
    ("ails?|ailing|ailments?", "unhealthy, condition"),
    ("agents?", "node plugin"),
    ("anew", "again"),
    ("asked again", "retried"),
    ("away", "not responding, missing, unavailable"),
    ("by itself|by themselves", "automatically"),
    ("cop(y|ies) ahead|(hot|cold) cop(y|ies)", "pre-copy; online, offline copy"),
    ("doors?|floors?", "host interface, test level"),
    ("figures?", "metrics, benchmark results"),
    ("fill(s|ed|ing)?", "populate"),
    ("g[ia]ves? up|given up|giving up", "abort"),
    ("half[- ]copied", "incomplete"),
    ("has it that", "the condition itself"),
    ("heal(s|ed|ing)?", "repair"),
    ("is there[,.;:]", "exists"),
    ("(is|are) compared", "is verified"),
    ("keeps?|kept|keeping", "retain, manage, reserve, stay"),
    ("leaked", "orphaned"),
    ("let be", "leave unchanged"),
    ("lies", "is on, is in"),
    ("machines?", "host, node"),
    ("nobody|somebody|anybody", "no one, or passive"),
    ("one step|two steps", "by the controller plugin, by the node plugin"),
    ("pauses?", "downtime"),
    ("pieces? of work", "operation"),
    ("raw devices?", "raw block volume"),
    ("records?|the definitions", "custom resource, API object, CRDs"),
    ("rooms?", "free space, capacity"),
    ("says?|said|saying|told|tells?|telling", "reports, prints, shows"),
    (
        "shall|takes? over|took over|taken over|things?|wish(es)?",
        "must, adopts, the noun itself, desired",
    ),
    ("throw-away|what to type", "disposable VM, commands to run"),
];

/// Where a word is another's, and stays.
const EXCEPTIONS: [&str; 5] = [
    "virtual machine",
    "User-Mode Linux machine",
    "machine configuration", // Talos.
    "node agent",            // Velero.
    "state machine",
];

/// Names of fields, values, reasons, metrics, alerts, flags, parameters, tags and chart values that have others now.
const OLD_NAMES: &str = include_str!("language/old_names.txt");

/// A text with where it was found.
type Text = (String, String);

/// Pages that people write. Those of the API are made of the descriptions.
fn pages() -> Vec<Text> {
    let top = ["README.md", "CONTRIBUTING.md", "SUPPORT.md", "SECURITY.md", "ROADMAP.md"];
    let chart = ["charts/pliant/README.md", "e2e/README.md", "e2e/cluster/README.md"];
    let written = |path: &PathBuf| !path.starts_with("docs/src/reference/api");
    let book = files("docs/src", "md").into_iter().filter(written);
    let paths = top.into_iter().chain(chart).map(PathBuf::from).chain(book);
    paths.map(|path| (path.display().to_string(), read(&path))).collect()
}

/// Paragraphs, items and cells of a page without its blocks of code.
fn prose(page: &str) -> (Vec<String>, Vec<String>) {
    let (mut paragraphs, mut cells) = (vec![String::new()], Vec::new());
    let text: String = page.split("```").step_by(2).collect::<Vec<_>>().join("\n\n");
    for line in text.lines().map(str::trim) {
        if line.starts_with('|') {
            cells.extend(line.trim_matches('|').replace("\\|", "/").split('|').map(plain));
        }
        let begins = ["- ", "* ", "#", "<!--", "|"].iter().any(|mark| line.starts_with(mark));
        let numbered = line.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
        if line.is_empty() || begins || numbered {
            paragraphs.push(String::new());
        }
        if !line.starts_with('|') && !line.starts_with("<!--") {
            let line = line.trim_start_matches(['#', '-', '*', ' ']);
            let last = paragraphs.last_mut().unwrap();
            last.push_str(&plain(line));
            last.push(' ');
        }
    }
    (paragraphs, cells)
}

/// Without what stands in code, and links as their words.
fn plain(text: &str) -> String {
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap());
    static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());
    CODE.replace_all(&LINK.replace_all(text, "$1"), "CODE").into_owned()
}

fn sentences(paragraph: &str) -> Vec<String> {
    static END: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"[.!?:]["*)]*\s+"#).unwrap());
    END.split(paragraph).map(str::to_owned).collect()
}

fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

/// Comments of values, NOTES, descriptions of the API, help, and sentences in the source.
fn others() -> Vec<Text> {
    let comments = |path: &str| -> Vec<Text> {
        let lines = read(path);
        let lines =
            lines.lines().filter_map(|line| line.trim().strip_prefix('#').map(str::to_owned));
        lines.map(|line| (path.to_owned(), line)).collect()
    };
    let mut texts = comments("charts/pliant/values.yaml");
    let notes = "charts/pliant/templates/NOTES.txt";
    texts.push((notes.to_owned(), read(notes)));
    texts.push(("alerts.yaml".to_owned(), read("charts/pliant/files/alerts.yaml")));
    for definition in definitions() {
        let value = serde_json::to_value(&definition).unwrap();
        descriptions(&value, &definition.spec.names.kind, &mut texts);
    }
    help(&Cli::command(), "pliant", &mut texts);
    for path in product() {
        let name = path.display().to_string();
        let of_tests = ["/tests", "tests.rs", "src/testing", "crates/fake-"];
        if !of_tests.iter().any(|part| name.contains(part)) {
            texts.extend(messages(&read(&path)).into_iter().map(|text| (name.clone(), text)));
        }
    }
    texts
}

fn descriptions(value: &Value, kind: &str, texts: &mut Vec<Text>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => {
                        texts.push((kind.to_owned(), text.clone()));
                    }
                    value => descriptions(value, kind, texts),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|one| descriptions(one, kind, texts)),
        _ => {}
    }
}

fn help(command: &Command, name: &str, texts: &mut Vec<Text>) {
    let mut push = |text: Option<String>| texts.extend(text.map(|text| (name.to_owned(), text)));
    push(command.get_about().map(ToString::to_string));
    push(command.get_long_about().map(ToString::to_string));
    push(command.get_after_help().map(ToString::to_string));
    for arg in command.get_arguments() {
        push(arg.get_help().map(ToString::to_string));
        push(arg.get_long_help().map(ToString::to_string));
    }
    for one in command.get_subcommands() {
        help(one, &format!("{name} {}", one.get_name()), texts);
    }
}

/// Texts in quotation marks that have several words, before the tests of a file, without what is formatted in.
fn messages(code: &str) -> Vec<String> {
    static TEXT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(?s)"((?:[^"\\]|\\.)*)""#).unwrap());
    static HOLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{[^}]*\}").unwrap());
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code: String = code.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect();
    let texts = TEXT.captures_iter(&code).map(|text| plain(&HOLE.replace_all(&text[1], "X")));
    texts.filter(|text| text.contains(' ')).collect()
}

fn forbidden() -> Vec<(Regex, &'static str)> {
    let word = |(word, instead): &(&str, &'static str)| {
        (Regex::new(&format!(r"(?i)\b({word})(\b|$)")).unwrap(), *instead)
    };
    WORDS.iter().map(word).collect()
}

fn findings(texts: &[Text]) -> Vec<String> {
    let forbidden = forbidden();
    let mut found = Vec::new();
    for (place, text) in texts {
        let text = EXCEPTIONS.iter().fold(text.clone(), |text, words| text.replace(words, ""));
        for (word, instead) in &forbidden {
            if let Some(hit) = word.find(&text) {
                let text: String = text.chars().take(100).collect();
                found.push(format!("{place}: `{}` ({instead}): {text}", hit.as_str()));
            }
        }
    }
    found
}

#[test]
fn no_page_has_a_word_that_users_do_not_search_for() {
    let texts = pages().into_iter().flat_map(|(name, page)| {
        let (paragraphs, cells) = prose(&page);
        paragraphs
            .into_iter()
            .chain(cells)
            .map(move |text| (name.clone(), text))
            .collect::<Vec<_>>()
    });
    let found = findings(&texts.collect::<Vec<_>>());
    assert!(found.is_empty(), "{}\n{} findings", found.join("\n"), found.len());
}

#[test]
fn no_help_description_or_message_has_one_either() {
    let found = findings(&others());
    assert!(found.is_empty(), "{}\n{} findings", found.join("\n"), found.len());
}

/// Reads the limits of `language.md`: 25 words a sentence, 20 words a cell; no clause as the subject.
#[test]
fn sentences_are_short_and_begin_with_their_subject() {
    let opening = Regex::new("^(Of an? |Of the |Who |What |Whether )").unwrap();
    let (mut found, mut count, mut all) = (Vec::new(), 0, 0);
    for (name, page) in pages() {
        let (paragraphs, cells) = prose(&page);
        for sentence in paragraphs.iter().flat_map(|paragraph| sentences(paragraph)) {
            let length = words(&sentence);
            (count, all) = (count + usize::from(length > 0), all + length);
            let is_clause = opening.is_match(&sentence) && length > 8;
            if length > 25 || is_clause && !sentence.contains('?') {
                found.push(format!("{name}: {length} words: {sentence}"));
            }
        }
        let long = cells.iter().filter(|cell| words(cell) > 20);
        found.extend(long.map(|cell| format!("{name}: {} words in a cell: {cell}", words(cell))));
    }
    println!("{count} sentences of {} words", all / count.max(1));
    assert!(found.is_empty(), "{}\n{} findings", found.join("\n"), found.len());
}

/// A person who reads a message has the pages, not the repository.
#[test]
fn no_message_names_a_file_of_the_repository() {
    let file = Regex::new(r"(?:^|[\s`(])(docs/src\S*|[a-z_/]+\.(?:md|rs))\b").unwrap();
    let texts = others();
    let found: Vec<_> = texts
        .iter()
        .flat_map(|(place, text)| {
            file.captures_iter(text).map(move |hit| (place, hit[1].to_owned()))
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn descriptions_have_at_least_five_words() {
    let mut texts = Vec::new();
    for definition in definitions() {
        let value = serde_json::to_value(&definition).unwrap();
        descriptions(&value, &definition.spec.names.kind, &mut texts);
    }
    let short: BTreeSet<_> = texts.iter().filter(|(_, text)| words(text) < 5).collect();
    assert!(short.is_empty(), "{short:#?}");
}

#[test]
fn no_name_of_before_is_left() {
    let names: Vec<&str> = OLD_NAMES.lines().filter(|line| !line.starts_with('#')).collect();
    let names: String = names.join("|");
    let old = Regex::new(&format!(r"(?:^|[^A-Za-z0-9_])({names})(?:[^A-Za-z0-9_]|$)")).unwrap();
    let mut paths = files("docs", "md");
    for end in ["yaml", "txt", "json", "tpl"] {
        paths.extend(files("charts/pliant", end));
        paths.extend(files("docs", end));
    }
    let mut found = Vec::new();
    for path in paths {
        for (at, line) in read(&path).lines().enumerate() {
            if let Some(hit) = old.captures(line) {
                found.push(format!("{}:{}: {}", path.display(), at + 1, &hit[1]));
            }
        }
    }
    assert!(found.is_empty(), "{}\n{} findings", found.join("\n"), found.len());
}
