//! One connection: frames with their length in front, over TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection};
use serde::{Deserialize, Serialize};

use super::message::{decode, encode, nonsense};
use crate::copy::Digest;

/// Maximum length of a frame: a piece of a file, or entries of a tree up to the largest attributes.
pub const LONGEST_FRAME: usize = 4 << 20;
/// Bytes before each frame: its length.
const HEAD: usize = 4;
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

    /// Returns the digest of the other side's certificate; `None` before the handshake has ended.
    pub fn peer(&self) -> Option<Digest> {
        let certificates = match &self.tls {
            Tls::Client(tls) => tls.peer_certificates(),
            Tls::Server(tls) => tls.peer_certificates(),
        };
        certificates?.first().map(|own| Digest::of(own))
    }

    /// Marks the other side as authenticated, with a known job: from now on it has no time limit.
    pub fn known(&mut self) {
        self.socket.until = None;
    }

    /// Writes a message; it is sent with the next [`FramedStream::flush`], or before if there are many.
    ///
    /// # Errors
    /// An error of the system; `FileTooLarge` for a message that is too long.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let begin = self.out.len();
        self.out.extend([0; HEAD]);
        self.out = encode(message, std::mem::take(&mut self.out))?;
        let length = self.out.len() - begin - HEAD;
        if length > LONGEST_FRAME {
            self.out.truncate(begin);
            let why = format!("{length} bytes at once, more than can be sent over the network");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let head = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        self.out[begin..begin + HEAD].copy_from_slice(&head);
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

    /// Returns the next message, which may borrow from the buffer; pending messages are sent first.
    ///
    /// # Errors
    /// An error of the system; `InvalidData` for what is too long, or no such message.
    pub fn receive<'b, M: Deserialize<'b>>(&mut self, buffer: &'b mut Vec<u8>) -> io::Result<M> {
        self.receive_frame(buffer)?;
        decode(buffer)
    }

    /// Reads the next frame into the buffer, whatever it says.
    ///
    /// # Errors
    /// As [`FramedStream::receive`].
    pub fn receive_frame(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.flush()?;
        let mut head = [0; HEAD];
        self.read_exact(&mut head)?;
        let length = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
        if length > LONGEST_FRAME {
            return Err(nonsense("a frame that is too long"));
        }
        buffer.resize(length, 0);
        self.read_exact(buffer)
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
        let error = line.receive::<()>(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no request in time"), "{error}");
    }
}
