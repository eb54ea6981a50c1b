//! The sender: reads, and never writes.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};
use serde::Serialize;

use super::callers::{Caller, Callers};
use super::connection::{FramedStream, Tls};
use super::content::{ContentReader, Served};
use super::message::{Job, Name, SourceFailure, Streamed, WalkPart, now, sendable};
use super::tls::Credentials;
use crate::copy::{
    At, Attributes, CopyError, Dir, Entry, EntryKind, LocalDisk, Needs, ProgressReporter,
    SourceDisk, SourceTree, Steps, Sum, Walk, WalkStep, WalkStepKind,
};

/// How long who connects may take to say who it is and what it wants.
pub(super) const GREETING: Duration = Duration::from_secs(5);
/// How often it is reported how far it is.
const EVERY: Duration = Duration::from_millis(500);
/// Bytes of names in a frame.
const NAMES_AT_ONCE: usize = 64 << 10;

/// Sends it to clients with the right certificate, any number of times; `tell` is called for
/// connections that failed.
///
/// # Errors
/// Keys that are not usable, and an error of the listener. An error of a connection ends only that
/// one.
pub fn serve(
    listener: &TcpListener,
    source: &Served,
    credentials: &Credentials,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Infallible, CopyError> {
    let config = Arc::new(credentials.server()?);
    let stop = AtomicBool::new(false);
    let ended = accept_all(listener, &stop, tell, &|tcp, caller| {
        answer(tcp, config.clone(), source, caller)
    });
    // It is never stopped.
    ended.and(Err(CopyError::Stopped))
}

/// Answers each connection in a thread of its own, until `stop` is set and one more has come.
///
/// # Errors
/// An error of the listener. An error of a connection ends only that one, and `tell` is called for it.
pub(super) fn accept_all(
    listener: &TcpListener,
    stop: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
    answer: &(dyn Fn(TcpStream, &Caller) -> io::Result<()> + Sync),
) -> Result<(), CopyError> {
    let callers = &Callers::default();
    thread::scope(|scope| {
        loop {
            let accepted = listener.accept();
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let (tcp, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => {
                    tell(&format!("lost a connection: {error}"));
                    continue;
                }
                Err(source) => {
                    let path = listener.local_addr().map(|at| at.to_string()).unwrap_or_default();
                    return Err(CopyError::Failed { doing: "listening on", path, source });
                }
            };
            let caller = match callers.admit(&tcp, from) {
                Ok(caller) => caller,
                Err(error) => {
                    tell(&format!("{from}: {error}"));
                    continue;
                }
            };
            scope.spawn(move || {
                if let Err(error) = answer(tcp, &caller) {
                    tell(&format!("{from}: {error}"));
                }
            });
        }
    })
}

/// Returns whether another connection may work: see accept(2), "Error handling".
fn is_of_one_connection(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let all = [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::PROTO,
        Errno::NETDOWN,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
        Errno::PERM,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
    ];
    Errno::from_io_error(error).is_some_and(|errno| all.contains(&errno))
}

/// Answer one connection to its end.
fn answer(
    tcp: TcpStream,
    config: Arc<ServerConfig>,
    source: &Served,
    caller: &Caller,
) -> io::Result<()> {
    let tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut line = FramedStream::over(tcp, Tls::Server(Box::new(tls)), Arc::default(), GREETING)?;
    let mut buffer = Vec::new();
    // It was read with the key of one who shows the right certificate.
    let job: Job = line.receive(&mut buffer)?;
    caller.known()?;
    line.known();
    line.send(&now())?;
    match (job, source) {
        (Job::Read, source) => ContentReader::of(source).answer_all(&mut line),
        (Job::Sum { size, limit }, Served::Device(path)) => {
            PushStream::over(line, limit).end(|stream| sum(path, size, stream))
        }
        (Job::Count { live, block }, Served::Tree(top)) => {
            PushStream::over(line, None).end(|stream| count(top, live, block.get(), stream))
        }
        (Job::Walk { live }, Served::Tree(top)) => {
            PushStream::over(line, None).end(|stream| walk(top, live, stream))
        }
        (Job::Entries { limit }, Served::Tree(top)) => {
            PushStream::over(line, limit).end(|stream| entries(top, stream))
        }
        (job, source) => PushStream::over(line, None).end::<()>(|_| Err(is_another(job, source))),
    }
}

fn is_another(job: Job, source: &Served) -> CopyError {
    let (is, wants) = match source {
        Served::Tree(_) => ("a tree", "a device"),
        Served::Device(_) => ("a device", "a tree"),
    };
    CopyError::Refused(format!(
        "the source sends {is}, but the target expects {wants} ({job:?}); use --device on both or \
         on neither"
    ))
}

/// What is said to the other side without its asking.
struct PushStream {
    line: RefCell<FramedStream>,
    /// Ticks that have not been told, and when the last were.
    behind: Cell<u64>,
    told: Cell<Instant>,
    pace: RefCell<ProgressReporter>,
}

impl PushStream {
    fn over(line: FramedStream, limit: Option<NonZeroU64>) -> PushStream {
        let limit = limit.map(NonZeroU64::get);
        let pace = ProgressReporter::new(Box::new(io::sink()), limit, Arc::default());
        let (line, pace) = (RefCell::new(line), RefCell::new(pace));
        PushStream { line, behind: Cell::new(0), told: Cell::new(Instant::now()), pace }
    }

    /// Does the job, and sends its last part, or how it failed.
    fn end<P: Serialize>(
        self,
        job: impl FnOnce(&PushStream) -> Result<P, CopyError>,
    ) -> io::Result<()> {
        let ended = job(&self);
        // What was not told yet belongs to it, however it ended.
        let told = if self.behind.get() > 0 { self.tell_ticks() } else { Ok(()) };
        let mut line = self.line.into_inner();
        line.send(&match ended.and_then(|end| told.map(|()| end)) {
            Ok(last) => Streamed::Part(last),
            Err(error) => Streamed::Failed(SourceFailure::from(&error)),
        })?;
        line.flush()
    }

    fn say<P: Serialize>(&self, part: P) -> Result<(), CopyError> {
        self.send(&Streamed::Part(part))
    }

    fn send<P: Serialize>(&self, streamed: &Streamed<P>) -> Result<(), CopyError> {
        let sent = self.line.borrow_mut().send(streamed);
        match sent {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Err(CopyError::Refused(format!("names and attributes of one file: {error}")))
            }
            sent => sent.at("sending", b""),
        }
    }

    /// So much more is behind.
    fn tick(&self, count: u64) -> Result<(), CopyError> {
        self.behind.set(self.behind.get() + count);
        if self.told.get().elapsed() >= EVERY {
            self.tell_ticks()?;
            self.line.borrow_mut().flush().at("sending", b"")?;
        }
        Ok(())
    }

    /// So many bytes more were read, no faster than is asked for.
    fn read(&self, bytes: u64) -> Result<(), CopyError> {
        self.tick(bytes)?;
        self.pace.borrow_mut().moved(bytes)
    }

    fn tell_ticks(&self) -> Result<(), CopyError> {
        self.told.set(Instant::now());
        self.send(&Streamed::<()>::Tick(self.behind.take()))
    }
}

fn sum(path: &Path, size: u64, stream: &PushStream) -> Result<Sum, CopyError> {
    LocalDisk(path).sum(size, None, &mut |bytes| stream.read(bytes))
}

fn count(top: &Dir, live: bool, block: u64, stream: &PushStream) -> Result<Needs, CopyError> {
    Needs::of(top, live, block, &mut || stream.tick(1))
}

fn entries(top: &Dir, stream: &PushStream) -> Result<Option<Entry>, CopyError> {
    let tick = &mut |bytes| stream.read(bytes);
    top.entries(None, None, tick, &mut |entry| stream.say(Some(entry)))?;
    Ok(None)
}

fn walk(top: &Dir, live: bool, stream: &PushStream) -> Result<WalkPart, CopyError> {
    let mut walk = Walk::over(top.again().at("reading", b"")?, live)?;
    while let Some(found) = walk.step()? {
        let name = || Name::parse(found.name.to_bytes()).at("reading", walk.path());
        match found.step {
            WalkStepKind::Enter => {
                let name = if found.name.is_empty() { None } else { Some(name()?) };
                stream.say(WalkPart::Enter(name, found.meta))?;
                say_names(&walk, stream)?;
            }
            WalkStepKind::Thing => {
                let name = name()?;
                // That it is gone by now is for who receives to know.
                let looked = sendable(look(&mut walk, &found));
                stream.say(WalkPart::Entry(name, found.meta, looked))?;
            }
            WalkStepKind::Leave => {
                let (now, attributes) = walk.leaving().at("reading", walk.path())?;
                stream.say(WalkPart::Leave(now, attributes))?;
            }
        }
    }
    Ok(WalkPart::End(walk.vanished))
}

/// All names of the directory where the walk is; none end them.
fn say_names(walk: &Walk, stream: &PushStream) -> Result<(), CopyError> {
    let (mut names, mut bytes) = (Vec::new(), 0);
    for name in walk.names().iter() {
        bytes += name.count_bytes();
        names.push(Name::parse(name.to_bytes()).at("reading", walk.path())?);
        if bytes >= NAMES_AT_ONCE {
            stream.say(WalkPart::Names(std::mem::take(&mut names)))?;
            bytes = 0;
        }
    }
    if !names.is_empty() {
        stream.say(WalkPart::Names(names))?;
    }
    stream.say(WalkPart::Names(Vec::new()))
}

/// No one asks for those of what is not carried.
fn look(walk: &mut Walk, found: &WalkStep) -> io::Result<(Attributes, Vec<u8>)> {
    match found.meta.kind {
        EntryKind::Directory | EntryKind::Socket => Ok(Default::default()),
        _ => walk.look(found),
    }
}
