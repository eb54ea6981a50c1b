//! A settings file as a tree whose nodes know their line, whichever format it is written in.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{MessageFormatter, UserMessageFormatter};
use toml::de::{DeTable, DeValue};

/// One value with its line number, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigNode {
    pub line: usize,
    pub value: ConfigValue,
}

/// A value in a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConfigValue {
    Text(String),
    Number(i64),
    Bool(bool),
    List(Vec<ConfigNode>),
    Table(Vec<ConfigEntry>),
    /// Something that no setting is, in words.
    Other(&'static str),
}

/// A key of a table with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigEntry {
    pub key: String,
    pub line: usize,
    pub node: ConfigNode,
}

/// The text is not of its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotParsed {
    pub line: usize,
    pub reason: String,
}

/// Reads TOML.
pub(super) fn parse_toml(text: &str) -> Result<ConfigNode, NotParsed> {
    let line = |span: Range<usize>| 1 + text[..span.start].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| NotParsed {
        line: error.span().map_or(1, line),
        reason: error.message().to_owned(),
    })?;
    Ok(ConfigNode { line: 1, value: toml_table(table.get_ref(), &line) })
}

fn toml_table(table: &DeTable<'_>, line: &impl Fn(Range<usize>) -> usize) -> ConfigValue {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| ConfigEntry {
        key: AsRef::<str>::as_ref(key.get_ref()).to_owned(),
        line: line(key.span()),
        node: toml_node(value, line),
    };
    ConfigValue::Table(table.iter().map(entry).collect())
}

fn toml_node(
    node: &toml::Spanned<DeValue<'_>>,
    line: &impl Fn(Range<usize>) -> usize,
) -> ConfigNode {
    let value = match node.get_ref() {
        DeValue::String(text) => ConfigValue::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(ConfigValue::Other("a number beyond 64 bits"), ConfigValue::Number),
        DeValue::Boolean(bool) => ConfigValue::Bool(*bool),
        DeValue::Array(list) => {
            ConfigValue::List(list.iter().map(|node| toml_node(node, line)).collect())
        }
        DeValue::Table(table) => toml_table(table, line),
        DeValue::Float(_) => ConfigValue::Other("a number with a fraction"),
        DeValue::Datetime(_) => ConfigValue::Other("a date"),
    };
    ConfigNode { line: line(node.span()), value }
}

/// Reads YAML; one document, no key twice.
pub(super) fn parse_yaml(text: &str) -> Result<ConfigNode, NotParsed> {
    serde_saphyr::from_str::<serde_saphyr::Spanned<ConfigValue>>(text)
        .map(ConfigNode::from)
        .map_err(|error| NotParsed {
            line: error.location().map_or(1, |place| yaml_line(&place)),
            reason: UserMessageFormatter.format_message(error.without_snippet()).into_owned(),
        })
}

fn yaml_line(place: &serde_saphyr::Location) -> usize {
    usize::try_from(place.line()).unwrap_or(usize::MAX)
}

impl From<serde_saphyr::Spanned<ConfigValue>> for ConfigNode {
    fn from(spanned: serde_saphyr::Spanned<ConfigValue>) -> ConfigNode {
        ConfigNode { line: yaml_line(&spanned.referenced), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for ConfigValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ConfigValue, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = ConfigValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting")
    }

    fn visit_bool<E>(self, bool: bool) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Bool(bool))
    }

    fn visit_i64<E>(self, number: i64) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<ConfigValue, E> {
        Ok(i64::try_from(number)
            .map_or(ConfigValue::Other("a number beyond 64 bits"), ConfigValue::Number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Other("a number with a fraction"))
    }

    fn visit_str<E>(self, text: &str) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Other("nothing"))
    }

    fn visit_none<E>(self) -> Result<ConfigValue, E> {
        Ok(ConfigValue::Other("nothing"))
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<ConfigValue, D::Error> {
        value.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ConfigValue, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element::<serde_saphyr::Spanned<ConfigValue>>()? {
            nodes.push(node.into());
        }
        Ok(ConfigValue::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ConfigValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<serde_saphyr::Spanned<String>>()? {
            let node: ConfigNode = map.next_value::<serde_saphyr::Spanned<ConfigValue>>()?.into();
            entries.push(ConfigEntry { line: yaml_line(&key.referenced), key: key.value, node });
        }
        Ok(ConfigValue::Table(entries))
    }
}

impl ConfigValue {
    /// Describes the value for a message.
    pub(super) fn in_words(&self) -> String {
        match self {
            ConfigValue::Text(text) => format!("the string `{text}`"),
            ConfigValue::Number(number) => format!("the number {number}"),
            ConfigValue::Bool(bool) => bool.to_string(),
            ConfigValue::List(_) => "a list".to_owned(),
            ConfigValue::Table(_) => "a table".to_owned(),
            ConfigValue::Other(words) => (*words).to_owned(),
        }
    }
}
