//! Spans of calls and of the work for single objects, for a collector of OpenTelemetry: if the standard variables name
//! one, and this build has the feature `otlp`. Whatever becomes of a span, the work that it is about goes on.

#[cfg(feature = "otlp")]
mod otlp;

use std::fmt;

use tracing_subscriber::{Layer, Registry};

/// Name a collector; the first wins.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// What a variable says.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Exporter of spans, beside the lines of the log.
pub type Spans = Box<dyn Layer<Registry> + Send + Sync>;

/// Handling of spans while a role runs.
#[derive(Default)]
pub struct Traces {
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("is_on", &self.end.is_some()).finish()
    }
}

impl Traces {
    /// Sends what is left. The runtime in which it began still has to run.
    pub fn end(self) {
        if let Some(end) = self.end {
            end();
        }
    }
}

/// Begins to send the spans of a role, if that is asked for; in a runtime, which does the work.
///
/// # Errors
/// Why nothing is sent though it is asked for.
pub fn begin(role: &str) -> Result<Option<(Spans, Traces)>, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    is_wanted(&variable).then(|| sent(role, &variable)).transpose()
}

#[cfg(feature = "otlp")]
use otlp::sent;

#[cfg(not(feature = "otlp"))]
fn sent(_: &str, _: Variable) -> Result<(Spans, Traces), String> {
    Err("this build has no OpenTelemetry; build it with `--features otlp`".to_owned())
}

/// The first of these variables that says something, and what that is.
fn first<const N: usize>(
    names: [&'static str; N],
    variable: Variable,
) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, variable(name)?)))
}

/// Returns whether the variables ask for spans.
fn is_wanted(variable: Variable) -> bool {
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
