//! The outcome that an LVM command reports.

use serde::Deserialize;

/// Success in the last row of a command log (`ECMD_PROCESSED` of LVM).
const PROCESSED: &str = "1";

#[derive(Deserialize)]
struct CommandReport {
    #[serde(default)]
    log: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    #[serde(default, rename = "log_type")]
    kind: String,
    #[serde(default, rename = "log_message")]
    message: String,
    #[serde(default, rename = "log_ret_code")]
    code: String,
}

/// Outcome of a command, as it reports it. Its effect is determined by reading the volume group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandOutcome {
    /// It reports success.
    Success,
    /// It reports a failure.
    Failure(CommandFailure),
}

/// Failure that a command reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFailure {
    /// The number that it ended with, as a word: all that its cause can be counted by.
    pub code: &'static str,
    /// Cause; for people only.
    pub words: String,
}

/// The word for a number that LVM ends with.
fn word(code: Option<&str>) -> &'static str {
    match code {
        Some("2") => "no-such-command",
        Some("3") => "invalid-command-line",
        Some("4") => "init-failed",
        Some("5") => "failed",
        Some(_) => "unknown",
        None => "unread",
    }
}

/// Parses the JSON object that a command wrote to its report descriptor.
///
/// # Errors
/// The parser's words if this is not such an object.
pub fn parse(json: &str) -> Result<CommandOutcome, serde_json::Error> {
    let report: CommandReport = serde_json::from_str(json)?;
    let last = report.log.iter().rev().find(|row| row.kind == "status");
    if last.is_some_and(|row| row.code == PROCESSED) {
        return Ok(CommandOutcome::Success);
    }
    let words: Vec<&str> = report
        .log
        .iter()
        .filter(|row| row.kind == "error")
        .map(|row| row.message.trim())
        .filter(|message| !message.is_empty())
        .collect();
    let code = word(last.map(|row| row.code.as_str()));
    let words = if words.is_empty() { "it gave no reason".to_owned() } else { words.join("; ") };
    Ok(CommandOutcome::Failure(CommandFailure { code, words }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure(code: &'static str, words: &str) -> CommandOutcome {
        CommandOutcome::Failure(CommandFailure { code, words: words.to_owned() })
    }

    #[test]
    fn the_last_status_row_decides() {
        let json = r#"{"log":[
            {"log_type":"status","log_context":"processing","log_message":"success","log_ret_code":"1"},
            {"log_type":"error","log_context":"processing","log_message":"Insufficient free space","log_ret_code":"0"},
            {"log_type":"status","log_context":"shell","log_message":"failure","log_ret_code":"5"}]}"#;
        assert_eq!(parse(json).unwrap(), failure("failed", "Insufficient free space"));
        let json = r#"{"report":[{"lv":[]}],"log":[
            {"log_type":"status","log_context":"shell","log_message":"success","log_ret_code":"1"}]}"#;
        assert_eq!(parse(json).unwrap(), CommandOutcome::Success);
    }

    #[test]
    fn a_log_without_status_is_a_failure() {
        assert_eq!(parse("{}").unwrap(), failure("unread", "it gave no reason"));
    }

    #[test]
    fn a_failure_has_the_word_for_its_number() {
        for (number, code) in
            [("3", "invalid-command-line"), ("5", "failed"), ("0", "unknown"), ("", "unknown")]
        {
            let json = format!(
                r#"{{"log":[{{"log_type":"status","log_message":"x","log_ret_code":"{number}"}}]}}"#
            );
            assert_eq!(parse(&json).unwrap(), failure(code, "it gave no reason"));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,200}") {
            let _ = parse(&text);
        }
    }
}
