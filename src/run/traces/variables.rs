//! The standard variables that ask for spans, and name their collector.

/// Name a collector; the first wins.
pub const ENDPOINTS: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// What a variable says.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The first of these variables that says something, and what that is.
pub fn first<const N: usize>(
    names: [&'static str; N],
    variable: Variable,
) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, variable(name)?)))
}

/// Returns whether the variables ask for spans.
pub fn is_wanted(variable: Variable) -> bool {
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|all| all.eq_ignore_ascii_case("true"));
    let exporters = variable("OTEL_TRACES_EXPORTER").unwrap_or_else(|| "otlp".to_owned());
    let is_named = first(ENDPOINTS, variable).is_some();
    !is_off && is_named && exporters.split(',').any(|one| one.trim() == "otlp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_sent_if_the_standard_variables_ask_for_them() {
        let (all, traces) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        for (variables, expected) in [
            (&[][..], false),
            (&[(all, "http://c:4317")], true),
            (&[(traces, "http://c:4317")], true),
            (&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4317")], false),
            (&[(all, "http://c"), ("OTEL_SDK_DISABLED", "TRUE")], false),
            (&[(all, "http://c"), ("OTEL_SDK_DISABLED", "false")], true),
            (&[(all, "http://c"), ("OTEL_TRACES_EXPORTER", "none")], false),
            (&[(all, "http://c"), ("OTEL_TRACES_EXPORTER", "console, otlp")], true),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(is_wanted(&variable), expected, "{variables:?}");
        }
    }
}
