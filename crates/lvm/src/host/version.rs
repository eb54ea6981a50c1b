//! The versions that programs print.

/// The version in what a program printed: the first word that begins with digits, a dot, digits.
pub fn version_in(text: &str) -> Option<&str> {
    text.split(|c: char| c.is_whitespace() || c == '(').find_map(|word| {
        let word = word.trim_start_matches('v');
        let word = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let (whole, rest) = word.split_once('.')?;
        let digits = |text: &str| text.bytes().next().is_some_and(|b| b.is_ascii_digit());
        let number = !whole.is_empty() && whole.bytes().all(|b| b.is_ascii_digit());
        (number && digits(rest)).then_some(word)
    })
}

/// Returns whether a version is at least another, part by part. Of a part such as `1rc2` the number
/// counts; a missing part is 0.
pub fn at_least(version: &str, least: [u32; 3]) -> bool {
    let number = |part: &str| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part[..digits].parse().unwrap_or(0)
    };
    let mut parts = version.split('.').map(number);
    least.map(|_| parts.next().unwrap_or(0)) >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        let cases = [
            ("  LVM version:     2.03.16(2) (2022-05-18)\n", Some("2.03.16")),
            ("mke2fs 1.47.0 (5-Feb-2023)\n", Some("1.47.0")),
            ("mkfs.xfs version 6.1.0\n", Some("6.1.0")),
            ("mkfs.btrfs, part of btrfs-progs v6.2\n", Some("6.2")),
            ("blkid from util-linux 2.38.1  (libblkid 2.38.1, 04-Aug-2022)\n", Some("2.38.1")),
            ("File descriptor 10 leaked.\nno version", None),
        ];
        for (text, version) in cases {
            assert_eq!(version_in(text), version, "{text}");
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        for (version, enough) in [
            ("2.03.12", true),
            ("2.03.16rc1", true),
            ("2.03.9", false),
            ("2.02.187", false),
            ("3.0", true),
        ] {
            assert_eq!(at_least(version, [2, 3, 12]), enough, "{version}");
        }
    }
}
