//! The fence: which of the copies of a volume may be used.

use std::fmt;
use std::str::FromStr;

/// Role of a volume for the claim whose volumes are swapped.
///
/// In the order in which a volume goes through them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It is being populated; its content is incomplete.
    HalfCopied,
    /// It is the one that workloads use.
    #[default]
    Active,
    /// Another one has taken its place.
    Superseded,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 3] = [Standing::HalfCopied, Standing::Active, Standing::Superseded];

    /// The word on the volume's tag.
    pub const fn as_str(self) -> &'static str {
        match self {
            Standing::HalfCopied => "incomplete",
            Standing::Active => "active",
            Standing::Superseded => "superseded",
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The allowed use of a volume, with the generation of the swap that set it.
///
/// The default, active in generation 0, is that of a volume that was never swapped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The number of the swap. A later one is higher.
    pub generation: i64,
    /// Role of the volume.
    pub standing: Standing,
    /// True if a copy is in progress: then an incomplete volume may be written, and a superseded
    /// one read.
    pub copying: bool,
}

/// Use of a volume that a fence allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Read and write.
    Any,
    /// Read only.
    Read,
    /// Nothing.
    None,
}

impl Fence {
    /// Returns whether this one replaces `other`: one that was meant to come before it does not.
    ///
    /// A higher generation replaces a lower one; within a generation a volume is incomplete, then
    /// active, then superseded, and never the other way. So a late request of a replaced leader
    /// allows no access.
    pub fn replaces(&self, other: &Fence) -> bool {
        (self.generation, self.standing) >= (other.generation, other.standing)
    }

    /// Returns the use that it allows.
    pub const fn lets(&self) -> Use {
        match (self.standing, self.copying) {
            (Standing::Active, _) | (Standing::HalfCopied, true) => Use::Any,
            (Standing::Superseded, true) => Use::Read,
            (Standing::HalfCopied | Standing::Superseded, false) => Use::None,
        }
    }
}

/// `superseded:3`, and while it is copied `superseded:3:copying`.
impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copying = if self.copying { ":copying" } else { "" };
        write!(f, "{}:{}{copying}", self.standing, self.generation)
    }
}

impl FromStr for Fence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (standing, rest) = text.split_once(':')?;
            let standing = Standing::ALL.into_iter().find(|one| one.as_str() == standing)?;
            let (generation, copying) = match rest.strip_suffix(":copying") {
                Some(generation) => (generation, true),
                None => (rest, false),
            };
            Some(Fence { generation: generation.parse().ok()?, standing, copying })
        };
        parsed().ok_or_else(|| format!("`{text}` is not the fence of a volume"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn fence(generation: i64, standing: Standing) -> Fence {
        Fence { generation, standing, copying: false }
    }

    #[test]
    fn a_late_word_of_an_old_leader_changes_nothing() {
        use Standing::{Active, HalfCopied, Superseded};
        let order = [
            Fence::default(),
            fence(1, HalfCopied),
            fence(1, Active),
            fence(1, Superseded),
            fence(2, HalfCopied),
            fence(2, Active),
            fence(2, Superseded),
        ];
        for (at, one) in order.iter().enumerate() {
            for (before, other) in order.iter().enumerate() {
                assert_eq!(one.replaces(other), at >= before, "{one} after {other}");
            }
        }
        let copying = Fence { copying: true, ..fence(1, Superseded) };
        assert!(copying.replaces(&fence(1, Superseded)) && fence(1, Superseded).replaces(&copying));
    }

    #[test]
    fn only_a_copy_gets_at_what_is_not_active() {
        for standing in Standing::ALL {
            let lets = |copying| Fence { copying, ..fence(3, standing) }.lets();
            let expected = match standing {
                Standing::Active => (Use::Any, Use::Any),
                Standing::HalfCopied => (Use::None, Use::Any),
                Standing::Superseded => (Use::None, Use::Read),
            };
            assert_eq!((lets(false), lets(true)), expected, "{standing}");
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_nothing_else_is() {
        for standing in Standing::ALL {
            for copying in [false, true] {
                let fence = Fence { generation: i64::MAX, standing, copying };
                assert_eq!(fence.to_string().parse(), Ok(fence));
            }
        }
        for text in [
            "",
            "active",
            "active:",
            "active:x",
            ":1",
            "gone:1",
            "active:1:x",
            "active:1:copying:copying",
        ] {
            assert!(text.parse::<Fence>().is_err(), "{text}");
        }
    }
}
