//! The receiver: connects to a sending pod, once for each job.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::connection::{Frame, FramedStream, Tls, take_error};
use super::message::{MessageReader, MessageWriter, nonsense, now};
use super::tls::{Credentials, SOURCE};
use super::transfer::{Job, word};
use crate::copy::{CopyError, Stamp};

/// How long a connection may take to be made, and who sends to say who it is.
const GREETING: Duration = Duration::from_secs(60);
/// How long what was sent may stay unanswered by the other kernel: all of it is short and read at once.
const UNANSWERED_MS: u32 = 180_000;
/// How much earlier than the clocks say is believed: they are compared once, and may drift.
const DOUBT: Duration = Duration::from_secs(60);

/// A pod that sends.
#[derive(Clone)]
pub struct Remote {
    pub(super) address: String,
    config: Arc<ClientConfig>,
    stop: Arc<AtomicBool>,
}

/// A tree that a pod sends.
#[derive(Debug, Clone)]
pub struct RemoteTree {
    pub(super) remote: Remote,
    pub(super) doubt: Duration,
}

/// A connection for one job.
pub(super) struct Connection {
    line: FramedStream,
    remote: Remote,
    buffer: Vec<u8>,
    /// The clock of the source, and that of this host at the same time.
    pub(super) clocks: (Stamp, Stamp),
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(&self.address).finish()
    }
}

impl Remote {
    /// Creates the client of a sender at this address, host and port; until `stop` is set.
    ///
    /// # Errors
    /// Keys that are not usable.
    pub fn at(
        address: &str,
        credentials: &Credentials,
        stop: Arc<AtomicBool>,
    ) -> Result<Remote, CopyError> {
        let config = Arc::new(credentials.client()?);
        Ok(Remote { address: address.to_owned(), config, stop })
    }

    /// Converts an error of the connection to one of the copy.
    pub(super) fn failed(&self, source: io::Error) -> CopyError {
        if self.stop.load(Ordering::Relaxed) {
            return CopyError::Stopped;
        }
        CopyError::Failed { doing: "receiving from", path: self.address.clone(), source }
    }

    /// Connects, and sends the job.
    pub(super) fn connect(&self, job: Job) -> Result<Connection, CopyError> {
        self.try_to_connect(job).map_err(|error| self.failed(error))
    }

    fn try_to_connect(&self, job: Job) -> io::Result<Connection> {
        let tcp = self.dial()?;
        rustix::net::sockopt::set_tcp_user_timeout(&tcp, UNANSWERED_MS)?;
        let name = ServerName::try_from(SOURCE).map_err(io::Error::other)?;
        let tls = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        let tls = Tls::Client(Box::new(tls));
        let mut line = FramedStream::over(tcp, tls, self.stop.clone(), GREETING)?;
        let mut put = MessageWriter::default();
        job.put(&mut put);
        line.send(word::JOB, &put.0)?;
        let mut buffer = Vec::new();
        let theirs = match line.receive(&mut buffer)? {
            Frame { word: word::CLOCK, body } => MessageReader(body).stamp()?,
            _ => return Err(nonsense("no greeting")),
        };
        line.known();
        Ok(Connection { line, remote: self.clone(), buffer, clocks: (theirs, now()) })
    }

    fn dial(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name does not resolve");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, GREETING) {
                Ok(tcp) => return Ok(tcp),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl RemoteTree {
    /// A tree whose sender's clock is known to a minute.
    pub fn of(remote: Remote) -> RemoteTree {
        RemoteTree { remote, doubt: DOUBT }
    }

    /// The same with another doubt of the clocks: what changed at the source so long before it was carried is
    /// compared once more.
    #[must_use]
    pub fn with_doubt(self, doubt: Duration) -> RemoteTree {
        RemoteTree { doubt, ..self }
    }
}

impl Connection {
    /// Writes a request down; it leaves before the next answer is awaited.
    pub(super) fn send(&mut self, word: u8, put: &MessageWriter) -> io::Result<()> {
        self.line.send(word, &put.0)
    }

    /// The next frame.
    pub(super) fn receive(&mut self) -> io::Result<Frame<'_>> {
        self.line.receive(&mut self.buffer)
    }

    /// Returns the next frame of a stream; an error at the source becomes one here.
    pub(super) fn next(&mut self) -> Result<Frame<'_>, CopyError> {
        let failed = |error| self.remote.failed(error);
        let frame = self.line.receive(&mut self.buffer).map_err(failed)?;
        if frame.word == word::ERROR {
            return Err(take_error(&mut MessageReader(frame.body)).unwrap_or_else(failed));
        }
        Ok(frame)
    }

    /// Converts an invalid frame to an error of the connection.
    pub(super) fn said<T>(&self, read: io::Result<T>) -> Result<T, CopyError> {
        read.map_err(|error| self.remote.failed(error))
    }
}
