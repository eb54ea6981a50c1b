//! The checksum by which contents are compared.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// What a digest begins with in JSON.
const PREFIX: &str = "sha256:";

/// A SHA-256, printed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Digest, String> {
        let wrong = || format!("`{text}` is not a SHA-256: write 64 hexadecimal digits");
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let (pairs, []) = hex.as_chunks::<2>() else { return Err(wrong()) };
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let bytes: Option<Vec<u8>> = pairs
            .iter()
            .map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok())
            .collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Digest).ok_or_else(wrong)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Hexadecimal for people, and its bytes between the two ends of a copy.
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(&format_args!("{PREFIX}{self}"))
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            let digits = text.strip_prefix(PREFIX).ok_or_else(|| D::Error::custom("no SHA-256"))?;
            digits.parse().map_err(D::Error::custom)
        } else {
            <[u8; 32]>::deserialize(deserializer).map(Digest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = Digest::of(b"x");
        for text in [digest.to_string(), digest.to_string().to_uppercase()] {
            assert_eq!(text.parse(), Ok(digest));
        }
        assert_eq!(format!("sha256:{digest}").parse(), Ok(digest));
        for text in ["", "ab", &"a".repeat(63), &"a".repeat(66), &"g".repeat(64)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
