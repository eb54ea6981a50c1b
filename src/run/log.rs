//! The log: lines on standard error. Whatever becomes of that, and of a line, the work that it is about goes on.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{
    DefaultFields, FormatEvent, FormatFields, JsonFields, Writer, format,
};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt as lines, registry};

use crate::cli;
use crate::config::{LogFilter, LogFormat};
use crate::run::traces::{self, Spans, Traces};

/// Lines since the start that could not be written or formatted. Its scope is that of the figure: the process.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Whether the reader of standard error did not read the last line.
static IS_STALLED: AtomicBool = AtomicBool::new(false);

/// How long a reader of standard error is waited for, once: who is slow, not who has stopped.
const PATIENCE: u16 = 250; // ms

/// What a pipe takes in one go once it takes anything.
const CHUNK: usize = 4096;

/// Stands in a line for fields that could not be formatted.
const UNFORMATTED: &str = "(its fields cannot be formatted)";

/// Logs to standard error from now on, and send the spans of a role to a collector, if there is one. In a runtime.
pub fn start(role: &str, format: LogFormat, level: &LogFilter) -> Traces {
    let filter = EnvFilter::new(level.directives());
    let is_styled = cli::styled(&io::stderr());
    let lines: Spans = match format {
        LogFormat::Text => text(Standard, is_styled).with_filter(filter).boxed(),
        LogFormat::Json => json(Standard).with_filter(filter).boxed(),
    };
    let begun = traces::begin(role);
    let why = begun.as_ref().err().cloned();
    let (spans, traces) = begun.ok().flatten().unzip();
    registry().with([lines].into_iter().chain(spans).collect::<Vec<_>>()).init();
    if let Some(why) = why {
        tracing::warn!(why, "sending no spans to an OpenTelemetry collector");
    }
    traces.unwrap_or_default()
}

/// Returns the number of lines that could not be written or formatted since the start.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Prints a line of this program's to standard error; that it cannot be printed changes nothing.
pub fn complain(text: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn text<S, W>(writer: W, is_styled: bool) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    lines::layer()
        .with_writer(writer)
        .with_ansi(is_styled)
        .event_format(PanicSafeFormat { inner: format(), instead: UNFORMATTED })
        .fmt_fields(PanicSafeFormat { inner: DefaultFields::new(), instead: UNFORMATTED })
        .log_internal_errors(false)
}

fn json<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    lines::layer()
        .json()
        .with_writer(writer)
        .event_format(PanicSafeFormat { inner: format().json(), instead: "" })
        .fmt_fields(PanicSafeFormat { inner: JsonFields::new(), instead: "{}" })
        .log_internal_errors(false)
}

/// A format that a panic of what it formats does not leave: that is counted, and the work that logs goes on.
struct PanicSafeFormat<F> {
    inner: F,
    /// What stands for fields that could not be formatted.
    instead: &'static str,
}

impl<S, N, F> FormatEvent<S, N> for PanicSafeFormat<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // The line is thrown away if this fails.
        let formatted = guard(|| self.inner.format_event(context, writer.by_ref(), event));
        if formatted.is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        formatted
    }
}

impl<'writer, F> FormatFields<'writer> for PanicSafeFormat<F>
where
    F: for<'any> FormatFields<'any>,
{
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        if writer.has_ansi_escapes() {
            // A terminal: half of a field is no harm there.
            let formatted = guard(|| self.inner.format_fields(writer.by_ref(), fields));
            LOST.fetch_add(u64::from(formatted.is_err()), Ordering::Relaxed);
            return Ok(());
        }
        let mut text = String::new();
        if guard(|| self.inner.format_fields(Writer::new(&mut text), fields)).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
            self.instead.clone_into(&mut text);
        }
        writer.write_str(&text)
    }
}

/// Format something; a panic in it is an error.
fn guard(format: impl FnOnce() -> fmt::Result) -> fmt::Result {
    catch_unwind(AssertUnwindSafe(format)).unwrap_or(Err(fmt::Error))
}

/// Standard error, to which writing never fails and never hangs.
#[derive(Debug, Clone, Copy)]
struct Standard;

impl<'a> MakeWriter<'a> for Standard {
    type Writer = Lossy<io::Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        Lossy(io::stderr())
    }
}

/// A writer that counts what it cannot write, and goes on.
struct Lossy<W>(W);

impl<W: Write + AsFd> Write for Lossy<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut chunks = line.chunks(CHUNK);
        if !chunks.all(|chunk| takes(&self.0) && self.0.write_all(chunk).is_ok()) {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether something would be written without a wait. Of a reader that has stopped that is asked
/// again for each line.
fn takes(out: &impl AsFd) -> bool {
    let was_stalled = IS_STALLED.load(Ordering::Relaxed);
    let patience = if was_stalled { PollTimeout::ZERO } else { PollTimeout::from(PATIENCE) };
    let mut asked = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
    // What cannot be asked is tried.
    let takes = poll(&mut asked, patience).map_or(true, |ready| ready > 0);
    IS_STALLED.store(!takes, Ordering::Relaxed);
    takes
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::mem;
    use std::sync::{Arc, Mutex, PoisonError};

    use futures_util::FutureExt;

    use super::*;
    use crate::panics::caught;

    /// The count is of the process: tests of it take turns.
    static ALONE: Mutex<()> = Mutex::new(());

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Panics;

    impl fmt::Debug for Panics {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("half a ")?;
            panic!("the formatter")
        }
    }

    /// What is logged, and how many lines were lost with it.
    fn logged(is_json: bool, work: impl FnOnce()) -> (String, u64) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, before) = (Kept::default(), lost());
        let writer = kept.clone();
        let layer = if is_json {
            json(move || writer.clone()).boxed()
        } else {
            text(move || writer.clone(), false).boxed()
        };
        tracing::subscriber::with_default(registry().with(layer), work);
        (kept.text(), lost() - before)
    }

    #[test]
    fn what_cannot_be_formatted_is_lost_alone() {
        for is_json in [false, true] {
            let mut is_done = false;
            let (text, lost) = logged(is_json, || {
                let span = tracing::info_span!("call", volume = ?Panics);
                let _entered = span.enter();
                tracing::info!(what = ?Panics, "first");
                tracing::info!(what = "good", "second");
                is_done = true;
            });
            assert!(is_done && lost == 2, "{lost}: {text}");
            assert!(text.contains("second") && !text.contains("half a"), "{text}");
            let lines: Vec<&str> = text.lines().collect();
            if is_json {
                let [only] = lines.as_slice() else { panic!("{text}") };
                serde_json::from_str::<serde_json::Value>(only).unwrap();
            } else {
                assert!(lines.len() == 2 && lines[0].ends_with(UNFORMATTED), "{text}");
            }
        }
    }

    /// As where a handler panics while the disk of the log is full.
    #[test]
    fn a_panic_is_caught_while_nothing_can_be_written() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let full = || Lossy(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let _logs = tracing::subscriber::set_default(registry().with(text(full, false)));
        let before = lost();
        let call = caught("calls", async { panic!("in a handler") });
        let answer: Result<(), _> = call.now_or_never().expect("it waits for nothing");
        tracing::error!(panicked = %answer.unwrap_err(), "the handler panicked");
        assert!(lost() > before, "it is counted");
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_written_again_later() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let before = lost();
        Lossy(full).write_all(b"a line\n").unwrap();
        assert_eq!(lost() - before, 1);

        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        Lossy(writer).write_all(b"a line\n").unwrap();
        assert_eq!(lost() - before, 2, "nobody reads it any more");

        let (mut reader, writer) = io::pipe().unwrap();
        let mut lossy = Lossy(writer);
        let line = [b'x'; 10_000];
        for _ in 0..50 {
            lossy.write_all(&line).unwrap(); // 500 KB: more than a pipe holds.
        }
        let stalled = lost() - before;
        assert!(stalled > 30, "{stalled}");
        io::Read::read_exact(&mut reader, &mut vec![0; 40_000]).unwrap();
        lossy.write_all(b"again\n").unwrap();
        assert_eq!(lost() - before, stalled, "it is read again");
    }
}
