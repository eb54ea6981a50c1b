//! The settings file: a closed schema, every error at once, each with its line.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use super::tree::{self, ConfigEntry, ConfigNode, ConfigValue};
use super::{ConfigError, Layer, Placed, PoolLayer, SettingSource, WantedDisk};
use crate::volume::{ThinSettings, nearest};

/// Reads the settings of a file's text; its name picks the format: `.toml`, `.yaml` or `.yml`.
pub(super) fn parse(path: &Path, text: &str) -> Result<Layer, Vec<ConfigError>> {
    let file = path.display().to_string();
    let fail = |line, reason| {
        vec![ConfigError {
            place: SettingSource::Line { file: file.clone(), line, key: String::new() },
            reason,
        }]
    };
    let tree = match path.extension().and_then(|end| end.to_str()) {
        Some("toml") => tree::parse_toml(text),
        Some("yaml" | "yml") => tree::parse_yaml(text),
        _ => {
            return Err(fail(1, "a settings file ends in .toml, .yaml or .yml".to_owned()));
        }
    }
    .map_err(|error| fail(error.line, error.reason))?;

    let mut errors = Vec::new();
    let layer = ConfigTable::open(&file, "", &tree, &mut errors).map(layer).unwrap_or_default();
    errors.sort_by_key(|error| match error.place {
        SettingSource::Line { line, .. } => line,
        SettingSource::Missing(_) | SettingSource::Flag(_) | SettingSource::File(_) => 0,
    });
    if errors.is_empty() { Ok(layer) } else { Err(errors) }
}

fn layer(mut top: ConfigTable<'_>) -> Layer {
    let layer = Layer {
        endpoint: top.take("endpoint", text),
        node_id: top.take("node-id", text),
        pools: top.tables("pools", pool),
        filesystem_expansion: top.take("filesystem-expansion", text),
        default_fstype: top.take("default-fstype", text),
        max_volumes_per_node: top.take("max-volumes-per-node", number),
        state_dir: top.take("state-dir", text),
        metrics_address: top.take("metrics-address", text),
        copy_rate: top.take("copy-rate", text_or_number),
        wipe_rate: top.take("wipe-rate", text_or_number),
        wipe_timeout: top.take("wipe-timeout", text),
        log_format: top.take("log-format", text),
        log_level: top.take("log-level", text),
    };
    top.close();
    layer
}

fn pool(mut section: ConfigTable<'_>) -> Option<PoolLayer> {
    let place = section.place();
    let name = section.take("name", text);
    let groups = section.list("volume-groups", text);
    let disks = section.tables("disks", disk);
    let standby_disks = section.tables("standby-disks", disk);
    let thin = section.table("thin", thin);
    if name.is_none() && !section.has("name") {
        section.fail(place.clone(), "a pool needs a name: add `name`".to_owned());
    }
    section.close();
    name.map(|name| PoolLayer { name, place, groups, disks, standby_disks, thin })
}

fn thin(mut section: ConfigTable<'_>) -> ThinSettings {
    let place = section.place();
    let by_default = ThinSettings::default();
    let thin = ThinSettings {
        size: section.take("size", text).unwrap_or(by_default.size),
        max_overcommit: section
            .take("max-overcommit-percent", number)
            .unwrap_or(by_default.max_overcommit),
        grow_at: section.take("grow-at-percent", number).unwrap_or(by_default.grow_at),
        metadata_grow_at: section
            .take("metadata-grow-at-percent", number)
            .unwrap_or(by_default.metadata_grow_at),
        reserve: section.take("reserve", text).unwrap_or(by_default.reserve),
        when_full: section.take("when-full", text).unwrap_or(by_default.when_full),
        discards: section.take("discards", text).unwrap_or(by_default.discards),
        chunk: section.take("chunk-size", text),
    };
    match thin.fault() {
        Some(fault) => section.fail(place, fault),
        None => section.close(),
    }
    thin
}

fn disk(mut section: ConfigTable<'_>) -> Option<WantedDisk> {
    let place = section.place();
    let disk = section.take("device", text);
    let wipe = section.take("wipe-existing", flag).unwrap_or(false);
    if disk.is_none() && !section.has("device") {
        section.fail(place.clone(), "no disk is named: add `device`".to_owned());
    }
    section.close();
    disk.map(|path| WantedDisk { path: Placed { value: path, place }, wipe })
}

/// One table of the file, whose keys are taken one by one.
struct ConfigTable<'a> {
    file: &'a str,
    path: String,
    line: usize,
    entries: &'a [ConfigEntry],
    known: Vec<&'static str>,
    errors: &'a mut Vec<ConfigError>,
}

impl<'a> ConfigTable<'a> {
    fn open(
        file: &'a str,
        path: &str,
        node: &'a ConfigNode,
        errors: &'a mut Vec<ConfigError>,
    ) -> Option<ConfigTable<'a>> {
        let path = path.to_owned();
        if let ConfigValue::Table(entries) = &node.value {
            return Some(ConfigTable {
                file,
                path,
                line: node.line,
                entries,
                known: Vec::new(),
                errors,
            });
        }
        errors.push(ConfigError {
            place: SettingSource::Line { file: file.to_owned(), line: node.line, key: path },
            reason: format!("expected a table with keys, found {}", node.value.in_words()),
        });
        None
    }

    fn place(&self) -> SettingSource {
        self.place_of(self.line, &self.path)
    }

    fn place_of(&self, line: usize, key: &str) -> SettingSource {
        SettingSource::Line { file: self.file.to_owned(), line, key: key.to_owned() }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    fn fail(&mut self, place: SettingSource, reason: String) {
        self.errors.push(ConfigError { place, reason });
    }

    fn find(&mut self, key: &'static str) -> Option<&'a ConfigNode> {
        self.known.push(key);
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    fn take<T>(
        &mut self,
        key: &'static str,
        parse: fn(&ConfigValue) -> Result<T, String>,
    ) -> Option<T> {
        let node = self.find(key)?;
        let path = self.path_of(key);
        self.read(node, &path, parse).map(|placed| placed.value)
    }

    fn read<T>(
        &mut self,
        node: &ConfigNode,
        path: &str,
        parse: fn(&ConfigValue) -> Result<T, String>,
    ) -> Option<Placed<T>> {
        let place = self.place_of(node.line, path);
        match parse(&node.value) {
            Ok(value) => Some(Placed { value, place }),
            Err(reason) => {
                self.fail(place, reason);
                None
            }
        }
    }

    fn nodes(&mut self, key: &'static str) -> Vec<(String, &'a ConfigNode)> {
        let path = self.path_of(key);
        let Some(node) = self.find(key) else {
            return Vec::new();
        };
        if let ConfigValue::List(nodes) = &node.value {
            return nodes
                .iter()
                .enumerate()
                .map(|(i, node)| (format!("{path}[{i}]"), node))
                .collect();
        }
        let place = self.place_of(node.line, &path);
        self.fail(place, format!("expected a list, found {}", node.value.in_words()));
        Vec::new()
    }

    fn list<T>(
        &mut self,
        key: &'static str,
        parse: fn(&ConfigValue) -> Result<T, String>,
    ) -> Vec<Placed<T>> {
        let nodes = self.nodes(key);
        nodes.into_iter().filter_map(|(path, node)| self.read(node, &path, parse)).collect()
    }

    fn tables<T>(&mut self, key: &'static str, read: fn(ConfigTable<'_>) -> Option<T>) -> Vec<T> {
        let nodes = self.nodes(key);
        nodes
            .into_iter()
            .filter_map(|(path, node)| {
                ConfigTable::open(self.file, &path, node, self.errors).and_then(read)
            })
            .collect()
    }

    fn table<T>(&mut self, key: &'static str, read: fn(ConfigTable<'_>) -> T) -> Option<T> {
        let path = self.path_of(key);
        let node = self.find(key)?;
        ConfigTable::open(self.file, &path, node, self.errors).map(read)
    }

    /// Refuses what no one took.
    fn close(self) {
        for entry in self.entries {
            if self.known.contains(&entry.key.as_str()) {
                continue;
            }
            let place = self.place_of(entry.line, &self.path_of(&entry.key));
            let reason = match nearest(&entry.key, &self.known) {
                Some(known) => format!("unknown key; did you mean `{known}`?"),
                None => format!("unknown key; known keys are {}", self.known.join(", ")),
            };
            self.errors.push(ConfigError { place, reason });
        }
    }
}

fn text<T: FromStr<Err: Display>>(value: &ConfigValue) -> Result<T, String> {
    match value {
        ConfigValue::Text(text) => text.parse().map_err(|error: T::Err| error.to_string()),
        other => Err(format!("expected a quoted string, found {}", other.in_words())),
    }
}

fn text_or_number<T: FromStr<Err: Display>>(value: &ConfigValue) -> Result<T, String> {
    match value {
        ConfigValue::Number(number) => text(&ConfigValue::Text(number.to_string())),
        other => text(other),
    }
}

fn number(value: &ConfigValue) -> Result<u32, String> {
    match value {
        ConfigValue::Number(number) => u32::try_from(*number)
            .map_err(|_| format!("{number} is not between 0 and {}", u32::MAX)),
        other => Err(format!("expected a number, found {}", other.in_words())),
    }
}

fn flag(value: &ConfigValue) -> Result<bool, String> {
    match value {
        ConfigValue::Bool(bool) => Ok(*bool),
        other => Err(format!("expected true or false, found {}", other.in_words())),
    }
}
