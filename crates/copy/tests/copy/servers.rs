//! Servers of archives, by http and by https, and proxies.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pliant_copy::archive::Route;
use pliant_copy::certificates::{Authority, CertificateUsage, Validity};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub type Served = JoinHandle<Vec<String>>;

/// Answers each request with the next of these, and then no more; returns the first line of each request.
pub fn serve(answers: Vec<Vec<u8>>) -> (String, Served) {
    let (port, served) = serve_by(Ok, answers);
    (format!("http://127.0.0.1:{port}"), served)
}

/// The same by TLS, as `localhost`.
pub fn serve_tls(keys: &Keys, answers: Vec<Vec<u8>>) -> (String, Served) {
    let config = keys.config.clone();
    let wrap = move |stream| {
        let connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    };
    let (port, served) = serve_by(wrap, answers);
    (format!("https://localhost:{port}"), served)
}

pub fn serve_by<S: Read + Write>(
    wrap: impl Fn(TcpStream) -> io::Result<S> + Send + 'static,
    answers: Vec<Vec<u8>>,
) -> (u16, Served) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let mut stream = wrap(listener.accept().unwrap().0).unwrap();
            // Who does not believe a certificate asks nothing.
            let Ok(request) = head(&mut stream) else { continue };
            asked.push(request.lines().next().unwrap().to_owned());
            let _ = stream.write_all(&answer); // Who has seen enough leaves.
        }
        asked
    });
    (port, served)
}

/// A request, up to the empty line.
pub fn head(stream: &mut impl Read) -> io::Result<String> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    String::from_utf8(request).map_err(io::Error::other)
}

/// An authority of its own, and what a server is known by.
pub struct Keys {
    pub authority: String,
    pub config: Arc<ServerConfig>,
}

pub fn keys_of(host: &str, expires: u64) -> Keys {
    let years = |count: u64| Duration::from_secs(count * 31_557_600);
    let lasting = Validity { begins: years(30), expires: years(expires) };
    let authority = Authority::make("of the test", lasting).unwrap();
    let (certificate, key) = authority.sign(host, "server", CertificateUsage::Server).unwrap();
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(chain.collect(), key).unwrap();
    Keys { authority: authority.pem(), config: Arc::new(config) }
}

pub fn keys() -> Keys {
    keys_of("localhost", 200)
}

impl Keys {
    /// As whoever believes the authority reaches a server.
    pub fn route(&self) -> Route {
        Route { bundle: self.authority.parse().unwrap(), ..Route::default() }
    }
}

/// A proxy that knows hosts whose names nothing else knows: whatever it is asked for is at this port. What it is asked
/// for without a tunnel it answers so. Returns the first line of each request.
pub fn proxy(answers: Vec<Option<Vec<u8>>>, port: u16) -> (String, Served) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let served = thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let request = head(&mut stream).unwrap();
            let authorization = request.lines().find(|line| line.starts_with("proxy-auth"));
            let authorization = authorization
                .or_else(|| request.lines().find(|line| line.starts_with("Proxy-Auth")));
            let line = request.lines().next().unwrap();
            asked.push([line, authorization.unwrap_or_default()].join(" ").trim().to_owned());
            let Some(answer) = answer else {
                let target = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                tunnel(&stream, &target);
                continue;
            };
            let _ = stream.write_all(&answer);
        }
        asked
    });
    (address, served)
}

/// Carry bytes both ways, until both have ended.
pub fn tunnel(near: &TcpStream, far: &TcpStream) {
    let carry = |mut from: &TcpStream, mut to: &TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::scope(|scope| {
        scope.spawn(|| carry(near, far));
        carry(far, near);
    });
}

pub fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}
