//! The span of whoever calls, of which a call becomes a part: the headers of W3C Trace Context.

use std::ops::RangeInclusive;

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::codegen::http::HeaderMap;

/// The headers that are read, each with the lengths that are believed. Anyone may write them; as
/// the standard has them, a parent is this long, and a state longer than this may be left out.
const READ: [(&str, RangeInclusive<usize>); 2] =
    [("traceparent", 55..=55), ("tracestate", 0..=512)];

/// Returns the parent of the span of a call: the one in its headers, or a new root if they name
/// none in the standard's form.
pub(super) fn of(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Read(headers))
}

struct Read<'a>(&'a HeaderMap);

impl Extractor for Read<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let (_, lengths) = READ.iter().find(|(name, _)| *name == key)?;
        let value = self.0.get(key)?;
        value.to_str().ok().filter(|value| lengths.contains(&value.len()))
    }

    fn keys(&self) -> Vec<&str> {
        READ.iter().map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceContextExt;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// What is believed of these headers: the parent's ids, and the state.
    fn read(parent: &str, state: &str) -> Option<(String, String)> {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", parent.parse().unwrap());
        headers.insert("tracestate", state.parse().unwrap());
        let context = of(&headers);
        let span = context.span();
        let caller = span.span_context();
        let ids = format!("{} {}", caller.trace_id(), caller.span_id());
        caller.is_valid().then(|| (ids, caller.trace_state().header()))
    }

    #[test]
    fn only_what_is_as_the_standard_has_it_names_a_caller() {
        let ids = "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331";
        let with = |state: &str| Some((ids.to_owned(), state.to_owned()));
        assert_eq!(read(PARENT, "a=1,b=2"), with("a=1,b=2"));
        assert_eq!(read(PARENT, "no pair"), with(""));
        let part = "1".repeat(168);
        let longest = format!("a={part},b={part},c={part}");
        assert_eq!(longest.len(), 512);
        assert_eq!(read(PARENT, &longest).map(|(_, state)| state), Some(longest.clone()));
        assert_eq!(read(PARENT, &format!("{longest}3")), with(""));
        for other in [
            "",
            "00-1-1-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            &"0".repeat(1 << 20),
        ] {
            assert_eq!(read(other, ""), None, "{}", &other[..other.len().min(64)]);
        }
    }
}
