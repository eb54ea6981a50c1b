//! Prints findings.

use std::fmt::Write;

use super::{Finding, Severity};

/// How wide a screen is at least, in characters.
pub const WIDTH: usize = 80;

/// Print for people: a sign, what was found, and below it what to type.
pub fn print(findings: &[Finding], styled: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let (sign, colour) = match finding.severity {
            Severity::Ok => ("✓", 32),
            Severity::Warning => ("!", 33),
            Severity::Error => ("✗", 31),
        };
        let sign = if styled { format!("\x1b[{colour}m{sign}\x1b[0m") } else { sign.to_owned() };
        let found = wrapped(&finding.message, "  ", WIDTH);
        let _ = writeln!(text, "{sign} {}", found.trim());
        if let Some(remediation) = &finding.remediation {
            // In one line, so that it can be copied.
            let _ = writeln!(text, "    → {}", harmless(remediation));
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let _ = writeln!(
        text,
        "{} passed, {}, {}",
        count(Severity::Ok),
        counted(count(Severity::Warning), "warning"),
        counted(count(Severity::Error), "error")
    );
    text
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Break a text between words, so that no line is longer than `width` characters, if no word is;
/// each begins with `indent`.
pub fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in harmless(text).split_whitespace() {
        let longer = indent.chars().count() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && longer > width {
            let _ = writeln!(lines, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    if !line.is_empty() {
        let _ = writeln!(lines, "{indent}{line}");
    }
    lines
}

/// A text on one line that steers no terminal: nodes and tenants write a part of what is printed, and must neither
/// move the cursor, nor write over what others say, nor end a line to begin another one in their name.
pub fn harmless(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}
