//! Finds the end of a JSON object in a stream of bytes.
//!
//! `lvm` prints no end mark: a command has ended when the braces of its report have closed.

/// Follows the bytes of one JSON object until its last brace.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ObjectEnd {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

/// The stream holds something else than an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAnObject;

impl ObjectEnd {
    /// Takes the next bytes. `Some(n)`: the object ends with the n-th of them.
    ///
    /// Blanks before the object are passed over. After the end, start with a new one.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotAnObject> {
        for (at, byte) in bytes.iter().enumerate() {
            if self.step(*byte)? {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    fn step(&mut self, byte: u8) -> Result<bool, NotAnObject> {
        if self.escaped {
            self.escaped = false;
            return Ok(false);
        }
        match byte {
            b'\\' if self.in_string => self.escaped = true,
            b'"' if self.depth > 0 => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' => self.depth = self.depth.checked_add(1).ok_or(NotAnObject)?,
            b'}' if self.depth > 0 => {
                self.depth -= 1;
                return Ok(self.depth == 0);
            }
            byte if self.depth == 0 && !byte.is_ascii_whitespace() => return Err(NotAnObject),
            _ => {}
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REPORT: &str = r#" {"report":[{"lv":[{"n":"a}\"{\\","e":""}]}],
        "log":[{"m":"\\\"","log_ret_code":"1"}] }"#;

    #[test]
    fn the_end_is_found_at_every_split() {
        let whole = format!("{REPORT}\n");
        for split in 0..=whole.len() {
            let (first, second) = whole.as_bytes().split_at(split);
            let mut end = ObjectEnd::default();
            let found = match end.feed(first) {
                Ok(Some(at)) => Ok(Some(at)),
                Ok(None) => end.feed(second).map(|at| at.map(|at| at + split)),
                Err(error) => Err(error),
            };
            assert_eq!(found, Ok(Some(REPORT.len())), "split at {split}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for stream in ["[1]", "lvm> ", "\"a\"", "}", "  x{"] {
            assert_eq!(ObjectEnd::default().feed(stream.as_bytes()), Err(NotAnObject), "{stream}");
        }
    }

    proptest! {
        #[test]
        fn any_json_object_ends_where_it_ends(
            members in proptest::collection::btree_map(".*", ".*", 0..6),
            rest in "[ \n]*[{}\"a]*",
        ) {
            let inner = serde_json::to_string(&members).unwrap();
            let text = format!("{{\"report\":[{inner},{{}}],\"log\":{inner}}}");
            let stream = format!("{text}{rest}");
            prop_assert_eq!(ObjectEnd::default().feed(stream.as_bytes()), Ok(Some(text.len())));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ObjectEnd::default().feed(&bytes);
        }
    }
}
