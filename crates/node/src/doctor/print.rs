//! Prints findings.

use std::fmt::Write;

use super::{Finding, FindingSeverity};

/// Width of the output in characters.
pub const WIDTH: usize = 80;

/// Prints findings for people: a sign, the finding, and below it the command to run.
pub fn print(findings: &[Finding], styled: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let (sign, colour) = match finding.severity {
            FindingSeverity::Ok => ("✓", 32),
            FindingSeverity::Warning => ("!", 33),
            FindingSeverity::Error => ("✗", 31),
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
        count(FindingSeverity::Ok),
        counted(count(FindingSeverity::Warning), "warning"),
        counted(count(FindingSeverity::Error), "error")
    );
    text
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Wraps a text at `width` characters, unless a word is longer; each line begins with `indent`.
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

/// Replaces control characters, so the text stays on one line and cannot control the terminal.
///
/// Nodes and tenants write a part of the output. They must not move the cursor, overwrite other text or forge
/// lines.
pub fn harmless(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}
