//! Any words as a quantity: shared by the fuzz target and by the test that runs its corpus.

use pliant::api::Quantity;
use pliant::bytes::Bytes;

/// Parse words as a size; says whether they are one. What is read is written and read again as the same; what is
/// refused is so in one short line.
pub fn parse(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    match text.parse::<Bytes>() {
        Ok(size) => {
            assert!(text.len() <= 64 && size <= Bytes::MAX);
            assert_eq!(Bytes::parse_capped(text), Ok(size));
            assert_eq!(Quantity(size).to_string().parse(), Ok(size));
            true
        }
        Err(error) => {
            let line = error.to_string();
            assert!(line.len() < 1000 && line.lines().count() == 1, "{line}");
            false
        }
    }
}
