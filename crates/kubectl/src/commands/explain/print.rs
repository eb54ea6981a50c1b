//! An explanation for people.

use std::fmt::Write;

use super::{Answer, Explanation, NodeSays};
use crate::commands::{cannot_decode, may_not_read};
use crate::doctor::{FindingSeverity, WIDTH, harmless, wrapped};

/// Prints an answer for people: one explanation below the other, or findings.
pub fn print_answer(answer: &Answer, styled: bool) -> String {
    match answer {
        Answer::One(one) => print(one, styled),
        Answer::Each(each) => {
            each.iter().map(|one| print(one, styled)).collect::<Vec<_>>().join("\n")
        }
        Answer::Findings(findings) => crate::doctor::print(findings, styled),
    }
}

/// Prints an explanation for people: the state, the verdict of each node, the actions.
pub fn print(told: &Explanation, styled: bool) -> String {
    let mut text = wrapped(&format!("{} {}", told.about, told.why), "", WIDTH);
    if styled {
        let colour = match told.severity {
            FindingSeverity::Ok => 32,
            FindingSeverity::Warning => 33,
            FindingSeverity::Error => 31,
        };
        text = text.replacen(&told.about, &format!("\x1b[{colour}m{}\x1b[0m", told.about), 1);
    }
    text += &table(&told.nodes);
    match told.remediation.as_slice() {
        [] => {}
        [_] => text += "What to do:\n",
        _ => text += "Do one of:\n",
    }
    for todo in &told.remediation {
        text += &wrapped(&todo.what, "  ", WIDTH);
        if let Some(command) = &todo.command {
            // In one line, so that it can be copied.
            let _ = writeln!(text, "    {}", harmless(command));
        }
    }
    text += &may_not_read(&told.unseen);
    text += &cannot_decode(&told.unreadable);
    text
}

/// Prints a line for each node, with continuation lines.
fn table(nodes: &[NodeSays]) -> String {
    let width = |cell: fn(&NodeSays) -> String| {
        nodes.iter().map(|node| cell(node).chars().count()).max().unwrap_or_default()
    };
    let (names, rooms) = (width(|node| node.node.clone()), width(room));
    let mut text = String::new();
    for node in nodes {
        let start = format!("  {:<names$}  {:>rooms$}  ", node.node, room(node));
        if start.chars().count() > WIDTH / 2 {
            // Of long names too little of the line is left.
            let _ = writeln!(text, "{}", start.trim_end());
            text += &wrapped(&node.why, "      ", WIDTH);
            continue;
        }
        let indent = " ".repeat(start.chars().count());
        text += &wrapped(&node.why, &indent, WIDTH).replacen(&indent, &start, 1);
    }
    text
}

fn room(node: &NodeSays) -> String {
    node.largest.map_or_else(|| "–".to_owned(), |room| room.0.to_string())
}
