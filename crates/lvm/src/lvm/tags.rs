//! Tags: the only store of what this driver knows about a logical volume.
//!
//! LVM commits a tag together with the volume that carries it, so a volume is never without its
//! tags, and a driver that lost everything else finds all its volumes again.

use std::fmt::Write;

use crate::lvm::Words;

/// All tags of this driver begin with it; tags of others are never touched.
const PREFIX: &str = "pliant.";

/// Bytes that stand for themselves in the value of a tag. `!` is LVM's too, but begins an escape.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_+.-/=:&#".contains(&byte)
}

/// Writes a tag: `pliant.<key>=<value>`, with every byte that LVM refuses as `!` and two hex digits.
pub fn tag(key: &str, value: &str) -> String {
    let mut tag = format!("{PREFIX}{key}=");
    for byte in value.bytes() {
        if is_plain(byte) {
            tag.push(char::from(byte));
        } else {
            let _ = write!(tag, "!{byte:02x}"); // A String takes everything.
        }
    }
    tag
}

/// Reads the value of the tag with this key; `None` if it is absent, there more than once, or was not
/// written by [`tag`].
pub fn value(tags: &Words, key: &str) -> Option<String> {
    let text = |tag| str::strip_prefix(tag, PREFIX)?.strip_prefix(key)?.strip_prefix('=');
    let mut texts = tags.iter().filter_map(text);
    match (texts.next(), texts.next()) {
        (Some(text), None) => decode(text),
        _ => None,
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'!' {
            let hex = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The exact tag that carries this key now, for removing it.
pub fn find<'a>(tags: &'a Words, key: &'a str) -> Option<&'a str> {
    find_all(tags, key).next()
}

/// All tags of a key, as they are written: a person may have added one.
pub fn find_all<'a>(tags: &'a Words, key: &'a str) -> impl Iterator<Item = &'a str> {
    tags.iter().filter(move |tag| {
        tag.strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_prefix(key))
            .is_some_and(|rest| rest.starts_with('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn writes_what_lvm_takes() {
        assert_eq!(tag("name", "pvc-1 ä,@!"), "pliant.name=pvc-1!20!c3!a4!2c!40!21");
    }

    #[test]
    fn finds_by_the_whole_key() {
        let tags = Words::from(["pliant.wiped-bytes=1", "other"]);
        assert_eq!(find(&tags, "wipe"), None);
        assert_eq!(find(&tags, "wiped-bytes"), Some("pliant.wiped-bytes=1"));
    }

    #[test]
    fn a_value_that_was_cut_off_is_none() {
        for text in ["a!", "a!4", "a!4x", "!ff"] {
            let tags = Words::from([format!("pliant.name={text}")]);
            assert_eq!(value(&tags, "name"), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn values_come_back(text in ".{0,128}") {
            let written = tag("name", &text);
            prop_assert!(written.bytes().all(|b| is_plain(b) || b == b'!'));
            prop_assert_eq!(value(&Words::from([written]), "name"), Some(text));
        }

        #[test]
        fn any_tag_is_read_or_passed_over(text in ".{0,60}") {
            let _ = value(&Words::from([format!("pliant.name={text}")]), "name");
        }
    }
}
