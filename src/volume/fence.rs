//! Which of the copies of a volume may be used.

use std::fmt;
use std::str::FromStr;

/// What a volume is to the claim whose volumes are swapped.
///
/// In the order in which a volume goes through them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It is being filled; what it holds is no whole.
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

/// Who may use a volume, with the number of the swap that says so.
///
/// The default, active in generation 0, is that of a volume that was never swapped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The number of the swap. A later one is higher.
    pub generation: i64,
    /// What the volume is.
    pub standing: Standing,
    /// Whether a copy is under way: then what is half copied may be written, and what is superseded
    /// read.
    pub copying: bool,
}

/// What a fence lets one do with a volume.
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
    /// Whether this one replaces `other`: one that was meant to come before it does not.
    ///
    /// A higher generation replaces a lower one; within a generation a volume is half copied, then
    /// active, then superseded, and never the other way. So what a leader that was replaced still
    /// asks for, late, lets nobody in.
    pub fn replaces(&self, other: &Fence) -> bool {
        (self.generation, self.standing) >= (other.generation, other.standing)
    }

    /// What it lets one do.
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
        parsed().ok_or_else(|| format!("`{text}` is no fence of a volume"))
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
