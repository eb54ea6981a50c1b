//! Kubernetes quantities as sizes: the one parser of them.

use std::fmt;
use std::str::FromStr;

use super::Bytes;

/// No quantity has more characters.
const LONGEST: usize = 64;

/// No exponent of a quantity is larger; nor, below 0, smaller.
const LARGEST_EXPONENT: i32 = 40;

/// How much of a text an error quotes, in characters.
const QUOTED: usize = 40;

/// A text that is not a size, and why.
///
/// It quotes at most a short line of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseBytesError {
    text: String,
    why: Why,
}

/// Why a text is not a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The grammar of Kubernetes has no such text.
    Malformed,
    /// It is longer than any quantity.
    TooLong,
    /// Its exponent is out of bounds.
    Exponent,
    /// It is less than 0.
    Negative,
    /// It is more than [`Bytes::MAX`].
    TooLarge,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a size: {}", self.text, self.why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Malformed => f.write_str(
                "write a whole or decimal number with one of Ki, Mi, Gi, Ti, Pi, Ei, k, M, G, T, P, E or no \
                 unit, e.g. 10Gi",
            ),
            Why::TooLong => write!(f, "it has more than {LONGEST} characters"),
            Why::Exponent => write!(f, "its exponent is larger than {LARGEST_EXPONENT}"),
            Why::Negative => f.write_str("it is less than 0"),
            Why::TooLarge => write!(f, "the largest size is {} bytes", Bytes::MAX.get()),
        }
    }
}

impl std::error::Error for ParseBytesError {}

impl ParseBytesError {
    fn new(text: &str, why: Why) -> ParseBytesError {
        let mut quoted: String = text.chars().take(QUOTED).flat_map(char::escape_debug).collect();
        if text.chars().nth(QUOTED).is_some() {
            quoted.push('…');
        }
        ParseBytesError { text: quoted, why }
    }
}

/// Parses a quantity as a size: `10Gi`, `1.5Gi`, `1181116006400m`, `12e6`. A part of a byte rounds up.
///
/// # Errors
/// [`ParseBytesError`] for what is no quantity, is less than 0, or is beyond [`Bytes::MAX`].
pub(super) fn parse(text: &str) -> Result<Bytes, ParseBytesError> {
    let bytes = value(text).map_err(|why| ParseBytesError::new(text, why))?;
    let size = u64::try_from(bytes).ok().map(Bytes).filter(|size| *size <= Bytes::MAX);
    size.ok_or_else(|| ParseBytesError::new(text, Why::TooLarge))
}

/// Parses as [`parse`]; what is larger becomes [`Bytes::MAX`].
///
/// # Errors
/// [`ParseBytesError`] for what is no quantity, or is less than 0.
pub(super) fn parse_capped(text: &str) -> Result<Bytes, ParseBytesError> {
    let bytes = value(text).map_err(|why| ParseBytesError::new(text, why))?;
    Ok(u64::try_from(bytes).map_or(Bytes::MAX, |bytes| Bytes(bytes).min(Bytes::MAX)))
}

/// What a suffix makes of the number before it: it moves the point by some digits, or multiplies.
struct Suffix {
    exponent: i32,
    times: u128,
}

/// The value of a quantity in whole bytes, rounded up; as many as fit.
///
/// # Source
/// The grammar of `k8s.io/apimachinery/pkg/api/resource.Quantity`, and the rounding of its `Value()`. What that
/// reads as 0 although it has no digit, such as `Gi` or `+`, the grammar does not have, and is refused.
fn value(text: &str) -> Result<u128, Why> {
    if text.len() > LONGEST {
        return Err(Why::TooLong);
    }
    let (is_negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, suffix) = unsigned.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') {
        return Err(Why::Malformed);
    }
    let Suffix { exponent, times } = suffix_of(suffix)?;
    let digits: Vec<u8> = whole.bytes().chain(part.bytes()).map(|digit| digit - b'0').collect();
    if is_negative && digits.iter().any(|digit| *digit != 0) {
        return Err(Why::Negative);
    }
    // At most 64 digits, and at most 40 zeros before or behind them.
    let point = i32::try_from(whole.len()).map_err(|_| Why::TooLong)? + exponent;
    let (before, zeros) = match usize::try_from(point) {
        Ok(point) => (point, 0),
        Err(_) => (0, point.unsigned_abs()),
    };
    let padding = before.saturating_sub(digits.len());
    let (whole, part) = digits.split_at(before.min(digits.len()));
    let behind = (0..padding).map(|_| &0);
    let whole = whole
        .iter()
        .chain(behind)
        .fold(0_u128, |value, digit| value.saturating_mul(10).saturating_add(u128::from(*digit)));
    let leading = (0..zeros).map(|_| &0);
    let part = times_fraction(leading.chain(part), times);
    Ok(whole.saturating_mul(times).saturating_add(part))
}

/// A fraction, by the digits behind its point, times a factor below 2^64; rounded up, and exact however many
/// digits there are.
fn times_fraction<'a>(digits: impl DoubleEndedIterator<Item = &'a u8>, times: u128) -> u128 {
    let (whole, is_more) = digits.rev().fold((0, false), |(below, is_more), digit| {
        let sum = u128::from(*digit) * times + below;
        (sum / 10, is_more || !sum.is_multiple_of(10))
    });
    whole + u128::from(is_more)
}

fn suffix_of(suffix: &str) -> Result<Suffix, Why> {
    let moves = |exponent| Ok(Suffix { exponent, times: 1 });
    match suffix {
        "n" => moves(-9),
        "u" => moves(-6),
        "m" => moves(-3),
        "" => moves(0),
        "k" => moves(3),
        "M" => moves(6),
        "G" => moves(9),
        "T" => moves(12),
        "P" => moves(15),
        "E" => moves(18),
        _ => {
            // First: `Ei` is no exponent.
            let binary = super::UNITS.iter().find(|(name, _)| name[..2] == *suffix);
            if let Some((_, shift)) = binary {
                return Ok(Suffix { exponent: 0, times: 1 << shift });
            }
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(Why::Malformed)?;
            moves(exponent_of(exponent)?)
        }
    }
}

fn exponent_of(text: &str) -> Result<i32, Why> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Why::Malformed);
    }
    let exponent: i32 = text.parse().map_err(|_| Why::Exponent)?; // It is a number, perhaps too large a one.
    let is_small = (-LARGEST_EXPONENT..=LARGEST_EXPONENT).contains(&exponent);
    is_small.then_some(exponent).ok_or(Why::Exponent)
}

/// Parses a Kubernetes quantity (`10Gi`, `1.5Gi`, `500M`, `4096`, `1181116006400m`, `12e6`); a part of a byte rounds
/// up.
///
/// # Errors
/// [`ParseBytesError`] for what is no quantity, is less than 0, or is beyond [`Bytes::MAX`].
impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        parse(text)
    }
}

impl Bytes {
    /// Parses as [`Bytes::from_str`] does; what is larger becomes [`Bytes::MAX`].
    ///
    /// # Errors
    /// [`ParseBytesError`] for what is no quantity, or is less than 0.
    pub fn parse_capped(text: &str) -> Result<Bytes, ParseBytesError> {
        parse_capped(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What Kubernetes' own library reads; `e2e/quantities/run` writes it.
    const TABLE: &str = include_str!("../../../../e2e/quantities/table.txt");

    fn has_digit_before_suffix(text: &str) -> bool {
        let number = text.trim_start_matches(['+', '-', '.']);
        number.starts_with(|first: char| first.is_ascii_digit())
    }

    #[test]
    fn quantities_mean_what_they_mean_to_kubernetes() {
        let mut judged = 0;
        for line in TABLE.lines() {
            let (text, meaning) = line.rsplit_once(' ').unwrap();
            let text: String = serde_json::from_str(text).unwrap();
            let (size, capped) = (parse(&text), parse_capped(&text));
            let why = size.as_ref().err().map(|error| error.why);
            match meaning {
                "error" => assert_eq!(why, Some(Why::Malformed), "{line}"),
                // Kubernetes reads 0 where there is no number at all.
                "0" if !has_digit_before_suffix(&text) => {
                    assert_eq!(why, Some(Why::Malformed), "{line}");
                }
                "negative" => assert_eq!(why, Some(Why::Negative), "{line}"),
                "capped" => {
                    assert_eq!((why, capped), (Some(Why::TooLarge), Ok(Bytes::MAX)), "{line}");
                }
                number => match number.parse::<i64>() {
                    Ok(number) => {
                        let number = Bytes::from_i64(number).unwrap();
                        assert_eq!((size, capped), (Ok(number), Ok(number)), "{line}");
                    }
                    Err(_) => {
                        assert_eq!((why, capped), (Some(Why::TooLarge), Ok(Bytes::MAX)), "{line}");
                    }
                },
            }
            judged += 1;
        }
        assert!(judged > 4000, "the table has shrunk to {judged}");
    }

    #[test]
    fn sizes_as_the_api_server_stores_them_are_read() {
        for (text, bytes) in [
            ("1181116006400m", 1_181_116_007),
            ("107374182400m", 107_374_183),
            ("1869169767219200m", 1_869_169_767_220),
            ("11918534246400m", 11_918_534_247),
            ("1e9", 1_000_000_000),
            ("1E9", 1_000_000_000),
            ("12e6", 12_000_000),
            ("1e10", 10_000_000_000),
            ("1e-1", 1),
            ("500n", 1),
            ("3u", 1),
            ("+1Gi", 1_073_741_824),
            (".5Gi", 536_870_912),
            ("0.5Gi", 536_870_912),
            ("9007199254740991.9990234375Ki", i64::MAX as u64),
            ("0.00000000000000000000000000000000000000000000000000000001Ei", 1),
        ] {
            assert_eq!(parse(text), Ok(Bytes::new(bytes)), "{text}");
        }
    }

    #[test]
    fn what_no_quantity_needs_is_refused_in_one_short_line() {
        let long = "9".repeat(10_000);
        let wide = format!("1{}", "\u{1F980}".repeat(100));
        for (text, why) in [
            ("-1Gi", Why::Negative),
            ("1GiB", Why::Malformed),
            ("1 Gi", Why::Malformed),
            ("", Why::Malformed),
            ("1\nGi", Why::Malformed),
            ("1e99999999", Why::Exponent),
            ("1e99999999999999999999", Why::Exponent),
            ("1e41", Why::Exponent),
            ("1e-41", Why::Exponent),
            ("8Ei", Why::TooLarge),
            ("1e40", Why::TooLarge),
            (&long, Why::TooLong),
            (&wide, Why::TooLong),
            ("0000000000000000000000000000000000000000000000000000000000000001k", Why::TooLong),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.why, why, "{error}");
            let line = error.to_string();
            assert!(line.chars().count() < 200 && !line.contains('\n'), "{line}");
        }
        assert_eq!(parse("-0.0Gi"), Ok(Bytes::ZERO));
        assert_eq!(
            parse(&long).unwrap_err().to_string(),
            format!("`{}…` is not a size: it has more than 64 characters", "9".repeat(40))
        );
    }

    proptest! {
        #[test]
        fn a_whole_number_of_units_is_that_many_times_the_unit(
            number in 0..=7_u64,
            unit in prop::sample::select(vec![
                ("", 1_u64), ("k", 1_000), ("M", 1_000_000), ("e3", 1_000), ("E+6", 1_000_000),
                ("E", 1_000_000_000_000_000_000), ("Ki", 1 << 10), ("Gi", 1 << 30), ("Ei", 1 << 60),
            ]),
        ) {
            let size = Ok(Bytes::new(number * unit.1));
            prop_assert_eq!(parse(&format!("{number}{}", unit.0)), size.clone());
            prop_assert_eq!(parse(&format!("+0{number}.000{}", unit.0)), size);
        }

        #[test]
        fn a_part_of_a_byte_is_one_more(bytes in 0..1_u64 << 50, part in 1..1000_u64) {
            let milli = bytes * 1000 + part;
            prop_assert_eq!(parse(&format!("{milli}m")), Ok(Bytes::new(bytes + 1)));
            prop_assert_eq!(parse(&format!("{bytes}.{part:03}")), Ok(Bytes::new(bytes + 1)));
            prop_assert_eq!(parse(&format!("{milli}000000n")), Ok(Bytes::new(bytes + 1)));
        }

        #[test]
        fn more_digits_never_make_a_size_smaller(text in "[0-9]{1,19}(\\.[0-9]{0,19})?", digit in 0..10_u8) {
            let text = if text.contains('.') { text } else { format!("{text}.") };
            for unit in ["", "Ki", "Mi", "m", "e-7"] {
                let less = parse_capped(&format!("{text}{unit}")).unwrap();
                let more = parse_capped(&format!("{text}{digit}{unit}")).unwrap();
                prop_assert!(more >= less);
            }
        }

        #[test]
        fn every_text_is_read_or_refused_in_one_line(text in any::<String>()) {
            if let Err(error) = parse(&text) {
                prop_assert!(error.to_string().lines().count() == 1);
            }
        }

        #[test]
        fn texts_of_the_alphabet_of_quantities_are_read_or_refused(text in "[-+.0-9eEinumkKMGTP]{0,70}") {
            if let (Ok(size), Ok(capped)) = (parse(&text), parse_capped(&text)) {
                prop_assert_eq!(size, capped);
            }
        }
    }
}
