//! The grammar of LVM's configuration text, in which metadata is written.
//!
//! `name { … }` is a section, `name = value` an entry; a value is a number, a quoted string or an
//! array of those. `#` begins a comment. A zero byte ends the text.
//!
//! The tree of a whole text would be three times as large as the text, and a group has a thousand
//! volumes: sections that lie deep are passed over, and read when they are asked for.

use std::borrow::Cow;

use super::{MetadataError, malformed};

const PART: &str = "metadata text";
/// Metadata nests four deep; more is no metadata.
const MAX_DEPTH: usize = 8;
/// LVM's names are shorter than 128 bytes, and its own keys much shorter: what is named after a key is
/// never much larger than the text.
const LONGEST_NAME: usize = 127;
/// Where the physical and the logical volumes are: below the file, the group and their list.
const UNREAD_DEPTH: usize = 3;

/// The right side of an entry, or a section.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MetadataValue<'a> {
    /// A whole number.
    Number(i64),
    /// A string without its quotes and escapes, or a number with a fraction as written.
    Text(Cow<'a, str>),
    /// Values of the two kinds above.
    Array(Vec<MetadataValue<'a>>),
    /// Named values in braces.
    Section(Section<'a>),
    /// The same, not read yet.
    Unread(SkippedSection<'a>),
}

/// A section that was passed over: it ends where it should, and what is in it is not known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SkippedSection<'a> {
    text: &'a [u8],
    /// Of what follows its opening brace.
    at: usize,
}

impl<'a> SkippedSection<'a> {
    /// Reads what is in it.
    pub fn read(&self) -> Result<Section<'a>, MetadataError> {
        MetadataReader { text: self.text, at: self.at }.section(UNREAD_DEPTH)
    }
}

/// Named values in the order of the text, whose words they borrow.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Section<'a>(pub Vec<(Cow<'a, str>, MetadataValue<'a>)>);

impl<'a> Section<'a> {
    /// The first value with this name.
    pub fn get(&self, name: &str) -> Option<&MetadataValue<'a>> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The sections in it, in the order of the text.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section<'a>)> {
        self.0.iter().filter_map(|(name, value)| match value {
            MetadataValue::Section(section) => Some((&**name, section)),
            _ => None,
        })
    }

    /// The sections in it that are not read, in the order of the text.
    pub fn unread(&self) -> impl Iterator<Item = (&str, &SkippedSection<'a>)> {
        self.0.iter().filter_map(|(name, value)| match value {
            MetadataValue::Unread(section) => Some((&**name, section)),
            _ => None,
        })
    }

    /// The section with this name; a text without it is as one where it is empty.
    pub fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections().find(|(key, _)| *key == name).map(|(_, section)| section)
    }
}

/// Parses a whole text.
pub(super) fn parse(text: &[u8]) -> Result<Section<'_>, MetadataError> {
    let mut reader = MetadataReader { text, at: 0 };
    let section = reader.section(0)?;
    match reader.peek() {
        None => Ok(section),
        Some(_) => Err(reader.error("a closing brace too many")),
    }
}

struct MetadataReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> MetadataReader<'a> {
    fn error(&self, what: &str) -> MetadataError {
        malformed(PART, format!("{what} at byte {}", self.at))
    }

    /// The byte at the reading position, `None` at the end.
    fn here(&self) -> Option<u8> {
        self.text.get(self.at).copied().filter(|byte| *byte != 0)
    }

    /// Skips blanks and comments and look at the next byte.
    fn peek(&mut self) -> Option<u8> {
        let mut comment = false;
        while let Some(byte) = self.here() {
            comment = byte == b'#' || comment && byte != b'\n';
            if !comment && !byte.is_ascii_whitespace() {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Skips the next byte if it is this one.
    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn section(&mut self, depth: usize) -> Result<Section<'a>, MetadataError> {
        if depth > MAX_DEPTH {
            return Err(self.error("too many nested sections"));
        }
        let mut section = Section::default();
        while self.peek().is_some_and(|byte| byte != b'}') {
            let name = self.name()?;
            let value = if self.accept(b'{') {
                let inner = self.inner(depth + 1)?;
                if !self.accept(b'}') {
                    return Err(self.error("a section without an end"));
                }
                inner
            } else if self.accept(b'=') {
                self.value()?
            } else {
                return Err(self.error("a name without a value"));
            };
            section.0.push((name, value));
        }
        Ok(section)
    }

    /// What is between braces at this depth.
    fn inner(&mut self, depth: usize) -> Result<MetadataValue<'a>, MetadataError> {
        if depth != UNREAD_DEPTH {
            return self.section(depth).map(MetadataValue::Section);
        }
        let unread = SkippedSection { text: self.text, at: self.at };
        self.pass_over(depth)?;
        Ok(MetadataValue::Unread(unread))
    }

    /// Go to the brace that ends the section of this depth.
    fn pass_over(&mut self, outer: usize) -> Result<(), MetadataError> {
        let mut depth = outer;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'}' if depth == outer => return Ok(()),
                b'}' => depth -= 1,
                b'{' if depth == MAX_DEPTH => return Err(self.error("too many nested sections")),
                b'{' => depth += 1,
                _ => {}
            }
            self.at += 1;
        }
        Err(self.error("a section without an end"))
    }

    fn name(&mut self) -> Result<Cow<'a, str>, MetadataError> {
        let name = if self.peek() == Some(b'"') {
            self.string()?
        } else {
            self.word(|byte| byte.is_ascii_alphanumeric() || b"_.+-/@".contains(&byte))
                .ok_or_else(|| self.error("no name"))?
        };
        if name.len() > LONGEST_NAME {
            return Err(self.error("a name that is too long"));
        }
        Ok(name)
    }

    /// The longest run of these bytes; `None` if it is empty.
    fn word(&mut self, belongs: impl Fn(u8) -> bool) -> Option<Cow<'a, str>> {
        let start = self.at;
        while self.here().is_some_and(&belongs) {
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        (!word.is_empty()).then(|| String::from_utf8_lossy(word))
    }

    fn value(&mut self) -> Result<MetadataValue<'a>, MetadataError> {
        if !self.accept(b'[') {
            return self.scalar();
        }
        let mut array = Vec::new();
        while !self.accept(b']') {
            array.push(self.scalar()?);
            if !self.accept(b',') && self.peek() != Some(b']') {
                return Err(self.error("an array without an end"));
            }
        }
        Ok(MetadataValue::Array(array))
    }

    fn scalar(&mut self) -> Result<MetadataValue<'a>, MetadataError> {
        if self.peek() == Some(b'"') {
            return self.string().map(MetadataValue::Text);
        }
        let word = self
            .word(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte))
            .ok_or_else(|| self.error("no value"))?;
        if word.contains('.') {
            return Ok(MetadataValue::Text(word));
        }
        let number = word.parse();
        number.map(MetadataValue::Number).map_err(|_| self.error("no number"))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, MetadataError> {
        self.at += 1; // The opening quote.
        let start = self.at;
        let mut escapes = false;
        while self.here() != Some(b'"') {
            let escape = self.here() == Some(b'\\');
            self.at += usize::from(escape);
            escapes |= escape;
            self.here().ok_or_else(|| self.error("a string without an end"))?;
            self.at += 1;
        }
        let string = &self.text[start..self.at];
        self.at += 1;
        if escapes {
            return Ok(String::from_utf8_lossy(&unescaped(string)).into_owned().into());
        }
        Ok(String::from_utf8_lossy(string))
    }
}

/// A string without the backslashes before its quotes and backslashes.
fn unescaped(string: &[u8]) -> Vec<u8> {
    let mut bytes = string.iter().copied();
    std::iter::from_fn(|| match bytes.next() {
        Some(b'\\') => bytes.next(),
        other => other,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> MetadataValue<'_> {
        MetadataValue::Text(text.into())
    }

    fn entry<'a>(name: &'a str, value: MetadataValue<'a>) -> (Cow<'a, str>, MetadataValue<'a>) {
        (name.into(), value)
    }

    #[test]
    fn reads_sections_values_arrays_comments_and_escapes() {
        let source = concat!(
            "# first line\n",
            "a-b {\nn=-7 s = \"say \\\"hi\\\" \\\\\" # \"no\" }\n",
            "empty = []\nlist = [\"x#y\", 1,\n\"z\"]\ninner { }\n}\n",
            "\"quoted\" { ratio = 0.5 }\n\0 trailing {"
        );
        let inner = Section(vec![
            entry("n", MetadataValue::Number(-7)),
            entry("s", text("say \"hi\" \\")),
            entry("empty", MetadataValue::Array(vec![])),
            entry(
                "list",
                MetadataValue::Array(vec![text("x#y"), MetadataValue::Number(1), text("z")]),
            ),
            entry("inner", MetadataValue::Section(Section::default())),
        ]);
        let quoted = Section(vec![entry("ratio", text("0.5"))]);
        let whole = Section(vec![
            entry("a-b", MetadataValue::Section(inner)),
            entry("quoted", MetadataValue::Section(quoted)),
        ]);
        assert_eq!(parse(source.as_bytes()), Ok(whole));
    }

    #[test]
    fn refuses_what_is_not_its_grammar() {
        for source in [
            "a",
            "a =",
            "a = [",
            "a = [1",
            "a = \"x",
            "a {",
            "}",
            "a = x",
            "= 1",
            "a = [1 2]",
            "a = \"x\\",
            "a = [[1]]",
            "a = -",
            "a = 99999999999999999999",
        ] {
            assert!(parse(source.as_bytes()).is_err(), "{source}");
        }
    }

    #[test]
    fn what_lies_deep_is_read_when_it_is_asked_for() {
        let source = "g { l { v { s = \"}\" # }\n n = 1 inner { m = 2 } } w { x } } after = 3 }";
        let file = parse(source.as_bytes()).unwrap();
        let group = file.section("g").unwrap();
        assert_eq!(group.get("after"), Some(&MetadataValue::Number(3)));
        let volumes: Vec<_> = group.section("l").unwrap().unread().collect();
        let [("v", whole), ("w", broken)] = volumes[..] else { panic!("{volumes:?}") };
        let inner = Section(vec![entry("m", MetadataValue::Number(2))]);
        let expected = Section(vec![
            entry("s", text("}")),
            entry("n", MetadataValue::Number(1)),
            entry("inner", MetadataValue::Section(inner)),
        ]);
        assert_eq!(whole.read(), Ok(expected));
        assert!(broken.read().is_err());
        for endless in ["g { l { v {", "g { l { v { } }", "g { l { v { s = \"} } } }"] {
            assert!(parse(endless.as_bytes()).is_err(), "{endless}");
        }
    }

    #[test]
    fn a_name_is_as_long_as_one_of_lvm_at_most() {
        for (length, is_name) in [(LONGEST_NAME, true), (LONGEST_NAME + 1, false)] {
            let name = "n".repeat(length);
            for source in [format!("{name} = 1"), format!("\"{name}\" {{ }}")] {
                assert_eq!(parse(source.as_bytes()).is_ok(), is_name, "{length}");
            }
        }
    }

    #[test]
    fn nesting_is_limited() {
        assert!(parse("a{".repeat(100_000).as_bytes()).is_err());
        let fair = format!("{}{}", "a{".repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH));
        assert!(parse(fair.as_bytes()).is_ok());
    }
}
