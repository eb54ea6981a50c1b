//! Names that cannot be wrong: of nodes, volumes and pools. Each is parsed once, at the edge.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Lower-case base32 without look-alikes to digits (RFC 4648 alphabet).
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The first `letters` base32 letters of the SHA-256 of `text`: 5 bits a letter.
fn digest(text: &str, letters: usize) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let bit = |i: usize| (hash[i / 8] >> (7 - i % 8)) & 1;
    (0..letters)
        .map(|l| (0..5).fold(0, |letter, b| letter << 1 | bit(l * 5 + b)))
        .map(|letter| char::from(BASE32[usize::from(letter)]))
        .collect()
}

fn is_base32(text: &str, letters: usize) -> bool {
    text.len() == letters && text.bytes().all(|b| BASE32.contains(&b))
}

/// The short stable id of a node: 8 base32 letters.
///
/// Volume ids begin with it, so whoever holds an id knows which node to ask.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(String);

impl NodeKey {
    /// Letters in a node key.
    pub const LETTERS: usize = 8;

    /// Derives the key of a node from its name.
    pub fn of(node: &str) -> Self {
        NodeKey(digest(node, Self::LETTERS))
    }

    /// The letters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The hash of the name of a volume or a snapshot: 26 base32 letters (130 bits) of its SHA-256.
///
/// The same name always gives the same key, which makes creating idempotent; names of any length
/// and script fit the limits of logical volume names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeKey(String);

impl VolumeKey {
    /// Letters in a volume key.
    pub const LETTERS: usize = 26;

    /// Derives the key from the name that the caller gave.
    pub fn of(name: &str) -> Self {
        VolumeKey(digest(name, Self::LETTERS))
    }

    /// Parses the letters.
    pub(crate) fn parse(text: &str) -> Result<Self, ForeignId> {
        is_base32(text, Self::LETTERS).then(|| VolumeKey(text.to_owned())).ok_or(ForeignId)
    }

    /// The letters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A volume's id on the wire: `<node key>-<volume key>`, 35 characters of `[a-z2-7-]`.
///
/// A text of any other shape names no volume of ours; it never reaches a path or a command.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId {
    node: NodeKey,
    key: VolumeKey,
}

impl VolumeId {
    /// The id of the volume with this key on this node.
    pub fn new(node: NodeKey, key: VolumeKey) -> Self {
        VolumeId { node, key }
    }

    /// The node that made it.
    pub fn node(&self) -> &NodeKey {
        &self.node
    }

    /// The key of its name.
    pub fn key(&self) -> &VolumeKey {
        &self.key
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.node.0, self.key.0)
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The text is not an id that this driver ever gave out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a volume id of this driver")]
pub struct ForeignId;

impl FromStr for VolumeId {
    type Err = ForeignId;

    fn from_str(text: &str) -> Result<Self, ForeignId> {
        let (node, key) = text.split_once('-').ok_or(ForeignId)?;
        if !is_base32(node, NodeKey::LETTERS) {
            return Err(ForeignId);
        }
        Ok(VolumeId { node: NodeKey(node.to_owned()), key: VolumeKey::parse(key)? })
    }
}

/// The name of a pool: 1 to 63 of `[a-z0-9-]`, beginning and ending with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolName(String);

impl PoolName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PoolName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let ends = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
        if ends && text.len() <= 63 && text.bytes().all(|b| plain(b) || b == b'-') {
            Ok(PoolName(text.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not a pool name: use 1 to 63 of a-z, 0-9 and -, with a letter or digit \
                 at both ends"
            ))
        }
    }
}

impl TryFrom<String> for PoolName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PoolName> for String {
    fn from(name: PoolName) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_stable() {
        // Never change: ids are stored in clusters.
        let id = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"));
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        assert_eq!(id.to_string().len(), 35);
        assert_eq!(digest("", 8), "4oymiquy");
    }

    #[test]
    fn pool_names_are_those_of_labels() {
        let longest = "a".repeat(63);
        for text in ["a", "0", "a-0", &*longest] {
            let name: PoolName = text.parse().unwrap();
            assert_eq!((name.as_str(), name.to_string().as_str()), (text, text));
            assert_eq!(String::from(name), text);
        }
        for text in ["", "-", "a-", "-a", "A", "a_b", &*(longest.clone() + "a")] {
            assert!(text.parse::<PoolName>().is_err(), "{text:?}");
        }
    }

    /// A text of any other shape reaches no path and no command.
    #[test]
    fn what_is_no_id_is_foreign() {
        let id = VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"));
        let (node, key) = (id.node().as_str(), id.key().as_str());
        assert_eq!((node.len(), key.len()), (8, 26));
        let changed = |at: usize, letter: &str| {
            let mut text = id.to_string();
            text.replace_range(at..=at, letter);
            text
        };
        let foreign = [
            String::new(),
            "-".to_owned(),
            node.to_owned(),
            format!("{node}-"),
            format!("-{key}"),
            format!("{node}{key}"),
            format!("{node}a-{key}"),
            format!("{node}-{key}a"),
            format!("{}-{key}", &node[1..]),
            format!("{node}-{}", &key[1..]),
            format!("{node}-{key}-{key}"),
            format!("../../..-{key}"),
            format!("{node}-../../../../../../../../.."),
            changed(0, "A"),
            changed(0, "1"),
            changed(9, "0"),
            changed(34, "8"),
            changed(34, " "),
        ];
        for text in foreign {
            assert_eq!(text.parse::<VolumeId>(), Err(ForeignId), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn only_our_own_ids_parse(text in ".{0,80}") {
            if let Ok(id) = text.parse::<VolumeId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn any_name_has_a_key(name in "\\PC{1,128}") {
            prop_assert!(is_base32(VolumeKey::of(&name).as_str(), VolumeKey::LETTERS));
        }
    }
}
