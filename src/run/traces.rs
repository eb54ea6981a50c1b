//! Spans of calls and of the work for single objects, for a collector of OpenTelemetry: if the standard variables name
//! one, and this build has the feature `otlp`. Whatever becomes of a span, the work that it is about goes on.

mod handle;
#[cfg(feature = "otlp")]
mod otlp;
mod variables;

pub use handle::{Spans, Traces};
#[cfg(not(feature = "otlp"))]
use variables::Variable;
use variables::is_wanted;

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
