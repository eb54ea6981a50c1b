//! Findings for people and for programs.

use std::fmt::Write;

use super::{Finding, Level};

/// Print for people: a sign, what was found, and below it what to type.
pub fn print(findings: &[Finding], styled: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let (sign, colour) = match finding.level {
            Level::Good => ("✓", 32),
            Level::Warning => ("!", 33),
            Level::Bad => ("✗", 31),
        };
        let sign = if styled { format!("\x1b[{colour}m{sign}\x1b[0m") } else { sign.to_owned() };
        let _ = writeln!(text, "{sign} {}", finding.what);
        if let Some(todo) = &finding.todo {
            let _ = writeln!(text, "    → {todo}");
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let _ = writeln!(
        text,
        "{} good, {} to note, {} to put right",
        count(Level::Good),
        count(Level::Warning),
        count(Level::Bad)
    );
    text
}
