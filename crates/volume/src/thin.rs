//! How a pool holds thin volumes: the settings of the thin pool in each of its volume groups.

use std::fmt;
use std::str::FromStr;

use crate::bytes::Bytes;

/// A part of a whole: in percent of it, or a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// In percent; more than 100 is the whole.
    Percent(u32),
    /// So much, whatever the whole is.
    Size(Bytes),
}

impl Part {
    /// Returns how much of `whole` it is, rounded down; never more than the whole.
    pub fn of(self, whole: Bytes) -> Bytes {
        match self {
            Part::Size(size) => size.min(whole),
            Part::Percent(percent) => percent_of(percent.min(100), whole),
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let part = match text.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|percent| *percent <= 100).map(Part::Percent)
            }
            None => text.parse().ok().map(Part::Size),
        };
        part.ok_or_else(|| format!("`{text}` is neither 1% to 100% nor a size such as 500Gi"))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Percent(percent) => write!(f, "{percent}%"),
            Part::Size(size) => f.write_str(&size.exact()),
        }
    }
}

/// Returns so many percent of a size, rounded down; at most [`Bytes::MAX`].
pub fn percent_of(percent: u32, whole: Bytes) -> Bytes {
    let part = u128::from(whole.get()) * u128::from(percent) / 100;
    Bytes::new(u64::try_from(part).unwrap_or(u64::MAX)).min(Bytes::MAX)
}

/// LVM makes no smaller chunks, and no larger ones.
const SMALLEST_CHUNK: Bytes = Bytes::kib(64);
const LARGEST_CHUNK: Bytes = Bytes::gib(1);

/// What happens to writes once a thin pool is full and cannot grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// They fail at once.
    #[default]
    Error,
    /// They wait until there is space, a minute by default, and then fail.
    Queue,
}

/// What a thin pool does with discards, such as those of `fstrim`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Discards {
    /// The pool gets the space back, and its disks get the discard.
    #[default]
    PassDown,
    /// The pool gets the space back.
    NoPassDown,
    /// Nothing.
    Ignore,
}

impl WhenFull {
    /// All of them.
    pub const ALL: [WhenFull; 2] = [WhenFull::Error, WhenFull::Queue];

    /// Value of the setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            WhenFull::Error => "Error",
            WhenFull::Queue => "Queue",
        }
    }
}

impl Discards {
    /// All of them.
    pub const ALL: [Discards; 3] = [Discards::PassDown, Discards::NoPassDown, Discards::Ignore];

    /// Value of the setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            Discards::PassDown => "PassDown",
            Discards::NoPassDown => "NoPassDown",
            Discards::Ignore => "Ignore",
        }
    }

    /// LVM's word for it, see `lvcreate(8)`.
    pub const fn lvm_word(self) -> &'static str {
        match self {
            Discards::PassDown => "passdown",
            Discards::NoPassDown => "nopassdown",
            Discards::Ignore => "ignore",
        }
    }
}

impl FromStr for WhenFull {
    type Err = String;

    fn from_str(text: &str) -> Result<WhenFull, String> {
        let found = WhenFull::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| format!("unknown value `{text}`: use Error or Queue"))
    }
}

impl FromStr for Discards {
    type Err = String;

    fn from_str(text: &str) -> Result<Discards, String> {
        let found = Discards::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| format!("unknown value `{text}`: use PassDown, NoPassDown or Ignore"))
    }
}

/// Settings of the thin pool in each volume group of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinSettings {
    /// The most that the data of thin volumes may take of a volume group.
    pub size: Part,
    /// The most that the sizes of all thin volumes and snapshots may add up to, in percent of what their data may take.
    pub max_overcommit: u32,
    /// The pool is expanded when so many percent of its data are in use.
    pub grow_at: u32,
    /// Its metadata is expanded when so many percent of that are in use.
    pub metadata_grow_at: u32,
    /// Part of `size` into which only an administrator expands the pool.
    pub reserve: Part,
    /// What happens to writes once the pool is full and cannot grow.
    pub when_full: WhenFull,
    /// What it does with discards.
    pub discards: Discards,
    /// Size of a chunk; `None`: by the size of the pool.
    pub chunk: Option<Bytes>,
}

/// What a pool sets for the volumes in each of its volume groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// Space that new volumes leave free.
    pub reserve: Bytes,
    /// How it holds thin volumes; `None`: it makes none.
    pub thin: Option<ThinSettings>,
}

impl Terms {
    /// The same for the growth of a volume, for which the reserve is.
    pub fn of_growth(self) -> Terms {
        Terms { reserve: Bytes::ZERO, ..self }
    }
}

impl ThinSettings {
    /// Returns what is wrong with them, with what is valid; `None` if nothing is.
    pub fn fault(&self) -> Option<String> {
        let within = |name, value: u32, least: u32, most: u32| {
            (!(least..=most).contains(&value))
                .then(|| format!("{name} is {value}: use {least} to {most}"))
        };
        let chunk = self.chunk.filter(|chunk| {
            let is_valid = (SMALLEST_CHUNK..=LARGEST_CHUNK).contains(chunk);
            !is_valid || !chunk.get().is_power_of_two()
        });
        let chunk = chunk.map(|chunk| {
            format!("the chunk size is {chunk}: use a power of two from {SMALLEST_CHUNK} to {LARGEST_CHUNK}")
        });
        within("the maximum overcommit in percent", self.max_overcommit, 100, 10_000)
            .or_else(|| within("the mark of the data in percent", self.grow_at, 50, 95))
            .or_else(|| {
                within("the mark of the metadata in percent", self.metadata_grow_at, 50, 95)
            })
            .or(chunk)
    }
}

/// The whole volume group but a tenth, and nothing promised that is not there.
impl Default for ThinSettings {
    fn default() -> ThinSettings {
        ThinSettings {
            size: Part::Percent(90),
            max_overcommit: 100,
            grow_at: 70,
            metadata_grow_at: 70,
            reserve: Part::Percent(0),
            when_full: WhenFull::Error,
            discards: Discards::PassDown,
            chunk: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let whole = Bytes::new(1001);
        for (part, of_it) in [
            (Part::Percent(0), 0),
            (Part::Percent(10), 100),
            (Part::Percent(100), 1001),
            (Part::Percent(101), 1001),
            (Part::Size(Bytes::new(1000)), 1000),
            (Part::Size(Bytes::new(1002)), 1001),
        ] {
            assert_eq!(part.of(whole), Bytes::new(of_it), "{part:?}");
        }
        assert_eq!(percent_of(250, whole), Bytes::new(2502));
        assert_eq!(percent_of(u32::MAX, Bytes::MAX), Bytes::MAX);
    }

    #[test]
    fn a_part_is_read_as_it_is_written() {
        for text in ["0%", "90%", "100%", "500Gi", "1536"] {
            assert_eq!(text.parse::<Part>().unwrap().to_string(), text);
        }
        for text in ["", "%", "101%", "-1%", "much", "10X"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let right = ThinSettings::default();
        assert_eq!(right.fault(), None);
        let wrong = |thin: ThinSettings| thin.fault().unwrap();
        assert_eq!(
            wrong(ThinSettings { max_overcommit: 99, ..right }),
            "the maximum overcommit in percent is 99: use 100 to 10000"
        );
        assert_eq!(
            wrong(ThinSettings { grow_at: 96, ..right }),
            "the mark of the data in percent is 96: use 50 to 95"
        );
        assert!(wrong(ThinSettings { metadata_grow_at: 49, ..right }).contains("metadata"));
        for chunk in [Bytes::kib(32), Bytes::kib(96), Bytes::gib(2)] {
            let wrong = wrong(ThinSettings { chunk: Some(chunk), ..right });
            assert!(wrong.ends_with("use a power of two from 64 KiB to 1 GiB"), "{wrong}");
        }
        for chunk in [Bytes::kib(64), Bytes::gib(1)] {
            assert_eq!(ThinSettings { chunk: Some(chunk), ..right }.fault(), None);
        }
    }

    #[test]
    fn each_setting_has_its_word() {
        assert_eq!(WhenFull::ALL.map(WhenFull::as_str), ["Error", "Queue"]);
        assert_eq!(Discards::ALL.map(Discards::as_str), ["PassDown", "NoPassDown", "Ignore"]);
        assert!(WhenFull::ALL.iter().all(|one| one.as_str().parse() == Ok(*one)));
        assert!(Discards::ALL.iter().all(|one| one.as_str().parse() == Ok(*one)));
        assert!("queue".parse::<WhenFull>().is_err() && "".parse::<Discards>().is_err());
        let lvm = Discards::ALL.map(Discards::lvm_word);
        assert_eq!(lvm, ["passdown", "nopassdown", "ignore"]);
    }
}
