//! No two files of a module need each other: then one of them can be read first.
//!
//! A file needs another one if it names what is defined there, by whatever name it is shown: calls of methods are not
//! seen.

mod repository;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use repository::files;

/// The crates whose files form no circle.
const CRATES: &[&str] = &[
    "crates/copy",
    "crates/csi",
    "crates/fake-apiserver",
    "crates/fake-host",
    "crates/k8s",
    "crates/kubectl",
    "crates/lvm",
    "crates/node",
    "crates/operator",
    "crates/volume",
    ".",
];

/// The place of a module: the words of its path, none for the crate itself.
type Module = Vec<String>;

/// What a file defines, imports and names.
#[derive(Debug, Default)]
struct Source {
    defined: BTreeSet<String>,
    /// What it imports or shows, by the name that it has here.
    imported: BTreeMap<String, Vec<String>>,
    /// All other paths and words.
    named: BTreeSet<Vec<String>>,
}

/// The words and signs of a file, without comments, texts and tests.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.fold(String::new(), |code, line| code + line + "\n");
    let (mut tokens, mut rest) = (Vec::new(), code.as_str());
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if is_word(first) {
            rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
        } else if first == '"' {
            let (mut end, mut escaped) = (1, false);
            for c in rest[1..].chars() {
                end += c.len_utf8();
                if c == '"' && !escaped {
                    break;
                }
                escaped = c == '\\' && !escaped;
            }
            end
        } else if rest.starts_with("::") {
            2
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let token = &rest[..length];
        if !token.trim().is_empty() && first != '"' && !token.starts_with("//") {
            tokens.push(token.to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}

/// The paths of a `use`, each with the name that it gives.
fn imports(tokens: &[String], before: &[String]) -> Vec<(Vec<String>, String)> {
    let (mut found, mut path, mut at) = (Vec::new(), before.to_vec(), 0);
    let mut name: Option<String> = None;
    while at <= tokens.len() {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                let end = at + closing(&tokens[at..]);
                found.extend(imports(&tokens[at + 1..end], &path));
                (path, at) = (Vec::new(), end);
            }
            Some("as") => {
                name = tokens.get(at + 1).cloned();
                at += 1;
            }
            Some("::") => {}
            None | Some(",") => {
                if path.len() > before.len() {
                    if path.last().is_some_and(|last| last == "self") {
                        path.pop();
                    }
                    let own = path.last().cloned().unwrap_or_default();
                    found.push((path, name.take().unwrap_or(own)));
                }
                path = before.to_vec();
            }
            Some(word) => path.push(word.to_owned()),
        }
        at += 1;
    }
    found
}

/// Where the brace closes that opens these.
fn closing(tokens: &[String]) -> usize {
    let mut depth = 0;
    let ends = tokens.iter().position(|token| {
        depth += match token.as_str() {
            "{" => 1,
            "}" => -1,
            _ => 0,
        };
        depth == 0
    });
    ends.unwrap_or(tokens.len() - 1)
}

fn source(text: &str) -> Source {
    const DEFINE: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
    let (tokens, mut source) = (tokens(text), Source::default());
    let (mut at, mut depth) = (0, 0);
    while at < tokens.len() {
        let next = tokens.get(at + 1).map(String::as_str).unwrap_or_default();
        match tokens[at].as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "use" => {
                let end = at + tokens[at..].iter().position(|token| token == ";").unwrap_or(0);
                let found = imports(&tokens[at + 1..end], &[]);
                source.imported.extend(found.into_iter().map(|(path, name)| (name, path)));
                at = end;
            }
            "macro_rules" => drop(source.defined.insert(tokens[at + 2].clone())),
            word if depth == 0 && DEFINE.contains(&word) && !DEFINE.contains(&next) => {
                source.defined.insert(next.to_owned());
                at += 1;
            }
            word if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                let mut path = vec![word.to_owned()];
                while tokens.get(at + 1).is_some_and(|token| token == "::")
                    && tokens.get(at + 2).is_some_and(|token| token != "<" && token != "{")
                {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                source.named.insert(path);
            }
            _ => {}
        }
        at += 1;
    }
    source
}

/// The files of a crate by their modules.
fn sources(krate: &str) -> BTreeMap<Module, Source> {
    let top = format!("{krate}/src");
    let is_test = |file: &Path| {
        file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests")
    };
    let all = files(&top, "rs").into_iter().filter(|file| !is_test(file));
    all.map(|file| {
        let place = file.strip_prefix(&top).unwrap().with_extension("");
        let words = place.iter().map(|word| word.to_str().unwrap().to_owned());
        let module = words.filter(|word| word != "lib" && word != "main").collect();
        (module, source(&fs::read_to_string(&file).unwrap()))
    })
    .collect()
}

/// A path from the crate on; `None` if it leads out of it.
fn absolute(
    all: &BTreeMap<Module, Source>,
    module: &[String],
    path: &[String],
) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let below = [module, path].concat();
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|word| *word == "super").count();
            let above = module.get(..module.len().checked_sub(ups)?)?;
            Some([above, &path[ups..]].concat())
        }
        // One word alone is no module but what is imported, a function of the same name too.
        _ if path.len() > 1 && all.contains_key(&below[..=module.len()]) => Some(below),
        _ => {
            let imported = all[module].imported.get(first)?;
            // A crate of others that shows something of its own name.
            if imported.first() == Some(first) {
                return None;
            }
            Some([&absolute(all, module, imported)?, rest].concat())
        }
    }
}

/// The module in which that is defined which a path from the crate on leads to; of a module alone there is none.
fn home(all: &BTreeMap<Module, Source>, path: &[String]) -> Option<Module> {
    let cut = (0..=path.len()).rev().find(|cut| all.contains_key(&path[..*cut]))?;
    let (module, rest) = path.split_at(cut);
    let (name, further) = rest.split_first()?;
    let here = &all[module];
    if here.defined.contains(name) {
        return Some(module.to_vec());
    }
    let shown = absolute(all, module, here.imported.get(name)?)?;
    let shown = [&shown[..], further].concat();
    (shown != path).then(|| home(all, &shown))?
}

/// Which module names what of which other one.
fn needs(all: &BTreeMap<Module, Source>) -> BTreeMap<Module, BTreeMap<Module, Vec<String>>> {
    let of = |(module, source): (&Module, &Source)| {
        let mut needed: BTreeMap<Module, Vec<String>> = BTreeMap::new();
        for path in &source.named {
            let home = absolute(all, module, path).and_then(|path| home(all, &path));
            if let Some(other) = home.filter(|other| other != module) {
                needed.entry(other).or_default().push(path.join("::"));
            }
        }
        (module.clone(), needed)
    };
    all.iter().map(of).collect()
}

/// The pairs that need each other, by whatever way, with what makes it so.
fn circles(all: &BTreeMap<Module, Source>) -> Vec<String> {
    let needs = needs(all);
    let reach = |from: &Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(one) = open.pop() {
            open.extend(needs[&one].keys().filter(|next| seen.insert((*next).clone())).cloned());
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        needs.keys().map(|module| (module, reach(module))).collect();
    let told = needs.iter().flat_map(|(module, needed)| {
        let back = needed.iter().filter(|(other, _)| reached[*other].contains(module));
        back.map(|(other, names)| {
            format!("{} needs {} of {}", module.join("/"), names.join(", "), other.join("/"))
        })
    });
    told.collect()
}

#[test]
fn no_two_files_need_each_other() {
    for krate in CRATES {
        let all = sources(krate);
        assert!(all.len() > 5, "{krate} has few files: {:?}", all.keys());
        assert_eq!(circles(&all), Vec::<String>::new(), "{krate}");
    }
}

#[test]
fn a_circle_is_found_by_whatever_name_it_has() {
    let module = |words: &str| words.split('/').map(str::to_owned).collect::<Module>();
    let all = |b: &str| {
        let texts = [
            (Module::new(), "mod a;\nmod b;\npub use a::{One, two};"),
            (module("a"), "use super::b::Three;\npub struct One(Three);\npub fn two() {}"),
            (module("b"), b),
        ];
        texts.into_iter().map(|(module, text)| (module, source(text))).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(circles(&all("pub struct Three;\n/// As [`crate::One`].\nfn f() {}")).len(), 0);
    for b in [
        "use crate::One;\npub struct Three(Box<One>);",
        "use super::{One as Other};\npub struct Three(Box<Other>);",
        "use super::a;\nuse one::one;\npub struct Three;\nfn f() { a::two(one()) }",
        "pub struct Three;\nfn f() { crate::two() }",
    ] {
        assert_eq!(circles(&all(b)).len(), 2, "{b}: {:?}", circles(&all(b)));
    }
    // What only shows another's needs it not.
    assert_eq!(circles(&all("pub use crate::One;\npub struct Three;")).len(), 0);
}
