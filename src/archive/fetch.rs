//! An archive from an http or https address, as a stream.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::archive::Reach;
use crate::copy::CopyError;

/// How long an answer may take, and after it each piece.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often an address may lead to another.
const REDIRECTS: usize = 5;

type Body = hyper::body::Incoming;
type Piece = hyper::body::Bytes;

/// An http or https address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(Uri);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let uri: Uri = text.parse().map_err(|error| format!("`{text}` is no address: {error}"))?;
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        match uri.scheme_str() {
            // It would stand in the pod's command line, for all who may read pods.
            _ if authority.contains('@') => Err("an address may not hold a password".to_owned()),
            Some("http" | "https") => Ok(Address(uri)),
            _ => Err(format!("`{text}` begins with neither http:// nor https://")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may be a signature that lets anybody read.
        let (scheme, authority) = (self.0.scheme_str(), self.0.authority());
        let authority = authority.map(http::uri::Authority::as_str).unwrap_or_default();
        write!(f, "{}://{authority}{}", scheme.unwrap_or_default(), self.0.path())
    }
}

impl Address {
    /// The address itself, where the host is one and no name.
    fn literal(&self) -> Option<IpAddr> {
        self.0.host()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }

    /// Where a redirection leads; from https never to http.
    fn follow(&self, to: &str) -> Result<Address, String> {
        let here = |path: &str| {
            let authority = self.0.authority().map(http::uri::Authority::as_str);
            let (scheme, authority) = (self.0.scheme_str().unwrap_or_default(), authority);
            format!("{scheme}://{}{path}", authority.unwrap_or_default()).parse()
        };
        let next: Address = match to.as_bytes() {
            [b'/', b'/', ..] => format!("{}:{to}", self.0.scheme_str().unwrap_or_default()).parse(),
            [b'/', ..] => here(to),
            _ if to.contains("://") => to.parse(),
            _ => {
                let dir = self.0.path().rsplit_once('/').map_or("", |(dir, _)| dir);
                here(&format!("{dir}/{to}"))
            }
        }?;
        if self.0.scheme_str() == Some("https") && next.0.scheme_str() != Some("https") {
            return Err(format!("it leads to {next}, which is not https"));
        }
        Ok(next)
    }
}

/// Begin to read an archive; its length, if the server says one. No connection is made to an address that
/// is out of reach, whatever a name or a redirection leads to.
///
/// # Errors
/// [`CopyError::Refused`] for an answer that will stay so, [`CopyError::Failed`] for one that may not.
pub fn fetch(address: &Address, reach: &Reach) -> Result<(Stream, Option<u64>), CopyError> {
    let failed = |source| failed(address, source);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let response = runtime.block_on(ask(address, reach))?;
    let length = response.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let stream = Stream { runtime, body: response.into_body(), piece: Piece::new() };
    Ok((stream, length))
}

/// That a name leads to no address that may be asked.
#[derive(Debug, thiserror::Error)]
#[error("out of reach")]
struct OutOfReach;

/// The addresses of a name that may be asked. It is these that are connected to: a name cannot lead elsewhere
/// between the look and the connection.
async fn resolve(
    name: Name,
    reach: Arc<Reach>,
) -> Result<std::vec::IntoIter<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
    let there_are_none = found.is_empty();
    let allowed: Vec<SocketAddr> = found.into_iter().filter(|at| reach.allows(at.ip())).collect();
    if allowed.is_empty() && !there_are_none {
        return Err(OutOfReach.into());
    }
    Ok(allowed.into_iter())
}

fn out_of_reach(address: &Address) -> CopyError {
    CopyError::Refused(format!(
        "{address} leads to no public address: from here archives are fetched from public addresses alone, \
         and from those that the administrator allows (operator.allowedArchiveCidrs)"
    ))
}

/// Whether something failed because of what it leads to.
fn is_out_of_reach(error: &(dyn Error + 'static)) -> bool {
    error.is::<OutOfReach>() || error.source().is_some_and(is_out_of_reach)
}

async fn ask(first: &Address, reach: &Reach) -> Result<Response<Body>, CopyError> {
    let shared = Arc::new(reach.clone());
    let resolver = tower::service_fn(move |name: Name| resolve(name, shared.clone()));
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    let connector = HttpsConnectorBuilder::new().with_native_roots();
    let connector = connector.map_err(|source| failed(first, source))?;
    let connector = connector.https_or_http().enable_http1().wrap_connector(tcp);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let mut address = first.clone();
    for _ in 0..=REDIRECTS {
        // Where the host is an address nothing is resolved.
        if address.literal().is_some_and(|literal| !reach.allows(literal)) {
            return Err(out_of_reach(&address));
        }
        let request = Request::get(address.0.clone())
            .header(header::USER_AGENT, concat!("pliant/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Piece>::new())
            .map_err(|error| failed(&address, io::Error::other(error)))?;
        let answer = timeout(PATIENCE, client.request(request)).await;
        let answer = answer.map_err(|_| failed(&address, io::ErrorKind::TimedOut.into()))?;
        let answer = answer.map_err(|error| {
            if is_out_of_reach(&error) {
                out_of_reach(&address)
            } else {
                failed(&address, io::Error::other(error))
            }
        })?;
        match leads_to(&answer) {
            None => return answered(&address, answer),
            Some(to) => {
                let next = address.follow(to);
                address = next.map_err(|why| CopyError::Refused(format!("{address}: {why}")))?;
            }
        }
    }
    Err(CopyError::Refused(format!("{first} leads on more than {REDIRECTS} times")))
}

fn leads_to(answer: &Response<Body>) -> Option<&str> {
    let is_elsewhere = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let to = answer.headers().get(header::LOCATION).filter(|_| is_elsewhere)?;
    to.to_str().ok()
}

fn answered(address: &Address, answer: Response<Body>) -> Result<Response<Body>, CopyError> {
    let status = answer.status();
    let may_change = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    match status {
        StatusCode::OK => Ok(answer),
        _ if status.is_server_error() || may_change => {
            Err(failed(address, io::Error::other(format!("the server answers {status}"))))
        }
        _ => Err(CopyError::Refused(format!("{address}: the server answers {status}"))),
    }
}

fn failed(address: &Address, source: io::Error) -> CopyError {
    CopyError::Failed { doing: "fetching", path: address.to_string(), source }
}

/// The body of an answer, read by one who waits for it.
pub struct Stream {
    runtime: Runtime,
    body: Body,
    piece: Piece,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let next = self.runtime.block_on(async { timeout(PATIENCE, self.body.frame()).await });
            match next.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))? {
                None => return Ok(0),
                Some(Err(error)) => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, error));
                }
                Some(Ok(frame)) => self.piece = frame.into_data().unwrap_or_default(),
            }
        }
        let length = buffer.len().min(self.piece.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_followed_as_they_are_written_but_never_out_of_https() {
        let from: Address = "https://a.example/x/y.tar?q=1".parse().unwrap();
        let to = |text: &str| from.follow(text).map(|address| address.0.to_string());
        for (text, led) in [
            ("https://b.example/z", "https://b.example/z"),
            ("//c.example/z", "https://c.example/z"),
            ("/z?k=v", "https://a.example/z?k=v"),
            ("z.tar", "https://a.example/x/z.tar"),
        ] {
            assert_eq!(to(text).as_deref(), Ok(led));
        }
        for text in ["http://b.example/z", "ftp://b.example/z", "https://u:p@b.example/z"] {
            assert!(to(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_told() {
        assert!("https://user:secret@a.example/".parse::<Address>().is_err());
        let signed: Address = "https://a.example/x.tar?signature=secret".parse().unwrap();
        assert_eq!(signed.to_string(), "https://a.example/x.tar");
        assert!("/x".parse::<Address>().is_err());
    }
}
