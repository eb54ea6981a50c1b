//! How long texts for people are at most, and how they are cut.

/// The longest sentence, in characters.
pub const LONGEST_SENTENCE: usize = 1024;

/// The longest text of what is changed, or of how far something is, in characters: two classes can be longer.
pub const LONGEST_LINE: usize = 256;

/// Leave so many characters of a text.
pub fn cut_at(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}
