//! The hour of the day, for loops that compare it with what was written.

use std::fmt;

use http::{Request, header};
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::time::Instant;

/// Maximum difference between the clocks of a replica and the API server for deletions by time.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

/// Path that every API server answers, even without permissions: a rejection has a time too.
const ANYTHING: &str = "/version";

/// Wall clock that advances as steadily as sleeps do.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Timestamp,
    since: Instant,
}

/// Difference between the clock of a replica and that of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSkew {
    /// The clock here is ahead by this; behind, if negative.
    Ahead(SignedDuration),
    /// The API server sends no date.
    Unknown,
}

impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockSkew::Ahead(by) => {
                let (seconds, word) =
                    (by.abs().as_secs(), if by.is_negative() { "behind" } else { "ahead of" });
                let by = SignedDuration::from_secs(seconds);
                write!(f, "{by:#} {word} that of the API server")
            }
            ClockSkew::Unknown => f.write_str("not comparable: the API server sends no date"),
        }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::start()
    }
}

impl Clock {
    /// Starts with the time of the host. If a test has advanced the time, it starts with the time of
    /// earlier clocks.
    pub fn start() -> Clock {
        Clock { began: Timestamp::now(), since: Instant::from_std(std::time::Instant::now()) }
    }

    /// Returns the hour.
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.since.elapsed()).unwrap_or_default();
        self.began.checked_add(passed).unwrap_or(self.began)
    }

    /// Compares it with the clock of the API server: a node may start a pod before its own clock is
    /// set. `None` if both agree.
    ///
    /// # Errors
    /// The API server cannot be reached.
    pub async fn skew(&self, client: &Client) -> Result<Option<ClockSkew>, kube::Error> {
        let request = Request::get(ANYTHING).body(kube::client::Body::empty());
        let request = request.map_err(kube::Error::HttpError)?;
        let before = self.now();
        let answer = client.send(request).await?;
        let date = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        Ok(date.map_or(Some(ClockSkew::Unknown), |date| difference((before, self.now()), date)))
    }
}

/// Returns the difference between a clock with these times before and after an answer, and the time of the
/// answer, in whole seconds.
fn difference((before, after): (Timestamp, Timestamp), date: Timestamp) -> Option<ClockSkew> {
    let (ahead, behind) = (before.duration_since(date), date.duration_since(after));
    if ahead > TOLERANCE {
        return Some(ClockSkew::Ahead(ahead));
    }
    (behind > TOLERANCE).then(|| ClockSkew::Ahead(-behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree_if_the_answer_was_given_between_the_question_and_its_receipt() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let of = |before, after, date| difference((at(before), at(after)), at(date));
        assert_eq!((of(100, 101, 100), of(100, 101, 161), of(160, 161, 100)), (None, None, None));
        assert_eq!(of(100, 300, 200), None, "an answer may take long");
        let ahead = |seconds| Some(ClockSkew::Ahead(SignedDuration::from_secs(seconds)));
        assert_eq!((of(161, 162, 100), of(100, 101, 162)), (ahead(61), ahead(-61)));
        let of_days = ClockSkew::Ahead(SignedDuration::from_hours(720)).to_string();
        assert_eq!(of_days, "720h ahead of that of the API server");
        let behind = ClockSkew::Ahead(SignedDuration::from_secs(-90)).to_string();
        assert_eq!(behind, "1m 30s behind that of the API server");
    }
}
