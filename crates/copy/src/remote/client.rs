//! The receiver: connects to a sending pod, once for each job.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::connection::{FramedStream, Tls};
use super::message::{Request, Streamed, SystemError, nonsense, now};
use super::tls::{Credentials, SOURCE};
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

    /// Creates the client of a sender at this address, with a configuration of its own.
    pub(super) fn with(address: &str, config: ClientConfig, stop: Arc<AtomicBool>) -> Remote {
        Remote { address: address.to_owned(), config: Arc::new(config), stop }
    }

    /// Connects, and sends the job, or what else the first message is.
    pub(super) fn connect(&self, job: impl Serialize) -> Result<Connection, CopyError> {
        self.try_to_connect(&job).map_err(|error| self.failed(error))
    }

    fn try_to_connect(&self, job: &impl Serialize) -> io::Result<Connection> {
        let tcp = self.dial()?;
        rustix::net::sockopt::set_tcp_user_timeout(&tcp, UNANSWERED_MS)?;
        let name = ServerName::try_from(SOURCE).map_err(io::Error::other)?;
        let tls = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        let tls = Tls::Client(Box::new(tls));
        let mut line = FramedStream::over(tcp, tls, self.stop.clone(), GREETING)?;
        line.send(job)?;
        let mut buffer = Vec::new();
        let theirs: Stamp = line.receive(&mut buffer)?;
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
    pub(super) fn send(&mut self, request: &Request) -> io::Result<()> {
        self.line.send(request)
    }

    /// Returns the answer to a request.
    pub(super) fn answer<'b, T: Deserialize<'b>>(&'b mut self) -> io::Result<T> {
        let answer: Result<T, SystemError> = self.line.receive(&mut self.buffer)?;
        answer.map_err(io::Error::from)
    }

    /// Passes over an answer that no one wants any more.
    pub(super) fn skip_answer(&mut self) -> io::Result<()> {
        self.line.receive_frame(&mut self.buffer)
    }

    /// Returns the next part of a stream; `tick` hears what is done meanwhile. An error at the source becomes one here.
    pub(super) fn part<P: DeserializeOwned>(
        &mut self,
        tick: &mut dyn FnMut(u64) -> Result<(), CopyError>,
    ) -> Result<P, CopyError> {
        loop {
            let streamed = self.line.receive(&mut self.buffer);
            match streamed.map_err(|error| self.remote.failed(error))? {
                Streamed::Tick(count) => tick(count)?,
                Streamed::Part(part) => return Ok(part),
                Streamed::Failed(failure) => return Err(failure.into()),
            }
        }
    }

    /// Converts an error of the connection to one of the copy.
    pub(super) fn failed(&self, error: io::Error) -> CopyError {
        self.remote.failed(error)
    }

    /// Returns the error for parts that make no sense.
    pub(super) fn refuse(&self, what: &str) -> CopyError {
        self.failed(nonsense(what))
    }
}
