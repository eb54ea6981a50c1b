//! The picture of the crates is drawn from what Cargo says of them.
//!
//! `PICTURE=write cargo test --test picture` draws it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

const FILE: &str = "docs/src/explanation/architecture.svg";

/// Width of the picture, height of a row, and height of a box in it.
const WIDTH: f64 = 760.0;
const ROW: f64 = 104.0;
const BOX: f64 = 40.0;

/// The crates of the workspace, each with those that it uses.
type Crates = BTreeMap<String, BTreeSet<String>>;

/// The crates of the workspace, and what each uses of them when it is built; those that only tests use are left out.
fn crates() -> Crates {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    #[allow(clippy::disallowed_methods)] // Cargo is no program of a host.
    let said = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let all = said["packages"].as_array().unwrap();
    let name = |of: &Value| of["name"].as_str().unwrap().to_owned();
    let known: BTreeSet<String> = all.iter().map(name).collect();
    let uses = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let built = all.filter(|one| one["kind"].is_null() && one["optional"] == false);
        built.map(name).filter(|one| known.contains(one)).collect()
    };
    let mut crates: Crates = all.iter().map(|one| (name(one), uses(one))).collect();
    let below: BTreeSet<String> = crates.values().flatten().cloned().collect();
    crates.retain(|name, _| name == "pliant" || below.contains(name));
    crates
}

/// The crates below one, also those that it uses through others.
fn below<'a>(crates: &'a Crates, name: &str) -> BTreeSet<&'a str> {
    let direct = crates[name].iter().map(String::as_str);
    direct.flat_map(|one| below(crates, one).into_iter().chain([one])).collect()
}

/// The arrows that say something: what a crate uses, but not what one that it uses also uses.
fn arrows(crates: &Crates) -> Vec<(&str, &str)> {
    let all = crates.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let is_said = |(from, to): &(&String, &String)| {
        !crates[*from].iter().any(|other| below(crates, other).contains(to.as_str()))
    };
    all.filter(is_said).map(|(from, to)| (from.as_str(), to.as_str())).collect()
}

/// The row of a crate, counted from the bottom.
fn height(crates: &Crates, name: &str) -> usize {
    crates[name].iter().map(|one| height(crates, one) + 1).max().unwrap_or_default()
}

fn draw(crates: &Crates) -> String {
    let mut rows: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for name in crates.keys() {
        rows.entry(height(crates, name)).or_default().push(name);
    }
    let (highest, said) = (*rows.keys().last().unwrap(), arrows(crates));
    // The middle of each box, and its upper edge.
    let mut places: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (row, names) in rows.iter_mut().rev() {
        let share = WIDTH / f64::from(u32::try_from(names.len()).unwrap());
        // Below those that use it, so that few arrows cross.
        let users = |name: &str| {
            let users = said.iter().filter(|(_, to)| *to == name);
            let middles: Vec<f64> = users.map(|(from, _)| places[from].0).collect();
            middles.iter().sum::<f64>() / f64::from(u32::try_from(middles.len().max(1)).unwrap())
        };
        names.sort_by(|one, other| users(one).total_cmp(&users(other)).then(one.cmp(other)));
        let y = 16.0 + ROW * f64::from(u32::try_from(highest - row).unwrap());
        let middles = (0_u32..).map(|at| share * (f64::from(at) + 0.5));
        places.extend(names.iter().zip(middles).map(|(name, x)| (*name, (x, y))));
    }
    let total = 32.0 + BOX + ROW * f64::from(u32::try_from(highest).unwrap());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" font-family=\"sans-serif\" \
         font-size=\"15\" role=\"img\" aria-labelledby=\"t\">\n  <title id=\"t\">The crates of Pliant: each arrow \
         points to a crate that another one uses.</title>\n  <defs><marker id=\"a\" viewBox=\"0 0 10 10\" refX=\"9\" \
         refY=\"5\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L10 5L0 10z\" \
         fill=\"#444\"/></marker></defs>\n  <rect width=\"{WIDTH}\" height=\"{total}\" fill=\"#fff\"/>\n"
    );
    for (from, to) in said {
        let ((x, y), (to_x, to_y)) = (places[from], places[to]);
        let (y, bend) = (y + BOX, (to_y - y - BOX) / 2.0);
        // Past the boxes of the rows between, not behind them.
        let is_long = to_y - y > ROW;
        let (x, aside) = if is_long { (x + 60.0_f64.copysign(to_x - x), to_x) } else { (x, x) };
        let down = if is_long { y + BOX } else { y + bend };
        writeln!(
            svg,
            "  <path d=\"M{x} {y}C{aside} {down} {to_x} {} {to_x} {to_y}\" fill=\"none\" stroke=\"#444\" \
             stroke-width=\"1.5\" marker-end=\"url(#a)\"/>",
            to_y - bend
        )
        .unwrap();
    }
    for (name, (x, y)) in &places {
        writeln!(
            svg,
            "  <rect x=\"{}\" y=\"{y}\" width=\"140\" height=\"{BOX}\" rx=\"6\" fill=\"#eef4fb\" stroke=\"#3b6ea5\" \
             stroke-width=\"1.5\"/>\n  <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            x - 70.0,
            y + 25.0
        )
        .unwrap();
    }
    svg + "</svg>\n"
}

#[test]
fn the_picture_shows_the_crates_as_they_are() {
    let drawn = draw(&crates());
    if env::var_os("PICTURE").is_some_and(|said| said == "write") {
        fs::write(FILE, &drawn).unwrap();
    }
    let there = fs::read_to_string(FILE).unwrap();
    assert!(there == drawn, "{FILE} shows other crates: PICTURE=write cargo test --test picture");
}
