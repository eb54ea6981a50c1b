//! The sender: reads, and never writes.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};

use super::callers::{Caller, Callers};
use super::connection::{Frame, FramedStream, LONGEST_FRAME, Tls, put_error, put_io};
use super::content::{ContentReader, Served};
use super::message::{MessageReader, MessageWriter, nonsense, now};
use super::tls::Credentials;
use super::transfer::{Job, word};
use crate::copy::{
    At, Attributes, CopyError, Dir, EntryKind, LocalDisk, Needs, ProgressReporter, SourceDisk,
    SourceTree, Steps, Walk, WalkStep, WalkStepKind,
};

/// How long who connects may take to say who it is and what it wants.
const GREETING: Duration = Duration::from_secs(5);
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
    let callers = &Callers::default();
    thread::scope(|scope| {
        loop {
            let (tcp, from) = match listener.accept() {
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
            let config = config.clone();
            scope.spawn(move || {
                if let Err(error) = answer(tcp, config, source, &caller) {
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
    let Frame { word: word::JOB, body } = line.receive(&mut buffer)? else {
        return Err(nonsense("no job"));
    };
    // It was read with the key of one who shows the right certificate.
    let job = Job::take(&mut MessageReader(body))?;
    caller.known()?;
    line.known();
    let mut clock = MessageWriter::default();
    clock.stamp(now());
    line.send(word::CLOCK, &clock.0)?;
    match (job, source) {
        (Job::Read, source) => ContentReader::of(source).answer_all(&mut line),
        (Job::Sum { size, limit }, Served::Device(path)) => {
            PushStream::over(line, limit).end(|stream| sum(path, size, stream))
        }
        (Job::Count { live, block }, Served::Tree(top)) => {
            PushStream::over(line, None).end(|stream| count(top, live, block, stream))
        }
        (Job::Walk { live }, Served::Tree(top)) => {
            PushStream::over(line, None).end(|stream| walk(top, live, stream))
        }
        (Job::Entries { limit }, Served::Tree(top)) => {
            PushStream::over(line, limit).end(|stream| entries(top, stream))
        }
        (job, source) => PushStream::over(line, None).end(|_| Err(is_another(job, source))),
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
    fn over(line: FramedStream, limit: Option<u64>) -> PushStream {
        let pace = ProgressReporter::new(Box::new(io::sink()), limit, Arc::default());
        let (line, pace) = (RefCell::new(line), RefCell::new(pace));
        PushStream { line, behind: Cell::new(0), told: Cell::new(Instant::now()), pace }
    }

    /// Does the job, and returns its result.
    fn end(
        self,
        job: impl FnOnce(&PushStream) -> Result<(u8, MessageWriter), CopyError>,
    ) -> io::Result<()> {
        let ended = job(&self);
        // What was not told yet belongs to it, however it ended.
        let told = if self.behind.get() > 0 { self.tell_ticks() } else { Ok(()) };
        let (word, put) = ended.and_then(|end| told.map(|()| end)).unwrap_or_else(|error| {
            let mut put = MessageWriter::default();
            put_error(&mut put, &error);
            (word::ERROR, put)
        });
        let mut line = self.line.into_inner();
        line.send(word, &put.0)?;
        line.flush()
    }

    fn say(&self, word: u8, put: &MessageWriter) -> Result<(), CopyError> {
        let length = put.0.len();
        if length > LONGEST_FRAME {
            return Err(CopyError::Refused(format!(
                "{length} bytes of names and attributes of one file are more than can be sent"
            )));
        }
        self.line.borrow_mut().send(word, &put.0).at("sending", b"")
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
        let mut put = MessageWriter::default();
        put.u64(self.behind.take());
        self.say(word::TICK, &put)
    }
}

fn sum(path: &Path, size: u64, stream: &PushStream) -> Result<(u8, MessageWriter), CopyError> {
    let sum = LocalDisk(path).sum(size, None, &mut |bytes| stream.read(bytes))?;
    let mut put = MessageWriter::default();
    put.digest(&sum.digest);
    put.u64(sum.stored);
    Ok((word::SUM, put))
}

fn count(
    top: &Dir,
    live: bool,
    block: u64,
    stream: &PushStream,
) -> Result<(u8, MessageWriter), CopyError> {
    let mut put = MessageWriter::default();
    put.requirements(&Needs::of(top, live, block, &mut || stream.tick(1))?);
    Ok((word::NEEDS, put))
}

fn entries(top: &Dir, stream: &PushStream) -> Result<(u8, MessageWriter), CopyError> {
    top.entries(None, None, &mut |bytes| stream.read(bytes), &mut |entry| {
        let mut put = MessageWriter::default();
        put.entry(&entry);
        stream.say(word::ENTRY, &put)
    })?;
    Ok((word::END, MessageWriter::default()))
}

fn walk(top: &Dir, live: bool, stream: &PushStream) -> Result<(u8, MessageWriter), CopyError> {
    let mut walk = Walk::over(top.again().at("reading", b"")?, live)?;
    while let Some(found) = walk.step()? {
        let mut put = MessageWriter::default();
        let word = match found.step {
            WalkStepKind::Enter => {
                put.bytes(found.name.to_bytes());
                put.meta(&found.meta);
                stream.say(word::ENTER, &put)?;
                say_names(&walk, stream)?;
                continue;
            }
            WalkStepKind::Thing => {
                put.bytes(found.name.to_bytes());
                put.meta(&found.meta);
                put_looked(&mut put, look(&mut walk, &found));
                word::THING
            }
            WalkStepKind::Leave => {
                let (now, attributes) = walk.leaving().at("reading", walk.path())?;
                put.meta(&now);
                put.attributes(&attributes);
                word::LEAVE
            }
        };
        stream.say(word, &put)?;
    }
    let mut vanished = MessageWriter::default();
    vanished.u64(walk.vanished);
    Ok((word::END, vanished))
}

/// All names of the directory where the walk is; an empty frame ends them.
fn say_names(walk: &Walk, stream: &PushStream) -> Result<(), CopyError> {
    let mut put = MessageWriter::default();
    for name in walk.names().iter() {
        put.bytes(name.to_bytes());
        if put.0.len() >= NAMES_AT_ONCE {
            stream.say(word::NAMES, &put)?;
            put.0.clear();
        }
    }
    if !put.0.is_empty() {
        stream.say(word::NAMES, &put)?;
    }
    stream.say(word::NAMES, &MessageWriter::default())
}

/// No one asks for those of what is not carried.
fn look(walk: &mut Walk, found: &WalkStep) -> io::Result<(Attributes, Vec<u8>)> {
    match found.meta.kind {
        EntryKind::Directory | EntryKind::Socket => Ok(Default::default()),
        _ => walk.look(found),
    }
}

/// That it is gone by now is for who receives to know.
fn put_looked(put: &mut MessageWriter, looked: io::Result<(Attributes, Vec<u8>)>) {
    put.byte(looked.is_ok().into());
    match looked {
        Ok((attributes, says)) => {
            put.attributes(&attributes);
            put.bytes(&says);
        }
        Err(error) => put_io(put, &error),
    }
}
