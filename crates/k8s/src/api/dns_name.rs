//! Names as Kubernetes has them: of what a tenant writes, only this gets into what others depend on.

use std::fmt;
use std::str::FromStr;

/// The longest name of an object.
const LONGEST: usize = 253;

/// What the API server takes as the name of an object.
pub(super) const DNS_NAME: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// As [`DNS_NAME`], or nothing.
pub(super) const DNS_NAME_OR_NONE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";

/// As [`DNS_NAME`], where `*` stands for any characters of it.
pub(super) const DNS_NAMES: &str = r"^[-.*a-z0-9]+$";

/// The uid of an object, as the API server makes it.
pub(super) const UID: &str = r"^[-a-zA-Z0-9]+$";

/// What the API server takes as the name of a namespace.
pub(super) const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// A name that an object of Kubernetes can have: a DNS subdomain of RFC 1123. It has no quote, no slash and
/// no space, so it means the same wherever it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(String);

/// A text that is no name of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of an object: those have letters a to z, digits, `-` and `.`")]
pub struct NoDnsName(String);

impl DnsName {
    /// Returns it as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DnsName {
    type Err = NoDnsName;

    fn from_str(text: &str) -> Result<DnsName, NoDnsName> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_label = |label: &str| {
            let bytes = label.as_bytes();
            let ends = bytes.first().zip(bytes.last());
            ends.is_some_and(|(first, last)| is_plain(*first) && is_plain(*last))
                && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-')
        };
        let is_name = text.len() <= LONGEST && text.split('.').all(is_label);
        is_name.then(|| DnsName(text.to_owned())).ok_or_else(|| NoDnsName(text.to_owned()))
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_the_schema_takes_is_a_name(name in DNS_NAME.trim_matches(['^', '$'])) {
            prop_assert_eq!(name.parse::<DnsName>().is_ok(), name.len() <= LONGEST);
        }

        #[test]
        fn what_is_taken_has_nothing_but_letters_digits_dashes_and_dots(text in "[ -~]{0,4}|\\PC*") {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            if let Ok(name) = text.parse::<DnsName>() {
                prop_assert!(!text.is_empty() && text.chars().all(plain), "{name}");
            }
        }
    }

    #[test]
    fn names_are_those_of_kubernetes() {
        let longest = "a".repeat(LONGEST);
        for name in ["a", "db", "0", "a-b", "a.b", "a--b.c-d", &longest] {
            assert_eq!(name.parse::<DnsName>().map(|name| name.to_string()).as_deref(), Ok(name));
        }
        let longer = format!("{longest}a");
        for text in
            ["", ".", "a.", ".a", "a..b", "-a", "a-", "a.-b", "A", "a_b", "'", "a/b", &longer]
        {
            assert!(text.parse::<DnsName>().is_err(), "{text}");
        }
    }
}
