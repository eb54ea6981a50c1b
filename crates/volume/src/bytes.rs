//! Sizes in bytes: parse what people write, print what people read, round to extents.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

mod quantity;

pub use quantity::ParseBytesError;

/// A size or an offset in bytes, never negative.
///
/// Arithmetic with `+` and `-` panics on overflow in every build, because a wrapped size is a lost
/// volume. What comes from a caller is at most [`Bytes::MAX`], and two of those can be added.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Bytes(u64);

const EXACT_UNITS: [(&str, u32); 6] =
    [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl Bytes {
    /// No bytes at all.
    pub const ZERO: Bytes = Bytes(0);
    /// The largest size that fits the signed 64-bit fields of CSI.
    pub const MAX: Bytes = Bytes(i64::MAX as u64);

    /// Wraps a count of bytes.
    pub const fn new(bytes: u64) -> Self {
        Bytes(bytes)
    }

    /// `n` kibibytes.
    pub const fn kib(n: u64) -> Self {
        Bytes(n << 10)
    }

    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        Bytes(n << 20)
    }

    /// `n` gibibytes.
    pub const fn gib(n: u64) -> Self {
        Bytes(n << 30)
    }

    /// The count of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Multiplies, or `None` beyond [`Bytes::MAX`].
    pub fn checked_mul(self, times: u64) -> Option<Bytes> {
        self.0.checked_mul(times).map(Bytes).filter(|product| *product <= Bytes::MAX)
    }

    /// Subtracts, stopping at zero.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// Returns the number of whole units of `unit` that are needed to hold this size.
    ///
    /// # Panics
    /// If `unit` is zero.
    pub fn div_ceil(self, unit: Bytes) -> u64 {
        self.0.div_ceil(unit.0)
    }

    /// Takes a signed size from the protocol; `None` if it is negative.
    pub fn from_i64(bytes: i64) -> Option<Bytes> {
        u64::try_from(bytes).ok().map(Bytes)
    }

    /// The size for a signed field of the protocol; sizes beyond [`Bytes::MAX`] become that maximum.
    pub fn to_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.checked_add(other.0).expect("a sum of sizes fits 64 bits"))
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.checked_sub(other.0).expect("the smaller size is subtracted"))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(sizes: I) -> Bytes {
        sizes.fold(Bytes::ZERO, Add::add)
    }
}

const UNITS: [(&str, u32); 6] =
    [("EiB", 60), ("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// Prints in the largest binary unit with at most two decimals: `1.5 GiB`, `512 B`.
///
/// The print rounds down, so that a printed free size can always be asked for.
impl Bytes {
    /// Writes it exactly, in the largest unit of Kubernetes that divides it: `10Gi`, `4076Mi`, `1536`.
    pub fn exact(self) -> String {
        let divides = |shift: u32| self.0 > 0 && self.0.trailing_zeros() >= shift;
        match EXACT_UNITS.iter().find(|(_, shift)| divides(*shift)) {
            Some((unit, shift)) => format!("{}{unit}", self.0 >> shift),
            None => self.0.to_string(),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((name, shift)) = UNITS.iter().find(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{} B", self.0);
        };
        let hundredths = (u128::from(self.0) * 100) >> shift;
        let (whole, part) = (hundredths / 100, hundredths % 100);
        match (part, part % 10) {
            (0, _) => write!(f, "{whole} {name}"),
            (_, 0) => write!(f, "{whole}.{} {name}", part / 10),
            _ => write!(f, "{whole}.{part:02} {name}"),
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

/// Speed of a long operation, and the time left; empty where they are unknown.
///
/// Printed after the progress: `, 180 MiB/s, 7 min left`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes in a second.
    pub rate: Option<u64>,
    /// Seconds that it will still take.
    pub left: Option<u64>,
}

impl Pace {
    /// The pace of work that has done so much in that time; nothing is known in the first second.
    pub fn of(done: u64, left: u64, took: Duration) -> Pace {
        let millis = took.as_millis();
        let rate = (u128::from(done) * 1000).checked_div(millis).filter(|_| millis >= 1000);
        let rate = rate.and_then(|rate| u64::try_from(rate).ok()).filter(|rate| *rate > 0);
        Pace { rate, left: rate.map(|rate| left.div_ceil(rate)) }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rate) = self.rate {
            write!(f, ", {}/s", Bytes::new(rate))?;
        }
        match self.left {
            Some(left @ 0..120) => write!(f, ", {left} s left"),
            Some(left @ 120..7200) => write!(f, ", {} min left", left.div_ceil(60)),
            Some(left) => write!(f, ", {} h left", left.div_ceil(3600)),
            None => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_size_in_an_object_is_parsed_or_refused() {
        use serde::de::value::{Error, StrDeserializer};
        let read = |text| Bytes::deserialize(StrDeserializer::<Error>::new(text));
        assert_eq!(read("3Gi"), Ok(Bytes::gib(3)));
        assert!(read("much").is_err());
    }

    #[test]
    fn a_pace_is_told_as_far_as_it_is_known() {
        let after =
            |millis, done| Pace::of(done, 1 << 40, Duration::from_millis(millis)).to_string();
        assert_eq!(after(0, 0), "");
        assert_eq!(after(999, 1 << 30), "", "too soon");
        assert_eq!(after(60_000, 0), "", "it stands");
        assert_eq!(after(1000, 1 << 30), ", 1 GiB/s, 18 min left");
        assert_eq!(after(2000, 1 << 34), ", 8 GiB/s, 3 min left");
        assert_eq!(after(1000, 1 << 39), ", 512 GiB/s, 2 s left");
        assert_eq!(after(u64::MAX, 1), "");
        assert_eq!(Pace { rate: None, left: Some(7201) }.to_string(), ", 3 h left");
    }

    #[test]
    fn units_are_powers_of_two() {
        let all = [Bytes::kib(3), Bytes::mib(3), Bytes::gib(3)];
        assert_eq!(all.map(Bytes::get), [3072, 3 << 20, 3 << 30]);
        assert_eq!(format!("{:?}", Bytes::new(5)), "5 B");
        let exact = |bytes: u64| Bytes::new(bytes).exact();
        assert_eq!([0, 1, 1536, 2048].map(exact), ["0", "1", "1536", "2Ki"]);
        assert_eq!([3 << 29, 10 << 30, 1 << 60].map(exact), ["1536Mi", "10Gi", "1Ei"]);
    }

    #[test]
    fn arithmetic_ends_where_a_size_ends() {
        let five = Bytes::new(5);
        assert_eq!((five + five, five - Bytes::new(2)), (Bytes::new(10), Bytes::new(3)));
        assert_eq!([five, five].into_iter().sum::<Bytes>(), Bytes::new(10));
        assert_eq!(five.saturating_sub(Bytes::new(6)), Bytes::ZERO);
        assert_eq!(five.saturating_sub(Bytes::new(2)), Bytes::new(3));
        assert_eq!([4, 5, 6].map(|unit| Bytes::new(10).div_ceil(Bytes::new(unit))), [3, 2, 2]);
        assert_eq!(five.checked_mul(2), Some(Bytes::new(10)));
        assert_eq!(Bytes::MAX.checked_mul(1), Some(Bytes::MAX));
        assert_eq!(Bytes::MAX.checked_mul(2), None);
        assert_eq!((Bytes::from_i64(7), Bytes::from_i64(-1)), (Some(Bytes::new(7)), None));
        assert_eq!((five.to_i64(), Bytes::new(u64::MAX).to_i64()), (5, i64::MAX));
    }

    #[test]
    fn parses_the_kubernetes_notation() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("1Ki", 1024),
            ("1.5Gi", 1_610_612_736),
            ("0.1Gi", 107_374_183),
            ("500M", 500_000_000),
            ("1k", 1000),
            (".5Ki", 512),
            ("7Ei", 7 << 60),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in ["", ".", "-1", "1 Gi", "1gi", "1.2.3", "8Ei", "1e41", "Gi", "1K", "1GiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn prints_for_people() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 30, "1 GiB"),
            (1_610_612_736, "1.5 GiB"),
            (1_127_428_916, "1.05 GiB"),
            ((1 << 30) - 1, "1023.99 MiB"),
            (1 << 40, "1 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn sizes_stay_within_the_signed_fields_of_the_protocol() {
        assert_eq!(Bytes::gib(1).checked_mul(1 << 32), Some(Bytes(1 << 62)));
        assert_eq!(Bytes::gib(1).checked_mul(1 << 33), None);
        assert_eq!(Bytes(1 << 63).to_i64(), i64::MAX);
        assert_eq!(Bytes::from_i64(-1), None);
    }

    proptest! {
        #[test]
        fn every_text_is_parsed_or_refused(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
        }

        #[test]
        fn whole_bytes_come_back(bytes in 0..=i64::MAX as u64) {
            prop_assert_eq!(bytes.to_string().parse(), Ok(Bytes(bytes)));
        }
    }
}
