//! What a schema takes its type can be decoded from: objects are made from each definition as it is installed.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::string::string_regex;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::api::{
    ArchivePopulator, NodeStorage, PvcAutoscaler, PvcSourcePopulator, StoragePool, VolumeRequest,
    definitions, is_understood,
};

/// A word that no version knows.
const NEWER: &str = "SomethingNewer";

/// Sizes at the edges of what the pattern of a quantity takes.
const SIZES: [&str; 7] = [
    "0",
    "8Ei",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999999999999",
    "0.0000000000000000000000000001E",
    "1.0000000000000000000000000001E",
];

fn schema(kind: &str) -> Value {
    let all = definitions();
    let one = all.iter().find(|one| one.spec.names.kind == kind).expect("a definition");
    let schema =
        one.spec.versions[0].schema.as_ref().and_then(|all| all.open_api_v3_schema.clone());
    json!(schema)
}

/// Objects of a kind.
fn objects(kind: &'static str, newer: bool) -> BoxedStrategy<Value> {
    let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "1", "generation": 1});
    let head = json!({"apiVersion": "pliant.io/v1alpha1", "kind": kind, "metadata": metadata});
    values(&schema(kind), newer)
        .prop_map(move |object| {
            let mut all = head.as_object().cloned().unwrap_or_default();
            all.extend(object.as_object().cloned().unwrap_or_default());
            Value::Object(all)
        })
        .boxed()
}

/// Values that a schema takes; with `newer` also words that another version may have added to it.
fn values(schema: &Value, newer: bool) -> BoxedStrategy<Value> {
    let plain = match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == json!(true) => int_or_text(schema, newer),
        Some("object") => fields(schema, newer),
        Some("array") => {
            let least = usize::try_from(schema["minItems"].as_u64().unwrap_or(0)).unwrap();
            vec(values(&schema["items"], newer), least..=least + 2).prop_map(Value::from).boxed()
        }
        Some("string") => texts(schema, newer),
        Some("integer") => {
            let (least, most) = match schema["format"].as_str() {
                Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
                Some("int64") | None => (i64::MIN, i64::MAX),
                Some(other) => panic!("integers of {other}"),
            };
            let bound = |word: &str, else_: i64| {
                schema[word].as_f64().map_or(else_, |bound| format!("{bound:.0}").parse().unwrap())
            };
            (bound("minimum", least)..=bound("maximum", most)).prop_map(Value::from).boxed()
        }
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        other => panic!("a schema of type {other:?}: {schema}"),
    };
    if schema["nullable"] == json!(true) {
        return prop_oneof![9 => plain, 1 => Just(Value::Null)].boxed();
    }
    plain
}

fn fields(schema: &Value, newer: bool) -> BoxedStrategy<Value> {
    if let Some(choices) = schema["oneOf"].as_array() {
        return one_of(schema, choices, newer);
    }
    let Some(properties) = schema["properties"].as_object() else {
        let each = &schema["additionalProperties"];
        if !each.is_object() {
            return Just(json!({})).boxed();
        }
        let least = usize::try_from(schema["minProperties"].as_u64().unwrap_or(0)).unwrap();
        let all = vec(("[a-z]{1,9}", values(each, newer)), least..3);
        return all.prop_map(|all| Value::Object(all.into_iter().collect())).boxed();
    };
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let each: Vec<BoxedStrategy<Option<(String, Value)>>> = properties
        .iter()
        .map(|(name, field)| {
            let (name, is_there) = (name.clone(), required.contains(&name.as_str()));
            let field = values(field, newer).prop_map(move |value| (name.clone(), value));
            if is_there { field.prop_map(Some).boxed() } else { prop::option::of(field).boxed() }
        })
        .collect();
    each.prop_map(|all| Value::Object(all.into_iter().flatten().collect::<Map<_, _>>())).boxed()
}

/// Objects of which exactly one field is there.
fn one_of(schema: &Value, choices: &[Value], newer: bool) -> BoxedStrategy<Value> {
    let mut all: Vec<BoxedStrategy<Value>> = Vec::new();
    for choice in choices {
        let name = choice["required"][0].as_str().expect("a choice requires its field").to_owned();
        let nested = &choice["properties"][&name];
        let field = &schema["properties"][&name];
        let field = if field.is_object() { field } else { nested };
        all.push(values(field, newer).prop_map(move |value| json!({ &name: value })).boxed());
    }
    if newer {
        all.push(Just(json!({ "somethingNewer": {"a": [1, "b"]} })).boxed());
    }
    prop::strategy::Union::new(all).boxed()
}

fn texts(schema: &Value, newer: bool) -> BoxedStrategy<Value> {
    if let Some(words) = schema["enum"].as_array() {
        let mut words: Vec<Value> = words.iter().filter(|word| !word.is_null()).cloned().collect();
        // Kubernetes itself adds no word to the status of a condition.
        let is_of_kubernetes = schema["enum"] == json!(["True", "False", "Unknown"]);
        words.extend((newer && !is_of_kubernetes).then(|| json!(NEWER)));
        return prop::sample::select(words).boxed();
    }
    if schema["format"] == json!("date-time") {
        let zone = "(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])";
        let hour = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?";
        let day = "(19[7-9]|20[0-9])[0-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])";
        return from(&format!("{day}T{hour}{zone}"));
    }
    let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0)).unwrap();
    let most = usize::try_from(schema["maxLength"].as_u64().unwrap_or(24)).unwrap();
    if let Some(pattern) = pattern(schema) {
        let is_share = pattern.contains("{0,2}%");
        let fits = move |value: &Value| {
            let text = value.as_str().unwrap_or_default();
            let parts: Vec<&str> = text.split('-').collect();
            // The one rule beside a pattern: hours begin and end at different minutes.
            let is_empty_span = parts.len() == 2 && text.contains(':') && parts[0] == parts[1];
            // And that of a share: it is more than nothing.
            let is_nothing = is_share && text.starts_with(['0', '.']);
            text.chars().count() <= most && !is_empty_span && !is_nothing
        };
        let plain = from(&pattern).prop_filter("its length", fits);
        if pattern.contains("[KMGTPE]i") {
            return prop_oneof![2 => plain, 1 => prop::sample::select(&SIZES[..]).prop_map(Value::from)]
                .boxed();
        }
        return plain.boxed();
    }
    from(&format!(".{{{least},{}}}", most.min(least + 12)))
}

/// The pattern of a text, as the schema or its rule has it, without endless repetitions.
fn pattern(schema: &Value) -> Option<String> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let mut rules = rules.filter_map(|rule| rule["rule"].as_str());
    let of_rule = |rule: &str| {
        if let Some(word) = rule.strip_prefix("self == '") {
            return word.strip_suffix('\'').map(str::to_owned);
        }
        Some(rule.split_once("self.matches('")?.1.split_once("')")?.0.to_owned())
    };
    let pattern =
        schema["pattern"].as_str().map(str::to_owned).or_else(|| rules.find_map(of_rule))?;
    let bare = pattern.trim_start_matches('^').trim_end_matches('$');
    Some(bare.replace("[0-9]+", "[0-9]{1,14}").replace("]*", "]{0,9}").replace("]+", "]{1,9}"))
}

/// A size, with a unit or in bytes.
fn int_or_text(schema: &Value, newer: bool) -> BoxedStrategy<Value> {
    let bytes = (0_i64..=8_000_000_000_000_000_000).prop_map(Value::from);
    prop_oneof![3 => texts(schema, newer), 1 => bytes].boxed()
}

fn from(pattern: &str) -> BoxedStrategy<Value> {
    string_regex(pattern)
        .unwrap_or_else(|error| panic!("{pattern}: {error}"))
        .prop_map(Value::from)
        .boxed()
}

fn decoded<K: DeserializeOwned>(object: &Value) -> Result<K, TestCaseError> {
    serde_json::from_value(object.clone())
        .map_err(|error| TestCaseError::fail(format!("{error}: {object:#}")))
}

/// An object as text; its access modes are kept as they are written, whatever the words.
fn without_access_modes(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(modes) = object.pointer_mut("/spec/volumeClaimTemplate/spec/accessModes") {
        *modes = Value::Null;
    }
    object.to_string()
}

macro_rules! kinds {
    ($($test:ident: $kind:ident;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $test(
                    plain in objects(stringify!($kind), false),
                    newer in objects(stringify!($kind), true),
                ) {
                    let one: $kind = decoded(&plain)?;
                    prop_assert!(is_understood(&one), "{plain:#}");
                    let one: $kind = decoded(&newer)?;
                    if without_access_modes(&newer).contains(NEWER) {
                        prop_assert!(!is_understood(&one), "{newer:#}");
                    }
                }
            )*
        }
    };
}

kinds! {
    archive_populators_are_decoded: ArchivePopulator;
    node_storages_are_decoded: NodeStorage;
    pools_are_decoded: StoragePool;
    pvc_autoscalers_are_decoded: PvcAutoscaler;
    pvc_source_populators_are_decoded: PvcSourcePopulator;
    volume_requests_are_decoded: VolumeRequest;
}
