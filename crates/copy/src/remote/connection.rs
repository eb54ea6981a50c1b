//! One connection: frames with their length in front, over TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection};

use super::message::{MessageReader, MessageWriter, nonsense};
use crate::copy::{CopyError, shown};

/// Maximum length of a frame: a piece of a file, or entries of a tree up to the largest attributes.
pub const LONGEST_FRAME: usize = 4 << 20;
/// How often who waits looks whether it must go on.
const LOOK: Duration = Duration::from_millis(200);
/// After how long a silent connection is asked whether it still is there, and how often.
const IDLE: Duration = Duration::from_secs(60);
const ASKED: u32 = 6;

/// Either end of TLS.
#[derive(Debug)]
pub enum Tls {
    /// The connecting side.
    Client(Box<ClientConnection>),
    /// The accepting side.
    Server(Box<ServerConnection>),
}

/// The bytes below TLS, which reads on by itself while bytes come, be it one at a time: what ends a wait is
/// looked for here.
struct Socket {
    tcp: TcpStream,
    stop: Arc<AtomicBool>,
    /// When the other side has to be known; none once it is: then it may be silent as long as its kernel
    /// answers.
    until: Option<Instant>,
}

impl Socket {
    fn in_time(&self) -> io::Result<&TcpStream> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        if self.until.is_some_and(|until| Instant::now() > until) {
            return Err(io::Error::other("the other side sent no key and no request in time"));
        }
        Ok(&self.tcp)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.in_time()?.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.in_time()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
pub struct FramedStream {
    tls: Tls,
    socket: Socket,
    out: Vec<u8>,
}

/// A received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Message type.
    pub word: u8,
    /// Content of the message.
    pub body: &'a [u8],
}

impl FramedStream {
    /// Starts TLS on a connection, until `stop`. The other side has to be [`FramedStream::known`] within
    /// `greeting`.
    ///
    /// # Errors
    /// An error of the system on it.
    pub fn over(
        tcp: TcpStream,
        tls: Tls,
        stop: Arc<AtomicBool>,
        greeting: Duration,
    ) -> io::Result<FramedStream> {
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(LOOK))?;
        tcp.set_write_timeout(Some(LOOK))?;
        rustix::net::sockopt::set_socket_keepalive(&tcp, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&tcp, IDLE)?;
        rustix::net::sockopt::set_tcp_keepintvl(&tcp, IDLE / ASKED)?;
        rustix::net::sockopt::set_tcp_keepcnt(&tcp, ASKED)?;
        let socket = Socket { tcp, stop, until: Some(Instant::now() + greeting) };
        Ok(FramedStream { tls, socket, out: Vec::new() })
    }

    /// Marks the other side as authenticated, with a known job: from now on it has no time limit.
    pub fn known(&mut self) {
        self.socket.until = None;
    }

    /// Writes a frame; it is sent with the next [`FramedStream::flush`], or before if there are many.
    ///
    /// # Errors
    /// An error of the system, and a frame that is too long.
    pub fn send(&mut self, word: u8, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if body.len() > LONGEST_FRAME {
            let why = format!("{length} bytes at once, more than can be sent over the network");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        self.out.extend(length.to_le_bytes());
        self.out.push(word);
        self.out.extend_from_slice(body);
        if self.out.len() >= 256 << 10 { self.flush() } else { Ok(()) }
    }

    /// Sends all frames.
    ///
    /// # Errors
    /// An error of the system, a greeting that takes too long, and a stop.
    pub fn flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        let mut done = 0;
        while done < out.len() {
            done += self.patiently(|line| line.write_some(&out[done..]))?;
        }
        self.patiently(FramedStream::write_rest)?;
        self.out = out;
        self.out.clear();
        Ok(())
    }

    /// Returns the next frame; pending frames are sent first.
    ///
    /// # Errors
    /// An error of the system; `InvalidData` for a frame that is too long.
    pub fn receive<'b>(&mut self, buffer: &'b mut Vec<u8>) -> io::Result<Frame<'b>> {
        self.flush()?;
        let mut head = [0; 5];
        self.read_exact(&mut head)?;
        let [a, b, c, d, word] = head;
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > LONGEST_FRAME {
            return Err(nonsense("a frame that is too long"));
        }
        buffer.resize(length, 0);
        self.read_exact(buffer)?;
        Ok(Frame { word, body: buffer })
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.patiently(|line| line.read_some(&mut buffer[done..]))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read,
            }
        }
        Ok(())
    }

    /// Tries until it works, or [`Socket`] says that it is enough.
    fn patiently<T>(
        &mut self,
        mut work: impl FnMut(&mut FramedStream) -> io::Result<T>,
    ) -> io::Result<T> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        let gone = Some(rustix::io::Errno::TIMEDOUT.raw_os_error());
        loop {
            match work(self) {
                Err(error)
                    if [Interrupted, TimedOut, WouldBlock].contains(&error.kind())
                        && error.raw_os_error() != gone => {}
                other => return other,
            }
        }
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Tls::Client(tls) => rustls::Stream::new(tls.as_mut(), &mut self.socket).read(buffer),
            Tls::Server(tls) => rustls::Stream::new(tls.as_mut(), &mut self.socket).read(buffer),
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Tls::Client(tls) => rustls::Stream::new(tls.as_mut(), &mut self.socket).write(bytes),
            Tls::Server(tls) => rustls::Stream::new(tls.as_mut(), &mut self.socket).write(bytes),
        }
    }

    fn write_rest(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Tls::Client(tls) => rustls::Stream::new(tls.as_mut(), &mut self.socket).flush(),
            Tls::Server(tls) => rustls::Stream::new(tls.as_mut(), &mut self.socket).flush(),
        }
    }
}

/// Writes down how something failed at the source.
pub fn put_error(put: &mut MessageWriter, error: &CopyError) {
    match error {
        CopyError::Changed { path } => {
            put.byte(0);
            put.bytes(path.as_bytes());
        }
        CopyError::Failed { path, source, .. } => {
            put.byte(1);
            put.bytes(path.as_bytes());
            put_io(put, source);
        }
        other => {
            put.byte(2);
            put.bytes(other.to_string().as_bytes());
        }
    }
}

/// Reads how something failed at the source.
///
/// # Errors
/// What makes no sense.
pub fn take_error(take: &mut MessageReader) -> io::Result<CopyError> {
    let number = take.byte()?;
    let text = String::from_utf8_lossy(take.bytes()?).into_owned();
    // It was made to be shown there; who sends nonsense gets it escaped once more.
    let path = if text.is_ascii() { text } else { shown(text.as_bytes()) };
    Ok(match number {
        0 => CopyError::Changed { path },
        1 => CopyError::Failed { doing: "reading at the source", path, source: take_io(take)? },
        _ => CopyError::Refused(format!("the source reports: {path}")),
    })
}

/// Writes down an error of the system.
pub fn put_io(put: &mut MessageWriter, error: &io::Error) {
    let code = error.raw_os_error().unwrap_or_default();
    put.u32(u32::try_from(code).unwrap_or_default());
    put.bytes(error.to_string().as_bytes());
}

/// Reads an error of the system of the source. That it is full is nothing to the target.
///
/// # Errors
/// What makes no sense.
pub fn take_io(take: &mut MessageReader) -> io::Result<io::Error> {
    use rustix::io::Errno;
    let code = i32::try_from(take.u32()?).unwrap_or_default();
    let text = String::from_utf8_lossy(take.bytes()?).into_owned();
    let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    if code == 0 || full.contains(&code) {
        return Ok(io::Error::other(shown(text.as_bytes())));
    }
    Ok(io::Error::from_raw_os_error(code))
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener};

    use rustls::ServerConfig;
    use rustls::server::ResolvesServerCertUsingSni;

    use super::*;

    #[test]
    fn a_greeting_is_ended_in_time_though_bytes_keep_coming() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // The head of a record of 64 bytes, and the first of them.
        theirs.write_all(&[22, 3, 1, 0, 64, 1]).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let tls = Tls::Server(Box::new(ServerConnection::new(Arc::new(config)).unwrap()));
        let (ours, _) = listener.accept().unwrap();
        let mut line = FramedStream::over(ours, tls, Arc::default(), Duration::ZERO).unwrap();
        let error = line.receive(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no request in time"), "{error}");
    }
}
