//! Quotes commands for one line of the `lvm` shell, where that is possible.
//!
//! The shell splits a line at blanks; a quote counts only as the first character of a word and
//! nothing escapes it; `#` starts a comment. A line in which it finds no command, or too many
//! words, gets no report at all, and a caller that waits for one would wait for ever.

use super::Cmd;

/// The shell's limit, the command's name included.
const MAX_WORDS: usize = 63;
/// Below the size of a pipe, so that a line is taken whole or not at all.
const MAX_BYTES: usize = 60_000;

/// Reason why a command cannot be written on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum QuoteError {
    /// No command.
    #[error("a line without a command")]
    Empty,
    /// More words than the shell takes.
    #[error("more than {MAX_WORDS} words")]
    TooManyWords,
    /// Longer than a pipe holds.
    #[error("more than {MAX_BYTES} bytes")]
    TooLong,
    /// An empty word, a comment, a control character, or blanks and both kinds of quotes.
    #[error("a word that cannot be quoted")]
    Word,
}

/// Returns the line for this command, with its newline.
pub(super) fn line(cmd: &Cmd) -> Result<String, QuoteError> {
    if cmd.program.is_empty() {
        return Err(QuoteError::Empty);
    }
    if cmd.args.len() + 1 > MAX_WORDS {
        return Err(QuoteError::TooManyWords);
    }
    let mut line = word(cmd.program)?;
    for arg in &cmd.args {
        line.push(' ');
        line.push_str(&word(arg.to_str().ok_or(QuoteError::Word)?)?);
    }
    line.push('\n');
    if line.len() > MAX_BYTES {
        return Err(QuoteError::TooLong);
    }
    Ok(line)
}

/// One word, quoted if it must be. Only printable ASCII: the shell's line editor gives other bytes a
/// meaning of their own.
fn word(word: &str) -> Result<String, QuoteError> {
    let printable = word.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    if word.is_empty() || word.starts_with('#') || !printable {
        return Err(QuoteError::Word);
    }
    if !word.contains(' ') && !word.starts_with(['"', '\'']) {
        return Ok(word.to_owned());
    }
    let quote = ['"', '\''].into_iter().find(|quote| !word.contains(*quote));
    quote.map(|quote| format!("{quote}{word}{quote}")).ok_or(QuoteError::Word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_the_shell_needs_it() {
        let cmd = Cmd::new("lvs").args(["-o", "lv name", "-S", "\"a\"=b", "x'y\"z", "a#b!20"]);
        assert_eq!(line(&cmd).unwrap(), "lvs -o \"lv name\" -S '\"a\"=b' x'y\"z a#b!20\n");
    }

    #[test]
    fn what_would_get_no_report_is_refused() {
        assert_eq!(line(&Cmd::new("")), Err(QuoteError::Empty));
        for bad in ["", "#x", "a\nb", "a\tb", "\u{e4}", "it's \"so\"", "'\"", "\0"] {
            assert_eq!(line(&Cmd::new("lvs").arg(bad)), Err(QuoteError::Word), "{bad:?}");
        }
        let many = |count| line(&Cmd::new("lvs").args(vec!["a"; count]));
        assert!(many(62).is_ok());
        assert_eq!(many(63), Err(QuoteError::TooManyWords));
        let long = Cmd::new("lvs").arg("a".repeat(MAX_BYTES));
        assert_eq!(line(&long), Err(QuoteError::TooLong));
    }
}
